//! Who is interested in which watched directory. The kernel gives a directory one watch however
//! often it is asked for, so interests are counted here.

use super::Listener;
use std::collections::HashMap;
use std::collections::hash_map::Entry::{Occupied, Vacant};
use std::sync::Arc;

/// All interests, by watch descriptor.
#[derive(Debug, Default)]
pub(super) struct Registry {
    next: u64,
    watched: HashMap<i32, Watched>,
}

/// The interests in one directory.
#[derive(Debug)]
enum Watched {
    /// In all of it; nearly always, and there are thousands.
    One(Entry),
    /// Each with what alone it is for.
    Any(Vec<(Entry, Option<Box<[u8]>>)>),
}

#[derive(Debug, Clone)]
struct Entry {
    number: u64,
    listener: Arc<dyn Listener>,
    token: u64,
}

/// One entry of the registry.
#[derive(Debug)]
pub(super) struct Interest {
    descriptor: i32,
    number: u64,
}

impl Registry {
    /// Takes all out for an instance that died. Numbers go on, so that whoever gives back an interest
    /// of before takes away none of after, which may have the same descriptor.
    pub(super) fn begin_anew(&mut self) -> Self {
        let next = self.next;
        std::mem::replace(self, Self { next, ..Self::default() })
    }

    pub(super) fn len(&self) -> usize {
        self.watched.len()
    }

    pub(super) fn add(
        &mut self,
        descriptor: i32,
        listener: Arc<dyn Listener>,
        token: u64,
        only: Option<&[u8]>,
    ) -> Interest {
        self.next += 1;
        let number = self.next;
        let entry = Entry { number, listener, token };
        let only = only.map(Into::into);
        match self.watched.entry(descriptor) {
            Occupied(watched) => watched.into_mut().add(entry, only),
            Vacant(new) if only.is_none() => drop(new.insert(Watched::One(entry))),
            Vacant(new) => drop(new.insert(Watched::Any(vec![(entry, only)]))),
        }
        Interest { descriptor, number }
    }

    /// Takes an interest away; gives the watch that nobody wants any more, if it was the last.
    pub(super) fn remove(&mut self, interest: &Interest) -> Option<i32> {
        let is_it = |entry: &Entry| entry.number == interest.number;
        match self.watched.get_mut(&interest.descriptor)? {
            Watched::One(entry) if is_it(entry) => {}
            Watched::One(_) => return None,
            Watched::Any(all) => {
                all.retain(|(entry, _)| !is_it(entry));
                if let [(one, None)] = &all[..] {
                    let one = Watched::One(one.clone());
                    self.watched.insert(interest.descriptor, one);
                    return None;
                }
                if !all.is_empty() {
                    return None;
                }
            }
        }
        self.forget(interest.descriptor);
        Some(interest.descriptor)
    }

    /// Forgets a watch that the kernel has dropped.
    pub(super) fn forget(&mut self, descriptor: i32) {
        self.watched.remove(&descriptor);
    }

    /// Who is told of an event, by which token, and whether for an entry alone.
    pub(super) fn interested(
        &self,
        descriptor: i32,
        name: Option<&[u8]>,
    ) -> impl Iterator<Item = (Arc<dyn Listener>, u64, bool)> {
        let watched = self.watched.get(&descriptor).into_iter();
        let wanted = move |(_, only): &(&Entry, Option<&[u8]>)| match (only, name) {
            (Some(only), Some(name)) => *only == name,
            _ => true,
        };
        let told = |(entry, only): (&Entry, Option<&[u8]>)| {
            (entry.listener.clone(), entry.token, only.is_some())
        };
        watched.flat_map(Watched::entries).filter(wanted).map(told)
    }

    /// Every listener, once.
    pub(super) fn everybody(&self) -> impl Iterator<Item = Arc<dyn Listener>> {
        let all = self.watched.values().flat_map(Watched::entries).map(|(e, _)| &e.listener);
        let once: HashMap<_, _> = all.map(|l| (Arc::as_ptr(l).cast::<()>(), l.clone())).collect();
        once.into_values()
    }
}

impl Watched {
    fn add(&mut self, entry: Entry, only: Option<Box<[u8]>>) {
        if let Self::One(first) = self {
            *self = Self::Any(vec![(first.clone(), None)]);
        }
        if let Self::Any(all) = self {
            all.push((entry, only));
        }
    }

    /// The interests, and what alone each is for.
    fn entries(&self) -> impl Iterator<Item = (&Entry, Option<&[u8]>)> {
        let (one, any) = match self {
            Self::One(entry) => (Some((entry, None)), &[][..]),
            Self::Any(all) => (None, &all[..]),
        };
        one.into_iter().chain(any.iter().map(|(entry, only)| (entry, only.as_deref())))
    }
}
