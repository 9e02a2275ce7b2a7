//! Takes over the sockets that whoever started the daemon listens on already, as systemd does for a
//! socket unit, and says where they are. Leaves to `config` whether they may be served, and making
//! sockets to `listen`. Source: `sd_listen_fds(3)`.

use super::StartError;
use crate::config::InheritedSocketInfo;
use listenfd::ListenFd;
use rustix::net::sockopt::socket_acceptconn;
use std::fs::symlink_metadata;
use std::iter::repeat;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;

/// The name of the socket at which Prometheus scrapes; all others are for callers.
const METRICS: &str = "metrics";

/// Sockets that were handed over, and that no runtime knows yet.
#[derive(Debug, Default)]
pub struct InheritedSockets {
    pub(super) grpc: Vec<InheritedListener>,
    pub(super) metrics: Option<InheritedListener>,
}

/// A socket that stays where it is when the daemon ends: it is not the daemon's.
#[derive(Debug)]
pub(super) enum InheritedListener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

/// Takes over what the process was started with, once, and before it has a second thread: it says so
/// in its environment, which is changed. The second is where those sockets are.
pub fn take_inherited_sockets() -> Result<(InheritedSockets, Vec<InheritedSocketInfo>), StartError>
{
    let bad = |e| StartError::listener(format!("the sockets that were handed over: {e}"));
    // Looks at LISTEN_PID and LISTEN_FDS, and at each descriptor; none where they are another's.
    let numbers = sd_notify::listen_fds().map_err(bad)?;
    if numbers.len() == 0 {
        return Ok(Default::default());
    }
    let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
    let mut fds = ListenFd::from_env();
    let (mut inherited, mut places) = (InheritedSockets::default(), Vec::new());
    for ((index, fd), name) in numbers.enumerate().zip(names.split(':').chain(repeat("unknown"))) {
        let refuse = |why: &str| {
            StartError::listener(format!("the socket {name:?} that was handed over as {fd} {why}"))
        };
        let lent = take(&mut fds, index).ok_or_else(|| {
            refuse("is no socket that listens for Unix or TCP streams; mend the socket unit")
        })?;
        let for_metrics = name == METRICS;
        places.push(lent.address_info(for_metrics).ok_or_else(|| {
            refuse("has no path; give it one that says who may connect, as ListenStream=/run/…")
        })?);
        if !for_metrics {
            inherited.grpc.push(lent);
        } else if inherited.metrics.replace(lent).is_some() {
            return Err(refuse("is the second of this name, and there is one for metrics"));
        }
    }
    Ok((inherited, places))
}

/// The socket at an index, if it listens.
fn take(fds: &mut ListenFd, index: usize) -> Option<InheritedListener> {
    // Each fails for a socket of the other kind, and leaves it where it is.
    let unix = fds.take_unix_listener(index).ok().flatten().map(InheritedListener::Unix);
    let lent =
        unix.or_else(|| fds.take_tcp_listener(index).ok().flatten().map(InheritedListener::Tcp))?;
    let listens = match &lent {
        InheritedListener::Unix(listener) => {
            listens(listener) && listener.set_nonblocking(true).is_ok()
        }
        InheritedListener::Tcp(listener) => {
            listens(listener) && listener.set_nonblocking(true).is_ok()
        }
    };
    listens.then_some(lent)
}

fn listens(socket: impl AsFd) -> bool {
    socket_acceptconn(socket).unwrap_or_default()
}

impl InheritedListener {
    /// Where it is; `None` for a Unix socket that nothing keeps anybody from.
    fn address_info(&self, for_metrics: bool) -> Option<InheritedSocketInfo> {
        Some(match self {
            Self::Tcp(listener) => {
                let address: SocketAddr = listener.local_addr().ok()?;
                InheritedSocketInfo::Tcp { address, for_metrics }
            }
            Self::Unix(listener) => {
                let path = listener.local_addr().ok()?.as_pathname()?.to_owned();
                let mode = symlink_metadata(&path).map(|meta| meta.permissions().mode());
                // Where it cannot be seen, as behind a mount, nobody else sees it by that path either.
                let open_to_all = mode.is_ok_and(|mode| mode & 0o002 != 0);
                InheritedSocketInfo::Unix { path, open_to_all, for_metrics }
            }
        })
    }
}
