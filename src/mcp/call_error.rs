//! Errors of MCP calls, and their JSON-RPC form.

use super::files::FileError;
use super::limits::MAX_SUBSCRIBED_URIS;
use caproot_client::{CallError, error_reason_name};
use rmcp::ErrorData;
use serde_json::json;
use std::borrow::Cow;
use tonic::Code;

/// Error of an MCP call.
#[derive(Debug, thiserror::Error)]
pub enum McpCallError {
    /// Too many calls or subscriptions are in flight.
    #[error("too many {0} in flight; try again later")]
    Busy(&'static str),
    /// The daemon is not connected.
    #[error("the executor's skills are not available: {0}; try again later")]
    CatalogUnavailable(String),
    /// The cursor is invalid, or belongs to another list.
    #[error("invalid cursor for this list; list again without a cursor")]
    BadCursor,
    /// No prompt has this name.
    #[error("no such prompt; list the prompts again")]
    UnknownPrompt,
    /// The session has too many subscriptions, or the URI is too long.
    #[error("a session can subscribe to at most {MAX_SUBSCRIBED_URIS} URIs of 4 KiB each")]
    SubscriptionLimit,
    /// The file or directory cannot be served.
    #[error(transparent)]
    File(#[from] FileError),
}

impl From<CallError> for McpCallError {
    fn from(error: CallError) -> Self {
        Self::File(error.into())
    }
}

impl McpCallError {
    /// Converts to the error of the protocol, with the URI if there is one.
    pub fn to_error_data(&self, uri: Option<&str>) -> ErrorData {
        let message = self.to_string();
        let (reason, is_temporary) = self.reason();
        let data = Some(json!({ "uri": uri, "reason": reason, "retry": is_temporary }));

        match self {
            Self::BadCursor
            | Self::UnknownPrompt
            | Self::SubscriptionLimit
            | Self::File(FileError::NotADirectory) => ErrorData::invalid_params(message, data),
            Self::File(FileError::NotFound) => ErrorData::resource_not_found(message, data),
            Self::Busy(_) | Self::CatalogUnavailable(_) | Self::File(_) => {
                ErrorData::internal_error(message, data)
            }
        }
    }

    /// Returns the reason for programs, and whether the same call may succeed later.
    fn reason(&self) -> (Cow<'static, str>, bool) {
        let (reason, is_temporary) = match self {
            Self::Busy(_) => ("BUSY", true),
            Self::CatalogUnavailable(_) => ("EXECUTOR_UNAVAILABLE", true),
            Self::BadCursor => ("BAD_CURSOR", false),
            Self::SubscriptionLimit => ("TOO_MANY_SUBSCRIPTIONS", false),
            Self::UnknownPrompt | Self::File(FileError::NotFound) => ("NOT_FOUND", false),

            Self::File(FileError::NotADirectory) => ("NOT_A_DIRECTORY", false),
            Self::File(FileError::TooLarge { .. }) => ("TOO_LARGE", false),
            Self::File(FileError::TooMany) => ("TOO_MANY_FILES", false),
            Self::File(FileError::NotVerified) => ("NOT_VERIFIED", false),
            Self::File(FileError::NotReturned) => ("EXECUTOR", true),
            Self::File(FileError::Call(CallError::DigestMismatch)) => ("RESOURCE_CHANGED", true),
            Self::File(FileError::Call(error)) => {
                let reason = match error {
                    CallError::Status(status) => error_reason_name(status),
                    _ => None,
                };
                let reason = reason.map_or("EXECUTOR".into(), Cow::Owned);
                return (reason, is_temporary(error));
            }
        };
        (reason.into(), is_temporary)
    }
}

/// Whether the same call may succeed later.
pub fn is_temporary(error: &CallError) -> bool {
    let CallError::Status(status) = error else {
        return false;
    };
    matches!(
        status.code(),
        Code::Unavailable | Code::ResourceExhausted | Code::Aborted | Code::DeadlineExceeded
    )
}
