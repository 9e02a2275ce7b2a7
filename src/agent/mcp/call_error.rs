//! Errors of MCP calls, and their JSON-RPC form.

use super::limits::{MAX_SUBSCRIBED_URIS, MAX_WALKED_FILES};
use caproot_session::{ToolError, ToolErrorCode};
use rmcp::ErrorData;
use serde_json::json;

/// Error of an MCP call.
#[derive(Debug, thiserror::Error)]
pub enum McpCallError {
    /// Too many calls or subscriptions are in flight.
    #[error("too many {0} in flight; try again later")]
    Busy(&'static str),
    /// The cursor is invalid, or belongs to another list.
    #[error("invalid cursor for this list; list again without a cursor")]
    BadCursor,
    /// No prompt has this name.
    #[error("no such prompt; list the prompts again")]
    UnknownPrompt,
    /// The arguments of a prompt are too long.
    #[error("{0}")]
    BadPromptArguments(String),
    /// The session has too many subscriptions, or the URI is too long.
    #[error("a session can subscribe to at most {MAX_SUBSCRIBED_URIS} URIs of 4 KiB each")]
    SubscriptionLimit,
    /// No such file.
    #[error("no such resource")]
    NotFound,
    /// The URI is a file or an empty directory.
    #[error("not a directory of a skill")]
    NotADirectory,
    /// The package has too many files to list a directory.
    #[error("the skill has more than {MAX_WALKED_FILES} files; its directories are not listed")]
    TooManyFiles,
    /// The source of the skill returned another error, or the daemon is not connected.
    #[error("{}", .0.message())]
    Source(ToolError),
}

impl From<ToolError> for McpCallError {
    fn from(error: ToolError) -> Self {
        match error.code() {
            ToolErrorCode::PackageNotFound
            | ToolErrorCode::ResourceNotFound
            | ToolErrorCode::InvalidArguments => Self::NotFound,
            _ => Self::Source(error),
        }
    }
}

impl From<McpCallError> for ErrorData {
    fn from(error: McpCallError) -> Self {
        error.to_error_data(None)
    }
}

impl McpCallError {
    /// Converts to the error of the protocol, with the URI if there is one.
    pub fn to_error_data(&self, uri: Option<&str>) -> ErrorData {
        let message = self.to_string();
        let reason = self.reason();
        let data = Some(json!({ "uri": uri, "reason": reason, "retry": self.is_temporary() }));

        match self {
            Self::BadCursor
            | Self::UnknownPrompt
            | Self::BadPromptArguments(_)
            | Self::SubscriptionLimit
            | Self::NotADirectory => ErrorData::invalid_params(message, data),
            Self::NotFound => ErrorData::resource_not_found(message, data),
            Self::Busy(_) | Self::TooManyFiles | Self::Source(_) => {
                ErrorData::internal_error(message, data)
            }
        }
    }

    /// Returns the reason for programs.
    fn reason(&self) -> &'static str {
        match self {
            Self::Busy(_) => "BUSY",
            Self::BadCursor => "BAD_CURSOR",
            Self::BadPromptArguments(_) => "BAD_ARGUMENTS",
            Self::SubscriptionLimit => "TOO_MANY_SUBSCRIPTIONS",
            Self::UnknownPrompt | Self::NotFound => "NOT_FOUND",
            Self::NotADirectory => "NOT_A_DIRECTORY",
            Self::TooManyFiles => "TOO_MANY_FILES",
            Self::Source(error) => error.code().name(),
        }
    }

    /// Whether the same call may succeed later.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Busy(_) => true,
            Self::Source(error) => matches!(
                error.code(),
                ToolErrorCode::ExecutorUnavailable
                    | ToolErrorCode::SourceUnavailable
                    | ToolErrorCode::Overloaded
                    | ToolErrorCode::ResourceChanged
            ),
            Self::BadCursor
            | Self::UnknownPrompt
            | Self::BadPromptArguments(_)
            | Self::SubscriptionLimit
            | Self::NotFound
            | Self::NotADirectory
            | Self::TooManyFiles => false,
        }
    }
}
