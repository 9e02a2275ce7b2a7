//! Splits a new configuration into the part that a running daemon can apply and the part that needs
//! a restart.

use super::{Config, keys, native_path, top_keys};
use std::path::{Path, PathBuf};

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
    mut new: Config,
    old: &Config,
    may_read: impl Fn(&Path) -> bool,
) -> (Config, RestartRequired) {
    let mut restart = RestartRequired::default();
    for (key, rule) in keys::restart_rules() {
        if (rule.differs)(&new, old) {
            (rule.keep)(&mut new, old);
            restart.keys.push(key);
        }
    }

    // The sandbox of the running daemon cannot be widened.
    let is_readable =
        |dir: &Path| old.allowed_dirs.iter().any(|known| known == dir) || may_read(dir);
    let (extra_dirs, unreadable_dirs): (Vec<_>, Vec<_>) = new
        .extra_allowed_dirs()
        .iter()
        .cloned()
        .partition(|dir| is_readable(dir));
    let (published_roots, unreadable_roots): (Vec<_>, Vec<_>) = new
        .published_roots
        .iter()
        .cloned()
        .partition(|root| is_readable(&native_path(&root.path)));

    if !unreadable_dirs.is_empty() {
        restart.keys.push(top_keys::ALLOW.path);
    }
    if !unreadable_roots.is_empty() {
        restart.keys.push(top_keys::ROOTS.path);
    }
    restart.unreadable_dirs.extend(unreadable_dirs);
    restart
        .unreadable_dirs
        .extend(unreadable_roots.iter().map(|root| native_path(&root.path)));

    let root_dirs = published_roots.iter().map(|root| native_path(&root.path));
    let merged = Config {
        allowed_dirs: root_dirs.chain(extra_dirs).collect(),
        published_roots,
        // The sockets stay until a restart.
        socket_groups: old.socket_groups.clone(),
        faults: old.faults.clone(),
        opener: old.opener,
        connection_timing: old.connection_timing,
        ..new
    };
    (merged, restart)
}
