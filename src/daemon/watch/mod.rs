//! Inotify watches and the mount table, behind one task. The watcher turns kernel events into
//! "this directory changed" and "a filesystem was mounted or unmounted here". Events are hints: a
//! listener reads the directory to learn the change. Source: inotify(7).
//!
//! The daemon has one inotify instance. A watch is set through a descriptor of the directory, so
//! the watch stays with the directory if its path changes. The kernel has one watch per directory
//! and instance, so all listeners of a directory share one watch.

mod fault_injector;
mod mount_table;
mod watch_registry;

#[doc(hidden)]
pub use fault_injector::FaultInjector;

use caproot_core::sync::{Mutex, RwLock};
use futures_util::StreamExt as _;
use inotify::{Event, EventMask, Inotify, WatchMask, Watches};
use mount_table::MountTable;
use rustix::fs::inotify::remove_watch;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use tokio::sync::oneshot;
use tokio_util::task::AbortOnDropHandle;
use watch_registry::{InterestId, WatchRegistry};

/// Size of the buffer for events.
const BUFFER_BYTES: usize = 64 << 10;

/// Events of a directory: changes of the directory, its entries and its files. Reads cause none of
/// these events.
const DIR_MASK: WatchMask = WatchMask::CREATE
    .union(WatchMask::DELETE)
    .union(WatchMask::MODIFY)
    .union(WatchMask::CLOSE_WRITE)
    .union(WatchMask::ATTRIB)
    .union(WatchMask::MOVED_FROM)
    .union(WatchMask::MOVED_TO)
    .union(WatchMask::DELETE_SELF)
    .union(WatchMask::MOVE_SELF)
    .union(WatchMask::ONLYDIR)
    .union(WatchMask::EXCL_UNLINK);

/// Events of a file: changes of its content or link count. The kernel reports these events through
/// every name of the file. The directory of a file reports renames.
const FILE_MASK: WatchMask = WatchMask::MODIFY
    .union(WatchMask::CLOSE_WRITE)
    .union(WatchMask::ATTRIB)
    .union(WatchMask::DELETE_SELF);

/// Events after which the name of an entry refers to another file.
const ENTRY_REPLACED: EventMask = EventMask::CREATE
    .union(EventMask::DELETE)
    .union(EventMask::MOVED_FROM)
    .union(EventMask::MOVED_TO);

/// Receives the events of watched directories. The watcher's task calls the methods, so they must
/// not block.
pub trait WatchListener: Send + Sync + std::fmt::Debug {
    /// Called if the directory with this token changed. `name` is the changed entry, if the event
    /// has a name. `moved` means that the directory was moved, or that the watched entry was
    /// replaced: earlier reads by a path through the directory may have read other files.
    fn on_dir_changed(&self, token: u64, name: Option<&[u8]>, moved: bool);
    /// Called if filesystems were mounted or unmounted at these absolute paths, in any directory.
    /// There is no path if each change was undone.
    fn on_mounts_changed(&self, mount_points: &[Box<[u8]>]);
    /// Called if events were lost or the inotify instance failed: any directory may have changed.
    fn on_events_lost(&self);
}

/// Reason why a directory cannot be watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchError {
    /// The watcher has no inotify instance.
    NoInotifyInstance,
    /// The daemon's user reached the limit of watches.
    LimitReached,
    /// The kernel rejected the watch for another reason, such as a removed directory.
    Rejected,
}

/// Inotify watcher of the daemon. Cheap to clone; all clones share one instance.
#[derive(Debug, Clone)]
pub struct InotifyWatcher(Arc<WatcherInner>);

#[derive(Debug)]
struct WatcherInner {
    state: Mutex<WatcherState>,
    /// Read-locked from the system call that adds a watch until the registry has the watch. Several
    /// threads may add watches at a time. Write-locked to dispatch an event or remove a watch.
    /// Locked before `state`.
    add_lock: RwLock<()>,
    overflows: AtomicU64,
    fault_injector: FaultInjector,
}

#[derive(Debug, Default)]
struct WatcherState {
    /// `None` before the first start and after the instance failed.
    watches: Option<Watches>,
    /// Descriptor of the same instance, for removing watches by descriptor number.
    instance: Option<OwnedFd>,
    /// Reads the events of the instance.
    event_loop: Option<AbortOnDropHandle<()>>,
    /// `None` if the table cannot be read.
    mount_table: Option<MountTable>,
    registry: WatchRegistry,
    /// Barriers that wait for their event, by watch descriptor.
    barriers: Vec<(i32, oneshot::Sender<()>)>,
}

/// Interest of one listener in one directory or file. Dropping the interest removes it.
#[derive(Debug)]
pub struct InotifyWatch {
    watcher: Arc<WatcherInner>,
    interest: InterestId,
}

impl InotifyWatcher {
    /// Returns a watcher without an inotify instance.
    #[must_use]
    pub fn new() -> Self {
        Self::with_faults(FaultInjector::default())
    }

    /// Returns a watcher without an inotify instance that fails as a test requests.
    #[doc(hidden)]
    #[must_use]
    pub fn with_faults(fault_injector: FaultInjector) -> Self {
        let (state, add_lock) = (Mutex::default(), RwLock::default());
        let overflows = AtomicU64::new(0);
        Self(Arc::new(WatcherInner {
            state,
            add_lock,
            overflows,
            fault_injector,
        }))
    }

    /// Creates the inotify instance if there is no instance, and spawns a task that reads its
    /// events until the instance fails. Call within the tokio runtime.
    pub fn start(&self) -> io::Result<()> {
        let mut state = self.0.state.lock();
        if state.watches.is_some() {
            return Ok(());
        }

        let instance = Inotify::init()?;
        state.instance = Some(instance.as_fd().try_clone_to_owned()?);
        state.watches = Some(instance.watches());
        state.mount_table = MountTable::open()
            .inspect_err(|error| tracing::warn!(%error, "cannot watch mounts"))
            .ok();

        // If the instance fails, the task notifies all listeners and ends. The next start creates
        // another instance.
        let event_loop = WatcherInner::run_event_loop(
            Arc::downgrade(&self.0),
            instance,
            self.0.fault_injector.clone(),
        );
        state.event_loop = Some(AbortOnDropHandle::new(tokio::spawn(event_loop)));
        Ok(())
    }

    /// Whether the watcher has an inotify instance.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.0.state.lock().watches.is_some()
    }

    /// How many directories and files with hard links are watched.
    #[must_use]
    pub fn watch_count(&self) -> usize {
        self.0.state.lock().registry.len()
    }

    /// How many watches all processes of the daemon's user may have; 0 if unknown.
    #[must_use]
    pub fn watch_limit(&self) -> u64 {
        let text = std::fs::read_to_string("/proc/sys/fs/inotify/max_user_watches");
        text.ok()
            .and_then(|text| text.trim().parse().ok())
            .unwrap_or(0)
    }

    /// How often the event queue of the kernel overflowed.
    #[must_use]
    pub fn overflow_count(&self) -> u64 {
        self.0.overflows.load(Ordering::Relaxed)
    }

    /// Watches the directory behind a descriptor, without its subdirectories. If `only` is not
    /// empty, watches only the directory itself and these entries. Earlier events are not reported:
    /// read the directory after this call, not before.
    pub fn watch_dir(
        &self,
        dir: BorrowedFd<'_>,
        listener: &Arc<dyn WatchListener>,
        token: u64,
        only: &[&[u8]],
    ) -> Result<InotifyWatch, WatchError> {
        self.add_watch(dir, DIR_MASK, listener, token, only)
    }

    /// Watches the file behind a descriptor for changes through any name of the file. Read the file
    /// after this call, not before.
    pub fn watch_file(
        &self,
        file: BorrowedFd<'_>,
        listener: &Arc<dyn WatchListener>,
        token: u64,
    ) -> Result<InotifyWatch, WatchError> {
        self.add_watch(file, FILE_MASK, listener, token, &[])
    }

    fn add_watch(
        &self,
        fd: BorrowedFd<'_>,
        mask: WatchMask,
        listener: &Arc<dyn WatchListener>,
        token: u64,
        only: &[&[u8]],
    ) -> Result<InotifyWatch, WatchError> {
        // An event of the watch waits until the registry has its listener.
        let _adding = self.0.add_lock.read();

        let mut watches = self
            .0
            .state
            .lock()
            .watches
            .clone()
            .ok_or(WatchError::NoInotifyInstance)?;

        // Through the descriptor, because the path may lead elsewhere by now.
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let added = watches
            .add(path, mask)
            .map_err(|e| match e.raw_os_error() {
                Some(code) if code == rustix::io::Errno::NOSPC.raw_os_error() => {
                    WatchError::LimitReached
                }
                _ => WatchError::Rejected,
            })?;

        let descriptor = added.get_watch_descriptor_id();
        let interest = self
            .0
            .state
            .lock()
            .registry
            .add(descriptor, listener.clone(), token, only);

        Ok(InotifyWatch {
            watcher: self.0.clone(),
            interest,
        })
    }

    /// Reports mount changes since the last report to all listeners. Costs one system call if the
    /// mount table did not change.
    pub fn report_mount_changes(&self) {
        self.0.state.lock().report_mount_changes();
    }

    /// Waits until all events that the kernel queued before this call are reported, and reports
    /// mount changes at once. Returns `false` if the watcher has no inotify instance.
    ///
    /// The barrier adds and removes a watch on an anonymous file: the kernel queues `IN_IGNORED`
    /// for the watch behind all other events.
    pub async fn barrier(&self) -> bool {
        let Ok(file) = rustix::fs::memfd_create("barrier", rustix::fs::MemfdFlags::CLOEXEC) else {
            return false;
        };

        let reached = {
            let mut state = self.0.state.lock();
            state.report_mount_changes();
            let Some(watches) = state.watches.as_mut() else {
                return false;
            };

            let path = format!("/proc/self/fd/{}", file.as_raw_fd());
            let Ok(added) = watches.add(path, WatchMask::DELETE_SELF) else {
                return false;
            };
            let descriptor = added.get_watch_descriptor_id();
            if watches.remove(added).is_err() {
                return false;
            }

            let (sender, reached) = oneshot::channel();
            state.barriers.push((descriptor, sender));
            reached
        };

        reached.await.is_ok()
    }
}

impl Default for InotifyWatcher {
    fn default() -> Self {
        Self::new()
    }
}

impl WatcherInner {
    /// Dispatches events until the instance fails, then reports lost events to all listeners.
    async fn run_event_loop(this: Weak<Self>, instance: Inotify, faults: FaultInjector) {
        let mut buffer = vec![0; BUFFER_BYTES];
        match instance.into_event_stream(&mut buffer) {
            Err(error) => tracing::error!(%error, "cannot read inotify events"),
            Ok(mut events) => loop {
                let event = tokio::select! {
                    event = events.next() => event,
                    () = faults.instance_killed() => None,
                };
                let Some((event, watcher)) = event.zip(this.upgrade()) else {
                    break;
                };
                match event {
                    Ok(event) => watcher.dispatch_event(&event),
                    Err(error) => {
                        tracing::error!(%error, "inotify instance failed; starting a new instance");
                        break;
                    }
                }
            },
        }

        let Some(watcher) = this.upgrade() else {
            return;
        };
        // The state is emptied before the listeners are called: each of them may start a new instance.
        let state = {
            let _adds_blocked = watcher.add_lock.write();
            let mut state = watcher.state.lock();
            WatcherState {
                watches: state.watches.take(),
                instance: state.instance.take(),
                event_loop: None,
                mount_table: state.mount_table.take(),
                registry: state.registry.take_all(),
                barriers: std::mem::take(&mut state.barriers),
            }
        };

        // The senders of the barriers are dropped, so `barrier` returns `false`.
        state
            .registry
            .distinct_listeners()
            .for_each(|listener| listener.on_events_lost());
    }

    fn dispatch_event(&self, event: &Event<OsString>) {
        let adds_blocked = self.add_lock.write();
        let mut state = self.state.lock();

        if event.mask.contains(EventMask::Q_OVERFLOW) {
            self.overflows.fetch_add(1, Ordering::Relaxed);
            // The events of barriers may be lost too. All directories become dirty, so all barriers
            // are reached.
            let barriers = std::mem::take(&mut state.barriers);
            let listeners: Vec<_> = state.registry.distinct_listeners().collect();

            drop((state, adds_blocked));
            for listener in &listeners {
                listener.on_events_lost();
            }
            for (_, sender) in barriers {
                // Fails if the call that waits was cancelled.
                let _ = sender.send(());
            }
            return;
        }

        let descriptor = event.wd.get_watch_descriptor_id();
        let is_ignored = event.mask.contains(EventMask::IGNORED);
        let mut barriers = state.barriers.iter();
        if let Some(index) = barriers.position(|(other, _)| is_ignored && *other == descriptor) {
            let (_, sender) = state.barriers.swap_remove(index);
            // Fails if the call that waits was cancelled.
            let _ = sender.send(());
            return;
        }

        let name = event.name.as_deref().map(OsStrExt::as_bytes);
        let listeners: Vec<_> = state
            .registry
            .matching_listeners(descriptor, name)
            .collect();
        if is_ignored {
            state.registry.remove_descriptor(descriptor);
        }

        // Listeners may drop watches, which needs the locks.
        drop((state, adds_blocked));
        if self.fault_injector.should_drop_event() {
            return;
        }

        for (listener, token, is_for_entry) in listeners {
            let moved = if is_for_entry {
                ENTRY_REPLACED
            } else {
                EventMask::MOVE_SELF
            };
            listener.on_dir_changed(token, name, event.mask.intersects(moved));
        }
    }
}

impl WatcherState {
    /// Reports mount changes to all listeners. The state stays locked until all listeners have the
    /// report: a later call that finds no change can rely on it.
    fn report_mount_changes(&mut self) {
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

impl Drop for InotifyWatch {
    fn drop(&mut self) {
        let _adds_blocked = self.watcher.add_lock.write();
        let mut state = self.watcher.state.lock();
        let Some(descriptor) = state.registry.remove(&self.interest) else {
            return;
        };
        if let Some(instance) = &state.instance {
            // Fails if the kernel removed the watch together with the directory.
            let _ = remove_watch(instance, descriptor);
        }
    }
}

#[cfg(test)]
mod tests;
