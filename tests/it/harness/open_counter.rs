//! Counts how often the daemon opens a file, with an inotify watch of the test.

use std::ffi::OsStr;
use std::path::Path;

use inotify::{Inotify, WatchMask};

/// Counter of the openings of SKILL.md in one directory.
pub(crate) struct OpenCounter(Inotify);

impl OpenCounter {
    /// Starts to count.
    pub(crate) fn start(dir: &Path) -> Self {
        let inotify = Inotify::init().expect("an instance");
        inotify
            .watches()
            .add(dir, WatchMask::OPEN)
            .expect("a watch");
        Self(inotify)
    }

    /// Returns the number of openings since the last call.
    pub(crate) fn count(&mut self) -> usize {
        let mut buffer = [0; 4_096];
        match self.0.read_events(&mut buffer) {
            Ok(events) => events
                .filter(|e| e.name == Some(OsStr::new("SKILL.md")))
                .count(),
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => 0,
            Err(e) => panic!("inotify: {e}"),
        }
    }
}
