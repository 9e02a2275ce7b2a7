//! Identity of a peer, as the kernel or a verified certificate states it. Request contents never
//! count.

// From `core`, because the module must not use `std::net`, which does I/O.
use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::fmt;
use std::sync::Arc;

/// Identity of a connection's peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerIdentity {
    /// Local process, as the kernel identified it when it connected to a Unix socket.
    Local {
        /// Process id, for the log only, because the id may be reused. 0 if the process is not
        /// visible in the daemon's PID namespace.
        pid: i32,
        /// Effective user id.
        uid: u32,
        /// Effective group id, then the supplementary group ids.
        gids: Arc<[u32]>,
    },
    /// Peer that connected over TCP.
    Remote {
        /// Address of the peer.
        address: SocketAddr,
        /// Names in the peer's verified certificate: DNS names, and URIs such as SPIFFE IDs. Empty
        /// if the peer presented no certificate.
        names: Arc<[String]>,
    },
}

/// Key of a quota. All connections, streams and calls with the same key share a quota.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum QuotaKey {
    /// Local user.
    User(u32),
    /// Names of a verified certificate.
    CertificateNames(Arc<[String]>),
    /// All loopback addresses, because a local process may use each of them.
    Loopback,
    /// IPv4 address, or the /64 network of an IPv6 address, because one host may use the whole
    /// network.
    Address(IpAddr),
    /// Connection without an accepted call, by its number.
    Connection(u64),
}

impl PeerIdentity {
    /// Returns the key of the peer's quota.
    #[must_use]
    pub fn quota_key(&self) -> QuotaKey {
        match self {
            Self::Local { uid, .. } => QuotaKey::User(*uid),
            Self::Remote { names, .. } if !names.is_empty() => {
                QuotaKey::CertificateNames(names.clone())
            }
            Self::Remote { address, .. } => match address.ip().to_canonical() {
                address if address.is_loopback() => QuotaKey::Loopback,
                IpAddr::V4(address) => QuotaKey::Address(address.into()),
                IpAddr::V6(address) => {
                    let network = address.to_bits() & !u128::from(u64::MAX);
                    QuotaKey::Address(Ipv6Addr::from_bits(network).into())
                }
            },
        }
    }
}

impl fmt::Display for QuotaKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(uid) => write!(f, "uid {uid}"),
            Self::CertificateNames(names) => f.write_str(&names.join(", ")),
            Self::Loopback => f.write_str("loopback"),
            Self::Address(address) => address.fmt(f),
            Self::Connection(number) => write!(f, "connection {number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{PeerIdentity, QuotaKey};
    use std::sync::Arc;

    fn remote(address: &str, names: &[&str]) -> QuotaKey {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        PeerIdentity::Remote {
            address: address.parse().expect("an address"),
            names,
        }
        .quota_key()
    }

    #[test]
    fn quota_keys_ignore_ids_that_a_peer_can_choose() {
        let local = |pid, uid| {
            PeerIdentity::Local {
                pid,
                uid,
                gids: Arc::default(),
            }
            .quota_key()
        };
        assert_eq!(local(1, 7), local(2, 7));
        assert_ne!(local(1, 7), local(1, 8));
        assert_eq!(remote("10.0.0.1:1", &[]), remote("10.0.0.1:2", &[]));
        assert_ne!(remote("10.0.0.1:1", &[]), remote("10.0.0.2:1", &[]));
        assert_eq!(
            remote("[2001:db8::1]:1", &[]),
            remote("[2001:db8::2:3:4:5]:1", &[])
        );
        assert_ne!(
            remote("[2001:db8::1]:1", &[]),
            remote("[2001:db8:0:1::1]:1", &[])
        );
        assert_eq!(
            remote("[::ffff:10.0.0.1]:1", &[]),
            remote("10.0.0.1:1", &[])
        );
        for loopback in [
            "127.0.0.2:1",
            "127.255.1.7:1",
            "[::1]:1",
            "[::ffff:127.0.0.3]:1",
        ] {
            assert_eq!(remote(loopback, &[]), remote("127.0.0.1:1", &[]));
            assert_ne!(remote(loopback, &["a"]), remote("127.0.0.1:1", &[]));
        }
        assert_eq!(remote("10.0.0.1:1", &["a"]), remote("10.0.0.2:2", &["a"]));
        assert_ne!(remote("10.0.0.1:1", &["a"]), remote("10.0.0.1:1", &["b"]));
    }
}
