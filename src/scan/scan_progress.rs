//! Progress of a scan, to tell a long scan from a stuck scan.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Time and number of the steps of a scan.
#[derive(Debug)]
pub struct ScanProgress {
    started_at: Instant,
    last_tick_ms: AtomicU64,
    ticks: AtomicU64,
}

impl ScanProgress {
    /// Starts with the current time.
    #[must_use]
    pub fn new() -> Self {
        Self {
            started_at: Instant::now(),
            last_tick_ms: AtomicU64::new(0),
            ticks: AtomicU64::new(0),
        }
    }

    pub(super) fn tick(&self) {
        let ms = u64::try_from(self.started_at.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_tick_ms.fetch_max(ms, Ordering::Relaxed);
        self.ticks.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of directories that were listed.
    #[must_use]
    pub fn dirs_visited(&self) -> u64 {
        self.ticks.load(Ordering::Relaxed)
    }

    /// Time since the start of the scan.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.started_at.elapsed()
    }

    /// Time since the last step.
    #[must_use]
    pub fn idle_time(&self) -> Duration {
        let last = Duration::from_millis(self.last_tick_ms.load(Ordering::Relaxed));
        self.started_at.elapsed().saturating_sub(last)
    }
}

impl Default for ScanProgress {
    fn default() -> Self {
        Self::new()
    }
}
