//! Opens channels to daemons.

use super::auth_channel::TlsAlertFlag;
use super::credentials::ClientCredentials;
use super::dial::{ConnectorError, open_stream, root_cause};
use super::response_budget::{MAX_HEADER_BYTES, WINDOW_BYTES};
use super::tls_error::TlsError;
#[cfg(unix)]
use caproot_core::net::endpoint::SYSTEM_SOCKET;
use caproot_core::net::endpoint::{DaemonEndpoint, EndpointAddress, ProcessEnv, default_sockets};
use caproot_core::proto::caproot::v1::capability_service_client::CapabilityServiceClient;
use caproot_core::sync::Mutex;
use hyper_util::rt::TokioIo;
use std::error::Error as _;
use std::io::{self, ErrorKind};
#[cfg(unix)]
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tonic::Status;
use tonic::transport::{self, Channel, Uri};

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
    /// A user who is not trusted serves the socket.
    #[error("the user {user} serves the socket {endpoint}, and is not trusted")]
    SocketUser {
        /// Endpoint of the attempt.
        endpoint: DaemonEndpoint,
        /// Id of the user.
        user: u32,
    },
    /// There is a token, but the connection is neither encrypted nor local.
    #[error("the token is not sent to {endpoint}: an attacker on the network could read it")]
    TokenInCleartext {
        /// Endpoint of the attempt.
        endpoint: DaemonEndpoint,
    },
    /// No daemon answers at a default socket.
    #[error(
        "no daemon answers at any of the default sockets: {}{}",
        join_paths(tried),
        if *is_variable_missing { "; XDG_RUNTIME_DIR is not set" } else { "" }
    )]
    NoDefault {
        /// Default sockets, in the order of the attempts.
        tried: Vec<PathBuf>,
        /// Whether `XDG_RUNTIME_DIR` is not set, so that its place is a guess.
        is_variable_missing: bool,
    },
}

impl ConnectError {
    pub(crate) fn from_connector(error: ConnectorError, endpoint: &DaemonEndpoint) -> Self {
        let endpoint = endpoint.clone();
        match error {
            ConnectorError::Tls(error) => Self::Tls { endpoint, error },
            ConnectorError::Credentials(sentence) => Self::Credentials(sentence),
            ConnectorError::TokenInCleartext => Self::TokenInCleartext { endpoint },
            #[cfg(unix)]
            ConnectorError::SocketUser(user) => Self::SocketUser { endpoint, user },
            ConnectorError::Io(cause) if cause.kind() == ErrorKind::PermissionDenied => {
                Self::NotPermitted { endpoint }
            }
            cause => Self::NoDaemon {
                endpoint,
                cause: cause.to_string(),
            },
        }
    }
}

fn join_paths(paths: &[PathBuf]) -> String {
    paths
        .iter()
        .map(|path| path.display().to_string())
        .collect::<Vec<_>>()
        .join(", ")
}

/// Connects a generated service client to `endpoint` within `timeout`. The responses of this client are
/// limited to 4 MiB on the wire, and not in memory: see [`Client`](crate::Client).
pub async fn connect(
    endpoint: &DaemonEndpoint,
    timeout: Duration,
) -> Result<CapabilityServiceClient<Channel>, ConnectError> {
    open_channel(endpoint, timeout)
        .await
        .map(CapabilityServiceClient::new)
}

/// Opens a channel to `endpoint` without credentials, for any service, within `timeout`. A lost
/// connection is opened again.
pub async fn open_channel(
    endpoint: &DaemonEndpoint,
    timeout: Duration,
) -> Result<Channel, ConnectError> {
    connect_within(timeout, build_channel(endpoint))
        .await
        .map_err(|error| ConnectError::from_connector(error, endpoint))
}

async fn build_channel(endpoint: &DaemonEndpoint) -> Result<Channel, ConnectorError> {
    let address = endpoint.address().clone();
    let is_tls = matches!(address, EndpointAddress::Tls(_));
    let (sender, first_bytes) = oneshot::channel();
    // The sender is for the first connection. On later connections the calls report the failure.
    let sender = Arc::new(Mutex::new(Some(sender)));
    let connector = tower::service_fn(move |_: Uri| {
        let address = address.clone();
        let sender = sender.lock().take();
        async move {
            let credentials = ClientCredentials::default();
            open_stream(&address, &credentials, TlsAlertFlag::default(), sender)
                .await
                .map(TokioIo::new)
        }
    });

    let channel = http_origin(endpoint)?
        .connect_with_connector(connector)
        .await?;
    if is_tls {
        wait_for_first_bytes(first_bytes).await?;
    }
    Ok(channel)
}

/// Ends a connection attempt that takes too long.
pub async fn connect_within<T>(
    limit: Duration,
    attempt: impl Future<Output = Result<T, ConnectorError>>,
) -> Result<T, ConnectorError> {
    tokio::time::timeout(limit, attempt)
        .await
        .unwrap_or_else(|_| {
            let span = humantime::format_duration(limit);
            Err(io::Error::new(ErrorKind::TimedOut, format!("no connection within {span}")).into())
        })
}

/// Waits for the first bytes of a TLS connection. In TLS 1.3 the server checks the client
/// certificate after the client's handshake is complete.
pub async fn wait_for_first_bytes(
    first_bytes: oneshot::Receiver<io::Result<()>>,
) -> Result<(), ConnectorError> {
    match first_bytes.await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(ConnectorError::Tls(TlsError::from_io_error(&error))),
        Err(_) => Err(ConnectorError::Tls(TlsError::ConnectionClosed)),
    }
}

/// Returns the settings of a channel with the authority of its requests.
pub fn http_origin(endpoint: &DaemonEndpoint) -> Result<transport::Endpoint, ConnectorError> {
    let origin = match endpoint.address() {
        // HTTP/2 requires an authority. gRPC servers accept `localhost` on a Unix socket.
        EndpointAddress::Unix(_) => "http://localhost".to_owned(),
        EndpointAddress::Tcp(address) => format!("http://{address}"),
        EndpointAddress::Tls(address) => format!("https://{address}"),
    };
    let settings = transport::Endpoint::from_shared(origin)?;
    // Unread bytes of a hostile daemon wait in the connection.
    Ok(settings
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .http2_max_header_list_size(MAX_HEADER_BYTES))
}

/// Returns the connection failure that made the call fail, if there is one.
pub fn connection_failure(status: &Status) -> Option<String> {
    let error = root_cause(status.source()?)?;
    Some(error.to_string())
}

/// Whether a call failed without a connection for a reason that is known at once: the socket is
/// missing, this user may not use the socket, the connection is refused, or no registry names an
/// executor.
pub fn is_connection_refused(status: &Status) -> bool {
    let refusals = [
        ErrorKind::NotFound,
        ErrorKind::ConnectionRefused,
        ErrorKind::PermissionDenied,
    ];
    match status.source().and_then(root_cause) {
        Some(ConnectorError::Io(cause)) => refusals.contains(&cause.kind()),
        Some(ConnectorError::UnknownExecutor(_)) => true,
        _ => false,
    }
}

/// Returns the endpoints of the default sockets in the order in which they are tried. Paths that
/// are invalid for a socket are omitted.
#[must_use]
pub fn default_endpoints(env: &ProcessEnv) -> Vec<DaemonEndpoint> {
    default_sockets(env)
        .into_iter()
        .filter_map(|path| DaemonEndpoint::unix(path).ok())
        .collect()
}

/// Returns the first default socket that accepts a connection within `timeout`. If none accepts,
/// the error names a socket that this user may not use, if there is one.
#[cfg(unix)]
pub async fn find_default_endpoint(
    env: &ProcessEnv,
    timeout: Duration,
) -> Result<DaemonEndpoint, ConnectError> {
    let mut forbidden = None;
    for endpoint in default_endpoints(env) {
        let EndpointAddress::Unix(path) = endpoint.address() else {
            continue;
        };
        // Another user can create a directory in the temporary directory, and a shell of root may
        // inherit `XDG_RUNTIME_DIR` of another user. Both could have a false daemon.
        if path != Path::new(SYSTEM_SOCKET) && !is_in_own_directory(path, env.uid) {
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
        None => ConnectError::NoDefault {
            tried: default_sockets(env),
            is_variable_missing: env.xdg_runtime_dir.is_none(),
        },
    })
}

/// Returns the error that there is no default socket on this system.
#[cfg(not(unix))]
#[allow(clippy::unused_async)] // On Unix, the function connects.
pub async fn find_default_endpoint(
    env: &ProcessEnv,
    _: Duration,
) -> Result<DaemonEndpoint, ConnectError> {
    Err(ConnectError::NoDefault {
        tried: default_sockets(env),
        is_variable_missing: false,
    })
}

/// Whether the socket's directory belongs to the user.
#[cfg(unix)]
fn is_in_own_directory(socket: &Path, uid: u32) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let directory = socket
        .parent()
        .and_then(|directory| directory.symlink_metadata().ok());
    directory.is_some_and(|found| found.is_dir() && found.uid() == uid)
}
