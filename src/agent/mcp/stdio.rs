//! Transport over stdin and stdout. If too many responses are not yet written, the transport reads
//! no further request, so that a client that does not read takes no memory. If stdout cannot be
//! written, the server ends.

use super::limits::{HOST_READ_TIMEOUT, MAX_REQUEST_BYTES, MAX_STDIO_REQUESTS};
use rmcp::model::{ClientNotification, JsonRpcMessage, RequestId};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::{StdioReader, StdioWriter, Transport, stdio_pipes};
use rmcp::{RoleServer, Service, ServiceExt as _};
use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::AsyncWrite;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Sleep, sleep};

/// Serves one host on stdin and stdout until stdin ends. Returns the error if stdout cannot be
/// written.
pub async fn serve_stdio(service: impl Service<RoleServer>) -> io::Result<()> {
    let (stdin, stdout): (StdioReader, StdioWriter) = stdio_pipes();
    let (writer, mut write_error) = HostWriter::new(stdout);
    let lines = AsyncRwTransport::new_server(stdin, writer);
    let transport = LimitedTransport::new(
        lines.with_max_line_length(MAX_REQUEST_BYTES),
        MAX_STDIO_REQUESTS,
    );

    let served = async {
        // A peer that is not an MCP client, or that leaves before its first message, is not served.
        if let Ok(running) = service.serve(transport).await {
            let _ = running.waiting().await;
        }
    };
    tokio::select! {
        Ok(error) = &mut write_error => return Err(error),
        () = served => {}
    }
    // The SDK may end because of the error.
    write_error.try_recv().map_or(Ok(()), Err)
}

/// Writer to the host. Fails if the host takes no byte for [`HOST_READ_TIMEOUT`].
struct HostWriter<W> {
    inner: W,
    /// Runs while a write waits for the host.
    stalled: Option<Pin<Box<Sleep>>>,
    /// Receives the first error; the SDK goes on after an error.
    write_error: Option<oneshot::Sender<io::Error>>,
}

impl<W: AsyncWrite + Unpin> HostWriter<W> {
    /// Returns the writer, and the receiver of its first error.
    fn new(inner: W) -> (Self, oneshot::Receiver<io::Error>) {
        let (sender, receiver) = oneshot::channel();
        let writer = Self {
            inner,
            stalled: None,
            write_error: Some(sender),
        };
        (writer, receiver)
    }

    /// Passes the result of a write on. Reports an error, and a write that waits for too long.
    fn check_progress<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let error = match written {
            Poll::Ready(Ok(value)) => {
                self.stalled = None;
                return Poll::Ready(Ok(value));
            }
            Poll::Ready(Err(error)) => error,
            Poll::Pending => {
                let stalled = self
                    .stalled
                    .get_or_insert_with(|| Box::pin(sleep(HOST_READ_TIMEOUT)));
                ready!(stalled.as_mut().poll(context));
                let message = format!("nothing was read for {} s", HOST_READ_TIMEOUT.as_secs());
                io::Error::new(io::ErrorKind::TimedOut, message)
            }
        };

        let kind = error.kind();
        if let Some(sender) = self.write_error.take() {
            // Without a receiver, the server is ending.
            let _ = sender.send(error);
        }
        Poll::Ready(Err(kind.into()))
    }
}

impl<W: AsyncWrite + Unpin> AsyncWrite for HostWriter<W> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let me = self.get_mut();
        let written = Pin::new(&mut me.inner).poll_write(context, bytes);
        me.check_progress(context, written)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        let flushed = Pin::new(&mut me.inner).poll_flush(context);
        me.check_progress(context, flushed)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        let ended = Pin::new(&mut me.inner).poll_shutdown(context);
        me.check_progress(context, ended)
    }
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
            let outcome = sent.await;
            drop(permit);
            outcome
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

#[cfg(test)]
mod tests {
    use super::{HOST_READ_TIMEOUT, HostWriter};
    use std::io::ErrorKind;
    use std::time::Duration;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
    use tokio::time::{Instant, sleep};

    #[tokio::test(start_paused = true)]
    async fn a_host_that_stops_reading_is_an_error() {
        let (ours, mut host) = duplex(8);
        let (mut writer, write_error) = HostWriter::new(ours);
        // A slow host takes one byte shortly before each timeout.
        let reading = async {
            for _ in 0..10 {
                sleep(HOST_READ_TIMEOUT.saturating_sub(Duration::from_secs(1))).await;
                host.read_u8().await.expect("a byte");
            }
        };
        let begun = Instant::now();
        let (written, ()) = tokio::join!(writer.write_all(&[7; 18]), reading);
        written.expect("a slow host gets everything");
        assert!(begun.elapsed() > 5 * HOST_READ_TIMEOUT);

        let begun = Instant::now();
        let error = writer.write_all(&[7; 18]).await.expect_err("no reader");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert_eq!(begun.elapsed(), HOST_READ_TIMEOUT);
        let reported = write_error.await.expect("the error is reported");
        assert_eq!(reported.to_string(), "nothing was read for 30 s");
    }

    #[tokio::test]
    async fn a_host_that_is_gone_is_an_error() {
        let (ours, host) = duplex(8);
        let (mut writer, write_error) = HostWriter::new(ours);
        drop(host);
        assert!(writer.write_all(b"lost").await.is_err());
        let reported = write_error.await.expect("the error is reported");
        assert_eq!(reported.kind(), ErrorKind::BrokenPipe);
    }
}
