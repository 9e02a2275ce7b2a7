//! Keeps what happens often from filling the log.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Between two lines of one kind.
const BETWEEN: Duration = Duration::from_secs(10);

/// What is told at most once in a while.
#[derive(Debug, Default)]
pub(super) struct Seldom(Mutex<Told>);

#[derive(Debug, Default)]
struct Told {
    last: Option<Instant>,
    since: u64,
}

impl Seldom {
    /// Counts one more; how many there were since the last line, when it is time for the next one.
    pub(super) fn tell(&self) -> Option<u64> {
        self.tell_at(Instant::now())
    }

    fn tell_at(&self, now: Instant) -> Option<u64> {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.since += 1;
        if told.last.is_some_and(|last| now.saturating_duration_since(last) < BETWEEN) {
            return None;
        }
        told.last = Some(now);
        Some(std::mem::take(&mut told.since))
    }
}

#[cfg(test)]
mod tests {
    use super::{BETWEEN, Seldom};
    use std::time::Instant;

    #[test]
    fn what_is_not_told_is_counted() {
        let (seldom, begin) = (Seldom::default(), Instant::now());
        assert_eq!(seldom.tell_at(begin), Some(1));
        assert_eq!(seldom.tell_at(begin + BETWEEN / 2), None);
        assert_eq!(seldom.tell_at(begin + BETWEEN / 2), None);
        assert_eq!(seldom.tell_at(begin + BETWEEN), Some(3));
    }
}
