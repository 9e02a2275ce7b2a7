//! Splits a new configuration into the part that a running daemon can apply and the part that needs
//! a restart.

use super::{Config, LogConfig, native_path, top_keys};
use std::path::{Path, PathBuf};

/// Changes that need a restart of the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RestartRequired {
    /// Changed keys of the file.
    pub keys: Vec<&'static str>,
    /// Directories of `allow` and `roots` that the sandbox of the running daemon denies.
    pub unreadable_dirs: Vec<PathBuf>,
}

impl Config {
    /// Returns the part of this configuration that a daemon running under `old` can apply. All
    /// other keys have the values of `old`. `may_read` returns whether the sandbox lets the daemon
    /// read below a directory.
    #[must_use]
    pub fn restrict_to_reloadable(
        self,
        old: &Self,
        may_read: impl Fn(&Path) -> bool,
    ) -> (Self, RestartRequired) {
        let mut keys = changed_keys(&self, old);

        // The sandbox of the running daemon cannot be widened.
        let is_readable =
            |dir: &Path| old.allowed_dirs.iter().any(|known| known == dir) || may_read(dir);
        let extra_dirs = self.extra_allowed_dirs().iter().cloned();
        let (extra_dirs, mut unreadable_dirs): (Vec<_>, Vec<_>) =
            extra_dirs.partition(|dir| is_readable(dir));
        let roots = self.published_roots.into_iter();
        let (published_roots, unreadable_roots): (Vec<_>, Vec<_>) =
            roots.partition(|root| is_readable(&native_path(&root.path)));

        if !unreadable_dirs.is_empty() {
            keys.push(top_keys::ALLOW.path);
        }
        if !unreadable_roots.is_empty() {
            keys.push(top_keys::ROOTS.path);
        }
        unreadable_dirs.extend(unreadable_roots.iter().map(|root| native_path(&root.path)));

        let root_dirs = published_roots.iter().map(|root| native_path(&root.path));
        let merged = Self {
            environment_ids: self.environment_ids,
            // The roots come first, because `extra_allowed_dirs` returns the rest.
            allowed_dirs: root_dirs.chain(extra_dirs).collect(),
            published_roots,
            callers: self.callers,
            open_health: self.open_health,
            open_reflection: self.open_reflection,
            disabled_skills: self.disabled_skills,
            trust: self.trust,
            // A listener has TLS or not for its whole life.
            tls: old.tls.as_ref().and(self.tls).or_else(|| old.tls.clone()),
            log: LogConfig {
                filter: self.log.filter,
                format: old.log.format,
            },
            warnings: self.warnings,
            ..old.clone()
        };
        let restart = RestartRequired {
            keys,
            unreadable_dirs,
        };
        (merged, restart)
    }
}

/// Returns the changed keys that need a restart with every value.
fn changed_keys(new: &Config, old: &Config) -> Vec<&'static str> {
    let keys = [
        (top_keys::LISTEN, new.listeners != old.listeners),
        (top_keys::SOCKET, new.socket_access != old.socket_access),
        (top_keys::TLS, new.tls.is_some() != old.tls.is_some()),
        (top_keys::AUDIT, new.audit != old.audit),
        (
            top_keys::SEARCH,
            (&new.excluded_dirs, &new.resource_dirs) != (&old.excluded_dirs, &old.resource_dirs),
        ),
        (top_keys::LIMITS, new.limits != old.limits),
        (top_keys::WATCH, new.timing != old.timing),
        (top_keys::WATCH_CONFIG, new.watch_config != old.watch_config),
        (top_keys::LANDLOCK, new.landlock != old.landlock),
        (top_keys::LOG_FORMAT, new.log.format != old.log.format),
        (top_keys::READINESS, new.readiness != old.readiness),
        (top_keys::METRICS, new.metrics != old.metrics),
        (top_keys::TRACES, new.traces != old.traces),
    ];
    let changed = keys.into_iter().filter(|(_, is_changed)| *is_changed);
    changed.map(|(key, _)| key.path).collect()
}
