//! Checks the sockets that a socket unit passes to the daemon.

use super::address::{require_local, require_local_or_tls};
use super::{InheritedSocketInfo, ListenAddress};
use caproot_core::document::{ConfigError, ConfigErrors};
use caproot_core::net::endpoint::ProcessEnv;

/// Name of the environment variable, used in errors in place of a flag.
const SOURCE_NAME: &str = "LISTEN_FDS";

/// Returns the addresses of the inherited sockets for gRPC.
pub fn grpc_listeners(env: &ProcessEnv) -> Vec<ListenAddress> {
    env.inherited_sockets
        .iter()
        .filter(|socket| !is_for_metrics(socket))
        .map(listener)
        .collect()
}

/// Whether no inherited socket serves gRPC, so that the daemon needs its own.
pub fn has_no_grpc_sockets(env: &ProcessEnv) -> bool {
    env.inherited_sockets.iter().all(is_for_metrics)
}

/// Reports inherited sockets that other machines can reach without TLS.
pub fn reject_remote_listeners(env: &ProcessEnv, errors: &mut ConfigErrors) {
    for address in grpc_listeners(env) {
        if let Err(reason) = require_local_or_tls(&address) {
            errors.add(ConfigError::flag(
                SOURCE_NAME,
                &address_text(&address),
                reason,
            ));
        }
    }
}

/// Checks the inherited socket for metrics. `metrics.listen` must not be set next to it.
pub fn check_metrics(env: &ProcessEnv, in_file: bool, errors: &mut ConfigErrors) {
    let Some(socket) = env
        .inherited_sockets
        .iter()
        .find(|socket| is_for_metrics(socket))
    else {
        return;
    };

    let address = listener(socket);
    let text = address_text(&address);
    if let Err(reason) = require_local(&address) {
        errors.add(ConfigError::flag(SOURCE_NAME, &text, reason));
    } else if in_file {
        errors.add(ConfigError::flag(
            SOURCE_NAME,
            &text,
            "the socket unit passes a socket for metrics, but `metrics.listen` is set too; remove one",
        ));
    }
}

/// Returns a warning for each inherited socket that every user can connect to. Only relevant if
/// `callers` is not set.
pub fn open_socket_warnings(env: &ProcessEnv) -> Vec<String> {
    env.inherited_sockets
        .iter()
        .filter_map(|socket| match socket {
            InheritedSocketInfo::Unix {
                path,
                open_to_all: true,
                for_metrics: false,
                ..
            } => Some(format!(
                "every user can connect to the inherited socket unix:{}, and `callers` is not set; set \
                 SocketMode= in the socket unit, or add `callers`",
                path.display()
            )),
            InheritedSocketInfo::Unix { .. } | InheritedSocketInfo::Tcp { .. } => None,
        })
        .collect()
}

/// Returns a warning if `socket` is set and has no effect, because every Unix socket is inherited.
pub fn unused_socket_section_warning<'a>(
    env: &ProcessEnv,
    mut own: impl Iterator<Item = &'a ListenAddress>,
) -> Option<String> {
    let has_own = own.any(|listener| !matches!(listener, ListenAddress::Tcp(_)));
    let unused = !env.inherited_sockets.is_empty() && !has_own;
    unused.then(|| {
        "`socket` has no effect: systemd passed the sockets; set SocketMode= and SocketGroup= in the \
         socket unit, such as with `systemctl edit caproot.socket`"
            .to_owned()
    })
}

fn is_for_metrics(socket: &InheritedSocketInfo) -> bool {
    match socket {
        InheritedSocketInfo::Unix { for_metrics, .. }
        | InheritedSocketInfo::Tcp { for_metrics, .. } => *for_metrics,
    }
}

fn listener(socket: &InheritedSocketInfo) -> ListenAddress {
    match socket {
        InheritedSocketInfo::Unix { path, .. } => ListenAddress::Unix(path.clone()),
        InheritedSocketInfo::Tcp { address, .. } => ListenAddress::Tcp(*address),
    }
}

fn address_text(listener: &ListenAddress) -> String {
    match listener {
        ListenAddress::Unix(path) | ListenAddress::UnixInOwnDir(path) => {
            format!("unix:{}", path.display())
        }
        ListenAddress::Tcp(address) => format!("tcp:{address}"),
    }
}
