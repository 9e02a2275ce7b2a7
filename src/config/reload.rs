//! What of a new configuration a daemon that runs can take over, and what waits for its next start.
//! Leaves reading it again, and having each part of the daemon go by it, to `app`.

use super::Config;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Keys whose values count from the start of the daemon to its end. Of `tls`, that there is one at all.
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

/// What waits for the next start.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RestartRequired {
    /// Keys of the file.
    pub keys: Vec<&'static str>,
    /// Directories, of `allow` and `roots`, that the sandbox keeps the daemon from.
    pub unreadable_dirs: Vec<PathBuf>,
}

impl Config {
    /// This configuration, as far as a daemon that runs under another can take it over; the rest is as
    /// it was. `may_read` says whether the daemon's sandbox lets it read below a directory.
    #[must_use]
    pub fn restrict_to_reloadable(
        self,
        old: &Self,
        may_read: impl Fn(&Path) -> bool,
    ) -> (Self, RestartRequired) {
        let differs = |key: &str| match key {
            "listen" => self.listeners != old.listeners,
            "socket" => self.socket_access != old.socket_access,
            "tls" => self.tls.is_some() != old.tls.is_some(),
            "limits.max_connections" => self.limits.max_connections != old.limits.max_connections,
            "sandbox.landlock" => self.landlock != old.landlock,
            "log.format" => self.log.format != old.log.format,
            "metrics" => self.metrics != old.metrics,
            "traces" => self.traces != old.traces,
            _ => false,
        };
        let mut waits = RestartRequired::default();
        waits.keys.extend(RESTART_KEYS.into_iter().filter(|key| differs(key)));
        let is_open =
            |dir: &Path| old.allowed_dirs.iter().any(|known| known == dir) || may_read(dir);
        let native = |path: &[u8]| Path::new(OsStr::from_bytes(path)).to_owned();
        let (beside, closed): (Vec<_>, Vec<_>) =
            self.extra_allowed_dirs().iter().cloned().partition(|dir| is_open(dir));
        let (published, closed_roots): (Vec<_>, Vec<_>) =
            self.published_roots.iter().cloned().partition(|root| is_open(&native(&root.path)));
        waits.keys.extend((!closed.is_empty()).then_some("allow"));
        waits.keys.extend((!closed_roots.is_empty()).then_some("roots"));
        waits.unreadable_dirs.extend(closed);
        waits.unreadable_dirs.extend(closed_roots.iter().map(|root| native(&root.path)));
        let dirs = published.iter().map(|root| native(&root.path));
        let mut taken = Self {
            allowed_dirs: dirs.chain(beside).collect(),
            published_roots: published,
            listeners: old.listeners.clone(),
            socket_access: old.socket_access.clone(),
            landlock: old.landlock,
            metrics: old.metrics.clone(),
            traces: old.traces.clone(),
            faults: old.faults.clone(),
            opener: old.opener,
            keepalive: old.keepalive,
            ..self
        };
        taken.limits.max_connections = old.limits.max_connections;
        taken.log.format = old.log.format;
        if taken.tls.is_some() != old.tls.is_some() {
            taken.tls.clone_from(&old.tls);
        }
        (taken, waits)
    }
}
