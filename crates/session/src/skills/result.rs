//! Results of tool calls: one JSON object of limited size. An error is a result, too, with a hint
//! for the model.

use super::tool_names::ToolNames;
use caproot_client::{CallError, error_reason};
use caproot_core::proto::caproot::v1::ErrorReason;
use caproot_core::text::{single_line, truncate_with_ellipsis};
use serde::Serialize;
use serde_json::{Value, json};
use std::fmt;
use tonic::Code as Grpc;

/// Default limit of a result's JSON in bytes.
pub const DEFAULT_RESULT_BYTES: usize = 8_192;
/// Greatest limit of a result's JSON that a session may have, in bytes.
pub const MAX_RESULT_BYTES: usize = 65_536;
/// Limit of an error message in bytes, before JSON escapes the message.
const MAX_MESSAGE_BYTES: usize = 1_000;

/// Form of the results of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResultForm {
    /// Spelling of the names of tools in errors and hints.
    pub names: ToolNames,
    /// Limit of the JSON in bytes.
    pub max_bytes: usize,
}

impl Default for ResultForm {
    fn default() -> Self {
        Self {
            names: ToolNames::default(),
            max_bytes: DEFAULT_RESULT_BYTES,
        }
    }
}

/// Result of a tool call for a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolResult {
    /// Whether the call succeeded; if not, `json` has the error and a hint.
    pub success: bool,
    /// Whether third parties wrote the result, so that a model should follow no instruction in it.
    /// Always true for skills; the definition of a custom tool decides for its results.
    pub external_context: bool,
    /// One JSON object of at most as many bytes as the session allows: [`DEFAULT_RESULT_BYTES`] by default.
    pub json: String,
    /// Images of the result, which `json` names by type and size. Only tools of MCP servers have
    /// images.
    pub images: Vec<ResultImage>,
}

/// Image or sound of a tool's result.
#[derive(Clone, PartialEq, Eq)]
pub struct ResultImage {
    /// Type as the server names it, such as `image/png`.
    pub mime_type: String,
    /// Content.
    pub bytes: Vec<u8>,
}

impl fmt::Debug for ResultImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResultImage")
            .field("mime_type", &self.mime_type)
            .field("bytes", &self.bytes.len())
            .finish()
    }
}

/// Defines the error codes with their names. The doc comment is the meaning.
macro_rules! tool_error_codes {
    ($($(#[doc = $meaning:literal])+ $variant:ident = $name:literal,)+) => {
        /// Error code of a tool call.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum ToolErrorCode {
            $($(#[doc = $meaning])+ $variant,)+
        }

        impl ToolErrorCode {
            /// All codes of this build.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// Returns the name in a result, such as `TOO_LARGE`.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            /// Returns the meaning in one sentence.
            #[must_use]
            pub fn meaning(self) -> &'static str {
                match self {
                    $(Self::$variant => concat!($($meaning),+).trim_ascii(),)+
                }
            }
        }
    };
}

tool_error_codes! {
    /// The tool does not exist.
    UnknownTool = "UNKNOWN_TOOL",
    /// The arguments do not fit the schema of the tool, or a handle is misspelled.
    InvalidArguments = "INVALID_ARGUMENTS",
    /// The cursor is malformed, or of another file.
    InvalidCursor = "INVALID_CURSOR",
    /// The cursor of the list or of a search has expired.
    CatalogChanged = "CATALOG_CHANGED",
    /// No source has this authority.
    UnknownAuthority = "UNKNOWN_AUTHORITY",
    /// The package belongs to another authority.
    WrongAuthority = "WRONG_AUTHORITY",
    /// Several authorities have the package, and the call names none.
    AmbiguousAuthority = "AMBIGUOUS_AUTHORITY",
    /// Several skills have the name that the call gives as package.
    AmbiguousName = "AMBIGUOUS_NAME",
    /// The skill does not exist now.
    PackageNotFound = "PACKAGE_NOT_FOUND",
    /// The file does not exist now.
    ResourceNotFound = "RESOURCE_NOT_FOUND",
    /// The file has changed since the cursor was returned.
    ResourceChanged = "RESOURCE_CHANGED",
    /// The file exceeds a limit.
    TooLarge = "TOO_LARGE",
    /// The file is not UTF-8.
    NotText = "NOT_TEXT",
    /// Access to the file is denied.
    NotAllowed = "NOT_ALLOWED",
    /// The file changed, and the lock of its executor does not approve the new content.
    NotApproved = "NOT_APPROVED",
    /// The file does not match its listed digest, size or frontmatter.
    NotVerified = "NOT_VERIFIED",
    /// The root is unavailable.
    RootUnavailable = "ROOT_UNAVAILABLE",
    /// The executor is unknown or does not answer.
    ExecutorUnavailable = "EXECUTOR_UNAVAILABLE",
    /// A local source or an MCP server is unavailable.
    SourceUnavailable = "SOURCE_UNAVAILABLE",
    /// The tool of a pending call gave no result.
    NoResult = "NO_RESULT",
    /// Too many calls are in flight.
    Overloaded = "OVERLOADED",
    /// The session is closed.
    SessionClosed = "SESSION_CLOSED",
    /// The response of the source is invalid.
    InvalidResponse = "INVALID_RESPONSE",
    /// A custom tool returned an error.
    ToolFailed = "TOOL_FAILED",
    /// A custom tool panicked, or has another bug.
    ToolInternalError = "TOOL_INTERNAL_ERROR",
    /// A custom tool exceeded its time limit.
    ToolTimedOut = "TOOL_TIMED_OUT",
}

/// Error of a tool call, with a hint for the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolError {
    code: ToolErrorCode,
    message: String,
    /// Hint with `{list}`, `{read}` and `{search}` as placeholders for the names of the tools.
    hint: &'static str,
}

impl ToolErrorCode {
    /// Returns whether every call of the source fails now.
    pub(crate) fn is_source_unavailable(self) -> bool {
        matches!(self, Self::ExecutorUnavailable | Self::SourceUnavailable)
    }

    /// Returns the hint for a model, with `{list}` and `{read}` as placeholders for the names of
    /// the tools.
    fn default_hint(self) -> &'static str {
        match self {
            Self::PackageNotFound => {
                "Call {list}, and use one of its entries, or go on without it."
            }
            Self::ResourceNotFound => {
                "Call {read} once with the resource `./`, which lists the files of the skill, or go on \
                 without it."
            }
            Self::ResourceChanged => "Call {read} again without `cursor`, from the start.",
            Self::InvalidCursor => "Call again without `cursor`, from the start.",
            Self::InvalidArguments => "Give each handle exactly as {list} returned it.",
            Self::UnknownAuthority => "Call {list}, and use the authority of the package.",
            Self::WrongAuthority => "Use authority and package of one entry of {list}.",
            Self::AmbiguousAuthority => "Call {read} again with one of these as `authority`.",
            Self::AmbiguousName => "Pass one of these handles in place of the name.",
            Self::RootUnavailable
            | Self::ExecutorUnavailable
            | Self::SourceUnavailable
            | Self::NoResult
            | Self::InvalidResponse => "Go on without it, or call again later.",
            Self::NotApproved => "Go on without it, and say that its operator has to approve it.",
            Self::NotVerified => "Go on without it, and say that it failed verification.",
            Self::Overloaded => "Call again later, with fewer calls at once.",
            Self::UnknownTool
            | Self::CatalogChanged
            | Self::TooLarge
            | Self::NotText
            | Self::NotAllowed
            | Self::SessionClosed => "Go on without it.",

            Self::ToolFailed => "Call again as the message says, or go on without it.",
            Self::ToolInternalError => "Go on without it; the same call may fail again.",
            Self::ToolTimedOut => "Call again with less to do, or go on without it.",
        }
    }
}

impl ToolError {
    pub(crate) fn with_hint(code: ToolErrorCode, message: &str, next: &'static str) -> Self {
        Self {
            code,
            message: truncate_with_ellipsis(&single_line(message), MAX_MESSAGE_BYTES),
            hint: next,
        }
    }

    /// Returns the error of a failed call, or `None` if the executor did not answer.
    pub(crate) fn from_call_error(error: &CallError) -> Option<Self> {
        let code = match error {
            CallError::InvalidResponse(reason) => {
                return Some(Self::from_code(
                    ToolErrorCode::InvalidResponse,
                    &format!("invalid response of the executor: {reason}"),
                ));
            }
            CallError::DigestMismatch | CallError::ChangedDuringRead => {
                ToolErrorCode::ResourceChanged
            }
            CallError::Output(_) => return None,
            CallError::Status(status) => match (error_reason(status), status.code()) {
                (Some(ErrorReason::PackageNotFound), _) => ToolErrorCode::PackageNotFound,
                (Some(ErrorReason::ResourceNotFound), _) => ToolErrorCode::ResourceNotFound,
                (Some(ErrorReason::ResourceChanged), _) => ToolErrorCode::ResourceChanged,
                (Some(ErrorReason::TooLarge), _) => ToolErrorCode::TooLarge,
                (Some(ErrorReason::RootUnavailable | ErrorReason::WrongEnvironment), _) => {
                    ToolErrorCode::RootUnavailable
                }
                (Some(ErrorReason::AuthorityMismatch), _) => ToolErrorCode::WrongAuthority,
                (Some(ErrorReason::NotApproved), _) => ToolErrorCode::NotApproved,
                (_, Grpc::InvalidArgument) => ToolErrorCode::InvalidArguments,
                (_, Grpc::PermissionDenied | Grpc::Unauthenticated) => ToolErrorCode::NotAllowed,
                (_, Grpc::ResourceExhausted) => ToolErrorCode::Overloaded,
                (_, Grpc::OutOfRange) => ToolErrorCode::InvalidResponse,
                _ => return None,
            },
        };

        Some(Self::from_code(code, &error.message()))
    }

    /// Returns an error with the default hint of its code. The message is a sentence; a long
    /// message is truncated.
    #[must_use]
    pub fn from_code(code: ToolErrorCode, message: &str) -> Self {
        Self::with_hint(code, message, code.default_hint())
    }

    fn to_json(&self, names: ToolNames) -> Value {
        json!({ "error": {
            "code": self.code.name(),
            "message": self.message,
            "next": self.next_step(names),
        } })
    }

    /// Returns the error with more text at the end of its message.
    pub(crate) fn with_note(&self, note: &str) -> Self {
        Self::with_hint(self.code, &format!("{}{note}", self.message), self.hint)
    }

    /// Returns the code.
    #[must_use]
    pub fn code(&self) -> ToolErrorCode {
        self.code
    }

    /// Returns the reason as a sentence.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the next step as a sentence, with the names of the tools.
    #[must_use]
    pub fn next_step(&self, names: ToolNames) -> String {
        names.fill_placeholders(self.hint)
    }

    /// Returns the next step of a program, which calls no tools, as a sentence.
    #[must_use]
    pub fn program_step(&self) -> &'static str {
        match self.code {
            ToolErrorCode::PackageNotFound
            | ToolErrorCode::UnknownAuthority
            | ToolErrorCode::WrongAuthority => "List the skills, and use an entry of the list.",
            ToolErrorCode::ResourceNotFound => "List the files of the skill, and read one of them.",
            ToolErrorCode::ResourceChanged | ToolErrorCode::InvalidCursor => {
                "Read the file again from the start."
            }
            ToolErrorCode::InvalidArguments => "Give each handle exactly as listed.",
            ToolErrorCode::AmbiguousAuthority => "Name one of these authorities.",
            code => code.default_hint(),
        }
    }

    /// Returns the code and the message.
    #[must_use]
    pub fn sentence(&self) -> String {
        format!("{}: {}", self.code.name(), self.message)
    }
}

impl ToolResult {
    /// Returns the result as Codex's dynamic tools have it: one item of text in `contentItems`, and
    /// `success`.
    ///
    /// ```
    /// use caproot_session::ToolResult;
    /// use serde_json::json;
    ///
    /// let json = r#"{"words":2}"#.to_owned();
    /// let result = ToolResult { success: true, external_context: false, json, images: Vec::new() };
    /// let response = json!({
    ///     "contentItems": [{"type": "inputText", "text": r#"{"words":2}"#}],
    ///     "success": true,
    /// });
    /// assert_eq!(result.to_dynamic_tool_response(), response);
    /// ```
    #[must_use]
    pub fn to_dynamic_tool_response(&self) -> Value {
        json!({
            "contentItems": [{ "type": "inputText", "text": self.json }],
            "success": self.success,
        })
    }

    /// Returns the result of a skill tool. A result over the limit becomes an error.
    pub(crate) fn from_outcome(
        outcome: Result<&impl Serialize, &ToolError>,
        form: ResultForm,
    ) -> Self {
        let mut json = match outcome {
            Ok(result) => serde_json::to_string(result).unwrap_or_default(),
            Err(error) => error.to_json(form.names).to_string(),
        };
        let fits = (1..=form.max_bytes).contains(&json.len());
        if !fits {
            let message = "the result is over the size limit";
            json = ToolError::from_code(ToolErrorCode::InvalidResponse, message)
                .to_json(form.names)
                .to_string();
        }
        Self {
            success: fits && outcome.is_ok(),
            external_context: true,
            json,
            images: Vec::new(),
        }
    }
}

/// Returns the bytes of a text in a JSON string.
pub fn json_escaped_len(text: &str) -> usize {
    text.bytes().map(json_escaped_byte_len).sum()
}

/// Returns the length of the longest prefix of a text with at most `room` bytes in a JSON string.
pub fn json_escaped_prefix_len(text: &str, room: usize) -> usize {
    let mut used = 0;
    let end = text.bytes().position(|byte| {
        used += json_escaped_byte_len(byte);
        used > room
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
        DEFAULT_RESULT_BYTES, ResultForm, ToolError, ToolErrorCode, ToolResult, json_escaped_len,
        json_escaped_prefix_len,
    };
    use proptest::prelude::*;

    #[test]
    fn a_long_error_message_is_truncated() {
        let error =
            ToolError::from_code(ToolErrorCode::InvalidResponse, &"\u{1}\"\\".repeat(100_000));
        let form = ResultForm::default();
        let result = ToolResult::from_outcome(Err::<&(), _>(&error), form);
        assert!(!result.success && result.json.len() <= DEFAULT_RESULT_BYTES);
        let large = "x".repeat(DEFAULT_RESULT_BYTES);
        let result = ToolResult::from_outcome(Ok(&large), form);
        assert!(!result.success && result.json.contains("INVALID_RESPONSE"));
    }

    proptest! {
        #[test]
        fn lengths_match_serde_json(text in "(?s).{0,60}", room in 0_usize..100) {
            let json = serde_json::to_string(&text).expect("JSON");
            prop_assert_eq!(json_escaped_len(&text), json.len() - 2);
            let end = json_escaped_prefix_len(&text, room);
            prop_assert!(json_escaped_len(&text[..end]) <= room);
            let next = text[end..].chars().next();
            prop_assert!(next.is_none_or(|c| json_escaped_len(&text[..end + c.len_utf8()]) > room));
        }
    }
}
