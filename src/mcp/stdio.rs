//! The transport over stdin and stdout, which reads no further while too many answers are not yet
//! taken: whoever asks without reading waits, and takes no memory.

use super::limits::{MAX_REQUEST_BYTES, MAX_STDIO_REQUESTS};
use rmcp::RoleServer;
use rmcp::model::{ClientNotification, JsonRpcMessage, RequestId};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::{StdioReader, StdioWriter, Transport, stdio_pipes};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Stdin and stdout.
pub(super) fn transport() -> impl Transport<RoleServer, Error = io::Error> + 'static {
    let (stdin, stdout): (StdioReader, StdioWriter) = stdio_pipes();
    let lines = AsyncRwTransport::new_server(stdin, stdout);
    Counted::new(lines.with_max_line_length(MAX_REQUEST_BYTES), MAX_STDIO_REQUESTS)
}

/// A transport with so many requests under way at most.
struct Counted<T> {
    inner: T,
    places: Arc<Semaphore>,
    /// The place for the next request.
    next: Option<OwnedSemaphorePermit>,
    /// Of requests that were not answered yet.
    held: HashMap<RequestId, OwnedSemaphorePermit>,
}

impl<T> Counted<T> {
    fn new(inner: T, requests: usize) -> Self {
        let places = Arc::new(Semaphore::new(requests));
        Self { inner, places, next: None, held: HashMap::new() }
    }
}

impl<T: Transport<RoleServer>> Transport<RoleServer> for Counted<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), T::Error>> + Send + 'static {
        let id = match &message {
            JsonRpcMessage::Response(response) => Some(&response.id),
            JsonRpcMessage::Error(error) => error.id.as_ref(),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
        };
        let place = id.and_then(|id| self.held.remove(id));
        let sent = self.inner.send(message);
        async move {
            let sent = sent.await;
            drop(place);
            sent
        }
    }

    /// May be dropped while it waits.
    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        if self.next.is_none() {
            self.next = self.places.clone().acquire_owned().await.ok();
        }
        let message = self.inner.receive().await?;
        match &message {
            JsonRpcMessage::Request(request) => {
                let place = self.next.take()?;
                self.held.insert(request.id.clone(), place);
            }
            JsonRpcMessage::Notification(notice) => {
                // What is cancelled is not answered.
                if let ClientNotification::CancelledNotification(cancelled) = &notice.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    self.held.remove(id);
                }
            }
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => {}
        }
        Some(message)
    }

    async fn close(&mut self) -> Result<(), T::Error> {
        self.inner.close().await
    }
}
