//! Where the watcher notes what changed below one root, and where everybody rings who wants the root
//! looked at.

use crate::catalog::PollReason;
use crate::disk::{DirWatcher, WatchGuard};
use crate::watch::{InotifyWatch, InotifyWatcher, WatchError, WatchListener};
use std::collections::HashSet;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tokio::time::Instant;

/// Places of mounts that are noted one by one; of more, anything may have changed.
const MAX_CHANGED_MOUNTS: usize = 1_000;

/// What was noted of one root, since it was looked at last.
#[derive(Debug, Default)]
pub(super) struct PendingChanges {
    changes: Mutex<ChangeSet>,
    notify_root_task: Notify,
}

/// Absolute paths at which filesystems were mounted or taken away.
pub(super) type MountPointSet = HashSet<Box<[u8]>>;

/// Bounded by the directories of the root.
#[derive(Debug, Default)]
pub(super) struct ChangeSet {
    /// Tokens of the directories that changed.
    pub(super) dirty_tokens: HashSet<u64>,
    /// Those of them that were moved, or on whose way something was.
    pub(super) moved_tokens: HashSet<u64>,
    /// Anywhere in the daemon's namespace. Nobody rings for these: they wait for the next look at
    /// what no event tells.
    pub(super) changed_mounts: MountPointSet,
    /// Anything may have changed.
    pub(super) needs_full_rescan: bool,
    /// When the first of these was noted.
    pub(super) first_change_at: Option<Instant>,
    /// When the last was.
    pub(super) last_change_at: Option<Instant>,
}

impl PendingChanges {
    pub(super) fn notify_root_task(&self) {
        self.notify_root_task.notify_one();
    }

    /// Waits for a ring; one that came while nobody waited counts.
    pub(super) async fn notified(&self) {
        self.notify_root_task.notified().await;
    }

    pub(super) fn changes(&self) -> MutexGuard<'_, ChangeSet> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn record_change(&self, note: impl FnOnce(&mut ChangeSet)) {
        let now = Instant::now();
        let mut notes = self.changes();
        note(&mut notes);
        notes.first_change_at.get_or_insert(now);
        notes.last_change_at = Some(now);
        drop(notes);
        self.notify_root_task();
    }
}

impl WatchListener for PendingChanges {
    fn on_dir_changed(&self, token: u64, _: Option<&[u8]>, moved: bool) {
        self.record_change(|notes| {
            notes.dirty_tokens.insert(token);
            if moved {
                notes.moved_tokens.insert(token);
            }
        });
    }

    fn on_mounts_changed(&self, places: &[Box<[u8]>]) {
        let too_many = {
            let mut notes = self.changes();
            notes.changed_mounts.extend(places.iter().cloned());
            notes.changed_mounts.len() > MAX_CHANGED_MOUNTS
        };
        if too_many {
            self.on_events_lost();
        }
    }

    fn on_events_lost(&self) {
        self.record_change(|notes| notes.needs_full_rescan = true);
    }
}

/// Aims the watcher at the directories of one root.
#[derive(Debug)]
pub(super) struct WatchRegistrar {
    watcher: InotifyWatcher,
    listener: Arc<dyn WatchListener>,
    /// The first reason for which a directory is not watched.
    first_failure: Mutex<Option<PollReason>>,
}

impl WatchRegistrar {
    pub(super) fn new(watcher: &InotifyWatcher, bell: &Arc<PendingChanges>) -> Self {
        let listener: Arc<dyn WatchListener> = bell.clone();
        Self { watcher: watcher.clone(), listener, first_failure: Mutex::default() }
    }

    /// Keeps a watch, or records why there is none.
    fn guard_or_record_failure(
        &self,
        watched: Result<InotifyWatch, WatchError>,
    ) -> Option<WatchGuard> {
        let why = match watched {
            Ok(watch) => return Some(WatchGuard::new(watch)),
            Err(WatchError::LimitReached) => PollReason::WatchLimit,
            Err(WatchError::NoInotifyInstance) => PollReason::NoInotifyInstance,
            Err(WatchError::Rejected) => PollReason::WatchRejected,
        };
        self.first_failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
        None
    }

    pub(super) fn first_failure(&self) -> Option<PollReason> {
        *self.first_failure.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DirWatcher for WatchRegistrar {
    fn watch_dir(
        &self,
        dir: BorrowedFd<'_>,
        token: u64,
        only: Option<&[u8]>,
    ) -> Option<WatchGuard> {
        let watched = self.watcher.watch_dir(dir, &self.listener, token, only);
        // A directory on the way that may be entered and not read cannot be watched; where it
        // leads is looked at from time to time.
        if only.is_some() && matches!(watched, Err(WatchError::Rejected)) {
            return None;
        }
        self.guard_or_record_failure(watched)
    }

    fn watch_file(&self, file: BorrowedFd<'_>, token: u64) -> Option<WatchGuard> {
        self.guard_or_record_failure(self.watcher.watch_file(file, &self.listener, token))
    }
}
