//! Room for as many open files as the limits call for: most systems begin a process with few, and let
//! it have many. Where they do not, connections give way.

use crate::domain::Limits;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// For what is open beside connections: allowed roots, directories under search, files under read.
const RESERVED_FILES: usize = 512;

/// Takes as many as the system allows; where that is too little, connections may have at most half of
/// them.
pub(super) fn raise_open_file_limit(limits: &mut Limits) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        tracing::debug!(%error, ?current, "the limit of open files stays as it is");
    }
    let Some(files) = getrlimit(Resource::Nofile).current else { return };
    let connections = max_connections_for(usize::try_from(files).unwrap_or(usize::MAX));
    if connections < limits.max_connections {
        tracing::warn!(
            "only {files} files may be open at once, so max_connections is {connections} and not \
             {}; raise the limit to {} (LimitNOFILE= of a systemd unit)",
            limits.max_connections,
            limits.max_connections + RESERVED_FILES
        );
        limits.max_connections = connections;
    }
}

/// How many of so many files may be connections.
fn max_connections_for(files: usize) -> usize {
    files.saturating_sub(RESERVED_FILES).max(files / 2).max(1)
}

#[cfg(test)]
mod tests {
    #[test]
    fn files_are_left_for_the_rest() {
        let table = [(0, 1), (1, 1), (60, 30), (1_024, 512), (4_096, 3_584)];
        for (files, connections) in table {
            assert_eq!(super::max_connections_for(files), connections);
        }
    }
}
