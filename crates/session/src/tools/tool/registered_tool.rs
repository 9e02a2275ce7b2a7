//! Registered tool: the checks of a custom tool at registration, and its calls.

use super::{CustomTool, ToolFailure, ToolHandler, ToolOutput};
use crate::skills::result::{ResultForm, ToolError, ToolErrorCode, ToolResult};
use crate::skills::tool_names::{ToolNameError, ToolNames, check_tool_name};
use crate::tools::bounds::check_json_bounds;
use crate::tools::limits::{
    MAX_ARGUMENT_BYTES, MAX_DESCRIPTION_BYTES, MAX_NAME_BYTES, MAX_SCHEMA_BYTES, MAX_TIME_LIMIT,
    PERMIT_TIMEOUT,
};
use crate::tools::results::ResultText;
use crate::tools::{ToolCaller, ToolRegistryError};
use caproot_core::text::{single_line, truncate_with_ellipsis};
use jsonschema::Validator;
use serde_json::{Map, Value, json};
use std::any::Any;
use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinError;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument as _;

/// Limit of a repeated error in the definition of a tool, in bytes.
const MAX_REASON_BYTES: usize = 512;
/// Schema errors in one error message about arguments.
const MAX_SCHEMA_ERRORS: usize = 4;
/// Name of a part in errors.
const INPUT_SCHEMA: &str = "the schema of the input";

/// Tool that passed all checks and can be called.
#[derive(Clone)]
pub(crate) struct RegisteredTool {
    full_name: String,
    /// Full name in the other spelling; `None` without a namespace.
    pub(in crate::tools) other_name: Option<String>,
    namespace: Option<String>,
    name: String,
    description: String,
    schema: Value,
    /// Compiled `schema`; `None` if arguments are not checked.
    validator: Option<Validator>,
    /// Description of the results for a model.
    pub(in crate::tools) result_text: Option<ResultText>,
    /// Whether every output is put into the field `result` of an object.
    wraps_result: bool,
    time_limit: Duration,
    external_context: bool,
    handler: ToolHandler,
}

/// Part of a tool that fails its check.
struct InvalidToolPart {
    part: &'static str,
    reason: String,
}

impl InvalidToolPart {
    fn new(part: &'static str, reason: impl Into<String>) -> Self {
        Self {
            part,
            reason: reason.into(),
        }
    }
}

impl RegisteredTool {
    /// Checks a tool. Returns the first error.
    pub(crate) fn new(tool: CustomTool) -> Result<Self, ToolRegistryError> {
        check_name(&tool.name)?;
        if let Some(namespace) = &tool.namespace {
            check_name(namespace)?;
        }
        let full_name = ToolNames::Namespaced.join(tool.namespace.as_deref(), &tool.name);
        // Also in another case, so that a model cannot confuse the two.
        let lower = full_name.to_ascii_lowercase();
        if lower.starts_with("skills.") || lower.starts_with("skills_") {
            return Err(ToolRegistryError::Reserved(full_name));
        }

        Self::check_parts(tool, &full_name).map_err(|invalid| ToolRegistryError::InvalidPart {
            tool: full_name,
            part: invalid.part,
            reason: truncate_with_ellipsis(&single_line(&invalid.reason), MAX_REASON_BYTES),
        })
    }

    /// Checks the schemas, the descriptions and the time limit of a tool.
    fn check_parts(tool: CustomTool, full_name: &str) -> Result<Self, InvalidToolPart> {
        let schema = tool.input.schema;
        let validator = if tool.checks_arguments {
            Some(compile_schema(INPUT_SCHEMA, &schema)?)
        } else {
            check_schema_bounds(INPUT_SCHEMA, &schema)?;
            None
        };
        if schema["type"] != "object" {
            let reason = "its root has no `\"type\": \"object\"`; use a struct as the input, or set a schema";
            return Err(InvalidToolPart::new(INPUT_SCHEMA, reason));
        }

        let part = "the description";
        let own_description = tool.description.as_deref().or(tool.input.doc.as_deref());
        let description = check_description(part, own_description)?.ok_or_else(|| {
            let reason = "it is missing; set one, or write a doc comment on the type of the input";
            InvalidToolPart::new(part, reason)
        })?;

        let output = &tool.output.schema;
        // The compiled schema is not used: a model only reads the schema in the text of the result.
        compile_schema("the schema of the output", output)?;
        let own_description = tool
            .output_description
            .as_deref()
            .or(tool.output.doc.as_deref());
        let output_description =
            check_description("the description of the output", own_description)?;

        let is_any = output.as_object().is_none_or(Map::is_empty);
        let wraps_result = !is_any && output["type"] != "object";
        let result_text = ResultText::describe(
            full_name,
            output_description,
            (!is_any).then_some(output),
            wraps_result,
        );

        if tool.time_limit.is_zero() || tool.time_limit > MAX_TIME_LIMIT {
            let reason = "expected more than zero and at most a day";
            return Err(InvalidToolPart::new("the time limit", reason));
        }
        let other_name = tool
            .namespace
            .as_deref()
            .map(|namespace| ToolNames::Flat.join(Some(namespace), &tool.name));
        Ok(Self {
            full_name: full_name.to_owned(),
            other_name,
            namespace: tool.namespace,
            name: tool.name,
            description,
            schema,
            validator,
            result_text,
            wraps_result,
            time_limit: tool.time_limit,
            external_context: tool.external_context,
            handler: tool.handler,
        })
    }

    /// Returns the name by which a model calls the tool.
    pub(crate) fn full_name(&self) -> &str {
        &self.full_name
    }

    /// Returns a copy of the tool with a name that has no namespace.
    pub(crate) fn with_flat_name(&self) -> Result<Self, ToolNameError> {
        let flat = ToolNames::Flat.join(self.namespace.as_deref(), &self.name);
        let name = check_tool_name(flat)?;
        let other_name = self.namespace.is_some().then(|| self.full_name.clone());
        let mut result_text = self.result_text.clone();
        if let Some(text) = &mut result_text {
            text.name.clone_from(&name);
        }
        Ok(Self {
            full_name: name.clone(),
            other_name,
            namespace: None,
            name,
            result_text,
            ..self.clone()
        })
    }

    /// Returns the tool as a platform registers it. Platforms take no schema of the output.
    pub(crate) fn to_payload(&self) -> Value {
        let mut payload = json!({
            "name": self.name,
            "description": self.description,
            "inputSchema": self.schema,
        });
        if let Some(namespace) = &self.namespace {
            payload["namespace"] = json!(namespace);
        }
        payload
    }

    /// Calls the tool. The function runs on a task of its own, which ends with this future. A
    /// permit limits the concurrent calls.
    pub(in crate::tools) async fn call(
        self: &Arc<Self>,
        arguments: &Value,
        permits: &Arc<Semaphore>,
        form: ResultForm,
    ) -> ToolResult {
        let max_bytes = form.max_bytes;
        let outcome = self.run(arguments, permits, max_bytes).await;
        let result = match outcome.and_then(|output| self.to_object(output, max_bytes)) {
            Ok(ToolOutput { json, images }) => ToolResult {
                success: true,
                external_context: true,
                json,
                images,
            },
            Err(error) => ToolResult::from_outcome(Err::<&(), _>(&error), form),
        };
        ToolResult {
            external_context: self.external_context,
            ..result
        }
    }

    async fn run(
        self: &Arc<Self>,
        arguments: &Value,
        permits: &Arc<Semaphore>,
        max_bytes: usize,
    ) -> Result<ToolOutput, ToolError> {
        check_json_bounds(arguments, MAX_ARGUMENT_BYTES)
            .map_err(|reason| self.invalid_arguments(&reason))?;
        let permit = timeout(PERMIT_TIMEOUT, permits.clone().acquire_owned()).await;
        let permit = permit.ok().and_then(Result::ok).ok_or_else(|| {
            let message = format!("too many calls run; {self} was not started");
            ToolError::from_code(ToolErrorCode::Overloaded, &message)
        })?;

        let tool = self.clone();
        let arguments = arguments.clone();
        let work = async move {
            // The permit is held until the function ends, which may be after the time limit if the
            // function blocks its thread.
            let _permit = permit;
            tool.check_arguments(&arguments)?;
            let outcome = (tool.handler)(arguments).await;
            outcome.map_err(|failure| tool.tool_error(failure, max_bytes))
        };
        // The spans and events of the function belong to the span of the invocation.
        let work = work.in_current_span();
        let task = match ToolCaller::current() {
            Some(caller) => tokio::spawn(caller.run(work)),
            None => tokio::spawn(work),
        };
        match timeout(self.time_limit, AbortOnDropHandle::new(task)).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(error)) => Err(self.panic_error(error)),
            Err(_) => {
                let limit = humantime::format_duration(self.time_limit);
                let message = format!("{self} did not end within {limit}");
                Err(ToolError::from_code(ToolErrorCode::ToolTimedOut, &message))
            }
        }
    }

    /// Checks the arguments against the schema. An error names each field, but not its value: the
    /// model knows the value, and the value may be large.
    fn check_arguments(&self, arguments: &Value) -> Result<(), ToolError> {
        let Some(validator) = &self.validator else {
            return Ok(());
        };

        let mut reason = String::new();
        let mut errors = validator.iter_errors(arguments);
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
        let message = format!("the arguments do not fit {self}: {reason}");
        ToolError::with_hint(
            ToolErrorCode::InvalidArguments,
            &message,
            "Call again with arguments that fit the tool's schema.",
        )
    }

    fn tool_error(&self, failure: ToolFailure, max_bytes: usize) -> ToolError {
        match failure {
            ToolFailure::InvalidArguments { path, reason } => {
                self.invalid_arguments(&format!("at {path}: {reason}"))
            }
            ToolFailure::FunctionError(error) => failed_error(&format!("{self} failed: {error}")),
            ToolFailure::InternalError(reason) => {
                let tool = self.full_name();
                tracing::error!(tool, "internal error of a tool: {reason}");
                self.internal_error("has an internal error")
            }
            ToolFailure::TooLarge => self.too_large_error(max_bytes),
            ToolFailure::NotJson(reason) => {
                failed_error(&format!("the result of {self} is not JSON: {reason}"))
            }
        }
    }

    fn too_large_error(&self, max_bytes: usize) -> ToolError {
        let message = format!("the result of {self} is over {max_bytes} bytes of JSON");
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
            return failed_error(&format!("{self} was stopped"));
        };
        tracing::error!(
            tool = self.full_name(),
            "a tool panicked: {}",
            panic_message(&*panic)
        );
        self.internal_error("panicked")
    }

    fn internal_error(&self, predicate: &str) -> ToolError {
        let message = format!("{self} {predicate}; this is a bug in the tool");
        ToolError::from_code(ToolErrorCode::ToolInternalError, &message)
    }

    /// Returns an output as an object.
    fn to_object(&self, mut output: ToolOutput, max_bytes: usize) -> Result<ToolOutput, ToolError> {
        if self.wraps_result || !output.json.starts_with('{') {
            output.json = format!("{{\"result\":{}}}", output.json);
        }
        if output.json.len() > max_bytes {
            Err(self.too_large_error(max_bytes))
        } else {
            Ok(output)
        }
    }
}

/// Phrase for the tool.
impl fmt::Display for RegisteredTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the tool {:?}", self.full_name)
    }
}

impl fmt::Debug for RegisteredTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RegisteredTool")
            .field(&self.full_name)
            .finish()
    }
}

fn failed_error(message: &str) -> ToolError {
    ToolError::from_code(ToolErrorCode::ToolFailed, message)
}

fn check_name(name: &str) -> Result<(), ToolRegistryError> {
    check_tool_name(name.to_owned()).map(drop).map_err(|_| {
        let shown = truncate_with_ellipsis(name, 2 * MAX_NAME_BYTES);
        ToolRegistryError::InvalidName(shown)
    })
}

/// Returns a description, `None` if it is empty, or an error if it is too long.
fn check_description(
    part: &'static str,
    text: Option<&str>,
) -> Result<Option<String>, InvalidToolPart> {
    match text.filter(|text| !text.trim().is_empty()) {
        Some(text) if text.len() > MAX_DESCRIPTION_BYTES => {
            let reason = format!("it is over {MAX_DESCRIPTION_BYTES} bytes");
            Err(InvalidToolPart::new(part, reason))
        }
        text => Ok(text.map(str::to_owned)),
    }
}

fn check_schema_bounds(part: &'static str, schema: &Value) -> Result<(), InvalidToolPart> {
    check_json_bounds(schema, MAX_SCHEMA_BYTES).map_err(|reason| InvalidToolPart::new(part, reason))
}

/// Compiles a schema. References to other documents are not fetched.
fn compile_schema(part: &'static str, schema: &Value) -> Result<Validator, InvalidToolPart> {
    check_schema_bounds(part, schema)?;
    jsonschema::options()
        .offline()
        .build(schema)
        .map_err(|error| {
            let pointer = error.instance_path().as_str();
            let reason = if pointer.is_empty() {
                error.to_string()
            } else {
                format!("at {pointer}: {error}")
            };
            InvalidToolPart::new(part, reason)
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
