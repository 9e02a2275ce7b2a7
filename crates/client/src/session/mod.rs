//! Skills of one conversation, from executors and other sources. A session has a fixed selection of
//! roots, the two tools that a model calls, the instruction text for the model, and skills that the
//! user mentions. With the feature `handlers`, a session also has the custom tools of the program.
//!
//! Every text for a model has a size limit. Skills are external context: their authors are neither
//! the user nor the program.
//!
//! ```
//! use caproot_client::{ExecutorConfig, Fleet, parse_selected_roots};
//! use caproot_client::session::{DEFAULT_BUDGET, Session, SessionOptions};
//! use serde_json::{Value, json};
//! # mod demo { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/support/demo.rs")); }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let endpoint = demo::start_demo_daemon().await;
//! // The platform selects roots of environments, and the fleet has the executor of each environment.
//! let selected = json!({"selectedCapabilityRoots": [{"id": "demo", "location": {
//!     "type": "environment", "environmentId": "local", "path": "published:demo"}}]});
//! let roots = parse_selected_roots(&selected.to_string())?;
//! let fleet = Fleet::from_executors([("local".to_owned(), ExecutorConfig::new(endpoint))]);
//! let session = Session::start(&fleet, roots, &SessionOptions::default()).await?;
//!
//! // The model gets the text and the tools at its first turn.
//! let instructions = session.instruction_text(DEFAULT_BUDGET);
//! assert!(instructions.text.contains("- triage-logs: Finds the first cause in a long log."));
//! assert_eq!(session.dynamic_tools()[0]["name"], "list");
//!
//! // The model calls a tool.
//! let arguments = json!({"authority": {"kind": "executor", "id": "demo"},
//!     "package": "skill://demo/triage-logs", "resource": ""});
//! let result = session.call("skills.read", &arguments).await;
//! assert!(result.success && result.external_context);
//! let page: Value = serde_json::from_str(&result.json)?;
//! assert!(page["contents"].to_string().contains("# Triage a log"));
//!
//! // A failed call has a result, too, which tells the model the next step.
//! let result = session.call("skills.read", &json!({"package": "skill://demo/none"})).await;
//! let error: Value = serde_json::from_str(&result.json)?;
//! assert_eq!(error["error"]["code"], "INVALID_ARGUMENTS");
//!
//! // The user mentions a skill.
//! let injected = session.inject(&"Look at this log with $triage-logs.".into()).await;
//! assert_eq!(injected.fragments[0].package, "skill://demo/triage-logs");
//! # Ok(())
//! # }
//! ```
//!
//! # Tools
//!
//! | tool | arguments | result |
//! | --- | --- | --- |
//! | `skills.list` | `cursor?` | `skills` (each with `authority`, `package`, `name`, `description`, `main_resource`), `next_cursor`, `warnings`, `truncated` |
//! | `skills.read` | `authority`, `package`, `resource`, `cursor?` | `resource`, `contents`, `next_cursor`, `truncated` |
//!
//! - A result has at most [`MAX_RESULT_BYTES`] of JSON. `next_cursor` is `null` at the end.
//! - `truncated` means that more follows, or that a limit stopped a scan.
//! - An empty `resource` is the SKILL.md of the package. Unknown arguments are rejected.
//! - A cursor of a list pages through the list as of its first page. The joined pages of a file are the
//!   file.
//! - Skills with `allow_implicit_invocation: false` are counted in a warning and not listed. They can
//!   be read.
//! - Each executor gets at most 16 calls at once. Other calls wait up to 30 s, and then fail with
//!   [`ToolErrorCode::Overloaded`].
//!
//! If your platform rejects a dot in the name of a tool, set [`SessionOptions::tool_names`] to
//! [`ToolNames::flat`].
//!
//! # Characters without a glyph
//!
//! Bidirectional controls, zero-width characters and tags can tell a model something that no reviewer
//! sees. In names, descriptions, warnings, errors and the heads of fragments they are escaped: U+202E
//! becomes `\u{202e}`. Joiners and variation selectors stay where scripts and emoji need them. The
//! contents of files are never changed; their diagnostic is `HIDDEN_TEXT`.
//!
//! # Sources
//!
//! | source | is | authority | handles |
//! | --- | --- | --- | --- |
//! | [`Fleet`] | the executors of the selection | `executor`, with the id of the root | `skill://ROOT/…` |
//! | `caproot::local_source::LocalSource` | directories of this machine | `local`, with the id of the directory | `skill://ID/…` |
//! | `sources::mcp::McpSource` | an MCP server | `mcp`, with the name of the server | `mcp+skill://NAME/…`, or `mcp+SCHEME://NAME/…` of another scheme |
//!
//! [`Session::start_with`] adds sources next to the executors. If skills of two kinds have one name,
//! the skill of the upper row hides the others, and a warning names the hidden skills. Skills of one
//! kind with one name are all listed. A source that cannot be used keeps its names reserved, so a name
//! never starts to mean the skill of another source. A read asks only the source of the authority.

mod arguments;
mod call;
mod choice;
pub mod dispatch;
mod fitting;
mod fragment;
#[cfg(any(feature = "mcp", feature = "manager"))]
mod http_client;
mod inject;
mod instructions;
mod lifecycle;
mod list;
mod mentions;
mod metrics;
mod plugins;
mod read;
mod result;
mod saved;
pub mod sources;
mod store;
mod tool_names;
#[cfg(feature = "handlers")]
mod tools;
mod view;

pub use choice::{ChoiceRule, ChoiceRuleError, MAX_CHOICE_RULES, SkillChoice};
pub use inject::{
    AmbiguousName, InjectedSkills, MAX_FRAGMENT_BYTES, MAX_INJECTED_BYTES, MentionCandidate,
    OmittedMention, SkillFragment,
};
pub use instructions::{DEFAULT_BUDGET, InstructionText};
pub use lifecycle::{
    CloseOutcome, ExecutorChanges, ForkError, ForkScope, PersistError, RestoreError,
    RestoredSession, ScopeOutcome,
};
pub use mentions::{SkillMention, UserPrompt};
pub use metrics::{
    DURATION_BUCKETS, InvocationKind, InvocationMetrics, InvocationSeries, MAX_SERIES,
    RequestMetrics, SkillCount, SourceMetrics,
};
pub use plugins::{
    ChangedPlugin, ComponentChange, ComponentChangeKind, PluginWatch, SessionPlugin,
    SessionPluginChanges,
};
pub use result::{MAX_RESULT_BYTES, ToolError, ToolErrorCode, ToolResult};
pub use saved::{MAX_SAVED_BYTES, SavedError};
pub use sources::{ExecutorState, SkillSource, SourceKind};
pub use store::{MemoryStore, SessionStore, StoreError};
pub use tool_names::{ToolNameError, ToolNames};
#[cfg(feature = "handlers")]
pub use tools::{
    CustomTool, ToolFunctionError, ToolRegistry, ToolRegistryError, limits as tool_limits,
};
pub use view::{ChangedSource, SessionWatch};

use crate::fleet::group_by_environment;
use crate::{Fleet, MirrorSelection, ResumePoint};
use caproot_core::proto::caproot::v1::SelectedCapabilityRoot;
use caproot_core::sync::Mutex;
use caproot_core::wire::RootId;
use futures_util::future::join_all;
use metrics::InvocationCounters;
use saved::check_session_id;
use sources::{DaemonSource, mirrored_view};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use view::{SessionView, SessionViewCache};

/// Options of a new session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionOptions {
    /// Product whose skills are listed, next to skills for every product. Empty: all skills.
    pub product: String,
    /// How long `start` waits for executors that do not answer; 5 s by default. The skills of an
    /// executor that answers later appear then. `start` does not wait for an executor whose socket
    /// is missing, that refuses the connection, or that the registry does not name.
    pub start_timeout: Duration,
    /// How long the skills of a lost executor stay listed, so that a restart of its daemon changes
    /// nothing; 10 s by default. Reading such a skill still calls the executor.
    pub grace_period: Duration,
    /// Id of the session and key of its saved state: 1 to 128 visible ASCII characters. Random by
    /// default.
    pub id: Option<String>,
    /// Skills of the session, out of all skills of its sources; all skills by default. The choice
    /// never changes, is saved with the session and inherited by forks.
    pub choice: SkillChoice,
    /// Whether [`Session::plugins`] has the plugins of executors; false by default. With plugins, an
    /// executor also sends the frontmatter and other details of each skill. For the plugins of local
    /// directories, start their source with these options.
    pub plugins: bool,
    /// Names of the tools in every text, hint and error; `skills.list` and `skills.read` by
    /// default.
    pub tool_names: ToolNames,
    /// Custom tools of the program; none by default. The registry is sealed once `start` is called.
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
            choice: SkillChoice::default(),
            plugins: false,
            tool_names: ToolNames::default(),
            #[cfg(feature = "handlers")]
            tools: ToolRegistry::default(),
        }
    }
}

/// Invalid selection of roots, sources or tools. Displays as sentences.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct SelectionError(Vec<String>);

impl SelectionError {
    /// Returns all mistakes, one sentence each.
    #[must_use]
    pub fn sentences(&self) -> &[String] {
        &self.0
    }
}

/// Skills of one conversation. Share a session by [`Arc`]; every method takes `&self`.
///
/// The [module](self) has a program.
#[derive(Debug)]
pub struct Session {
    /// Kind, id and index in `sources` of each authority: sorted by kind, and the roots of
    /// executors in the order of the selection.
    authorities: Vec<(SourceKind, String, usize)>,
    sources: Vec<Arc<dyn SkillSource>>,
    /// Sources that are executors of the selection.
    executors: Vec<Arc<DaemonSource>>,
    views: Mutex<SessionViewCache>,
    inner: SessionInner,
    #[cfg(feature = "handlers")]
    custom_tools: Arc<tools::ToolSet>,
}

/// State of a session apart from its sources and tools.
#[derive(Debug)]
struct SessionInner {
    id: String,
    product: String,
    choice: SkillChoice,
    /// Roots in the order of the selection.
    selection: Vec<SelectedCapabilityRoot>,
    /// Saved resume points of a restored session, for executors that have not answered yet.
    resume_points: BTreeMap<String, ResumePoint>,
    counters: InvocationCounters,
    tool_names: ToolNames,
    closed: CancellationToken,
    store: Option<Arc<dyn SessionStore>>,
    /// Whether the saved state was deleted. The lock is held during calls of the store, so that
    /// nothing is persisted after the deletion.
    is_deleted: tokio::sync::Mutex<bool>,
}

impl Session {
    /// Starts a session with these roots; the selection never changes. An executor that does not
    /// answer, or that the registry does not name yet, is a warning, and its skills appear once it
    /// answers. Needs a tokio runtime.
    ///
    /// # Errors
    ///
    /// An invalid root id, two different roots with one id, or two tools with one name.
    pub async fn start(
        fleet: &Fleet,
        selection: Vec<SelectedCapabilityRoot>,
        options: &SessionOptions,
    ) -> Result<Self, SelectionError> {
        Self::start_with(fleet, selection, Vec::new(), options).await
    }

    /// Starts a session with other sources next to the executors. If two skills have one name, the
    /// session lists the skill of an executor before the skill of a local directory, and both
    /// before the skill of an MCP server.
    ///
    /// # Errors
    ///
    /// As [`Session::start`], and an authority that two sources of one kind have.
    pub async fn start_with(
        fleet: &Fleet,
        selection: Vec<SelectedCapabilityRoot>,
        others: Vec<Arc<dyn SkillSource>>,
        options: &SessionOptions,
    ) -> Result<Self, SelectionError> {
        Self::start_resumed(fleet, selection, others, options, BTreeMap::new()).await
    }

    /// Starts a session whose executors resume at these points, by environment.
    async fn start_resumed(
        fleet: &Fleet,
        selection: Vec<SelectedCapabilityRoot>,
        others: Vec<Arc<dyn SkillSource>>,
        options: &SessionOptions,
        points: BTreeMap<String, ResumePoint>,
    ) -> Result<Self, SelectionError> {
        let selection = check_selection(selection)?;
        #[cfg(feature = "handlers")]
        let custom_tools = options.tools.seal(&options.tool_names)?;
        let by_environment = group_by_environment(selection.clone()).into_iter();
        let executors = by_environment.map(|(environment_id, roots)| async {
            let selection = MirrorSelection {
                product: options.product.clone(),
                view: mirrored_view(options),
                ..MirrorSelection::new(roots)
            };
            let from = points.get(&environment_id).cloned();
            DaemonSource::start_executor(fleet, environment_id, selection, from, options).await
        });
        let executors = join_all(executors)
            .await
            .into_iter()
            .map(Arc::new)
            .collect();
        let inner = SessionInner::new(options, selection, points)?;
        let session = Self::from_sources(executors, others, inner)?;
        #[cfg(feature = "handlers")]
        let session = Self {
            custom_tools: Arc::new(custom_tools),
            ..session
        };
        Ok(session)
    }

    /// Returns a session with these sources and without custom tools.
    fn from_sources(
        executors: Vec<Arc<DaemonSource>>,
        others: Vec<Arc<dyn SkillSource>>,
        inner: SessionInner,
    ) -> Result<Self, SelectionError> {
        let daemons = executors
            .iter()
            .map(|source| source.clone() as Arc<dyn SkillSource>);
        let mut sources: Vec<_> = daemons.chain(others).collect();
        // The sort is stable: the executors of the selection stay in front of other daemons.
        sources.sort_by_key(|source| source.kind());
        let authorities = collect_authorities(&inner.selection, &sources)?;
        Ok(Self {
            authorities,
            sources,
            executors,
            views: Mutex::default(),
            inner,
            #[cfg(feature = "handlers")]
            custom_tools: Arc::default(),
        })
    }

    /// Returns the state of each executor, in the byte order of the environment ids.
    #[must_use]
    pub fn executors(&self) -> Vec<ExecutorState> {
        self.executors
            .iter()
            .map(|executor| executor.state())
            .collect()
    }

    /// Returns all sources: executors, then local sources, then MCP servers.
    #[must_use]
    pub fn sources(&self) -> &[Arc<dyn SkillSource>] {
        &self.sources
    }

    /// Returns a watch for changes of the listed skills and of the state of sources.
    #[must_use]
    pub fn watch(&self) -> SessionWatch {
        SessionWatch::new(&self.sources)
    }

    /// Reads the skills that the user mentioned in a prompt or next to it, for a model. Skills that
    /// only a user may invoke are included. A name that matches no skill is ignored; a handle that
    /// matches no skill is omitted with a reason.
    ///
    /// A mention is an entry of [`UserPrompt::mentions`], a link `[$name](handle)`, or `$name` if
    /// one skill has the name. A tag in the text of a skill gets a backslash, so that no text ends
    /// its fragment. Three rules keep a mention from meaning another skill:
    ///
    /// - A word that is spelled like an environment variable, such as `$HOME`, is not a mention.
    /// - If a handle has no skill any more, the plain name next to it is not taken for another skill.
    /// - If no skill is named `deploy`, `$deploy` means `deploy-kit:deploy`, if no other plugin has a
    ///   skill `deploy`. Otherwise the candidates are in [`InjectedSkills::ambiguous`].
    pub async fn inject(&self, prompt: &UserPrompt) -> InjectedSkills {
        inject::inject(self, prompt).await
    }

    /// Returns the listed skills of now.
    fn current_view(&self) -> Arc<SessionView> {
        if self.is_closed() {
            return Arc::new(SessionView::closed());
        }
        let snapshots = self
            .sources
            .iter()
            .map(|source| source.snapshot())
            .collect();
        let choice = &self.inner.choice;
        self.views
            .lock()
            .current(&self.sources, snapshots, &self.authorities, choice)
    }

    /// Returns an error if the choice of the session excludes a skill.
    fn check_choice(
        &self,
        source: &dyn SkillSource,
        authority: &str,
        package: &str,
    ) -> Result<(), ToolError> {
        let choice = &self.inner.choice;
        if choice.is_empty() {
            return Ok(());
        }
        let snapshot = source.snapshot();
        let mut skills = snapshot.listing.skills.iter();
        let skill = skills.find(|skill| {
            skill.package == package
                && skill
                    .authority
                    .as_ref()
                    .is_some_and(|owner| owner.id == authority)
        });
        let is_included = match skill {
            Some(skill) => choice.includes(source, &skill.name, package),
            // The source reports why the skill cannot be used.
            None => snapshot.unavailable_reason.is_some(),
        };
        if is_included {
            return Ok(());
        }
        let message = "the session does not have the skill";
        Err(ToolError::from_code(
            ToolErrorCode::PackageNotFound,
            message,
        ))
    }

    /// Returns the source of an authority.
    fn source_for_authority(&self, kind: &str, id: &str) -> Result<&dyn SkillSource, ToolError> {
        let mut authorities = self.authorities.iter();
        let found = authorities
            .find(|(source_kind, authority, _)| source_kind.name() == kind && authority == id);
        let (_, _, index) = found.ok_or_else(|| {
            let message = format!("no authority {{kind: {kind:?}, id: {id:?}}} is in this session");
            ToolError::from_code(ToolErrorCode::UnknownAuthority, &message)
        })?;
        Ok(&*self.sources[*index])
    }
}

impl SessionInner {
    /// Returns the state of a new session, with the id of the options or a random id.
    fn new(
        options: &SessionOptions,
        selection: Vec<SelectedCapabilityRoot>,
        resume_points: BTreeMap<String, ResumePoint>,
    ) -> Result<Self, SelectionError> {
        if let Some(id) = &options.id {
            check_session_id(id).map_err(|error| SelectionError(vec![error]))?;
        }
        options.choice.check()?;
        Ok(Self {
            id: options.id.clone().unwrap_or_else(random_id),
            product: options.product.clone(),
            choice: options.choice.clone(),
            selection,
            resume_points,
            counters: InvocationCounters::default(),
            tool_names: options.tool_names.clone(),
            closed: CancellationToken::new(),
            store: None,
            is_deleted: tokio::sync::Mutex::new(false),
        })
    }

    fn fork(parent: &Self, selection: Vec<SelectedCapabilityRoot>) -> Self {
        Self {
            id: random_id(),
            product: parent.product.clone(),
            choice: parent.choice.clone(),
            selection,
            resume_points: parent.resume_points.clone(),
            counters: InvocationCounters::default(),
            tool_names: parent.tool_names.clone(),
            closed: CancellationToken::new(),
            store: parent.store.clone(),
            is_deleted: tokio::sync::Mutex::new(false),
        }
    }

    /// Returns the output of `work`, or `None` once the session is closed.
    async fn run_until_closed<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.closed.cancelled() => None,
            done = work => Some(done),
        }
    }
}

/// Returns the authorities of all sources, each with the index of its source: sorted by kind, and
/// the authorities of executors in the order of the selection.
fn collect_authorities(
    selected: &[SelectedCapabilityRoot],
    sources: &[Arc<dyn SkillSource>],
) -> Result<Vec<(SourceKind, String, usize)>, SelectionError> {
    let mut authorities = Vec::new();
    for (index, source) in sources.iter().enumerate() {
        authorities.extend(
            source
                .authorities()
                .into_iter()
                .map(|id| (source.kind(), id, index)),
        );
    }
    let mut seen = HashSet::new();
    let duplicates = authorities
        .iter()
        .filter(|(kind, id, _)| !seen.insert((*kind, id)));
    let errors: Vec<_> = duplicates
        .map(|(kind, id, _)| {
            format!(
                "two sources answer for the {} authority {id:?}",
                kind.name()
            )
        })
        .collect();
    if !errors.is_empty() {
        return Err(SelectionError(errors));
    }
    let positions: HashMap<&str, usize> = selected
        .iter()
        .enumerate()
        .map(|(position, root)| (root.id.as_str(), position))
        .collect();
    authorities.sort_by_key(|(kind, id, _)| {
        let is_executor = *kind == SourceKind::Executor;
        (
            *kind,
            if is_executor {
                positions.get(id.as_str()).copied()
            } else {
                None
            },
        )
    });
    Ok(authorities)
}

/// Returns the selected roots without duplicates, or all errors of the selection.
fn check_selection(
    selection: Vec<SelectedCapabilityRoot>,
) -> Result<Vec<SelectedCapabilityRoot>, SelectionError> {
    let mut errors = Vec::new();
    let mut seen: HashMap<String, SelectedCapabilityRoot> = HashMap::new();
    let mut roots = Vec::new();
    for root in selection {
        let id = root.id.as_str();
        if let Err(reason) = RootId::new(id) {
            errors.push(format!("the root id {id:?} {reason}"));
        } else if let Some(before) = seen.get(id) {
            if *before != root {
                errors.push(format!(
                    "two roots with different locations have the id {id:?}"
                ));
            }
        } else {
            seen.insert(id.to_owned(), root.clone());
            roots.push(root);
        }
    }
    if errors.is_empty() {
        Ok(roots)
    } else {
        Err(SelectionError(errors))
    }
}

fn random_id() -> String {
    let random = || RandomState::new().hash_one(0_u8);
    format!("s-{:016x}{:016x}", random(), random())
}

/// Skill that the views share.
type SharedSkill = Arc<caproot_core::proto::caproot::v1::Skill>;
