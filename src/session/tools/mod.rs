//! A session's own tools: functions of the program that holds it. This is the catalog of them, which is
//! filled before a session begins, and sealed when one does. Leaves what a tool is to `tool`, what it may
//! be to `check`, calls to `run`, and what a model is told of their results to `results`.

mod bounds;
mod check;
pub mod limits;
mod results;
mod run;
mod tool;

pub use tool::Tool;

use super::{SelectionError, ToolNames, lock};
use check::Registered;
use limits::{MAX_RUNNING, MAX_TOOLS};
use serde_json::Value;
use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use tokio::sync::Semaphore;

/// A catalog of own tools, for [`Options::tools`](super::Options::tools). A clone is another handle of the
/// same catalog, and equal to it. Once a session began with it, it does not change any more; any number of
/// sessions can begin with it.
#[derive(Debug, Clone, Default)]
pub struct Tools(Arc<Mutex<Catalog>>);

/// Why a catalog is not changed. Displays as a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolsError {
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
    Name(String),
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
    Part {
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
struct Catalog {
    /// As registered.
    tools: Vec<Arc<Registered>>,
    /// The same for every session, once there is one.
    sealed: Option<Arc<[Arc<Registered>]>>,
}

/// What a session has of a catalog.
#[derive(Debug)]
pub(super) struct Own {
    tools: Arc<[Arc<Registered>]>,
    names: ToolNames,
    turns: Arc<Semaphore>,
}

impl Tools {
    /// An empty catalog.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a tool in, behind those that are there.
    pub fn register(&self, tool: Tool) -> Result<(), ToolsError> {
        // Before the lock is taken: an author's schema may be slow to compile.
        let tool = check::checked(tool);
        let mut catalog = self.open()?;
        let tool = tool?;
        let named = tool.full_name().to_owned();
        if catalog.tools.iter().any(|other| other.full_name() == named) {
            return Err(ToolsError::Duplicate(named));
        }
        if catalog.tools.len() >= MAX_TOOLS {
            return Err(ToolsError::TooMany(named));
        }
        catalog.tools.push(Arc::new(tool));
        Ok(())
    }

    /// Takes one out, by its name: `namespace.name`, or `name` where it has no namespace.
    pub fn unregister(&self, name: &str) -> Result<(), ToolsError> {
        let mut catalog = self.open()?;
        let at = catalog.tools.iter().position(|tool| tool.full_name() == name);
        catalog.tools.remove(at.ok_or_else(|| ToolsError::NoSuchTool(name.to_owned()))?);
        Ok(())
    }

    /// Takes all out.
    pub fn clear(&self) -> Result<(), ToolsError> {
        self.open()?.tools.clear();
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
        Self(Arc::new(Mutex::new(Catalog { tools, sealed: None })))
    }

    /// The tools of a session that begins; from then on the catalog does not change.
    ///
    /// # Errors
    ///
    /// A name that is not valid, or that two tools of the session have.
    pub(super) fn seal(&self, names: &ToolNames) -> Result<Own, SelectionError> {
        let mut catalog = lock(&self.0);
        let Catalog { tools, sealed } = &mut *catalog;
        let flattened = flattened(tools, names)?;
        let sealed = sealed.get_or_insert_with(|| tools.as_slice().into());
        let tools = flattened.unwrap_or_else(|| sealed.clone());
        Ok(Own { tools, names: names.clone(), turns: Arc::new(Semaphore::new(MAX_RUNNING)) })
    }

    fn open(&self) -> Result<std::sync::MutexGuard<'_, Catalog>, ToolsError> {
        let catalog = lock(&self.0);
        if catalog.sealed.is_some() { Err(ToolsError::Sealed) } else { Ok(catalog) }
    }
}

/// Of the same catalog.
impl PartialEq for Tools {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Tools {}

impl Default for Own {
    fn default() -> Self {
        let turns = Arc::new(Semaphore::new(MAX_RUNNING));
        Self { tools: Arc::default(), names: ToolNames::default(), turns }
    }
}

/// The tools with names that have no namespace; `None` if the names keep it.
fn flattened(
    tools: &[Arc<Registered>],
    names: &ToolNames,
) -> Result<Option<Arc<[Arc<Registered>]>>, SelectionError> {
    if names.has_namespace() {
        return Ok(None);
    }
    let mut seen = HashSet::from([names.list().to_owned(), names.read().to_owned()]);
    let mut flat = Vec::new();
    let mut wrong = Vec::new();
    for tool in tools {
        match tool.flattened(names) {
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

impl Own {
    /// These payloads, as a platform registers tools, and its own behind them.
    pub(super) fn payloads(&self, mut before: Value) -> Value {
        let own = self.tools.iter().map(|tool| tool.payload());
        if let Value::Array(payloads) = &mut before {
            payloads.extend(own);
        }
        before
    }

    /// Whether there is one of this whole name.
    pub(super) fn has(&self, tool: &str) -> bool {
        self.tools.iter().any(|own| own.full_name() == tool)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }
}
