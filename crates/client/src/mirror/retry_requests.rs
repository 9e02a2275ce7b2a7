//! Requests to end the delay of a mirror early, because a new user needs its catalog.

use caproot_core::sync::Mutex;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// Shortest time between two early retries of one mirror.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// Requests of the users of one mirror.
#[derive(Debug, Default)]
pub struct RetryRequests {
    requested: Notify,
    /// Time of the last early retry.
    last_retry_at: Mutex<Option<Instant>>,
}

impl RetryRequests {
    /// Ends the current delay of the mirror, if there is one. Returns whether the mirror retries at
    /// once. Otherwise the last early retry was a moment ago.
    pub fn request_retry(&self) -> bool {
        self.requested.notify_waiters();
        self.next_retry_at() <= Instant::now()
    }

    /// Waits for a request, and until the next early retry is allowed. A request before this call
    /// does not count. Cancel-safe.
    pub async fn wait_for_request(&self) {
        self.requested.notified().await;
        sleep_until(self.next_retry_at()).await;
        *self.last_retry_at.lock() = Some(Instant::now());
    }

    fn next_retry_at(&self) -> Instant {
        let last_retry_at = *self.last_retry_at.lock();
        last_retry_at.map_or_else(Instant::now, |last| last + MIN_INTERVAL)
    }
}
