//! What is known of every root, revision by revision. Plain state behind the keeper's lock; leaves
//! finding things out to the keeper.

use crate::domain::{Catalog, Reason};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Revisions of one root that can still be asked for.
const MAX_HISTORY: usize = 16;

/// A root's path, absolute, as selected: what its catalog depends on.
pub(super) type Key = Arc<[u8]>;

/// What one search gave.
pub(super) type State = Result<Arc<Catalog>, Reason>;

/// The states of all roots in use. One revision counts for all.
#[derive(Debug)]
pub(super) struct Ledger<T> {
    revision: u64,
    uses: u64,
    roots: HashMap<Key, Root<T>>,
}

#[derive(Debug)]
struct Root<T> {
    /// Oldest first, with the revision in which each began.
    history: VecDeque<(u64, State)>,
    last_use: u64,
    work: T,
}

impl<T> Ledger<T> {
    pub(super) fn new() -> Self {
        Self { revision: 0, uses: 0, roots: HashMap::new() }
    }

    /// Grows with every change of any root.
    pub(super) fn revision(&self) -> u64 {
        self.revision
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

    /// Takes what a search gave. What is as it was makes no revision.
    pub(super) fn publish(&mut self, key: &Key, state: Result<Catalog, Reason>) {
        let Some(root) = self.roots.get_mut(key) else { return };
        let state = match (root.history.back(), state) {
            (Some((_, Ok(old))), Ok(new)) if **old == new => return,
            (Some((_, Ok(old))), Ok(new)) => Ok(Arc::new(new.sharing(old))),
            (Some((_, Err(old))), Err(new)) if *old == new => return,
            (_, state) => state.map(Arc::new),
        };
        self.revision += 1;
        root.history.push_back((self.revision, state));
        if root.history.len() > MAX_HISTORY {
            root.history.pop_front();
        }
    }

    /// What is known of a root now.
    pub(super) fn latest(&self, key: &Key) -> Option<&State> {
        self.roots.get(key)?.history.back().map(|(_, state)| state)
    }

    /// What was known of a root at a revision; `None` where that is forgotten, or was nothing yet.
    pub(super) fn at(&self, key: &Key, revision: u64) -> Option<&State> {
        let history = &self.roots.get(key)?.history;
        history.iter().rev().find(|(began, _)| *began <= revision).map(|(_, state)| state)
    }
}
