//! Who is interested in which watched directory. The kernel gives a directory one watch however
//! often it is asked for, so interests are counted here.

use super::WatchListener;
use std::collections::HashMap;
use std::collections::hash_map::Entry::{Occupied, Vacant};
use std::sync::Arc;

/// All interests, by watch descriptor.
#[derive(Debug, Default)]
pub(super) struct WatchRegistry {
    last_number: u64,
    by_descriptor: HashMap<i32, DirInterests>,
}

/// The interests in one directory.
#[derive(Debug)]
enum DirInterests {
    /// In all of it; nearly always, and there are thousands.
    Single(WatchInterest),
    /// Each with what alone it is for.
    Many(Vec<(WatchInterest, Option<Box<[u8]>>)>),
}

#[derive(Debug, Clone)]
struct WatchInterest {
    number: u64,
    listener: Arc<dyn WatchListener>,
    token: u64,
}

/// One entry of the registry.
#[derive(Debug)]
pub(super) struct InterestId {
    descriptor: i32,
    number: u64,
}

impl WatchRegistry {
    /// Takes all out for an instance that died. Numbers go on, so that whoever gives back an interest
    /// of before takes away none of after, which may have the same descriptor.
    pub(super) fn take_all(&mut self) -> Self {
        let next = self.last_number;
        std::mem::replace(self, Self { last_number: next, ..Self::default() })
    }

    pub(super) fn len(&self) -> usize {
        self.by_descriptor.len()
    }

    pub(super) fn add(
        &mut self,
        descriptor: i32,
        listener: Arc<dyn WatchListener>,
        token: u64,
        only: Option<&[u8]>,
    ) -> InterestId {
        self.last_number += 1;
        let number = self.last_number;
        let entry = WatchInterest { number, listener, token };
        let only = only.map(Into::into);
        match self.by_descriptor.entry(descriptor) {
            Occupied(watched) => watched.into_mut().add(entry, only),
            Vacant(new) if only.is_none() => drop(new.insert(DirInterests::Single(entry))),
            Vacant(new) => drop(new.insert(DirInterests::Many(vec![(entry, only)]))),
        }
        InterestId { descriptor, number }
    }

    /// Takes an interest away; gives the watch that nobody wants any more, if it was the last.
    pub(super) fn remove(&mut self, interest: &InterestId) -> Option<i32> {
        let is_it = |entry: &WatchInterest| entry.number == interest.number;
        match self.by_descriptor.get_mut(&interest.descriptor)? {
            DirInterests::Single(entry) if is_it(entry) => {}
            DirInterests::Single(_) => return None,
            DirInterests::Many(all) => {
                all.retain(|(entry, _)| !is_it(entry));
                if let [(one, None)] = &all[..] {
                    let one = DirInterests::Single(one.clone());
                    self.by_descriptor.insert(interest.descriptor, one);
                    return None;
                }
                if !all.is_empty() {
                    return None;
                }
            }
        }
        self.remove_descriptor(interest.descriptor);
        Some(interest.descriptor)
    }

    /// Forgets a watch that the kernel has dropped.
    pub(super) fn remove_descriptor(&mut self, descriptor: i32) {
        self.by_descriptor.remove(&descriptor);
    }

    /// Who is told of an event, by which token, and whether for an entry alone.
    pub(super) fn matching_listeners(
        &self,
        descriptor: i32,
        name: Option<&[u8]>,
    ) -> impl Iterator<Item = (Arc<dyn WatchListener>, u64, bool)> {
        let watched = self.by_descriptor.get(&descriptor).into_iter();
        let wanted = move |(_, only): &(&WatchInterest, Option<&[u8]>)| match (only, name) {
            (Some(only), Some(name)) => *only == name,
            _ => true,
        };
        let told = |(entry, only): (&WatchInterest, Option<&[u8]>)| {
            (entry.listener.clone(), entry.token, only.is_some())
        };
        watched.flat_map(DirInterests::entries).filter(wanted).map(told)
    }

    /// Every listener, once.
    pub(super) fn distinct_listeners(&self) -> impl Iterator<Item = Arc<dyn WatchListener>> {
        let all =
            self.by_descriptor.values().flat_map(DirInterests::entries).map(|(e, _)| &e.listener);
        let once: HashMap<_, _> = all.map(|l| (Arc::as_ptr(l).cast::<()>(), l.clone())).collect();
        once.into_values()
    }
}

impl DirInterests {
    fn add(&mut self, entry: WatchInterest, only: Option<Box<[u8]>>) {
        if let Self::Single(first) = self {
            *self = Self::Many(vec![(first.clone(), None)]);
        }
        if let Self::Many(all) = self {
            all.push((entry, only));
        }
    }

    /// The interests, and what alone each is for.
    fn entries(&self) -> impl Iterator<Item = (&WatchInterest, Option<&[u8]>)> {
        let (one, any) = match self {
            Self::Single(entry) => (Some((entry, None)), &[][..]),
            Self::Many(all) => (None, &all[..]),
        };
        one.into_iter().chain(any.iter().map(|(entry, only)| (entry, only.as_deref())))
    }
}
