//! Opens a channel to a daemon, or says why there is none. Leaves calls to `call`.

use crate::endpoint::{Address, Endpoint, Env, default_sockets};
use crate::proto::caproot::v1::capability_service_client::CapabilityServiceClient;
use hyper_util::rt::TokioIo;
use std::error::Error as _;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::UnixStream;
use tonic::transport::{self, Channel, Uri};

/// Why there is no channel. Displays as one sentence.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Nothing listens there.
    #[error("no daemon answers at {endpoint}: {cause}")]
    NoDaemon {
        /// What was tried.
        endpoint: Endpoint,
        /// What the operating system said.
        cause: String,
    },
    /// The socket is there, and this user may not use it.
    #[error("this user may not use the socket {endpoint}")]
    NotPermitted {
        /// What was tried.
        endpoint: Endpoint,
    },
    /// None of the default sockets answers.
    #[error("no daemon answers at any of the default sockets: {}", shown(tried))]
    NoDefault {
        /// What was tried, in order.
        tried: Vec<PathBuf>,
    },
}

fn shown(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// A client of the service at `endpoint`; at most `timeout` is spent on connecting.
pub async fn connect(
    endpoint: &Endpoint,
    timeout: Duration,
) -> Result<CapabilityServiceClient<Channel>, ConnectError> {
    channel(endpoint, timeout).await.map(CapabilityServiceClient::new)
}

/// A channel to `endpoint`, for any service; at most `timeout` is spent on connecting.
pub async fn channel(endpoint: &Endpoint, timeout: Duration) -> Result<Channel, ConnectError> {
    let opened = match endpoint.address() {
        Address::Unix(path) => tokio::time::timeout(timeout, unix_channel(path.clone())).await,
        Address::Tcp(address) => tokio::time::timeout(timeout, tcp_channel(address)).await,
    };
    let cause = match opened {
        Ok(Ok(channel)) => return Ok(channel),
        Ok(Err(error)) => cause(&error),
        Err(_) => {
            io::Error::new(ErrorKind::TimedOut, format!("nothing within {}", shown_span(timeout)))
        }
    };
    if cause.kind() == ErrorKind::PermissionDenied {
        return Err(ConnectError::NotPermitted { endpoint: endpoint.clone() });
    }
    Err(ConnectError::NoDaemon { endpoint: endpoint.clone(), cause: cause.to_string() })
}

async fn unix_channel(path: PathBuf) -> Result<Channel, transport::Error> {
    // HTTP/2 wants an authority; for a Unix socket every gRPC server takes this one.
    let connector = tower::service_fn(move |_: Uri| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    });
    transport::Endpoint::from_static("http://localhost").connect_with_connector(connector).await
}

async fn tcp_channel(address: &str) -> Result<Channel, transport::Error> {
    transport::Endpoint::from_shared(format!("http://{address}"))?.connect().await
}

/// The operating system's error at the bottom of tonic's.
fn cause(error: &transport::Error) -> io::Error {
    let mut below = error.source();
    while let Some(error) = below {
        if let Some(io) = error.downcast_ref::<io::Error>() {
            return io::Error::new(io.kind(), io.to_string());
        }
        below = error.source();
    }
    io::Error::other(error.to_string())
}

fn shown_span(span: Duration) -> String {
    humantime::format_duration(span).to_string()
}

/// The endpoints of the default sockets, in the order in which they are tried. A path that no
/// socket can have is left out.
#[must_use]
pub fn candidates(env: &Env) -> Vec<Endpoint> {
    default_sockets(env).into_iter().filter_map(|path| Endpoint::unix(path).ok()).collect()
}

/// The first default socket that takes a connection, within `timeout` each. Where none does, a
/// socket that this user may not use is named before the absence of any.
pub async fn first_that_answers(env: &Env, timeout: Duration) -> Result<Endpoint, ConnectError> {
    let mut forbidden = None;
    for endpoint in candidates(env) {
        let Address::Unix(path) = endpoint.address() else { continue };
        if path.starts_with(&env.temp_dir) && !is_ours(path, env.uid) {
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
fn is_ours(socket: &Path, uid: u32) -> bool {
    let directory = socket.parent().and_then(|directory| directory.symlink_metadata().ok());
    directory.is_some_and(|found| found.is_dir() && found.uid() == uid)
}
