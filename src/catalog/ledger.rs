//! What is known of every root, revision by revision. Plain state behind the keeper's lock; leaves
//! finding things out to the keeper.

use crate::domain::{Catalog, Reason};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// What a root's catalog depends on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    /// The number of the bound within which it is looked at.
    pub(super) bound: usize,
    /// The root's path, absolute, as selected.
    pub(super) path: Arc<[u8]>,
}

/// What is known of a root.
#[derive(Debug, Clone)]
pub struct Held {
    /// What it holds, or why it cannot be used.
    pub content: Result<Arc<Catalog>, Reason>,
    /// How changes are noticed.
    pub watch: WatchMode,
}

/// How changes of a root are noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchMode {
    /// By events of the kernel.
    Events,
    /// By searching again and again.
    Polling(Degraded),
}

/// Why a root is polled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Degraded {
    /// The user's limit of inotify watches is reached.
    WatchLimit,
    /// No inotify instance can be made.
    NoInstance,
    /// The kernel refuses to watch a directory.
    Refused,
    /// The filesystem tells no events of what others change.
    Eventless(&'static str),
}

/// The states of all roots in use. One revision counts for all.
#[derive(Debug)]
pub(super) struct Ledger<T> {
    revision: u64,
    /// Revisions of one root that can still be asked for.
    max_history: usize,
    /// Before this revision, selections meant other roots.
    floor: u64,
    uses: u64,
    roots: HashMap<Key, Root<T>>,
}

#[derive(Debug)]
struct Root<T> {
    /// Oldest first, with the revision in which each began.
    history: VecDeque<(u64, Held)>,
    last_use: u64,
    work: T,
}

impl Held {
    /// Whether the two are one: a catalog that means the same was kept, and not made anew.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        let content = match (&self.content, &other.content) {
            (Ok(a), Ok(b)) => Arc::ptr_eq(a, b),
            (Err(a), Err(b)) => a == b,
            _ => false,
        };
        content && self.watch == other.watch
    }
}

impl<T> Root<T> {
    fn cut(&mut self, max_history: usize) {
        let over = self.history.len().saturating_sub(max_history);
        self.history.drain(..over);
    }
}

impl<T> Ledger<T> {
    pub(super) fn new(max_history: usize) -> Self {
        Self { revision: 0, max_history, floor: 0, uses: 0, roots: HashMap::new() }
    }

    /// Grows with every change of any root.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    /// The first revision at which selections mean what they mean now.
    pub(super) fn floor(&self) -> u64 {
        self.floor
    }

    /// Selections mean other roots from now on, which is a revision.
    pub(super) fn rename(&mut self) {
        self.revision += 1;
        self.floor = self.revision;
    }

    /// Keeps so many revisions of each root.
    pub(super) fn keep(&mut self, max_history: usize) {
        self.max_history = max_history;
        for root in self.roots.values_mut() {
            root.cut(max_history);
        }
    }

    /// The work of every root in use.
    pub(super) fn works(&mut self) -> impl Iterator<Item = &mut T> {
        self.roots.values_mut().map(|root| &mut root.work)
    }

    /// The root's work, for a root that is used now; `new` makes that of an unknown root.
    pub(super) fn used(&mut self, key: &Key, new: impl FnOnce() -> T) -> &mut T {
        self.uses += 1;
        let root = self.roots.entry(key.clone()).or_insert_with(|| Root {
            history: VecDeque::new(),
            last_use: 0,
            work: new(),
        });
        root.last_use = self.uses;
        &mut root.work
    }

    /// What is known of a root that is used now, and its work; `None` where nothing is.
    pub(super) fn used_and_known(&mut self, key: &Key) -> Option<(&Held, &mut T)> {
        let root = self.roots.get_mut(key)?;
        let (_, held) = root.history.back()?;
        self.uses += 1;
        root.last_use = self.uses;
        Some((held, &mut root.work))
    }

    /// Forgets a root.
    pub(super) fn forget(&mut self, key: &Key) {
        self.roots.remove(key);
    }

    /// Every root in use.
    pub(super) fn all(&self) -> impl Iterator<Item = (&Key, Option<&Held>)> {
        self.roots.iter().map(|(key, root)| (key, root.history.back().map(|(_, held)| held)))
    }

    /// The root's work, if the root is still known.
    pub(super) fn work(&mut self, key: &Key) -> Option<&mut T> {
        Some(&mut self.roots.get_mut(key)?.work)
    }

    /// Lets go of the roots that were unused for longest, until `most` are left; those that are
    /// `busy` stay.
    pub(super) fn shrink(&mut self, most: usize, busy: impl Fn(&T) -> bool) {
        while self.roots.len() > most {
            let idle = self.roots.iter().filter(|(_, r)| !busy(&r.work));
            let Some((key, _)) = idle.min_by_key(|(_, r)| r.last_use) else { return };
            let key = key.clone();
            self.roots.remove(&key);
        }
    }

    /// Takes what a search gave, if it gave anything. What is as it was makes no revision; says
    /// whether there is one.
    pub(super) fn publish(
        &mut self,
        key: &Key,
        content: Option<Result<Arc<Catalog>, Reason>>,
        watch: WatchMode,
    ) -> bool {
        let Some(root) = self.roots.get_mut(key) else { return false };
        let last = root.history.back().map(|(_, held)| held);
        let content = match (last.map(|held| &held.content), content) {
            (None, None) => return false,
            (Some(old), None) => old.clone(),
            (Some(Ok(old)), Some(Ok(new)))
                if !Arc::ptr_eq(old, &new) && old.means_the_same(&new) =>
            {
                Ok(old.clone())
            }
            (_, Some(new)) => new,
        };
        let held = Held { content, watch };
        if last.is_some_and(|last| last.is(&held)) {
            return false;
        }
        self.revision += 1;
        root.history.push_back((self.revision, held));
        root.cut(self.max_history);
        true
    }

    /// What is known of a root now.
    pub(super) fn latest(&self, key: &Key) -> Option<&Held> {
        self.roots.get(key)?.history.back().map(|(_, held)| held)
    }

    /// What was known of a root at a revision; `None` where that is forgotten, or was nothing yet.
    pub(super) fn at(&self, key: &Key, revision: u64) -> Option<&Held> {
        let history = &self.roots.get(key)?.history;
        history.iter().rev().find(|(began, _)| *began <= revision).map(|(_, held)| held)
    }
}
