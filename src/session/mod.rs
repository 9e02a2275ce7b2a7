//! One conversation's view of skills on executors: a selection that is fixed when it begins, the two tools
//! that a model calls, the text that tells it what there is, and skills that a person named. Talks to
//! executors by `client` alone. With the feature `handlers`, also the own tools of the program that holds it.
//!
//! Everything that a model gets is bounded; what executors say was written by strangers, and is external
//! context.
//! Leaves sending them to a model to whoever holds the session.

mod arguments;
mod call;
mod changes;
mod cursor;
mod fitting;
mod fragment;
mod inject;
mod instructions;
mod list;
mod mentions;
mod one_line;
mod part;
mod read;
mod result;
#[cfg(feature = "handlers")]
mod tools;
mod view;

pub use changes::Changes;
pub use inject::{
    Ambiguous, Candidate, Fragment, Injected, LeftOut, MAX_FRAGMENT_BYTES, MAX_INJECTED_BYTES,
};
pub use instructions::{DEFAULT_BUDGET, Instructions};
pub use mentions::{Mention, Prompt};
pub use part::ExecutorState;
pub use result::{MAX_RESULT_BYTES, ToolResult};
#[cfg(feature = "handlers")]
pub use tools::{Tool, Tools, ToolsError, limits as tool_limits};

use crate::client::fleet::by_environment;
use crate::client::{Fleet, Selection};
use crate::proto::caproot::v1::SelectedCapabilityRoot;
use futures_util::future::join_all;
use part::Part;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use view::Views;

/// How a session is begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Only skills for this product, or for every product; empty means all.
    pub product: String,
    /// How long `start` waits for executors that do not answer; 5 s by default. Those that answer later
    /// come in when they do.
    pub patience: Duration,
    /// How long the skills of an executor that was lost are still shown, so that a restart of its daemon
    /// changes nothing; 10 s by default. Reading them asks the executor all the same.
    pub grace: Duration,
    /// The program's own tools; none by default. They do not change any more once `start` is called.
    #[cfg(feature = "handlers")]
    pub tools: Tools,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            product: String::new(),
            patience: Duration::from_secs(5),
            grace: Duration::from_secs(10),
            #[cfg(feature = "handlers")]
            tools: Tools::default(),
        }
    }
}

/// Why a selection is none. Displays as sentences.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct SelectionError(Vec<String>);

/// A conversation's skills. Cheap to share by [`Arc`]; every method takes `&self`.
#[derive(Debug)]
pub struct Session {
    /// Of each selected root its id and the place of its executor in `parts`, as selected.
    roots: Vec<(String, usize)>,
    parts: Vec<Part>,
    views: Mutex<Views>,
    #[cfg(feature = "handlers")]
    own: tools::Own,
}

impl Session {
    /// Begins a session with these roots, for good. An executor that does not answer is a warning, and
    /// none of its skills are there until it does. One that the registry does not name by then is not
    /// known to this session later either. Needs a tokio runtime.
    ///
    /// # Errors
    ///
    /// A root id that no daemon takes, or one that two roots of different places have.
    pub async fn start(
        fleet: &Fleet,
        selection: Vec<SelectedCapabilityRoot>,
        options: &Options,
    ) -> Result<Self, SelectionError> {
        let selection = checked(selection)?;
        #[cfg(feature = "handlers")]
        let own = options.tools.seal();
        let ids: Vec<String> = selection.iter().map(|root| root.id.clone()).collect();
        let parts = by_environment(selection).into_iter().map(|(environment_id, roots)| async {
            let selection = Selection { product: options.product.clone(), ..Selection::new(roots) };
            Part::start(fleet, environment_id, selection, options).await
        });
        let parts: Vec<Part> = join_all(parts).await;
        let of = |id: &String| parts.iter().position(|part| part.root(id).is_some());
        let roots = ids.iter().filter_map(|id| Some((id.clone(), of(id)?))).collect();
        Ok(Self {
            roots,
            parts,
            views: Mutex::default(),
            #[cfg(feature = "handlers")]
            own,
        })
    }

    /// How each executor is, in the byte order of their environment ids.
    #[must_use]
    pub fn executors(&self) -> Vec<ExecutorState> {
        self.parts.iter().map(Part::state).collect()
    }

    /// Waits for changes of what there is, or of how executors are.
    #[must_use]
    pub fn changes(&self) -> Changes {
        Changes::new(self.parts.iter().filter_map(Part::watched).collect())
    }

    /// The executor that a selected root is on.
    fn part_of(&self, root: &str) -> Option<&Part> {
        self.roots.iter().find(|(id, _)| id == root).map(|(_, part)| &self.parts[*part])
    }
}

/// The roots, each once, or all that is wrong with them.
fn checked(
    selection: Vec<SelectedCapabilityRoot>,
) -> Result<Vec<SelectedCapabilityRoot>, SelectionError> {
    let mut wrong = Vec::new();
    let mut seen: HashMap<String, SelectedCapabilityRoot> = HashMap::new();
    let mut roots = Vec::new();
    for root in selection {
        let id = root.id.as_str();
        if id.is_empty()
            || id.len() > 256
            || id.contains(char::is_control)
            || [".", ".."].contains(&id)
        {
            wrong.push(format!(
                "a root id is 1 to 256 bytes, without control characters, and not {id:?}"
            ));
        } else if let Some(before) = seen.get(id) {
            if *before != root {
                wrong.push(format!("two roots have the id {id:?}, and different places"));
            }
        } else {
            seen.insert(id.to_owned(), root.clone());
            roots.push(root);
        }
    }
    if wrong.is_empty() { Ok(roots) } else { Err(SelectionError(wrong)) }
}

/// A lock that a panic elsewhere does not take away.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A skill as the views share it.
type SharedSkill = Arc<crate::proto::caproot::v1::Skill>;
