//! Connection wrapper that inspects the first bytes received. A TLS 1.3 server rejects a client
//! certificate only after the handshake, and a TLS listener responds to a client without TLS with
//! an alert. The bytes are passed on unchanged.

use super::auth_channel::TlsAlertFlag;
use super::tls_error::TlsError;
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
    /// Report of the first bytes or of the error, for a connection with TLS.
    pub first_bytes: Option<FirstBytes>,
}

/// Receives a report of the first bytes of a TLS connection, or its error.
pub type FirstBytes = oneshot::Receiver<Result<(), TlsError>>;

/// Action for the first bytes.
enum ProbeState {
    /// Record an alert.
    DetectAlert(TlsAlertFlag),
    /// Report that bytes came, or the error.
    ReportFirstBytes(oneshot::Sender<Result<(), TlsError>>),
    Done,
}

impl TlsProbeIo {
    /// Wraps a connection without TLS.
    pub fn plain(io: impl ByteStream + 'static, alert: TlsAlertFlag) -> Self {
        Self {
            io: Box::new(io),
            state: ProbeState::DetectAlert(alert),
            first_bytes: None,
        }
    }

    /// Wraps a connection with TLS.
    pub fn tls(io: impl ByteStream + 'static) -> Self {
        let (sender, first_bytes) = oneshot::channel();
        Self {
            io: Box::new(io),
            state: ProbeState::ReportFirstBytes(sender),
            first_bytes: Some(first_bytes),
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
                    Ok(()) => Err(TlsError::ConnectionClosed),
                    Err(error) => Err(TlsError::from_io_error(error)),
                };
                // The receiver is gone after a timeout.
                drop(sender.send(first_bytes));
            }
        }

        Poll::Ready(read)
    }
}

impl AsyncWrite for TlsProbeIo {
    delegate_async_write!(|me| me.io);
}
