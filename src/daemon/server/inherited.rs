//! Takes over listening sockets from the parent process, such as those of a systemd socket unit.
//! Source: `sd_listen_fds(3)`.

use super::listen::BoundListener;
use super::{BoundListeners, StartError};
use crate::daemon::config::{InheritedSocketInfo, group_of_socket};
use caproot_core::text::quote_value;
use listenfd::ListenFd;
use rustix::io::ioctl_fionbio;
use rustix::net::sockopt::socket_acceptconn;
use std::fs::symlink_metadata;
use std::iter::repeat;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixListener;

/// Name of the socket for metrics. All other sockets serve gRPC.
const METRICS: &str = "metrics";

/// Takes over the inherited sockets, and returns them with their addresses. Changes the
/// environment, so call this once, before the process has a second thread.
pub fn take_inherited_sockets() -> Result<(BoundListeners, Vec<InheritedSocketInfo>), StartError> {
    // Checks LISTEN_PID, LISTEN_FDS and each descriptor. Empty if LISTEN_PID is another process.
    let numbers = sd_notify::listen_fds().map_err(|error| {
        StartError::listener(format!("taking over the inherited sockets failed: {error}"))
    })?;
    if numbers.len() == 0 {
        return Ok(Default::default());
    }

    let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
    let mut fds = ListenFd::from_env();
    let mut inherited = BoundListeners::default();
    let mut addresses = Vec::new();
    for ((index, fd), name) in numbers
        .enumerate()
        .zip(names.split(':').chain(repeat("unknown")))
    {
        let subject = format!("inherited socket {} (descriptor {fd})", quote_value(name));
        let for_metrics = name == METRICS;
        let (socket, address) = take(&mut fds, index, for_metrics).ok_or_else(|| {
            StartError::listener(format!(
                "{subject}: not a listening Unix or TCP stream socket; correct the socket unit"
            ))
        })?;

        addresses.push(address.ok_or_else(|| {
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

/// Takes the socket at an index, if it is a listener, with its address. A Unix socket without a path
/// has no address: it has no permissions.
fn take(
    fds: &mut ListenFd,
    index: usize,
    for_metrics: bool,
) -> Option<(BoundListener, Option<InheritedSocketInfo>)> {
    // `take_unix_listener` fails for a TCP socket and leaves it in place.
    if let Ok(Some(listener)) = fds.take_unix_listener(index) {
        let address = unix_address(&listener, for_metrics);
        return Some((BoundListener::Unix(listening(listener)?, None), address));
    }

    let listener = fds.take_tcp_listener(index).ok()??;
    let address = listener
        .local_addr()
        .ok()
        .map(|address| InheritedSocketInfo::Tcp {
            address,
            for_metrics,
        });
    Some((BoundListener::Tcp(listening(listener)?), address))
}

/// Returns the descriptor of a listener, which no longer blocks.
fn listening(socket: impl Into<OwnedFd>) -> Option<OwnedFd> {
    let fd = socket.into();
    let listens = socket_acceptconn(&fd).unwrap_or_default() && ioctl_fionbio(&fd, true).is_ok();
    listens.then_some(fd)
}

fn unix_address(listener: &UnixListener, for_metrics: bool) -> Option<InheritedSocketInfo> {
    let path = listener.local_addr().ok()?.as_pathname()?.to_owned();
    // If the path is not visible, such as behind a mount, other users cannot connect by this path
    // either.
    let meta = symlink_metadata(&path).ok();
    let open_to_all = meta.as_ref().is_some_and(|meta| meta.mode() & 0o002 != 0);
    Some(InheritedSocketInfo::Unix {
        path,
        open_to_all,
        group: meta.as_ref().and_then(group_of_socket),
        for_metrics,
    })
}
