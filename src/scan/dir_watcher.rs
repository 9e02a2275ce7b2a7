//! Interface to a watcher of directories.

use crate::fs::open_file::OpenFile;
use std::fmt;
use std::os::fd::{AsFd as _, BorrowedFd};

/// Watch that ends when the guard is dropped.
pub struct WatchGuard(#[allow(dead_code)] Box<dyn Send + Sync>);

/// Watches of one directory. There are thousands of directories, and nearly all have one watch.
#[derive(Debug)]
pub enum DirWatches {
    One(#[allow(dead_code)] WatchGuard),
    Many(#[allow(dead_code)] Vec<WatchGuard>),
}

/// Watcher of directories and files.
pub trait DirWatcher: Sync + fmt::Debug {
    /// Watches the directory behind a descriptor under a token. If `only` is set, watches only this
    /// entry of the directory. Returns `None` if the directory cannot be watched.
    fn watch_dir(&self, dir: BorrowedFd<'_>, token: u64, only: Option<&[u8]>)
    -> Option<WatchGuard>;

    /// Watches a hard-linked file under the token of its directory. Returns `None` if the file
    /// cannot be watched.
    fn watch_file(&self, file: BorrowedFd<'_>, token: u64) -> Option<WatchGuard>;
}

/// Watcher that watches nothing, for a single scan.
#[derive(Debug)]
pub struct NoDirWatcher;

impl DirWatcher for NoDirWatcher {
    fn watch_dir(&self, _: BorrowedFd<'_>, _: u64, _: Option<&[u8]>) -> Option<WatchGuard> {
        None
    }

    fn watch_file(&self, _: BorrowedFd<'_>, _: u64) -> Option<WatchGuard> {
        None
    }
}

/// Watches a file if it has hard links. Call this before the file is read.
pub fn watch_hard_links(
    watcher: &dyn DirWatcher,
    opened: &OpenFile,
    token: u64,
    guards: &mut Vec<WatchGuard>,
) {
    if opened.has_hard_links {
        guards.extend(watcher.watch_file(opened.file.as_fd(), token));
    }
}

impl WatchGuard {
    /// Creates a guard that drops `watch` with itself.
    pub fn new(watch: impl Send + Sync + 'static) -> Self {
        Self(Box::new(watch))
    }
}

impl From<Vec<WatchGuard>> for DirWatches {
    fn from(mut all: Vec<WatchGuard>) -> Self {
        match all.pop() {
            Some(one) if all.is_empty() => Self::One(one),
            last => {
                all.extend(last);
                Self::Many(all)
            }
        }
    }
}

impl fmt::Debug for WatchGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Guard")
    }
}
