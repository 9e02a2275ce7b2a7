//! Rate limit of log messages, so that frequent events do not fill the log.

use caproot_core::sync::Mutex;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::Instant;

/// Default interval.
const DEFAULT_INTERVAL: Duration = Duration::from_secs(10);

/// Rate limit of one kind of log message within any interval. An event with a key is logged once
/// within the interval for each key.
#[derive(Debug)]
pub struct RateLimitedLog<K = ()> {
    interval: Duration,
    max_messages: usize,
    recent: Mutex<RecentMessages<K>>,
}

#[derive(Debug)]
struct RecentMessages<K> {
    /// Messages of the last interval, oldest first.
    messages: VecDeque<(Instant, Option<K>)>,
    suppressed: u64,
}

impl<K: PartialEq> Default for RateLimitedLog<K> {
    /// Creates a limit of one message within 10 s.
    fn default() -> Self {
        Self::new(DEFAULT_INTERVAL, 1)
    }
}

impl<K: PartialEq> RateLimitedLog<K> {
    /// Creates a limit of messages within an interval.
    #[must_use]
    pub fn new(interval: Duration, max_messages: usize) -> Self {
        let recent = RecentMessages {
            messages: VecDeque::new(),
            suppressed: 0,
        };
        Self {
            interval,
            max_messages,
            recent: Mutex::new(recent),
        }
    }

    /// Records an event. If a message may be logged now, returns the number of events that were
    /// suppressed before. Otherwise returns `Err` with the number of suppressed events.
    pub fn record_event(&self) -> Result<u64, u64> {
        self.record_event_at(Instant::now(), None)
    }

    /// Records an event as [`Self::record_event`] does, with a key.
    pub fn record_keyed_event(&self, key: K) -> Result<u64, u64> {
        self.record_event_at(Instant::now(), Some(key))
    }

    fn record_event_at(&self, now: Instant, key: Option<K>) -> Result<u64, u64> {
        let mut recent = self.recent.lock();
        let is_old = |at: Instant| now.saturating_duration_since(at) >= self.interval;
        while recent.messages.front().is_some_and(|(at, _)| is_old(*at)) {
            recent.messages.pop_front();
        }
        let is_known = key.is_some() && recent.messages.iter().any(|(_, known)| *known == key);
        if is_known || recent.messages.len() >= self.max_messages {
            recent.suppressed += 1;
            return Err(recent.suppressed);
        }
        recent.messages.push_back((now, key));
        Ok(std::mem::take(&mut recent.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::{DEFAULT_INTERVAL as INTERVAL, RateLimitedLog};
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::time::Duration;
    use tokio::time::Instant;

    #[test]
    fn suppressed_events_are_counted() {
        let (log, start) = (RateLimitedLog::<()>::default(), Instant::now());
        assert_eq!(log.record_event_at(start, None), Ok(0));
        assert_eq!(log.record_event_at(start + INTERVAL / 2, None), Err(1));
        assert_eq!(log.record_event_at(start + INTERVAL / 2, None), Err(2));
        assert_eq!(log.record_event_at(start + INTERVAL, None), Ok(2));
        assert_eq!(log.record_event_at(start + INTERVAL, None), Err(1));
        assert_eq!(log.recent.lock().suppressed, 1);
    }

    #[test]
    fn a_repeated_key_gets_one_message() {
        let (log, start) = (RateLimitedLog::new(INTERVAL, 10), Instant::now());
        assert_eq!(log.record_event_at(start, Some("a")), Ok(0));
        assert_eq!(log.record_event_at(start + INTERVAL / 2, Some("a")), Err(1));
        assert_eq!(log.record_event_at(start + INTERVAL / 2, Some("b")), Ok(1));
        assert_eq!(log.record_event_at(start + INTERVAL, Some("a")), Ok(0));
        assert_eq!(log.record_event_at(start + INTERVAL, Some("b")), Err(1));
    }

    #[test]
    fn a_flood_of_keys_gets_few_messages() {
        let (log, start) = (RateLimitedLog::new(INTERVAL, 10), Instant::now());
        let logged = (0..1_000).filter(|key| log.record_event_at(start, Some(*key)).is_ok());
        assert_eq!(logged.count(), 10);
        assert_eq!(log.record_event_at(start + INTERVAL, Some(0)), Ok(990));
    }

    proptest! {
        #[test]
        fn each_interval_has_few_messages_and_each_event_is_counted(
            events in prop::collection::vec((0_u64..5_000, prop::option::of(0..4_u8)), 0..100),
            max_messages in 1_usize..5,
        ) {
            let log = RateLimitedLog::new(INTERVAL, max_messages);
            let (mut now, mut logged, mut counted) = (Instant::now(), Vec::new(), 0);
            for (milliseconds, key) in &events {
                now += Duration::from_millis(*milliseconds);
                if let Ok(suppressed) = log.record_event_at(now, *key) {
                    counted += 1 + suppressed;
                    logged.push((now, *key));
                }
            }
            prop_assert_eq!(counted + log.recent.lock().suppressed, events.len() as u64);
            for (at, (from, _)) in logged.iter().enumerate() {
                let later = logged[at..].iter().take_while(|(time, _)| *time < *from + INTERVAL);
                let later: Vec<_> = later.collect();
                prop_assert!(later.len() <= max_messages);
                let keys: Vec<_> = later.iter().filter_map(|(_, key)| *key).collect();
                let distinct: BTreeSet<_> = keys.iter().collect();
                prop_assert_eq!(distinct.len(), keys.len());
            }
        }
    }
}
