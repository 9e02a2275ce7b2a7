//! Inotify watches and the mount table, behind one task. The watcher turns kernel events into
//! "this directory changed" and "a filesystem was mounted or unmounted here". Events are hints: a
//! listener reads the directory to learn the change. Source: inotify(7).
//!
//! The daemon has one inotify instance (`instance`). A watch is set through a descriptor of the
//! directory, so the watch stays with the directory if its path changes. The kernel has one watch
//! per directory and instance, so all listeners of a directory share one watch (`watch_registry`).
//! A task reads the events, and calls the listeners (`event_loop`). `mount_table` finds mounts,
//! which inotify does not report.

mod event_loop;
mod fault_injector;
mod instance;
mod mount_table;
mod watch_registry;

#[doc(hidden)]
pub use fault_injector::FaultInjector;

use caproot_core::sync::{Mutex, RwLock};
use inotify::{Inotify, WatchMask};
use instance::WatchInstance;
use rustix::fs::inotify::remove_watch;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio_util::task::AbortOnDropHandle;
use watch_registry::InterestId;

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
    /// `None` before the first start and after the instance failed.
    instance: Mutex<Option<WatchInstance>>,
    /// Read-locked from the system call that adds a watch until the registry has the watch. Several
    /// threads may add watches at a time. Write-locked to dispatch an event or remove a watch.
    /// Locked before `instance`.
    add_lock: RwLock<()>,
    overflows: AtomicU64,
    fault_injector: FaultInjector,
}

/// Interest of one listener in one directory or file. Dropping the interest removes it.
#[derive(Debug)]
pub struct InotifyWatch {
    watcher: Arc<WatcherInner>,
    interest: InterestId,
}

impl InotifyWatcher {
    /// Returns a watcher without an inotify instance that fails as a test requests.
    #[must_use]
    pub fn new(fault_injector: FaultInjector) -> Self {
        Self(Arc::new(WatcherInner {
            instance: Mutex::default(),
            add_lock: RwLock::default(),
            overflows: AtomicU64::new(0),
            fault_injector,
        }))
    }

    /// Creates the inotify instance if there is no instance, and spawns a task that reads its
    /// events until the instance fails. Call within the tokio runtime.
    pub fn start(&self) -> io::Result<()> {
        let mut instance = self.0.instance.lock();
        if instance.is_some() {
            return Ok(());
        }

        let inotify = Inotify::init()?;
        let mut started = WatchInstance::new(&inotify)?;
        // If the instance fails, the task notifies all listeners and ends. The next start creates
        // another instance.
        let events = event_loop::run(
            Arc::downgrade(&self.0),
            inotify,
            self.0.fault_injector.clone(),
        );
        started.event_loop = Some(AbortOnDropHandle::new(tokio::spawn(events)));
        *instance = Some(started);
        Ok(())
    }

    /// Whether the watcher has an inotify instance.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.0.instance.lock().is_some()
    }

    /// How many directories and files with hard links are watched.
    #[must_use]
    pub fn watch_count(&self) -> usize {
        let instance = self.0.instance.lock();
        instance
            .as_ref()
            .map_or(0, |instance| instance.registry.len())
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

        let instance = self.0.instance.lock();
        let watches = instance.as_ref().map(|instance| instance.watches.clone());
        let mut watches = watches.ok_or(WatchError::NoInotifyInstance)?;
        // Other threads add watches during the system call.
        drop(instance);

        // Through the descriptor, because the path may lead elsewhere by now.
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let added = watches
            .add(path, mask)
            .map_err(|error| match error.kind() {
                io::ErrorKind::StorageFull => WatchError::LimitReached,
                _ => WatchError::Rejected,
            })?;

        let descriptor = added.get_watch_descriptor_id();
        let mut instance = self.0.instance.lock();
        // An instance that failed during the call has no watch any longer.
        let registry = &mut instance
            .as_mut()
            .ok_or(WatchError::NoInotifyInstance)?
            .registry;
        let interest = registry.add(descriptor, listener.clone(), token, only);
        drop(instance);

        Ok(InotifyWatch {
            watcher: self.0.clone(),
            interest,
        })
    }

    /// Reports mount changes since the last report to all listeners. Costs one system call if the
    /// mount table did not change.
    pub fn report_mount_changes(&self) {
        if let Some(instance) = self.0.instance.lock().as_mut() {
            instance.report_mount_changes();
        }
    }

    /// Waits until all events that the kernel queued before this call are reported, and reports
    /// mount changes at once. Returns `false` if the watcher has no inotify instance.
    pub async fn barrier(&self) -> bool {
        let reached = {
            let mut instance = self.0.instance.lock();
            let Some(instance) = instance.as_mut() else {
                return false;
            };
            instance.report_mount_changes();
            instance.add_barrier()
        };
        let Some(reached) = reached else {
            return false;
        };
        reached.await.is_ok()
    }
}

impl Drop for InotifyWatch {
    fn drop(&mut self) {
        let _adds_blocked = self.watcher.add_lock.write();
        let mut instance = self.watcher.instance.lock();
        let Some(instance) = instance.as_mut() else {
            return;
        };
        if let Some(descriptor) = instance.registry.remove(&self.interest) {
            // Fails if the kernel removed the watch together with the directory.
            let _ = remove_watch(&instance.descriptor, descriptor);
        }
    }
}

#[cfg(test)]
mod tests;
