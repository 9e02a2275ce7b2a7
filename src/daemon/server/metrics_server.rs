//! Serves metrics to Prometheus, on a few connections at once.

use super::listen::RuntimeListener;
use crate::daemon::telemetry::ScrapeEndpoint;
use caproot_core::net::byte_stream::ByteStream;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::task::AbortOnDropHandle;

/// Most concurrent scrapes; further ones wait in the backlog of the kernel.
const MAX_SCRAPES: usize = 8;
/// Pause after accepting failed, such as without file descriptors.
const ACCEPT_RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Serves scrapes at an address until the handle is dropped. Returns the bound address, too.
pub async fn serve_metrics_at(
    address: SocketAddr,
    metrics: ScrapeEndpoint,
) -> io::Result<(SocketAddr, AbortOnDropHandle<()>)> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    let task = serve_metrics(RuntimeListener::Tcp(listener), metrics);
    Ok((address, task))
}

/// Serves scrapes until the handle is dropped.
pub fn serve_metrics(listener: RuntimeListener, metrics: ScrapeEndpoint) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(async move {
        let permits = Arc::new(Semaphore::new(MAX_SCRAPES));
        // The semaphore is never closed.
        while let Ok(permit) = permits.clone().acquire_owned().await {
            match next(&listener).await {
                Ok(io) => {
                    let endpoint = metrics.clone();
                    // The task ends by the timeout of the scrape.
                    tokio::spawn(async move {
                        endpoint.serve_scrape(io).await;
                        drop(permit);
                    });
                }
                Err(error) => {
                    tracing::debug!(%error, "accepting a scrape failed");
                    tokio::time::sleep(ACCEPT_RETRY_PAUSE).await;
                }
            }
        }
    }))
}

async fn next(listener: &RuntimeListener) -> io::Result<Box<dyn ByteStream>> {
    Ok(match listener {
        RuntimeListener::Tcp(socket) => Box::new(socket.accept().await?.0),
        RuntimeListener::Unix(socket, _) => Box::new(socket.accept().await?),
    })
}
