//! The searches and reads of one root, as they stand.

use super::pending_changes::PendingChanges;
use super::state::RootKey;
use crate::disk::ScanProgress;
use crate::domain::RootReason;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

/// The searches and reads of one root.
#[derive(Debug)]
pub(super) struct RootTaskHandle {
    /// Searches are counted from 1. The latest that somebody waits for.
    pub(super) requested_scan: u64,
    /// The latest that began.
    pub(super) started_scan: u64,
    /// The latest that ended. A watch holds only the latest, so it is never full.
    pub(super) completed_scan: watch::Sender<u64>,
    /// What is done on the disk just now.
    pub(super) in_flight: InFlightWork,
    /// Where the watcher and all who want a search ring.
    pub(super) changes: Arc<PendingChanges>,
    /// When somebody last asked.
    pub(super) last_used_at: Instant,
    /// Held by every stream that shows the root.
    pub(super) lease_token: Arc<()>,
    /// Reads of this root at once; further ones wait here, and a root that hangs holds up only its
    /// own.
    pub(super) read_permits: Arc<Semaphore>,
}

impl RootTaskHandle {
    pub(super) fn new(max_reads_per_root: usize) -> Self {
        Self {
            requested_scan: 0,
            started_scan: 0,
            completed_scan: watch::Sender::new(0),
            in_flight: InFlightWork::default(),
            changes: Arc::default(),
            last_used_at: Instant::now(),
            lease_token: Arc::default(),
            read_permits: Arc::new(Semaphore::new(max_reads_per_root)),
        }
    }

    pub(super) fn is_scanning(&self) -> bool {
        self.started_scan > *self.completed_scan.borrow()
    }

    pub(super) fn is_leased(&self) -> bool {
        Arc::strong_count(&self.lease_token) > 1
    }
}

/// The work of one root on the disk that is under way, if any is. Cheap to clone; all clones are one.
#[derive(Debug, Clone, Default)]
pub(super) struct InFlightWork(Arc<Mutex<Option<Arc<ScanProgress>>>>);

impl InFlightWork {
    pub(super) fn start(&self) -> Arc<ScanProgress> {
        self.lock().insert(Arc::default()).clone()
    }

    pub(super) fn finish(&self) {
        *self.lock() = None;
    }

    /// How long ago it began; zero where there is none.
    pub(super) fn age(&self) -> Duration {
        self.lock().as_ref().map_or(Duration::ZERO, |progress| progress.age())
    }

    /// How long nothing has gone on in it; zero where there is none.
    pub(super) fn idle_time(&self) -> Duration {
        self.lock().as_ref().map_or(Duration::ZERO, |progress| progress.idle_time())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<ScanProgress>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Roots are looked after while it is held.
#[derive(Debug)]
pub struct RootLease {
    pub(super) _lease_tokens: Vec<Arc<()>>,
    /// Of those that were selected.
    pub(super) keys: Vec<Result<RootKey, RootReason>>,
}
