//! State that the callers of a root share with the task of the root.

use super::ConsistencyLevel;
use super::pending_changes::PendingChanges;
use super::wait_budget::{InFlightWork, RequestedScan};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

/// Requested scans, reads and leases of one root. Scans are numbered from 1.
#[derive(Debug)]
pub struct RootTaskHandle {
    /// Latest scan that a caller waits for.
    requested_scan: u64,
    /// Latest scan that started.
    started_scan: u64,
    /// Latest scan that ended. A watch channel holds only the latest value, so it is never full.
    completed_scan: watch::Sender<u64>,
    in_flight: InFlightWork,
    changes: Arc<PendingChanges>,
    last_used_at: Instant,
    /// Cloned into each [`super::RootLease`] of the root.
    lease_token: Arc<()>,
    /// One semaphore per root, so that a root on a filesystem that hangs blocks only its own reads.
    read_permits: Arc<Semaphore>,
}

impl RootTaskHandle {
    pub fn new(max_reads: usize) -> Self {
        Self {
            requested_scan: 0,
            started_scan: 0,
            completed_scan: watch::Sender::new(0),
            in_flight: InFlightWork::default(),
            changes: Arc::default(),
            last_used_at: Instant::now(),
            lease_token: Arc::default(),
            read_permits: Arc::new(Semaphore::new(max_reads)),
        }
    }

    pub fn changes(&self) -> &Arc<PendingChanges> {
        &self.changes
    }

    pub fn in_flight(&self) -> &InFlightWork {
        &self.in_flight
    }

    pub fn read_permits(&self) -> Arc<Semaphore> {
        self.read_permits.clone()
    }

    /// Replaces the semaphore of reads. Reads in flight do not count against the new semaphore.
    pub fn set_max_reads(&mut self, max_reads: usize) {
        self.read_permits = Arc::new(Semaphore::new(max_reads));
    }

    pub fn lease(&self) -> Arc<()> {
        self.lease_token.clone()
    }

    pub fn is_leased(&self) -> bool {
        Arc::strong_count(&self.lease_token) > 1
    }

    pub fn touch(&mut self) {
        self.last_used_at = Instant::now();
    }

    /// Whether the root has no lease and was not used for longer than `timeout`.
    pub fn is_idle(&self, timeout: Duration) -> bool {
        !self.is_leased() && self.last_used_at.elapsed() > timeout
    }

    /// Requests a scan and wakes the task of the root.
    pub fn request_scan(&mut self, consistency: ConsistencyLevel, is_first: bool) -> RequestedScan {
        let number = match consistency {
            ConsistencyLevel::Cached if self.is_scanning() => self.started_scan,
            // The scan in flight may have passed the changed directory already.
            ConsistencyLevel::Cached | ConsistencyLevel::Fresh => self.started_scan + 1,
        };
        self.requested_scan = self.requested_scan.max(number);
        self.changes.notify_root_task();
        let completed = self.completed_scan.subscribe();
        RequestedScan::new(number, completed, self.in_flight.clone(), is_first)
    }

    /// Whether a caller waits for a scan that has not started.
    pub fn has_requested_scan(&self) -> bool {
        self.requested_scan > self.started_scan
    }

    pub fn start_scan(&mut self) {
        self.started_scan += 1;
    }

    /// Marks the scan that started last as completed.
    pub fn complete_scan(&self) {
        self.completed_scan.send_replace(self.started_scan);
    }

    pub fn is_scanning(&self) -> bool {
        self.started_scan > *self.completed_scan.borrow()
    }
}
