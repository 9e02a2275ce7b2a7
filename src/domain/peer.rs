//! Who is at the other end of a connection: as the kernel or a certificate says it, never as a message
//! does.

// Of `core`, which has the plain data only.
use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::fmt;
use std::sync::Arc;

/// The other end of one connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerIdentity {
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

/// Whom a bound is counted for: all that one of them has open or under way shares it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum QuotaKey {
    /// A user of this machine.
    User(u32),
    /// Whoever holds a certificate for these names.
    CertificateNames(Arc<[String]>),
    /// An address; of IPv6 the network of 64 bits, of which one host may have every address.
    Address(IpAddr),
}

impl PeerIdentity {
    /// Whom it counts as.
    #[must_use]
    pub fn quota_key(&self) -> QuotaKey {
        match self {
            Self::Local { uid, .. } => QuotaKey::User(*uid),
            Self::Remote { names, .. } if !names.is_empty() => {
                QuotaKey::CertificateNames(names.clone())
            }
            Self::Remote { address, .. } => QuotaKey::Address(match address.ip().to_canonical() {
                IpAddr::V4(address) => address.into(),
                IpAddr::V6(address) => {
                    Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into()
                }
            }),
        }
    }
}

impl fmt::Display for QuotaKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(uid) => write!(f, "uid {uid}"),
            Self::CertificateNames(names) => f.write_str(&names.join(", ")),
            Self::Address(address) => address.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{PeerIdentity, QuotaKey};
    use std::sync::Arc;

    fn remote(address: &str, names: &[&str]) -> QuotaKey {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        PeerIdentity::Remote { address: address.parse().expect("an address"), names }.quota_key()
    }

    #[test]
    fn callers_are_told_apart_by_what_they_cannot_choose() {
        let local = |pid, uid| PeerIdentity::Local { pid, uid, gids: Arc::default() }.quota_key();
        assert_eq!(local(1, 7), local(2, 7));
        assert_ne!(local(1, 7), local(1, 8));
        assert_eq!(remote("10.0.0.1:1", &[]), remote("10.0.0.1:2", &[]));
        assert_ne!(remote("10.0.0.1:1", &[]), remote("10.0.0.2:1", &[]));
        assert_eq!(remote("[2001:db8::1]:1", &[]), remote("[2001:db8::2:3:4:5]:1", &[]));
        assert_ne!(remote("[2001:db8::1]:1", &[]), remote("[2001:db8:0:1::1]:1", &[]));
        assert_eq!(remote("[::ffff:10.0.0.1]:1", &[]), remote("10.0.0.1:1", &[]));
        assert_eq!(remote("10.0.0.1:1", &["a"]), remote("10.0.0.2:2", &["a"]));
        assert_ne!(remote("10.0.0.1:1", &["a"]), remote("10.0.0.1:1", &["b"]));
    }
}
