//! Who is at the other end of a connection: as the kernel or a certificate says it, never as a message
//! does.

// Plain data: only `std` has the part that talks to networks.
use core::net::SocketAddr;
use std::sync::Arc;

/// The other end of one connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peer {
    /// A process of this machine, as the kernel knew it when it connected to a Unix socket.
    Local {
        /// Its process id, for the log only: another process may have it by now. 0 if the kernel
        /// cannot say it in the daemon's namespace.
        pid: i32,
        /// Its effective user id.
        uid: u32,
        /// Its effective group id, then its supplementary groups.
        gids: Arc<[u32]>,
    },
    /// Whoever connected over TCP.
    Remote {
        /// Where from.
        address: SocketAddr,
        /// The names in the certificate that it proved to hold: DNS names, and URIs such as
        /// SPIFFE IDs. Empty where it showed none.
        names: Arc<[String]>,
    },
}
