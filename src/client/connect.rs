//! Opens channels to daemons.

use super::auth_channel::TlsAlertFlag;
use super::credentials::ClientCredentials;
use super::tls_error::TlsError;
use super::tls_probe::TlsProbeIo;
use crate::net::endpoint::{DaemonEndpoint, EndpointAddress, ProcessEnv, default_sockets};
use crate::proto::caproot::v1::capability_service_client::CapabilityServiceClient;
use hyper::rt;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use std::error::Error;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::oneshot;
use tokio_rustls::TlsConnector;
use tonic::Status;
use tonic::transport::{self, Channel, Uri};
use tower::{Service, ServiceExt as _};

/// Failure to open a channel. Displays as one sentence.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// No daemon listens at the endpoint.
    #[error("no daemon answers at {endpoint}: {cause}")]
    NoDaemon {
        /// Endpoint of the attempt.
        endpoint: DaemonEndpoint,
        /// Error of the operating system.
        cause: String,
    },
    /// The socket exists, but this user may not use it.
    #[error("this user may not use the socket {endpoint}")]
    NotPermitted {
        /// Endpoint of the attempt.
        endpoint: DaemonEndpoint,
    },
    /// The server accepts connections, but TLS fails.
    #[error("{endpoint} cannot be used: {error}")]
    Tls {
        /// Endpoint of the attempt.
        endpoint: DaemonEndpoint,
        /// TLS failure.
        error: TlsError,
    },
    /// A credential file or a name in the credentials cannot be used.
    #[error("{0}")]
    Credentials(String),
    /// There is a token, but the connection is neither encrypted nor local.
    #[error("the token is not sent to {endpoint}: an attacker on the network could read it")]
    TokenInCleartext {
        /// Endpoint of the attempt.
        endpoint: DaemonEndpoint,
    },
    /// No daemon answers at a default socket.
    #[error("no daemon answers at any of the default sockets: {}", join_paths(tried))]
    NoDefault {
        /// Default sockets, in the order of the attempts.
        tried: Vec<PathBuf>,
    },
}

fn join_paths(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// Connects a generated service client to `endpoint` within `timeout`.
pub async fn connect(
    endpoint: &DaemonEndpoint,
    timeout: Duration,
) -> Result<CapabilityServiceClient<Channel>, ConnectError> {
    open_channel(endpoint, timeout).await.map(CapabilityServiceClient::new)
}

/// Opens a channel to `endpoint` without credentials, for any service, within `timeout`.
pub async fn open_channel(
    endpoint: &DaemonEndpoint,
    timeout: Duration,
) -> Result<Channel, ConnectError> {
    let opened =
        open_channel_with(endpoint, &ClientCredentials::default(), timeout, ConnectMode::Eager)
            .await;
    opened.map(|(channel, _)| channel)
}

/// Time of the first connection. A lost connection is opened again in both modes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectMode {
    /// Before the channel is returned. Without a connection there is no channel.
    Eager,
    /// With the first call, and with each later call while there is no connection.
    Lazy,
}

/// Opens a channel with credentials, and returns the flag of its TLS alerts. The channel itself
/// adds no token. If a token is set and the connection is neither encrypted nor local, opening
/// fails.
pub async fn open_channel_with(
    endpoint: &DaemonEndpoint,
    credentials: &ClientCredentials,
    timeout: Duration,
    mode: ConnectMode,
) -> Result<(Channel, TlsAlertFlag), ConnectError> {
    let (credentials, alert) = (credentials.clone(), TlsAlertFlag::default());
    let open = async {
        match endpoint.address() {
            EndpointAddress::Unix(path) => unix_channel(path.clone(), mode).await,
            EndpointAddress::Tcp(address) => {
                tcp_channel(address, credentials, alert.clone(), mode).await
            }
            EndpointAddress::Tls(address) => tls_channel(address, credentials, mode).await,
        }
    };
    let late = || {
        let span = humantime::format_duration(timeout);
        ConnectorError::Io(io::Error::new(
            ErrorKind::TimedOut,
            format!("no connection within {span}"),
        ))
    };
    let opened = tokio::time::timeout(timeout, open).await;
    let endpoint = endpoint.clone();
    Err(match opened.unwrap_or_else(|_| Err(late())) {
        Ok(channel) => return Ok((channel, alert)),
        Err(ConnectorError::Tls(error)) => ConnectError::Tls { endpoint, error },
        Err(ConnectorError::Credentials(sentence)) => ConnectError::Credentials(sentence),
        Err(ConnectorError::TokenInCleartext) => ConnectError::TokenInCleartext { endpoint },
        Err(ConnectorError::Io(cause)) if cause.kind() == ErrorKind::PermissionDenied => {
            ConnectError::NotPermitted { endpoint }
        }
        Err(ConnectorError::Io(cause)) => {
            ConnectError::NoDaemon { endpoint, cause: cause.to_string() }
        }
    })
}

/// Failure of a connection attempt.
#[derive(Debug, thiserror::Error)]
enum ConnectorError {
    #[error("{0}")]
    Io(#[source] io::Error),
    #[error("{0}")]
    Tls(TlsError),
    #[error("{0}")]
    Credentials(String),
    #[error("the token would be sent over a connection that others can read")]
    TokenInCleartext,
}

async fn unix_channel(path: PathBuf, mode: ConnectMode) -> Result<Channel, ConnectorError> {
    // HTTP/2 requires an authority. gRPC servers accept `localhost` on a Unix socket.
    let connector = tower::service_fn(move |_: Uri| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    });
    let endpoint = transport::Endpoint::from_static("http://localhost");
    connect_channel(endpoint, connector, mode).await
}

async fn tcp_channel(
    address: &str,
    credentials: ClientCredentials,
    alert: TlsAlertFlag,
    mode: ConnectMode,
) -> Result<Channel, ConnectorError> {
    let has_token = credentials.token_file.is_some();
    let connector = tower::service_fn(move |uri: Uri| {
        let alert = alert.clone();
        async move {
            let stream = connect_tcp(uri).await?;
            // The check uses the connected address, because a name may resolve to any address.
            if has_token && !stream.peer_addr()?.ip().to_canonical().is_loopback() {
                return Err(ConnectorError::TokenInCleartext.into());
            }
            Ok::<_, BoxError>(TokioIo::new(TlsProbeIo::plain(stream, alert)))
        }
    });
    let endpoint = transport::Endpoint::from_shared(format!("http://{address}"))
        .map_err(|error| connector_error(&error))?;
    connect_channel(endpoint, connector, mode).await
}

async fn tls_channel(
    address: &str,
    credentials: ClientCredentials,
    mode: ConnectMode,
) -> Result<Channel, ConnectorError> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host).to_owned();
    let (tell, first_bytes) = oneshot::channel();
    // The sender is for the first connection. On later connections the calls report the failure.
    let tell = Arc::new(Mutex::new(Some(tell)));
    let connector = tower::service_fn(move |uri: Uri| {
        let (host, credentials, tell) = (host.clone(), credentials.clone(), tell.clone());
        async move {
            let name =
                credentials.expected_server_name(&host).map_err(ConnectorError::Credentials)?;
            let config = tokio::task::spawn_blocking(move || credentials.client_config());
            let config = config.await?.map_err(ConnectorError::Credentials)?;
            let stream = connect_tcp(uri).await?;
            let shaken = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
            let stream =
                shaken.map_err(|error| ConnectorError::Tls(TlsError::from_io_error(&error)))?;
            if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
                return Err(ConnectorError::Tls(TlsError::NotHttp2).into());
            }
            let tell = tell.lock().unwrap_or_else(PoisonError::into_inner).take();
            Ok::<_, BoxError>(TokioIo::new(TlsProbeIo::tls(stream, tell)))
        }
    });
    let endpoint = transport::Endpoint::from_shared(format!("https://{address}"))
        .map_err(|error| connector_error(&error))?;
    let channel = connect_channel(endpoint, connector, mode).await?;
    if mode == ConnectMode::Lazy {
        return Ok(channel);
    }
    // In TLS 1.3 the server checks the client certificate after the client's handshake is complete.
    match first_bytes.await {
        Ok(Ok(())) => Ok(channel),
        Ok(Err(error)) => Err(ConnectorError::Tls(TlsError::from_io_error(&error))),
        Err(_) => Err(ConnectorError::Tls(TlsError::ConnectionClosed)),
    }
}

type BoxError = Box<dyn Error + Send + Sync>;

/// Builds the channel on the connector.
async fn connect_channel<C>(
    endpoint: transport::Endpoint,
    connector: C,
    mode: ConnectMode,
) -> Result<Channel, ConnectorError>
where
    C: Service<Uri> + Send + 'static,
    C::Response: rt::Read + rt::Write + Send + Unpin,
    C::Future: Send,
    BoxError: From<C::Error> + Send,
{
    match mode {
        ConnectMode::Eager => endpoint
            .connect_with_connector(connector)
            .await
            .map_err(|error| connector_error(&error)),
        ConnectMode::Lazy => Ok(endpoint.connect_with_connector_lazy(connector)),
    }
}

/// Connects to the host by any of its IPv4 and IPv6 addresses.
async fn connect_tcp(uri: Uri) -> Result<TcpStream, BoxError> {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    connector.enforce_http(false);
    Ok(connector.oneshot(uri).await?.into_inner())
}

/// Returns the innermost error of tonic's error: a connector error or an error of the operating
/// system.
fn connector_error(error: &transport::Error) -> ConnectorError {
    root_cause(error).unwrap_or_else(|| ConnectorError::Io(io::Error::other(error.to_string())))
}

/// Returns the connection failure that made the call fail, if there is one.
pub fn connection_failure(status: &Status) -> Option<String> {
    let error = root_cause(status.source()?)?;
    Some(error.to_string())
}

/// Whether a call failed without a connection for a reason that the operating system reports at
/// once: the socket is missing, this user may not use the socket, or the connection is refused.
pub fn is_connection_refused(status: &Status) -> bool {
    let refusals = [ErrorKind::NotFound, ErrorKind::ConnectionRefused, ErrorKind::PermissionDenied];
    let error = status.source().and_then(root_cause);
    matches!(error, Some(ConnectorError::Io(cause)) if refusals.contains(&cause.kind()))
}

fn root_cause(error: &(dyn Error + 'static)) -> Option<ConnectorError> {
    let mut below = Some(error);
    while let Some(error) = below {
        match error.downcast_ref::<ConnectorError>() {
            Some(ConnectorError::Tls(error)) => return Some(ConnectorError::Tls(error.clone())),
            Some(ConnectorError::Credentials(sentence)) => {
                return Some(ConnectorError::Credentials(sentence.clone()));
            }
            Some(ConnectorError::TokenInCleartext) => {
                return Some(ConnectorError::TokenInCleartext);
            }
            Some(ConnectorError::Io(_)) | None => {}
        }
        if let Some(io) = error.downcast_ref::<io::Error>() {
            return Some(ConnectorError::Io(io::Error::new(io.kind(), io.to_string())));
        }
        below = error.source();
    }
    None
}

/// Returns the endpoints of the default sockets in the order in which they are tried. Paths that
/// are invalid for a socket are omitted.
#[must_use]
pub fn default_endpoints(env: &ProcessEnv) -> Vec<DaemonEndpoint> {
    default_sockets(env).into_iter().filter_map(|path| DaemonEndpoint::unix(path).ok()).collect()
}

/// Returns the first default socket that accepts a connection within `timeout`. If none accepts,
/// the error names a socket that this user may not use, if there is one.
pub async fn find_default_endpoint(
    env: &ProcessEnv,
    timeout: Duration,
) -> Result<DaemonEndpoint, ConnectError> {
    let mut forbidden = None;
    for endpoint in default_endpoints(env) {
        let EndpointAddress::Unix(path) = endpoint.address() else { continue };
        if path.starts_with(&env.temp_dir) && !is_in_own_directory(path, env.uid) {
            continue;
        }
        match tokio::time::timeout(timeout, UnixStream::connect(path)).await {
            Ok(Ok(_)) => return Ok(endpoint),
            Ok(Err(error)) if error.kind() == ErrorKind::PermissionDenied => {
                forbidden.get_or_insert(endpoint);
            }
            Ok(Err(_)) | Err(_) => {}
        }
    }
    Err(match forbidden {
        Some(endpoint) => ConnectError::NotPermitted { endpoint },
        None => ConnectError::NoDefault { tried: default_sockets(env) },
    })
}

/// Whether the socket's directory belongs to the user. Every user can create a directory in the
/// temporary directory, and could run a false daemon there.
fn is_in_own_directory(socket: &Path, uid: u32) -> bool {
    let directory = socket.parent().and_then(|directory| directory.symlink_metadata().ok());
    directory.is_some_and(|found| found.is_dir() && found.uid() == uid)
}
