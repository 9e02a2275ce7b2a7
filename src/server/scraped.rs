//! Accepts Prometheus's connections, a few at once, and never more.

use super::listen::Bound;
use crate::telemetry::Metrics;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio_util::task::AbortOnDropHandle;

/// Scrapes at once; further ones wait in the kernel's backlog.
const MAX_SCRAPES: usize = 8;
/// After a connection could not be accepted, as without file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// Answers scrapes until it is dropped.
pub(super) fn scrape(bound: Bound, metrics: Metrics) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(async move {
        let places = Arc::new(Semaphore::new(MAX_SCRAPES));
        // The semaphore is never closed.
        while let Ok(place) = places.clone().acquire_owned().await {
            match next(&bound).await {
                Ok(io) => {
                    let metrics = metrics.clone();
                    // Ends by itself: the whole scrape has a time-out.
                    tokio::spawn(async move {
                        metrics.answer(io).await;
                        drop(place);
                    });
                }
                Err(error) => {
                    tracing::debug!(%error, "a scrape could not be accepted");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }))
}

async fn next(bound: &Bound) -> io::Result<Box<dyn Io>> {
    Ok(match bound {
        Bound::Tcp(listener) => Box::new(listener.accept().await?.0),
        Bound::Unix(listener, _) => Box::new(listener.accept().await?.0),
    })
}
