//! Definition of a custom tool: a typed asynchronous function with a description and limits.

mod registered_tool;

pub(crate) use registered_tool::RegisteredTool;

use super::bounds::write_bounded_json;
use super::limits::DEFAULT_TIME_LIMIT;
use crate::skills::result::{MAX_RESULT_BYTES, ResultImage};
use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Function that a model can call, for [`ToolRegistry::register`](super::ToolRegistry::register).
/// Registration checks the tool.
///
/// ```
/// # use caproot_session::{CustomTool, ToolRegistry};
/// # use schemars::JsonSchema;
/// # use serde::{Deserialize, Serialize};
/// /// Adds two numbers.
/// #[derive(Deserialize, JsonSchema)]
/// #[serde(deny_unknown_fields)]
/// struct Add {
///     a: i64,
///     b: i64,
/// }
///
/// #[derive(Serialize, JsonSchema)]
/// struct Sum {
///     sum: i64,
/// }
///
/// let add = CustomTool::new("add", |Add { a, b }: Add| async move {
///     let sum = a.checked_add(b).ok_or("the sum is too large")?;
///     Ok::<_, &str>(Sum { sum })
/// });
/// ToolRegistry::new().register(add.in_namespace("calculator"))?;
/// # Ok::<(), caproot_session::ToolRegistryError>(())
/// ```
pub struct CustomTool {
    namespace: Option<String>,
    name: String,
    /// Description of the program; without it, the doc comment of the input type is used.
    description: Option<String>,
    input: ToolSchema,
    output: ToolSchema,
    output_description: Option<String>,
    time_limit: Duration,
    external_context: bool,
    /// Whether arguments are checked against the schema before a call.
    checks_arguments: bool,
    handler: ToolHandler,
}

/// JSON Schema of a tool: that of a type, or a schema of the program.
struct ToolSchema {
    schema: Value,
    /// Doc comment of the type.
    doc: Option<String>,
}

/// Function from JSON to JSON of at most [`MAX_RESULT_BYTES`] bytes.
pub(crate) type ToolHandler =
    Arc<dyn Fn(Value) -> BoxFuture<'static, Result<ToolOutput, ToolFailure>> + Send + Sync>;

/// Output of a tool.
#[derive(Debug)]
pub(crate) struct ToolOutput {
    /// JSON of at most [`MAX_RESULT_BYTES`].
    pub json: String,
    pub images: Vec<ResultImage>,
}

/// Error of a function that [`CustomTool::from_schema`] makes a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolFunctionError {
    /// The call failed. The model gets the text.
    Failed(String),
    /// The function has a bug. The log gets the text; the model only learns that the tool has a
    /// bug.
    Internal(String),
}

/// Error of a call of a tool.
#[derive(Debug)]
pub(crate) enum ToolFailure {
    /// The arguments cannot be read as the input type.
    InvalidArguments { path: String, reason: String },
    /// The function returned an error.
    FunctionError(String),
    /// The function reported a bug.
    InternalError(String),
    /// The output exceeds the limit.
    TooLarge,
    /// JSON cannot represent the output.
    NotJson(String),
}

impl From<serde_json::Error> for ToolFailure {
    fn from(error: serde_json::Error) -> Self {
        if error.is_io() {
            Self::TooLarge
        } else {
            Self::NotJson(error.to_string())
        }
    }
}

impl CustomTool {
    /// Returns a tool that calls a function. The JSON Schema of the arguments is derived from the
    /// input type, which is a struct. The doc comment of the input type is the description of the
    /// tool. The model gets the displayed error of the function.
    pub fn new<F, Running, Input, Output, E>(name: &str, function: F) -> Self
    where
        F: Fn(Input) -> Running + Send + Sync + 'static,
        Running: Future<Output = Result<Output, E>> + Send + 'static,
        Input: DeserializeOwned + JsonSchema,
        Output: Serialize + JsonSchema,
        E: fmt::Display,
    {
        let settings = SchemaSettings::draft2020_12();
        let input = ToolSchema::derive_for::<Input>(settings.clone().for_deserialize());
        let output = ToolSchema::derive_for::<Output>(settings.for_serialize());

        let function = Arc::new(function);
        let handler: ToolHandler = Arc::new(move |arguments| {
            let function = function.clone();
            // All steps are in the future, so that a panic of any step is caught.
            Box::pin(async move {
                let input = serde_path_to_error::deserialize(arguments);
                let input = input.map_err(|error| ToolFailure::InvalidArguments {
                    path: error.path().to_string(),
                    reason: error.inner().to_string(),
                })?;
                match function(input).await {
                    Ok(output) => write_output(&output),
                    Err(error) => Err(ToolFailure::FunctionError(format!("{error:#}"))),
                }
            })
        });
        Self::from_parts(name, input, output, handler)
    }

    /// Returns a tool that is made of data: a name, a description, a JSON Schema of the arguments,
    /// and a function from JSON to JSON. For programs whose tools are known only at run time, such
    /// as a binding for another language.
    ///
    /// ```
    /// use caproot_session::{CustomTool, ToolFunctionError, ToolRegistry};
    /// use serde_json::{Value, json};
    ///
    /// let schema = json!({"type": "object", "properties": {"path": {"type": "string"}},
    ///     "required": ["path"], "additionalProperties": false});
    /// let tool = CustomTool::from_schema("size", "Returns the size of a file.", schema, |arguments| async move {
    ///     let path = arguments["path"].as_str().unwrap_or_default();
    ///     match std::fs::metadata(path) {
    ///         Ok(file) => Ok(json!({"bytes": file.len()})),
    ///         // The model gets the text of `Failed`, and not the text of `Internal`.
    ///         Err(error) => Err(ToolFunctionError::Failed(format!("{path}: {error}"))),
    ///     }
    /// });
    /// ToolRegistry::new().register(tool)?;
    /// # Ok::<(), caproot_session::ToolRegistryError>(())
    /// ```
    pub fn from_schema<F, Running>(
        name: &str,
        description: &str,
        input_schema: Value,
        function: F,
    ) -> Self
    where
        F: Fn(Value) -> Running + Send + Sync + 'static,
        Running: Future<Output = Result<Value, ToolFunctionError>> + Send + 'static,
    {
        let function = Arc::new(function);
        let handler: ToolHandler = Arc::new(move |arguments| {
            let function = function.clone();
            Box::pin(async move {
                match function(arguments).await {
                    Ok(output) => write_output(&output),
                    Err(ToolFunctionError::Failed(reason)) => {
                        Err(ToolFailure::FunctionError(reason))
                    }
                    Err(ToolFunctionError::Internal(reason)) => {
                        Err(ToolFailure::InternalError(reason))
                    }
                }
            })
        });

        let input = ToolSchema::explicit(input_schema);
        Self::from_parts(name, input, ToolSchema::any(), handler).description(description)
    }

    /// Returns a tool of a third party's server. The schema is never compiled, since a hostile schema
    /// could take the time or the stack of this process: the server checks the arguments.
    #[cfg(feature = "mcp")]
    pub(crate) fn of_server(name: &str, schema: Value, handler: ToolHandler) -> Self {
        let input = ToolSchema::explicit(schema);
        Self {
            external_context: true,
            checks_arguments: false,
            ..Self::from_parts(name, input, ToolSchema::any(), handler)
        }
    }

    /// Returns a tool without a namespace and descriptions.
    fn from_parts(name: &str, input: ToolSchema, output: ToolSchema, handler: ToolHandler) -> Self {
        Self {
            namespace: None,
            name: name.to_owned(),
            description: None,
            input,
            output,
            output_description: None,
            time_limit: DEFAULT_TIME_LIMIT,
            external_context: false,
            checks_arguments: true,
            handler,
        }
    }

    /// Sets the namespace: a model calls the tool by `namespace.name`. `skills` is reserved.
    #[must_use]
    pub fn in_namespace(self, namespace: &str) -> Self {
        Self {
            namespace: Some(namespace.to_owned()),
            ..self
        }
    }

    /// Sets the description for the model, in place of the doc comment of the input type.
    #[must_use]
    pub fn description(self, description: &str) -> Self {
        Self {
            description: Some(description.to_owned()),
            ..self
        }
    }

    /// Sets the JSON Schema of the arguments, in place of the schema and the doc comment of the
    /// input type. All arguments that fit the schema must be readable as the input type; a
    /// [`Value`] always is.
    #[must_use]
    pub fn input_schema(self, schema: Value) -> Self {
        Self {
            input: ToolSchema::explicit(schema),
            ..self
        }
    }

    /// Sets the JSON Schema of the output, in place of the schema of the output type. The model
    /// reads the schema; outputs are not checked.
    #[must_use]
    pub fn output_schema(self, schema: Value) -> Self {
        Self {
            output: ToolSchema::explicit(schema),
            ..self
        }
    }

    /// Sets the description of the output for the model, in place of the doc comment of the output
    /// type.
    #[must_use]
    pub fn output_description(self, description: &str) -> Self {
        Self {
            output_description: Some(description.to_owned()),
            ..self
        }
    }

    /// Sets the time limit of a call; at most a day, 1 min by default. A function that exceeds the
    /// limit is dropped at its next await.
    #[must_use]
    pub fn time_limit(self, limit: Duration) -> Self {
        Self {
            time_limit: limit,
            ..self
        }
    }

    /// Sets whether third parties wrote the output, such as the results of a web search; false by
    /// default. A model should follow no instruction in such an output.
    #[must_use]
    pub fn external_context(self, is_external: bool) -> Self {
        Self {
            external_context: is_external,
            ..self
        }
    }
}

impl fmt::Debug for CustomTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            namespace, name, ..
        } = self;
        f.debug_struct("Tool")
            .field("namespace", namespace)
            .field("name", name)
            .finish()
    }
}

impl ToolSchema {
    /// Returns a schema of the program, which replaces the schema of the type.
    fn explicit(schema: Value) -> Self {
        Self { schema, doc: None }
    }

    /// Returns the schema of an output that nothing describes.
    fn any() -> Self {
        Self::explicit(Value::Object(Map::new()))
    }

    /// Derives the schema of a type. References are inlined if possible, as not every platform
    /// supports them. The title is removed, as a model does not need the name of the type.
    fn derive_for<T: JsonSchema>(mut settings: SchemaSettings) -> Self {
        settings.meta_schema = None;
        settings.inline_subschemas = true;

        let mut schema = settings.into_generator().into_root_schema_for::<T>();
        schema.remove("title");
        let doc = schema
            .remove("description")
            .and_then(|doc| Some(doc.as_str()?.to_owned()));
        Self {
            schema: schema.to_value(),
            doc,
        }
    }
}

fn write_output(output: &impl Serialize) -> Result<ToolOutput, ToolFailure> {
    let json = write_bounded_json(output, MAX_RESULT_BYTES)?;
    Ok(ToolOutput {
        json,
        images: Vec::new(),
    })
}
