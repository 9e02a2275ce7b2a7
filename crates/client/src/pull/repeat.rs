//! Further attempts after a package or a directory changed.

use super::PullError;
use caproot_core::backoff::Backoff;
use std::time::Duration;

/// How often a pull starts if the package or the directory changes in the meantime.
pub const MAX_ATTEMPTS: u32 = 5;
/// Delays before further attempts, in which the package may settle.
const FIRST_DELAY: Duration = Duration::from_millis(100);
const LONGEST_DELAY: Duration = Duration::from_millis(400);

/// Attempts of one pull.
pub struct PullAttempts {
    backoff: Backoff,
    done: u32,
}

impl PullAttempts {
    pub fn new() -> Self {
        Self {
            backoff: Backoff::new(FIRST_DELAY, LONGEST_DELAY),
            done: 0,
        }
    }

    /// Returns the outcome of an attempt if it is the last one. After a change, waits and returns `None`,
    /// at most four times.
    pub async fn finish<T>(
        &mut self,
        outcome: Result<T, PullError>,
    ) -> Option<Result<T, PullError>> {
        self.done += 1;
        let is_retried = matches!(&outcome, Err(error) if error.is_concurrent_change());
        if !is_retried || self.done == MAX_ATTEMPTS {
            return Some(outcome);
        }
        drop(outcome);
        tokio::time::sleep(self.backoff.next_limit()).await;
        None
    }
}
