//! A call of an own tool: its turn, its arguments held against the schema, the function on a task of its
//! own with so much time, and a result whatever becomes of it. A call that nobody waits for any more takes
//! its function with it.

use super::super::ToolNames;
use super::super::result::{MAX_RESULT_BYTES, ToolError, ToolErrorCode, ToolResult};
use super::ToolSet;
use super::bounds::check_json_bounds;
use super::check::RegisteredTool;
use super::limits::{MAX_ARGUMENT_BYTES, PERMIT_TIMEOUT};
use super::tool::ToolFailure;
use serde_json::Value;
use std::any::Any;
use std::fmt::Write as _;
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;

/// The most mistakes in arguments that are told at once.
const MAX_SCHEMA_ERRORS: usize = 4;

impl ToolSet {
    /// What a call comes to; `None` where there is no such tool.
    pub(in super::super) async fn call_tool(
        &self,
        name: &str,
        arguments: &Value,
    ) -> Option<ToolResult> {
        let tool = self.tools.iter().find(|tool| tool.full_name() == name)?;
        let outcome = self.run(tool, arguments).await;
        Some(tool.to_result(outcome, &self.names))
    }

    async fn run(
        &self,
        tool: &Arc<RegisteredTool>,
        arguments: &Value,
    ) -> Result<String, ToolError> {
        check_json_bounds(arguments, MAX_ARGUMENT_BYTES)
            .map_err(|why| tool.invalid_arguments(&why))?;
        let turn = self.acquire_permit(tool).await?;
        let mut task = JoinSet::new();
        let (running, arguments) = (tool.clone(), arguments.clone());
        task.spawn(async move {
            // Given back when the function is gone, which may be later than its time is over.
            let _turn = turn;
            running.check_arguments(&arguments)?;
            (running.handler)(arguments).await.map_err(|failure| running.tool_error(failure))
        });
        // Dropping the set aborts the task.
        match timeout(tool.time_limit, task.join_next()).await {
            Ok(Some(Ok(outcome))) => outcome,
            Ok(Some(Err(error))) => Err(tool.panic_error(error)),
            Ok(None) => Err(tool.aborted_error()),
            Err(_) => {
                let limit = humantime::format_duration(tool.time_limit);
                let message = format!("{} did not end within {limit}", tool.quoted_name());
                Err(ToolError::from_code(ToolErrorCode::ToolTimedOut, &message))
            }
        }
    }

    async fn acquire_permit(
        &self,
        tool: &RegisteredTool,
    ) -> Result<OwnedSemaphorePermit, ToolError> {
        let turn = timeout(PERMIT_TIMEOUT, self.permits.clone().acquire_owned()).await;
        turn.ok().and_then(Result::ok).ok_or_else(|| {
            let message = format!("too many calls run, and {} has no turn", tool.quoted_name());
            ToolError::from_code(ToolErrorCode::Overloaded, &message)
        })
    }
}

impl RegisteredTool {
    /// Whether the arguments fit the schema, or where they do not.
    fn check_arguments(&self, arguments: &Value) -> Result<(), ToolError> {
        let mut why = String::new();
        let mut mistakes = self.validator.iter_errors(arguments);
        for mistake in mistakes.by_ref().take(MAX_SCHEMA_ERRORS) {
            let separator = if why.is_empty() { "" } else { "; " };
            let at = pointer_text(mistake.instance_path().as_str());
            // What was sent is not repeated: the model knows it, and it may be large.
            let _ = write!(why, "{separator}{at}: {}", mistake.masked());
        }
        if why.is_empty() {
            return Ok(());
        }
        if mistakes.next().is_some() {
            why.push_str("; and more");
        }
        Err(self.invalid_arguments(&why))
    }

    fn invalid_arguments(&self, why: &str) -> ToolError {
        let message = format!("the arguments do not fit {}: {why}", self.quoted_name());
        ToolError::with_hint(
            ToolErrorCode::InvalidArguments,
            &message,
            "Call again with arguments that fit the tool's schema.",
        )
    }

    fn tool_error(&self, failure: ToolFailure) -> ToolError {
        match failure {
            ToolFailure::InvalidArguments { path, why } => {
                self.invalid_arguments(&format!("at {path}: {why}"))
            }
            ToolFailure::FunctionError(why) => ToolError::from_code(
                ToolErrorCode::ToolFailed,
                &format!("{} failed: {why}", self.quoted_name()),
            ),
            ToolFailure::TooLarge => self.too_large_error(),
            ToolFailure::NotJson(why) => {
                let message = format!("the result of {} is no JSON: {why}", self.quoted_name());
                ToolError::from_code(ToolErrorCode::ToolFailed, &message)
            }
        }
    }

    fn too_large_error(&self) -> ToolError {
        let message = format!(
            "the result of {} is over {MAX_RESULT_BYTES} bytes of JSON",
            self.quoted_name()
        );
        ToolError::with_hint(
            ToolErrorCode::TooLarge,
            &message,
            "Call again for less at once, if the tool can do that, or go on without it.",
        )
    }

    /// What is left of a function that panicked. Why it did is for the program's log, and no model's
    /// business.
    fn panic_error(&self, error: JoinError) -> ToolError {
        let Ok(panic) = error.try_into_panic() else { return self.aborted_error() };
        tracing::error!(tool = self.full_name(), "a tool panicked: {}", panic_message(&*panic));
        let message = format!("{} broke down: this is a defect in it", self.quoted_name());
        ToolError::from_code(ToolErrorCode::ToolPanicked, &message)
    }

    fn aborted_error(&self) -> ToolError {
        ToolError::from_code(
            ToolErrorCode::ToolFailed,
            &format!("{} was stopped", self.quoted_name()),
        )
    }

    fn quoted_name(&self) -> String {
        format!("the tool {:?}", self.full_name())
    }

    /// What is for the model: one object, within the bound.
    fn to_result(&self, outcome: Result<String, ToolError>, names: &ToolNames) -> ToolResult {
        let object = outcome.map(|json| {
            let is_object = !self.wraps_result && json.starts_with('{');
            if is_object { json } else { format!("{{\"result\":{json}}}") }
        });
        let object = object.and_then(|json| {
            if json.len() > MAX_RESULT_BYTES { Err(self.too_large_error()) } else { Ok(json) }
        });
        let external_context = self.external_context;
        match object {
            Ok(json) => ToolResult { success: true, external_context, json },
            Err(refusal) => {
                let refused = ToolResult::from_outcome(Err::<&(), _>(&refusal), names);
                ToolResult { external_context, ..refused }
            }
        }
    }
}

/// Where a mistake is, as a JSON Pointer.
fn pointer_text(pointer: &str) -> String {
    if pointer.is_empty() { "at the top".to_owned() } else { format!("at {pointer}") }
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("it did not say why")
}
