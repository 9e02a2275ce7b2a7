//! Decides which failed TLS handshakes get a line in the log: one for each address and cause in a
//! while, so that a client that connects again and again does not fill the log.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long the same address and cause get no second line.
const REPEAT_INTERVAL: Duration = Duration::from_secs(10);
/// Most lines in that time, for all addresses together.
const MAX_LINES: usize = 10;

/// The lines of the last [`QUIET`].
#[derive(Debug, Default)]
pub(super) struct HandshakeLog(Mutex<RecentLines>);

#[derive(Debug, Default)]
struct RecentLines {
    /// Oldest first.
    lines: VecDeque<(Instant, IpAddr, String)>,
    suppressed: u64,
}

impl HandshakeLog {
    /// Records a failed handshake. `Some` if it gets a line: how many got none since the line before.
    pub(super) fn record_failure(&self, address: IpAddr, cause: &str) -> Option<u64> {
        self.record_failure_at(Instant::now(), address, cause)
    }

    fn record_failure_at(&self, now: Instant, address: IpAddr, cause: &str) -> Option<u64> {
        let mut recent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_old = |at: Instant| now.saturating_duration_since(at) >= REPEAT_INTERVAL;
        while recent.lines.front().is_some_and(|(at, _, _)| is_old(*at)) {
            recent.lines.pop_front();
        }
        let is_known = recent.lines.iter().any(|(_, ip, why)| *ip == address && why == cause);
        if is_known || recent.lines.len() == MAX_LINES {
            recent.suppressed += 1;
            return None;
        }
        recent.lines.push_back((now, address, cause.to_owned()));
        Some(std::mem::take(&mut recent.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::{HandshakeLog, MAX_LINES, REPEAT_INTERVAL};
    use std::net::{IpAddr, Ipv4Addr};
    use std::time::Instant;

    const HOME: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[test]
    fn a_client_that_tries_again_gets_one_line() {
        let (log, begin) = (HandshakeLog::default(), Instant::now());
        let elsewhere = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
        assert_eq!(log.record_failure_at(begin, HOME, "no TLS"), Some(0));
        assert_eq!(log.record_failure_at(begin + REPEAT_INTERVAL / 2, HOME, "no TLS"), None);
        assert_eq!(log.record_failure_at(begin + REPEAT_INTERVAL / 2, HOME, "expired"), Some(1));
        assert_eq!(
            log.record_failure_at(begin + REPEAT_INTERVAL / 2, elsewhere, "no TLS"),
            Some(0)
        );
        assert_eq!(log.record_failure_at(begin + REPEAT_INTERVAL, HOME, "no TLS"), Some(0));
        assert_eq!(log.record_failure_at(begin + REPEAT_INTERVAL, HOME, "expired"), None);
    }

    #[test]
    fn a_flood_of_causes_gets_few_lines() {
        let (log, begin) = (HandshakeLog::default(), Instant::now());
        let record = |at, number: usize| log.record_failure_at(at, HOME, &number.to_string());
        let told = (0..1_000).filter(|number| record(begin, *number).is_some()).count();
        assert_eq!(told, MAX_LINES);
        assert_eq!(record(begin + REPEAT_INTERVAL, 0), Some(990));
    }
}
