//! A session's own tools: functions of the program that holds it. This is the catalog of them, which is
//! filled before a session begins, and sealed when one does. Leaves what a tool is to `tool`, what it may
//! be to `check`, calls to `run`, and what a model is told of their results to `results`.

mod bounds;
mod check;
pub mod limits;
mod results;
mod run;
mod tool;

pub use tool::CustomTool;

use super::{SelectionError, ToolNames, lock};
use check::RegisteredTool;
use limits::{MAX_CONCURRENT_CALLS, MAX_TOOLS};
use serde_json::Value;
use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use tokio::sync::Semaphore;

/// A catalog of own tools, for [`Options::tools`](super::Options::tools). A clone is another handle of the
/// same catalog, and equal to it. Once a session began with it, it does not change any more; any number of
/// sessions can begin with it.
#[derive(Debug, Clone, Default)]
pub struct ToolRegistry(Arc<Mutex<RegistryState>>);

/// Why a catalog is not changed. Displays as a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolRegistryError {
    /// A session began with it.
    #[error(
        "the tools are sealed, since a session began with them: change them before it begins, or begin \
         another session with a `copy` of them"
    )]
    Sealed,
    /// The name or namespace of a tool that is none.
    #[error(
        "{0:?} is no name of a tool or namespace: those are 1 to 64 of the letters A to Z and a to z, \
         digits, `_` and `-`"
    )]
    InvalidName(String),
    /// The namespace of a session's two tools.
    #[error("the namespace `skills` is the session's own: take another for {0:?}, or none")]
    Reserved(String),
    /// There is one of this name.
    #[error("there is a tool {0:?} already: unregister that one first, or take another name")]
    Duplicate(String),
    /// There are [`MAX_TOOLS`] already.
    #[error("there are {MAX_TOOLS} tools already, and no room for {0:?}")]
    TooMany(String),
    /// Something of a tool is not what it may be.
    #[error("{part} of the tool {tool:?} cannot be taken: {why}")]
    InvalidPart {
        /// The tool.
        tool: String,
        /// Which of its parts.
        part: &'static str,
        /// What is wrong.
        why: String,
    },
    /// There is none of this name.
    #[error("there is no tool {0:?}")]
    NoSuchTool(String),
}

#[derive(Debug, Default)]
struct RegistryState {
    /// As registered.
    tools: Vec<Arc<RegisteredTool>>,
    /// The same for every session, once there is one.
    sealed: Option<Arc<[Arc<RegisteredTool>]>>,
}

/// What a session has of a catalog.
#[derive(Debug)]
pub(super) struct ToolSet {
    tools: Arc<[Arc<RegisteredTool>]>,
    names: ToolNames,
    permits: Arc<Semaphore>,
}

impl ToolRegistry {
    /// An empty catalog.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a tool in, behind those that are there.
    pub fn register(&self, tool: CustomTool) -> Result<(), ToolRegistryError> {
        // Before the lock is taken: an author's schema may be slow to compile.
        let tool = check::check_tool(tool);
        let mut catalog = self.lock_unsealed()?;
        let tool = tool?;
        let named = tool.full_name().to_owned();
        if catalog.tools.iter().any(|other| other.full_name() == named) {
            return Err(ToolRegistryError::Duplicate(named));
        }
        if catalog.tools.len() >= MAX_TOOLS {
            return Err(ToolRegistryError::TooMany(named));
        }
        catalog.tools.push(Arc::new(tool));
        Ok(())
    }

    /// Takes one out, by its name: `namespace.name`, or `name` where it has no namespace.
    pub fn unregister(&self, name: &str) -> Result<(), ToolRegistryError> {
        let mut catalog = self.lock_unsealed()?;
        let at = catalog.tools.iter().position(|tool| tool.full_name() == name);
        catalog.tools.remove(at.ok_or_else(|| ToolRegistryError::NoSuchTool(name.to_owned()))?);
        Ok(())
    }

    /// Takes all out.
    pub fn clear(&self) -> Result<(), ToolRegistryError> {
        self.lock_unsealed()?.tools.clear();
        Ok(())
    }

    /// Their names, `namespace.name` or `name`, in the order of registration.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        lock(&self.0).tools.iter().map(|tool| tool.full_name().to_owned()).collect()
    }

    /// Whether a session began with it.
    #[must_use]
    pub fn is_sealed(&self) -> bool {
        lock(&self.0).sealed.is_some()
    }

    /// Another catalog with the same tools, which can be changed.
    #[must_use]
    pub fn copy(&self) -> Self {
        let tools = lock(&self.0).tools.clone();
        Self(Arc::new(Mutex::new(RegistryState { tools, sealed: None })))
    }

    /// The tools of a session that begins; from then on the catalog does not change.
    ///
    /// # Errors
    ///
    /// A name that is not valid, or that two tools of the session have.
    pub(super) fn seal(&self, names: &ToolNames) -> Result<ToolSet, SelectionError> {
        let mut catalog = lock(&self.0);
        let RegistryState { tools, sealed } = &mut *catalog;
        let flattened = flat_tools(tools, names)?;
        let sealed = sealed.get_or_insert_with(|| tools.as_slice().into());
        let tools = flattened.unwrap_or_else(|| sealed.clone());
        Ok(ToolSet {
            tools,
            names: names.clone(),
            permits: Arc::new(Semaphore::new(MAX_CONCURRENT_CALLS)),
        })
    }

    fn lock_unsealed(&self) -> Result<std::sync::MutexGuard<'_, RegistryState>, ToolRegistryError> {
        let catalog = lock(&self.0);
        if catalog.sealed.is_some() { Err(ToolRegistryError::Sealed) } else { Ok(catalog) }
    }
}

/// Of the same catalog.
impl PartialEq for ToolRegistry {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for ToolRegistry {}

impl Default for ToolSet {
    fn default() -> Self {
        let turns = Arc::new(Semaphore::new(MAX_CONCURRENT_CALLS));
        Self { tools: Arc::default(), names: ToolNames::default(), permits: turns }
    }
}

/// The tools with names that have no namespace; `None` if the names keep it.
fn flat_tools(
    tools: &[Arc<RegisteredTool>],
    names: &ToolNames,
) -> Result<Option<Arc<[Arc<RegisteredTool>]>>, SelectionError> {
    if names.has_namespace() {
        return Ok(None);
    }
    let mut seen = HashSet::from([names.list().to_owned(), names.read().to_owned()]);
    let mut flat = Vec::new();
    let mut wrong = Vec::new();
    for tool in tools {
        match tool.with_flat_name(names) {
            Err(error) => wrong.push(format!("the tool {:?}: {error}", tool.full_name())),
            Ok(renamed) if !seen.insert(renamed.full_name().to_owned()) => wrong.push(format!(
                "two tools get the name {:?}: rename {:?}",
                renamed.full_name(),
                tool.full_name()
            )),
            Ok(renamed) => flat.push(Arc::new(renamed)),
        }
    }
    if wrong.is_empty() { Ok(Some(flat.into())) } else { Err(SelectionError(wrong)) }
}

impl ToolSet {
    /// These payloads, as a platform registers tools, and its own behind them.
    pub(super) fn append_payloads(&self, mut before: Value) -> Value {
        let own = self.tools.iter().map(|tool| tool.to_payload());
        if let Value::Array(payloads) = &mut before {
            payloads.extend(own);
        }
        before
    }

    /// Whether there is one of this whole name.
    pub(super) fn contains(&self, tool: &str) -> bool {
        self.tools.iter().any(|own| own.full_name() == tool)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }
}
