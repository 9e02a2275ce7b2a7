//! One invocation under way: a span while it lasts, and a count when it is over, also where nobody waits
//! for its end. What is written down is bounded, and no word of a skill's text.

use super::metrics::{Counters, How, Invoked, OK};
use super::one_line::{cut, one_line};
use super::result::{Code, Refusal, ToolResult};
use serde_json::Value;
use std::time::Instant;
use tracing::Span;
use tracing::field::{Empty, display};

/// The most bytes of a handle, of a name and of an outcome that are written down.
const MAX_HANDLE_BYTES: usize = 2_048;
const MAX_NAME_BYTES: usize = 256;
const MAX_OUTCOME_BYTES: usize = 64;

/// The source of what no source was asked for.
pub(super) const SESSION: (&str, &str) = ("session", "");

/// An invocation. Counted when it ends, as `DROPPED` where it is dropped before.
pub(super) struct Invocation<'a> {
    counters: &'a Counters,
    how: How,
    source: (&'static str, String),
    skill: String,
    began: Instant,
    span: Span,
    is_over: bool,
}

impl<'a> Invocation<'a> {
    /// Begins one; its source is a kind and an id.
    pub(super) fn begin(
        counters: &'a Counters,
        how: How,
        (kind, id): (&'static str, &str),
        skill: &str,
    ) -> Self {
        let id = cut(&one_line(id), MAX_NAME_BYTES);
        let skill = cut(&one_line(skill), MAX_HANDLE_BYTES);
        let span = tracing::info_span!(
            "invocation",
            how = ?how,
            explicit = how == How::Inject,
            source.kind = kind,
            source.id = id,
            skill,
            outcome = Empty,
            bytes = Empty,
            duration_ms = Empty,
        );
        let source = (kind, id);
        Self { counters, how, source, skill, began: Instant::now(), span, is_over: false }
    }

    /// For the work of it.
    pub(super) fn span(&self) -> Span {
        self.span.clone()
    }

    /// Ends it, with what a model got.
    fn end(mut self, outcome: &str, bytes: usize) {
        self.note(outcome, bytes);
    }

    /// Ends it with a tool's result.
    pub(super) fn answered(self, result: &ToolResult) {
        self.end(&outcome(result), result.json.len());
    }

    /// Ends it with a fragment's text, or why there is none.
    pub(super) fn injected(self, text: Result<&str, &Refusal>) {
        match text {
            Ok(text) => self.end(OK, text.len()),
            Err(refusal) => self.end(refusal.code.name(), 0),
        }
    }

    fn note(&mut self, outcome: &str, bytes: usize) {
        self.is_over = true;
        let took = self.began.elapsed();
        let outcome = cut(&one_line(outcome), MAX_OUTCOME_BYTES);
        if outcome == Code::UnknownTool.name() {
            // A name that a model made up is no source.
            self.source = (SESSION.0, SESSION.1.to_owned());
        }
        self.span.record("outcome", display(&outcome));
        self.span.record("bytes", bytes);
        self.span.record("duration_ms", took.as_secs_f64() * 1_000.0);
        self.counters.add(&Invoked {
            source_kind: self.source.0,
            source_id: &self.source.1,
            how: self.how,
            skill: &self.skill,
            outcome: &outcome,
            bytes,
            took,
        });
    }
}

impl Drop for Invocation<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.note("DROPPED", 0);
        }
    }
}

/// The code of a result.
fn outcome(result: &ToolResult) -> String {
    if result.success {
        return OK.to_owned();
    }
    let json = serde_json::from_str::<Value>(&result.json).unwrap_or_default();
    json["error"]["code"].as_str().unwrap_or("FAILED").to_owned()
}
