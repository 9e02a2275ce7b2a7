//! Events of `caproot call`: lines of stdout that answer no request.

use caproot_client::session::dispatch::{DispatchRecord, SubmitOutcome};
use caproot_client::session::{
    ChangedSource, ExecutorState, Session, SessionPluginChanges, SourceKind,
};
use serde::Serialize;
use serde_json::Value;

/// Event by its name in `event`.
#[derive(Debug, Serialize)]
#[serde(
    tag = "event",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum CallEvent {
    /// With `--events`: the skills or the state of a source changed.
    Changed {
        /// State of the source, if the source is an executor.
        #[serde(skip_serializing_if = "Option::is_none")]
        executor: Option<ExecutorState>,
        /// Name of any other source.
        #[serde(skip_serializing_if = "Option::is_none")]
        source: Option<SourceName>,
    },
    /// With `--events` and `--plugins`: plugins changed.
    Plugins(SessionPluginChanges),
    /// With `--tools`: a model calls a tool of the program, which answers by the request
    /// `tool_result`.
    Tool {
        /// Number of the call.
        call: u64,
        /// Name of the tool, with its namespace.
        tool: String,
        /// Arguments that fit the schema of the tool.
        arguments: Value,
    },
    /// A call of a tool of the program needs no answer any more.
    ToolCancelled {
        /// Number of the call.
        call: u64,
    },
    /// With `--manager`: the answer of a pending call was submitted.
    Dispatched {
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
    },
}

/// Kind and id of a source, as in the authorities of its skills.
#[derive(Debug, Serialize)]
pub struct SourceName {
    /// `local` or `mcp`.
    kind: &'static str,
    id: String,
}

impl CallEvent {
    /// Returns the event of a changed source.
    pub fn from_source(session: &Session, changed: &ChangedSource) -> Self {
        if changed.kind != SourceKind::Executor {
            let source = SourceName {
                kind: changed.kind.name(),
                id: changed.id.clone(),
            };
            return Self::Changed {
                executor: None,
                source: Some(source),
            };
        }

        let mut executors = session.executors().into_iter();
        Self::Changed {
            executor: executors.find(|executor| executor.environment_id == changed.id),
            source: None,
        }
    }

    /// Returns the event of a submitted answer.
    pub fn from_record(record: &DispatchRecord) -> Self {
        let (outcome, reason) = match &record.outcome {
            SubmitOutcome::Accepted => ("accepted", None),
            SubmitOutcome::NotFound => ("notFound", None),
            SubmitOutcome::AlreadyAnswered => ("alreadyAnswered", None),
            SubmitOutcome::Failed(reason) => ("failed", Some(reason.clone())),
        };
        Self::Dispatched {
            request_id: record.request_id.as_str().to_owned(),
            tool: record.tool.clone(),
            success: record.success,
            outcome,
            reason,
            attempts: record.attempts,
        }
    }

    /// Returns the line of the event.
    pub fn to_line(&self) -> serde_json::Result<String> {
        serde_json::to_string(self)
    }
}
