//! Answers of `caproot call`: one line of stdout for each request.

use caproot_client::ChangesSince;
use caproot_client::session::dispatch::DrainSummary;
use caproot_client::session::{
    ExecutorChanges, ExecutorState, InjectedSkills, InstructionText, InvocationMetrics,
    SessionPlugin, ToolResult,
};
use serde::Serialize;
use serde_json::Value;
use std::fmt;

/// Answer of a request. The line has the `id` of the request, and `result` or `error`.
#[derive(Debug, Serialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
pub enum RequestAnswer {
    /// `tools`: an array of tools as model APIs expect them, with names, descriptions and schemas.
    Tools(Value),
    /// `call`: the JSON object of the tool, at most 8,192 bytes, and next to `result` whether the call
    /// succeeded (`success`) and whether third parties wrote the result (`externalContext`).
    #[serde(skip)]
    Call(ToolResult),
    /// `instructions`: the text, and how many skills are listed, shortened, omitted and hidden.
    Instructions(InstructionText),
    /// `inject`: the fragments, of at most 32,000 bytes together, and the mentions without a fragment.
    Inject(InjectedSkills),
    /// `state`: one object for each executor.
    State(Vec<ExecutorState>),
    /// `metrics`: counters since the start of the session. Times are in seconds.
    Metrics(Box<InvocationMetrics>),
    /// `plugins`: the plugins in the order of their sources.
    Plugins(Vec<SessionPlugin>),
    /// `tool_result`.
    ToolResult {
        /// Whether the call waited for the result.
        accepted: bool,
    },
    /// `save`: a JSON object of at most 4 MiB.
    #[serde(skip)]
    Save(String),
    /// `restore`.
    Restore {
        /// Id of the session.
        session: String,
        /// Changes of each executor since the save.
        changes: Vec<SavedChanges>,
        /// Parts of the saved state that could not be restored, one sentence each.
        warnings: Vec<String>,
    },
    /// `changes`: the changes of each executor since the save.
    Changes(Vec<SavedChanges>),
    /// `fork` and `close`.
    Session {
        /// Id of the session.
        session: String,
    },
    /// `drain`: numbers of calls.
    Drain(DrainCounts),
    /// `listen`.
    Listen {
        /// Id of the last event of the stream.
        last_event_id: Option<String>,
    },
    /// `send` without `until`.
    Send {
        /// Skills that were injected into the prompt.
        injected: InjectedSkills,
    },
    /// `send` with `until`.
    SendUntil {
        /// Skills that were injected into the prompt.
        injected: InjectedSkills,
        /// Status that ended the turn.
        status: String,
        /// Calls of the turn.
        drained: DrainCounts,
    },
    /// Any request that is invalid or failed.
    #[serde(skip)]
    Error(RequestError),
}

/// Error of a request.
#[derive(Debug, Serialize)]
pub struct RequestError {
    /// `BAD_REQUEST`, `FAILED` or `OVERLOADED`.
    pub code: &'static str,
    /// Reason in a sentence, with the next step.
    pub message: String,
}

/// Changes of one executor since the save of a session.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SavedChanges {
    environment_id: String,
    changes: ChangeState,
    /// Whether the listed skills are newer than `changes`.
    changed_again: bool,
}

/// Whether the changes since a save are known.
#[derive(Debug, Serialize)]
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
#[derive(Debug, Serialize)]
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
    /// Whether the last poll found no new call.
    complete: bool,
}

impl RequestAnswer {
    /// Returns the line of the answer.
    pub fn to_line(&self, id: &Value) -> serde_json::Result<String> {
        Ok(match self {
            // The limit of a tool's result counts exactly the bytes of its JSON.
            Self::Call(ToolResult {
                success,
                external_context,
                json,
            }) => format!(
                "{{\"id\":{id},\"success\":{success},\"externalContext\":{external_context},\"result\":{json}}}"
            ),
            Self::Save(json) => format!("{{\"id\":{id},\"result\":{json}}}"),
            Self::Error(error) => {
                let error = serde_json::to_string(error)?;
                format!("{{\"id\":{id},\"error\":{error}}}")
            }
            result => {
                let result = serde_json::to_string(result)?;
                format!("{{\"id\":{id},\"result\":{result}}}")
            }
        })
    }
}

impl RequestError {
    /// Returns the error of a valid request that failed.
    pub fn failed(error: &dyn fmt::Display) -> Self {
        Self {
            code: "FAILED",
            message: error.to_string(),
        }
    }

    /// Returns the error of an invalid request.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self {
            code: "BAD_REQUEST",
            message: message.into(),
        }
    }

    /// Returns the error of a request beyond the maximum number of requests in flight.
    pub fn overloaded() -> Self {
        let message = "256 requests are in flight; answer the calls of your tools first";
        Self {
            code: "OVERLOADED",
            message: message.to_owned(),
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

impl From<&DrainSummary> for DrainCounts {
    fn from(drained: &DrainSummary) -> Self {
        Self {
            accepted: drained.accepted,
            not_found: drained.not_found,
            already_answered: drained.already_answered,
            failed: drained.failed,
            complete: drained.complete,
        }
    }
}
