//! Opens a channel to a daemon, or says why there is none. Leaves calls to `call`, and what is shown and
//! trusted to `credentials`.

use super::auth_channel::TlsAlertFlag;
use super::credentials::ClientCredentials;
use super::tls_error::TlsError;
use super::tls_probe::TlsProbeIo;
use crate::endpoint::{DaemonEndpoint, EndpointAddress, ProcessEnv, default_sockets};
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

/// Why there is no channel. Displays as one sentence.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Nothing listens there.
    #[error("no daemon answers at {endpoint}: {cause}")]
    NoDaemon {
        /// What was tried.
        endpoint: DaemonEndpoint,
        /// What the operating system said.
        cause: String,
    },
    /// The socket is there, and this user may not use it.
    #[error("this user may not use the socket {endpoint}")]
    NotPermitted {
        /// What was tried.
        endpoint: DaemonEndpoint,
    },
    /// Something answers, and there is no TLS with it.
    #[error("{endpoint} cannot be used: {fault}")]
    Tls {
        /// What was tried.
        endpoint: DaemonEndpoint,
        /// Why not.
        fault: TlsError,
    },
    /// A file of the credentials cannot be used, or a name in them.
    #[error("{0}")]
    Credentials(String),
    /// There is a token, and the way is open to others.
    #[error("the token is not sent to {endpoint}: anybody on the way could read it")]
    TokenInCleartext {
        /// What was tried.
        endpoint: DaemonEndpoint,
    },
    /// None of the default sockets answers.
    #[error("no daemon answers at any of the default sockets: {}", join_paths(tried))]
    NoDefault {
        /// What was tried, in order.
        tried: Vec<PathBuf>,
    },
}

fn join_paths(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// A client of the service at `endpoint`; at most `timeout` is spent on connecting.
pub async fn connect(
    endpoint: &DaemonEndpoint,
    timeout: Duration,
) -> Result<CapabilityServiceClient<Channel>, ConnectError> {
    open_channel(endpoint, timeout).await.map(CapabilityServiceClient::new)
}

/// A channel to `endpoint`, for any service, with nothing to show; at most `timeout` is spent on
/// connecting.
pub async fn open_channel(
    endpoint: &DaemonEndpoint,
    timeout: Duration,
) -> Result<Channel, ConnectError> {
    let opened =
        open_channel_with(endpoint, &ClientCredentials::default(), timeout, ConnectMode::Eager)
            .await;
    opened.map(|(channel, _)| channel)
}

/// When a channel connects. Lost connections are made anew by themselves either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectMode {
    /// Before anything else, or there is no channel.
    Eager,
    /// With the first call, and with each later one as long as there is no connection.
    Lazy,
}

/// The same with credentials, and what is heard there. Sends no token by itself, but is refused where
/// one could not be sent.
pub(super) async fn open_channel_with(
    endpoint: &DaemonEndpoint,
    credentials: &ClientCredentials,
    timeout: Duration,
    when: ConnectMode,
) -> Result<(Channel, TlsAlertFlag), ConnectError> {
    let (credentials, alert) = (credentials.clone(), TlsAlertFlag::default());
    let open = async {
        match endpoint.address() {
            EndpointAddress::Unix(path) => unix_channel(path.clone(), when).await,
            EndpointAddress::Tcp(address) => {
                tcp_channel(address, credentials, alert.clone(), when).await
            }
            EndpointAddress::Tls(address) => tls_channel(address, credentials, when).await,
        }
    };
    let late = || {
        let span = humantime::format_duration(timeout);
        ConnectorError::Io(io::Error::new(ErrorKind::TimedOut, format!("nothing within {span}")))
    };
    let opened = tokio::time::timeout(timeout, open).await;
    let endpoint = endpoint.clone();
    Err(match opened.unwrap_or_else(|_| Err(late())) {
        Ok(channel) => return Ok((channel, alert)),
        Err(ConnectorError::Tls(fault)) => ConnectError::Tls { endpoint, fault },
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

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
enum ConnectorError {
    #[error("{0}")]
    Io(#[source] io::Error),
    #[error("{0}")]
    Tls(TlsError),
    #[error("{0}")]
    Credentials(String),
    #[error("the token would be sent where others can read it")]
    TokenInCleartext,
}

async fn unix_channel(path: PathBuf, when: ConnectMode) -> Result<Channel, ConnectorError> {
    // HTTP/2 wants an authority; for a Unix socket every gRPC server takes this one.
    let connector = tower::service_fn(move |_: Uri| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    });
    let endpoint = transport::Endpoint::from_static("http://localhost");
    connect_channel(endpoint, connector, when).await
}

async fn tcp_channel(
    address: &str,
    credentials: ClientCredentials,
    alert: TlsAlertFlag,
    when: ConnectMode,
) -> Result<Channel, ConnectorError> {
    let has_token = credentials.token_file.is_some();
    let connector = tower::service_fn(move |uri: Uri| {
        let alert = alert.clone();
        async move {
            let stream = connect_tcp(uri).await?;
            // By the address that was reached, whatever its name promised.
            if has_token && !stream.peer_addr()?.ip().to_canonical().is_loopback() {
                return Err(ConnectorError::TokenInCleartext.into());
            }
            Ok::<_, BoxError>(TokioIo::new(TlsProbeIo::plain(stream, alert)))
        }
    });
    let endpoint = transport::Endpoint::from_shared(format!("http://{address}"))
        .map_err(|error| connector_error(&error))?;
    connect_channel(endpoint, connector, when).await
}

async fn tls_channel(
    address: &str,
    credentials: ClientCredentials,
    when: ConnectMode,
) -> Result<Channel, ConnectorError> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host).to_owned();
    let (tell, told) = oneshot::channel();
    // For the first connection; whoever waits for later ones waits for their calls.
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
    let channel = connect_channel(endpoint, connector, when).await?;
    if when == ConnectMode::Lazy {
        return Ok(channel);
    }
    // Over TLS 1.3 the other end looks at a client's certificate after the client is done.
    match told.await {
        Ok(Ok(())) => Ok(channel),
        Ok(Err(error)) => Err(ConnectorError::Tls(TlsError::from_io_error(&error))),
        Err(_) => Err(ConnectorError::Tls(TlsError::ConnectionClosed)),
    }
}

type BoxError = Box<dyn Error + Send + Sync>;

/// A channel that connects so.
async fn connect_channel<C>(
    endpoint: transport::Endpoint,
    connector: C,
    when: ConnectMode,
) -> Result<Channel, ConnectorError>
where
    C: Service<Uri> + Send + 'static,
    C::Response: rt::Read + rt::Write + Send + Unpin,
    C::Future: Send,
    BoxError: From<C::Error> + Send,
{
    match when {
        ConnectMode::Eager => endpoint
            .connect_with_connector(connector)
            .await
            .map_err(|error| connector_error(&error)),
        ConnectMode::Lazy => Ok(endpoint.connect_with_connector_lazy(connector)),
    }
}

/// Tries all addresses of the host, of both families.
async fn connect_tcp(uri: Uri) -> Result<TcpStream, BoxError> {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    connector.enforce_http(false);
    Ok(connector.oneshot(uri).await?.into_inner())
}

/// What is at the bottom of tonic's error: ours, or the operating system's.
fn connector_error(error: &transport::Error) -> ConnectorError {
    root_cause(error).unwrap_or_else(|| ConnectorError::Io(io::Error::other(error.to_string())))
}

/// Why there was no connection for a call, where that is why it failed.
pub(super) fn connection_failure(status: &Status) -> Option<String> {
    let fault = root_cause(status.source()?)?;
    Some(fault.to_string())
}

/// Whether a call failed without a connection for a reason that the operating system knows at once: the
/// socket is missing, this user may not use the socket, or the connection is refused.
pub(super) fn is_connection_refused(status: &Status) -> bool {
    let refusals = [ErrorKind::NotFound, ErrorKind::ConnectionRefused, ErrorKind::PermissionDenied];
    let fault = status.source().and_then(root_cause);
    matches!(fault, Some(ConnectorError::Io(cause)) if refusals.contains(&cause.kind()))
}

fn root_cause(error: &(dyn Error + 'static)) -> Option<ConnectorError> {
    let mut below = Some(error);
    while let Some(error) = below {
        match error.downcast_ref::<ConnectorError>() {
            Some(ConnectorError::Tls(fault)) => return Some(ConnectorError::Tls(fault.clone())),
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

/// The endpoints of the default sockets, in the order in which they are tried. A path that no
/// socket can have is left out.
#[must_use]
pub fn default_endpoints(env: &ProcessEnv) -> Vec<DaemonEndpoint> {
    default_sockets(env).into_iter().filter_map(|path| DaemonEndpoint::unix(path).ok()).collect()
}

/// The first default socket that takes a connection, within `timeout` each. Where none does, a
/// socket that this user may not use is named before the absence of any.
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

/// Whether the socket's directory is the user's own. Anybody may create a directory in the
/// temporary one, and a stranger's daemon must not be taken for ours.
fn is_in_own_directory(socket: &Path, uid: u32) -> bool {
    let directory = socket.parent().and_then(|directory| directory.symlink_metadata().ok());
    directory.is_some_and(|found| found.is_dir() && found.uid() == uid)
}
