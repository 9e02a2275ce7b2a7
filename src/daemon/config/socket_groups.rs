//! Groups whose members can connect to the Unix sockets of the daemon. Callers are in these groups,
//! so a file that such a group can read is not a secret.

use super::{InheritedSocketInfo, ListenAddress, SocketAccessRules, accounts};
use crate::daemon::grpc::auth::exposed_group;
use caproot_core::net::endpoint::ProcessEnv;
use std::collections::BTreeSet;
use std::fs::{Metadata, symlink_metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Socket of the systemd unit, and its group if the socket does not exist.
const UNIT_SOCKET: &str = "/run/caproot/caproot.sock";
const UNIT_GROUP: &str = "caproot";
/// Permission to connect. Source: unix(7).
const GROUP_WRITE: u32 = 0o020;

/// Returns the groups for the daemon's own listeners and for inherited sockets.
pub fn connecting_groups<'a>(
    own: impl Iterator<Item = &'a ListenAddress>,
    access_rules: &SocketAccessRules,
    env: &ProcessEnv,
) -> BTreeSet<u32> {
    let of_listeners = own.filter_map(|listener| {
        let (ListenAddress::Unix(path) | ListenAddress::UnixInOwnDir(path)) = listener else {
            return None;
        };
        let access = access_rules.access_at(path);
        (access.mode & GROUP_WRITE != 0).then(|| access.group.unwrap_or(env.gid))
    });

    let inherited = env
        .inherited_sockets
        .iter()
        .filter_map(|socket| match socket {
            InheritedSocketInfo::Unix { group, .. } => *group,
            InheritedSocketInfo::Tcp { .. } => None,
        });

    of_listeners
        .chain(inherited)
        .chain(env.unit_socket_group)
        .collect()
}

/// Returns the group of a socket file if its members can connect.
#[must_use]
pub fn group_of_socket(meta: &Metadata) -> Option<u32> {
    (meta.mode() & GROUP_WRITE != 0).then(|| meta.gid())
}

/// Returns the group of the unit's socket if root checks the config file of the unit. The check
/// inherits no socket.
#[must_use]
pub fn unit_socket_group(env: &ProcessEnv) -> Option<u32> {
    if env.uid != 0 {
        return None;
    }
    match symlink_metadata(UNIT_SOCKET) {
        Ok(meta) => group_of_socket(&meta),
        Err(_) => accounts::gid(UNIT_GROUP).ok(),
    }
}

/// Returns a warning if callers can read the private key. A key that every user can read has a
/// warning of its own.
pub fn key_warning(key: &Path, socket_groups: &BTreeSet<u32>) -> Option<String> {
    let meta = std::fs::metadata(key).ok()?;
    if meta.mode() & 0o006 != 0 {
        return None;
    }
    let group = exposed_group(&meta, socket_groups)?;
    Some(format!(
        "{} can be read by group {group}, whose members can connect to a socket of the daemon; run \
         `chmod 0600` on it, or give it another group",
        key.display()
    ))
}
