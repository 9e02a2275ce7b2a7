//! Opens channels to daemons.

use super::auth_channel::TlsAlertFlag;
use super::credentials::ClientCredentials;
use super::dial::{ConnectorError, open_stream};
use super::response_budget::{MAX_HEADER_BYTES, WINDOW_BYTES};
use super::tls_error::TlsError;
use super::tls_probe::FirstBytes;
#[cfg(unix)]
use caproot_core::net::endpoint::SYSTEM_SOCKET;
use caproot_core::net::endpoint::{DaemonEndpoint, EndpointAddress, ProcessEnv, default_sockets};
use caproot_core::proto::caproot::v1::capability_service_client::CapabilityServiceClient;
use caproot_core::sync::Mutex;
use hyper_util::rt::TokioIo;
use std::io::{self, ErrorKind};
#[cfg(unix)]
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
#[cfg(unix)]
use tokio::net::UnixStream;
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
    let first_bytes = Arc::new(Mutex::new(None));
    let latest_first_bytes = first_bytes.clone();
    let connector = tower::service_fn(move |_: Uri| {
        let address = address.clone();
        let latest_first_bytes = latest_first_bytes.clone();
        async move {
            let credentials = ClientCredentials::default();
            let mut stream = open_stream(&address, &credentials, TlsAlertFlag::default()).await?;
            *latest_first_bytes.lock() = stream.first_bytes.take();
            Ok::<_, ConnectorError>(TokioIo::new(stream))
        }
    });

    let channel = http_origin(endpoint)?
        .connect_with_connector(connector)
        .await?;
    // On later connections the calls report the failure.
    let first_bytes = first_bytes.lock().take();
    wait_for_first_bytes(first_bytes).await?;
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

/// Waits for the first bytes of a connection, if it has TLS. In TLS 1.3 the server checks the client
/// certificate after the client's handshake is complete.
pub async fn wait_for_first_bytes(first_bytes: Option<FirstBytes>) -> Result<(), ConnectorError> {
    let Some(first_bytes) = first_bytes else {
        return Ok(());
    };
    let report = first_bytes.await;
    report
        .unwrap_or(Err(TlsError::ConnectionClosed))
        .map_err(ConnectorError::Tls)
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

/// Returns the first default socket that accepts a connection within `timeout`. If none accepts,
/// the error names a socket that this user may not use, if there is one. Paths that are invalid for a
/// socket are omitted.
#[cfg(unix)]
pub async fn find_default_endpoint(
    env: &ProcessEnv,
    timeout: Duration,
) -> Result<DaemonEndpoint, ConnectError> {
    let mut forbidden = None;
    for path in default_sockets(env) {
        // Another user can create a directory in the temporary directory, and a shell of root may
        // inherit `XDG_RUNTIME_DIR` of another user. Both could have a false daemon.
        if path != Path::new(SYSTEM_SOCKET) && !is_in_own_directory(&path, env.uid) {
            continue;
        }

        let Ok(endpoint) = DaemonEndpoint::unix(path.clone()) else {
            continue;
        };
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
