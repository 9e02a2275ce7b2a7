//! A call of an own tool: its turn, its arguments held against the schema, the function on a task of its
//! own with so much time, and a result whatever becomes of it. A call that nobody waits for any more takes
//! its function with it.

use super::super::ToolNames;
use super::super::result::{Code, MAX_RESULT_BYTES, Refusal, ToolResult};
use super::Own;
use super::bounds::within;
use super::check::Registered;
use super::limits::{MAX_ARGUMENT_BYTES, TURN};
use super::tool::Failure;
use serde_json::Value;
use std::any::Any;
use std::fmt::Write as _;
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;

/// The most mistakes in arguments that are told at once.
const MAX_MISTAKES: usize = 4;

impl Own {
    /// What a call comes to; `None` where there is no such tool.
    pub(in super::super) async fn call(&self, name: &str, arguments: &Value) -> Option<ToolResult> {
        let tool = self.tools.iter().find(|tool| tool.full_name() == name)?;
        let outcome = self.run(tool, arguments).await;
        Some(tool.result(outcome, &self.names))
    }

    async fn run(&self, tool: &Arc<Registered>, arguments: &Value) -> Result<String, Refusal> {
        within(arguments, MAX_ARGUMENT_BYTES).map_err(|why| tool.unfit(&why))?;
        let turn = self.turn(tool).await?;
        let mut task = JoinSet::new();
        let (running, arguments) = (tool.clone(), arguments.clone());
        task.spawn(async move {
            // Given back when the function is gone, which may be later than its time is over.
            let _turn = turn;
            running.check(&arguments)?;
            (running.handler)(arguments).await.map_err(|failure| running.refusal(failure))
        });
        // Dropping the set aborts the task.
        match timeout(tool.time_limit, task.join_next()).await {
            Ok(Some(Ok(outcome))) => outcome,
            Ok(Some(Err(error))) => Err(tool.broken(error)),
            Ok(None) => Err(tool.stopped()),
            Err(_) => {
                let limit = humantime::format_duration(tool.time_limit);
                let message = format!("{} did not end within {limit}", tool.quoted());
                Err(Refusal::said(Code::ToolTimedOut, &message))
            }
        }
    }

    async fn turn(&self, tool: &Registered) -> Result<OwnedSemaphorePermit, Refusal> {
        let turn = timeout(TURN, self.turns.clone().acquire_owned()).await;
        turn.ok().and_then(Result::ok).ok_or_else(|| {
            let message = format!("too many calls run, and {} has no turn", tool.quoted());
            Refusal::said(Code::Overloaded, &message)
        })
    }
}

impl Registered {
    /// Whether the arguments fit the schema, or where they do not.
    fn check(&self, arguments: &Value) -> Result<(), Refusal> {
        let mut why = String::new();
        let mut mistakes = self.validator.iter_errors(arguments);
        for mistake in mistakes.by_ref().take(MAX_MISTAKES) {
            let separator = if why.is_empty() { "" } else { "; " };
            let at = place(mistake.instance_path().as_str());
            // What was sent is not repeated: the model knows it, and it may be large.
            let _ = write!(why, "{separator}{at}: {}", mistake.masked());
        }
        if why.is_empty() {
            return Ok(());
        }
        if mistakes.next().is_some() {
            why.push_str("; and more");
        }
        Err(self.unfit(&why))
    }

    fn unfit(&self, why: &str) -> Refusal {
        let message = format!("the arguments do not fit {}: {why}", self.quoted());
        Refusal::new(
            Code::InvalidArguments,
            &message,
            "Call again with arguments that fit the tool's schema.",
        )
    }

    fn refusal(&self, failure: Failure) -> Refusal {
        match failure {
            Failure::Arguments { path, why } => self.unfit(&format!("at {path}: {why}")),
            Failure::Said(why) => {
                Refusal::said(Code::ToolFailed, &format!("{} failed: {why}", self.quoted()))
            }
            Failure::TooLarge => self.too_large(),
            Failure::NoJson(why) => {
                let message = format!("the result of {} is no JSON: {why}", self.quoted());
                Refusal::said(Code::ToolFailed, &message)
            }
        }
    }

    fn too_large(&self) -> Refusal {
        let message =
            format!("the result of {} is over {MAX_RESULT_BYTES} bytes of JSON", self.quoted());
        Refusal::new(
            Code::TooLarge,
            &message,
            "Call again for less at once, if the tool can do that, or go on without it.",
        )
    }

    /// What is left of a function that panicked. Why it did is for the program's log, and no model's
    /// business.
    fn broken(&self, error: JoinError) -> Refusal {
        let Ok(panic) = error.try_into_panic() else { return self.stopped() };
        tracing::error!(tool = self.full_name(), "a tool panicked: {}", said(&*panic));
        let message = format!("{} broke down: this is a defect in it", self.quoted());
        Refusal::said(Code::ToolPanicked, &message)
    }

    fn stopped(&self) -> Refusal {
        Refusal::said(Code::ToolFailed, &format!("{} was stopped", self.quoted()))
    }

    fn quoted(&self) -> String {
        format!("the tool {:?}", self.full_name())
    }

    /// What is for the model: one object, within the bound.
    fn result(&self, outcome: Result<String, Refusal>, names: &ToolNames) -> ToolResult {
        let object = outcome.map(|json| {
            let is_object = !self.wraps && json.starts_with('{');
            if is_object { json } else { format!("{{\"result\":{json}}}") }
        });
        let object = object.and_then(|json| {
            if json.len() > MAX_RESULT_BYTES { Err(self.too_large()) } else { Ok(json) }
        });
        let external_context = self.external_context;
        match object {
            Ok(json) => ToolResult { success: true, external_context, json },
            Err(refusal) => {
                let refused = ToolResult::of(Err::<&(), _>(&refusal), names);
                ToolResult { external_context, ..refused }
            }
        }
    }
}

/// Where a mistake is, as a JSON Pointer.
fn place(pointer: &str) -> String {
    if pointer.is_empty() { "at the top".to_owned() } else { format!("at {pointer}") }
}

fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("it did not say why")
}
