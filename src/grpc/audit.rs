//! The audit log: who was refused, and where the operator wants it, who asked for what. Never a body,
//! a token or a path. What strangers wrote is escaped and cut here, and passed on as text, which the
//! log's writers quote. Leaves finding out what a call is about to `audited`.

use crate::domain::shown::brief;
use crate::domain::{Caller, Peer};
use crate::proto::code_name;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use tonic::{Code, Extensions, Status};
use tonic_types::StatusExt as _;
use tracing::{info, warn};

/// What a log filter names it by.
/// Lines of it stand alone, and not in the span of a call.
const TARGET: &str = "caproot::audit";
/// Lines about refused calls in a [`SPAN`]; further ones are counted, so that nobody who may not ask
/// can fill a disk.
const MAX_REFUSALS: u32 = 10;
const SPAN: Duration = Duration::from_secs(1);

/// The most bytes of each: as many as a good one has, or of names enough to tell whose they are.
const MAX_METHOD: usize = 128;
const MAX_ID: usize = 256;
const MAX_HANDLE: usize = 2_048;
const MAX_NAMES: usize = 512;

/// Writes the audit log. Cheap to clone; all clones are one.
#[derive(Debug, Clone)]
pub struct Audit(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    every_call: AtomicBool,
    refusals: Mutex<Refusals>,
}

/// How many lines were written lately.
#[derive(Debug, Default)]
struct Refusals {
    since: Option<Instant>,
    told: u32,
    untold: u64,
}

/// Who calls, as far as that is known. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct Who {
    peer: Option<Peer>,
    caller: Option<Caller>,
}

/// The same in words.
#[derive(Debug, Default)]
struct Told {
    rules: Option<String>,
    uid: Option<u32>,
    pid: Option<i32>,
    address: Option<String>,
    names: Option<String>,
}

/// What a call is about.
#[derive(Debug, Clone, Default)]
pub(super) struct About {
    method: &'static str,
    root: Option<String>,
    package: Option<String>,
    resource: Option<String>,
}

impl Audit {
    /// One that tells refused calls, and with `every_call` the others too.
    #[must_use]
    pub fn new(every_call: bool) -> Self {
        let every_call = AtomicBool::new(every_call);
        Self(Arc::new(Inner { every_call, refusals: Mutex::default() }))
    }

    /// Whether the calls are told that are not refused, from now on.
    pub fn tell_every_call(&self, every_call: bool) {
        self.0.every_call.store(every_call, Ordering::Relaxed);
    }

    /// A call that the door did not let in, by its path.
    pub(super) fn turned_away(&self, peer: Option<&Peer>, path: &str, status: &Status) {
        let method = path.strip_prefix("/caproot.v1.CapabilityService/").unwrap_or(path);
        let method = brief(method, MAX_METHOD);
        let who = Who { peer: peer.cloned(), caller: None };
        self.refusal(&who, &method, None, reason(status).as_deref());
    }

    /// A root that was asked for, and is none that the caller may use.
    pub(super) fn root_refused(&self, who: &Who, about: &About, root: &str) {
        self.refusal(who, about.method, Some(&brief(root, MAX_ID)), Some("NOT_ALLOWED"));
    }

    /// A call that was answered by `bytes`, or by a status.
    pub(super) fn called(&self, who: &Who, about: &About, outcome: Result<Option<usize>, &Status>) {
        let About { method, root, package, resource } = about;
        let (root, reason) = (root.as_deref(), outcome.err().and_then(reason));
        let code = outcome.err().map_or(Code::Ok, Status::code);
        if matches!(code, Code::PermissionDenied | Code::Unauthenticated) {
            self.refusal(who, method, root, reason.as_deref());
        }
        if self.0.every_call.load(Ordering::Relaxed) {
            let Told { rules, uid, pid, address, names } = who.told();
            info!(
                target: TARGET, parent: None,
                method,
                caller = rules.as_deref(),
                uid,
                pid,
                address = address.as_deref(),
                names = names.as_deref(),
                root,
                package = package.as_deref(),
                resource = resource.as_deref(),
                outcome = code_name(code),
                reason = reason.as_deref(),
                bytes = outcome.ok().flatten(),
                "called"
            );
        }
    }

    fn refusal(&self, who: &Who, method: &str, root: Option<&str>, reason: Option<&str>) {
        if !self.may_tell() {
            return;
        }
        let Told { rules, uid, pid, address, names } = who.told();
        warn!(
            target: TARGET, parent: None,
            method,
            caller = rules.as_deref(),
            uid,
            pid,
            address = address.as_deref(),
            names = names.as_deref(),
            root,
            reason,
            "refused"
        );
    }

    /// Whether a line more may be written; those that may not are counted, and the count is written
    /// when the span is over.
    fn may_tell(&self) -> bool {
        let now = Instant::now();
        let mut refusals = self.0.refusals();
        if refusals.since.is_none_or(|since| now.duration_since(since) >= SPAN) {
            refusals.since = Some(now);
            refusals.told = 0;
        }
        if refusals.told < MAX_REFUSALS {
            refusals.told += 1;
            return true;
        }
        refusals.untold += 1;
        if refusals.untold == 1 {
            let inner = Arc::downgrade(&self.0);
            tokio::spawn(async move {
                tokio::time::sleep(SPAN).await;
                if let Some(inner) = inner.upgrade() {
                    inner.refusals().tell();
                }
            });
        }
        false
    }
}

impl Inner {
    fn refusals(&self) -> MutexGuard<'_, Refusals> {
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Refusals {
    /// Says how many lines were not written.
    fn tell(&mut self) {
        let untold = std::mem::take(&mut self.untold);
        if untold > 0 {
            warn!(target: TARGET, parent: None, untold, "further calls were refused");
        }
    }
}

impl Drop for Inner {
    /// A daemon that ends tells what it still has to tell.
    fn drop(&mut self) {
        self.refusals.get_mut().unwrap_or_else(PoisonError::into_inner).tell();
    }
}

impl Who {
    /// From what the connection and the door left with a request.
    pub(super) fn of(extensions: &Extensions) -> Self {
        Self { peer: extensions.get().cloned(), caller: extensions.get().cloned() }
    }

    fn told(&self) -> Told {
        let listed =
            |names: &[&str]| (!names.is_empty()).then(|| brief(&names.join(","), MAX_NAMES));
        let rules = self.caller.as_ref();
        let rules = rules.map(|caller| caller.rules.iter().map(|name| &**name).collect::<Vec<_>>());
        let who = Told { rules: rules.and_then(|rules| listed(&rules)), ..Told::default() };
        match &self.peer {
            None => who,
            Some(Peer::Local { pid, uid, .. }) => Told { uid: Some(*uid), pid: Some(*pid), ..who },
            Some(Peer::Remote { address, names }) => {
                let names: Vec<&str> = names.iter().map(|name| &**name).collect();
                Told { address: Some(address.to_string()), names: listed(&names), ..who }
            }
        }
    }
}

impl About {
    /// A call about these roots, by their ids.
    pub(super) fn roots<'a>(method: &'static str, ids: impl IntoIterator<Item = &'a str>) -> Self {
        let mut root = String::new();
        let mut ids = ids.into_iter();
        for id in ids.by_ref() {
            root.push_str(if root.is_empty() { "" } else { "," });
            root.push_str(&brief(id, MAX_ID));
            if root.len() > MAX_NAMES {
                break;
            }
        }
        let more = ids.count();
        if more > 0 {
            let _ = write!(root, " and {more} more");
        }
        Self { method, root: (!root.is_empty()).then_some(root), ..Self::default() }
    }

    /// The same about a package, and a resource of it if it is not the main one.
    pub(super) fn handles(self, package: &str, resource: &str) -> Self {
        let some = |handle: &str| (!handle.is_empty()).then(|| brief(handle, MAX_HANDLE));
        Self { package: some(package), resource: some(resource), ..self }
    }
}

/// The reason in the status's `google.rpc.ErrorInfo`.
fn reason(status: &Status) -> Option<String> {
    status.get_details_error_info().map(|info| info.reason)
}

#[cfg(test)]
mod tests {
    use super::About;

    #[test]
    fn many_roots_are_cut() {
        let long = "x".repeat(400);
        let about = About::roots("M", ["a\n", &long, &long, "b", "c"]).root.expect("roots");
        assert!(about.starts_with(r"a\u{a},xxx"), "{about}");
        assert!(about.ends_with("x… and 2 more"), "{about}");
        assert_eq!(About::roots("M", []).root, None);
    }
}
