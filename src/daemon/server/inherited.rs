//! Takes over listening sockets from the parent process, such as those of a systemd socket unit.
//! Source: `sd_listen_fds(3)`.

use super::StartError;
use crate::daemon::config::{InheritedSocketInfo, group_of_socket};
use caproot_core::text::quote_value;
use listenfd::ListenFd;
use rustix::net::sockopt::socket_acceptconn;
use std::fs::symlink_metadata;
use std::iter::repeat;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixListener;

/// Name of the socket for metrics. All other sockets serve gRPC.
const METRICS: &str = "metrics";

/// Inherited sockets that are not registered with a runtime yet.
#[derive(Debug, Default)]
pub struct InheritedSockets {
    pub(super) grpc: Vec<InheritedListener>,
    pub(super) metrics: Option<InheritedListener>,
}

/// Inherited socket. Its owner removes the socket file; the daemon does not.
#[derive(Debug)]
pub enum InheritedListener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

/// Takes over the inherited sockets, and returns them with their addresses. Changes the
/// environment, so call this once, before the process has a second thread.
pub fn take_inherited_sockets() -> Result<(InheritedSockets, Vec<InheritedSocketInfo>), StartError>
{
    // Checks LISTEN_PID, LISTEN_FDS and each descriptor. Empty if LISTEN_PID is another process.
    let numbers = sd_notify::listen_fds().map_err(|error| {
        StartError::listener(format!("taking over the inherited sockets failed: {error}"))
    })?;
    if numbers.len() == 0 {
        return Ok(Default::default());
    }

    let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
    let mut fds = ListenFd::from_env();
    let mut inherited = InheritedSockets::default();
    let mut addresses = Vec::new();
    for ((index, fd), name) in numbers
        .enumerate()
        .zip(names.split(':').chain(repeat("unknown")))
    {
        let subject = format!("inherited socket {} (descriptor {fd})", quote_value(name));
        let socket = take(&mut fds, index).ok_or_else(|| {
            StartError::listener(format!(
                "{subject}: not a listening Unix or TCP stream socket; correct the socket unit"
            ))
        })?;

        let for_metrics = name == METRICS;
        addresses.push(socket.address_info(for_metrics).ok_or_else(|| {
            StartError::listener(format!(
                "{subject}: has no path; set one with permissions, such as ListenStream=/run/…"
            ))
        })?);

        if !for_metrics {
            inherited.grpc.push(socket);
        } else if inherited.metrics.replace(socket).is_some() {
            return Err(StartError::listener(format!(
                "{subject}: duplicate socket for metrics; only one is supported"
            )));
        }
    }
    Ok((inherited, addresses))
}

/// Takes the socket at an index, if it is a listener.
fn take(fds: &mut ListenFd, index: usize) -> Option<InheritedListener> {
    // `take_unix_listener` fails for a TCP socket and leaves it in place.
    let unix = fds
        .take_unix_listener(index)
        .ok()
        .flatten()
        .map(InheritedListener::Unix);
    let socket = unix.or_else(|| {
        fds.take_tcp_listener(index)
            .ok()
            .flatten()
            .map(InheritedListener::Tcp)
    })?;

    let is_listener = match &socket {
        InheritedListener::Unix(listener) => {
            listens(listener) && listener.set_nonblocking(true).is_ok()
        }
        InheritedListener::Tcp(listener) => {
            listens(listener) && listener.set_nonblocking(true).is_ok()
        }
    };
    is_listener.then_some(socket)
}

fn listens(socket: impl AsFd) -> bool {
    socket_acceptconn(socket).unwrap_or_default()
}

impl InheritedListener {
    /// Returns the address of the socket; `None` for a Unix socket without a path, which has no
    /// permissions.
    fn address_info(&self, for_metrics: bool) -> Option<InheritedSocketInfo> {
        Some(match self {
            Self::Tcp(listener) => {
                let address: SocketAddr = listener.local_addr().ok()?;
                InheritedSocketInfo::Tcp {
                    address,
                    for_metrics,
                }
            }
            Self::Unix(listener) => {
                let path = listener.local_addr().ok()?.as_pathname()?.to_owned();
                // If the path is not visible, such as behind a mount, other users cannot connect by
                // this path either.
                let meta = symlink_metadata(&path).ok();
                let open_to_all = meta.as_ref().is_some_and(|meta| meta.mode() & 0o002 != 0);
                InheritedSocketInfo::Unix {
                    path,
                    open_to_all,
                    group: meta.as_ref().and_then(group_of_socket),
                    for_metrics,
                }
            }
        })
    }
}
