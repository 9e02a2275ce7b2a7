//! Daemon as a source of skills: a mirror of its catalog, pages of its files, and a limit of
//! concurrent calls. The daemon of an executor has the kind `executor`; a daemon inside this
//! process may have another kind.

use super::mirror_watch::{MirrorWatch, unavailable_reason};
use super::{
    SkillListing, SkillSource, SourceKind, SourceSnapshot, SourceWatch, TextPage, TextPageRequest,
    unavailable_error,
};
use crate::session::options::SessionOptions;
use crate::session::request_metrics::{RequestCounter, RequestMetrics};
use crate::session::result::{ToolError, ToolErrorCode};
use crate::{
    CallError, Client, Fleet, Mirror, MirrorCatalog, MirrorSelection, MirrorSnapshot, MirrorState,
    ResumePoint, is_of_root,
};
use caproot_core::proto::caproot::v1::{
    Authority, Plugin, ReadResourceRequest, RootState, SelectedCapabilityRoot, Skill, SkillView,
};
use caproot_core::sync::Mutex;
use futures_util::future::BoxFuture;
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

/// Concurrent calls of one daemon by one session; further calls wait.
const MAX_CONCURRENT_CALLS: usize = 16;
/// How long a call waits for a permit.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(30);

/// Skills of a daemon, for one selection of its roots.
#[derive(Debug)]
pub struct DaemonSource {
    kind: SourceKind,
    id: String,
    roots: Vec<SelectedCapabilityRoot>,
    connection: Arc<DaemonConnection>,
    grace_period: Duration,
    /// Whether the mirror has more roots than `roots`.
    is_partial: bool,
    /// Latest listing, with the catalog from which it was built.
    cached_listing: Mutex<(Arc<MirrorCatalog>, Arc<SkillListing>)>,
}

#[derive(Debug)]
struct DaemonConnection {
    client: Client,
    mirror: Mirror,
    permits: Semaphore,
    requests: RequestCounter,
}

/// State of one executor of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExecutorState {
    /// Environment of the executor.
    pub environment_id: String,
    /// State of the connection.
    pub state: ExecutorStatus,
    /// Reason if the executor is not live.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Start of the daemon to which the revision belongs.
    pub epoch: String,
    /// Revision of the mirrored catalog.
    pub revision: u64,
    /// Number of mirrored skills.
    pub skills: usize,
}

/// State of the connection of a session to an executor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ExecutorStatus {
    /// The executor has not answered yet.
    Connecting,
    /// The executor has never answered, and no answer is expected now: no daemon listens at its
    /// address, the daemon rejected the request, or the fleet has no executor for the environment.
    /// The session retries.
    Failed,
    /// The listed skills are the executor's.
    Live,
    /// The executor is lost. The listed skills are its last ones.
    Stale,
}

/// Returns the detail of the mirrored skills. Only the full view has plugins.
pub fn mirrored_view(options: &SessionOptions) -> SkillView {
    if options.plugins {
        SkillView::Full
    } else {
        SkillView::Basic
    }
}

impl DaemonSource {
    /// Starts the source of an environment's executor. Waits for the first list at most for the
    /// start timeout.
    pub async fn start_executor(
        fleet: &Fleet,
        environment_id: String,
        selection: MirrorSelection,
        from: Option<ResumePoint>,
        options: &SessionOptions,
    ) -> Self {
        let roots = selection.roots.clone();
        let deadline = Instant::now() + options.start_timeout;
        let client = fleet.lazy_client(&environment_id);
        let mirror = match from {
            Some(from) => fleet.resume_mirror(&environment_id, selection, from),
            None => fleet.mirror(&environment_id, selection),
        };
        let connection = DaemonConnection::start(client, mirror, deadline).await;
        Self::new(
            SourceKind::Executor,
            environment_id,
            roots,
            connection,
            options.grace_period,
        )
    }

    /// Starts a source of this kind and id with a client of the daemon. Waits for the first list at
    /// most for the start timeout of the options.
    pub async fn start(
        kind: SourceKind,
        id: &str,
        client: Client,
        roots: Vec<SelectedCapabilityRoot>,
        options: &SessionOptions,
    ) -> Self {
        let selection = MirrorSelection {
            product: options.product.clone(),
            view: mirrored_view(options),
            ..MirrorSelection::new(roots.clone())
        };
        let deadline = Instant::now() + options.start_timeout;
        let mirror = Mirror::start(&client, selection);
        let connection = DaemonConnection::start(client, mirror, deadline).await;
        Self::new(kind, id.to_owned(), roots, connection, options.grace_period)
    }

    fn new(
        kind: SourceKind,
        id: String,
        roots: Vec<SelectedCapabilityRoot>,
        connection: DaemonConnection,
        grace_period: Duration,
    ) -> Self {
        Self {
            kind,
            id,
            roots,
            connection: Arc::new(connection),
            grace_period,
            is_partial: false,
            cached_listing: Mutex::default(),
        }
    }

    /// Returns the mirrored catalog, and the reason if the catalog must not be used. The catalog of
    /// a lost daemon can be used during the grace period.
    fn usable_catalog(&self) -> (Arc<MirrorCatalog>, Option<String>) {
        let snapshot = self.connection.mirror.snapshot();
        let reason = unavailable_reason(&snapshot.state, self.grace_period);
        (snapshot.catalog, reason)
    }

    fn unavailable_error(&self, reason: &str) -> ToolError {
        unavailable_error(self.kind, &self.id, reason)
    }

    /// Returns the connection and a permit for a call.
    async fn acquire_permit(&self) -> Result<(&DaemonConnection, SemaphorePermit<'_>), ToolError> {
        let connection = &*self.connection;
        let permit = tokio::time::timeout(PERMIT_TIMEOUT, connection.permits.acquire()).await;
        match permit {
            Ok(Ok(permit)) => Ok((connection, permit)),
            Ok(Err(_)) | Err(_) => Err(ToolError::from_code(
                ToolErrorCode::Overloaded,
                "too many calls wait for this executor",
            )),
        }
    }

    /// Returns the root of a listed package.
    fn find_root(&self, request: &TextPageRequest) -> Result<&SelectedCapabilityRoot, ToolError> {
        let TextPageRequest {
            authority: id,
            package,
            ..
        } = request;
        if !is_of_root(package, id) {
            return Err(ToolError::from_code(
                ToolErrorCode::WrongAuthority,
                "the package belongs to another authority",
            ));
        }
        let (catalog, reason) = self.usable_catalog();
        if let Some(reason) = reason {
            return Err(self.unavailable_error(&reason));
        }
        if catalog.skill(package).is_none() {
            let status = catalog.roots().iter().find(|root| root.id == *id);
            if let Some(status) = status.filter(|status| status.state() != RootState::Ready) {
                let message = format!("the root {id:?} is not ready: {}", status.message);
                return Err(ToolError::from_code(
                    ToolErrorCode::RootUnavailable,
                    &message,
                ));
            }
            return Err(ToolError::from_code(
                ToolErrorCode::PackageNotFound,
                "the skill does not exist now",
            ));
        }
        let root = self.roots.iter().find(|root| root.id == *id);
        root.ok_or_else(|| self.unavailable_error("it has other roots"))
    }

    async fn fetch_page(&self, request: &TextPageRequest) -> Result<TextPage, ToolError> {
        let root = self.find_root(request)?;
        request.check_resource_in_package()?;
        let read = ReadResourceRequest {
            root: Some(root.clone()),
            // The daemon knows authorities of the kind `executor` only.
            authority: Some(Authority {
                kind: "executor".to_owned(),
                id: root.id.clone(),
            }),
            package: request.package.clone(),
            resource: request.resource.clone(),
            cursor: request.cursor.clone(),
            max_bytes: i64::try_from(request.max_bytes).unwrap_or(i64::MAX),
            ..ReadResourceRequest::default()
        };
        let (connection, _permit) = self.acquire_permit().await?;
        let page = connection
            .requests
            .count(connection.client.read_page(&read))
            .await;
        TextPage::from_response(&read, page.map_err(|error| self.tool_error(&error))?)
    }

    /// Returns the error of a failed call for a model.
    fn tool_error(&self, error: &CallError) -> ToolError {
        ToolError::from_call_error(error)
            .unwrap_or_else(|| self.unavailable_error(&error.to_string()))
    }

    /// Returns a source with the same mirror and permits for a part of the roots, or `None` if no
    /// root is left.
    pub fn restricted_to(&self, is_included: &dyn Fn(&str) -> bool) -> Option<Self> {
        let roots = self
            .roots
            .iter()
            .filter(|root| is_included(&root.id))
            .cloned();
        let roots: Vec<_> = roots.collect();
        (!roots.is_empty()).then(|| Self {
            kind: self.kind,
            id: self.id.clone(),
            connection: self.connection.clone(),
            grace_period: self.grace_period,
            is_partial: self.is_partial || roots.len() < self.roots.len(),
            cached_listing: Mutex::default(),
            roots,
        })
    }

    /// Returns a snapshot of the mirror.
    pub fn mirror_snapshot(&self) -> MirrorSnapshot {
        self.connection.mirror.snapshot()
    }

    /// Returns whether the mirror has roots that the source does not list.
    pub fn is_partial(&self) -> bool {
        self.is_partial
    }

    fn includes_root(&self, root: &str) -> bool {
        !self.is_partial || self.roots.iter().any(|selected| selected.id == root)
    }

    /// Returns the skills of the source's roots.
    fn selected_skills<'a>(
        &'a self,
        catalog: &'a MirrorCatalog,
    ) -> impl Iterator<Item = &'a Arc<Skill>> {
        let owner = |skill: &Arc<Skill>| skill.authority.as_ref().map(|owner| owner.id.clone());
        catalog.skills().filter(move |skill| {
            !self.is_partial || owner(skill).is_some_and(|owner| self.includes_root(&owner))
        })
    }

    /// Returns the authority of a daemon as an authority of the source's kind.
    fn own_authority(&self, authority: Option<Authority>) -> Option<Authority> {
        authority.map(|authority| Authority {
            kind: self.kind.name().to_owned(),
            ..authority
        })
    }

    /// Returns a catalog as a listing of the source's kind.
    fn build_listing(&self, catalog: &MirrorCatalog) -> SkillListing {
        let of_kind = |skill: &Arc<Skill>| {
            if self.kind == SourceKind::Executor {
                return skill.clone();
            }
            let skill = Skill::clone(skill);
            Arc::new(Skill {
                authority: self.own_authority(skill.authority),
                ..skill
            })
        };
        let roots = || {
            catalog
                .roots()
                .iter()
                .filter(|root| self.includes_root(&root.id))
        };
        let unready = roots().filter(|root| root.state() != RootState::Ready);
        SkillListing {
            skills: self.selected_skills(catalog).map(of_kind).collect(),
            warnings: unready
                .map(|root| format!("root {:?} is not ready: {}", root.id, root.message))
                .collect(),
            truncated: roots().any(|root| root.truncated),
        }
    }

    /// Returns the state of the connection and of the catalog.
    #[must_use]
    pub fn state(&self) -> ExecutorState {
        let snapshot = self.connection.mirror.snapshot();
        let (state, reason) = match &snapshot.state {
            MirrorState::Live => (ExecutorStatus::Live, None),
            MirrorState::Stale { why, .. } => (ExecutorStatus::Stale, Some(why)),
            MirrorState::Connecting(why) => (ExecutorStatus::Connecting, why.as_ref()),
            MirrorState::Failed(why) => (ExecutorStatus::Failed, Some(why)),
        };
        ExecutorState {
            environment_id: self.id.clone(),
            state,
            reason: reason.map(ToString::to_string),
            epoch: snapshot.epoch.to_string(),
            revision: snapshot.revision,
            skills: self.selected_skills(&snapshot.catalog).count(),
        }
    }
}

impl SkillSource for DaemonSource {
    fn kind(&self) -> SourceKind {
        self.kind
    }

    fn id(&self) -> &str {
        &self.id
    }

    fn authorities(&self) -> Vec<String> {
        self.roots.iter().map(|root| root.id.clone()).collect()
    }

    fn snapshot(&self) -> SourceSnapshot {
        let (catalog, unavailable) = self.usable_catalog();
        let mut last = self.cached_listing.lock();
        if !Arc::ptr_eq(&last.0, &catalog) {
            *last = (catalog.clone(), Arc::new(self.build_listing(&catalog)));
        }
        SourceSnapshot {
            listing: last.1.clone(),
            unavailable_reason: unavailable,
        }
    }

    fn watch(&self) -> Option<Box<dyn SourceWatch>> {
        let mut mirror = self.connection.mirror.clone();
        mirror.mark_seen();
        Some(Box::new(MirrorWatch::new(mirror, self.grace_period)))
    }

    fn plugins(&self) -> Vec<Arc<Plugin>> {
        let (catalog, unavailable) = self.usable_catalog();
        let is_listed = |plugin: &&Arc<Plugin>| {
            let owner = plugin.authority.as_ref();
            unavailable.is_none() && owner.is_some_and(|owner| self.includes_root(&owner.id))
        };
        let of_kind = |plugin: &Arc<Plugin>| {
            if self.kind == SourceKind::Executor {
                return plugin.clone();
            }
            let plugin = Plugin::clone(plugin);
            Arc::new(Plugin {
                authority: self.own_authority(plugin.authority),
                ..plugin
            })
        };
        catalog.plugins().filter(is_listed).map(of_kind).collect()
    }

    fn request_metrics(&self) -> RequestMetrics {
        self.connection.requests.snapshot()
    }

    fn read_timeout(&self) -> Duration {
        // A call is repeated once after a token was renewed.
        PERMIT_TIMEOUT + 2 * self.connection.client.timeout()
    }

    fn read_page<'a>(
        &'a self,
        request: &'a TextPageRequest,
    ) -> BoxFuture<'a, Result<TextPage, ToolError>> {
        Box::pin(self.fetch_page(request))
    }
}

impl DaemonConnection {
    async fn start(client: Client, mirror: Mirror, deadline: Instant) -> Self {
        mirror
            .wait_until_live_or_failed(deadline.saturating_duration_since(Instant::now()))
            .await;
        Self {
            client,
            mirror,
            permits: Semaphore::new(MAX_CONCURRENT_CALLS),
            requests: RequestCounter::default(),
        }
    }
}
