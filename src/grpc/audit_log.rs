//! Audit log of denied calls, and of all calls if the operator enables it. Never logs bodies,
//! tokens or paths. Untrusted text is escaped and truncated here; the log formatter quotes it.

use crate::domain::escape::truncate_escaped;
use crate::domain::{Caller, PeerIdentity, RootReason};
use crate::proto::grpc_code_name;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use tonic::{Code, Extensions, Status};
use tonic_types::StatusExt as _;
use tracing::{info, warn};

/// Log target for filters. Audit lines have no parent span, so they stand alone.
const TARGET: &str = "caproot::audit";
/// Limit of lines target denied calls in a [`REFUSAL_WINDOW`]. Further lines are only counted, so
/// that an unauthorized client cannot fill the disk.
const MAX_REFUSALS_PER_WINDOW: u32 = 10;
const REFUSAL_WINDOW: Duration = Duration::from_secs(1);

/// Maximum bytes of each logged text, enough for every valid value.
const MAX_METHOD_BYTES: usize = 128;
const MAX_ROOT_ID_BYTES: usize = 256;
const MAX_LOGGED_HANDLE_BYTES: usize = 2_048;
const MAX_LIST_BYTES: usize = 512;

/// Audit log. All clones share the same settings and rate limit.
#[derive(Debug, Clone)]
pub struct AuditLog(Arc<AuditLogInner>);

#[derive(Debug)]
struct AuditLogInner {
    log_every_call: AtomicBool,
    refusal_limiter: Mutex<RefusalLimiter>,
}

/// Rate limit of lines target denied calls.
#[derive(Debug, Default)]
struct RefusalLimiter {
    window_start: Option<Instant>,
    logged: u32,
    suppressed: u64,
}

/// Caller of a call, as far as known.
#[derive(Debug, Clone, Default)]
pub struct AuditSubject {
    peer: Option<PeerIdentity>,
    caller: Option<Caller>,
}

/// Log fields of an [`AuditSubject`].
#[derive(Debug, Default)]
struct AuditFields {
    rules: Option<String>,
    uid: Option<u32>,
    pid: Option<i32>,
    address: Option<String>,
    certificate_names: Option<String>,
}

/// Method and resources of a call.
#[derive(Debug, Clone, Default)]
pub struct AuditTarget {
    method: &'static str,
    root: Option<String>,
    package: Option<String>,
    resource: Option<String>,
}

impl AuditLog {
    /// Creates an audit log of denied calls. If `every_call` is set, it includes all other calls.
    #[must_use]
    pub fn new(every_call: bool) -> Self {
        let log_every_call = AtomicBool::new(every_call);
        Self(Arc::new(AuditLogInner { log_every_call, refusal_limiter: Mutex::default() }))
    }

    /// Sets whether the log includes calls that were not denied.
    pub fn set_log_every_call(&self, every_call: bool) {
        self.0.log_every_call.store(every_call, Ordering::Relaxed);
    }

    /// Records a call that the authentication layer denied.
    pub(super) fn record_rejected_call(
        &self,
        peer: Option<&PeerIdentity>,
        path: &str,
        status: &Status,
    ) {
        let method = path.strip_prefix("/caproot.v1.CapabilityService/").unwrap_or(path);
        let method = truncate_escaped(method, MAX_METHOD_BYTES);
        let subject = AuditSubject { peer: peer.cloned(), caller: None };
        self.write_refusal(&subject, &method, None, error_reason(status).as_deref());
    }

    /// Records a selected root that the caller may not use.
    pub(super) fn record_denied_root(
        &self,
        subject: &AuditSubject,
        target: &AuditTarget,
        root: &str,
    ) {
        self.write_refusal(
            subject,
            target.method,
            Some(&truncate_escaped(root, MAX_ROOT_ID_BYTES)),
            Some(RootReason::NotAllowed.name()),
        );
    }

    /// Records the outcome of a call: the bytes of its response, or its error.
    pub(super) fn record_call(
        &self,
        subject: &AuditSubject,
        target: &AuditTarget,
        outcome: Result<Option<usize>, &Status>,
    ) {
        let AuditTarget { method, root, package, resource } = target;
        let (root, reason) = (root.as_deref(), outcome.err().and_then(error_reason));
        let code = outcome.err().map_or(Code::Ok, Status::code);
        if matches!(code, Code::PermissionDenied | Code::Unauthenticated) {
            self.write_refusal(subject, method, root, reason.as_deref());
        }
        if self.0.log_every_call.load(Ordering::Relaxed) {
            let AuditFields { rules, uid, pid, address, certificate_names } =
                subject.audit_fields();
            info!(
                target: TARGET, parent: None,
                method,
                rules = rules.as_deref(),
                uid,
                pid,
                address = address.as_deref(),
                certificate_names = certificate_names.as_deref(),
                root,
                package = package.as_deref(),
                resource = resource.as_deref(),
                outcome = grpc_code_name(code),
                reason = reason.as_deref(),
                bytes = outcome.ok().flatten(),
                "call"
            );
        }
    }

    fn write_refusal(
        &self,
        subject: &AuditSubject,
        method: &str,
        root: Option<&str>,
        reason: Option<&str>,
    ) {
        if !self.check_refusal_limit() {
            return;
        }
        let AuditFields { rules, uid, pid, address, certificate_names } = subject.audit_fields();
        warn!(
            target: TARGET, parent: None,
            method,
            rules = rules.as_deref(),
            uid,
            pid,
            address = address.as_deref(),
            certificate_names = certificate_names.as_deref(),
            root,
            reason,
            "access denied"
        );
    }

    /// Whether the rate limit allows another line. Otherwise counts the line; the count is logged
    /// when the window ends.
    fn check_refusal_limit(&self) -> bool {
        let now = Instant::now();
        let mut limiter = self.0.lock_limiter();
        if limiter.window_start.is_none_or(|since| now.duration_since(since) >= REFUSAL_WINDOW) {
            limiter.window_start = Some(now);
            limiter.logged = 0;
        }
        if limiter.logged < MAX_REFUSALS_PER_WINDOW {
            limiter.logged += 1;
            return true;
        }
        limiter.suppressed += 1;
        if limiter.suppressed == 1 {
            let inner = Arc::downgrade(&self.0);
            tokio::spawn(async move {
                tokio::time::sleep(REFUSAL_WINDOW).await;
                if let Some(inner) = inner.upgrade() {
                    inner.lock_limiter().log_suppressed();
                }
            });
        }
        false
    }
}

impl AuditLogInner {
    fn lock_limiter(&self) -> MutexGuard<'_, RefusalLimiter> {
        self.refusal_limiter.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RefusalLimiter {
    /// Logs how many lines were suppressed.
    fn log_suppressed(&mut self) {
        let suppressed = std::mem::take(&mut self.suppressed);
        if suppressed > 0 {
            warn!(target: TARGET, parent: None, suppressed, "further denied calls not logged");
        }
    }
}

impl Drop for AuditLogInner {
    /// Logs the last count when the daemon stops.
    fn drop(&mut self) {
        self.refusal_limiter.get_mut().unwrap_or_else(PoisonError::into_inner).log_suppressed();
    }
}

impl AuditSubject {
    /// Reads the peer and the caller from the extensions of a request.
    pub fn from_extensions(extensions: &Extensions) -> Self {
        Self { peer: extensions.get().cloned(), caller: extensions.get().cloned() }
    }

    fn audit_fields(&self) -> AuditFields {
        let join = |names: &[&str]| {
            (!names.is_empty()).then(|| truncate_escaped(&names.join(","), MAX_LIST_BYTES))
        };
        let rules = self.caller.as_ref();
        let rules =
            rules.map(|caller| caller.matched_rules.iter().map(|name| &**name).collect::<Vec<_>>());
        let fields =
            AuditFields { rules: rules.and_then(|rules| join(&rules)), ..AuditFields::default() };
        match &self.peer {
            None => fields,
            Some(PeerIdentity::Local { pid, uid, .. }) => {
                AuditFields { uid: Some(*uid), pid: Some(*pid), ..fields }
            }
            Some(PeerIdentity::Remote { address, names }) => {
                let names: Vec<&str> = names.iter().map(|name| &**name).collect();
                AuditFields {
                    address: Some(address.to_string()),
                    certificate_names: join(&names),
                    ..fields
                }
            }
        }
    }
}

impl AuditTarget {
    /// Creates the target of a call target these roots.
    pub fn for_roots<'a>(method: &'static str, ids: impl IntoIterator<Item = &'a str>) -> Self {
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

    /// Adds the handles of a package and a resource. An empty handle is omitted.
    pub fn with_handles(self, package: &str, resource: &str) -> Self {
        let logged = |handle: &str| {
            (!handle.is_empty()).then(|| truncate_escaped(handle, MAX_LOGGED_HANDLE_BYTES))
        };
        Self { package: logged(package), resource: logged(resource), ..self }
    }
}

/// Returns the reason in the `google.rpc.ErrorInfo` of a status.
fn error_reason(status: &Status) -> Option<String> {
    status.get_details_error_info().map(|info| info.reason)
}

#[cfg(test)]
mod tests {
    use super::AuditTarget;

    #[test]
    fn long_root_list_is_truncated() {
        let long = "x".repeat(400);
        let target =
            AuditTarget::for_roots("M", ["a\n", &long, &long, "b", "c"]).root.expect("roots");
        assert!(target.starts_with(r"a\u{a},xxx"), "{target}");
        assert!(target.ends_with("x… and 2 more"), "{target}");
        assert_eq!(AuditTarget::for_roots("M", []).root, None);
    }
}
