//! What the daemon opens, as the kernel tells it to anybody.

use std::ffi::OsStr;
use std::path::Path;

use inotify::{Inotify, WatchMask};

/// Counts how often the SKILL.md of a directory is opened.
pub(crate) struct OpenCounter(Inotify);

impl OpenCounter {
    /// Counts from now on.
    pub(crate) fn start(dir: &Path) -> Self {
        let inotify = Inotify::init().expect("an instance");
        inotify.watches().add(dir, WatchMask::OPEN).expect("a watch");
        Self(inotify)
    }

    /// Since this was asked last.
    pub(crate) fn count(&mut self) -> usize {
        let mut buffer = [0; 4_096];
        match self.0.read_events(&mut buffer) {
            Ok(events) => events.filter(|e| e.name == Some(OsStr::new("SKILL.md"))).count(),
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => 0,
            Err(e) => panic!("inotify: {e}"),
        }
    }
}
