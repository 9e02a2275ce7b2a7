//! What the disk room asks of a watcher, so that it need not know one.

use super::resource::Regular;
use std::fmt;
use std::os::fd::{AsFd as _, BorrowedFd};

/// Keeps a watch for as long as it lives.
pub struct Guard(#[allow(dead_code)] Box<dyn Send + Sync>);

/// The watches over one directory: nearly always one, and there are thousands.
#[derive(Debug)]
pub(super) enum Guards {
    One(#[allow(dead_code)] Guard),
    Any(#[allow(dead_code)] Vec<Guard>),
}

/// Told of directories that matter.
pub trait WatchDirs: Sync + fmt::Debug {
    /// Watches the directory behind a descriptor under a token; with `only`, for what happens to
    /// that entry of it. `None` where it is not watched.
    fn watch(&self, dir: BorrowedFd<'_>, token: u64, only: Option<&[u8]>) -> Option<Guard>;

    /// Watches a file that has other names, under the token of the directory that it was read in.
    /// `None` if the file is not watched.
    fn watch_file(&self, file: BorrowedFd<'_>, token: u64) -> Option<Guard>;
}

/// Watches nothing: for one search whose findings need not stay right.
#[derive(Debug)]
pub struct Unwatched;

impl WatchDirs for Unwatched {
    fn watch(&self, _: BorrowedFd<'_>, _: u64, _: Option<&[u8]>) -> Option<Guard> {
        None
    }

    fn watch_file(&self, _: BorrowedFd<'_>, _: u64) -> Option<Guard> {
        None
    }
}

/// Watches a file if it has other names. Read the file after this call, not before.
pub(super) fn watch_shared(
    watching: &dyn WatchDirs,
    opened: &Regular,
    token: u64,
    guards: &mut Vec<Guard>,
) {
    if opened.has_other_names {
        guards.extend(watching.watch_file(opened.file.as_fd(), token));
    }
}

impl Guard {
    /// Keeps a watch.
    pub fn new(watch: impl Send + Sync + 'static) -> Self {
        Self(Box::new(watch))
    }
}

impl From<Vec<Guard>> for Guards {
    fn from(mut all: Vec<Guard>) -> Self {
        match all.pop() {
            Some(one) if all.is_empty() => Self::One(one),
            last => {
                all.extend(last);
                Self::Any(all)
            }
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Guard")
    }
}
