//! Limit of the dials of a second, divided among the orchestrators: an orchestrator that floods a link
//! with dials leaves a share for the others.

use super::subject::RandomToken;
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::Instant;

/// Length of a window.
const WINDOW: Duration = Duration::from_secs(1);
/// Maximum number of orchestrators in a window. The dials of further ones are refused.
const MAX_ORCHESTRATORS: usize = 1_024;

/// Dials of the current second.
#[derive(Debug)]
pub struct DialShares {
    per_second: u32,
    window_start: Instant,
    started: u32,
    /// Dials of each orchestrator in this window, including refused ones as zero.
    by_orchestrator: HashMap<RandomToken, u32>,
    /// Number of orchestrators in the window before.
    orchestrators_before: usize,
}

impl DialShares {
    /// Creates a limit. Zero counts as one.
    pub fn new(per_second: u32) -> Self {
        Self {
            per_second: per_second.max(1),
            window_start: Instant::now(),
            started: 0,
            by_orchestrator: HashMap::new(),
            orchestrators_before: 0,
        }
    }

    /// Starts a dial of an orchestrator. Returns `false` if the orchestrator has used its share of
    /// this second, or if all dials of this second are used.
    ///
    /// The dials are divided by the number of orchestrators and one more, so that a new orchestrator
    /// finds a share. For example, one orchestrator has 25 of 50 dials, and each of four has 10.
    pub fn try_start(&mut self, orchestrator: &RandomToken) -> bool {
        self.advance_window();
        let is_new = !self.by_orchestrator.contains_key(orchestrator);
        let orchestrators = self.by_orchestrator.len() + usize::from(is_new);
        if orchestrators > MAX_ORCHESTRATORS {
            return false;
        }

        // Without the window before, the first orchestrator of a window would get half of its dials.
        let orchestrators = orchestrators.max(self.orchestrators_before);
        let parts = u32::try_from(orchestrators + 1).unwrap_or(u32::MAX);
        let share = (self.per_second / parts).max(1);
        let used = self.by_orchestrator.entry(orchestrator.clone());
        let used = used.or_default();
        if *used >= share || self.started >= self.per_second {
            return false;
        }
        *used += 1;
        self.started += 1;
        true
    }

    fn advance_window(&mut self) {
        let elapsed = self.window_start.elapsed();
        if elapsed < WINDOW {
            return;
        }
        self.orchestrators_before = if elapsed < 2 * WINDOW {
            self.by_orchestrator.len()
        } else {
            0
        };
        self.window_start = Instant::now();
        self.started = 0;
        self.by_orchestrator.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::{DialShares, MAX_ORCHESTRATORS};
    use crate::subject::RandomToken;
    use std::time::Duration;

    fn token() -> RandomToken {
        RandomToken::generate().expect("random bytes")
    }

    fn count_starts(shares: &mut DialShares, orchestrator: &RandomToken, dials: usize) -> usize {
        (0..dials)
            .filter(|_| shares.try_start(orchestrator))
            .count()
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_leaves_a_share_for_others() {
        let mut shares = DialShares::new(50);
        let (hostile, other) = (token(), token());
        for span in [0, 1_000, 3_600_000] {
            tokio::time::advance(Duration::from_millis(span)).await;
            assert!(count_starts(&mut shares, &hostile, 200) >= 16);
            assert_eq!(count_starts(&mut shares, &other, 10), 10, "after {span} ms");
            assert_eq!(count_starts(&mut shares, &hostile, 200), 0);
        }
        tokio::time::advance(Duration::from_millis(900)).await;
        assert!(!shares.try_start(&hostile), "the second is not over");
    }

    #[tokio::test(start_paused = true)]
    async fn all_orchestrators_together_have_a_bounded_number_of_dials() {
        let mut shares = DialShares::new(50);
        for _ in 0..3 {
            let started: usize = (0..2 * MAX_ORCHESTRATORS)
                .map(|_| count_starts(&mut shares, &token(), 3))
                .sum();
            assert_eq!(started, 50);
            assert!(shares.by_orchestrator.len() <= MAX_ORCHESTRATORS);
            tokio::time::advance(Duration::from_secs(1)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_smallest_limit_allows_one_dial_of_a_second() {
        for per_second in [0, 1] {
            let mut shares = DialShares::new(per_second);
            assert_eq!(count_starts(&mut shares, &token(), 3), 1);
        }
    }
}
