//! The sockets that were handed over: whether they may be served, under the rules of those that are
//! named. Leaves taking them over to `app`.

use super::error::{ConfigError, ConfigErrors};
use super::{InheritedSocketInfo, ListenAddress, address};
use crate::endpoint::ProcessEnv;

/// What mistakes are told of, as if it were a flag: it is where the sockets come from.
const SOURCE_NAME: &str = "LISTEN_FDS";

/// Those for callers.
pub(super) fn grpc_listeners(env: &ProcessEnv) -> Vec<ListenAddress> {
    env.inherited_sockets.iter().filter(|socket| !is_for_metrics(socket)).map(listener).collect()
}

/// Whether there are none of these, so that the daemon needs a socket of its own.
pub(super) fn has_no_grpc_sockets(env: &ProcessEnv) -> bool {
    env.inherited_sockets.iter().all(is_for_metrics)
}

/// Says which of them others than this machine would reach, where nothing protects them.
pub(super) fn reject_remote_listeners(env: &ProcessEnv, mistakes: &mut ConfigErrors) {
    for at in grpc_listeners(env) {
        if let Err(reason) = address::require_local_or_tls(&at) {
            mistakes.add(ConfigError::flag(SOURCE_NAME, &address_text(&at), reason));
        }
    }
}

/// Holds the one for metrics to the rules of `metrics.listen`.
pub(super) fn check_metrics(env: &ProcessEnv, in_file: bool, mistakes: &mut ConfigErrors) {
    let Some(socket) = env.inherited_sockets.iter().find(|socket| is_for_metrics(socket)) else {
        return;
    };
    let at = listener(socket);
    let again = "is handed over for metrics, and `metrics.listen` names another; leave one out";
    if let Err(reason) = address::require_local(&at) {
        mistakes.add(ConfigError::flag(SOURCE_NAME, &address_text(&at), reason));
    } else if in_file {
        mistakes.add(ConfigError::flag(SOURCE_NAME, &address_text(&at), again));
    }
}

/// A sentence for each that every user may connect to: fit where there are no rules of callers.
pub(super) fn open_socket_warnings(env: &ProcessEnv) -> Vec<String> {
    let open = env.inherited_sockets.iter().filter_map(|socket| match socket {
        InheritedSocketInfo::Unix { path, open_to_all: true, for_metrics: false } => {
            Some(path.display())
        }
        InheritedSocketInfo::Unix { .. } | InheritedSocketInfo::Tcp { .. } => None,
    });
    let warn = |path| {
        format!(
            "unix:{path} was handed over with a mode that lets every user connect, and without \
             `callers` each may ask for everything; see SocketMode= of its unit"
        )
    };
    open.map(warn).collect()
}

/// A warning if `socket` is given and every Unix socket was handed over, so that the section has no effect.
pub(super) fn unused_socket_section_warning<'a>(
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
