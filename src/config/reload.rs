//! Splits a new configuration into the part that a running daemon can apply and the part that needs
//! a restart.

use super::{Config, native_path};
use std::path::{Path, PathBuf};

/// Keys that are fixed for the lifetime of a daemon. For `tls`, this means adding or removing the
/// section.
pub const RESTART_KEYS: [&str; 8] = [
    "listen",
    "socket",
    "tls",
    "limits.max_connections",
    "sandbox.landlock",
    "log.format",
    "metrics",
    "traces",
];

/// Changes that need a restart of the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RestartRequired {
    /// Changed keys of the file.
    pub keys: Vec<&'static str>,
    /// Directories of `allow` and `roots` that the sandbox of the running daemon denies.
    pub unreadable_dirs: Vec<PathBuf>,
}

/// Implements [`Config::restrict_to_reloadable`].
pub fn restrict(
    new: Config,
    old: &Config,
    may_read: impl Fn(&Path) -> bool,
) -> (Config, RestartRequired) {
    let differs = |key: &str| match key {
        "listen" => new.listeners != old.listeners,
        "socket" => new.socket_access != old.socket_access,
        "tls" => new.tls.is_some() != old.tls.is_some(),
        "limits.max_connections" => new.limits.max_connections != old.limits.max_connections,
        "sandbox.landlock" => new.landlock != old.landlock,
        "log.format" => new.log.format != old.log.format,
        "metrics" => new.metrics != old.metrics,
        "traces" => new.traces != old.traces,
        _ => false,
    };
    let mut restart = RestartRequired::default();
    restart.keys.extend(RESTART_KEYS.into_iter().filter(|key| differs(key)));
    let is_readable =
        |dir: &Path| old.allowed_dirs.iter().any(|known| known == dir) || may_read(dir);
    let (extra_dirs, unreadable_dirs): (Vec<_>, Vec<_>) =
        new.extra_allowed_dirs().iter().cloned().partition(|dir| is_readable(dir));
    let (published_roots, unreadable_roots): (Vec<_>, Vec<_>) =
        new.published_roots.iter().cloned().partition(|root| is_readable(&native_path(&root.path)));
    restart.keys.extend((!unreadable_dirs.is_empty()).then_some("allow"));
    restart.keys.extend((!unreadable_roots.is_empty()).then_some("roots"));
    restart.unreadable_dirs.extend(unreadable_dirs);
    restart.unreadable_dirs.extend(unreadable_roots.iter().map(|root| native_path(&root.path)));
    let root_dirs = published_roots.iter().map(|root| native_path(&root.path));
    let mut merged = Config {
        allowed_dirs: root_dirs.chain(extra_dirs).collect(),
        published_roots,
        listeners: old.listeners.clone(),
        socket_access: old.socket_access.clone(),
        landlock: old.landlock,
        metrics: old.metrics.clone(),
        traces: old.traces.clone(),
        faults: old.faults.clone(),
        opener: old.opener,
        keepalive: old.keepalive,
        ..new
    };
    merged.limits.max_connections = old.limits.max_connections;
    merged.log.format = old.log.format;
    if merged.tls.is_some() != old.tls.is_some() {
        merged.tls.clone_from(&old.tls);
    }
    (merged, restart)
}
