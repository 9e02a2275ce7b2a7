//! The audit log: who was refused, and where the operator wants it, who asked for what. Never a body,
//! a token or a path. What strangers wrote is escaped and cut here, and passed on as text, which the
//! log's writers quote. Leaves finding out what a call is about to `audited`.

use crate::domain::escape::truncate_escaped;
use crate::domain::{Caller, PeerIdentity};
use crate::proto::grpc_code_name;
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
const MAX_REFUSALS_PER_WINDOW: u32 = 10;
const REFUSAL_WINDOW: Duration = Duration::from_secs(1);

/// The most bytes of each: as many as a good one has, or of names enough to tell whose they are.
const MAX_METHOD_BYTES: usize = 128;
const MAX_ROOT_ID_BYTES: usize = 256;
const MAX_LOGGED_HANDLE_BYTES: usize = 2_048;
const MAX_LIST_BYTES: usize = 512;

/// Writes the audit log. Cheap to clone; all clones are one.
#[derive(Debug, Clone)]
pub struct AuditLog(Arc<AuditLogInner>);

#[derive(Debug)]
struct AuditLogInner {
    log_every_call: AtomicBool,
    refusal_limiter: Mutex<RefusalLimiter>,
}

/// How many lines were written lately.
#[derive(Debug, Default)]
struct RefusalLimiter {
    window_start: Option<Instant>,
    logged: u32,
    suppressed: u64,
}

/// Who calls, as far as that is known. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct AuditSubject {
    peer: Option<PeerIdentity>,
    caller: Option<Caller>,
}

/// The same in words.
#[derive(Debug, Default)]
struct AuditFields {
    rules: Option<String>,
    uid: Option<u32>,
    pid: Option<i32>,
    address: Option<String>,
    certificate_names: Option<String>,
}

/// What a call is about.
#[derive(Debug, Clone, Default)]
pub(super) struct AuditTarget {
    method: &'static str,
    root: Option<String>,
    package: Option<String>,
    resource: Option<String>,
}

impl AuditLog {
    /// One that tells refused calls, and with `every_call` the others too.
    #[must_use]
    pub fn new(every_call: bool) -> Self {
        let every_call = AtomicBool::new(every_call);
        Self(Arc::new(AuditLogInner {
            log_every_call: every_call,
            refusal_limiter: Mutex::default(),
        }))
    }

    /// Whether the calls are told that are not refused, from now on.
    pub fn set_log_every_call(&self, every_call: bool) {
        self.0.log_every_call.store(every_call, Ordering::Relaxed);
    }

    /// A call that the door did not let in, by its path.
    pub(super) fn record_rejected_call(
        &self,
        peer: Option<&PeerIdentity>,
        path: &str,
        status: &Status,
    ) {
        let method = path.strip_prefix("/caproot.v1.CapabilityService/").unwrap_or(path);
        let method = truncate_escaped(method, MAX_METHOD_BYTES);
        let who = AuditSubject { peer: peer.cloned(), caller: None };
        self.write_refusal(&who, &method, None, error_reason(status).as_deref());
    }

    /// A root that was asked for, and is none that the caller may use.
    pub(super) fn record_denied_root(&self, who: &AuditSubject, about: &AuditTarget, root: &str) {
        self.write_refusal(
            who,
            about.method,
            Some(&truncate_escaped(root, MAX_ROOT_ID_BYTES)),
            Some("NOT_ALLOWED"),
        );
    }

    /// A call that was answered by `bytes`, or by a status.
    pub(super) fn record_call(
        &self,
        who: &AuditSubject,
        about: &AuditTarget,
        outcome: Result<Option<usize>, &Status>,
    ) {
        let AuditTarget { method, root, package, resource } = about;
        let (root, reason) = (root.as_deref(), outcome.err().and_then(error_reason));
        let code = outcome.err().map_or(Code::Ok, Status::code);
        if matches!(code, Code::PermissionDenied | Code::Unauthenticated) {
            self.write_refusal(who, method, root, reason.as_deref());
        }
        if self.0.log_every_call.load(Ordering::Relaxed) {
            let AuditFields { rules, uid, pid, address, certificate_names: names } =
                who.audit_fields();
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
                outcome = grpc_code_name(code),
                reason = reason.as_deref(),
                bytes = outcome.ok().flatten(),
                "called"
            );
        }
    }

    fn write_refusal(
        &self,
        who: &AuditSubject,
        method: &str,
        root: Option<&str>,
        reason: Option<&str>,
    ) {
        if !self.check_refusal_limit() {
            return;
        }
        let AuditFields { rules, uid, pid, address, certificate_names: names } = who.audit_fields();
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
    fn check_refusal_limit(&self) -> bool {
        let now = Instant::now();
        let mut refusals = self.0.refusal_limiter();
        if refusals.window_start.is_none_or(|since| now.duration_since(since) >= REFUSAL_WINDOW) {
            refusals.window_start = Some(now);
            refusals.logged = 0;
        }
        if refusals.logged < MAX_REFUSALS_PER_WINDOW {
            refusals.logged += 1;
            return true;
        }
        refusals.suppressed += 1;
        if refusals.suppressed == 1 {
            let inner = Arc::downgrade(&self.0);
            tokio::spawn(async move {
                tokio::time::sleep(REFUSAL_WINDOW).await;
                if let Some(inner) = inner.upgrade() {
                    inner.refusal_limiter().log_suppressed();
                }
            });
        }
        false
    }
}

impl AuditLogInner {
    fn refusal_limiter(&self) -> MutexGuard<'_, RefusalLimiter> {
        self.refusal_limiter.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RefusalLimiter {
    /// Says how many lines were not written.
    fn log_suppressed(&mut self) {
        let untold = std::mem::take(&mut self.suppressed);
        if untold > 0 {
            warn!(target: TARGET, parent: None, untold, "further calls were refused");
        }
    }
}

impl Drop for AuditLogInner {
    /// A daemon that ends tells what it still has to tell.
    fn drop(&mut self) {
        self.refusal_limiter.get_mut().unwrap_or_else(PoisonError::into_inner).log_suppressed();
    }
}

impl AuditSubject {
    /// From what the connection and the door left with a request.
    pub(super) fn from_extensions(extensions: &Extensions) -> Self {
        Self { peer: extensions.get().cloned(), caller: extensions.get().cloned() }
    }

    fn audit_fields(&self) -> AuditFields {
        let listed = |names: &[&str]| {
            (!names.is_empty()).then(|| truncate_escaped(&names.join(","), MAX_LIST_BYTES))
        };
        let rules = self.caller.as_ref();
        let rules =
            rules.map(|caller| caller.matched_rules.iter().map(|name| &**name).collect::<Vec<_>>());
        let who =
            AuditFields { rules: rules.and_then(|rules| listed(&rules)), ..AuditFields::default() };
        match &self.peer {
            None => who,
            Some(PeerIdentity::Local { pid, uid, .. }) => {
                AuditFields { uid: Some(*uid), pid: Some(*pid), ..who }
            }
            Some(PeerIdentity::Remote { address, names }) => {
                let names: Vec<&str> = names.iter().map(|name| &**name).collect();
                AuditFields {
                    address: Some(address.to_string()),
                    certificate_names: listed(&names),
                    ..who
                }
            }
        }
    }
}

impl AuditTarget {
    /// A call about these roots, by their ids.
    pub(super) fn for_roots<'a>(
        method: &'static str,
        ids: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let mut root = String::new();
        let mut ids = ids.into_iter();
        for id in ids.by_ref() {
            root.push_str(if root.is_empty() { "" } else { "," });
            root.push_str(&truncate_escaped(id, MAX_ROOT_ID_BYTES));
            if root.len() > MAX_LIST_BYTES {
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
    pub(super) fn with_handles(self, package: &str, resource: &str) -> Self {
        let some = |handle: &str| {
            (!handle.is_empty()).then(|| truncate_escaped(handle, MAX_LOGGED_HANDLE_BYTES))
        };
        Self { package: some(package), resource: some(resource), ..self }
    }
}

/// The reason in the status's `google.rpc.ErrorInfo`.
fn error_reason(status: &Status) -> Option<String> {
    status.get_details_error_info().map(|info| info.reason)
}

#[cfg(test)]
mod tests {
    use super::AuditTarget;

    #[test]
    fn many_roots_are_cut() {
        let long = "x".repeat(400);
        let about =
            AuditTarget::for_roots("M", ["a\n", &long, &long, "b", "c"]).root.expect("roots");
        assert!(about.starts_with(r"a\u{a},xxx"), "{about}");
        assert!(about.ends_with("x… and 2 more"), "{about}");
        assert_eq!(AuditTarget::for_roots("M", []).root, None);
    }
}
