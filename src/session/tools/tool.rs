//! One own tool while it is made: a typed asynchronous function, what is said of it, and how it may run.
//! Leaves whether all that is fine to `check`.

use super::super::result::MAX_RESULT_BYTES;
use super::bounds::{JsonWriteError, write_bounded_json};
use super::limits::DEFAULT_TIME_LIMIT;
use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A function that a model can call, for [`Tools::register`](super::Tools::register). It is checked there.
///
/// ```
/// # use caproot::session::{Tool, Tools};
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
/// let add = Tool::new("add", |Add { a, b }: Add| async move {
///     let sum = a.checked_add(b).ok_or("the sum is too large")?;
///     Ok::<_, &str>(Sum { sum })
/// });
/// Tools::new().register(add.in_namespace("calculator"))?;
/// # Ok::<(), caproot::session::ToolsError>(())
/// ```
pub struct CustomTool {
    pub(super) namespace: Option<String>,
    pub(super) name: String,
    /// As given; else the input type's own is taken.
    pub(super) description: Option<String>,
    pub(super) input: ToolSchema,
    pub(super) output: ToolSchema,
    pub(super) output_description: Option<String>,
    pub(super) time_limit: Duration,
    pub(super) external_context: bool,
    pub(super) handler: ToolHandler,
}

/// A JSON Schema, and whose.
pub(super) enum ToolSchema {
    /// Made from the type, of which this is the doc.
    Derived { schema: Value, doc: Option<String> },
    /// In place of the type's, whole.
    Explicit(Value),
}

/// The function, from JSON to JSON of at most [`MAX_RESULT_BYTES`].
pub(super) type ToolHandler =
    Arc<dyn Fn(Value) -> BoxFuture<'static, Result<String, ToolFailure>> + Send + Sync>;

/// Why a function gave nothing.
#[derive(Debug)]
pub(super) enum ToolFailure {
    /// Its input type cannot be read from the arguments.
    InvalidArguments { path: String, why: String },
    /// It said so.
    FunctionError(String),
    /// What it gave is over the bound.
    TooLarge,
    /// What it gave is no JSON.
    NotJson(String),
}

impl CustomTool {
    /// A tool that is this function. The JSON Schema of what it takes is made from the type of its input,
    /// which is a struct; the doc comment of that type is the tool's description. What its error displays
    /// as goes to the model.
    pub fn new<F, Running, Input, Output, E>(name: &str, function: F) -> Self
    where
        F: Fn(Input) -> Running + Send + Sync + 'static,
        Running: Future<Output = Result<Output, E>> + Send + 'static,
        Input: DeserializeOwned + JsonSchema,
        Output: Serialize + JsonSchema,
        E: fmt::Display,
    {
        let function = Arc::new(function);
        // All in the future, so that whoever runs it catches what panics in it.
        let handler = move |arguments: Value| -> BoxFuture<'static, _> {
            let function = function.clone();
            Box::pin(async move {
                let running = function(read_input::<Input>(arguments)?);
                let given = running
                    .await
                    .map_err(|error| ToolFailure::FunctionError(format!("{error:#}")))?;
                write_bounded_json(&given, MAX_RESULT_BYTES).map_err(|error| match error {
                    JsonWriteError::TooLarge => ToolFailure::TooLarge,
                    JsonWriteError::NotJson(why) => ToolFailure::NotJson(why),
                })
            })
        };
        let settings = SchemaSettings::draft2020_12();
        Self {
            namespace: None,
            name: name.to_owned(),
            description: None,
            input: ToolSchema::derive_for::<Input>(settings.clone().for_deserialize()),
            output: ToolSchema::derive_for::<Output>(settings.for_serialize()),
            output_description: None,
            time_limit: DEFAULT_TIME_LIMIT,
            external_context: false,
            handler: Arc::new(handler),
        }
    }

    /// In a namespace: a model then calls it by `namespace.name`. Not `skills`.
    #[must_use]
    pub fn in_namespace(self, namespace: &str) -> Self {
        Self { namespace: Some(namespace.to_owned()), ..self }
    }

    /// What it does, for the model, in place of the doc of its input's type.
    #[must_use]
    pub fn description(self, description: &str) -> Self {
        Self { description: Some(description.to_owned()), ..self }
    }

    /// The JSON Schema of its arguments, whole, in place of the one of the type: nothing of the latter is
    /// taken, nor is its doc. The function's input must still be readable from what fits the schema; a
    /// [`Value`] always is.
    #[must_use]
    pub fn input_schema(self, schema: Value) -> Self {
        Self { input: ToolSchema::Explicit(schema), ..self }
    }

    /// The JSON Schema of what it gives, whole, in place of the one of the type. It is told to the model,
    /// and nothing is held against it.
    #[must_use]
    pub fn output_schema(self, schema: Value) -> Self {
        Self { output: ToolSchema::Explicit(schema), ..self }
    }

    /// What it gives, for the model, in place of the doc of its output's type.
    #[must_use]
    pub fn output_description(self, description: &str) -> Self {
        Self { output_description: Some(description.to_owned()), ..self }
    }

    /// How long a call may take, in place of [`TIME_LIMIT`]; at most a day. Then the function is
    /// dropped where it waits.
    #[must_use]
    pub fn time_limit(self, limit: Duration) -> Self {
        Self { time_limit: limit, ..self }
    }

    /// Whether strangers wrote what it gives, as of a search of the web; by default not. A model should
    /// then take nothing in it for an instruction.
    #[must_use]
    pub fn external_context(self, is_external: bool) -> Self {
        Self { external_context: is_external, ..self }
    }
}

impl fmt::Debug for CustomTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { namespace, name, .. } = self;
        f.debug_struct("Tool").field("namespace", namespace).field("name", name).finish()
    }
}

impl ToolSchema {
    /// A type's. Without references where it can be, since not every platform follows those; and without
    /// the type's name, which a model has no use for.
    fn derive_for<T: JsonSchema>(mut settings: SchemaSettings) -> Self {
        settings.meta_schema = None;
        settings.inline_subschemas = true;
        let mut schema = settings.into_generator().into_root_schema_for::<T>();
        schema.remove("title");
        let doc = schema.remove("description").and_then(|doc| Some(doc.as_str()?.to_owned()));
        Self::Derived { schema: schema.to_value(), doc }
    }
}

fn read_input<Input: DeserializeOwned>(arguments: Value) -> Result<Input, ToolFailure> {
    serde_path_to_error::deserialize(arguments).map_err(|error| ToolFailure::InvalidArguments {
        path: error.path().to_string(),
        why: error.inner().to_string(),
    })
}
