//! Conversion of errors to gRPC statuses with `google.rpc` details. No match has a wildcard arm, so
//! a new error does not compile without a status.

use super::auth::AuthDenial;
use super::quota::QuotaExceeded;
use crate::daemon::catalog::{DeadlineExceeded, PackageReadError};
use crate::daemon::fs::FileReadError;
use crate::daemon::model::RootReason;
use caproot_core::proto::ERROR_DOMAIN;
use caproot_core::proto::caproot::v1::ErrorReason;
use std::collections::HashMap;
use std::time::Duration;
use tonic::{Code, Status};
use tonic_types::{BadRequest, ErrorDetail, ErrorInfo, RetryInfo, StatusExt as _};

/// Metadata of `google.rpc.ErrorInfo`.
type ErrorMetadata = Vec<(&'static str, String)>;

/// Returns the status code of a reason.
fn status_code(reason: ErrorReason) -> Code {
    match reason {
        ErrorReason::InvalidArgument | ErrorReason::TooManyRoots => Code::InvalidArgument,
        ErrorReason::CallerUnknown => Code::Unauthenticated,
        ErrorReason::CallerNotAllowed | ErrorReason::RootNotAllowed | ErrorReason::OutsideRoot => {
            Code::PermissionDenied
        }
        ErrorReason::PackageNotFound | ErrorReason::ResourceNotFound => Code::NotFound,
        ErrorReason::RootUnavailable
        | ErrorReason::WrongEnvironment
        | ErrorReason::AuthorityMismatch
        | ErrorReason::TooLarge
        | ErrorReason::NotApproved => Code::FailedPrecondition,
        ErrorReason::CatalogChanged | ErrorReason::ResourceChanged => Code::Aborted,
        ErrorReason::DeadlineExceeded => Code::DeadlineExceeded,
        ErrorReason::TooManyStreams | ErrorReason::Overloaded => Code::ResourceExhausted,
        ErrorReason::ShuttingDown => Code::Unavailable,
        ErrorReason::Unspecified => Code::Unknown,
    }
}

/// Builds a status. Its message begins with the reason, for clients that do not decode details. The
/// details are `ErrorInfo`, then `BadRequest` or `RetryInfo`.
fn error_status(
    reason: ErrorReason,
    message: &str,
    metadata: ErrorMetadata,
    detail: Option<ErrorDetail>,
) -> Status {
    let name = reason.wire_name();
    let metadata: HashMap<_, _> = metadata
        .into_iter()
        .map(|(key, value)| (key.into(), value))
        .collect();
    let info = ErrorInfo::new(name, ERROR_DOMAIN, metadata).into();
    let details = std::iter::once(info).chain(detail);
    Status::with_error_details_vec(status_code(reason), format!("{name}: {message}"), details)
}

/// Invalid field of a request.
#[derive(Debug)]
pub struct BadField {
    field: String,
    problem: String,
    reason: ErrorReason,
}

impl BadField {
    pub fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            problem: problem.into(),
            reason: ErrorReason::InvalidArgument,
        }
    }

    pub fn with_reason(self, reason: ErrorReason) -> Self {
        Self { reason, ..self }
    }
}

impl From<BadField> for Status {
    fn from(
        BadField {
            field,
            problem,
            reason,
        }: BadField,
    ) -> Self {
        let message = format!("`{field}` {problem}");
        let detail = BadRequest::with_violation(field, problem).into();
        error_status(reason, &message, Vec::new(), Some(detail))
    }
}

/// Error of a method, with or without a root.
#[derive(Debug)]
pub enum RpcError {
    AuthorityMismatch,
    CatalogChanged,
    Read(PackageReadError),
}

impl From<DeadlineExceeded> for RpcError {
    fn from(error: DeadlineExceeded) -> Self {
        Self::Read(error.into())
    }
}

/// Converts an error that is about no single root.
impl From<RpcError> for Status {
    fn from(error: RpcError) -> Self {
        error.into_status(None)
    }
}

impl RpcError {
    pub fn into_status(self, root: Option<&str>) -> Status {
        let mut metadata = Vec::new();
        metadata.extend(root.map(|root| ("root_id", root.to_owned())));

        let (reason, message) = match self {
            Self::AuthorityMismatch => (
                ErrorReason::AuthorityMismatch,
                "the authority does not match the root; send it back as listed",
            ),
            Self::CatalogChanged => (
                ErrorReason::CatalogChanged,
                "the revision of the page token is no longer kept; list again from the first page",
            ),
            Self::Read(PackageReadError::DeadlineExceeded) => (
                ErrorReason::DeadlineExceeded,
                "the scan of the root did not finish in time; allow more time, or request CACHED",
            ),
            Self::Read(PackageReadError::RootPending) => (
                ErrorReason::RootUnavailable,
                "the first scan of the root is running; try again later",
            ),
            Self::Read(PackageReadError::RootUnavailable(reason)) => root_error(reason),
            Self::Read(PackageReadError::NoThread) => return no_thread(),
            Self::Read(PackageReadError::PackageNotFound) => (
                ErrorReason::PackageNotFound,
                "the package is not in the root's catalog now; list again",
            ),
            Self::Read(PackageReadError::File(unread)) => read_error(unread, &mut metadata),
        };

        error_status(reason, message, metadata, None)
    }
}

fn root_error(reason: RootReason) -> (ErrorReason, &'static str) {
    let error = match reason {
        RootReason::NotAllowed => ErrorReason::RootNotAllowed,
        RootReason::WrongEnvironment | RootReason::MissingEnvironment => {
            ErrorReason::WrongEnvironment
        }
        RootReason::NotFound
        | RootReason::MountRemoved
        | RootReason::NotADirectory
        | RootReason::PermissionDenied
        | RootReason::SandboxDenied
        | RootReason::InvalidPath
        | RootReason::UnknownPublished
        | RootReason::PathTooLong
        | RootReason::UnsupportedLocation
        | RootReason::Timeout
        | RootReason::ParseTimeout
        | RootReason::IoError
        | RootReason::NoThread
        | RootReason::ScanFailed => ErrorReason::RootUnavailable,
    };
    (error, reason.message())
}

fn read_error(unread: FileReadError, metadata: &mut ErrorMetadata) -> (ErrorReason, &'static str) {
    match unread {
        FileReadError::NotFound => (
            ErrorReason::ResourceNotFound,
            "no such regular file in the package",
        ),
        FileReadError::Outside => (
            ErrorReason::OutsideRoot,
            "a link leads outside the allowed roots, or must not be followed below this root",
        ),
        FileReadError::TooLarge { size } => {
            metadata.push(("size_bytes", size.to_string()));
            (ErrorReason::TooLarge, "the file is over `max_file_bytes`")
        }
        FileReadError::Changed(digest) => {
            metadata.extend(digest.map(|digest| ("digest", digest.to_string())));
            (
                ErrorReason::ResourceChanged,
                "the file changed; read again from the start",
            )
        }
        FileReadError::NotApproved { approved, current } => {
            metadata.push(("approved_digest", approved.to_string()));
            metadata.extend(current.map(|digest| ("digest", digest.to_string())));
            (
                ErrorReason::NotApproved,
                "the content of the file is not approved; ask the executor's operator to review the file",
            )
        }
        FileReadError::Denied => (
            ErrorReason::ResourceNotFound,
            "the daemon's user may not read the file; give it permission",
        ),
        FileReadError::Secret => (
            ErrorReason::ResourceNotFound,
            "the file may hold keys or passwords, and is never served",
        ),
        FileReadError::TooManyOpenFiles => (
            ErrorReason::RootUnavailable,
            "the daemon has no free file descriptor; raise its limit of open files",
        ),
        FileReadError::Failed => (
            ErrorReason::RootUnavailable,
            "the file cannot be read; check the filesystem below the root",
        ),
    }
}

/// Returns the status of a denied caller. It is independent of the request, so the caller learns
/// nothing about the roots.
pub fn caller_denied(denial: AuthDenial) -> Status {
    let (reason, message) = match denial {
        AuthDenial::Unauthenticated => (
            ErrorReason::CallerUnknown,
            "the caller has no valid credentials; present a client certificate, or the right token \
             as `authorization: Bearer TOKEN`",
        ),
        AuthDenial::NoThread => return no_thread(),
        AuthDenial::NotAllowed => (
            ErrorReason::CallerNotAllowed,
            "no rule matches this caller; ask the executor's operator to add a rule to `callers`",
        ),
    };
    error_status(reason, message, Vec::new(), None)
}

/// Returns the status of a call for which the system refused the daemon a thread.
fn no_thread() -> Status {
    error_status(
        ErrorReason::Overloaded,
        "the system refuses the daemon a thread; retry later, or have the executor's operator raise \
         the limit of threads",
        Vec::new(),
        Some(retry_after(1)),
    )
}

/// Returns the status of a call during shutdown.
pub fn shutting_down() -> Status {
    let message = "the daemon stops";
    error_status(
        ErrorReason::ShuttingDown,
        message,
        Vec::new(),
        Some(retry_after(1)),
    )
}

/// Returns the status of a stream over the quota of open streams.
pub fn too_many_streams(exceeded: QuotaExceeded) -> Status {
    let problem = "all are open; close one, or retry later";
    quota_exceeded(ErrorReason::TooManyStreams, exceeded, problem, 5)
}

/// Returns the status of a call over the quota of calls in flight or of buffered bytes.
pub fn overloaded(exceeded: QuotaExceeded) -> Status {
    let problem = "calls in flight use it up; read their responses, or retry later";
    quota_exceeded(ErrorReason::Overloaded, exceeded, problem, 1)
}

/// Returns the status of the first call on a connection over the quota of connections.
pub fn too_many_connections(exceeded: QuotaExceeded) -> Status {
    let problem = "all are open; close one, or retry later";
    quota_exceeded(ErrorReason::Overloaded, exceeded, problem, 1)
}

/// Returns the status of a call whose metadata is over the limit.
pub fn too_much_metadata(bytes: usize, limit: usize) -> Status {
    Status::resource_exhausted(format!(
        "the request has {bytes} bytes of metadata, and the limit is {limit}; send less metadata"
    ))
}

fn quota_exceeded(
    reason: ErrorReason,
    QuotaExceeded { limit_name, limit }: QuotaExceeded,
    problem: &str,
    delay_seconds: u64,
) -> Status {
    let message = format!("{limit_name} is {limit}, and {problem}");
    let metadata = vec![
        ("limit_name", limit_name.to_owned()),
        ("limit", limit.to_string()),
    ];
    error_status(reason, &message, metadata, Some(retry_after(delay_seconds)))
}

fn retry_after(seconds: u64) -> ErrorDetail {
    RetryInfo::new(Some(Duration::from_secs(seconds))).into()
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
    error_status(ErrorReason::DeadlineExceeded, message, Vec::new(), None)
}

/// Returns the status of a request without the peer of its connection, which is a bug of the
/// daemon.
pub fn missing_peer() -> Status {
    Status::internal("internal error: the request has no peer address")
}

#[cfg(test)]
mod tests {
    use super::{
        BadField, RpcError, call_deadline_exceeded, caller_denied, overloaded, request_timed_out,
        shutting_down, too_many_streams,
    };
    use crate::daemon::catalog::{DeadlineExceeded, PackageReadError};
    use crate::daemon::fs::FileReadError;
    use crate::daemon::grpc::auth::AuthDenial;
    use crate::daemon::grpc::quota::QuotaExceeded;
    use crate::daemon::model::RootReason;
    use caproot_core::proto::caproot::v1::ErrorReason;
    use caproot_core::proto::{FILE_DESCRIPTOR_SET, grpc_code_name};
    use caproot_core::wire::ContentDigest;
    use prost_reflect::{DescriptorPool, EnumValueDescriptor};
    use std::collections::{BTreeMap, BTreeSet};
    use tonic::Status;
    use tonic_types::StatusExt as _;

    /// Status code and metadata keys of a reason, and whether the error has a retry delay.
    #[derive(Debug, Default, PartialEq, Eq)]
    struct ErrorShape {
        codes: BTreeSet<String>,
        metadata: BTreeSet<String>,
        has_delay: bool,
    }

    /// Returns one error of each kind that the daemon sends with a reason.
    fn all_errors() -> Vec<Status> {
        let of_root = |error: RpcError| error.into_status(Some("r"));
        let of_file = |error| of_root(RpcError::Read(PackageReadError::File(error)));
        let exceeded = QuotaExceeded {
            limit_name: "max_streams",
            limit: 1,
        };
        let mut errors = vec![
            BadField::new("page_size", "is negative").into(),
            BadField::new("roots", "are too many")
                .with_reason(ErrorReason::TooManyRoots)
                .into(),
            caller_denied(AuthDenial::Unauthenticated),
            caller_denied(AuthDenial::NotAllowed),
            caller_denied(AuthDenial::NoThread),
            RpcError::CatalogChanged.into_status(None),
            RpcError::from(DeadlineExceeded).into_status(None),
            of_root(RpcError::AuthorityMismatch),
            of_root(RpcError::Read(PackageReadError::DeadlineExceeded)),
            of_root(RpcError::Read(PackageReadError::RootPending)),
            of_root(RpcError::Read(PackageReadError::PackageNotFound)),
            of_root(RpcError::Read(PackageReadError::NoThread)),
            call_deadline_exceeded(),
            request_timed_out(),
            too_many_streams(exceeded),
            overloaded(exceeded),
            shutting_down(),
        ];
        errors.extend(
            RootReason::ALL
                .map(|reason| of_root(RpcError::Read(PackageReadError::RootUnavailable(reason)))),
        );
        let digest = ContentDigest([0; 32]);
        errors.extend(
            [
                FileReadError::NotFound,
                FileReadError::Outside,
                FileReadError::TooLarge { size: 1 },
                FileReadError::Changed(None),
                FileReadError::Changed(Some(digest)),
                FileReadError::NotApproved {
                    approved: digest,
                    current: Some(digest),
                },
                FileReadError::Denied,
                FileReadError::Secret,
                FileReadError::TooManyOpenFiles,
                FileReadError::Failed,
            ]
            .map(of_file),
        );
        errors
    }

    /// Returns the shape that the comment of each reason in the proto file documents.
    fn documented_shapes() -> BTreeMap<String, ErrorShape> {
        let pool = DescriptorPool::decode(FILE_DESCRIPTOR_SET).expect("descriptors");
        let reasons = pool
            .get_enum_by_name("caproot.v1.ErrorReason")
            .expect("an enum");
        let file = reasons.parent_file();
        let source = file
            .file_descriptor_proto()
            .source_code_info
            .as_ref()
            .expect("comments");
        let shape_of = |value: EnumValueDescriptor| {
            let reason = ErrorReason::try_from(value.number()).expect("a reason");
            let comment = source
                .location
                .iter()
                .find(|location| location.path == value.path());
            let comment = comment
                .expect("a comment")
                .leading_comments()
                .replace('\n', " ");
            let text = comment.trim().strip_prefix("Status: ").expect("a status");
            let (code, text) = text.split_once('.').expect("a cause");
            let metadata = text.split_once("Metadata: ").map_or("", |(_, keys)| keys);
            let shape = ErrorShape {
                codes: [code.to_owned()].into(),
                metadata: metadata
                    .split('`')
                    .skip(1)
                    .step_by(2)
                    .map(str::to_owned)
                    .collect(),
                has_delay: text.contains("google.rpc.RetryInfo"),
            };
            (reason.wire_name().to_owned(), shape)
        };
        reasons
            .values()
            .filter(|value| value.number() != 0)
            .map(shape_of)
            .collect()
    }

    #[test]
    fn each_reason_is_sent_with_the_documented_status_and_metadata() {
        let mut sent: BTreeMap<String, ErrorShape> = BTreeMap::new();
        for error in all_errors() {
            let info = error.get_details_error_info().expect("a reason");
            let shape = sent.entry(info.reason).or_default();
            shape.codes.insert(grpc_code_name(error.code()).to_owned());
            shape.metadata.extend(info.metadata.into_keys());
            shape.has_delay |= error.get_details_retry_info().is_some();
        }
        assert_eq!(sent, documented_shapes());
    }
}
