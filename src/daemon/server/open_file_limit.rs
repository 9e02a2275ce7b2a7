//! Raises the limit of open files. Most systems start a process with a low soft limit below a high
//! hard limit. If the hard limit is too low, the limit of connections is lowered.

use super::StartError;
use crate::daemon::config::Config;
use crate::daemon::grpc::ListenerCapacity;
use crate::daemon::model::Limits;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files in addition to connections: allowed directories, directories in a scan, files in a read.
const RESERVED_FILES: usize = 512;
/// Most connections of a listener without an accepted call. A client that connects and calls at
/// once is served unless as many newer connections come in between.
const MAX_PENDING_CONNECTIONS: usize = 128;
/// Connections that each listener reserves for the operator.
const OPERATOR_CONNECTIONS: usize = 4;

/// Files of the daemon in addition to listeners and allowed directories. Measured: a daemon with one
/// TCP listener has 17 files open, and lists 30 skills on two threads with a limit of 21. The rest is
/// for six more threads of a scan, for connections and for reads.
const MIN_FILES: usize = 56;

/// Rejects a limit of open files with which the daemon cannot scan a root.
pub fn require_open_files(config: &Config) -> Result<(), StartError> {
    let Some(files) = getrlimit(Resource::Nofile).maximum else {
        return Ok(());
    };
    // A Unix socket also has a lock file.
    let listeners = config.listeners.len() + usize::from(config.metrics.is_some());
    let needed = MIN_FILES + 2 * listeners + config.allowed_dirs.len();
    if usize::try_from(files).is_ok_and(|files| files < needed) {
        return Err(StartError::config(format!(
            "only {files} files may be open at once, but this configuration needs {needed} or more; \
             set LimitNOFILE={needed} in the systemd unit, or raise the limit with `ulimit -n`"
        )));
    }
    Ok(())
}

/// Raises the soft limit to the hard limit. If that does not suffice for `listeners`, lowers
/// `max_connections`. Returns the number of connections of each listener.
pub fn raise_open_file_limit(limits: &mut Limits, listeners: usize) -> ListenerCapacity {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);

    // A refusal is no error: the limit in force is read again, and bounds the connections.
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::debug!(%error, ?current, "raising the limit of open files failed");
    }

    let files = getrlimit(Resource::Nofile)
        .current
        .map_or(usize::MAX, |files| files.try_into().unwrap_or(usize::MAX));
    let capacity = listener_capacity(files, listeners, limits.max_connections);
    if capacity.accepted < limits.max_connections {
        let each = limits.max_connections + MAX_PENDING_CONNECTIONS + OPERATOR_CONNECTIONS;
        tracing::warn!(
            "only {files} files may be open at once, so max_connections is lowered from {} to {}; \
             raise the limit of open files to {} (LimitNOFILE= of a systemd unit)",
            limits.max_connections,
            capacity.accepted,
            listeners.max(1) * each + RESERVED_FILES
        );
        limits.max_connections = capacity.accepted;
    }
    capacity
}

/// Divides the files of connections, at least half of all files, among the listeners.
fn listener_capacity(files: usize, listeners: usize, max_connections: usize) -> ListenerCapacity {
    let connections = files.saturating_sub(RESERVED_FILES).max(files / 2);
    let each = connections / listeners.max(1);
    let pending = MAX_PENDING_CONNECTIONS.min(each / 4).max(1);
    let operator = OPERATOR_CONNECTIONS.min(each / 8).max(1);
    let accepted = each.saturating_sub(pending + operator);
    ListenerCapacity {
        accepted: max_connections.min(accepted).max(1),
        pending,
        operator,
    }
}

#[cfg(test)]
mod tests {
    use super::listener_capacity;
    use crate::daemon::grpc::ListenerCapacity;

    #[test]
    fn files_are_reserved_for_other_uses() {
        let table = [
            (0, 1, [1, 1, 1]),
            (60, 1, [20, 7, 3]),
            (60, 2, [11, 3, 1]),
            (1_024, 1, [380, 128, 4]),
            (1_024, 2, [188, 64, 4]),
            (4_096, 2, [1_024, 128, 4]),
            (usize::MAX, 3, [1_024, 128, 4]),
        ];
        for (files, listeners, [accepted, pending, operator]) in table {
            let expected = ListenerCapacity {
                accepted,
                pending,
                operator,
            };
            let capacity = listener_capacity(files, listeners, 1_024);
            assert_eq!(capacity, expected, "{files} files, {listeners} listeners");
        }
    }
}
