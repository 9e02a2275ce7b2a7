//! Limit of the dials that start within a second.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::time::Duration;
use tower::limit::{RateLimit, rate::Rate};
use tower::util::{ServiceExt as _, ServiceFn};
use tower::{Service as _, service_fn};

/// Limit of the dials that start within a second.
#[derive(Debug)]
pub struct DialRate {
    per_second: u64,
    /// Needs a runtime, so the first dial makes the limit.
    limit: Option<RateLimit<DialStart>>,
}

/// Service without an effect, to count dials by a rate limit.
type DialStart = ServiceFn<fn(()) -> Ready<Result<(), Infallible>>>;

impl DialRate {
    /// Creates a limit. Zero counts as one.
    #[must_use]
    pub fn new(per_second: u64) -> Self {
        Self {
            per_second: per_second.max(1),
            limit: None,
        }
    }

    /// Starts a dial as soon as the limit allows.
    pub async fn wait_for_start(&mut self) {
        let rate = Rate::new(self.per_second, Duration::from_secs(1));
        let limit = self.limit.get_or_insert_with(|| {
            let start: DialStart = service_fn(|()| ready(Ok(())));
            RateLimit::new(start, rate)
        });

        let Ok(start) = limit.ready().await;
        let Ok(()) = start.call(()).await;
    }
}
