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
    #[must_use]
    pub fn new(per_second: u64) -> Self {
        Self(RateLimit::new(
            DialStart,
            Rate::new(per_second.max(1), Duration::from_secs(1)),
        ))
    }

    /// Starts a dial as soon as the limit allows.
    pub async fn wait_for_start(&mut self) {
        let Ok(start) = self.0.ready().await;
        let Ok(()) = start.call(()).await;
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
