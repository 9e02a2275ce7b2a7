//! Whether a tool is one that a model can be given: its name, what is said of it, its schemas, its time.
//! What comes out can be called.

use super::super::text::{single_line, truncate_with_ellipsis};
use super::super::{ToolNameError, ToolNames};
use super::ToolRegistryError;
use super::bounds::check_json_bounds;
use super::limits::{MAX_DESCRIPTION_BYTES, MAX_NAME_BYTES, MAX_SCHEMA_BYTES, MAX_TIME_LIMIT};
use super::results::ResultText;
use super::tool::{CustomTool, ToolHandler, ToolSchema};
use jsonschema::Validator;
use serde_json::{Map, Value, json};
use std::fmt;
use std::time::Duration;

/// The most bytes of what is repeated of an author's mistake.
const MAX_REASON_BYTES: usize = 512;

/// A tool that can be called.
#[derive(Clone)]
pub(super) struct RegisteredTool {
    full_name: String,
    namespace: Option<String>,
    name: String,
    description: String,
    schema: Value,
    /// Of the same schema.
    pub(super) validator: Validator,
    /// What a model is told of its results, if anything.
    pub(super) result_text: Option<ResultText>,
    /// Whether what it gives is put into the field `result` of an object, whatever it is.
    pub(super) wraps_result: bool,
    pub(super) time_limit: Duration,
    pub(super) external_context: bool,
    pub(super) handler: ToolHandler,
}

impl RegisteredTool {
    /// What a model calls it by.
    pub(super) fn full_name(&self) -> &str {
        &self.full_name
    }

    /// Returns a copy of the tool with a name that has no namespace.
    pub(super) fn with_flat_name(&self, names: &ToolNames) -> Result<Self, ToolNameError> {
        let name = names.flat_name(self.namespace.as_deref(), &self.name)?;
        let told = self.result_text.clone().map(|told| told.with_name(&name));
        Ok(Self {
            full_name: name.clone(),
            namespace: None,
            name,
            result_text: told,
            ..self.clone()
        })
    }

    /// As a platform registers it. What it gives is no part of this.
    pub(super) fn to_payload(&self) -> Value {
        let mut payload = Map::new();
        if let Some(namespace) = &self.namespace {
            payload.insert("namespace".to_owned(), json!(namespace));
        }
        payload.insert("name".to_owned(), json!(self.name));
        payload.insert("description".to_owned(), json!(self.description));
        payload.insert("inputSchema".to_owned(), self.schema.clone());
        Value::Object(payload)
    }
}

impl fmt::Debug for RegisteredTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Registered").field(&self.full_name).finish()
    }
}

/// The tool, or the first thing that is wrong with it.
pub(super) fn check_tool(tool: CustomTool) -> Result<RegisteredTool, ToolRegistryError> {
    let CustomTool {
        namespace, name, input, output, time_limit, external_context, handler, ..
    } = tool;
    check_name(&name)?;
    if let Some(namespace) = &namespace {
        check_name(namespace)?;
        // Also as others may spell it, so that a model cannot take one for the other.
        if namespace.eq_ignore_ascii_case("skills") {
            return Err(ToolRegistryError::Reserved(name));
        }
    }
    let full_name = namespace.as_ref().map_or(name.clone(), |space| format!("{space}.{name}"));
    let wrong = |part, why: String| ToolRegistryError::InvalidPart {
        tool: full_name.clone(),
        part,
        why: truncate_with_ellipsis(&single_line(&why), MAX_REASON_BYTES),
    };

    let (schema, doc) = input.into_parts();
    let validator = compile_schema(&schema).map_err(|why| wrong("the schema of the input", why))?;
    if schema["type"] != "object" {
        let why =
            "its root has not `\"type\": \"object\"`: the input is a struct, or give a schema";
        return Err(wrong("the schema of the input", why.to_owned()));
    }
    let described = |text: Option<String>| {
        let text = text.filter(|text| !text.trim().is_empty());
        let is_long = text.as_ref().is_some_and(|text| text.len() > MAX_DESCRIPTION_BYTES);
        if is_long { Err(format!("it is over {MAX_DESCRIPTION_BYTES} bytes")) } else { Ok(text) }
    };
    let description = described(tool.description.or(doc)).and_then(|text| {
        let why = "there is none: give one, or write a doc comment at the type of the input";
        text.ok_or_else(|| why.to_owned())
    });
    let description = description.map_err(|why| wrong("the description", why))?;

    let (output, doc) = output.into_parts();
    compile_schema(&output).map_err(|why| wrong("the schema of the output", why))?;
    let output_description = described(tool.output_description.or(doc));
    let output_description =
        output_description.map_err(|why| wrong("the description of the output", why))?;
    let is_any = output.as_object().is_none_or(Map::is_empty);
    let wraps = !is_any && output["type"] != "object";
    let told =
        ResultText::describe(&full_name, output_description, (!is_any).then_some(&output), wraps);

    if time_limit.is_zero() || time_limit > MAX_TIME_LIMIT {
        return Err(wrong("the time limit", "it is more than nothing, and at most a day".into()));
    }
    Ok(RegisteredTool {
        full_name,
        namespace,
        name,
        description,
        schema,
        validator,
        result_text: told,
        wraps_result: wraps,
        time_limit,
        external_context,
        handler,
    })
}

impl ToolSchema {
    /// Itself, and the doc of the type that it is of.
    fn into_parts(self) -> (Value, Option<String>) {
        match self {
            Self::Derived { schema, doc } => (schema, doc),
            Self::Explicit(schema) => (schema, None),
        }
    }
}

fn check_name(name: &str) -> Result<(), ToolRegistryError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if (1..=MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(is_plain) {
        return Ok(());
    }
    Err(ToolRegistryError::InvalidName(truncate_with_ellipsis(name, 2 * MAX_NAME_BYTES)))
}

/// What holds values against a schema. Nothing that a schema refers to is fetched.
fn compile_schema(schema: &Value) -> Result<Validator, String> {
    check_json_bounds(schema, MAX_SCHEMA_BYTES)?;
    jsonschema::options().offline().build(schema).map_err(|error| {
        let at = error.instance_path().as_str();
        let at = if at.is_empty() { String::new() } else { format!("at {at}: ") };
        format!("{at}{error}")
    })
}
