//! Where the watcher notes what changed below one root, and where everybody rings who wants the root
//! looked at.

use crate::catalog::Degraded;
use crate::disk::{Guard, WatchDirs};
use crate::watch::{Listener, Unwatched, Watch, Watcher};
use std::collections::HashSet;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tokio::time::Instant;

/// Places of mounts that are noted one by one; of more, anything may have changed.
const MAX_MOUNTS: usize = 1_000;

/// What was noted of one root, since it was looked at last.
#[derive(Debug, Default)]
pub(super) struct Bell {
    notes: Mutex<Notes>,
    ring: Notify,
}

/// Absolute paths at which filesystems were mounted or taken away.
pub(super) type Mounts = HashSet<Box<[u8]>>;

/// Bounded by the directories of the root.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// Tokens of the directories that changed.
    pub(super) dirty: HashSet<u64>,
    /// Those of them that were moved, or on whose way something was.
    pub(super) moved: HashSet<u64>,
    /// Anywhere in the daemon's namespace. Nobody rings for these: they wait for the next look at
    /// what no event tells.
    pub(super) mounts: Mounts,
    /// Anything may have changed.
    pub(super) lost: bool,
    /// When the first of these was noted.
    pub(super) first: Option<Instant>,
    /// When the last was.
    pub(super) last: Option<Instant>,
}

impl Bell {
    pub(super) fn ring(&self) {
        self.ring.notify_one();
    }

    /// Waits for a ring; one that came while nobody waited counts.
    pub(super) async fn heard(&self) {
        self.ring.notified().await;
    }

    pub(super) fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn note(&self, note: impl FnOnce(&mut Notes)) {
        let now = Instant::now();
        let mut notes = self.notes();
        note(&mut notes);
        notes.first.get_or_insert(now);
        notes.last = Some(now);
        drop(notes);
        self.ring();
    }
}

impl Listener for Bell {
    fn dirty(&self, token: u64, _: Option<&[u8]>, moved: bool) {
        self.note(|notes| {
            notes.dirty.insert(token);
            if moved {
                notes.moved.insert(token);
            }
        });
    }

    fn mounted(&self, places: &[Box<[u8]>]) {
        let too_many = {
            let mut notes = self.notes();
            notes.mounts.extend(places.iter().cloned());
            notes.mounts.len() > MAX_MOUNTS
        };
        if too_many {
            self.lost();
        }
    }

    fn lost(&self) {
        self.note(|notes| notes.lost = true);
    }
}

/// Aims the watcher at the directories of one root.
#[derive(Debug)]
pub(super) struct Aim {
    watcher: Watcher,
    listener: Arc<dyn Listener>,
    /// The first reason for which a directory is not watched.
    failed: Mutex<Option<Degraded>>,
}

impl Aim {
    pub(super) fn new(watcher: &Watcher, bell: &Arc<Bell>) -> Self {
        let listener: Arc<dyn Listener> = bell.clone();
        Self { watcher: watcher.clone(), listener, failed: Mutex::default() }
    }

    /// Keeps a watch, or records why there is none.
    fn guard(&self, watched: Result<Watch, Unwatched>) -> Option<Guard> {
        let why = match watched {
            Ok(watch) => return Some(Guard::new(watch)),
            Err(Unwatched::Exhausted) => Degraded::WatchLimit,
            Err(Unwatched::NoInstance) => Degraded::NoInstance,
            Err(Unwatched::Refused) => Degraded::Refused,
        };
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
        None
    }

    pub(super) fn failed(&self) -> Option<Degraded> {
        *self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WatchDirs for Aim {
    fn watch(&self, dir: BorrowedFd<'_>, token: u64, only: Option<&[u8]>) -> Option<Guard> {
        let watched = self.watcher.watch(dir, &self.listener, token, only);
        // A directory on the way that may be entered and not read cannot be watched; where it
        // leads is looked at from time to time.
        if only.is_some() && matches!(watched, Err(Unwatched::Refused)) {
            return None;
        }
        self.guard(watched)
    }

    fn watch_file(&self, file: BorrowedFd<'_>, token: u64) -> Option<Guard> {
        self.guard(self.watcher.watch_file(file, &self.listener, token))
    }
}
