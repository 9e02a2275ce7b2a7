//! The sockets that were handed over: whether they may be served, under the rules of those that are
//! named. Leaves taking them over to `app`.

use super::mistake::{Mistake, Mistakes};
use super::{HandedOver, Listener, place};
use crate::endpoint::Env;

/// What mistakes are told of, as if it were a flag: it is where the sockets come from.
const FROM: &str = "LISTEN_FDS";

/// Those for callers.
pub(super) fn served(env: &Env) -> Vec<Listener> {
    env.handed_over.iter().filter(|socket| !is_for_metrics(socket)).map(listener).collect()
}

/// Whether there are none of these, so that the daemon needs a socket of its own.
pub(super) fn none_to_serve(env: &Env) -> bool {
    env.handed_over.iter().all(is_for_metrics)
}

/// Says which of them others than this machine would reach, where nothing protects them.
pub(super) fn refuse_what_leaves(env: &Env, mistakes: &mut Mistakes) {
    for at in served(env) {
        if let Err(reason) = place::stays_here(&at) {
            mistakes.add(Mistake::flag(FROM, &spelled(&at), reason));
        }
    }
}

/// Holds the one for metrics to the rules of `metrics.listen`.
pub(super) fn check_metrics(env: &Env, in_file: bool, mistakes: &mut Mistakes) {
    let Some(socket) = env.handed_over.iter().find(|socket| is_for_metrics(socket)) else { return };
    let at = listener(socket);
    let again = "is handed over for metrics, and `metrics.listen` names another; leave one out";
    if let Err(reason) = place::only_here(&at) {
        mistakes.add(Mistake::flag(FROM, &spelled(&at), reason));
    } else if in_file {
        mistakes.add(Mistake::flag(FROM, &spelled(&at), again));
    }
}

/// A sentence for each that every user may connect to: fit where there are no rules of callers.
pub(super) fn open_to_all(env: &Env) -> Vec<String> {
    let open = env.handed_over.iter().filter_map(|socket| match socket {
        HandedOver::Unix { path, open_to_all: true, for_metrics: false } => Some(path.display()),
        HandedOver::Unix { .. } | HandedOver::Tcp { .. } => None,
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
pub(super) fn socket_keys_unused<'a>(
    env: &Env,
    mut own: impl Iterator<Item = &'a Listener>,
) -> Option<String> {
    let has_own = own.any(|listener| !matches!(listener, Listener::Tcp(_)));
    let unused = !env.handed_over.is_empty() && !has_own;
    unused.then(|| {
        "`socket` has no effect: systemd passed the sockets; set SocketMode= and SocketGroup= in the \
         socket unit, such as with `systemctl edit caproot.socket`"
            .to_owned()
    })
}

fn is_for_metrics(socket: &HandedOver) -> bool {
    match socket {
        HandedOver::Unix { for_metrics, .. } | HandedOver::Tcp { for_metrics, .. } => *for_metrics,
    }
}

fn listener(socket: &HandedOver) -> Listener {
    match socket {
        HandedOver::Unix { path, .. } => Listener::Unix(path.clone()),
        HandedOver::Tcp { address, .. } => Listener::Tcp(*address),
    }
}

fn spelled(listener: &Listener) -> String {
    match listener {
        Listener::Unix(path) | Listener::OwnUnix(path) => format!("unix:{}", path.display()),
        Listener::Tcp(address) => format!("tcp:{address}"),
    }
}
