//! Inotify instance of the watcher, until it fails.

use super::WatchListener;
use super::mount_table::MountTable;
use super::watch_registry::WatchRegistry;
use inotify::{Event, EventMask, Inotify, WatchMask, Watches};
use rustix::fs::{MemfdFlags, memfd_create};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use tokio::sync::oneshot;
use tokio_util::task::AbortOnDropHandle;

/// Events after which the name of an entry refers to another file.
const ENTRY_REPLACED: EventMask = EventMask::CREATE
    .union(EventMask::DELETE)
    .union(EventMask::MOVED_FROM)
    .union(EventMask::MOVED_TO);

#[derive(Debug)]
pub struct WatchInstance {
    pub watches: Watches,
    /// Descriptor of the instance, for removing watches by descriptor number.
    pub descriptor: OwnedFd,
    pub registry: WatchRegistry,
    /// Reads the events of the instance.
    pub event_loop: Option<AbortOnDropHandle<()>>,
    /// `None` if the table cannot be read.
    mount_table: Option<MountTable>,
    /// Barriers that wait for their event, by watch descriptor. Dropping a sender fails its barrier.
    pub barriers: Vec<(i32, oneshot::Sender<()>)>,
}

/// Call of a listener for an event.
pub struct ListenerCall {
    pub listener: Arc<dyn WatchListener>,
    pub token: u64,
    /// Whether the directory was moved, or the watched entry was replaced.
    pub moved: bool,
}

impl WatchInstance {
    pub fn new(inotify: &Inotify) -> io::Result<Self> {
        let mount_table = MountTable::open()
            .inspect_err(|error| tracing::warn!(%error, "cannot watch mounts"))
            .ok();
        Ok(Self {
            watches: inotify.watches(),
            descriptor: inotify.as_fd().try_clone_to_owned()?,
            registry: WatchRegistry::default(),
            event_loop: None,
            mount_table,
            barriers: Vec::new(),
        })
    }

    /// Adds a barrier that is reached after all events that the kernel has queued. Returns `None` if
    /// the kernel rejects it.
    ///
    /// The barrier adds and removes a watch on an anonymous file: the kernel queues `IN_IGNORED`
    /// for the watch behind all other events.
    pub fn add_barrier(&mut self) -> Option<oneshot::Receiver<()>> {
        let file = memfd_create("barrier", MemfdFlags::CLOEXEC).ok()?;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let added = self.watches.add(path, WatchMask::DELETE_SELF).ok()?;
        let descriptor = added.get_watch_descriptor_id();
        self.watches.remove(added).ok()?;

        let (sender, reached) = oneshot::channel();
        self.barriers.push((descriptor, sender));
        Some(reached)
    }

    /// Takes the barrier that an event reaches, if the event is of a barrier.
    pub fn take_reached_barrier(&mut self, event: &Event<OsString>) -> Option<oneshot::Sender<()>> {
        if !event.mask.contains(EventMask::IGNORED) {
            return None;
        }
        let descriptor = event.wd.get_watch_descriptor_id();
        let mut barriers = self.barriers.iter();
        let index = barriers.position(|(other, _)| *other == descriptor)?;
        Some(self.barriers.swap_remove(index).1)
    }

    /// Returns the calls for an event. Removes a watch that the kernel has removed.
    pub fn listener_calls(&mut self, event: &Event<OsString>) -> Vec<ListenerCall> {
        let descriptor = event.wd.get_watch_descriptor_id();
        let name = event.name.as_deref().map(OsStrExt::as_bytes);
        let listeners = self.registry.matching_listeners(descriptor, name);
        let calls = listeners.map(|(listener, token, is_for_entry)| {
            let moved = if is_for_entry {
                ENTRY_REPLACED
            } else {
                EventMask::MOVE_SELF
            };
            ListenerCall {
                listener,
                token,
                moved: event.mask.intersects(moved),
            }
        });
        let calls = calls.collect();
        if event.mask.contains(EventMask::IGNORED) {
            self.registry.remove_descriptor(descriptor);
        }
        calls
    }

    /// Reports mount changes to all listeners. The instance stays locked until all listeners have the
    /// report: a later call that finds no change can rely on it.
    pub fn report_mount_changes(&mut self) {
        let Some(mount_table) = &mut self.mount_table else {
            return;
        };
        match mount_table.take_changed_mount_points() {
            Ok(None) => {}
            Ok(Some(mount_points)) => {
                for listener in self.registry.distinct_listeners() {
                    listener.on_mounts_changed(&mount_points);
                }
            }
            Err(error) => {
                tracing::warn!(%error, "cannot read the mount table; mounts are no longer watched");
                self.mount_table = None;
            }
        }
    }
}
