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
use std::path::Path;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio_rustls::TlsConnector;
use tonic::transport::{self, Uri};
use tower::ServiceExt as _;

/// Error of any library below a connection.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// Receives the first bytes of a TLS connection, or its error.
pub type FirstBytesSender = oneshot::Sender<io::Result<()>>;

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

/// Opens a stream to the address. A TLS handshake uses the credentials, and the first bytes after
/// it are reported to `first_bytes`. A stream without TLS records a TLS alert in `alert`.
pub async fn open_stream(
    address: &EndpointAddress,
    credentials: &ClientCredentials,
    alert: TlsAlertFlag,
    first_bytes: Option<FirstBytesSender>,
) -> Result<TlsProbeIo, ConnectorError> {
    match address {
        EndpointAddress::Unix(path) => {
            let stream = connect_unix(path).await?;
            check_socket_user(&stream, credentials)?;
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
            let dial = connect_tcp(address);
            start_tls(address, credentials, dial, first_bytes).await
        }
    }
}

/// Makes the TLS handshake with the daemon at `HOST:PORT` in the stream of `dial`. The credential
/// files are read before the stream is opened.
pub async fn start_tls(
    address: &str,
    credentials: &ClientCredentials,
    dial: impl Future<Output = Result<impl ByteStream + 'static, ConnectorError>>,
    first_bytes: Option<FirstBytesSender>,
) -> Result<TlsProbeIo, ConnectorError> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let name = credentials
        .expected_server_name(host)
        .map_err(ConnectorError::Credentials)?;
    let files = credentials.clone();
    let config = tokio::task::spawn_blocking(move || files.client_config())
        .await
        .map_err(io::Error::other)?
        .map_err(ConnectorError::Credentials)?;

    let stream = dial.await?;
    let shaken = TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await;
    let stream = shaken.map_err(|error| ConnectorError::Tls(TlsError::from_io_error(&error)))?;

    // A server that does not know ALPN ignores the offer, and completes the handshake.
    if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
        return Err(ConnectorError::Tls(TlsError::NotHttp2));
    }
    Ok(TlsProbeIo::tls(stream, first_bytes))
}

/// Rejects a socket that another user serves. The kernel has the user who called listen(2): unix(7).
#[cfg(unix)]
fn check_socket_user(
    stream: &tokio::net::UnixStream,
    credentials: &ClientCredentials,
) -> Result<(), ConnectorError> {
    let Some(users) = &credentials.socket_users else {
        return Ok(());
    };
    match stream.peer_cred()?.uid() {
        user if users.contains(&user) => Ok(()),
        user => Err(ConnectorError::SocketUser(user)),
    }
}

#[cfg(not(unix))]
fn check_socket_user(_: &TcpStream, _: &ClientCredentials) -> Result<(), ConnectorError> {
    Ok(())
}

#[cfg(unix)]
async fn connect_unix(path: &Path) -> io::Result<tokio::net::UnixStream> {
    tokio::net::UnixStream::connect(path).await
}

#[cfg(not(unix))]
#[allow(clippy::unused_async)] // On Unix, the function connects.
async fn connect_unix(_: &Path) -> io::Result<TcpStream> {
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
    let mut below = Some(error);
    while let Some(error) = below {
        if let Some(error) = error.downcast_ref::<ConnectorError>() {
            return Some(error.clone());
        }
        if let Some(io) = error.downcast_ref::<io::Error>() {
            return Some(io::Error::new(io.kind(), io.to_string()).into());
        }
        below = error.source();
    }
    None
}
