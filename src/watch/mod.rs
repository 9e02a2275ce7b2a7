//! The only room that knows inotify and the table of mounts: it turns kernel events into "this
//! directory is dirty" and "something is mounted here, or no longer", nothing more. Events are hints;
//! whoever is told looks for itself. Source: inotify(7).
//!
//! One inotify instance serves the daemon. Watches are set through a descriptor of the directory, so
//! that they stay with the directory whatever happens to its path, and are shared by everybody who
//! is interested in the same directory.

mod fault_injector;
mod mount_table;
mod reader;
mod registry;

#[doc(hidden)]
pub use fault_injector::FaultInjector;

use inotify::{Inotify, WatchMask, Watches};
use mount_table::MountTable;
use registry::{InterestId, WatchRegistry};
use rustix::fs::inotify::remove_watch;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockWriteGuard};
use tokio::sync::oneshot;

/// What of a directory's life is told: everything that may change a listing or a file in it, and
/// nothing that reading does.
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

/// The events of a file: a change of its content or of its links. The kernel reports these through every
/// name of the file. A rename is reported by the directory.
const FILE_MASK: WatchMask = WatchMask::MODIFY
    .union(WatchMask::CLOSE_WRITE)
    .union(WatchMask::ATTRIB)
    .union(WatchMask::DELETE_SELF);

/// Where events about watched directories go. Called on the watcher's own task, so it only notes.
pub trait WatchListener: Send + Sync + std::fmt::Debug {
    /// Something about the directory of this token changed; `name` is the entry, if it is about one.
    /// With `moved`, the directory itself has another place now, or the entry that is watched for is
    /// another: what was read by a path through it may be something else's, or may have been missed.
    fn on_dir_changed(&self, token: u64, name: Option<&[u8]>, moved: bool);
    /// At these absolute paths, wherever they are, something was mounted or taken away.
    fn on_mounts_changed(&self, places: &[Box<[u8]>]);
    /// Events were lost, or the watcher died: anything may have changed.
    fn on_events_lost(&self);
}

/// Why a directory is not watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchError {
    /// There is no inotify instance.
    NoInotifyInstance,
    /// The user's limit of watches is reached.
    LimitReached,
    /// The kernel refused for another reason, as when the directory is gone.
    Rejected,
}

/// The daemon's watcher. Cheap to clone; all clones are one.
#[derive(Debug, Clone)]
pub struct InotifyWatcher(Arc<WatcherInner>);

#[derive(Debug)]
struct WatcherInner {
    state: Mutex<WatcherState>,
    /// Read by whoever asks the kernel for a watch, until the registry knows it: many may at once, and
    /// nobody meanwhile tells of events or gives watches back. Locked before the state.
    add_lock: RwLock<()>,
    overflows: AtomicU64,
    fault_injector: FaultInjector,
}

#[derive(Debug, Default)]
struct WatcherState {
    /// `None` where there is no instance, or it died.
    watches: Option<Watches>,
    /// The same instance, from which watches are taken away by their numbers alone.
    instance: Option<OwnedFd>,
    /// `None` where the table cannot be had.
    mount_table: Option<MountTable>,
    registry: WatchRegistry,
    /// Barriers that wait for their own event, by watch descriptor.
    barriers: Vec<(i32, oneshot::Sender<()>)>,
}

/// One interest in one directory; given back when it is dropped.
#[derive(Debug)]
pub struct InotifyWatch {
    watcher: Arc<WatcherInner>,
    interest: InterestId,
}

impl InotifyWatcher {
    /// A watcher that has no instance yet.
    #[must_use]
    pub fn new() -> Self {
        Self::with_faults(FaultInjector::default())
    }

    /// A watcher that has no instance yet, and fails as it is ordered.
    #[doc(hidden)]
    #[must_use]
    pub fn with_faults(faults: FaultInjector) -> Self {
        let state = Mutex::new(WatcherState::default());
        let adding = RwLock::default();
        Self(Arc::new(WatcherInner {
            state,
            add_lock: adding,
            overflows: AtomicU64::new(0),
            fault_injector: faults,
        }))
    }

    /// Makes an instance where there is none, and reads its events on a task of its own until it
    /// dies. Must be called within the runtime.
    pub fn start(&self) -> io::Result<()> {
        let mut state = self.0.lock_state();
        if state.watches.is_some() {
            return Ok(());
        }
        let instance = Inotify::init()?;
        state.instance = Some(instance.as_fd().try_clone_to_owned()?);
        state.watches = Some(instance.watches());
        state.mount_table = MountTable::open()
            .inspect_err(|error| tracing::warn!(%error, "mounts are not watched"))
            .ok();
        // Ends when the instance fails; then everybody is told, and the next start makes another.
        tokio::spawn(Arc::clone(&self.0).run_event_loop(instance));
        Ok(())
    }

    /// Whether there is an instance.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.0.lock_state().watches.is_some()
    }

    /// How many directories, and files with other names, are watched.
    #[must_use]
    pub fn watch_count(&self) -> usize {
        self.0.lock_state().registry.len()
    }

    /// How many directories the daemon's user may watch, in all of its processes; 0 if not known.
    #[must_use]
    pub fn watch_limit(&self) -> u64 {
        let text = std::fs::read_to_string("/proc/sys/fs/inotify/max_user_watches");
        text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    }

    /// How often the kernel's queue overflowed.
    #[must_use]
    pub fn overflow_count(&self) -> u64 {
        self.0.overflows.load(Ordering::Relaxed)
    }

    /// Watches the directory behind a descriptor, not what is below it; with `only`, for what happens
    /// to the directory itself and to that entry. Events that came before are
    /// not told, so look at the directory after this, not before.
    pub fn watch_dir(
        &self,
        dir: BorrowedFd<'_>,
        listener: &Arc<dyn WatchListener>,
        token: u64,
        only: Option<&[u8]>,
    ) -> Result<InotifyWatch, WatchError> {
        self.add_watch(dir, DIR_MASK, listener, token, only)
    }

    /// Watches the file behind a descriptor. Changes through every name of the file are told. Read the
    /// file after this call, not before.
    pub fn watch_file(
        &self,
        file: BorrowedFd<'_>,
        listener: &Arc<dyn WatchListener>,
        token: u64,
    ) -> Result<InotifyWatch, WatchError> {
        self.add_watch(file, FILE_MASK, listener, token, None)
    }

    fn add_watch(
        &self,
        fd: BorrowedFd<'_>,
        mask: WatchMask,
        listener: &Arc<dyn WatchListener>,
        token: u64,
        only: Option<&[u8]>,
    ) -> Result<InotifyWatch, WatchError> {
        let _adding = self.0.add_lock.read().unwrap_or_else(PoisonError::into_inner);
        let mut watches =
            self.0.lock_state().watches.clone().ok_or(WatchError::NoInotifyInstance)?;
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let added = watches.add(path, mask).map_err(|e| match e.raw_os_error() {
            Some(code) if code == rustix::io::Errno::NOSPC.raw_os_error() => {
                WatchError::LimitReached
            }
            _ => WatchError::Rejected,
        })?;
        let added = added.get_watch_descriptor_id();
        let interest = self.0.lock_state().registry.add(added, listener.clone(), token, only);
        Ok(InotifyWatch { watcher: self.0.clone(), interest })
    }

    /// Tells everybody at which places something was mounted or taken away since this was asked last.
    /// Costs one system call where nothing was.
    pub fn report_mount_changes(&self) {
        self.0.lock_state().report_mount_changes();
    }

    /// Waits until every event that the kernel queued before this call was told, and tells of mounts
    /// at once. `false` where there is no instance to tell them.
    ///
    /// A watch on an anonymous file is added and taken away again: the kernel queues `IN_IGNORED`
    /// for it behind everything else, and nothing is written anywhere.
    pub async fn barrier(&self) -> bool {
        let Ok(file) = rustix::fs::memfd_create("barrier", rustix::fs::MemfdFlags::CLOEXEC) else {
            return false;
        };
        let told = {
            let mut state = self.0.lock_state();
            state.report_mount_changes();
            let Some(watches) = state.watches.as_mut() else { return false };
            let path = format!("/proc/self/fd/{}", file.as_raw_fd());
            let Ok(added) = watches.add(path, WatchMask::DELETE_SELF) else { return false };
            let id = added.get_watch_descriptor_id();
            if watches.remove(added).is_err() {
                return false;
            }
            let (tell, told) = oneshot::channel();
            state.barriers.push((id, tell));
            told
        };
        told.await.is_ok()
    }
}

impl Default for InotifyWatcher {
    fn default() -> Self {
        Self::new()
    }
}

impl WatcherInner {
    /// Waits until nobody is adding a watch, and holds up whoever would.
    fn block_adds(&self) -> RwLockWriteGuard<'_, ()> {
        self.add_lock.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_state(&self) -> MutexGuard<'_, WatcherState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WatcherState {
    /// Tells everybody where mounts changed. The lock is held meanwhile: whoever finds nothing left to
    /// tell knows that all is told.
    fn report_mount_changes(&mut self) {
        let Some(mounts) = &mut self.mount_table else { return };
        match mounts.take_changed_mount_points() {
            Ok(places) if places.is_empty() => {}
            Ok(places) => {
                for listener in self.registry.distinct_listeners() {
                    listener.on_mounts_changed(&places);
                }
            }
            Err(error) => {
                tracing::warn!(%error, "mounts are no longer watched");
                self.mount_table = None;
            }
        }
    }
}

impl Drop for InotifyWatch {
    fn drop(&mut self) {
        let _none_adding = self.watcher.block_adds();
        let mut state = self.watcher.lock_state();
        let Some(unwanted) = state.registry.remove(&self.interest) else { return };
        if let Some(instance) = &state.instance {
            // Fails where the kernel has dropped the watch already, with its directory.
            let _ = remove_watch(instance, unwanted);
        }
    }
}

#[cfg(test)]
mod tests;
