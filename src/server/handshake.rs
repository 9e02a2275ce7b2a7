//! From a TCP connection to one with TLS, in bounded time and without holding up others. Leaves what it
//! is served with to `tls`.

use super::connection::PeerConnection;
use super::tls::{ALPN, ReloadableTls};
use crate::certs;
use rustls::{Error, InvalidMessage};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// The longest that a handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest that is waited for the other end of a handshake that failed to hear so.
const LINGER_TIMEOUT: Duration = Duration::from_secs(1);
/// The most bytes that are taken from it meanwhile.
const MAX_LINGER_BYTES: u64 = 1 << 16;

/// Does the handshake. One that fails is logged here.
pub(super) async fn accept_tls(
    tls: &ReloadableTls,
    stream: TcpStream,
) -> io::Result<PeerConnection> {
    // Small answers must not wait for acknowledgements of earlier ones.
    stream.set_nodelay(true)?;
    let address = stream.peer_addr()?;
    let handshake = tls.acceptor().accept(stream).into_fallible();
    match tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake).await {
        Ok(Ok(stream)) if stream.get_ref().1.alpn_protocol() == Some(ALPN) => {
            let names = names(&stream, address);
            tracing::debug!(%address, ?names, "connected over TLS");
            Ok(PeerConnection::tls(stream, address, names))
        }
        Ok(Ok(mut stream)) => {
            tracing::debug!(%address, "a client does not offer HTTP/2 over TLS (ALPN h2)");
            let _ = tokio::time::timeout(LINGER_TIMEOUT, stream.shutdown()).await;
            Err(io::ErrorKind::InvalidData.into())
        }
        Ok(Err((error, stream))) => {
            log(tls, address, &error);
            lingering_close(stream).await;
            Err(error)
        }
        Err(_) => {
            tracing::debug!(%address, "a TLS handshake took over {HANDSHAKE_TIMEOUT:?}");
            Err(io::ErrorKind::TimedOut.into())
        }
    }
}

/// Lets what was sent last, which says what is wrong, arrive: a socket that is closed with bytes unread resets the
/// connection, and what was sent last may be lost.
pub(super) async fn lingering_close(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let hear = async {
        if stream.shutdown().await.is_ok() {
            let rest = &mut stream.take(MAX_LINGER_BYTES);
            let _ = tokio::io::copy(rest, &mut tokio::io::sink()).await;
        }
    };
    let _ = tokio::time::timeout(LINGER_TIMEOUT, hear).await;
}

fn log(tls: &ReloadableTls, address: SocketAddr, error: &io::Error) {
    let Some(cause) = cause(error) else {
        tracing::debug!(%address, "a TLS handshake failed: {error}");
        return;
    };
    if let Some(suppressed) = tls.handshake_log.record_failure(address.ip(), &cause) {
        tracing::warn!(%address, suppressed, "a client is turned away: {cause}");
    } else {
        tracing::debug!(%address, "a client is turned away again: {cause}");
    }
}

/// Names the mistake of a client that an operator or its user can correct.
fn cause(error: &io::Error) -> Option<String> {
    let error = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>())?;
    match error {
        // The first byte is the type of a TLS record; no plain text begins with one.
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            Some("it does not speak TLS, which this port requires".to_owned())
        }
        Error::NoCertificatesPresented => Some("it shows no certificate".to_owned()),
        Error::InvalidCertificate(why) => Some(format!("its certificate is refused: {why}")),
        _ => None,
    }
}

/// The names in the certificate that the client proved to hold.
fn names(stream: &TlsStream<TcpStream>, address: SocketAddr) -> Arc<[String]> {
    let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let names = certificate.map(|certificate| certs::subject_names(certificate)).transpose();
    match names {
        Ok(names) => names.unwrap_or_default().into(),
        Err(why) => {
            tracing::warn!(%address, "a client's certificate counts as one without names: {why}");
            Arc::default()
        }
    }
}
