//! How long a call waits for scans, and the state of a root whose scan takes longer.

use super::{ConsistencyLevel, DeadlineExceeded, RootState};
use crate::model::RootReason;
use crate::scan::ScanProgress;
use crate::watch::InotifyWatcher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

/// Longest wait for the first scan of a root.
const MAX_FIRST_WAIT: Duration = Duration::from_secs(5);
/// Longest wait for a fresh scan that makes progress, if the caller sets no deadline.
const MAX_FRESH_WAIT: Duration = Duration::from_mins(1);
/// Time without progress after which disk work counts as stuck.
const STUCK_AFTER: Duration = Duration::from_secs(2);

/// Deadlines of the waits of one call.
#[derive(Debug, Clone, Copy)]
pub struct WaitBudget {
    /// For roots without a snapshot, and for stuck roots.
    short_deadline: Instant,
    /// For fresh scans that make progress.
    long_deadline: Instant,
}

/// Scan that a call waits for.
pub struct RequestedScan {
    number: u64,
    completed: watch::Receiver<u64>,
    /// Disk work of the root, also of earlier scans.
    in_flight: InFlightWork,
    /// Whether the root has no snapshot yet.
    is_first: bool,
}

/// Progress of the disk work of one root. Cheap to clone; all clones share one state.
#[derive(Debug, Clone, Default)]
pub struct InFlightWork(Arc<Mutex<Option<Arc<ScanProgress>>>>);

impl InFlightWork {
    pub fn start(&self) -> Arc<ScanProgress> {
        self.lock().insert(Arc::default()).clone()
    }

    pub fn finish(&self) {
        *self.lock() = None;
    }

    /// How long ago the work started; zero if no work is in flight.
    fn age(&self) -> Duration {
        self.lock().as_ref().map_or(Duration::ZERO, |progress| progress.age())
    }

    /// How long the work made no progress; zero if no work is in flight.
    fn idle_time(&self) -> Duration {
        self.lock().as_ref().map_or(Duration::ZERO, |progress| progress.idle_time())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<ScanProgress>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RequestedScan {
    pub fn new(
        number: u64,
        completed: watch::Receiver<u64>,
        in_flight: InFlightWork,
        is_first: bool,
    ) -> Self {
        Self { number, completed, in_flight, is_first }
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

    /// Waits until the watcher has reported all events that the kernel queued. Returns `false` if
    /// inotify is not available or the wait takes too long.
    pub(super) async fn wait_for_watcher(&self, watcher: &InotifyWatcher) -> bool {
        timeout_at(self.short_deadline, watcher.barrier()).await.unwrap_or(false)
    }

    /// Waits for a scan. Returns `None` after the scan, else the state to report for the root.
    pub(super) async fn wait_for_scan(
        &self,
        mut scan: RequestedScan,
        consistency: ConsistencyLevel,
    ) -> Result<Option<RootState>, DeadlineExceeded> {
        let mut until = self.short_deadline;
        if scan.in_flight.age() >= MAX_FIRST_WAIT && scan.in_flight.idle_time() >= STUCK_AFTER {
            // Earlier calls waited long enough to know that the root is stuck.
            until = Instant::now();
        }
        loop {
            let number = scan.number;
            // The channel closes when the root is evicted; the root then has no snapshot.
            match timeout_at(until, scan.completed.wait_for(|done| *done >= number)).await {
                Ok(_) => return Ok(None),
                Err(_) if scan.in_flight.idle_time() >= STUCK_AFTER => {
                    return Ok(Some(RootState::Unavailable(RootReason::Timeout)));
                }
                Err(_) if consistency == ConsistencyLevel::Cached || scan.is_first => {
                    return Ok(Some(RootState::Pending));
                }
                Err(_) if Instant::now() >= self.long_deadline => return Err(DeadlineExceeded),
                Err(_) => until = self.long_deadline.min(Instant::now() + STUCK_AFTER),
            }
        }
    }
}
