//! Conversion of errors to gRPC statuses with `google.rpc` details. No match has a wildcard arm, so
//! a new error does not compile without a status.

use super::quota::QuotaExceeded;
use crate::catalog::{DeadlineExceeded, PackageReadError};
use crate::disk::FileReadError;
use crate::domain::RootReason;
use crate::domain::callers::AuthDenial;
use std::collections::HashMap;
use std::time::Duration;
use tonic::{Code, Status};
use tonic_types::{BadRequest, ErrorDetail, ErrorInfo, RetryInfo, StatusExt as _};

const ERROR_DOMAIN: &str = "caproot";

/// Builds a status. Its message begins with the reason, for clients that do not decode details. The
/// details are `ErrorInfo`, then `BadRequest` or `RetryInfo`.
fn error_status(
    code: Code,
    reason: &str,
    message: &str,
    metadata: HashMap<String, String>,
    detail: Option<ErrorDetail>,
) -> Status {
    let info = ErrorInfo::new(reason, ERROR_DOMAIN, metadata).into();
    let details = std::iter::once(info).chain(detail);
    Status::with_error_details_vec(code, format!("{reason}: {message}"), details)
}

/// Invalid field of a request.
#[derive(Debug)]
pub struct BadField {
    field: String,
    problem: String,
    reason: &'static str,
}

impl BadField {
    pub fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into(), reason: "INVALID_ARGUMENT" }
    }

    pub fn with_reason(self, reason: &'static str) -> Self {
        Self { reason, ..self }
    }
}

impl From<BadField> for Status {
    fn from(bad: BadField) -> Self {
        let BadField { field, problem, reason } = bad;
        let message = format!("`{field}` {problem}");
        let detail = Some(BadRequest::with_violation(field, problem).into());
        error_status(Code::InvalidArgument, reason, &message, HashMap::new(), detail)
    }
}

/// Error of a method, with or without a root.
#[derive(Debug)]
pub enum RpcError {
    AuthorityMismatch,
    CatalogChanged,
    Read(PackageReadError),
    DeadlineExceeded,
}

impl From<DeadlineExceeded> for RpcError {
    fn from(_: DeadlineExceeded) -> Self {
        Self::DeadlineExceeded
    }
}

impl RpcError {
    pub fn into_status(self, root: Option<&str>) -> Status {
        let mut metadata = HashMap::new();
        if let Some(root) = root {
            metadata.insert("root_id".to_owned(), root.to_owned());
        }
        let (code, reason, message) = match self {
            Self::AuthorityMismatch => (
                Code::FailedPrecondition,
                "AUTHORITY_MISMATCH",
                "the authority does not match the root; send it back as listed",
            ),
            Self::CatalogChanged => (
                Code::Aborted,
                "CATALOG_CHANGED",
                "the revision of the page token is no longer kept; list again from the first page",
            ),
            Self::DeadlineExceeded | Self::Read(PackageReadError::DeadlineExceeded) => (
                Code::DeadlineExceeded,
                "DEADLINE_EXCEEDED",
                "the scan of the root did not finish in time; allow more time, or request CACHED",
            ),
            Self::Read(PackageReadError::RootPending) => (
                Code::FailedPrecondition,
                "ROOT_UNAVAILABLE",
                "the first scan of the root is running; try again later",
            ),
            Self::Read(PackageReadError::RootUnavailable(reason)) => root_error(reason),
            Self::Read(PackageReadError::PackageNotFound) => (
                Code::NotFound,
                "PACKAGE_NOT_FOUND",
                "the package is not in the root's catalog now; list again",
            ),
            Self::Read(PackageReadError::File(unread)) => read_error(unread, &mut metadata),
        };
        error_status(code, reason, message, metadata, None)
    }
}

fn root_error(reason: RootReason) -> (Code, &'static str, &'static str) {
    let (code, name) = match reason {
        RootReason::NotAllowed => (Code::PermissionDenied, "ROOT_NOT_ALLOWED"),
        RootReason::WrongEnvironment | RootReason::MissingEnvironment => {
            (Code::FailedPrecondition, "WRONG_ENVIRONMENT")
        }
        RootReason::NotFound
        | RootReason::NotADirectory
        | RootReason::PermissionDenied
        | RootReason::SandboxDenied
        | RootReason::InvalidPath
        | RootReason::PathTooLong
        | RootReason::UnsupportedLocation
        | RootReason::Timeout
        | RootReason::IoError => (Code::FailedPrecondition, "ROOT_UNAVAILABLE"),
    };
    (code, name, reason.message())
}

fn read_error(
    unread: FileReadError,
    metadata: &mut HashMap<String, String>,
) -> (Code, &'static str, &'static str) {
    match unread {
        FileReadError::NotFound => {
            (Code::NotFound, "RESOURCE_NOT_FOUND", "no such regular file in the package")
        }
        FileReadError::Outside => (
            Code::PermissionDenied,
            "OUTSIDE_ROOT",
            "a link leads outside the allowed roots, or must not be followed below this root",
        ),
        FileReadError::TooLarge { size } => {
            metadata.insert("size_bytes".to_owned(), size.to_string());
            (Code::FailedPrecondition, "TOO_LARGE", "the file is over `max_file_bytes`")
        }
        FileReadError::Changed(digest) => {
            if let Some(digest) = digest {
                metadata.insert("digest".to_owned(), digest.to_string());
            }
            (Code::Aborted, "RESOURCE_CHANGED", "the file changed; read again from the start")
        }
        FileReadError::Denied => (
            Code::NotFound,
            "RESOURCE_NOT_FOUND",
            "the daemon's user may not read the file; give it permission",
        ),
        FileReadError::TooManyOpenFiles => (
            Code::FailedPrecondition,
            "ROOT_UNAVAILABLE",
            "the daemon has no free file descriptor; raise its limit of open files",
        ),
        FileReadError::Failed => (
            Code::FailedPrecondition,
            "ROOT_UNAVAILABLE",
            "the file cannot be read; check the filesystem below the root",
        ),
    }
}

/// Returns the status of a denied caller. It is independent of the request, so the caller learns
/// nothing about the roots.
pub fn caller_denied(denial: AuthDenial) -> Status {
    let (code, reason, message) = match denial {
        AuthDenial::Unauthenticated => (
            Code::Unauthenticated,
            "CALLER_UNKNOWN",
            "the caller has no valid credentials; present a client certificate, or the right token \
             as `authorization: Bearer TOKEN`",
        ),
        AuthDenial::NotAllowed => (
            Code::PermissionDenied,
            "CALLER_NOT_ALLOWED",
            "no rule matches this caller; ask the executor's operator to add a rule to `callers`",
        ),
    };
    error_status(code, reason, message, HashMap::new(), None)
}

/// Returns the status of a call during shutdown.
pub fn shutting_down() -> Status {
    let detail = Some(retry_after(Duration::from_secs(1)));
    error_status(Code::Unavailable, "SHUTTING_DOWN", "the daemon stops", HashMap::new(), detail)
}

/// Returns the status of a stream over the quota of open streams.
pub fn too_many_streams(exceeded: QuotaExceeded) -> Status {
    let QuotaExceeded { limit_name, limit } = exceeded;
    let message = format!("{limit_name} is {limit}, and all are open; close one, or retry later");
    quota_exceeded("TOO_MANY_STREAMS", exceeded, &message, Duration::from_secs(5))
}

/// Returns the status of a call over the quota of calls in flight or of buffered bytes.
pub fn overloaded(exceeded: QuotaExceeded) -> Status {
    let QuotaExceeded { limit_name, limit } = exceeded;
    let message = format!(
        "{limit_name} is {limit}, and calls in flight use it up; read their responses, or retry later"
    );
    quota_exceeded("OVERLOADED", exceeded, &message, Duration::from_secs(1))
}

fn quota_exceeded(reason: &str, exceeded: QuotaExceeded, message: &str, delay: Duration) -> Status {
    let metadata = HashMap::from([
        ("limit_name".to_owned(), exceeded.limit_name.to_owned()),
        ("limit".to_owned(), exceeded.limit.to_string()),
    ]);
    let detail = Some(retry_after(delay));
    error_status(Code::ResourceExhausted, reason, message, metadata, detail)
}

fn retry_after(delay: Duration) -> ErrorDetail {
    RetryInfo::new(Some(delay)).into()
}

/// Returns the status of a call whose deadline passed.
pub fn call_deadline_exceeded() -> Status {
    deadline_exceeded("the call did not finish before its deadline; set a longer deadline")
}

/// Returns the status of a call whose request did not arrive in time.
pub fn request_timed_out() -> Status {
    deadline_exceeded("the request did not arrive in time; send all of it at once")
}

fn deadline_exceeded(message: &str) -> Status {
    error_status(Code::DeadlineExceeded, "DEADLINE_EXCEEDED", message, HashMap::new(), None)
}

/// Returns the status of a request without the peer of its connection, which is a bug of the
/// daemon.
pub fn missing_peer() -> Status {
    Status::internal("internal error: the request has no peer address")
}
