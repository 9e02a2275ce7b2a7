//! Room for as many open files as the limits call for: most systems begin a process with few, and let
//! it have many.

use crate::domain::Limits;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// For what is open beside connections: allowed roots, directories under search, files under read.
const OTHERS: u64 = 512;

/// Takes what the system allows; says so where that is too little.
pub(super) fn raise(limits: &Limits) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        tracing::debug!(%error, ?current, "the limit of open files stays as it is");
    }
    let wanted = limits.max_connections as u64 + OTHERS;
    if let Some(current) = getrlimit(Resource::Nofile).current
        && current < wanted
    {
        tracing::warn!(
            "only {current} files may be open at once, and max_connections is {}; raise the limit \
             to {wanted} (LimitNOFILE= of a systemd unit)",
            limits.max_connections
        );
    }
}
