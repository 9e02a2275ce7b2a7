//! Events of `caproot call`: lines of stdout that answer no request.

use caproot_client::session::dispatch::{DispatchRecord, SubmitOutcome};
use caproot_client::session::{
    ChangedSource, ExecutorState, Session, SessionPluginChanges, SourceKind, UsageEvent,
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

/// Event by its name in `event`.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(
    tag = "event",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum CallEvent {
    /// With `--events`, or after `watch`: the skills or the state of a source changed.
    Changed {
        /// State of the source, if the source is an executor.
        #[serde(skip_serializing_if = "Option::is_none")]
        executor: Option<ExecutorState>,
        /// Name of any other source.
        #[serde(skip_serializing_if = "Option::is_none")]
        source: Option<SourceName>,
        /// Id of the session.
        session: String,
        /// After `watch`: the new text that describes the skills to a model, if the text changed.
        #[serde(skip_serializing_if = "Option::is_none")]
        text: Option<String>,
    },
    /// With `--events` or after `watch`, and with `--plugins`: plugins changed.
    Plugins {
        /// Id of the session.
        session: String,
        /// Changes of the plugins.
        #[serde(flatten)]
        changes: SessionPluginChanges,
    },
    /// After `watch_usage`: a skill was listed, read, injected or searched.
    Usage {
        /// Use of the skill.
        #[serde(flatten)]
        used: UsageEvent,
    },
    /// A model calls a tool of the program, which answers by the request `tool_result`.
    Tool {
        /// Number of the call.
        call: u64,
        /// Id of the session that started with the tool. A fork has the tools of its session.
        session: String,
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
#[derive(Debug, Serialize, JsonSchema)]
pub struct SourceName {
    /// `local` or `mcp`.
    kind: &'static str,
    id: String,
}

impl CallEvent {
    /// Returns the event of a changed source, with the new text, if there is one.
    pub fn from_source(session: &Session, changed: &ChangedSource, text: Option<String>) -> Self {
        let id = session.id().to_owned();
        if changed.kind != SourceKind::Executor {
            let source = SourceName {
                kind: changed.kind.name(),
                id: changed.id.clone(),
            };
            return Self::Changed {
                executor: None,
                source: Some(source),
                session: id,
                text,
            };
        }

        let mut executors = session.executors().into_iter();
        Self::Changed {
            executor: executors.find(|executor| executor.environment_id == changed.id),
            source: None,
            session: id,
            text,
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
