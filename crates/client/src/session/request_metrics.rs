//! Counters and durations of the requests that a source sends to its daemon or server.

use caproot_core::sync::Mutex;
use serde::Serialize;
use std::time::Instant;

/// Upper bounds of the duration histogram, in seconds; one more bucket has no bound.
pub const DURATION_BUCKETS: [f64; 8] = [0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0];

/// Counters of the requests that a source sent: reads of files, and for an MCP server also
/// connections and lists.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "handlers", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RequestMetrics {
    /// Number of requests.
    pub requests: u64,
    /// Number of requests that ended with an error or were abandoned.
    pub failures: u64,
    /// Total duration.
    pub seconds: f64,
    /// Cumulative counts for each bound of [`DURATION_BUCKETS`], and the count of all requests.
    pub buckets: [u64; DURATION_BUCKETS.len() + 1],
}

/// Counter of the requests of one source.
#[derive(Debug, Default)]
pub struct RequestCounter(Mutex<RequestMetrics>);

/// Request in flight. Counted on drop.
struct RequestGuard<'a> {
    counter: &'a RequestCounter,
    started_at: Instant,
    has_failed: bool,
}

impl RequestCounter {
    /// Counts a request when it ends or is dropped.
    pub async fn count<T, E>(&self, request: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        let started_at = Instant::now();
        let mut guard = RequestGuard {
            counter: self,
            started_at,
            has_failed: true,
        };
        let outcome = request.await;
        guard.has_failed = outcome.is_err();
        outcome
    }

    pub fn snapshot(&self) -> RequestMetrics {
        *self.0.lock()
    }
}

impl Drop for RequestGuard<'_> {
    fn drop(&mut self) {
        let seconds = self.started_at.elapsed().as_secs_f64();
        let mut totals = self.counter.0.lock();
        totals.requests += 1;
        totals.failures += u64::from(self.has_failed);
        totals.seconds += seconds;
        record_duration(&mut totals.buckets, seconds);
    }
}

/// Adds a duration to cumulative buckets.
pub fn record_duration(buckets: &mut [u64; DURATION_BUCKETS.len() + 1], seconds: f64) {
    for (bucket, bound) in buckets.iter_mut().zip(DURATION_BUCKETS) {
        *bucket += u64::from(seconds <= bound);
    }
    buckets[DURATION_BUCKETS.len()] += 1;
}
