//! Opens byte streams to daemons: a Unix socket, TCP, or TLS inside TCP or inside a stream that
//! the program opened.

use super::auth_channel::TlsAlertFlag;
use super::credentials::ClientCredentials;
use super::tls_error::TlsError;
use super::tls_probe::TlsProbeIo;
use caproot_core::net::byte_stream::ByteStream;
use caproot_core::net::endpoint::EndpointAddress;
use hyper_util::client::legacy::connect::HttpConnector;
use std::error::Error;
use std::io;
use std::iter;
use std::path::Path;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::transport::{self, Uri};
use tower::ServiceExt as _;

/// Failure of a connection attempt.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ConnectorError {
    #[error("{0}")]
    Io(Arc<io::Error>),
    #[error("{0}")]
    Tls(TlsError),
    #[error("{0}")]
    Credentials(String),
    /// The user with this id serves the socket.
    #[cfg(unix)]
    #[error("the user {0} serves the socket, and is not trusted")]
    SocketUser(u32),
    #[error("the token would be sent over a connection that others can read")]
    TokenInCleartext,
    /// No registry names an executor for the environment.
    #[error("{0}")]
    UnknownExecutor(String),
    /// The registry cannot be asked now.
    #[error("{0}")]
    Lookup(String),
}

impl From<transport::Error> for ConnectorError {
    fn from(error: transport::Error) -> Self {
        find_connector_error(&error)
    }
}

impl From<io::Error> for ConnectorError {
    fn from(error: io::Error) -> Self {
        Self::Io(Arc::new(error))
    }
}

/// Opens a stream to the address. A TLS handshake uses the credentials. A stream without TLS records
/// a TLS alert in `alert`.
pub async fn open_stream(
    address: &EndpointAddress,
    credentials: &ClientCredentials,
    alert: TlsAlertFlag,
) -> Result<TlsProbeIo, ConnectorError> {
    match address {
        EndpointAddress::Unix(path) => {
            let stream = connect_unix(path, credentials).await?;
            Ok(TlsProbeIo::plain(stream, alert))
        }
        EndpointAddress::Tcp(address) => {
            let stream = connect_tcp(address).await?;
            // The check uses the connected address, because a name may resolve to any address.
            let is_local = stream.peer_addr()?.ip().to_canonical().is_loopback();
            if credentials.token.is_some() && !is_local {
                return Err(ConnectorError::TokenInCleartext);
            }
            Ok(TlsProbeIo::plain(stream, alert))
        }
        EndpointAddress::Tls(address) => {
            start_tls(address, credentials, connect_tcp(address)).await
        }
    }
}

/// Makes the TLS handshake with the daemon at `HOST:PORT` in the stream of `dial`. The credential
/// files are read before the stream is opened.
pub async fn start_tls(
    address: &str,
    credentials: &ClientCredentials,
    dial: impl Future<Output = Result<impl ByteStream + 'static, ConnectorError>>,
) -> Result<TlsProbeIo, ConnectorError> {
    let settings = credentials.read_tls_settings(address).await;
    let settings = settings.map_err(ConnectorError::Credentials)?;

    let stream = dial.await?;
    let shaken = TlsConnector::from(Arc::new(settings.config))
        .connect(settings.server_name, stream)
        .await;
    let stream = shaken.map_err(|error| ConnectorError::Tls(TlsError::from_io_error(&error)))?;

    // A server that does not know ALPN ignores the offer, and completes the handshake.
    if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
        return Err(ConnectorError::Tls(TlsError::NotHttp2));
    }
    Ok(TlsProbeIo::tls(stream))
}

/// Connects to a socket, unless another user serves it. The kernel has the user who called
/// listen(2): unix(7).
#[cfg(unix)]
async fn connect_unix(
    path: &Path,
    credentials: &ClientCredentials,
) -> Result<tokio::net::UnixStream, ConnectorError> {
    let stream = tokio::net::UnixStream::connect(path).await?;
    if let Some(users) = &credentials.socket_users {
        let user = stream.peer_cred()?.uid();
        if !users.contains(&user) {
            return Err(ConnectorError::SocketUser(user));
        }
    }
    Ok(stream)
}

#[cfg(not(unix))]
#[allow(clippy::unused_async)] // On Unix, the function connects.
async fn connect_unix(_: &Path, _: &ClientCredentials) -> io::Result<TcpStream> {
    let reason = "this system has no Unix sockets; use a tcp: or tls: endpoint";
    Err(io::Error::new(io::ErrorKind::Unsupported, reason))
}

/// Connects to `HOST:PORT` by any of the host's IPv4 and IPv6 addresses.
async fn connect_tcp(address: &str) -> Result<TcpStream, ConnectorError> {
    let uri = format!("http://{address}")
        .parse::<Uri>()
        .map_err(io::Error::other)?;
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let stream = connector
        .oneshot(uri)
        .await
        .map_err(|error| find_connector_error(&error))?;
    Ok(stream.into_inner())
}

/// Returns the innermost error of a library's error: a connector error or an error of the operating
/// system.
pub fn find_connector_error(error: &(dyn Error + 'static)) -> ConnectorError {
    root_cause(error).unwrap_or_else(|| io::Error::other(error.to_string()).into())
}

/// Returns the connector error or the error of the operating system below an error.
pub fn root_cause(error: &(dyn Error + 'static)) -> Option<ConnectorError> {
    iter::successors(Some(error), |&error| error.source()).find_map(|error| {
        if let Some(error) = error.downcast_ref::<ConnectorError>() {
            return Some(error.clone());
        }
        let io = error.downcast_ref::<io::Error>()?;
        Some(io::Error::new(io.kind(), io.to_string()).into())
    })
}
