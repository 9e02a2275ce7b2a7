//! Changes below one root that its task has not handled: recorded by the watcher, and taken by the
//! task when they are due.

use super::WatchTiming;
use crate::scan::DirtyDirs;
use crate::sync::Mutex;
use crate::watch::WatchListener;
use std::collections::HashSet;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Changed mount points that are stored for one root. More mount changes cause a full rescan.
const MAX_CHANGED_MOUNTS: usize = 1_000;

/// Changes below one root since the last rescan.
#[derive(Debug, Default)]
pub struct PendingChanges {
    changes: Mutex<ChangeSet>,
    wakeup: Notify,
}

/// Work that the pending changes require.
pub enum DueWork {
    FullScan,
    PartialScan {
        dirty: DirtyDirs,
        /// Whether no event came during the debounce time.
        is_settled: bool,
    },
    MountRecheck,
    /// No work is due, and none before this time unless more changes come.
    NoneBefore(Option<Instant>),
}

/// The size is bounded by the number of directories of the root and by [`MAX_CHANGED_MOUNTS`].
#[derive(Debug, Default)]
struct ChangeSet {
    /// Tokens of directories that changed.
    dirty_tokens: HashSet<u64>,
    /// Subset of `dirty_tokens`: directories that were moved, or whose path changed.
    moved_tokens: HashSet<u64>,
    /// Absolute paths in the daemon's mount namespace at which filesystems were mounted or
    /// unmounted. They do not wake the task: the next recheck handles them.
    changed_mounts: HashSet<Box<[u8]>>,
    needs_full_rescan: bool,
    first_change_at: Option<Instant>,
    last_change_at: Option<Instant>,
}

impl PendingChanges {
    pub fn notify_root_task(&self) {
        self.wakeup.notify_one();
    }

    /// Waits for a notification. A notification that came while the task was busy counts.
    pub async fn notified(&self) {
        self.wakeup.notified().await;
    }

    pub fn require_full_rescan(&self) {
        self.record_change(|changes| changes.needs_full_rescan = true);
    }

    pub fn record_dirty_dirs(&self, tokens: impl IntoIterator<Item = u64>) {
        self.record_change(|changes| changes.dirty_tokens.extend(tokens));
    }

    pub fn take_changed_mounts(&self) -> HashSet<Box<[u8]>> {
        std::mem::take(&mut self.changes.lock().changed_mounts)
    }

    /// Takes the changes that are due. If a caller waits, all changes are due at once; else the
    /// debounce time must be over.
    pub fn take_due(
        &self,
        is_requested: bool,
        needs_full_scan: bool,
        timing: &WatchTiming,
        now: Instant,
    ) -> DueWork {
        let mut changes = self.changes.lock();
        if changes.needs_full_rescan || is_requested && needs_full_scan {
            *changes = ChangeSet::default();
            return DueWork::FullScan;
        }
        if is_requested && !changes.changed_mounts.is_empty() {
            return DueWork::MountRecheck;
        }
        let settled_at = changes.last_change_at.map(|last| last + timing.debounce);
        let latest_at = changes.first_change_at.map(|first| first + timing.max_debounce);
        let due_at = settled_at.min(latest_at);
        if !is_requested && due_at.is_none_or(|due_at| now < due_at) {
            return DueWork::NoneBefore(due_at);
        }
        let is_settled = is_requested || settled_at.is_some_and(|settled_at| now >= settled_at);
        let changed_mounts = std::mem::take(&mut changes.changed_mounts);
        let rest = ChangeSet { changed_mounts, ..ChangeSet::default() };
        let taken = std::mem::replace(&mut *changes, rest);
        let dirty = DirtyDirs {
            tokens: taken.dirty_tokens,
            moved: taken.moved_tokens,
            compare_files: is_requested,
        };
        DueWork::PartialScan { dirty, is_settled }
    }

    fn record_change(&self, record: impl FnOnce(&mut ChangeSet)) {
        let now = Instant::now();
        let mut changes = self.changes.lock();
        record(&mut changes);
        changes.first_change_at.get_or_insert(now);
        changes.last_change_at = Some(now);
        drop(changes);
        self.notify_root_task();
    }
}

impl WatchListener for PendingChanges {
    fn on_dir_changed(&self, token: u64, _: Option<&[u8]>, moved: bool) {
        self.record_change(|changes| {
            changes.dirty_tokens.insert(token);
            if moved {
                changes.moved_tokens.insert(token);
            }
        });
    }

    fn on_mounts_changed(&self, mount_points: &[Box<[u8]>]) {
        let too_many = {
            let mut changes = self.changes.lock();
            changes.changed_mounts.extend(mount_points.iter().cloned());
            changes.changed_mounts.len() > MAX_CHANGED_MOUNTS
        };
        if too_many {
            self.on_events_lost();
        }
    }

    fn on_events_lost(&self) {
        self.require_full_rescan();
    }
}
