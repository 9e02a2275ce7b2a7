//! Connection wrapper that inspects the first bytes received. A TLS 1.3 server rejects a client
//! certificate only after the handshake, and a TLS listener responds to a client without TLS with
//! an alert. The bytes are passed on unchanged.

use super::auth_channel::TlsAlertFlag;
use caproot_core::delegate_async_write;
use caproot_core::net::byte_stream::ByteStream;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;

/// First bytes of a TLS alert record (RFC 8446, 5.1). An HTTP/2 frame with these bytes would exceed
/// the maximum frame length.
const TLS_ALERT_PREFIX: [u8; 2] = [21, 3];

/// Connection that inspects the first bytes received.
pub struct TlsProbeIo {
    io: Box<dyn ByteStream>,
    state: ProbeState,
}

/// Action for the first bytes.
enum ProbeState {
    /// Record an alert.
    DetectAlert(TlsAlertFlag),
    /// Report that bytes came, or the error.
    ReportFirstBytes(oneshot::Sender<io::Result<()>>),
    Done,
}

impl TlsProbeIo {
    /// Wraps a connection without TLS.
    pub fn plain(io: impl ByteStream + 'static, alert: TlsAlertFlag) -> Self {
        Self {
            io: Box::new(io),
            state: ProbeState::DetectAlert(alert),
        }
    }

    /// Wraps a connection with TLS. The first bytes, or the error, are reported to `first_bytes`.
    pub fn tls(
        io: impl ByteStream + 'static,
        first_bytes: Option<oneshot::Sender<io::Result<()>>>,
    ) -> Self {
        Self {
            io: Box::new(io),
            state: first_bytes.map_or(ProbeState::Done, ProbeState::ReportFirstBytes),
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
            ProbeState::ReportFirstBytes(sender) => {
                let first_bytes = match &read {
                    Ok(()) if buffer.filled().len() > before => Ok(()),
                    Ok(()) => Err(io::ErrorKind::UnexpectedEof.into()),
                    Err(error) => Err(copy(error)),
                };
                // The receiver is gone after a timeout.
                drop(sender.send(first_bytes));
            }
        }

        Poll::Ready(read)
    }
}

/// Copies an error. An inner rustls error is kept.
fn copy(error: &io::Error) -> io::Error {
    match error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>())
    {
        Some(inner) => io::Error::new(error.kind(), inner.clone()),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}

impl AsyncWrite for TlsProbeIo {
    delegate_async_write!(|me| me.io);
}
