//! What a call of a tool comes to: JSON of a bounded size, whatever went in. A refusal is a result too,
//! which says to a model what to do next.

use super::ToolNames;
use super::text::{single_line, truncate_with_ellipsis};
use crate::client::{CallError, error_reason};
use serde::Serialize;
use serde_json::{Value, json};
use tonic::Code as Grpc;

/// The most bytes of a result's JSON.
pub const MAX_RESULT_BYTES: usize = 8_192;
/// The most bytes of a refusal's sentences, before JSON escapes them.
const MAX_MESSAGE_BYTES: usize = 1_000;

/// The result of a tool's call, ready for a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolResult {
    /// Whether the tool did what was asked; if not, `json` says why and what to do.
    pub success: bool,
    /// Whether what is in it was written by strangers, and is no instruction of the user's; always of
    /// what skills say, and of own tools where they say so.
    pub external_context: bool,
    /// One JSON object of at most [`MAX_RESULT_BYTES`] bytes.
    pub json: String,
}

/// Why a tool does not do what was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ToolErrorCode {
    /// There is no such tool.
    UnknownTool,
    /// The arguments are not of the tool's schema, or a handle is misspelled.
    InvalidArguments,
    /// The cursor is none, or of another file.
    InvalidCursor,
    /// The list that the cursor is of is gone.
    CatalogChanged,
    /// No source answers for this authority.
    UnknownAuthority,
    /// The package is another authority's.
    WrongAuthority,
    /// The skill is not there now.
    PackageNotFound,
    /// The file is not there now.
    ResourceNotFound,
    /// The file changed since the cursor was made.
    ResourceChanged,
    /// The file is over a bound.
    TooLarge,
    /// The file is not UTF-8.
    NotText,
    /// The file may not be read.
    NotAllowed,
    /// The file is not what the list says of it.
    NotVerified,
    /// The root cannot be used.
    RootUnavailable,
    /// The executor is not known or does not answer.
    ExecutorUnavailable,
    /// A source that is no executor cannot be used.
    SourceUnavailable,
    /// A pending call's tool gave no answer.
    NoResult,
    /// There are too many calls at once.
    Overloaded,
    /// The session is closed.
    SessionClosed,
    /// The source broke its promises.
    InvalidResponse,
    /// An own tool ended with an error.
    #[cfg(feature = "handlers")]
    ToolFailed,
    /// An own tool panicked.
    #[cfg(feature = "handlers")]
    ToolPanicked,
    /// An own tool did not end in its time.
    #[cfg(feature = "handlers")]
    ToolTimedOut,
}

/// Why there is no result, and what a model may do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolError {
    pub(super) code: ToolErrorCode,
    pub(super) message: String,
    /// With `{list}` and `{read}` for the names of the tools.
    hint: &'static str,
}

impl ToolErrorCode {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::UnknownTool => "UNKNOWN_TOOL",
            Self::InvalidArguments => "INVALID_ARGUMENTS",
            Self::InvalidCursor => "INVALID_CURSOR",
            Self::CatalogChanged => "CATALOG_CHANGED",
            Self::UnknownAuthority => "UNKNOWN_AUTHORITY",
            Self::WrongAuthority => "WRONG_AUTHORITY",
            Self::PackageNotFound => "PACKAGE_NOT_FOUND",
            Self::ResourceNotFound => "RESOURCE_NOT_FOUND",
            Self::ResourceChanged => "RESOURCE_CHANGED",
            Self::TooLarge => "TOO_LARGE",
            Self::NotText => "NOT_TEXT",
            Self::NotAllowed => "NOT_ALLOWED",
            Self::NotVerified => "NOT_VERIFIED",
            Self::RootUnavailable => "ROOT_UNAVAILABLE",
            Self::ExecutorUnavailable => "EXECUTOR_UNAVAILABLE",
            Self::SourceUnavailable => "SOURCE_UNAVAILABLE",
            Self::NoResult => "NO_RESULT",
            Self::Overloaded => "OVERLOADED",
            Self::SessionClosed => "SESSION_CLOSED",
            Self::InvalidResponse => "INVALID_RESPONSE",
            #[cfg(feature = "handlers")]
            Self::ToolFailed => "TOOL_FAILED",
            #[cfg(feature = "handlers")]
            Self::ToolPanicked => "TOOL_PANICKED",
            #[cfg(feature = "handlers")]
            Self::ToolTimedOut => "TOOL_TIMED_OUT",
        }
    }

    /// Whether nothing can be had of the source now.
    pub(super) fn is_source_unavailable(self) -> bool {
        matches!(self, Self::ExecutorUnavailable | Self::SourceUnavailable)
    }

    /// The hint for a model, with `{list}` and `{read}` for the names of the tools.
    fn default_hint(self) -> &'static str {
        match self {
            Self::PackageNotFound => "Call {list} again, and use what it gives.",
            Self::ResourceNotFound => {
                "Read the skill's main resource again; it names the files that there are."
            }
            Self::ResourceChanged => "Call {read} again without `cursor`, from the start.",
            Self::InvalidCursor => "Call again without `cursor`, from the start.",
            Self::InvalidArguments => "Give each handle exactly as {list} gave it.",
            Self::UnknownAuthority => {
                "Call {list}, and use the authority that it gives for the package."
            }
            Self::WrongAuthority => "Use authority and package of one entry of {list}.",
            Self::RootUnavailable
            | Self::ExecutorUnavailable
            | Self::SourceUnavailable
            | Self::NoResult
            | Self::InvalidResponse => "Go on without it, or call again later.",
            Self::NotVerified => "Go on without it, and say so: it is not what it is said to be.",
            Self::Overloaded => "Call again later, with fewer calls at once.",
            Self::UnknownTool
            | Self::CatalogChanged
            | Self::TooLarge
            | Self::NotText
            | Self::NotAllowed
            | Self::SessionClosed => "Go on without it.",
            #[cfg(feature = "handlers")]
            Self::ToolFailed => {
                "Call again if the message says what to do better, or go on without it."
            }
            #[cfg(feature = "handlers")]
            Self::ToolPanicked => "Go on without it; the same call may break it again.",
            #[cfg(feature = "handlers")]
            Self::ToolTimedOut => "Call again with less to do, or go on without it.",
        }
    }
}

impl ToolError {
    pub(super) fn with_hint(code: ToolErrorCode, message: &str, next: &'static str) -> Self {
        Self {
            code,
            message: truncate_with_ellipsis(&single_line(message), MAX_MESSAGE_BYTES),
            hint: next,
        }
    }

    /// What an executor refused; `None` where it did not answer at all.
    pub(super) fn from_call_error(error: &CallError) -> Option<Self> {
        let status = match error {
            CallError::Status(status) => status,
            CallError::InvalidResponse(why) => {
                return Some(Self::from_code(
                    ToolErrorCode::InvalidResponse,
                    &format!("the executor's answer makes no sense: {why}"),
                ));
            }
            CallError::ChangedDuringRead | CallError::Output(_) => return None,
        };
        let code = match (error_reason(status).unwrap_or_default().as_str(), status.code()) {
            ("PACKAGE_NOT_FOUND", _) => ToolErrorCode::PackageNotFound,
            ("RESOURCE_NOT_FOUND", _) => ToolErrorCode::ResourceNotFound,
            ("RESOURCE_CHANGED", _) => ToolErrorCode::ResourceChanged,
            ("TOO_LARGE", _) => ToolErrorCode::TooLarge,
            ("ROOT_UNAVAILABLE" | "WRONG_ENVIRONMENT", _) => ToolErrorCode::RootUnavailable,
            ("AUTHORITY_MISMATCH", _) => ToolErrorCode::WrongAuthority,
            (_, Grpc::InvalidArgument) => ToolErrorCode::InvalidArguments,
            (_, Grpc::PermissionDenied | Grpc::Unauthenticated) => ToolErrorCode::NotAllowed,
            (_, Grpc::ResourceExhausted) => ToolErrorCode::Overloaded,
            (_, Grpc::OutOfRange) => ToolErrorCode::InvalidResponse,
            _ => return None,
        };
        Some(Self::from_code(code, &error.to_string()))
    }

    /// With the step that its code calls for. The message is a sentence, and cut where it is long.
    #[must_use]
    pub fn from_code(code: ToolErrorCode, message: &str) -> Self {
        Self::with_hint(code, message, code.default_hint())
    }

    fn to_json(&self, names: &ToolNames) -> Value {
        let next = names.fill_placeholders(self.hint);
        json!({ "error": { "code": self.code.name(), "message": self.message, "next": next } })
    }

    /// Why.
    #[must_use]
    pub fn code(&self) -> ToolErrorCode {
        self.code
    }

    /// The same in a sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        format!("{}: {}", self.code.name(), self.message)
    }
}

impl ToolResult {
    /// A result that was made to fit.
    pub(super) fn from_outcome(
        outcome: Result<&impl Serialize, &ToolError>,
        names: &ToolNames,
    ) -> Self {
        let json = match outcome {
            Ok(result) => serde_json::to_string(result),
            Err(refusal) => serde_json::to_string(&refusal.to_json(names)),
        };
        let json = json.unwrap_or_default();
        if json.is_empty() || json.len() > MAX_RESULT_BYTES {
            let message = "the result is larger than a result may be";
            let refusal = ToolError::from_code(ToolErrorCode::InvalidResponse, message);
            return Self {
                success: false,
                external_context: true,
                json: refusal.to_json(names).to_string(),
            };
        }
        Self { success: outcome.is_ok(), external_context: true, json }
    }
}

/// How many bytes a text is between the quotes of JSON.
pub(super) fn json_escaped_len(text: &str) -> usize {
    text.bytes().map(json_escaped_byte_len).sum()
}

/// The longest beginning of a text, in bytes, that takes at most so many between the quotes of JSON.
pub(super) fn json_escaped_prefix_len(text: &str, room: usize) -> usize {
    let mut taken = 0;
    let end = text.bytes().position(|byte| {
        taken += json_escaped_byte_len(byte);
        taken > room
    });
    end.map_or(text.len(), |end| text.floor_char_boundary(end))
}

fn json_escaped_byte_len(byte: u8) -> usize {
    match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
        0x00..0x20 => 6,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::{
        MAX_RESULT_BYTES, ToolError, ToolErrorCode, ToolNames, ToolResult, json_escaped_len,
        json_escaped_prefix_len,
    };
    use proptest::prelude::*;

    #[test]
    fn a_refusal_fits_whatever_it_repeats() {
        let refusal =
            ToolError::from_code(ToolErrorCode::InvalidResponse, &"\u{1}\"\\".repeat(100_000));
        let names = ToolNames::default();
        let result = ToolResult::from_outcome(Err::<&(), _>(&refusal), &names);
        assert!(!result.success && result.json.len() <= MAX_RESULT_BYTES);
        let large = "x".repeat(MAX_RESULT_BYTES);
        let result = ToolResult::from_outcome(Ok(&large), &names);
        assert!(!result.success && result.json.contains("INVALID_RESPONSE"));
    }

    proptest! {
        #[test]
        fn lengths_are_those_of_the_library(text in "(?s).{0,60}", room in 0_usize..100) {
            let json = serde_json::to_string(&text).expect("JSON");
            prop_assert_eq!(json_escaped_len(&text), json.len() - 2);
            let end = json_escaped_prefix_len(&text, room);
            prop_assert!(json_escaped_len(&text[..end]) <= room);
            let next = text[end..].chars().next();
            prop_assert!(next.is_none_or(|c| json_escaped_len(&text[..end + c.len_utf8()]) > room));
        }
    }
}
