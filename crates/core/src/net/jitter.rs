//! Random delays, so that the clients of one daemon do not come back at the same time.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

/// Returns a random part of a delay: from zero to the whole delay, each with the same probability
/// ("full jitter"). Source: AWS Architecture Blog, "Exponential Backoff And Jitter".
#[must_use]
pub fn full_jitter(delay: Duration) -> Duration {
    // Each state has new keys, so its hash of any value is random.
    let random = RandomState::new().hash_one(0_u8);
    let share = u32::try_from(random >> 32).unwrap_or_default();
    delay.mul_f64(f64::from(share) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::full_jitter;
    use proptest::prelude::*;
    use std::time::Duration;

    proptest! {
        #[test]
        fn a_part_is_never_longer_than_the_delay(millis in 0..100_000_u64) {
            let delay = Duration::from_millis(millis);
            prop_assert!(full_jitter(delay) <= delay);
        }
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
