//! Custom tools: functions of the program that a model can call. The registry is filled before a
//! session starts and sealed by the start.
//!
//! Begin with `tool`, which has a tool with its schema and limits. `results` describes the results for a model.

mod bounds;
mod caller;
pub mod limits;
mod results;
mod tool;

pub use caller::ToolCaller;
pub use tool::{CustomTool, ToolFunctionError};

use crate::skills::result::{ResultForm, ToolResult};
use crate::skills::selection::SelectionError;
use crate::skills::tool_names::ToolNames;
use crate::text::instructions::InstructionText;
use caproot_core::sync::Mutex;
use limits::{MAX_CONCURRENT_CALLS, MAX_TOOLS};
use results::append_results;
use serde_json::Value;
use std::collections::HashSet;
use std::sync::{Arc, MutexGuard};
use tokio::sync::Semaphore;
pub(super) use tool::RegisteredTool;
#[cfg(feature = "mcp")]
pub(super) use tool::{ToolFailure, ToolHandler, ToolOutput};

/// Registry of custom tools, for [`SessionOptions::tools`](super::SessionOptions::tools). A clone
/// is a handle of the same registry, and equal to it. Any number of sessions can start with a
/// registry. The first start seals the registry.
///
/// ```
/// use caproot_session::{CustomTool, SessionOptions, ToolRegistry, ToolRegistryError};
/// use schemars::JsonSchema;
/// use serde::Deserialize;
/// use serde_json::json;
/// # mod demo { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/support/demo_session.rs")); }
///
/// /// Counts the words of a text.
/// #[derive(Deserialize, JsonSchema)]
/// #[serde(deny_unknown_fields)]
/// struct Count {
///     /// The text.
///     text: String,
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let count = CustomTool::new("count", |Count { text }: Count| async move {
///     let words = text.split_whitespace().count();
///     if words == 0 { Err("the text has no words") } else { Ok(words) }
/// });
/// let tools = ToolRegistry::new();
/// tools.register(count.in_namespace("words"))?;
/// let options = SessionOptions { tools: tools.clone(), ..SessionOptions::default() };
/// # let session = demo::start_demo_session(&options).await;
///
/// // A value that is not an object becomes the field `result`.
/// let result = session.call("words.count", &json!({"text": "two words"})).await;
/// assert_eq!(result.json, r#"{"result":2}"#);
/// let result = session.call("words.count", &json!({"text": 2})).await;
/// assert!(result.json.contains("INVALID_ARGUMENTS"));
///
/// // The tools of a running session do not change. A copy can have more tools.
/// assert_eq!(tools.clear(), Err(ToolRegistryError::Sealed));
/// tools.copy().unregister("words.count")?;
/// # Ok(())
/// # }
/// ```
///
/// # Calls
///
/// - Arguments are validated against the schema, both a derived and an explicit one. References of a
///   schema are never fetched.
/// - The function runs in its own task. If the function panics, the model only learns that the tool
///   failed, and the panic is logged.
/// - If the time limit is over or the caller has gone, the function is dropped at its next await. A
///   function that blocks its thread keeps its permit until it is done.
/// - The output schemas are at the end of the instruction text, in at most half of the budget. If the
///   space is too small, schemas are omitted, the largest first, and a warning counts the tools.
///
/// The [limits](super::tool_limits) are constants.
#[derive(Debug, Clone, Default)]
pub struct ToolRegistry(Arc<Mutex<RegistryState>>);

/// Error of a change of a [`ToolRegistry`]. Displays as a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolRegistryError {
    /// A session was started with the registry.
    #[error(
        "the tools are sealed, since a session was started with them: change the tools before the \
         start, or start another session with a `copy` of them"
    )]
    Sealed,
    /// The name or namespace of a tool is invalid.
    #[error(
        "invalid name or namespace of a tool {0:?}: expected 1 to 64 of the letters A to Z and a to \
         z, digits, `_` and `-`"
    )]
    InvalidName(String),
    /// The name could be the name of a skill tool.
    #[error("names of the namespace `skills` are reserved, in any spelling: rename the tool {0:?}")]
    Reserved(String),
    /// The registry has a tool with this name.
    #[error("there is a tool {0:?} already: unregister that tool first, or use another name")]
    Duplicate(String),
    /// The registry has [`MAX_TOOLS`] tools.
    #[error("there are {MAX_TOOLS} tools already, and no room for {0:?}")]
    TooMany(String),
    /// A part of the tool is invalid.
    #[error("{part} of the tool {tool:?} is invalid: {reason}")]
    InvalidPart {
        /// Name of the tool.
        tool: String,
        /// Name of the part.
        part: &'static str,
        /// Reason.
        reason: String,
    },
    /// The registry has no tool with this name.
    #[error("there is no tool {0:?}")]
    NoSuchTool(String),
}

#[derive(Debug, Default)]
struct RegistryState {
    /// Tools in the order of registration, which all sessions share.
    tools: Arc<Vec<Arc<RegisteredTool>>>,
    /// Whether a session was started.
    is_sealed: bool,
}

/// Custom tools of one session.
#[derive(Debug)]
pub struct ToolSet {
    /// Tools of the program, then those of servers.
    tools: Arc<Vec<Arc<RegisteredTool>>>,
    form: ResultForm,
    permits: Arc<Semaphore>,
}

impl ToolRegistry {
    /// Returns an empty registry.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers a tool after the tools that are registered.
    pub fn register(&self, tool: CustomTool) -> Result<(), ToolRegistryError> {
        // Checked before the lock is taken, as a schema may be slow to compile.
        let checked = RegisteredTool::new(tool);

        let mut registry = self.lock_unsealed()?;
        let tool = checked?;
        let name = tool.full_name().to_owned();
        if registry.tools.iter().any(|other| other.full_name() == name) {
            return Err(ToolRegistryError::Duplicate(name));
        }
        if registry.tools.len() >= MAX_TOOLS {
            return Err(ToolRegistryError::TooMany(name));
        }
        Arc::make_mut(&mut registry.tools).push(Arc::new(tool));
        Ok(())
    }

    /// Removes a tool by its name: `namespace.name`, or `name` without a namespace.
    pub fn unregister(&self, name: &str) -> Result<(), ToolRegistryError> {
        let mut registry = self.lock_unsealed()?;
        let index = registry
            .tools
            .iter()
            .position(|tool| tool.full_name() == name)
            .ok_or_else(|| ToolRegistryError::NoSuchTool(name.to_owned()))?;
        Arc::make_mut(&mut registry.tools).remove(index);
        Ok(())
    }

    /// Removes all tools.
    pub fn clear(&self) -> Result<(), ToolRegistryError> {
        self.lock_unsealed()?.tools = Arc::default();
        Ok(())
    }

    /// Returns the names of the tools, `namespace.name` or `name`, in the order of registration.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.0
            .lock()
            .tools
            .iter()
            .map(|tool| tool.full_name().to_owned())
            .collect()
    }

    /// Returns whether a session was started with the registry.
    #[must_use]
    pub fn is_sealed(&self) -> bool {
        self.0.lock().is_sealed
    }

    /// Returns another registry with the same tools, which is not sealed.
    #[must_use]
    pub fn copy(&self) -> Self {
        let tools = self.0.lock().tools.clone();
        Self(Arc::new(Mutex::new(RegistryState {
            tools,
            is_sealed: false,
        })))
    }

    /// Seals the registry and returns the tools of a new session.
    ///
    /// # Errors
    ///
    /// An invalid name, or two tools of the session with one name.
    pub(super) fn seal(&self, form: ResultForm) -> Result<ToolSet, SelectionError> {
        let mut registry = self.0.lock();
        let tools = match form.names {
            ToolNames::Namespaced => registry.tools.clone(),
            ToolNames::Flat => flat_tools(&registry.tools)?,
        };
        registry.is_sealed = true;
        Ok(ToolSet {
            tools,
            form,
            ..ToolSet::default()
        })
    }

    fn lock_unsealed(&self) -> Result<MutexGuard<'_, RegistryState>, ToolRegistryError> {
        let registry = self.0.lock();
        if registry.is_sealed {
            Err(ToolRegistryError::Sealed)
        } else {
            Ok(registry)
        }
    }
}

/// Two handles are equal if they have the same registry.
impl PartialEq for ToolRegistry {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for ToolRegistry {}

impl Default for ToolSet {
    fn default() -> Self {
        Self {
            tools: Arc::default(),
            form: ResultForm::default(),
            permits: Arc::new(Semaphore::new(MAX_CONCURRENT_CALLS)),
        }
    }
}

/// Returns the tools with flat names.
fn flat_tools(
    tools: &[Arc<RegisteredTool>],
) -> Result<Arc<Vec<Arc<RegisteredTool>>>, SelectionError> {
    let mut seen = HashSet::new();
    let mut flat = Vec::new();
    let mut errors = Vec::new();
    for tool in tools {
        match tool.with_flat_name() {
            Err(error) => errors.push(format!("the tool {:?}: {error}", tool.full_name())),
            Ok(renamed) if !seen.insert(renamed.full_name().to_owned()) => errors.push(format!(
                "two tools get the name {:?}: rename {:?}",
                renamed.full_name(),
                tool.full_name()
            )),
            Ok(renamed) => flat.push(Arc::new(renamed)),
        }
    }

    if errors.is_empty() {
        Ok(Arc::new(flat))
    } else {
        Err(SelectionError(errors))
    }
}

impl ToolSet {
    /// Appends the payloads of the tools, as a platform registers tools.
    pub fn append_payloads(&self, mut payloads: Value) -> Value {
        if let Value::Array(payloads) = &mut payloads {
            payloads.extend(self.tools.iter().map(|tool| tool.to_payload()));
        }
        payloads
    }

    /// Returns the tool with this full name. If there is none, returns the only tool with this name
    /// in the other spelling.
    pub fn find(&self, name: &str) -> Option<Arc<RegisteredTool>> {
        let mut others = self
            .tools
            .iter()
            .filter(|tool| tool.other_name.as_deref() == Some(name));
        let named = self.tools.iter().find(|tool| tool.full_name() == name);
        named
            .or_else(|| others.next().filter(|_| others.next().is_none()))
            .cloned()
    }

    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// Returns the full names of the tools.
    #[cfg(feature = "mcp")]
    pub fn full_names(&self) -> impl Iterator<Item = &str> {
        self.tools.iter().map(|tool| tool.full_name())
    }

    /// Returns the tools of the program followed by these tools of servers.
    #[cfg(feature = "mcp")]
    pub fn with_server_tools(&self, servers: impl Iterator<Item = Arc<RegisteredTool>>) -> Self {
        let own = self.tools.iter().cloned();
        Self {
            tools: Arc::new(own.chain(servers).collect()),
            form: self.form,
            permits: self.permits.clone(),
        }
    }

    /// Calls a tool of the session.
    pub async fn call_tool(&self, tool: &Arc<RegisteredTool>, arguments: &Value) -> ToolResult {
        tool.call(arguments, &self.permits, self.form).await
    }

    /// Returns the instruction text of the skills, followed by the results of the tools.
    pub fn write_instructions(
        &self,
        budget: usize,
        skills: impl Fn(usize) -> InstructionText,
    ) -> InstructionText {
        let texts = self
            .tools
            .iter()
            .filter_map(|tool| tool.result_text.clone());
        append_results(texts.collect(), budget, skills)
    }
}
