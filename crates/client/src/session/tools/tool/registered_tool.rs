//! Registered tool: the checks of a custom tool at registration, and its calls.

use super::{CustomTool, ToolFailure, ToolHandler};
use crate::session::result::{MAX_RESULT_BYTES, ToolError, ToolErrorCode, ToolResult};
use crate::session::tools::ToolRegistryError;
use crate::session::tools::bounds::check_json_bounds;
use crate::session::tools::limits::{
    MAX_ARGUMENT_BYTES, MAX_DESCRIPTION_BYTES, MAX_NAME_BYTES, MAX_SCHEMA_BYTES, MAX_TIME_LIMIT,
    PERMIT_TIMEOUT,
};
use crate::session::tools::results::ResultText;
use crate::session::{ToolNameError, ToolNames};
use caproot_core::text::{single_line, truncate_with_ellipsis};
use jsonschema::Validator;
use serde_json::{Map, Value, json};
use std::any::Any;
use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;
use tracing::Instrument as _;

/// Limit of a repeated error in the definition of a tool, in bytes.
const MAX_REASON_BYTES: usize = 512;
/// Schema errors in one error message about arguments.
const MAX_SCHEMA_ERRORS: usize = 4;

/// Tool that passed all checks and can be called.
#[derive(Clone)]
pub(in crate::session::tools) struct RegisteredTool {
    full_name: String,
    namespace: Option<String>,
    name: String,
    description: String,
    schema: Value,
    /// Compiled `schema`.
    validator: Validator,
    /// Description of the results for a model.
    result_text: Option<ResultText>,
    /// Whether every output is put into the field `result` of an object.
    wraps_result: bool,
    time_limit: Duration,
    external_context: bool,
    handler: ToolHandler,
}

impl RegisteredTool {
    /// Checks a tool. Returns the first error.
    pub(in crate::session::tools) fn new(tool: CustomTool) -> Result<Self, ToolRegistryError> {
        let CustomTool {
            namespace,
            name,
            input,
            output,
            time_limit,
            external_context,
            handler,
            ..
        } = tool;
        check_name(&name)?;
        if let Some(namespace) = &namespace {
            check_name(namespace)?;
            // Also in another case, so that a model cannot confuse the two.
            if namespace.eq_ignore_ascii_case("skills") {
                return Err(ToolRegistryError::Reserved(name));
            }
        }
        let full_name = namespace
            .as_ref()
            .map_or(name.clone(), |space| format!("{space}.{name}"));
        let invalid = |part, reason: String| ToolRegistryError::InvalidPart {
            tool: full_name.clone(),
            part,
            reason: truncate_with_ellipsis(&single_line(&reason), MAX_REASON_BYTES),
        };

        let (schema, doc) = input.into_parts();
        let validator =
            compile_schema(&schema).map_err(|reason| invalid("the schema of the input", reason))?;
        if schema["type"] != "object" {
            let reason = "its root has no `\"type\": \"object\"`; use a struct as the input, or set a schema";
            return Err(invalid("the schema of the input", reason.to_owned()));
        }
        let described = |text: Option<String>| {
            let text = text.filter(|text| !text.trim().is_empty());
            let is_long = text
                .as_ref()
                .is_some_and(|text| text.len() > MAX_DESCRIPTION_BYTES);
            if is_long {
                Err(format!("it is over {MAX_DESCRIPTION_BYTES} bytes"))
            } else {
                Ok(text)
            }
        };
        let description = described(tool.description.or(doc)).and_then(|text| {
            let reason = "it is missing; set one, or write a doc comment on the type of the input";
            text.ok_or_else(|| reason.to_owned())
        });
        let description = description.map_err(|reason| invalid("the description", reason))?;

        let (output, doc) = output.into_parts();
        compile_schema(&output).map_err(|reason| invalid("the schema of the output", reason))?;
        let output_description = described(tool.output_description.or(doc));
        let output_description = output_description
            .map_err(|reason| invalid("the description of the output", reason))?;
        let is_any = output.as_object().is_none_or(Map::is_empty);
        let wraps_result = !is_any && output["type"] != "object";
        let result_text = ResultText::describe(
            &full_name,
            output_description,
            (!is_any).then_some(&output),
            wraps_result,
        );

        if time_limit.is_zero() || time_limit > MAX_TIME_LIMIT {
            return Err(invalid(
                "the time limit",
                "expected more than zero and at most a day".into(),
            ));
        }
        Ok(Self {
            full_name,
            namespace,
            name,
            description,
            schema,
            validator,
            result_text,
            wraps_result,
            time_limit,
            external_context,
            handler,
        })
    }

    /// Returns the name by which a model calls the tool.
    pub(in crate::session::tools) fn full_name(&self) -> &str {
        &self.full_name
    }

    pub(in crate::session::tools) fn result_text(&self) -> Option<&ResultText> {
        self.result_text.as_ref()
    }

    /// Returns a copy of the tool with a name that has no namespace.
    pub(in crate::session::tools) fn with_flat_name(
        &self,
        names: &ToolNames,
    ) -> Result<Self, ToolNameError> {
        let name = names.flat_name(self.namespace.as_deref(), &self.name)?;
        let result_text = self.result_text.clone().map(|text| text.with_name(&name));
        let full_name = name.clone();
        Ok(Self {
            full_name,
            namespace: None,
            name,
            result_text,
            ..self.clone()
        })
    }

    /// Returns the tool as a platform registers it. Platforms take no schema of the output.
    pub(in crate::session::tools) fn to_payload(&self) -> Value {
        let mut payload = Map::new();
        if let Some(namespace) = &self.namespace {
            payload.insert("namespace".to_owned(), json!(namespace));
        }
        payload.insert("name".to_owned(), json!(self.name));
        payload.insert("description".to_owned(), json!(self.description));
        payload.insert("inputSchema".to_owned(), self.schema.clone());
        Value::Object(payload)
    }

    /// Calls the tool. The function runs on a task of its own, which ends with this future. A
    /// permit limits the concurrent calls.
    pub(in crate::session::tools) async fn call(
        self: &Arc<Self>,
        arguments: &Value,
        permits: &Arc<Semaphore>,
        names: &ToolNames,
    ) -> ToolResult {
        let outcome = self.run(arguments, permits).await;
        self.to_result(outcome, names)
    }

    async fn run(
        self: &Arc<Self>,
        arguments: &Value,
        permits: &Arc<Semaphore>,
    ) -> Result<String, ToolError> {
        check_json_bounds(arguments, MAX_ARGUMENT_BYTES)
            .map_err(|reason| self.invalid_arguments(&reason))?;
        let permit = self.acquire_permit(permits).await?;
        let mut task = JoinSet::new();
        let (tool, arguments) = (self.clone(), arguments.clone());
        let work = async move {
            // Held until the function ends, which may be after the time limit if it blocks its
            // thread.
            let _permit = permit;
            tool.check_arguments(&arguments)?;
            (tool.handler)(arguments)
                .await
                .map_err(|failure| tool.tool_error(failure))
        };
        // The spans and events of the function belong to the span of the invocation.
        task.spawn(work.in_current_span());
        // Dropping the set aborts the task.
        match timeout(self.time_limit, task.join_next()).await {
            Ok(Some(Ok(outcome))) => outcome,
            Ok(Some(Err(error))) => Err(self.panic_error(error)),
            Ok(None) => Err(self.aborted_error()),
            Err(_) => {
                let limit = humantime::format_duration(self.time_limit);
                let message = format!("{} did not end within {limit}", self.quoted_name());
                Err(ToolError::from_code(ToolErrorCode::ToolTimedOut, &message))
            }
        }
    }

    async fn acquire_permit(
        &self,
        permits: &Arc<Semaphore>,
    ) -> Result<OwnedSemaphorePermit, ToolError> {
        let permit = timeout(PERMIT_TIMEOUT, permits.clone().acquire_owned()).await;
        permit.ok().and_then(Result::ok).ok_or_else(|| {
            let message = format!("too many calls run; {} was not started", self.quoted_name());
            ToolError::from_code(ToolErrorCode::Overloaded, &message)
        })
    }

    /// Checks the arguments against the schema. An error names each field, but not its value: the
    /// model knows the value, and the value may be large.
    fn check_arguments(&self, arguments: &Value) -> Result<(), ToolError> {
        let mut reason = String::new();
        let mut errors = self.validator.iter_errors(arguments);
        for error in errors.by_ref().take(MAX_SCHEMA_ERRORS) {
            let separator = if reason.is_empty() { "" } else { "; " };
            let at = pointer_text(error.instance_path().as_str());
            let _ = write!(reason, "{separator}{at}: {}", error.masked());
        }
        if reason.is_empty() {
            return Ok(());
        }
        if errors.next().is_some() {
            reason.push_str("; and more");
        }
        Err(self.invalid_arguments(&reason))
    }

    fn invalid_arguments(&self, reason: &str) -> ToolError {
        let message = format!("the arguments do not fit {}: {reason}", self.quoted_name());
        ToolError::with_hint(
            ToolErrorCode::InvalidArguments,
            &message,
            "Call again with arguments that fit the tool's schema.",
        )
    }

    fn tool_error(&self, failure: ToolFailure) -> ToolError {
        match failure {
            ToolFailure::InvalidArguments { path, reason } => {
                self.invalid_arguments(&format!("at {path}: {reason}"))
            }
            ToolFailure::FunctionError(error) => ToolError::from_code(
                ToolErrorCode::ToolFailed,
                &format!("{} failed: {error}", self.quoted_name()),
            ),
            ToolFailure::InternalError(reason) => {
                tracing::error!(
                    tool = self.full_name(),
                    "internal error of a tool: {reason}"
                );
                self.internal_error("has an internal error")
            }
            ToolFailure::TooLarge => self.too_large_error(),
            ToolFailure::NotJson(reason) => {
                let message = format!("the result of {} is not JSON: {reason}", self.quoted_name());
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

    /// Returns the error of a panic. The panic message goes to the log of the program, not to the
    /// model.
    fn panic_error(&self, error: JoinError) -> ToolError {
        let Ok(panic) = error.try_into_panic() else {
            return self.aborted_error();
        };
        tracing::error!(
            tool = self.full_name(),
            "a tool panicked: {}",
            panic_message(&*panic)
        );
        self.internal_error("panicked")
    }

    fn internal_error(&self, predicate: &str) -> ToolError {
        let message = format!(
            "{} {predicate}; this is a bug in the tool",
            self.quoted_name()
        );
        ToolError::from_code(ToolErrorCode::ToolInternalError, &message)
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

    /// Returns one JSON object within [`MAX_RESULT_BYTES`].
    fn to_result(&self, outcome: Result<String, ToolError>, names: &ToolNames) -> ToolResult {
        let object = outcome.map(|json| {
            let is_object = !self.wraps_result && json.starts_with('{');
            if is_object {
                json
            } else {
                format!("{{\"result\":{json}}}")
            }
        });
        let object = object.and_then(|json| {
            if json.len() > MAX_RESULT_BYTES {
                Err(self.too_large_error())
            } else {
                Ok(json)
            }
        });
        let external_context = self.external_context;
        match object {
            Ok(json) => ToolResult {
                success: true,
                external_context,
                json,
            },
            Err(error) => {
                let result = ToolResult::from_outcome(Err::<&(), _>(&error), names);
                ToolResult {
                    external_context,
                    ..result
                }
            }
        }
    }
}

impl fmt::Debug for RegisteredTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RegisteredTool")
            .field(&self.full_name)
            .finish()
    }
}

fn check_name(name: &str) -> Result<(), ToolRegistryError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if (1..=MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(is_plain) {
        return Ok(());
    }
    Err(ToolRegistryError::InvalidName(truncate_with_ellipsis(
        name,
        2 * MAX_NAME_BYTES,
    )))
}

/// Compiles a schema. References to other documents are not fetched.
fn compile_schema(schema: &Value) -> Result<Validator, String> {
    check_json_bounds(schema, MAX_SCHEMA_BYTES)?;
    jsonschema::options()
        .offline()
        .build(schema)
        .map_err(|error| {
            let at = error.instance_path().as_str();
            let at = if at.is_empty() {
                String::new()
            } else {
                format!("at {at}: ")
            };
            format!("{at}{error}")
        })
}

/// Returns the position of an error, as a JSON Pointer.
fn pointer_text(pointer: &str) -> String {
    if pointer.is_empty() {
        "at the top".to_owned()
    } else {
        format!("at {pointer}")
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}
