//! One conversation's view of skills, on executors and in other sources: a selection that is fixed when it
//! begins, the two tools that a model calls, the text that tells it what there is, and skills that a person
//! named. Talks to executors by `client` alone, and to all sources by [`SkillSource`]. With the feature
//! `handlers`, also the own tools of the program that holds it.
//!
//! Everything that a model gets is bounded; what executors say was written by strangers, and is external
//! context.
//! Leaves sending them to a model to whoever holds the session.

mod arguments;
mod call;
mod changes;
mod cursor;
pub mod dispatch;
mod fitting;
mod fork;
mod fragment;
mod inject;
mod instructions;
mod invocation;
mod lifecycle;
mod list;
mod mentions;
mod metrics;
mod read;
mod restore;
mod result;
mod saved;
pub mod source;
mod store;
mod text;
mod tool_names;
#[cfg(feature = "handlers")]
mod tools;
mod view;

pub use changes::{ChangedSource, SessionWatch};
pub use fork::{ForkError, ForkScope};
pub use inject::{
    AmbiguousName, InjectedSkills, MAX_FRAGMENT_BYTES, MAX_INJECTED_BYTES, MentionCandidate,
    OmittedMention, SkillFragment,
};
pub use instructions::{DEFAULT_BUDGET, InstructionText};
pub use lifecycle::{CloseOutcome, PersistError, ScopeOutcome};
pub use mentions::{SkillMention, UserPrompt};
pub use metrics::{
    DURATION_BUCKETS, InvocationKind, InvocationMetrics, InvocationSeries, MAX_SERIES, SkillCount,
};
pub use restore::{ExecutorChanges, RestoreError, RestoredSession};
pub use result::{MAX_RESULT_BYTES, ToolError, ToolErrorCode, ToolResult};
pub use saved::{MAX_SAVED_BYTES, SavedError};
pub use source::{ExecutorState, SkillSource, SourceKind};
pub use store::{MemoryStore, SessionStore, StoreError};
pub use tool_names::{ToolNameError, ToolNames};
#[cfg(feature = "handlers")]
pub use tools::{CustomTool, ToolRegistry, ToolRegistryError, limits as tool_limits};

use crate::client::fleet::group_by_environment;
use crate::client::{Fleet, MirrorSelection, ResumePoint};
use crate::proto::caproot::v1::SelectedCapabilityRoot;
use futures_util::future::join_all;
use lifecycle::SessionInner;
use source::DaemonSource;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use view::SessionViewCache;

/// How a session is begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionOptions {
    /// Only skills for this product, or for every product; empty means all.
    pub product: String,
    /// How long `start` waits for executors that do not answer; 5 s by default. Those that answer later
    /// come in when they do. `start` does not wait for an executor with a missing socket or a refused
    /// connection.
    pub start_timeout: Duration,
    /// How long the skills of an executor that was lost are still shown, so that a restart of its daemon
    /// changes nothing; 10 s by default. Reading them asks the executor all the same.
    pub grace_period: Duration,
    /// The session's id, by which it is kept: 1 to 128 visible ASCII characters. By default one at random.
    pub id: Option<String>,
    /// The names of the tools, in every text, hint and refusal; `skills.list` and `skills.read` by default.
    pub tool_names: ToolNames,
    /// The program's own tools; none by default. They do not change any more once `start` is called.
    #[cfg(feature = "handlers")]
    pub tools: ToolRegistry,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            product: String::new(),
            start_timeout: Duration::from_secs(5),
            grace_period: Duration::from_secs(10),
            id: None,
            tool_names: ToolNames::default(),
            #[cfg(feature = "handlers")]
            tools: ToolRegistry::default(),
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
    /// Of each authority its kind, its id and the place of its source in `sources`: by kind, and executors'
    /// roots as selected.
    authorities: Vec<(SourceKind, String, usize)>,
    sources: Vec<Arc<dyn SkillSource>>,
    /// Those of the sources that are executors of the selection.
    executors: Vec<Arc<DaemonSource>>,
    views: Mutex<SessionViewCache>,
    inner: SessionInner,
    #[cfg(feature = "handlers")]
    custom_tools: Arc<tools::ToolSet>,
}

impl Session {
    /// Begins a session with these roots, for good. An executor that does not answer is a warning, and
    /// none of its skills are there until it does. One that the registry does not name by then is not
    /// known to this session later either. Needs a tokio runtime.
    ///
    /// # Errors
    ///
    /// A root id that no daemon takes, or one that two roots of different places have. Two tools with the
    /// same name.
    pub async fn start(
        fleet: &Fleet,
        selection: Vec<SelectedCapabilityRoot>,
        options: &SessionOptions,
    ) -> Result<Self, SelectionError> {
        Self::start_with(fleet, selection, Vec::new(), options).await
    }

    /// The same with other sources beside the executors. Of two skills of one name, that of an executor
    /// is listed and not that of a local directory, and that of either and not that of an MCP server.
    ///
    /// # Errors
    ///
    /// Also an authority that two sources of one kind answer for.
    pub async fn start_with(
        fleet: &Fleet,
        selection: Vec<SelectedCapabilityRoot>,
        others: Vec<Arc<dyn SkillSource>>,
        options: &SessionOptions,
    ) -> Result<Self, SelectionError> {
        Self::start_resumed(fleet, selection, others, options, BTreeMap::new()).await
    }

    /// The same, of executors that go on from where an earlier session's were, by environment.
    async fn start_resumed(
        fleet: &Fleet,
        selection: Vec<SelectedCapabilityRoot>,
        others: Vec<Arc<dyn SkillSource>>,
        options: &SessionOptions,
        points: BTreeMap<String, ResumePoint>,
    ) -> Result<Self, SelectionError> {
        let selection = check_selection(selection)?;
        #[cfg(feature = "handlers")]
        let own = options.tools.seal(&options.tool_names)?;
        let by_environment = group_by_environment(selection.clone()).into_iter();
        let executors = by_environment.map(|(environment_id, roots)| async {
            let selection =
                MirrorSelection { product: options.product.clone(), ..MirrorSelection::new(roots) };
            let from = points.get(&environment_id).cloned();
            DaemonSource::start_executor(fleet, environment_id, selection, from, options).await
        });
        let executors = join_all(executors).await.into_iter().map(Arc::new).collect();
        let life = SessionInner::new(options, selection, points)?;
        let session = Self::from_sources(executors, others, life)?;
        #[cfg(feature = "handlers")]
        let session = Self { custom_tools: Arc::new(own), ..session };
        Ok(session)
    }

    /// Of these sources, and without own tools.
    fn from_sources(
        executors: Vec<Arc<DaemonSource>>,
        others: Vec<Arc<dyn SkillSource>>,
        life: SessionInner,
    ) -> Result<Self, SelectionError> {
        let of_executors = executors.iter().map(|source| source.clone() as Arc<dyn SkillSource>);
        let mut sources: Vec<_> = of_executors.chain(others).collect();
        // Those of the selection stay in front.
        sources.sort_by_key(|source| source.kind());
        let authorities = collect_authorities(&life.selection, &sources)?;
        Ok(Self {
            authorities,
            sources,
            executors,
            views: Mutex::default(),
            inner: life,
            #[cfg(feature = "handlers")]
            custom_tools: Arc::default(),
        })
    }

    /// How each executor is, in the byte order of their environment ids.
    #[must_use]
    pub fn executors(&self) -> Vec<ExecutorState> {
        self.executors.iter().map(|executor| executor.state()).collect()
    }

    /// All sources: executors, then local ones, then MCP servers.
    #[must_use]
    pub fn sources(&self) -> &[Arc<dyn SkillSource>] {
        &self.sources
    }

    /// Waits for changes of what there is, or of how sources are.
    #[must_use]
    pub fn watch(&self) -> SessionWatch {
        SessionWatch::new(&self.sources)
    }
}

/// The authorities of all sources, each with its source: by kind, the executors' in this order.
fn collect_authorities(
    selected: &[SelectedCapabilityRoot],
    sources: &[Arc<dyn SkillSource>],
) -> Result<Vec<(SourceKind, String, usize)>, SelectionError> {
    let mut authorities = Vec::new();
    for (at, source) in sources.iter().enumerate() {
        authorities.extend(source.authorities().into_iter().map(|id| (source.kind(), id, at)));
    }
    let mut seen = HashSet::new();
    let twice = authorities.iter().filter(|(kind, id, _)| !seen.insert((*kind, id)));
    let wrong: Vec<_> = twice
        .map(|(kind, id, _)| format!("two sources answer for the {} authority {id:?}", kind.name()))
        .collect();
    if !wrong.is_empty() {
        return Err(SelectionError(wrong));
    }
    let places: HashMap<&str, usize> =
        selected.iter().enumerate().map(|(place, root)| (root.id.as_str(), place)).collect();
    authorities.sort_by_key(|(kind, id, _)| {
        (*kind, if *kind == SourceKind::Executor { places.get(id.as_str()).copied() } else { None })
    });
    Ok(authorities)
}

/// The roots, each once, or all that is wrong with them.
fn check_selection(
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
