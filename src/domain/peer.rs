//! Who is at the other end of a connection: as the kernel or a certificate says it, never as a message
//! does.

// Of `core`, which has the plain data only.
use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::fmt;
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

/// Whom a bound is counted for: all that one of them has open or under way shares it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Account {
    /// A user of this machine.
    User(u32),
    /// Whoever holds a certificate for these names.
    Named(Arc<[String]>),
    /// An address; of IPv6 the network of 64 bits, of which one host may have every address.
    Address(IpAddr),
}

impl Peer {
    /// Whom it counts as.
    #[must_use]
    pub fn account(&self) -> Account {
        match self {
            Self::Local { uid, .. } => Account::User(*uid),
            Self::Remote { names, .. } if !names.is_empty() => Account::Named(names.clone()),
            Self::Remote { address, .. } => Account::Address(match address.ip().to_canonical() {
                IpAddr::V4(address) => address.into(),
                IpAddr::V6(address) => {
                    Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into()
                }
            }),
        }
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(uid) => write!(f, "uid {uid}"),
            Self::Named(names) => f.write_str(&names.join(", ")),
            Self::Address(address) => address.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Account, Peer};
    use std::sync::Arc;

    fn remote(address: &str, names: &[&str]) -> Account {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        Peer::Remote { address: address.parse().expect("an address"), names }.account()
    }

    #[test]
    fn callers_are_told_apart_by_what_they_cannot_choose() {
        let local = |pid, uid| Peer::Local { pid, uid, gids: Arc::default() }.account();
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
