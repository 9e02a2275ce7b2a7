//! How long an answer waits for a search, and what it says of a root that takes longer.

use super::root_task_handle::InFlightWork;
use super::{ConsistencyLevel, DeadlineExceeded, RootState};
use crate::domain::RootReason;
use crate::watch::InotifyWatcher;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

/// The most that a first answer waits.
const MAX_FIRST_WAIT: Duration = Duration::from_secs(5);
/// The most that a fresh answer waits for a search that goes on, if its caller sets no deadline.
const MAX_FRESH_WAIT: Duration = Duration::from_mins(1);
/// Work in which nothing went on for so long is stuck.
const STUCK_AFTER: Duration = Duration::from_secs(2);

/// How long one call may wait.
#[derive(Debug, Clone, Copy)]
pub struct WaitBudget {
    /// For a root of which nothing is known, or that is stuck.
    short_deadline: Instant,
    /// For a root that must be fresh, and whose search goes on.
    long_deadline: Instant,
}

/// One search that is waited for.
pub(super) struct RequestedScan {
    pub(super) number: u64,
    pub(super) completed: watch::Receiver<u64>,
    /// What the root's work on the disk is, whichever search it is of.
    pub(super) in_flight: InFlightWork,
    /// Nothing is known of the root yet.
    pub(super) is_first: bool,
}

impl WaitBudget {
    /// From the time that the caller gives the call, if it does.
    #[must_use]
    pub fn new(timeout: Option<Duration>) -> Self {
        let now = Instant::now();
        // The rest of the deadline is for the answer.
        let most = timeout.map(|t| t.mul_f64(0.8));
        let short = most.map_or(MAX_FIRST_WAIT, |most| most.min(MAX_FIRST_WAIT));
        Self {
            short_deadline: now + short,
            long_deadline: now + most.unwrap_or(MAX_FRESH_WAIT).min(MAX_FRESH_WAIT),
        }
    }

    /// Waits until all that the kernel reported is known; `false` where there is nobody to tell.
    pub(super) async fn wait_for_watcher(&self, watcher: &InotifyWatcher) -> bool {
        timeout_at(self.short_deadline, watcher.barrier()).await.unwrap_or(false)
    }

    /// `Ok(None)` once the search is done; else what to say of the root.
    pub(super) async fn wait_for_scan(
        &self,
        mut search: RequestedScan,
        consistency: ConsistencyLevel,
    ) -> Result<Option<RootState>, DeadlineExceeded> {
        let mut until = self.short_deadline;
        if search.in_flight.age() >= MAX_FIRST_WAIT && search.in_flight.idle_time() >= STUCK_AFTER {
            // Known to be stuck: a further call need not wait for what it will be told anyway.
            until = Instant::now();
        }
        loop {
            let number = search.number;
            // The sender goes only with the root itself, which is then no longer known.
            match timeout_at(until, search.completed.wait_for(|done| *done >= number)).await {
                Ok(_) => return Ok(None),
                Err(_) if search.in_flight.idle_time() >= STUCK_AFTER => {
                    return Ok(Some(RootState::Unavailable(RootReason::Timeout)));
                }
                Err(_) if consistency == ConsistencyLevel::Cached || search.is_first => {
                    return Ok(Some(RootState::Pending));
                }
                Err(_) if Instant::now() >= self.long_deadline => return Err(DeadlineExceeded),
                Err(_) => until = self.long_deadline.min(Instant::now() + STUCK_AFTER),
            }
        }
    }
}
