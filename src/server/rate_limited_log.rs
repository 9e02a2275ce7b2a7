//! Keeps what happens often from filling the log.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Between two lines of one kind.
const MIN_INTERVAL: Duration = Duration::from_secs(10);

/// What is told at most once in a while.
#[derive(Debug, Default)]
pub(super) struct RateLimitedLog(Mutex<LogInterval>);

#[derive(Debug, Default)]
struct LogInterval {
    last: Option<Instant>,
    event_count: u64,
}

impl RateLimitedLog {
    /// Counts one more; how many there were since the last line, when it is time for the next one.
    pub(super) fn record_event(&self) -> Option<u64> {
        self.record_event_at(Instant::now())
    }

    fn record_event_at(&self, now: Instant) -> Option<u64> {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.event_count += 1;
        if told.last.is_some_and(|last| now.saturating_duration_since(last) < MIN_INTERVAL) {
            return None;
        }
        told.last = Some(now);
        Some(std::mem::take(&mut told.event_count))
    }
}

#[cfg(test)]
mod tests {
    use super::{MIN_INTERVAL, RateLimitedLog};
    use std::time::Instant;

    #[test]
    fn what_is_not_told_is_counted() {
        let (seldom, begin) = (RateLimitedLog::default(), Instant::now());
        assert_eq!(seldom.record_event_at(begin), Some(1));
        assert_eq!(seldom.record_event_at(begin + MIN_INTERVAL / 2), None);
        assert_eq!(seldom.record_event_at(begin + MIN_INTERVAL / 2), None);
        assert_eq!(seldom.record_event_at(begin + MIN_INTERVAL), Some(3));
    }
}
