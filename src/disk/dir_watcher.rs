//! What the disk room asks of a watcher, so that it need not know one.

use super::open_file::OpenFile;
use std::fmt;
use std::os::fd::{AsFd as _, BorrowedFd};

/// Keeps a watch for as long as it lives.
pub struct WatchGuard(#[allow(dead_code)] Box<dyn Send + Sync>);

/// The watches over one directory: nearly always one, and there are thousands.
#[derive(Debug)]
pub(super) enum DirWatches {
    One(#[allow(dead_code)] WatchGuard),
    Many(#[allow(dead_code)] Vec<WatchGuard>),
}

/// Told of directories that matter.
pub trait DirWatcher: Sync + fmt::Debug {
    /// Watches the directory behind a descriptor under a token; with `only`, for what happens to
    /// that entry of it. `None` where it is not watched.
    fn watch_dir(&self, dir: BorrowedFd<'_>, token: u64, only: Option<&[u8]>)
    -> Option<WatchGuard>;

    /// Watches a file that has other names, under the token of the directory that it was read in.
    /// `None` if the file is not watched.
    fn watch_file(&self, file: BorrowedFd<'_>, token: u64) -> Option<WatchGuard>;
}

/// Watches nothing: for one search whose findings need not stay right.
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

/// Watches a file if it has other names. Read the file after this call, not before.
pub(super) fn watch_hard_links(
    watching: &dyn DirWatcher,
    opened: &OpenFile,
    token: u64,
    guards: &mut Vec<WatchGuard>,
) {
    if opened.has_hard_links {
        guards.extend(watching.watch_file(opened.file.as_fd(), token));
    }
}

impl WatchGuard {
    /// Keeps a watch.
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
