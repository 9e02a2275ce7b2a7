//! Limit of the dials that start within a second.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};
use std::time::Duration;
use tower::limit::{RateLimit, rate::Rate};
use tower::{Service, ServiceExt as _};

/// Limit of the dials that start within a second.
#[derive(Debug)]
pub struct DialRate(RateLimit<DialStart>);

/// Service without an effect, to count dials by a rate limit.
#[derive(Debug)]
struct DialStart;

impl DialRate {
    /// Creates a limit. Zero counts as one.
    pub fn new(per_second: u64) -> Self {
        Self(RateLimit::new(
            DialStart,
            Rate::new(per_second.max(1), Duration::from_secs(1)),
        ))
    }

    /// Starts a dial as soon as the limit allows.
    #[cfg(feature = "client")]
    pub async fn wait_for_start(&mut self) {
        let Ok(start) = self.0.ready().await;
        let Ok(()) = start.call(()).await;
    }

    /// Starts a dial. Returns `false` if the limit does not allow a dial now.
    #[cfg(feature = "nats")]
    pub fn try_start(&mut self) -> bool {
        use futures_util::FutureExt as _;
        let start = self.0.ready().now_or_never();
        start.is_some_and(|Ok(start)| start.call(()).now_or_never().is_some())
    }
}

impl Service<()> for DialStart {
    type Response = ();
    type Error = Infallible;
    type Future = Ready<Result<(), Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, (): ()) -> Self::Future {
        ready(Ok(()))
    }
}

#[cfg(all(test, feature = "nats"))]
mod tests {
    use super::DialRate;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn a_second_has_a_bounded_number_of_dials() {
        let mut rate = DialRate::new(50);
        for span in [
            Duration::ZERO,
            Duration::from_secs(1),
            Duration::from_hours(1),
        ] {
            tokio::time::advance(span).await;
            assert_eq!((0..200).filter(|_| rate.try_start()).count(), 50);
        }
        tokio::time::advance(Duration::from_millis(900)).await;
        assert!(!rate.try_start());
    }
}
