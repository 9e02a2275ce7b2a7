//! Snapshots of roots, and views: the states of selected roots at one revision.

use crate::daemon::model::{AccessScope, Catalog, RootReason, SelectedRoot};
use caproot_core::wire::RootId;
use std::sync::Arc;

/// Required freshness of a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConsistencyLevel {
    /// The latest snapshot, if the root has a snapshot.
    Cached,
    /// A snapshot of a scan that started after the call.
    Fresh,
}

/// The wait budget ended before the scan of a root that makes progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeadlineExceeded;

/// Roots that a caller selected. Every query of the store is about the directories of its caller
/// only.
#[derive(Debug, Clone)]
pub struct ScopedSelection {
    /// Directories that the caller may use.
    pub access_scope: Arc<AccessScope>,
    /// Selected roots, each with its own id.
    pub roots: Vec<SelectedRoot>,
}

/// States of all selected roots at one revision.
#[derive(Debug, Clone)]
pub struct CatalogView {
    /// Revision of the states.
    pub revision: u64,
    /// States in the order of the selection.
    pub roots: Vec<RootView>,
}

/// State of one selected root.
#[derive(Debug, Clone)]
pub struct RootView {
    /// Id in the selection.
    pub id: RootId,
    /// State at the revision of the view.
    pub state: RootState,
    /// Ids of the published roots that the caller may select. Empty unless the selected path has the
    /// name of none of them.
    pub published_ids: Vec<RootId>,
}

/// State of a root.
#[derive(Debug, Clone)]
pub enum RootState {
    /// The root was scanned.
    Snapshot(RootSnapshot),
    /// The first scan has not ended.
    Pending,
    /// The root cannot be used and is not watched.
    Unavailable(RootReason),
}

/// Result of the latest scan of a root.
#[derive(Debug, Clone)]
pub struct RootSnapshot {
    /// Catalog, or the reason why the root cannot be used.
    pub catalog: Result<Arc<Catalog>, RootReason>,
    /// Mechanism by which the daemon notices changes.
    pub watch_mode: WatchMode,
}

/// Mechanism by which the daemon notices changes of a root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchMode {
    /// By inotify events.
    Events,
    /// By full scans at a short interval.
    Polling(PollReason),
}

/// Reason why a root is polled. Displays the cause and its fix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PollReason {
    /// The daemon's user reached the limit of inotify watches.
    #[error("the limit of inotify watches is reached; raise fs.inotify.max_user_watches")]
    WatchLimit,
    /// The kernel provides no inotify instance.
    #[error(
        "no inotify instance is available; raise fs.inotify.max_user_instances, or the daemon's limit \
         of open files"
    )]
    NoInotifyInstance,
    /// The kernel rejected the watch of a directory.
    #[error(
        "the kernel rejected an inotify watch of a directory; give the daemon's user permission to read \
         it"
    )]
    WatchRejected,
    /// The filesystem of this type reports no changes of other machines.
    #[error(
        "inotify does not report changes by others on {0}; move the root to a local filesystem for \
         faster updates"
    )]
    NoInotifySupport(&'static str),
    /// Full scans found changes that no event announced.
    #[error(
        "files change without an inotify event; move the root to a local filesystem for faster updates"
    )]
    UnannouncedChanges,
}

impl RootState {
    /// Returns the catalog if the root is ready.
    #[must_use]
    pub fn catalog(&self) -> Option<&Arc<Catalog>> {
        match self {
            Self::Snapshot(snapshot) => snapshot.catalog.as_ref().ok(),
            Self::Pending | Self::Unavailable(_) => None,
        }
    }

    /// Returns the reason if the root cannot be used.
    #[must_use]
    pub fn reason(&self) -> Option<RootReason> {
        match self {
            Self::Snapshot(snapshot) => snapshot.catalog.as_ref().err().copied(),
            Self::Pending => None,
            Self::Unavailable(reason) => Some(*reason),
        }
    }

    /// Whether both states have the identical catalog, not only an equal catalog.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Snapshot(a), Self::Snapshot(b)) => a.is_same(b),
            (Self::Pending, Self::Pending) => true,
            (Self::Unavailable(a), Self::Unavailable(b)) => a == b,
            _ => false,
        }
    }
}

impl RootSnapshot {
    /// Whether both snapshots have the identical catalog. A rescan keeps the old
    /// catalog if the new catalog is equivalent.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.catalog.as_ref().map(Arc::as_ptr) == other.catalog.as_ref().map(Arc::as_ptr)
            && self.watch_mode == other.watch_mode
    }
}
