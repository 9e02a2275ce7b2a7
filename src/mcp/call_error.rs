//! Errors of MCP calls, and their JSON-RPC form.

use super::files::FileError;
use super::limits::MAX_SUBSCRIBED_URIS;
use caproot_client::{CallError, error_reason_name};
use rmcp::ErrorData;
use serde_json::json;
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
        let data =
            |reason: &str, retry: bool| Some(json!({"uri": uri, "reason": reason, "retry": retry}));
        match self {
            Self::Busy(_) => ErrorData::internal_error(message, data("BUSY", true)),
            Self::CatalogUnavailable(_) => {
                ErrorData::internal_error(message, data("EXECUTOR_UNAVAILABLE", true))
            }
            Self::BadCursor => ErrorData::invalid_params(message, data("BAD_CURSOR", false)),
            Self::UnknownPrompt => ErrorData::invalid_params(message, data("NOT_FOUND", false)),
            Self::SubscriptionLimit => {
                ErrorData::invalid_params(message, data("TOO_MANY_SUBSCRIPTIONS", false))
            }
            Self::File(error) => match error {
                FileError::NotFound => {
                    ErrorData::resource_not_found(message, data("NOT_FOUND", false))
                }
                FileError::NotADirectory => {
                    ErrorData::invalid_params(message, data("NOT_A_DIRECTORY", false))
                }
                FileError::TooLarge { .. } => {
                    ErrorData::internal_error(message, data("TOO_LARGE", false))
                }
                FileError::TooMany => {
                    ErrorData::internal_error(message, data("TOO_MANY_FILES", false))
                }
                FileError::Call(CallError::Status(status)) => {
                    let retry = matches!(
                        status.code(),
                        Code::Unavailable
                            | Code::ResourceExhausted
                            | Code::Aborted
                            | Code::DeadlineExceeded
                    );
                    let reason = error_reason_name(status).unwrap_or_else(|| "EXECUTOR".to_owned());
                    ErrorData::internal_error(message, data(&reason, retry))
                }
                FileError::Call(CallError::DigestMismatch) => {
                    ErrorData::internal_error(message, data("RESOURCE_CHANGED", true))
                }
                FileError::Call(
                    CallError::InvalidResponse(_)
                    | CallError::ChangedDuringRead
                    | CallError::Output(_),
                ) => ErrorData::internal_error(message, data("EXECUTOR", false)),
            },
        }
    }
}
