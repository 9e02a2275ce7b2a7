//! Limits of a fleet's dials, so that the executors of a platform are not all dialled at once after
//! an outage.

use caproot_core::net::dial_rate::DialRate;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};

/// Limits of the dials of a fleet. Further dials wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DialLimits {
    /// Maximum number of dials in progress; 64 by default.
    pub dials_at_once: usize,
    /// Maximum number of dials that start within a second; 100 by default.
    pub dials_per_second: u64,
}

impl Default for DialLimits {
    fn default() -> Self {
        Self {
            dials_at_once: 64,
            dials_per_second: 100,
        }
    }
}

/// Queue of a fleet's dials.
#[derive(Debug)]
pub struct DialQueue {
    permits: Arc<Semaphore>,
    rate: Mutex<DialRate>,
    /// Number of dials that wait.
    pub waiting: Arc<AtomicUsize>,
    /// Number of dials in progress.
    pub in_progress: Arc<AtomicUsize>,
}

/// Right to dial. Dropping it ends the dial.
#[derive(Debug)]
pub struct DialPermit {
    _permit: OwnedSemaphorePermit,
    _in_progress: CountGuard,
}

/// Adds one to a count until it is dropped.
#[derive(Debug)]
struct CountGuard(Arc<AtomicUsize>);

impl DialQueue {
    /// Creates a queue. Limits of zero count as one.
    pub fn new(limits: DialLimits) -> Self {
        let at_once = limits.dials_at_once.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            permits: Arc::new(Semaphore::new(at_once)),
            rate: Mutex::new(DialRate::new(limits.dials_per_second)),
            waiting: Arc::default(),
            in_progress: Arc::default(),
        }
    }

    /// Waits for the turn of a dial. Dials start in the order of these calls.
    pub async fn wait_for_turn(&self) -> DialPermit {
        let waiting = CountGuard::new(&self.waiting);
        // The permit comes first, so that a dial starts in the second that the rate limit counts.
        let permit = self
            .permits
            .clone()
            .acquire_owned()
            .await
            .expect("the semaphore is never closed");
        self.rate.lock().await.wait_for_start().await;
        drop(waiting);
        DialPermit {
            _permit: permit,
            _in_progress: CountGuard::new(&self.in_progress),
        }
    }
}

impl CountGuard {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count.clone())
    }
}

impl Drop for CountGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
