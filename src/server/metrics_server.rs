//! Accepts Prometheus's connections, a few at once, and never more.

use super::listen::RuntimeListener;
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

trait ScrapeIo: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> ScrapeIo for T {}

/// Answers scrapes until it is dropped.
pub(super) fn serve_metrics(bound: RuntimeListener, metrics: Metrics) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(async move {
        let places = Arc::new(Semaphore::new(MAX_SCRAPES));
        // The semaphore is never closed.
        while let Ok(place) = places.clone().acquire_owned().await {
            match next(&bound).await {
                Ok(io) => {
                    let metrics = metrics.clone();
                    // Ends by itself: the whole scrape has a time-out.
                    tokio::spawn(async move {
                        metrics.serve_scrape(io).await;
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

async fn next(bound: &RuntimeListener) -> io::Result<Box<dyn ScrapeIo>> {
    Ok(match bound {
        RuntimeListener::Tcp(listener) => Box::new(listener.accept().await?.0),
        RuntimeListener::Unix(listener, _) => Box::new(listener.accept().await?.0),
    })
}
