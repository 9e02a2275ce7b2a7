//! TLS handshake of a connection, within a time limit.

use super::connection::PeerConnection;
use super::tls::{ALPN, ReloadableTls};
use crate::daemon::model::PeerIdentity;
use caproot_core::net::certs;
use rustls::{CertificateError, Error, InvalidMessage};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;

/// Longest duration of a handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest time for which a closed connection lingers, until the peer has read the last bytes.
const LINGER_TIMEOUT: Duration = Duration::from_secs(1);
/// Most bytes that are read from a lingering connection.
const MAX_LINGER_BYTES: u64 = 1 << 16;

/// Does the handshake, and logs its failure.
pub async fn accept_tls(
    tls: &ReloadableTls,
    stream: TcpStream,
    address: SocketAddr,
) -> io::Result<PeerConnection> {
    let handshake = tls.acceptor().accept(stream).into_fallible();

    match timeout(HANDSHAKE_TIMEOUT, handshake).await {
        Ok(Ok(stream)) if stream.get_ref().1.alpn_protocol() == Some(ALPN) => {
            let names = certificate_names(&stream, address);
            tracing::debug!(%address, names = names.join(", "), "connected over TLS");
            let peer = PeerIdentity::Remote { address, names };
            Ok(PeerConnection::new(stream, peer))
        }
        Ok(Ok(mut stream)) => {
            tracing::debug!(%address, "the client does not offer HTTP/2 over TLS (ALPN h2)");
            let _ = timeout(LINGER_TIMEOUT, stream.shutdown()).await;
            Err(io::ErrorKind::InvalidData.into())
        }
        Ok(Err((error, stream))) => {
            log(tls, address, &error);
            lingering_close(stream).await;
            Err(error)
        }
        Err(_) => {
            tracing::debug!(%address, "TLS handshake timed out after {HANDSHAKE_TIMEOUT:?}");
            Err(io::ErrorKind::TimedOut.into())
        }
    }
}

/// Closes a connection so that the peer receives the last bytes, which describe the error. Closing
/// a socket with unread bytes resets the connection, and the peer may lose the last bytes.
pub async fn lingering_close(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let drain = async {
        if stream.shutdown().await.is_ok() {
            let rest = &mut stream.take(MAX_LINGER_BYTES);
            let _ = tokio::io::copy(rest, &mut tokio::io::sink()).await;
        }
    };
    let _ = timeout(LINGER_TIMEOUT, drain).await;
}

fn log(tls: &ReloadableTls, address: SocketAddr, error: &io::Error) {
    let Some(cause) = cause(error) else {
        tracing::debug!(%address, "TLS handshake failed: {error}");
        return;
    };
    if let Ok(suppressed) = tls
        .handshake_log
        .record_keyed_event((address.ip(), cause.clone()))
    {
        tracing::warn!(%address, suppressed, "TLS handshake rejected: {cause}");
    } else {
        tracing::debug!(%address, "TLS handshake rejected again: {cause}");
    }
}

/// Describes an error that the operator or the user of the client can fix.
fn cause(error: &io::Error) -> Option<String> {
    match error.get_ref()?.downcast_ref::<Error>()? {
        // The first byte is the type of a TLS record, which no text protocol starts with.
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            Some("the client does not speak TLS, which this port requires".to_owned())
        }
        Error::NoCertificatesPresented => Some("the client presents no certificate".to_owned()),
        Error::InvalidCertificate(reason) => Some(format!(
            "the client certificate is invalid: {}",
            certificate_problem(reason)
        )),
        _ => None,
    }
}

/// Describes an invalid certificate. The texts of rustls are names of Rust variants.
fn certificate_problem(error: &CertificateError) -> String {
    let text = match error {
        CertificateError::UnknownIssuer => "no authority in `tls.client_ca` issued it",
        CertificateError::BadSignature => {
            "its signature is not by the authority of this name in `tls.client_ca`"
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "it has expired",
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "it is not valid yet"
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "its extended key usage does not include client authentication"
        }
        CertificateError::BadEncoding => "it is not valid DER",
        CertificateError::UnhandledCriticalExtension => "it has an unknown critical extension",
        CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "its signature algorithm is not supported"
        }
        other if certs::is_authority_as_end_entity(other) => {
            "it is the certificate of an authority (CA:TRUE); issue the client a certificate of its \
             own, with CA:FALSE"
        }
        other => return other.to_string(),
    };
    text.to_owned()
}

/// Returns the names in the verified certificate of the client.
fn certificate_names(stream: &TlsStream<TcpStream>, address: SocketAddr) -> Arc<[String]> {
    let names = stream
        .get_ref()
        .1
        .peer_certificates()
        .and_then(<[_]>::first)
        .map(|certificate| certs::subject_names(certificate))
        .transpose();
    match names {
        Ok(names) => names.unwrap_or_default().into(),
        Err(reason) => {
            tracing::warn!(%address, "the names of a client certificate are ignored: {reason}");
            Arc::default()
        }
    }
}
