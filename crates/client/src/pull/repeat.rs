//! Further attempts after a package or a directory changed.

use super::PullError;
use caproot_core::backoff::Backoff;
use std::time::Duration;

/// How often a pull starts if the package or the directory changes in the meantime.
pub const MAX_ATTEMPTS: u32 = 5;
/// Delays before further attempts, in which the package may settle.
const FIRST_DELAY: Duration = Duration::from_millis(100);
const LONGEST_DELAY: Duration = Duration::from_millis(400);

/// Calls `attempt` until no package and no directory changes during an attempt, at most five times.
pub async fn repeat_attempt<T, F: Future<Output = Result<T, PullError>>>(
    mut attempt: impl FnMut() -> F,
) -> Result<T, PullError> {
    let mut backoff = Backoff::new(FIRST_DELAY, LONGEST_DELAY);
    for _ in 1..MAX_ATTEMPTS {
        match attempt().await {
            Err(error) if error.is_concurrent_change() => {}
            outcome => return outcome,
        }
        tokio::time::sleep(backoff.next_limit()).await;
    }
    attempt().await
}
