//! Own tools: Python functions in a registry of the client package.

use crate::callback::CallbackTarget;
use crate::failure::Failure;
use crate::origin::CallOrigin;
use crate::process_bound::ProcessBound;
use caproot_client::session::{self, CustomTool, ToolFunctionError};
use pyo3::prelude::*;
use serde::Deserialize;
use serde_json::Value;
use std::time::Duration;

/// Registry of own tools.
#[pyclass(frozen)]
pub struct ToolRegistry {
    inner: ProcessBound<session::ToolRegistry>,
}

/// Definition of a tool.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolSpec {
    namespace: Option<String>,
    name: String,
    description: String,
    input_schema: Value,
    output_schema: Option<Value>,
    output_description: Option<String>,
    /// Seconds.
    time_limit: f64,
    external: bool,
}

impl ToolRegistry {
    /// Returns a handle of the registry.
    pub fn handle(&self) -> Result<session::ToolRegistry, Failure> {
        self.inner.get().cloned()
    }
}

#[pymethods]
impl ToolRegistry {
    #[new]
    fn new() -> Self {
        Self {
            inner: ProcessBound::new(session::ToolRegistry::new()),
        }
    }

    /// Registers a tool by its definition, a JSON text. A call goes to the handler with this number.
    fn register(&self, spec: &str, handler: u64) -> PyResult<()> {
        let spec: ToolSpec = serde_json::from_str(spec)
            .map_err(|error| Failure::config(vec![format!("invalid tool: {error}")]))?;
        let registered = self.inner.get()?.register(spec.into_tool(handler)?);
        registered.map_err(Failure::from)?;
        Ok(())
    }

    /// Removes a tool by its name.
    fn unregister(&self, name: &str) -> PyResult<()> {
        let removed = self.inner.get()?.unregister(name);
        removed.map_err(Failure::from)?;
        Ok(())
    }

    /// Returns the names of the tools.
    fn names(&self) -> PyResult<Vec<String>> {
        Ok(self.inner.get()?.names())
    }

    /// Returns whether a session began with the registry.
    fn is_sealed(&self) -> PyResult<bool> {
        Ok(self.inner.get()?.is_sealed())
    }

    /// Returns whether this process created the registry.
    fn is_own(&self) -> bool {
        self.inner.is_own()
    }
}

impl ToolSpec {
    fn into_tool(self, handler: u64) -> Result<CustomTool, Failure> {
        let time_limit = Duration::try_from_secs_f64(self.time_limit).map_err(|error| {
            let name = &self.name;
            Failure::config(vec![format!(
                "the time limit of the tool {name:?} is invalid: {error}"
            )])
        })?;
        let mut tool = CustomTool::from_schema(
            &self.name,
            &self.description,
            self.input_schema,
            move |arguments| call_function(handler, arguments),
        )
        .time_limit(time_limit)
        .external_context(self.external);

        if let Some(namespace) = &self.namespace {
            tool = tool.in_namespace(namespace);
        }
        if let Some(schema) = self.output_schema {
            tool = tool.output_schema(schema);
        }
        if let Some(description) = &self.output_description {
            tool = tool.output_description(description);
        }
        Ok(tool)
    }
}

/// Calls a function in the event loop of the caller, with the caller's context variables.
async fn call_function(handler: u64, arguments: Value) -> Result<Value, ToolFunctionError> {
    let origin = CallOrigin::current().ok_or_else(|| {
        ToolFunctionError::Internal("the call of the tool has no event loop".to_owned())
    })?;
    let target = CallbackTarget {
        mailbox: origin.mailbox,
        handler,
    };
    let answer = target.call(origin.context, arguments.to_string()).await?;
    serde_json::from_str(&answer).map_err(|error| ToolFunctionError::Internal(error.to_string()))
}
