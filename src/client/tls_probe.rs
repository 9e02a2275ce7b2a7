//! A connection that tells how its first bytes were: over TLS 1.3 a daemon refuses a certificate only
//! after the handshake, and to a plain client a TLS listener answers with an alert. Changes no byte.

use super::auth_channel::TlsAlertFlag;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;

/// How a TLS alert record begins: RFC 8446, 5.1. An HTTP/2 frame of that length would be too large.
const TLS_ALERT_PREFIX: [u8; 2] = [21, 3];

/// What bytes go over.
pub(super) trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// A connection of which nothing was read yet, and then any.
pub(super) struct TlsProbeIo {
    io: Box<dyn ByteStream>,
    state: ProbeState,
}

/// What is to be done with the first bytes.
enum ProbeState {
    /// Note whether they are an alert.
    DetectAlert(TlsAlertFlag),
    /// Tell that they came, or why they cannot.
    ReportFirstBytes(oneshot::Sender<io::Result<()>>),
    Done,
}

impl TlsProbeIo {
    /// A connection without TLS, whose other end may want it.
    pub(super) fn plain(io: impl ByteStream + 'static, alert: TlsAlertFlag) -> Self {
        Self { io: Box::new(io), state: ProbeState::DetectAlert(alert) }
    }

    /// A connection with TLS; where somebody waits, it is told of the first bytes.
    pub(super) fn tls(
        io: impl ByteStream + 'static,
        told: Option<oneshot::Sender<io::Result<()>>>,
    ) -> Self {
        Self {
            io: Box::new(io),
            state: told.map_or(ProbeState::Done, ProbeState::ReportFirstBytes),
        }
    }
}

impl AsyncRead for TlsProbeIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = ready!(Pin::new(&mut self.io).poll_read(context, buffer));
        match std::mem::replace(&mut self.state, ProbeState::Done) {
            ProbeState::Done => {}
            ProbeState::DetectAlert(alert) => {
                if buffer.filled()[before..].starts_with(&TLS_ALERT_PREFIX) {
                    alert.record_alert();
                }
            }
            ProbeState::ReportFirstBytes(teller) => {
                let told = match &read {
                    Ok(()) if buffer.filled().len() > before => Ok(()),
                    Ok(()) => Err(io::ErrorKind::UnexpectedEof.into()),
                    Err(error) => Err(copy(error)),
                };
                // Nobody listens any more after a deadline.
                drop(teller.send(told));
            }
        }
        Poll::Ready(read)
    }
}

/// The same error a second time, as far as TLS is concerned.
fn copy(error: &io::Error) -> io::Error {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(inner) => io::Error::new(error.kind(), inner.clone()),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}

impl AsyncWrite for TlsProbeIo {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}
