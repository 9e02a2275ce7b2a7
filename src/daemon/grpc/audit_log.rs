//! Audit log of denied calls, and of all calls if the operator enables it. Never logs bodies,
//! tokens or paths. Untrusted text is escaped and truncated here; the log formatter quotes it.

mod denial_limit;

use super::auth::Caller;
use super::dispatch::METHOD_PATH_PREFIX;
use crate::daemon::catalog::{CatalogView, PackageReadError};
use crate::daemon::fs::FileReadError;
use crate::daemon::model::{PeerIdentity, QuotaKey, RootReason};
use caproot_core::proto::caproot::v1::SelectedCapabilityRoot;
use caproot_core::proto::grpc_code_name;
use caproot_core::text::truncate_escaped;
use denial_limit::{DENIAL_WINDOW, DenialDecision, DenialLimit, DeniedCaller, SuppressedDenials};
use std::borrow::Borrow;
use std::fmt::Write as _;
use std::sync::Arc;
use tonic::{Code, Extensions, Status};
use tonic_types::StatusExt as _;
use tracing::{info, warn};

/// Log target for filters. Audit lines have no parent span, so they stand alone.
const TARGET: &str = "caproot::audit";
/// Maximum bytes of each logged text, enough for every valid value.
const MAX_METHOD_BYTES: usize = 128;
const MAX_ROOT_ID_BYTES: usize = 256;
const MAX_LOGGED_HANDLE_BYTES: usize = 2_048;
const MAX_LIST_BYTES: usize = 512;

/// Writes a line at a level of `tracing`: some fields, those of the caller, and further fields with the message.
macro_rules! write_line {
    ($level:ident, [$($first:tt)*], $caller:expr, $($rest:tt)*) => {{
        let caller: AuditFields = $caller;
        $level!(
            target: TARGET, parent: None,
            $($first)*
            rules = caller.rules.as_deref(),
            uid = caller.uid,
            pid = caller.pid,
            address = caller.address.as_deref(),
            certificate_names = caller.certificate_names.as_deref(),
            $($rest)*
        );
    }};
}

/// Audit log. All clones share the same settings and rate limit.
#[derive(Debug, Clone)]
pub struct AuditLog(Arc<AuditLogInner>);

#[derive(Debug)]
struct AuditLogInner {
    log_every_call: bool,
    /// Limit of lines about denied calls, so that an unauthorized client cannot fill the disk.
    denial_limit: DenialLimit,
}

/// Call in flight.
#[derive(Debug, Clone)]
pub struct AuditedCall {
    log: AuditLog,
    subject: AuditSubject,
    /// Name of the method, once the request is decoded. Other calls are not recorded.
    method: Option<&'static str>,
    root: Option<String>,
    package: Option<String>,
    resource: Option<String>,
    /// Bytes of the response, unless the response is a stream.
    pub response_bytes: Option<usize>,
}

/// Caller of a call, as far as known.
#[derive(Debug, Clone, Default)]
struct AuditSubject {
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

impl AuditLog {
    /// Creates an audit log of denied calls. If `every_call` is set, it includes all other calls.
    #[must_use]
    pub fn new(every_call: bool) -> Self {
        Self(Arc::new(AuditLogInner {
            log_every_call: every_call,
            denial_limit: DenialLimit::new(),
        }))
    }

    /// Records a call that the authentication layer denied.
    pub(super) fn record_rejected_call(
        &self,
        peer: Option<PeerIdentity>,
        path: &str,
        status: &Status,
    ) {
        let method = path.strip_prefix(METHOD_PATH_PREFIX).unwrap_or(path);
        let method = truncate_escaped(method, MAX_METHOD_BYTES);
        let subject = AuditSubject { peer, caller: None };
        self.write_refusal(&subject, &method, None, error_reason(status).as_deref());
    }

    /// Begins a call. Reads the peer and the caller from the extensions of its request.
    pub(super) fn begin_call(&self, extensions: &Extensions) -> AuditedCall {
        AuditedCall {
            log: self.clone(),
            subject: AuditSubject {
                peer: extensions.get().cloned(),
                caller: extensions.get().cloned(),
            },
            method: None,
            root: None,
            package: None,
            resource: None,
            response_bytes: None,
        }
    }

    fn write_refusal(
        &self,
        subject: &AuditSubject,
        method: &str,
        root: Option<&str>,
        reason: Option<&str>,
    ) {
        if !self.check_denial_limit(subject.denied_caller()) {
            return;
        }

        write_line!(
            warn,
            [method,],
            subject.audit_fields(),
            root,
            reason,
            "access denied"
        );
    }

    /// Whether the rate limit allows another line. Otherwise counts the line; the count is logged
    /// after the window.
    fn check_denial_limit(&self, caller: DeniedCaller) -> bool {
        match self.0.denial_limit.record_denial(caller) {
            DenialDecision::Log => true,
            DenialDecision::Suppress => false,
            DenialDecision::SuppressFirst => {
                let inner = Arc::downgrade(&self.0);
                tokio::spawn(async move {
                    tokio::time::sleep(DENIAL_WINDOW).await;
                    if let Some(inner) = inner.upgrade() {
                        log_suppressed(&inner.denial_limit.take_suppressed());
                    }
                });
                false
            }
        }
    }
}

impl Drop for AuditLogInner {
    /// Logs the last counts when the daemon stops.
    fn drop(&mut self) {
        log_suppressed(&self.denial_limit.take_suppressed());
    }
}

/// Logs for each caller how many lines were suppressed.
fn log_suppressed(suppressed: &[SuppressedDenials]) {
    for SuppressedDenials { caller, count } in suppressed {
        let caller = caller.as_ref().map(denied_caller_fields);
        write_line!(
            warn,
            [suppressed = count,],
            caller.unwrap_or_default(),
            "further denied calls not logged"
        );
    }
}

impl AuditedCall {
    /// Sets the method and the selected roots.
    pub fn set_method(&mut self, method: &'static str, roots: &[SelectedCapabilityRoot]) {
        self.method = Some(method);
        self.root = join_root_ids(roots.iter().map(|root| &*root.id));
    }

    /// Sets the handles of a package and a resource. An empty handle is omitted.
    pub fn set_handles(&mut self, package: &str, resource: &str) {
        self.package = logged_handle(package);
        self.resource = logged_handle(resource);
    }

    /// Records the selected roots that the caller may not use.
    pub fn record_denied_roots(&self, view: &CatalogView) {
        for root in &view.roots {
            if root.state.reason() == Some(RootReason::NotAllowed) {
                self.record_denied_root(root.id.as_str());
            }
        }
    }

    /// Records a selected root that the caller may not use.
    pub fn record_denied_root(&self, root: &str) {
        let Some(method) = self.method else { return };
        let root = truncate_escaped(root, MAX_ROOT_ID_BYTES);
        self.log.write_refusal(
            &self.subject,
            method,
            Some(&root),
            Some(RootReason::NotAllowed.name()),
        );
    }

    /// Records a read that found bytes that are not approved.
    pub fn record_unapproved_read(&self, error: &PackageReadError) {
        let PackageReadError::File(FileReadError::NotApproved { approved, current }) = error else {
            return;
        };
        if !self.log.check_denial_limit(self.subject.denied_caller()) {
            return;
        }

        write_line!(
            warn,
            [method = self.method,],
            self.subject.audit_fields(),
            package = self.package.as_deref(),
            resource = self.resource.as_deref(),
            approved_digest = %approved,
            current_digest = current.map(|digest| digest.to_string()),
            "content is not approved"
        );
    }

    /// Records the outcome of the call.
    pub fn record_outcome(&self, error: Option<&Status>) {
        let Some(method) = self.method else { return };
        let root = self.root.as_deref();
        let reason = error.and_then(error_reason);
        let code = error.map_or(Code::Ok, Status::code);

        if matches!(code, Code::PermissionDenied | Code::Unauthenticated) {
            self.log
                .write_refusal(&self.subject, method, root, reason.as_deref());
        }

        if self.log.0.log_every_call {
            write_line!(
                info,
                [method,],
                self.subject.audit_fields(),
                root,
                package = self.package.as_deref(),
                resource = self.resource.as_deref(),
                outcome = grpc_code_name(code),
                reason = reason.as_deref(),
                bytes = self.response_bytes.filter(|_| error.is_none()),
                "call"
            );
        }
    }
}

impl AuditSubject {
    fn audit_fields(&self) -> AuditFields {
        let mut fields = denied_caller_fields(&self.denied_caller());
        match &self.peer {
            None => {}
            Some(PeerIdentity::Local { pid, .. }) => fields.pid = Some(*pid),
            // Denied calls are counted without the port.
            Some(PeerIdentity::Remote { address, .. }) => {
                fields.address = Some(address.to_string());
            }
        }
        fields
    }

    fn denied_caller(&self) -> DeniedCaller {
        let caller = self.caller.clone().unwrap_or_default();
        DeniedCaller {
            peer: self.peer.as_ref().map(PeerIdentity::quota_key),
            matched_rules: caller.matched_rules,
        }
    }
}

fn denied_caller_fields(caller: &DeniedCaller) -> AuditFields {
    let mut fields = AuditFields {
        rules: join_names(&caller.matched_rules),
        ..AuditFields::default()
    };

    match &caller.peer {
        None => {}
        Some(QuotaKey::User(uid)) => fields.uid = Some(*uid),
        Some(QuotaKey::CertificateNames(names)) => fields.certificate_names = join_names(names),
        Some(key @ (QuotaKey::Loopback | QuotaKey::Address(_) | QuotaKey::Connection(_))) => {
            fields.address = Some(key.to_string());
        }
    }
    fields
}

/// Returns a handle for a line, or `None` if the handle is empty.
fn logged_handle(handle: &str) -> Option<String> {
    (!handle.is_empty()).then(|| truncate_escaped(handle, MAX_LOGGED_HANDLE_BYTES))
}

/// Returns names for a line, or `None` if there are none.
fn join_names(names: &[impl Borrow<str>]) -> Option<String> {
    (!names.is_empty()).then(|| truncate_escaped(&names.join(","), MAX_LIST_BYTES))
}

/// Returns the ids of the roots of a call, or `None` if there are none.
fn join_root_ids<'a>(ids: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let mut joined = String::new();
    let mut ids = ids.into_iter();
    for id in ids.by_ref() {
        joined.push_str(if joined.is_empty() { "" } else { "," });
        joined.push_str(&truncate_escaped(id, MAX_ROOT_ID_BYTES));
        if joined.len() > MAX_LIST_BYTES {
            break;
        }
    }
    let more = ids.count();
    if more > 0 {
        let _ = write!(joined, " and {more} more");
    }
    (!joined.is_empty()).then_some(joined)
}

/// Returns the reason in the `google.rpc.ErrorInfo` of a status.
fn error_reason(status: &Status) -> Option<String> {
    status.get_details_error_info().map(|info| info.reason)
}

#[cfg(test)]
mod tests {
    use super::join_root_ids;

    #[test]
    fn long_root_list_is_truncated() {
        let long = "x".repeat(400);
        let joined = join_root_ids(["a\n", &long, &long, "b", "c"]).expect("roots");
        assert!(joined.starts_with(r"a\u{a},xxx"), "{joined}");
        assert!(joined.ends_with("x… and 2 more"), "{joined}");
        assert_eq!(join_root_ids([]), None);
    }
}
