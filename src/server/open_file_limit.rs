//! Raises the limit of open files. Most systems start a process with a low soft limit below a high
//! hard limit. If the hard limit is too low, the limit of connections is lowered.

use super::StartError;
use crate::config::Config;
use crate::model::Limits;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files in addition to connections: allowed directories, directories in a scan, files in a read.
const RESERVED_FILES: usize = 512;

/// Files of the daemon in addition to listeners and allowed directories. Measured: a daemon with one
/// TCP listener has 17 files open, and lists 30 skills on two threads with a limit of 21. The rest is
/// for six more threads of a scan, for connections and for reads.
const MIN_FILES: usize = 56;

/// Rejects a limit of open files with which the daemon cannot scan a root.
pub fn require_open_files(config: &Config) -> Result<(), StartError> {
    let Some(files) = getrlimit(Resource::Nofile).maximum else {
        return Ok(());
    };
    let needed = min_open_files(config);
    if usize::try_from(files).is_ok_and(|files| files < needed) {
        return Err(StartError::config(format!(
            "only {files} files may be open at once, but this configuration needs {needed} or more; \
             set LimitNOFILE={needed} in the systemd unit, or raise the limit with `ulimit -n`"
        )));
    }
    Ok(())
}

/// Returns how many files the daemon opens at least with a configuration.
fn min_open_files(config: &Config) -> usize {
    // A Unix socket also has a lock file.
    let listeners = config.listeners.len() + usize::from(config.metrics.is_some());
    MIN_FILES + 2 * listeners + config.allowed_dirs.len()
}

/// Raises the soft limit to the hard limit. If that does not suffice, lowers `max_connections`, to
/// half of the files or more.
pub fn raise_open_file_limit(limits: &mut Limits) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: maximum,
            maximum,
        },
    ) {
        tracing::debug!(%error, ?current, "raising the limit of open files failed");
    }
    let Some(files) = getrlimit(Resource::Nofile).current else {
        return;
    };
    let connections = max_connections_for(usize::try_from(files).unwrap_or(usize::MAX));
    if connections < limits.max_connections {
        tracing::warn!(
            "only {files} files may be open at once, so max_connections is lowered from {} to \
             {connections}; raise the limit of open files to {} (LimitNOFILE= of a systemd unit)",
            limits.max_connections,
            limits.max_connections + RESERVED_FILES
        );
        limits.max_connections = connections;
    }
}

/// Returns how many of the files may be connections.
fn max_connections_for(files: usize) -> usize {
    files.saturating_sub(RESERVED_FILES).max(files / 2).max(1)
}

#[cfg(test)]
mod tests {
    #[test]
    fn files_are_reserved_for_other_uses() {
        let table = [(0, 1), (1, 1), (60, 30), (1_024, 512), (4_096, 3_584)];
        for (files, connections) in table {
            assert_eq!(super::max_connections_for(files), connections);
        }
    }
}
