//! State of a session: its sources, their authorities, and the views of its skills.

use super::search::SessionSearch;
use super::sources::{ApprovedSource, DaemonSource, ExecutorState};
use super::tools::ToolSet;
use crate::options::session_options::SessionOptions;
#[cfg(feature = "mcp")]
use crate::servers::PluginServerSet;
use crate::skills::authorities::{SessionAuthority, collect_authorities};
use crate::skills::result::{ToolError, ToolErrorCode};
use crate::skills::selection::SelectionError;
use crate::skills::skill::{AuthorityRef, SharedSkill};
use crate::skills::skill_source::{SkillSource, SourceKind};
use crate::storage::store::SessionStore;
use crate::text::notices::TextRegistry;
use crate::text::short_names::ShortNames;
use crate::uses::invocation::InvocationSession;
use crate::uses::usage::{UsageRecorder, UsageWatch};
use crate::uses::used::UsedFiles;
use crate::view::session_view::{SessionView, SessionViewCache, SessionWatch, ViewScope};
use caproot_client::{ResumePoint, Trust, shown_environment};
use caproot_core::proto::caproot::v1::{RootStatus, SelectedCapabilityRoot};
use caproot_core::sync::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Skills of one conversation. Share a session by [`Arc`]; every method takes `&self`.
///
/// The [module](super) has a program.
#[derive(Debug)]
pub struct Session {
    /// Sorted by kind, and the roots of executors in the order of the selection.
    pub(super) authorities: Vec<SessionAuthority>,
    pub(super) sources: Vec<Arc<dyn SkillSource>>,
    /// Sources that are executors of the selection.
    pub(super) executors: Vec<Arc<DaemonSource>>,
    pub(super) views: Mutex<SessionViewCache>,
    pub(super) search: Arc<SessionSearch>,
    /// Texts that the session returned last.
    pub(super) texts: Mutex<TextRegistry>,
    pub(super) inner: SessionInner,
    /// Tools of the program.
    pub(super) custom_tools: Arc<ToolSet>,
    #[cfg(feature = "mcp")]
    pub(super) plugin_servers: PluginServerSet,
}

/// Authority of a session with its source.
#[derive(Debug, Clone, Copy)]
pub struct AuthoritySource<'a> {
    pub id: &'a str,
    pub source: &'a dyn SkillSource,
}

/// State of a session apart from its sources and tools.
#[derive(Debug, Default)]
pub struct SessionInner {
    pub id: String,
    /// Options, with the trust and choice that apply.
    pub options: SessionOptions,
    /// Sources of the parents of a fork that the fork does not have, and whose names it must not use
    /// for other skills.
    pub masking: Vec<Arc<dyn SkillSource>>,
    /// Roots in the order of the selection.
    pub selection: Vec<SelectedCapabilityRoot>,
    /// Saved resume points of a restored session, for executors that have not answered yet.
    pub resume_points: BTreeMap<String, ResumePoint>,
    pub usage: UsageRecorder,
    /// Files that the model read or was given.
    pub used: Mutex<UsedFiles>,
    /// Names that texts gave to skills.
    pub short_names: Mutex<ShortNames>,
    pub closed: CancellationToken,
    pub store: Option<Arc<dyn SessionStore>>,
    /// Whether the saved state was deleted. The lock is held during calls of the store, so that
    /// nothing is persisted after the deletion.
    pub is_deleted: tokio::sync::Mutex<bool>,
}

impl Session {
    /// Returns the id of the options, or the random id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.inner.id
    }

    /// Returns the state of each executor, in the byte order of the environment ids.
    #[must_use]
    pub fn executors(&self) -> Vec<ExecutorState> {
        self.executors
            .iter()
            .map(|executor| ExecutorState {
                skills: self.inner.options.choice.count_included(&**executor),
                ..executor.state()
            })
            .collect()
    }

    /// Returns the skills that the session trusts: those of the options, or of the fleet.
    #[must_use]
    pub fn trust(&self) -> &Trust {
        &self.inner.options.trust
    }

    /// Returns the state of each root of the executors that have answered.
    #[must_use]
    pub fn root_statuses(&self) -> Vec<RootStatus> {
        self.executors
            .iter()
            .flat_map(|executor| executor.root_statuses())
            .collect()
    }

    /// Returns all sources: executors, then local sources, then MCP servers.
    #[must_use]
    pub fn sources(&self) -> &[Arc<dyn SkillSource>] {
        &self.sources
    }

    /// Returns the source of a listed skill.
    #[must_use]
    pub fn source_of(&self, skill: &SharedSkill) -> Option<&dyn SkillSource> {
        let AuthorityRef { kind, id } = AuthorityRef::of_skill(skill);
        let owner = self.find_authority(kind, id).ok();
        owner.map(|owner| owner.source)
    }

    /// Returns the roots of executors, in the order of the selection.
    #[must_use]
    pub fn roots(&self) -> &[SelectedCapabilityRoot] {
        &self.inner.selection
    }

    /// Returns a watch for changes of the listed skills, of the state of sources, and of the tools of MCP
    /// servers of plugins, whose change is one of the plugin's source.
    #[must_use]
    pub fn watch(&self) -> SessionWatch {
        let changes = self
            .sources
            .iter()
            .map(|source| (&**source, source.changes()));
        #[cfg(feature = "mcp")]
        let changes = changes.chain(self.plugin_servers.changes());
        SessionWatch::new(changes)
    }

    /// Returns a watch for the uses of skills from now on.
    ///
    /// ```
    /// use caproot_session::{SessionOptions, UsageKind};
    /// # mod demo { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/support/demo_session.rs")); }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let session = demo::start_demo_session(&SessionOptions::default()).await;
    /// let mut usage = session.watch_usage();
    /// session.inject(&"Look at this log with $triage-logs.".into()).await;
    ///
    /// let event = usage.next().await.expect("an open session");
    /// assert_eq!((event.kind, event.name.as_str()), (UsageKind::Injected, "triage-logs"));
    /// assert!(event.digest.starts_with("sha256:"));
    /// # }
    /// ```
    #[must_use]
    pub fn watch_usage(&self) -> UsageWatch {
        self.inner
            .usage
            .watch(&self.inner.id, self.inner.closed.clone())
    }

    /// Returns whether the session is closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.inner.closed.is_cancelled()
    }

    /// Returns a session with these sources and without custom tools.
    pub(super) fn from_sources(
        executors: Vec<Arc<DaemonSource>>,
        others: Vec<Arc<dyn SkillSource>>,
        inner: SessionInner,
    ) -> Result<Self, SelectionError> {
        let daemons = executors
            .iter()
            .map(|source| inner.approved_source(source.clone()));
        let mut sources: Vec<_> = daemons.chain(others).collect();

        // The sort is stable: the executors of the selection stay in front of other daemons.
        sources.sort_by_key(|source| source.kind());

        let authorities = collect_authorities(&inner.selection, &sources)?;
        Ok(Self {
            authorities,
            sources,
            executors,
            views: Mutex::default(),
            search: Arc::default(),
            texts: Mutex::default(),
            inner,
            custom_tools: Arc::default(),
            #[cfg(feature = "mcp")]
            plugin_servers: PluginServerSet::default(),
        })
    }

    /// Returns the tools of the program, followed by those of servers, of now.
    pub(super) fn tool_set(&self) -> Arc<ToolSet> {
        #[cfg(feature = "mcp")]
        return self.plugin_servers.tool_set(&self.custom_tools);
        #[cfg(not(feature = "mcp"))]
        self.custom_tools.clone()
    }

    /// Returns an error if the session is closed.
    pub(super) fn check_open(&self) -> Result<(), ToolError> {
        if self.is_closed() {
            Err(session_closed_error())
        } else {
            Ok(())
        }
    }

    /// Returns the listed skills of now.
    pub(super) fn current_view(&self) -> Arc<SessionView> {
        if self.is_closed() {
            return Arc::new(SessionView::closed());
        }

        self.views.lock().current(&ViewScope {
            sources: &self.sources,
            masking: &self.inner.masking,
            authorities: &self.authorities,
            choice: &self.inner.options.choice,
        })
    }

    /// Returns the view of a cursor, or an error with a hint if the view is no longer cached.
    pub(super) fn find_cached_view(
        &self,
        view_id: u64,
        hint: &'static str,
    ) -> Result<Arc<SessionView>, ToolError> {
        self.views.lock().find(view_id).ok_or_else(|| {
            let message = "the cursor has expired, as the skills have changed";
            ToolError::with_hint(ToolErrorCode::CatalogChanged, message, hint)
        })
    }

    /// Returns an error if the choice of the session excludes a skill. `None` is a skill that the source does
    /// not list.
    pub(super) fn check_choice(
        &self,
        source: &dyn SkillSource,
        skill: Option<&SharedSkill>,
    ) -> Result<(), ToolError> {
        let choice = &self.inner.options.choice;
        let is_included = match skill {
            _ if choice.is_empty() => true,
            Some(skill) => choice.includes_skill(source, skill),
            // The source reports why the skill cannot be used.
            None => source.snapshot().unavailable_reason.is_some(),
        };

        if is_included {
            Ok(())
        } else {
            Err(ToolError::from_code(
                ToolErrorCode::PackageNotFound,
                "the session does not have the skill",
            ))
        }
    }

    /// Returns an authority with its source.
    pub(super) fn find_authority(
        &self,
        kind: &str,
        id: &str,
    ) -> Result<AuthoritySource<'_>, ToolError> {
        self.authority_sources()
            .find(|authority| authority.source.kind().name() == kind && authority.id == id)
            .ok_or_else(|| {
                let message =
                    format!("no authority {{kind: {kind:?}, id: {id:?}}} is in this session");
                ToolError::from_code(ToolErrorCode::UnknownAuthority, &message)
            })
    }

    /// Returns the authorities with their sources.
    pub(super) fn authority_sources(&self) -> impl Iterator<Item = AuthoritySource<'_>> {
        self.authorities.iter().map(|authority| AuthoritySource {
            id: &authority.id,
            source: &*self.sources[authority.source_index],
        })
    }
}

impl AuthoritySource<'_> {
    /// Returns the listed skill with this package.
    pub fn find_skill(&self, package: &str) -> Option<SharedSkill> {
        let listing = self.source.snapshot().listing;
        listing
            .skills
            .iter()
            .find(|skill| skill.package == package && AuthorityRef::of_skill(skill).id == self.id)
            .cloned()
    }

    /// Returns the authority as the argument of a call.
    pub fn to_json(self) -> String {
        let kind = self.source.kind().name();
        serde_json::json!({ "kind": kind, "id": self.id }).to_string()
    }
}

impl SessionInner {
    /// Returns a source with the skills that the session trusts.
    pub fn approved_source(&self, source: Arc<dyn SkillSource>) -> Arc<dyn SkillSource> {
        match &self.options.trust {
            Trust::All => source,
            Trust::Lock(lock) => {
                let id = match source.kind() {
                    SourceKind::Executor => shown_environment(&self.selection, source.id()),
                    // The program chose the id.
                    _ => source.id().to_owned(),
                };
                Arc::new(ApprovedSource::new(
                    source,
                    id,
                    lock.clone(),
                    &self.options.product,
                ))
            }
        }
    }

    /// Returns the part of the session that an invocation records.
    pub fn invocation_session(&self) -> InvocationSession<'_> {
        InvocationSession {
            id: &self.id,
            usage: &self.usage,
            tool_names: self.options.tool_names,
        }
    }

    /// Returns the output of `work`, or an error once the session is closed.
    pub async fn run_until_closed<T>(&self, work: impl Future<Output = T>) -> Result<T, ToolError> {
        tokio::select! {
            biased;
            () = self.closed.cancelled() => Err(session_closed_error()),
            done = work => Ok(done),
        }
    }
}

/// Returns the error of a call on a closed session.
fn session_closed_error() -> ToolError {
    ToolError::from_code(ToolErrorCode::SessionClosed, "the session is closed")
}
