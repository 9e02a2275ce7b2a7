//! Delays between attempts. Each delay is random, so that the clients of one daemon do not come back
//! at the same time.

use std::time::Duration;

/// Delays between the attempts of one loop. The limit of a delay doubles with each failure in a row,
/// up to a longest limit.
///
/// ```
/// use caproot_core::backoff::Backoff;
/// use std::time::Duration;
///
/// let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(10));
/// assert!(backoff.next_delay() <= Duration::from_millis(200));
/// assert!(backoff.next_delay() <= Duration::from_millis(400));
/// backoff.reset();
/// assert!(backoff.next_delay() <= Duration::from_millis(200));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    first_limit: Duration,
    longest_limit: Duration,
    /// Failures in a row.
    failures: u32,
}

impl Backoff {
    /// Returns a backoff before its first failure.
    #[must_use]
    pub const fn new(first_limit: Duration, longest_limit: Duration) -> Self {
        Self {
            first_limit,
            longest_limit,
            failures: 0,
        }
    }

    /// Counts a failure. Returns the delay before the next attempt: a random part of the limit.
    pub fn next_delay(&mut self) -> Duration {
        full_jitter(self.next_limit())
    }

    /// Counts a failure. Returns the limit of the delay, for a poll at growing intervals.
    pub fn next_limit(&mut self) -> Duration {
        let limit = self.limit_after(self.failures);
        self.failures = self.failures.saturating_add(1);
        limit
    }

    /// Returns the random delay after a number of failures in a row, for a caller that counts them.
    #[must_use]
    pub fn delay_after(&self, failures: u32) -> Duration {
        full_jitter(self.limit_after(failures))
    }

    /// Starts again with the first limit, after a success.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    fn limit_after(&self, failures: u32) -> Duration {
        let factor = 1_u32.checked_shl(failures).unwrap_or(u32::MAX);
        self.first_limit
            .saturating_mul(factor)
            .min(self.longest_limit)
    }
}

/// Returns a random part of a delay: from zero to the whole delay, each with the same probability
/// ("full jitter"). Source: AWS Architecture Blog, "Exponential Backoff And Jitter".
#[must_use]
pub fn full_jitter(delay: Duration) -> Duration {
    let nanos = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(fastrand::u64(..=nanos))
}

#[cfg(test)]
mod tests {
    use super::{Backoff, full_jitter};
    use proptest::prelude::*;
    use std::time::Duration;

    proptest! {
        #[test]
        fn limits_double_up_to_the_longest(
            first in 1..100_000_u64,
            longest in 1..10_000_000_u64,
            failures in 0..200_usize,
        ) {
            let (first, longest) = (Duration::from_millis(first), Duration::from_millis(longest));
            let mut limits = Backoff::new(first, longest);
            let mut delays = limits;
            let mut limit = first.min(longest);
            for _ in 0..failures {
                prop_assert_eq!(limits.next_limit(), limit);
                prop_assert!(delays.next_delay() <= limit);
                limit = (limit * 2).min(longest);
            }
            let count = u32::try_from(failures).expect("a small number");
            prop_assert!(limits.delay_after(count) <= limit);
            limits.reset();
            prop_assert_eq!(limits, Backoff::new(first, longest));
        }

        #[test]
        fn a_part_is_never_longer_than_the_delay(millis in 0..100_000_u64) {
            let delay = Duration::from_millis(millis);
            prop_assert!(full_jitter(delay) <= delay);
        }
    }

    #[test]
    fn extreme_limits_do_not_overflow() {
        let mut backoff = Backoff::new(Duration::MAX, Duration::MAX);
        backoff.failures = u32::MAX;
        assert_eq!(backoff.next_limit(), Duration::MAX);
        assert!(backoff.next_delay() <= Duration::MAX);
        assert_eq!(full_jitter(Duration::ZERO), Duration::ZERO);
    }

    /// With 8,000 delays, the standard deviation of the number in one eighth is 30.
    #[test]
    fn parts_are_spread_over_the_whole_delay() {
        let mut eighths = [0_u32; 8];
        for _ in 0..8_000 {
            let millis = full_jitter(Duration::from_millis(7_999)).as_millis();
            eighths[usize::try_from(millis / 1_000).expect("a small number")] += 1;
        }
        assert!(
            eighths.iter().all(|count| (700..1_300).contains(count)),
            "{eighths:?}"
        );
    }
}
