//! Listeners of watched directories, by watch descriptor. The kernel has one watch per directory and instance, so
//! that all listeners of a directory share one watch.

use super::WatchListener;
use std::collections::HashMap;
use std::collections::hash_map::Entry::{Occupied, Vacant};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of the interest that was added last, in any registry: a key of an instance that failed never removes an
/// interest of another instance with the same descriptor.
static LAST_NUMBER: AtomicU64 = AtomicU64::new(0);

/// Interests of listeners in watched directories, by watch descriptor.
#[derive(Debug, Default)]
pub struct WatchRegistry {
    by_descriptor: HashMap<i32, DirInterests>,
}

/// Interests in one directory.
#[derive(Debug)]
enum DirInterests {
    /// One interest in all entries. Nearly all directories have this form, so it saves memory.
    Single(WatchInterest),
    /// Interests in the entries of some names; no name stands for all entries.
    Many(Vec<(WatchInterest, EntryNames)>),
}

#[derive(Debug, Clone)]
struct WatchInterest {
    number: u64,
    listener: Arc<dyn WatchListener>,
    token: u64,
}

/// Names of the entries of an interest; empty for all entries.
type EntryNames = Box<[Box<[u8]>]>;

/// Key of an interest in the registry.
#[derive(Debug)]
pub struct InterestId {
    descriptor: i32,
    number: u64,
}

impl WatchRegistry {
    pub fn len(&self) -> usize {
        self.by_descriptor.len()
    }

    pub fn add(
        &mut self,
        descriptor: i32,
        listener: Arc<dyn WatchListener>,
        token: u64,
        only: &[&[u8]],
    ) -> InterestId {
        let number = LAST_NUMBER.fetch_add(1, Ordering::Relaxed) + 1;
        let interest = WatchInterest {
            number,
            listener,
            token,
        };
        let only: EntryNames = only.iter().copied().map(Into::into).collect();
        match self.by_descriptor.entry(descriptor) {
            Occupied(interests) => interests.into_mut().add(interest, only),
            Vacant(new) => drop(new.insert(if only.is_empty() {
                DirInterests::Single(interest)
            } else {
                DirInterests::Many(vec![(interest, only)])
            })),
        }
        InterestId { descriptor, number }
    }

    /// Removes an interest. Returns the watch descriptor if it has no interest left.
    pub fn remove(&mut self, id: &InterestId) -> Option<i32> {
        let has_id = |interest: &WatchInterest| interest.number == id.number;
        match self.by_descriptor.get_mut(&id.descriptor)? {
            DirInterests::Single(interest) if has_id(interest) => {}
            DirInterests::Single(_) => return None,
            DirInterests::Many(all) => {
                all.retain(|(interest, _)| !has_id(interest));
                if let [(one, only)] = &all[..]
                    && only.is_empty()
                {
                    let one = DirInterests::Single(one.clone());
                    self.by_descriptor.insert(id.descriptor, one);
                    return None;
                }
                if !all.is_empty() {
                    return None;
                }
            }
        }
        self.remove_descriptor(id.descriptor);
        Some(id.descriptor)
    }

    /// Removes all interests in a directory whose watch the kernel removed.
    pub fn remove_descriptor(&mut self, descriptor: i32) {
        self.by_descriptor.remove(&descriptor);
    }

    /// Returns the listeners of an event, each with its token and whether the interest is in some
    /// entries only.
    pub fn matching_listeners(
        &self,
        descriptor: i32,
        name: Option<&[u8]>,
    ) -> impl Iterator<Item = (Arc<dyn WatchListener>, u64, bool)> {
        let interests = self.by_descriptor.get(&descriptor).into_iter();
        let interests = interests.flat_map(DirInterests::iter);
        interests.filter_map(move |(interest, only)| {
            let is_match =
                only.is_empty() || name.is_none_or(|name| only.iter().any(|only| **only == *name));
            is_match.then(|| (interest.listener.clone(), interest.token, !only.is_empty()))
        })
    }

    /// Returns each listener once, also if it has several interests.
    pub fn distinct_listeners(&self) -> Vec<Arc<dyn WatchListener>> {
        let all = self.by_descriptor.values().flat_map(DirInterests::iter);
        let listeners = all.map(|(interest, _)| &interest.listener);
        let once: HashMap<_, _> = listeners
            .map(|listener| (Arc::as_ptr(listener).cast::<()>(), listener.clone()))
            .collect();
        once.into_values().collect()
    }
}

impl DirInterests {
    fn add(&mut self, interest: WatchInterest, only: EntryNames) {
        if let Self::Single(first) = self {
            *self = Self::Many(vec![(first.clone(), EntryNames::default())]);
        }
        if let Self::Many(all) = self {
            all.push((interest, only));
        }
    }

    /// Returns the interests, each with the names of its entries.
    fn iter(&self) -> impl Iterator<Item = (&WatchInterest, &[Box<[u8]>])> {
        let (single, many) = match self {
            Self::Single(interest) => (Some((interest, &[][..])), &[][..]),
            Self::Many(all) => (None, &all[..]),
        };
        single
            .into_iter()
            .chain(many.iter().map(|(interest, only)| (interest, &**only)))
    }
}
