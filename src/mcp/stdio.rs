//! Transport over stdin and stdout. If too many responses are not yet written, the transport reads
//! no further request, so that a client that does not read takes no memory.

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

/// Opens the transport on stdin and stdout.
pub fn stdio_transport() -> impl Transport<RoleServer, Error = io::Error> + 'static {
    let (stdin, stdout): (StdioReader, StdioWriter) = stdio_pipes();
    let lines = AsyncRwTransport::new_server(stdin, stdout);
    LimitedTransport::new(
        lines.with_max_line_length(MAX_REQUEST_BYTES),
        MAX_STDIO_REQUESTS,
    )
}

/// Transport with a limited number of requests in flight.
struct LimitedTransport<T> {
    inner: T,
    permits: Arc<Semaphore>,
    /// Permit of the next request.
    next_permit: Option<OwnedSemaphorePermit>,
    /// Permits of the requests in flight.
    in_flight: HashMap<RequestId, OwnedSemaphorePermit>,
}

impl<T> LimitedTransport<T> {
    fn new(inner: T, requests: usize) -> Self {
        let permits = Arc::new(Semaphore::new(requests));
        Self {
            inner,
            permits,
            next_permit: None,
            in_flight: HashMap::new(),
        }
    }
}

impl<T: Transport<RoleServer>> Transport<RoleServer> for LimitedTransport<T> {
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
        let permit = id.and_then(|id| self.in_flight.remove(id));
        let sent = self.inner.send(message);
        async move {
            let sent = sent.await;
            drop(permit);
            sent
        }
    }

    /// Cancel-safe.
    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        if self.next_permit.is_none() {
            self.next_permit = self.permits.clone().acquire_owned().await.ok();
        }
        let message = self.inner.receive().await?;
        match &message {
            JsonRpcMessage::Request(request) => {
                let permit = self.next_permit.take()?;
                self.in_flight.insert(request.id.clone(), permit);
            }
            JsonRpcMessage::Notification(notice) => {
                // A cancelled request has no response.
                if let ClientNotification::CancelledNotification(cancelled) = &notice.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    self.in_flight.remove(id);
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
