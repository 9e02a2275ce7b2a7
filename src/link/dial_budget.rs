//! Limit of the dials that a link takes within a second.

use crate::sync::Mutex;
use std::time::Duration;
use tokio::time::Instant;

/// Tokens that come back continuously, up to the number of one second.
#[derive(Debug)]
pub struct DialBudget {
    per_second: u32,
    state: Mutex<(Instant, f64)>,
}

impl DialBudget {
    /// Creates a full budget.
    pub fn new(per_second: u32) -> Self {
        Self { per_second, state: Mutex::new((Instant::now(), f64::from(per_second))) }
    }

    /// Takes a token. Returns whether there was one.
    pub fn take(&self) -> bool {
        let mut state = self.state.lock();
        let (at, tokens) = &mut *state;
        let now = Instant::now();
        let since: Duration = now.saturating_duration_since(*at);
        let limit = f64::from(self.per_second);
        *tokens = (*tokens + since.as_secs_f64() * limit).min(limit);
        *at = now;
        let has_one = *tokens >= 1.0;
        if has_one {
            *tokens -= 1.0;
        }
        has_one
    }
}

#[cfg(test)]
mod tests {
    use super::DialBudget;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn a_second_has_a_bounded_number_of_dials() {
        let budget = DialBudget::new(50);
        assert_eq!((0..200).filter(|_| budget.take()).count(), 50);
        tokio::time::advance(Duration::from_millis(100)).await;
        assert_eq!((0..200).filter(|_| budget.take()).count(), 5);
        tokio::time::advance(Duration::from_hours(1)).await;
        assert_eq!((0..200).filter(|_| budget.take()).count(), 50);
    }
}
