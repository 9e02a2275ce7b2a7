//! Rate limits of log messages, so that frequent events do not fill the log.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Shortest time between two messages of one kind.
const MIN_INTERVAL: Duration = Duration::from_secs(10);
/// Most messages about failed handshakes within [`MIN_INTERVAL`], for all addresses.
const MAX_HANDSHAKE_MESSAGES: usize = 10;

/// Rate limit of one kind of message: one per [`MIN_INTERVAL`].
#[derive(Debug, Default)]
pub struct RateLimitedLog(Mutex<LogInterval>);

#[derive(Debug, Default)]
struct LogInterval {
    last_message: Option<Instant>,
    /// Events since the last message.
    event_count: u64,
}

/// Rate limit of messages about failed TLS handshakes: one per [`MIN_INTERVAL`] for each address
/// and cause.
#[derive(Debug, Default)]
pub struct HandshakeLog(Mutex<RecentMessages>);

#[derive(Debug, Default)]
struct RecentMessages {
    /// Messages of the last [`MIN_INTERVAL`], oldest first.
    messages: VecDeque<(Instant, IpAddr, String)>,
    suppressed: u64,
}

impl RateLimitedLog {
    /// Counts an event. Returns the number of events since the last message if a message may be
    /// logged now.
    pub fn record_event(&self) -> Option<u64> {
        self.record_event_at(Instant::now())
    }

    fn record_event_at(&self, now: Instant) -> Option<u64> {
        let mut interval = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        interval.event_count += 1;
        let is_recent = |last: Instant| now.saturating_duration_since(last) < MIN_INTERVAL;
        if interval.last_message.is_some_and(is_recent) {
            return None;
        }
        interval.last_message = Some(now);
        Some(std::mem::take(&mut interval.event_count))
    }
}

impl HandshakeLog {
    /// Records a failed handshake. Returns the number of suppressed messages if a message may be
    /// logged now.
    pub fn record_failure(&self, address: IpAddr, cause: &str) -> Option<u64> {
        self.record_failure_at(Instant::now(), address, cause)
    }

    fn record_failure_at(&self, now: Instant, address: IpAddr, cause: &str) -> Option<u64> {
        let mut recent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_old = |at: Instant| now.saturating_duration_since(at) >= MIN_INTERVAL;
        while recent.messages.front().is_some_and(|(at, _, _)| is_old(*at)) {
            recent.messages.pop_front();
        }
        let is_known =
            recent.messages.iter().any(|(_, ip, known)| *ip == address && known == cause);
        if is_known || recent.messages.len() == MAX_HANDSHAKE_MESSAGES {
            recent.suppressed += 1;
            return None;
        }
        recent.messages.push_back((now, address, cause.to_owned()));
        Some(std::mem::take(&mut recent.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::{HandshakeLog, MAX_HANDSHAKE_MESSAGES, MIN_INTERVAL, RateLimitedLog};
    use std::net::{IpAddr, Ipv4Addr};
    use std::time::Instant;

    const HOME: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[test]
    fn suppressed_events_are_counted() {
        let (log, start) = (RateLimitedLog::default(), Instant::now());
        assert_eq!(log.record_event_at(start), Some(1));
        assert_eq!(log.record_event_at(start + MIN_INTERVAL / 2), None);
        assert_eq!(log.record_event_at(start + MIN_INTERVAL / 2), None);
        assert_eq!(log.record_event_at(start + MIN_INTERVAL), Some(3));
    }

    #[test]
    fn a_client_that_tries_again_gets_one_message() {
        let (log, start) = (HandshakeLog::default(), Instant::now());
        let elsewhere = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
        assert_eq!(log.record_failure_at(start, HOME, "no TLS"), Some(0));
        assert_eq!(log.record_failure_at(start + MIN_INTERVAL / 2, HOME, "no TLS"), None);
        assert_eq!(log.record_failure_at(start + MIN_INTERVAL / 2, HOME, "expired"), Some(1));
        assert_eq!(log.record_failure_at(start + MIN_INTERVAL / 2, elsewhere, "no TLS"), Some(0));
        assert_eq!(log.record_failure_at(start + MIN_INTERVAL, HOME, "no TLS"), Some(0));
        assert_eq!(log.record_failure_at(start + MIN_INTERVAL, HOME, "expired"), None);
    }

    #[test]
    fn a_flood_of_causes_gets_few_messages() {
        let (log, start) = (HandshakeLog::default(), Instant::now());
        let record = |at, number: usize| log.record_failure_at(at, HOME, &number.to_string());
        let logged = (0..1_000).filter(|number| record(start, *number).is_some()).count();
        assert_eq!(logged, MAX_HANDSHAKE_MESSAGES);
        assert_eq!(record(start + MIN_INTERVAL, 0), Some(990));
    }
}
