//! Who is interested in which watched directory. The kernel gives a directory one watch however
//! often it is asked for, so interests are counted here.

use super::Listener;
use inotify::WatchDescriptor;
use std::collections::HashMap;
use std::sync::Arc;

/// All interests, by watch descriptor.
#[derive(Debug, Default)]
pub(super) struct Registry {
    next: u64,
    watched: HashMap<i32, Watched>,
}

#[derive(Debug)]
struct Watched {
    descriptor: WatchDescriptor,
    interests: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    number: u64,
    listener: Arc<dyn Listener>,
    token: u64,
    only: Option<Box<[u8]>>,
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
        descriptor: WatchDescriptor,
        listener: Arc<dyn Listener>,
        token: u64,
        only: Option<&[u8]>,
    ) -> Interest {
        let id = descriptor.get_watch_descriptor_id();
        self.next += 1;
        // Nearly always one, and there are thousands.
        let new = || Watched { descriptor, interests: Vec::with_capacity(1) };
        let watched = self.watched.entry(id).or_insert_with(new);
        let only = only.map(Into::into);
        watched.interests.push(Entry { number: self.next, listener, token, only });
        Interest { descriptor: id, number: self.next }
    }

    /// Takes an interest away; gives the watch that nobody wants any more, if it was the last.
    pub(super) fn remove(&mut self, interest: &Interest) -> Option<WatchDescriptor> {
        let watched = self.watched.get_mut(&interest.descriptor)?;
        watched.interests.retain(|entry| entry.number != interest.number);
        if !watched.interests.is_empty() {
            return None;
        }
        self.watched.remove(&interest.descriptor).map(|w| w.descriptor)
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
        let interests = self.watched.get(&descriptor).map_or(&[][..], |w| &w.interests);
        let wanted = move |entry: &&Entry| match (entry.only.as_deref(), name) {
            (Some(only), Some(name)) => only == name,
            _ => true,
        };
        let told = |entry: &Entry| (entry.listener.clone(), entry.token, entry.only.is_some());
        interests.iter().filter(wanted).map(told)
    }

    /// Every listener, once.
    pub(super) fn everybody(&self) -> impl Iterator<Item = Arc<dyn Listener>> {
        let all = self.watched.values().flat_map(|w| w.interests.iter().map(|e| &e.listener));
        let once: HashMap<_, _> = all.map(|l| (Arc::as_ptr(l).cast::<()>(), l.clone())).collect();
        once.into_values()
    }
}
