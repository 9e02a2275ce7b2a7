//! State that the callers of a root share with the task of the root: requested scans, the waits
//! for them, reads and leases.

use super::root_task::{PendingChanges, ScanDemand};
use super::{ConsistencyLevel, DeadlineExceeded, RootState};
use crate::daemon::model::RootReason;
use crate::daemon::scan::ScanProgress;
use caproot_core::sync::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout_at};
use tokio_util::task::AbortOnDropHandle;

/// Longest wait for the first scan of a root.
const MAX_FIRST_WAIT: Duration = Duration::from_secs(5);
/// Longest wait for a fresh scan that makes progress, if the caller sets no deadline.
const MAX_FRESH_WAIT: Duration = Duration::from_mins(1);
/// Time without progress after which disk work counts as stuck.
const STUCK_AFTER: Duration = Duration::from_secs(2);

/// Requested scans, reads and leases of one root. Scans are numbered from 1.
#[derive(Debug)]
pub struct RootTaskHandle {
    /// Latest scan that a caller waits for.
    requested_scan: u64,
    /// Latest scan that started.
    pub started_scan: u64,
    /// First scan with the current policy. Earlier scans may show an earlier policy.
    first_current_scan: u64,
    /// Latest scan that ended. A watch channel holds only the latest value, so it is never full.
    completed_scan: watch::Sender<u64>,
    pub in_flight: InFlightWork,
    pub changes: Arc<PendingChanges>,
    pub last_used_at: Instant,
    /// Cloned into each [`super::RootLease`] of the root.
    pub lease_token: Arc<()>,
    /// One semaphore per root, so that a root on a filesystem that hangs blocks only its own reads.
    pub read_permits: Arc<Semaphore>,
    /// Runs until it ends or the handle is dropped.
    pub task: Option<AbortOnDropHandle<()>>,
}

/// Deadlines of the waits of one call.
#[derive(Debug, Clone, Copy)]
pub struct WaitBudget {
    /// For roots without a snapshot, and for stuck roots.
    pub(super) short_deadline: Instant,
    /// For fresh scans that make progress.
    long_deadline: Instant,
}

/// Scan that a call waits for.
pub struct RequestedScan {
    number: u64,
    completed: watch::Receiver<u64>,
    /// Disk work of the root, also of earlier scans.
    in_flight: InFlightWork,
    /// `None` if the caller waits until its deadline.
    fallback: Option<ScanFallback>,
}

/// State to report if a requested scan takes long.
enum ScanFallback {
    /// The first scan has not ended, or began before the call.
    Pending,
    /// The snapshot of the first scan, if it ended since the wait.
    FirstSnapshot,
    /// The snapshot that the root has.
    LatestSnapshot,
}

/// Progress of the disk work of one root. Cheap to clone; all clones share one state.
#[derive(Debug, Clone, Default)]
pub struct InFlightWork(Arc<Mutex<Option<Arc<ScanProgress>>>>);

impl RootTaskHandle {
    pub fn new(max_reads: usize) -> Self {
        Self {
            requested_scan: 0,
            started_scan: 0,
            first_current_scan: 1,
            completed_scan: watch::Sender::new(0),
            in_flight: InFlightWork::default(),
            changes: Arc::default(),
            last_used_at: Instant::now(),
            lease_token: Arc::default(),
            read_permits: Arc::new(Semaphore::new(max_reads)),
            task: None,
        }
    }

    pub fn is_leased(&self) -> bool {
        Arc::strong_count(&self.lease_token) > 1
    }

    /// Whether the root has no lease and was not used for longer than `timeout`.
    pub fn is_idle(&self, timeout: Duration) -> bool {
        !self.is_leased() && self.last_used_at.elapsed() > timeout
    }

    /// Makes the results of all earlier scans outdated, because the policy changed.
    pub fn require_scan_with_new_policy(&mut self) {
        self.first_current_scan = self.started_scan + 1;
        self.changes.require_full_rescan();
    }

    /// Whether a scan with the current policy has ended.
    pub fn has_current_result(&self) -> bool {
        *self.completed_scan.borrow() >= self.first_current_scan
    }

    /// Requests a scan and wakes the task of the root. `is_first`: the root has no snapshot yet.
    pub fn request_scan(&mut self, consistency: ConsistencyLevel, is_first: bool) -> RequestedScan {
        let number = if consistency == ConsistencyLevel::Cached && self.is_scanning() {
            self.started_scan.max(self.first_current_scan)
        } else {
            // The scan in flight may have passed the changed directory already.
            self.started_scan + 1
        };

        self.requested_scan = self.requested_scan.max(number);
        self.changes.notify_root_task();
        let completed = self.completed_scan.subscribe();

        let fallback = match consistency {
            ConsistencyLevel::Cached if is_first => Some(ScanFallback::FirstSnapshot),
            ConsistencyLevel::Cached => Some(ScanFallback::LatestSnapshot),
            ConsistencyLevel::Fresh if is_first => Some(ScanFallback::Pending),
            ConsistencyLevel::Fresh => None,
        };

        RequestedScan {
            number,
            completed,
            in_flight: self.in_flight.clone(),
            fallback,
        }
    }

    /// Returns the demand for the next scan.
    pub fn scan_demand(&self) -> ScanDemand {
        if self.requested_scan > self.started_scan {
            ScanDemand::Requested
        } else if self.requested_scan > *self.completed_scan.borrow() {
            ScanDemand::Awaited
        } else {
            ScanDemand::None
        }
    }

    /// Marks the scan that started last as completed.
    pub fn complete_scan(&self) {
        self.completed_scan.send_replace(self.started_scan);
    }

    pub fn is_scanning(&self) -> bool {
        self.started_scan > *self.completed_scan.borrow()
    }
}

impl Drop for RootTaskHandle {
    fn drop(&mut self) {
        // The root was removed, so that the result of a scan in flight would be discarded.
        self.in_flight.cancel();
    }
}

impl InFlightWork {
    pub fn start(&self) -> Arc<ScanProgress> {
        let progress = ScanProgress::starting_at(Instant::now().into_std());
        self.0.lock().insert(Arc::new(progress)).clone()
    }

    /// Ends the work soon, because its result is not needed.
    pub fn cancel(&self) {
        if let Some(progress) = self.progress() {
            progress.cancel();
        }
    }

    fn progress(&self) -> Option<Arc<ScanProgress>> {
        self.0.lock().clone()
    }

    /// Returns the reason why the work makes no progress.
    fn stuck_reason(&self) -> RootReason {
        let slow_file = self.progress().and_then(|progress| progress.slow_file());
        slow_file.map_or(RootReason::Timeout, |_| RootReason::ParseTimeout)
    }

    pub fn finish(&self) {
        *self.0.lock() = None;
    }

    /// How long ago the work started; zero if no work is in flight.
    fn age(&self) -> Duration {
        let progress = self.progress();
        progress.map_or(Duration::ZERO, |progress| progress.age())
    }

    /// How long the work made no progress; zero if no work is in flight.
    fn idle_time(&self) -> Duration {
        let progress = self.progress();
        progress.map_or(Duration::ZERO, |progress| progress.measure_idle_time())
    }
}

impl WaitBudget {
    /// Returns a budget within the timeout that the caller set.
    #[must_use]
    pub fn new(timeout: Option<Duration>) -> Self {
        let now = Instant::now();
        // The rest of the timeout is for the response.
        let most = timeout.map(|t| t.mul_f64(0.8));
        let short = most.map_or(MAX_FIRST_WAIT, |most| most.min(MAX_FIRST_WAIT));
        Self {
            short_deadline: now + short,
            long_deadline: now + most.unwrap_or(MAX_FRESH_WAIT).min(MAX_FRESH_WAIT),
        }
    }

    /// Waits for a scan. Returns `None` if the latest snapshot, or that there is none, is to be
    /// reported, else the state of the root.
    pub(super) async fn wait_for_scan(
        &self,
        mut scan: RequestedScan,
    ) -> Result<Option<RootState>, DeadlineExceeded> {
        let mut until = self.short_deadline;

        // Earlier calls waited long enough to know that the root is stuck.
        let has_waited = scan.in_flight.age() >= MAX_FIRST_WAIT
            || matches!(scan.fallback, Some(ScanFallback::LatestSnapshot));
        if has_waited && scan.in_flight.idle_time() >= STUCK_AFTER {
            until = Instant::now();
        }

        loop {
            let number = scan.number;
            // The channel closes when the root is evicted; the root then has no snapshot.
            match timeout_at(until, scan.completed.wait_for(|done| *done >= number)).await {
                Ok(_) => return Ok(None),
                Err(_) if scan.in_flight.idle_time() >= STUCK_AFTER => {
                    return Ok(Some(RootState::Unavailable(scan.in_flight.stuck_reason())));
                }
                Err(_) => {}
            }

            match scan.fallback {
                Some(ScanFallback::Pending) => return Ok(Some(RootState::Pending)),
                Some(ScanFallback::FirstSnapshot | ScanFallback::LatestSnapshot) => {
                    return Ok(None);
                }
                None if Instant::now() >= self.long_deadline => return Err(DeadlineExceeded),
                None => until = self.long_deadline.min(Instant::now() + STUCK_AFTER),
            }
        }
    }
}
