//! Retries of failed calls. Streams have their own retries in [`crate::SkillWatch`].

use super::auth_channel::TlsRequired;
use caproot_core::backoff::Backoff;
use std::error::Error as _;
use std::time::Duration;
use tokio::time::{Instant, sleep};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

/// Retry policy of calls. A call is retried if its status is UNAVAILABLE, if the connection ended
/// before the response, or if its status is `RESOURCE_EXHAUSTED` with a retry delay.
///
/// Each delay is a random part of a maximum, which doubles with each retry. If the daemon requests a
/// delay, the random part follows that delay. A call and its retries have one deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Maximum number of retries; 3 by default.
    pub max_retries: usize,
    /// Maximum delay of the first retry; 300 ms by default.
    pub initial_delay: Duration,
    /// Maximum delay of any retry, in addition to a requested delay; 2 s by default.
    pub max_delay: Duration,
}

impl RetryPolicy {
    /// No retries.
    pub const NONE: Self = Self {
        max_retries: 0,
        initial_delay: Duration::ZERO,
        max_delay: Duration::ZERO,
    };
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            max_retries: 3,
            initial_delay: Duration::from_millis(300),
            max_delay: Duration::from_secs(2),
        }
    }
}

/// Calls `attempt` with the remaining time of the deadline until it succeeds or no retry is left.
pub async fn run_with_retries<A, F: Future<Output = Result<A, Status>>>(
    retries: RetryPolicy,
    deadline: Duration,
    attempt: impl Fn(Duration) -> F,
) -> Result<A, Status> {
    let start = Instant::now();
    let mut time_left = deadline;
    let mut retries_left = retries.max_retries;
    let mut backoff = Backoff::new(retries.initial_delay, retries.max_delay);

    loop {
        let status = match attempt(time_left).await {
            Ok(answer) => return Ok(answer),
            Err(status) => status,
        };
        if retries_left == 0 || !is_retryable(&status) {
            return Err(status);
        }

        let wait = requested_delay(&status).saturating_add(backoff.next_delay());

        // An attempt without time would hide this status behind a timeout.
        if wait >= deadline.saturating_sub(start.elapsed()) {
            return Err(status);
        }

        sleep(wait).await;
        retries_left -= 1;
        time_left = deadline.saturating_sub(start.elapsed());
    }
}

/// Returns the delay that the daemon requested.
pub fn requested_delay(status: &Status) -> Duration {
    let info = status.get_details_retry_info();
    info.and_then(|info| info.retry_delay).unwrap_or_default()
}

/// Whether the same call may succeed soon.
fn is_retryable(status: &Status) -> bool {
    match status.code() {
        Code::Unavailable => !TlsRequired::is_cause_of(status),
        // A status with a source was made on this side: the connection ended before the response.
        Code::Cancelled => status.source().is_some(),
        Code::ResourceExhausted => status.get_details_retry_info().is_some(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{RetryPolicy, run_with_retries};
    use std::cell::Cell;
    use std::time::Duration;
    use tokio::time::Instant;
    use tonic::{Code, Status};
    use tonic_types::{ErrorDetails, StatusExt as _};

    const MINUTE: Duration = Duration::from_mins(1);

    fn exhausted(delay: Option<Duration>) -> Status {
        let details = match delay {
            Some(delay) => ErrorDetails::with_retry_info(Some(delay)),
            None => ErrorDetails::new(),
        };
        Status::with_error_details(Code::ResourceExhausted, "later", details)
    }

    /// Returns how often a call with this status is attempted, and how long all attempts take.
    async fn count_attempts(status: Status, deadline: Duration) -> (usize, Duration) {
        let (count, start) = (Cell::new(0), Instant::now());
        let attempt = |left: Duration| {
            assert!(left <= deadline);
            count.set(count.get() + 1);
            std::future::ready(Err::<(), _>(status.clone()))
        };
        let outcome = run_with_retries(RetryPolicy::default(), deadline, attempt).await;
        assert_eq!(outcome.expect_err("it always fails").code(), status.code());
        (count.get(), start.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn only_transient_failures_are_retried() {
        assert_eq!(
            count_attempts(Status::unavailable("gone"), MINUTE).await.0,
            4
        );
        for status in [
            Status::not_found("x"),
            Status::internal("x"),
            Status::deadline_exceeded("x"),
            Status::aborted("x"),
            exhausted(None),
        ] {
            assert_eq!(count_attempts(status, MINUTE).await, (1, Duration::ZERO));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn retry_delay_of_the_daemon_is_kept_within_the_deadline() {
        let requested = Duration::from_secs(7);
        let (count, took) = count_attempts(exhausted(Some(requested)), MINUTE).await;
        assert!(count == 4 && took >= 3 * requested, "{count} {took:?}");
        assert!(
            took <= 3 * requested + Duration::from_millis(2_100),
            "{took:?}"
        );
        assert_eq!(
            count_attempts(exhausted(Some(requested)), requested).await,
            (1, Duration::ZERO)
        );
        let (count, took) = count_attempts(exhausted(Some(requested)), 2 * requested).await;
        assert!(count == 2 && took < 2 * requested, "{count} {took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn first_success_is_returned() {
        let count = Cell::new(0);
        let attempt = |_| {
            count.set(count.get() + 1);
            let well = count.get() == 3;
            let late = || Status::unavailable("not yet");
            std::future::ready(well.then_some(3).ok_or_else(late))
        };
        let outcome = run_with_retries(RetryPolicy::default(), MINUTE, attempt).await;
        assert_eq!(outcome.expect("the third"), 3);
    }
}
