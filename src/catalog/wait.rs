//! How long an answer waits for a search, and what it says of a root that takes longer.

use super::work::UnderWay;
use super::{Consistency, Late, RootState};
use crate::domain::Reason;
use crate::watch::Watcher;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

/// The most that a first answer waits.
const FIRST_WAIT: Duration = Duration::from_secs(5);
/// The most that a fresh answer waits for a search that goes on, if its caller sets no deadline.
const FRESH_WAIT: Duration = Duration::from_mins(1);
/// Work in which nothing went on for so long is stuck.
const STUCK: Duration = Duration::from_secs(2);

/// How long one call may wait.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// For a root of which nothing is known, or that is stuck.
    short: Instant,
    /// For a root that must be fresh, and whose search goes on.
    long: Instant,
}

/// One search that is waited for.
pub(super) struct Search {
    pub(super) number: u64,
    pub(super) done: watch::Receiver<u64>,
    /// What the root's work on the disk is, whichever search it is of.
    pub(super) under_way: UnderWay,
    /// Nothing is known of the root yet.
    pub(super) first: bool,
}

impl Patience {
    /// From the time that the caller gives the call, if it does.
    #[must_use]
    pub fn new(timeout: Option<Duration>) -> Self {
        let now = Instant::now();
        // The rest of the deadline is for the answer.
        let most = timeout.map(|t| t.mul_f64(0.8));
        let short = most.map_or(FIRST_WAIT, |most| most.min(FIRST_WAIT));
        Self { short: now + short, long: now + most.unwrap_or(FRESH_WAIT).min(FRESH_WAIT) }
    }

    /// Waits until all that the kernel reported is known; `false` where there is nobody to tell.
    pub(super) async fn barrier(&self, watcher: &Watcher) -> bool {
        timeout_at(self.short, watcher.barrier()).await.unwrap_or(false)
    }

    /// `Ok(None)` once the search is done; else what to say of the root.
    pub(super) async fn wait(
        &self,
        mut search: Search,
        consistency: Consistency,
    ) -> Result<Option<RootState>, Late> {
        let mut until = self.short;
        if search.under_way.age() >= FIRST_WAIT && search.under_way.quiet() >= STUCK {
            // Known to be stuck: a further call need not wait for what it will be told anyway.
            until = Instant::now();
        }
        loop {
            let number = search.number;
            // The sender goes only with the root itself, which is then no longer known.
            match timeout_at(until, search.done.wait_for(|done| *done >= number)).await {
                Ok(_) => return Ok(None),
                Err(_) if search.under_way.quiet() >= STUCK => {
                    return Ok(Some(RootState::Unavailable(Reason::Timeout)));
                }
                Err(_) if consistency == Consistency::Cached || search.first => {
                    return Ok(Some(RootState::Pending));
                }
                Err(_) if Instant::now() >= self.long => return Err(Late),
                Err(_) => until = self.long.min(Instant::now() + STUCK),
            }
        }
    }
}
