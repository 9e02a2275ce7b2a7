//! Answers of `caproot call`: one line of stdout for each request.

use super::schema::ToolPayload;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use caproot_client::{CallError, ChangesSince, ConfigErrors, ConnectError, FleetError};
use caproot_session::dispatch::{
    DispatchError, DispatchOutcome, DispatchRecord, DrainError, DrainSummary, ListenError,
    SubmitOutcome, TurnError,
};
use caproot_session::sources::site::SiteNameError;
use caproot_session::{
    ExecutorChanges, ForkError, InjectedSkills, RestoreError, ResultImage, SavedError,
    SelectionError, ToolError, ToolResult,
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use std::borrow::Cow;
use std::fmt;
use tokio::sync::AcquireError;
use tonic::Code;

/// Code of executors that do not answer.
const UNAVAILABLE: &str = "EXECUTOR_UNAVAILABLE";

/// Fields of an answer's line, as JSON without the braces. An error ends the process.
pub type AnswerFields = serde_json::Result<String>;

/// Returns the field `result` with the result of a request.
pub fn result_field(result: &impl Serialize) -> AnswerFields {
    Ok(format!("\"result\":{}", serde_json::to_string(result)?))
}

/// Returns the field `result` with a tool's JSON, and next to `result` whether the call succeeded (`success`),
/// whether third parties wrote the result (`externalContext`), and the `images` of the tool of an MCP server.
pub fn tool_result_fields(result: &ToolResult) -> AnswerFields {
    let mut images = String::new();
    if !result.images.is_empty() {
        let encoded = AnswerImage::encode_all(&result.images);
        images = format!(",\"images\":{}", serde_json::to_string(&encoded)?);
    }
    // The limit of a tool's result counts exactly the bytes of its JSON.
    Ok(format!(
        "\"success\":{},\"externalContext\":{}{images},\"result\":{}",
        result.success, result.external_context, result.json
    ))
}

/// Error of a request.
#[derive(Debug, Serialize, JsonSchema)]
pub struct RequestError {
    /// `BAD_REQUEST`, `BAD_CONFIG`, `FAILED`, `CANCELLED` or `OVERLOADED`; for `start` also `NO_DAEMON`,
    /// with `sources` `EXECUTOR_UNAVAILABLE` or `NOT_ALLOWED`, and for `list` and `read` the code of the
    /// tool's error.
    pub code: Cow<'static, str>,
    /// Reason in a sentence.
    pub message: String,
    /// Next step in a sentence, if it is not in the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// All mistakes of the options with the code `BAD_CONFIG`, one sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mistakes: Vec<String>,
}

/// Program and its limits.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProgramState {
    /// Version of caproot.
    pub version: &'static str,
    /// Id of the first session; `null` with `--no-session`.
    pub session: Option<String>,
    /// Number of requests that are processed at once. More requests wait, or get the error
    /// `OVERLOADED` while calls of own tools wait.
    pub max_in_flight: usize,
    /// Maximum size of a line of stdin in bytes.
    pub max_line_bytes: usize,
}

/// Whole text file.
#[derive(Debug, Serialize, JsonSchema)]
pub struct FileText {
    /// Text of at most 16 MiB.
    pub text: String,
}

/// Text of a watched session.
#[derive(Debug, Serialize, JsonSchema)]
pub struct WatchedText {
    /// Id of the session.
    pub session: String,
    /// Text that describes the skills to a model.
    pub text: String,
    /// Result of `tools`.
    #[schemars(with = "Vec<ToolPayload>")]
    pub tools: Value,
}

/// Requests that `cancel` ended.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CancelledRequests {
    /// Number of requests in flight with the id.
    pub cancelled: usize,
}

/// Answer of `tool_result`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct AcceptedResult {
    /// Whether the call waited for the result.
    pub accepted: bool,
}

/// New or restored session.
#[derive(Debug, Serialize, JsonSchema)]
pub struct StartedSession {
    /// Id of the session.
    pub session: String,
    /// Changes of each executor since the save; empty for a new session.
    pub changes: Vec<SavedChanges>,
    /// Executors and parts of the saved state without which the session starts, one sentence each.
    pub warnings: Vec<String>,
}

/// Session that `fork` made, `watch_usage` watches or `close` closed.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SessionId {
    /// Id of the session.
    pub session: String,
}

/// Dispatcher that `dispatcher` made or `close_dispatcher` removed.
#[derive(Debug, Serialize, JsonSchema)]
pub struct DispatcherNumber {
    /// Number of the dispatcher.
    pub dispatcher: u64,
}

/// Outcome of a pushed call.
#[derive(Debug, Serialize, JsonSchema)]
pub struct DispatchAnswer {
    /// The outcome of the submission, `ignored` for a call of another thread, or `alreadyKnown` for a call
    /// that is in flight or done.
    outcome: &'static str,
    /// The submitted answer, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    record: Option<SubmittedAnswer>,
}

/// End of a turn.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TurnAnswer {
    /// Status that ended the turn.
    pub status: String,
    /// Calls of the turn.
    pub drained: DrainCounts,
}

/// Answer of a pending call that was submitted.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubmittedAnswer {
    /// Id that the manager has for the call.
    request_id: String,
    /// Name of the tool.
    tool: String,
    /// Whether the answer is a success.
    success: bool,
    /// `accepted`, `notFound`, `alreadyAnswered` or `failed`.
    outcome: &'static str,
    /// Reason of the outcome `failed`.
    reason: Option<String>,
    /// Number of submissions.
    attempts: usize,
}

/// End of a manager's stream of events.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListenEnd {
    /// Id of the last event of the stream.
    pub last_event_id: Option<String>,
}

/// Prompt that the manager took.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PromptAnswer {
    /// Skills that were injected into the prompt.
    pub injected: InjectedSkills,
    /// With `until`: the status that ended the turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// With `until`: the calls of the turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drained: Option<DrainCounts>,
}

/// Changes of one executor since the save of a session.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SavedChanges {
    environment_id: String,
    changes: ChangeState,
    /// Whether the listed skills are newer than `changes`.
    changed_again: bool,
}

/// Whether the changes since a save are known.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "state", rename_all = "camelCase")]
enum ChangeState {
    /// The executor has not answered yet.
    Waiting,
    /// Packages of new or changed skills, and of removed skills.
    Known {
        upserted: Vec<String>,
        removed: Vec<String>,
    },
    /// The exact changes are unknown: the skills of the roots must be read again.
    Unknown { reason: String, roots: Vec<String> },
}

/// Numbers of calls that a drain answered.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DrainCounts {
    /// Answers that the manager took.
    accepted: usize,
    /// Answers of calls that the manager does not know any more.
    not_found: usize,
    /// Calls that had an answer already.
    already_answered: usize,
    /// Answers that the manager did not take. The next drain submits them again.
    failed: usize,
    /// The first 100 answers that the manager did not take.
    failures: Vec<SubmittedAnswer>,
    /// Calls of the last poll that could not be read.
    unread: usize,
    /// Whether the last poll found no new call, and every call could be read.
    complete: bool,
}

/// Image or sound of a tool's result.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AnswerImage {
    /// Type as the server names it, such as `image/png`.
    mime_type: String,
    /// Content in base64.
    data: String,
}

impl AnswerImage {
    /// Encodes the images of a result.
    pub fn encode_all(images: &[ResultImage]) -> Vec<Self> {
        images
            .iter()
            .map(|image| Self {
                mime_type: image.mime_type.clone(),
                data: STANDARD.encode(&image.bytes),
            })
            .collect()
    }
}

impl From<SelectionError> for RequestError {
    fn from(error: SelectionError) -> Self {
        Self::bad_config(error.sentences().to_vec())
    }
}

/// Converts errors of the library, each by a constructor.
macro_rules! convert_errors {
    ($($error:ty => $constructor:expr;)+) => {
        $(impl From<$error> for RequestError {
            fn from(error: $error) -> Self {
                $constructor(&error)
            }
        })+
    };
}

convert_errors! {
    DrainError => Self::failed;
    DispatchError => Self::failed;
    TurnError => Self::failed;
    AcquireError => Self::failed;
    ListenError => Self::failed;
    SavedError => Self::failed;
    ForkError => Self::bad_option;
    RestoreError => Self::bad_option;
    SiteNameError => Self::bad_option;
    ConnectError => Self::unavailable;
    FleetError => Self::unavailable;
    CallError => Self::from_call_error;
    ToolError => Self::from_tool_error;
}

impl From<ConfigErrors> for RequestError {
    fn from(errors: ConfigErrors) -> Self {
        Self::bad_config(errors.iter().map(ToString::to_string).collect())
    }
}

impl RequestError {
    /// Returns the field `error` of an answer's line.
    pub fn to_field(&self) -> AnswerFields {
        Ok(format!("\"error\":{}", serde_json::to_string(self)?))
    }

    /// Returns the error of a valid request that failed.
    pub fn failed(error: &dyn fmt::Display) -> Self {
        Self::new("FAILED", error.to_string())
    }

    /// Returns the error of a read or a list, with the next step.
    pub fn from_tool_error(error: &ToolError) -> Self {
        Self {
            next: Some(error.program_step().to_owned()),
            ..Self::new(error.code().name(), error.message())
        }
    }

    /// Returns an error with a code.
    pub fn new(code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            message: message.into(),
            next: None,
            mistakes: Vec::new(),
        }
    }

    /// Returns the error of an invalid request.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new("BAD_REQUEST", message)
    }

    /// Returns the error of invalid options of a session.
    pub fn bad_config(mistakes: Vec<String>) -> Self {
        let message = mistakes.join("; ");
        Self {
            mistakes,
            ..Self::new("BAD_CONFIG", message)
        }
    }

    /// Returns an error if a request has mistakes.
    pub fn refuse(mistakes: Vec<String>) -> Result<(), Self> {
        if mistakes.is_empty() {
            Ok(())
        } else {
            Err(Self::bad_config(mistakes))
        }
    }

    /// Returns the error of one invalid option of a session.
    pub fn bad_option(error: &dyn fmt::Display) -> Self {
        Self::bad_config(vec![error.to_string()])
    }

    /// Returns the error of executors that do not answer.
    pub fn unavailable(error: impl fmt::Display) -> Self {
        let next = "Start the daemon, such as by `caproot serve --root DIR`, or pass its address.";
        Self {
            next: Some(next.to_owned()),
            ..Self::new(UNAVAILABLE, error.to_string())
        }
    }

    /// Whether executors do not answer.
    pub fn is_unavailable(&self) -> bool {
        self.code == UNAVAILABLE
    }

    /// Returns the error of a call of a daemon.
    pub fn from_call_error(error: &CallError) -> Self {
        match error {
            CallError::Status(status)
                if matches!(
                    status.code(),
                    Code::PermissionDenied | Code::Unauthenticated
                ) =>
            {
                let next = "Pass a token or a certificate that the daemon accepts.";
                Self {
                    next: Some(next.to_owned()),
                    ..Self::new("NOT_ALLOWED", error.to_string())
                }
            }
            _ => Self::unavailable(error),
        }
    }
}

impl From<&ExecutorChanges> for SavedChanges {
    fn from(executor: &ExecutorChanges) -> Self {
        let changes = match executor.changes.as_deref() {
            None => ChangeState::Waiting,
            Some(ChangesSince::Known {
                upserted, removed, ..
            }) => ChangeState::Known {
                upserted: upserted.clone(),
                removed: removed.clone(),
            },
            Some(ChangesSince::Unknown { reason, roots }) => ChangeState::Unknown {
                reason: reason.clone(),
                roots: roots.clone(),
            },
        };
        Self {
            environment_id: executor.environment_id.clone(),
            changes,
            changed_again: executor.changed_again,
        }
    }
}

impl From<&DispatchOutcome> for DispatchAnswer {
    fn from(outcome: &DispatchOutcome) -> Self {
        let (outcome, record) = match outcome {
            DispatchOutcome::Ignored => ("ignored", None),
            DispatchOutcome::AlreadyKnown => ("alreadyKnown", None),
            DispatchOutcome::Ended(record) => {
                let record = SubmittedAnswer::from(record);
                (record.outcome, Some(record))
            }
        };
        Self { outcome, record }
    }
}

impl From<&DispatchRecord> for SubmittedAnswer {
    fn from(record: &DispatchRecord) -> Self {
        let (outcome, reason) = match &record.outcome {
            SubmitOutcome::Accepted => ("accepted", None),
            SubmitOutcome::NotFound => ("notFound", None),
            SubmitOutcome::AlreadyAnswered => ("alreadyAnswered", None),
            SubmitOutcome::Failed(reason) => ("failed", Some(reason.clone())),
        };
        Self {
            request_id: record.request_id.as_str().to_owned(),
            tool: record.tool.clone(),
            success: record.success,
            outcome,
            reason,
            attempts: record.attempts,
        }
    }
}

impl From<&DrainSummary> for DrainCounts {
    fn from(drained: &DrainSummary) -> Self {
        Self {
            accepted: drained.accepted,
            not_found: drained.not_found,
            already_answered: drained.already_answered,
            failed: drained.failed,
            failures: drained.failures.iter().map(SubmittedAnswer::from).collect(),
            unread: drained.unread,
            complete: drained.complete,
        }
    }
}
