//! Snapshots of all roots, by revision. Plain state behind the mutex of the store.

use super::scope::RootKey;
use crate::model::{Catalog, RootReason};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Result of the latest scan of a root.
#[derive(Debug, Clone)]
pub struct RootSnapshot {
    /// Catalog, or the reason why the root cannot be used.
    pub catalog: Result<Arc<Catalog>, RootReason>,
    /// Mechanism by which the daemon notices changes.
    pub watch_mode: WatchMode,
}

/// Mechanism by which the daemon notices changes of a root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchMode {
    /// By inotify events.
    Events,
    /// By full scans at a short interval.
    Polling(PollReason),
}

/// Reason why a root is polled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PollReason {
    /// The daemon's user reached the limit of inotify watches.
    WatchLimit,
    /// The kernel provides no inotify instance.
    NoInotifyInstance,
    /// The kernel rejected the watch of a directory.
    WatchRejected,
    /// The filesystem of this type reports no changes of other machines.
    NoInotifySupport(&'static str),
}

/// Snapshots and tasks of all roots in use. All roots share one revision counter.
#[derive(Debug)]
pub struct StoreState<T> {
    revision: u64,
    /// Snapshots that are kept per root.
    max_history: usize,
    /// First revision at which selections resolve to the same roots as now.
    history_floor: u64,
    use_count: u64,
    roots: HashMap<RootKey, RootRecord<T>>,
}

#[derive(Debug)]
struct RootRecord<T> {
    /// Oldest first, each with its first revision.
    history: VecDeque<(u64, RootSnapshot)>,
    /// Value of [`StoreState::use_count`] at the latest use.
    last_use: u64,
    task_handle: T,
}

impl RootSnapshot {
    /// Whether both snapshots have the identical catalog. A rescan keeps the old
    /// catalog if the new catalog is equivalent.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let is_same_catalog = match (&self.catalog, &other.catalog) {
            (Ok(a), Ok(b)) => Arc::ptr_eq(a, b),
            (Err(a), Err(b)) => a == b,
            _ => false,
        };
        is_same_catalog && self.watch_mode == other.watch_mode
    }
}

impl<T> RootRecord<T> {
    fn latest(&self) -> Option<&RootSnapshot> {
        self.history.back().map(|(_, snapshot)| snapshot)
    }

    fn truncate_history(&mut self, max_history: usize) {
        let excess = self.history.len().saturating_sub(max_history);
        self.history.drain(..excess);
    }
}

impl<T> StoreState<T> {
    pub fn new(max_history: usize) -> Self {
        Self { revision: 0, max_history, history_floor: 0, use_count: 0, roots: HashMap::new() }
    }

    pub fn revision(&self) -> u64 {
        self.revision
    }

    pub fn history_floor(&self) -> u64 {
        self.history_floor
    }

    /// Starts a revision from which selections resolve to other roots. Clients cannot resume from
    /// an earlier revision.
    pub fn discard_resume_points(&mut self) {
        self.revision += 1;
        self.history_floor = self.revision;
    }

    pub fn set_max_history(&mut self, max_history: usize) {
        self.max_history = max_history;
        for root in self.roots.values_mut() {
            root.truncate_history(max_history);
        }
    }

    pub fn iter_roots(&self) -> impl Iterator<Item = (&RootKey, Option<&RootSnapshot>)> {
        self.roots.iter().map(|(key, root)| (key, root.latest()))
    }

    pub fn task_handles_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.roots.values_mut().map(|root| &mut root.task_handle)
    }

    pub fn task_handle_mut(&mut self, key: &RootKey) -> Option<&mut T> {
        Some(&mut self.roots.get_mut(key)?.task_handle)
    }

    /// Records a use of a root, and adds the root if it is unknown. `new` creates the task handle.
    pub fn touch_or_insert(&mut self, key: &RootKey, new: impl FnOnce() -> T) -> &mut T {
        self.use_count += 1;
        let root = self.roots.entry(key.clone()).or_insert_with(|| RootRecord {
            history: VecDeque::new(),
            last_use: 0,
            task_handle: new(),
        });
        root.last_use = self.use_count;
        &mut root.task_handle
    }

    /// Records a use of a root; `None` if the root has no snapshot.
    pub fn touch_known(&mut self, key: &RootKey) -> Option<(&RootSnapshot, &mut T)> {
        let root = self.roots.get_mut(key)?;
        let (_, snapshot) = root.history.back()?;
        self.use_count += 1;
        root.last_use = self.use_count;
        Some((snapshot, &mut root.task_handle))
    }

    pub fn remove_root(&mut self, key: &RootKey) {
        self.roots.remove(key);
    }

    /// Removes least recently used roots until `max_roots` are left. Busy roots stay.
    pub fn evict_idle_roots(&mut self, max_roots: usize, is_busy: impl Fn(&T) -> bool) {
        while self.roots.len() > max_roots {
            let idle = self.roots.iter().filter(|(_, root)| !is_busy(&root.task_handle));
            let Some((key, _)) = idle.min_by_key(|(_, root)| root.last_use) else { return };
            let key = key.clone();
            self.roots.remove(&key);
        }
    }

    /// Stores a scan result; `None` means that the catalog did not change. Returns whether the
    /// snapshot differs from the last snapshot, which creates a new revision.
    pub fn publish_snapshot(
        &mut self,
        key: &RootKey,
        catalog: Option<Result<Arc<Catalog>, RootReason>>,
        watch_mode: WatchMode,
    ) -> bool {
        let Some(root) = self.roots.get_mut(key) else { return false };
        let last = root.latest();
        let catalog = match (last.map(|last| &last.catalog), catalog) {
            (None, None) => return false,
            (Some(old), None) => old.clone(),
            (Some(Ok(old)), Some(Ok(new)))
                if !Arc::ptr_eq(old, &new) && old.is_equivalent(&new) =>
            {
                Ok(old.clone())
            }
            (_, Some(new)) => new,
        };
        let snapshot = RootSnapshot { catalog, watch_mode };
        if last.is_some_and(|last| last.is_same(&snapshot)) {
            return false;
        }
        self.revision += 1;
        root.history.push_back((self.revision, snapshot));
        root.truncate_history(self.max_history);
        true
    }

    pub fn latest_snapshot(&self, key: &RootKey) -> Option<&RootSnapshot> {
        self.roots.get(key)?.latest()
    }

    /// Returns the snapshot of a root at a revision; `None` if the history starts later.
    pub fn snapshot_at(&self, key: &RootKey, revision: u64) -> Option<&RootSnapshot> {
        let history = &self.roots.get(key)?.history;
        let mut newest_first = history.iter().rev();
        newest_first.find(|(first, _)| *first <= revision).map(|(_, snapshot)| snapshot)
    }
}
