//! State of a session: its sources, their authorities, and the views of its skills.

use super::authorities::{SessionAuthority, collect_authorities};
use super::choice::SkillChoice;
use super::metrics::InvocationCounters;
use super::notices::TextRegistry;
use super::result::{ToolError, ToolErrorCode};
use super::selection::SelectionError;
use super::skill::AuthorityRef;
use super::skill_source::SkillSource;
use super::sources::{DaemonSource, ExecutorState};
use super::store::SessionStore;
use super::tool_names::ToolNames;
#[cfg(feature = "handlers")]
use super::tools::ToolSet;
use super::used::UsedFiles;
use super::view::{SessionView, SessionViewCache, SessionWatch};
use crate::ResumePoint;
use caproot_core::proto::caproot::v1::SelectedCapabilityRoot;
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
    /// Texts that the session returned last.
    pub(super) texts: Mutex<TextRegistry>,
    pub(super) inner: SessionInner,
    #[cfg(feature = "handlers")]
    pub(super) custom_tools: Arc<ToolSet>,
}

/// Authority of a session with its source.
#[derive(Debug, Clone, Copy)]
pub struct AuthoritySource<'a> {
    pub id: &'a str,
    pub source: &'a dyn SkillSource,
}

/// State of a session apart from its sources and tools.
#[derive(Debug)]
pub struct SessionInner {
    pub id: String,
    pub product: String,
    pub choice: SkillChoice,
    /// Roots in the order of the selection.
    pub selection: Vec<SelectedCapabilityRoot>,
    /// Saved resume points of a restored session, for executors that have not answered yet.
    pub resume_points: BTreeMap<String, ResumePoint>,
    pub counters: InvocationCounters,
    /// Files that the model read or was given.
    pub used: Mutex<UsedFiles>,
    pub tool_names: ToolNames,
    /// Whether the mirrors of the executors have plugins.
    pub has_plugins: bool,
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
            texts: Mutex::default(),
            inner,
            #[cfg(feature = "handlers")]
            custom_tools: Arc::default(),
        })
    }

    /// Returns the listed skills of now.
    pub(super) fn current_view(&self) -> Arc<SessionView> {
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
    pub(super) fn check_choice(
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
        let skill = snapshot.listing.skills.iter().find(|skill| {
            skill.package == package && AuthorityRef::of_skill(skill).id == authority
        });
        let is_included = match skill {
            Some(skill) => choice.includes(source, &skill.name, package),
            // The source reports why the skill cannot be used.
            None => snapshot.unavailable_reason.is_some(),
        };

        if is_included {
            Ok(())
        } else {
            let message = "the session does not have the skill";
            Err(ToolError::from_code(
                ToolErrorCode::PackageNotFound,
                message,
            ))
        }
    }

    /// Returns an authority with its source.
    pub(super) fn find_authority(
        &self,
        kind: &str,
        id: &str,
    ) -> Result<AuthoritySource<'_>, ToolError> {
        let found = self
            .authority_sources()
            .find(|authority| authority.source.kind().name() == kind && authority.id == id);

        found.ok_or_else(|| {
            let message = format!("no authority {{kind: {kind:?}, id: {id:?}}} is in this session");
            ToolError::from_code(ToolErrorCode::UnknownAuthority, &message)
        })
    }

    /// Returns the authority of a package. If handles of several authorities begin like the package,
    /// returns the one that lists the package.
    pub(super) fn authority_of_package(
        &self,
        package: &str,
    ) -> Result<AuthoritySource<'_>, ToolError> {
        let owners: Vec<_> = self
            .authority_sources()
            .filter(|authority| authority.source.owns_handle(authority.id, package))
            .collect();
        if let [only] = owners.as_slice() {
            return Ok(*only);
        }

        let listing: Vec<_> = owners
            .iter()
            .filter(|authority| authority.lists_package(package))
            .collect();
        match listing.as_slice() {
            [] => {
                let message = "no source of this session has such a package";
                Err(ToolError::from_code(
                    ToolErrorCode::PackageNotFound,
                    message,
                ))
            }
            [only] => Ok(**only),
            several => {
                let names: Vec<_> = several.iter().map(|owner| owner.to_json()).collect();
                let message = format!("several sources have the package: {}", names.join(", "));
                Err(ToolError::from_code(
                    ToolErrorCode::AmbiguousAuthority,
                    &message,
                ))
            }
        }
    }

    fn authority_sources(&self) -> impl Iterator<Item = AuthoritySource<'_>> {
        self.authorities.iter().map(|authority| AuthoritySource {
            id: &authority.id,
            source: &*self.sources[authority.source_index],
        })
    }
}

impl AuthoritySource<'_> {
    fn lists_package(&self, package: &str) -> bool {
        let snapshot = self.source.snapshot();
        let mut skills = snapshot.listing.skills.iter();
        skills.any(|skill| skill.package == package && AuthorityRef::of_skill(skill).id == self.id)
    }

    /// Returns the authority as the argument of a call.
    fn to_json(self) -> String {
        let kind = self.source.kind().name();
        serde_json::json!({ "kind": kind, "id": self.id }).to_string()
    }
}

impl SessionInner {
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
