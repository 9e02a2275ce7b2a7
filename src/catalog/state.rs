//! What is known of every root, revision by revision. Plain state behind the keeper's lock; leaves
//! finding things out to the keeper.

use crate::domain::{Catalog, RootReason};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// What a root's catalog depends on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct RootKey {
    /// The number of the bound within which it is looked at.
    pub(super) scope_id: usize,
    /// The root's path, absolute, as selected.
    pub(super) path: Arc<[u8]>,
}

/// What is known of a root.
#[derive(Debug, Clone)]
pub struct RootSnapshot {
    /// What it holds, or why it cannot be used.
    pub catalog: Result<Arc<Catalog>, RootReason>,
    /// How changes are noticed.
    pub watch_mode: WatchMode,
}

/// How changes of a root are noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchMode {
    /// By events of the kernel.
    Events,
    /// By searching again and again.
    Polling(PollReason),
}

/// Why a root is polled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PollReason {
    /// The user's limit of inotify watches is reached.
    WatchLimit,
    /// No inotify instance can be made.
    NoInotifyInstance,
    /// The kernel refuses to watch a directory.
    WatchRejected,
    /// The filesystem tells no events of what others change.
    NoInotifySupport(&'static str),
}

/// The states of all roots in use. One revision counts for all.
#[derive(Debug)]
pub(super) struct StoreState<T> {
    revision: u64,
    /// Revisions of one root that can still be asked for.
    max_history: usize,
    /// Before this revision, selections meant other roots.
    history_floor: u64,
    use_count: u64,
    roots: HashMap<RootKey, RootRecord<T>>,
}

#[derive(Debug)]
struct RootRecord<T> {
    /// Oldest first, with the revision in which each began.
    history: VecDeque<(u64, RootSnapshot)>,
    last_use: u64,
    task_handle: T,
}

impl RootSnapshot {
    /// Whether the two are one: a catalog that means the same was kept, and not made anew.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let content = match (&self.catalog, &other.catalog) {
            (Ok(a), Ok(b)) => Arc::ptr_eq(a, b),
            (Err(a), Err(b)) => a == b,
            _ => false,
        };
        content && self.watch_mode == other.watch_mode
    }
}

impl<T> RootRecord<T> {
    fn truncate_history(&mut self, max_history: usize) {
        let over = self.history.len().saturating_sub(max_history);
        self.history.drain(..over);
    }
}

impl<T> StoreState<T> {
    pub(super) fn new(max_history: usize) -> Self {
        Self { revision: 0, max_history, history_floor: 0, use_count: 0, roots: HashMap::new() }
    }

    /// Grows with every change of any root.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    /// The first revision at which selections mean what they mean now.
    pub(super) fn history_floor(&self) -> u64 {
        self.history_floor
    }

    /// Selections mean other roots from now on, which is a revision.
    pub(super) fn discard_resume_points(&mut self) {
        self.revision += 1;
        self.history_floor = self.revision;
    }

    /// Keeps so many revisions of each root.
    pub(super) fn set_max_history(&mut self, max_history: usize) {
        self.max_history = max_history;
        for root in self.roots.values_mut() {
            root.truncate_history(max_history);
        }
    }

    /// The work of every root in use.
    pub(super) fn task_handles_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.roots.values_mut().map(|root| &mut root.task_handle)
    }

    /// The root's work, for a root that is used now; `new` makes that of an unknown root.
    pub(super) fn touch_or_insert(&mut self, key: &RootKey, new: impl FnOnce() -> T) -> &mut T {
        self.use_count += 1;
        let root = self.roots.entry(key.clone()).or_insert_with(|| RootRecord {
            history: VecDeque::new(),
            last_use: 0,
            task_handle: new(),
        });
        root.last_use = self.use_count;
        &mut root.task_handle
    }

    /// What is known of a root that is used now, and its work; `None` where nothing is.
    pub(super) fn touch_known(&mut self, key: &RootKey) -> Option<(&RootSnapshot, &mut T)> {
        let root = self.roots.get_mut(key)?;
        let (_, held) = root.history.back()?;
        self.use_count += 1;
        root.last_use = self.use_count;
        Some((held, &mut root.task_handle))
    }

    /// Forgets a root.
    pub(super) fn remove_root(&mut self, key: &RootKey) {
        self.roots.remove(key);
    }

    /// Every root in use.
    pub(super) fn iter_roots(&self) -> impl Iterator<Item = (&RootKey, Option<&RootSnapshot>)> {
        self.roots.iter().map(|(key, root)| (key, root.history.back().map(|(_, held)| held)))
    }

    /// The root's work, if the root is still known.
    pub(super) fn task_handle_mut(&mut self, key: &RootKey) -> Option<&mut T> {
        Some(&mut self.roots.get_mut(key)?.task_handle)
    }

    /// Lets go of the roots that were unused for longest, until `most` are left; those that are
    /// `busy` stay.
    pub(super) fn evict_idle_roots(&mut self, most: usize, busy: impl Fn(&T) -> bool) {
        while self.roots.len() > most {
            let idle = self.roots.iter().filter(|(_, r)| !busy(&r.task_handle));
            let Some((key, _)) = idle.min_by_key(|(_, r)| r.last_use) else { return };
            let key = key.clone();
            self.roots.remove(&key);
        }
    }

    /// Takes what a search gave, if it gave anything. What is as it was makes no revision; says
    /// whether there is one.
    pub(super) fn publish_snapshot(
        &mut self,
        key: &RootKey,
        content: Option<Result<Arc<Catalog>, RootReason>>,
        watch: WatchMode,
    ) -> bool {
        let Some(root) = self.roots.get_mut(key) else { return false };
        let last = root.history.back().map(|(_, held)| held);
        let content = match (last.map(|held| &held.catalog), content) {
            (None, None) => return false,
            (Some(old), None) => old.clone(),
            (Some(Ok(old)), Some(Ok(new)))
                if !Arc::ptr_eq(old, &new) && old.is_equivalent(&new) =>
            {
                Ok(old.clone())
            }
            (_, Some(new)) => new,
        };
        let held = RootSnapshot { catalog: content, watch_mode: watch };
        if last.is_some_and(|last| last.is_same(&held)) {
            return false;
        }
        self.revision += 1;
        root.history.push_back((self.revision, held));
        root.truncate_history(self.max_history);
        true
    }

    /// What is known of a root now.
    pub(super) fn latest_snapshot(&self, key: &RootKey) -> Option<&RootSnapshot> {
        self.roots.get(key)?.history.back().map(|(_, held)| held)
    }

    /// What was known of a root at a revision; `None` where that is forgotten, or was nothing yet.
    pub(super) fn snapshot_at(&self, key: &RootKey, revision: u64) -> Option<&RootSnapshot> {
        let history = &self.roots.get(key)?.history;
        history.iter().rev().find(|(began, _)| *began <= revision).map(|(_, held)| held)
    }
}
