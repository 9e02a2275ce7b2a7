//! One invocation under way: a span while it lasts, and a count when it is over, also where nobody waits
//! for its end. What is written down is bounded, and no word of a skill's text.

use super::metrics::{InvocationCounters, InvocationKind, InvocationRecord, OUTCOME_OK};
use super::result::{ToolError, ToolErrorCode, ToolResult};
use super::text::{single_line, truncate_with_ellipsis};
use serde_json::Value;
use std::time::Instant;
use tracing::Span;
use tracing::field::{Empty, display};

/// The most bytes of a handle, of a name and of an outcome that are written down.
const MAX_HANDLE_BYTES: usize = 2_048;
const MAX_NAME_BYTES: usize = 256;
const MAX_OUTCOME_BYTES: usize = 64;

/// The source of what no source was asked for.
pub(super) const SESSION_SOURCE: (&str, &str) = ("session", "");

/// An invocation. Counted when it ends, as `DROPPED` where it is dropped before.
pub(super) struct InvocationGuard<'a> {
    counters: &'a InvocationCounters,
    kind: InvocationKind,
    source: (&'static str, String),
    skill: String,
    started_at: Instant,
    span: Span,
    is_recorded: bool,
}

impl<'a> InvocationGuard<'a> {
    /// Begins one; its source is a kind and an id.
    pub(super) fn start(
        counters: &'a InvocationCounters,
        how: InvocationKind,
        (kind, id): (&'static str, &str),
        skill: &str,
    ) -> Self {
        let id = truncate_with_ellipsis(&single_line(id), MAX_NAME_BYTES);
        let skill = truncate_with_ellipsis(&single_line(skill), MAX_HANDLE_BYTES);
        let span = tracing::info_span!(
            "invocation",
            how = ?how,
            explicit = how == InvocationKind::Inject,
            source.kind = kind,
            source.id = id,
            skill,
            outcome = Empty,
            bytes = Empty,
            duration_ms = Empty,
        );
        let source = (kind, id);
        Self {
            counters,
            kind: how,
            source,
            skill,
            started_at: Instant::now(),
            span,
            is_recorded: false,
        }
    }

    /// For the work of it.
    pub(super) fn span(&self) -> Span {
        self.span.clone()
    }

    /// Ends it, with what a model got.
    fn finish(mut self, outcome: &str, bytes: usize) {
        self.record_outcome(outcome, bytes);
    }

    /// Ends it with a tool's result.
    pub(super) fn finish_with_result(self, result: &ToolResult) {
        self.finish(&outcome_code(result), result.json.len());
    }

    /// Ends it with a fragment's text, or why there is none.
    pub(super) fn finish_with_fragment(self, text: Result<&str, &ToolError>) {
        match text {
            Ok(text) => self.finish(OUTCOME_OK, text.len()),
            Err(refusal) => self.finish(refusal.code.name(), 0),
        }
    }

    fn record_outcome(&mut self, outcome: &str, bytes: usize) {
        self.is_recorded = true;
        let took = self.started_at.elapsed();
        let outcome = truncate_with_ellipsis(&single_line(outcome), MAX_OUTCOME_BYTES);
        if outcome == ToolErrorCode::UnknownTool.name() {
            // A name that a model made up is no source.
            self.source = (SESSION_SOURCE.0, SESSION_SOURCE.1.to_owned());
        }
        self.span.record("outcome", display(&outcome));
        self.span.record("bytes", bytes);
        self.span.record("duration_ms", took.as_secs_f64() * 1_000.0);
        self.counters.record_invocation(&InvocationRecord {
            source_kind: self.source.0,
            source_id: &self.source.1,
            kind: self.kind,
            skill: &self.skill,
            outcome: &outcome,
            bytes,
            duration: took,
        });
    }
}

impl Drop for InvocationGuard<'_> {
    fn drop(&mut self) {
        if !self.is_recorded {
            self.record_outcome("DROPPED", 0);
        }
    }
}

/// The code of a result.
fn outcome_code(result: &ToolResult) -> String {
    if result.success {
        return OUTCOME_OK.to_owned();
    }
    let json = serde_json::from_str::<Value>(&result.json).unwrap_or_default();
    json["error"]["code"].as_str().unwrap_or("FAILED").to_owned()
}
