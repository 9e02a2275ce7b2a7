//! Invocations: calls of tools by a model, and injected skills. Each has a span, and ends with the use of its
//! skill, if it has one. No label contains text of a skill.

use super::usage::{CallOutcome, OUTCOME_OK, UsageKind, UsageRecorder};
use crate::skills::result::{ToolError, ToolResult};
use crate::skills::skill::SharedSkill;
use crate::skills::skill_source::SkillSource;
use crate::skills::tool_names::ToolNames;
use caproot_core::text::{single_line, truncate_with_ellipsis};
use serde_json::Value;
use std::time::Instant;
use tracing::Span;
use tracing::field::{Empty, display};

/// Outcome of a search without a result.
const OUTCOME_EMPTY: &str = "EMPTY";
/// Limits of the labels in bytes.
const MAX_HANDLE_BYTES: usize = 2_048;
const MAX_NAME_BYTES: usize = 256;
const MAX_OUTCOME_BYTES: usize = 64;

/// Kind of an invocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InvocationKind {
    /// A model called `skills.list`.
    List,
    /// A model called `skills.read`, or the program read a file.
    Read,
    /// A model called `skills.search`.
    Search,
    /// A user mentioned a skill.
    Inject,
    /// A model called another tool.
    Tool,
}

/// Session in which an invocation runs.
#[derive(Clone, Copy)]
pub struct InvocationSession<'a> {
    pub id: &'a str,
    pub usage: &'a UsageRecorder,
    pub tool_names: ToolNames,
}

/// Source and skill that an invocation calls.
#[derive(Clone, Copy)]
pub struct InvocationTarget<'a> {
    pub source_kind: &'static str,
    pub source_id: &'a str,
    /// Handle of a skill of the source, or empty.
    pub package: &'a str,
    /// Skill, if the source lists it.
    pub skill: Option<&'a SharedSkill>,
    /// Whether the call continues the use of the skill, and is no further use.
    pub is_continued: bool,
}

/// Invocation in flight. Recorded when it finishes, or as `DROPPED` on drop.
pub struct InvocationGuard<'a> {
    usage: &'a UsageRecorder,
    kind: InvocationKind,
    /// Skill that the invocation uses.
    skill: Option<SharedSkill>,
    started_at: Instant,
    span: Span,
    is_recorded: bool,
}

impl<'a> InvocationTarget<'a> {
    /// Target of an invocation that calls no source.
    pub const SESSION: Self = Self {
        source_kind: "session",
        source_id: "",
        package: "",
        skill: None,
        is_continued: false,
    };

    /// Returns a skill of a source as the target: by its handle, as the source may not list it.
    pub fn of_skill(
        source: &'a dyn SkillSource,
        package: &'a str,
        skill: Option<&'a SharedSkill>,
    ) -> Self {
        Self {
            source_kind: source.kind().name(),
            source_id: source.id(),
            package,
            skill,
            ..Self::SESSION
        }
    }

    /// Returns a custom tool of the program as the target.
    pub fn of_custom_tool(tool: &'a str) -> Self {
        Self {
            source_kind: "custom",
            source_id: tool,
            ..Self::SESSION
        }
    }
}

impl<'a> InvocationGuard<'a> {
    /// Starts an invocation of a session.
    pub fn start(
        session: InvocationSession<'a>,
        kind: InvocationKind,
        target: InvocationTarget<'_>,
    ) -> Self {
        let source_id = truncate_with_ellipsis(&single_line(target.source_id), MAX_NAME_BYTES);

        // The names that begin with `gen_ai` are those of the GenAI conventions of OpenTelemetry.
        let span = tracing::info_span!(
            "invocation",
            otel.name = Empty,
            gen_ai.operation.name = Empty,
            gen_ai.tool.name = Empty,
            gen_ai.conversation.id = session.id,
            gen_ai.skill.name = Empty,
            gen_ai.skill.source.uri = Empty,
            "error.type" = Empty,
            skill.digest = Empty,
            kind = ?kind,
            explicit = kind == InvocationKind::Inject,
            source.kind = target.source_kind,
            source.id = source_id,
            outcome = Empty,
            bytes = Empty,
            duration_ms = Empty,
        );

        // A model may have invented the name of an unknown tool, which has no target.
        let tool = match kind {
            InvocationKind::List => session.tool_names.list(),
            InvocationKind::Read => session.tool_names.read(),
            InvocationKind::Search => session.tool_names.search(),
            InvocationKind::Inject => "",
            InvocationKind::Tool => target.source_id,
        };
        if !tool.is_empty() {
            span.record("otel.name", format!("execute_tool {tool}"));
            span.record("gen_ai.operation.name", "execute_tool");
            span.record("gen_ai.tool.name", tool);
        }
        if !target.package.is_empty() {
            let uri = truncate_with_ellipsis(&single_line(target.package), MAX_HANDLE_BYTES);
            span.record("gen_ai.skill.source.uri", uri);
        }
        if let Some(skill) = target.skill {
            let name = truncate_with_ellipsis(&single_line(&skill.name), MAX_NAME_BYTES);
            span.record("gen_ai.skill.name", name);
            span.record("skill.digest", skill.digest.as_str());
        }

        Self {
            usage: session.usage,
            kind,
            skill: target.skill.filter(|_| !target.is_continued).cloned(),
            started_at: Instant::now(),
            span,
            is_recorded: false,
        }
    }

    /// Returns the span in which the work of the invocation runs.
    pub fn span(&self) -> Span {
        self.span.clone()
    }

    /// Finishes the invocation with the result of a tool.
    pub fn finish_with_result(mut self, result: &ToolResult) {
        self.record_outcome(&outcome_code(self.kind, result), result.json.len());
    }

    /// Finishes the invocation with the text of a fragment or file, or with an error.
    pub fn finish_with_text(mut self, text: Result<&str, &ToolError>) {
        match text {
            Ok(text) => self.record_outcome(OUTCOME_OK, text.len()),
            Err(error) => self.record_outcome(error.code().name(), 0),
        }
    }

    fn record_outcome(&mut self, outcome: &str, bytes: usize) {
        self.is_recorded = true;
        let duration = self.started_at.elapsed();
        let outcome = truncate_with_ellipsis(&single_line(outcome), MAX_OUTCOME_BYTES);

        self.span.record("outcome", display(&outcome));
        if outcome != OUTCOME_OK {
            self.span.record("error.type", display(&outcome));
        }
        self.span.record("bytes", bytes);
        self.span
            .record("duration_ms", duration.as_secs_f64() * 1_000.0);

        let kind = match self.kind {
            InvocationKind::Inject => UsageKind::Injected,
            _ => UsageKind::Read,
        };
        let call = CallOutcome {
            outcome,
            bytes,
            duration,
        };
        self.usage.record_call(kind, &self.skill, Some(call));
    }
}

impl Drop for InvocationGuard<'_> {
    fn drop(&mut self) {
        if !self.is_recorded {
            self.record_outcome("DROPPED", 0);
        }
    }
}

/// Returns `OK`, `EMPTY` or the error code of a result.
fn outcome_code(kind: InvocationKind, result: &ToolResult) -> String {
    if result.success && kind != InvocationKind::Search {
        return OUTCOME_OK.to_owned();
    }

    let json = serde_json::from_str::<Value>(&result.json).unwrap_or_default();
    let outcome = if !result.success {
        json["error"]["code"].as_str().unwrap_or("FAILED")
    } else if json["skills"].as_array().is_none_or(Vec::is_empty) {
        OUTCOME_EMPTY
    } else {
        OUTCOME_OK
    };
    outcome.to_owned()
}
