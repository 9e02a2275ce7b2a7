//! Transport over stdin and stdout. If too many responses are not yet written, the transport reads
//! no further request, so that a client that does not read takes no memory. If stdout cannot be
//! written, the server ends.

use super::limits::{HOST_READ_TIMEOUT, MAX_REQUEST_BYTES, MAX_STDIO_REQUESTS};
use super::response_turn::ResponseTurn;
use futures_util::future::BoxFuture;
use rmcp::model::{ClientNotification, GetExtensions as _, JsonRpcMessage, RequestId};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::{StdioReader, StdioWriter, Transport, stdio_pipes};
use rmcp::{RoleServer, Service, ServiceExt as _};
use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::mem::take;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Sleep, sleep};

/// Writer to stdout, for the transport and the SDK.
type HostOutput = Arc<Mutex<HostWriter<StdioWriter>>>;

/// Serves one host on stdin and stdout until stdin ends. Returns the error if stdout cannot be
/// written.
pub async fn serve_stdio(service: impl Service<RoleServer>) -> io::Result<()> {
    let (stdin, stdout) = stdio_pipes();
    let (writer, mut write_error) = HostWriter::new(stdout);
    let writer = Arc::new(Mutex::new(writer));
    let errors = ErrorWriter {
        writer: writer.clone(),
        line: Vec::new(),
        writing: None,
    };
    let lines = AsyncRwTransport::new_server(stdin, errors);
    let transport = LimitedTransport {
        inner: lines.with_max_line_length(MAX_REQUEST_BYTES),
        writer,
        permits: Arc::new(Semaphore::new(MAX_STDIO_REQUESTS)),
        next_permit: None,
        in_flight: HashMap::new(),
    };

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

/// Writer to a host. Fails if the host takes no byte for [`HOST_READ_TIMEOUT`].
pub struct HostWriter<W> {
    inner: W,
    /// Runs while a write waits for the host.
    stalled: Option<Pin<Box<Sleep>>>,
    /// Receives the first error; the SDK goes on after an error.
    write_error: Option<oneshot::Sender<io::Error>>,
}

impl<W: AsyncWrite + Unpin> HostWriter<W> {
    /// Returns the writer, and the receiver of its first error.
    pub fn new(inner: W) -> (Self, oneshot::Receiver<io::Error>) {
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

        // An I/O error cannot be cloned: the server gets the error, and the SDK gets its kind.
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

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let me = self.get_mut();
        let written = Pin::new(&mut me.inner).poll_write_vectored(context, slices);
        me.check_progress(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
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

impl<W: AsyncRead + Unpin> AsyncRead for HostWriter<W> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_read(context, buffer)
    }
}

async fn write_line(writer: HostOutput, line: Vec<u8>) -> io::Result<()> {
    let mut writer = writer.lock().await;
    writer.write_all(&line).await?;
    writer.flush().await
}

/// Writer of the SDK, for its responses to invalid lines. The SDK would never free the buffer of a large
/// response, so [`LimitedTransport`] writes all others.
struct ErrorWriter {
    writer: HostOutput,
    line: Vec<u8>,
    /// Write of the last line.
    writing: Option<BoxFuture<'static, io::Result<()>>>,
}

impl AsyncWrite for ErrorWriter {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().line.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    /// Writes the line as a whole, so that no other response comes between its bytes.
    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        if me.writing.is_none() && me.line.is_empty() {
            return Poll::Ready(Ok(()));
        }
        let writing = me
            .writing
            .get_or_insert_with(|| Box::pin(write_line(me.writer.clone(), take(&mut me.line))));
        let written = ready!(writing.as_mut().poll(context));
        me.writing = None;
        Poll::Ready(written)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(context)
    }
}

/// Transport with a limited number of requests in flight.
struct LimitedTransport {
    /// Reads the requests.
    inner: AsyncRwTransport<RoleServer, StdioReader, ErrorWriter>,
    writer: HostOutput,
    permits: Arc<Semaphore>,
    /// Permit of the next request.
    next_permit: Option<OwnedSemaphorePermit>,
    /// Permits of the requests in flight, with the turns of large files.
    in_flight: HashMap<RequestId, (OwnedSemaphorePermit, ResponseTurn)>,
}

impl Transport<RoleServer> for LimitedTransport {
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let id = match &message {
            JsonRpcMessage::Response(response) => Some(&response.id),
            JsonRpcMessage::Error(error) => error.id.as_ref(),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
        };
        let permit = id.and_then(|id| self.in_flight.remove(id));
        let writer = self.writer.clone();
        async move {
            let mut line = serde_json::to_vec(&message)?;
            line.push(b'\n');
            // A large response is in memory once while the host reads.
            drop(message);
            let outcome = write_line(writer, line).await;
            // The permit lasts until here, because the response is in memory until then.
            drop(permit);
            outcome
        }
    }

    /// Cancel-safe.
    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        // The transport keeps the permit, so that a dropped call does not lose the permit.
        if self.next_permit.is_none() {
            self.next_permit = self.permits.clone().acquire_owned().await.ok();
        }

        let mut message = self.inner.receive().await?;

        match &mut message {
            JsonRpcMessage::Request(request) => {
                let permit = self.next_permit.take()?;
                let turn = ResponseTurn::default();
                request.request.extensions_mut().insert(turn.clone());
                self.in_flight.insert(request.id.clone(), (permit, turn));
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

    async fn close(&mut self) -> io::Result<()> {
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
