//! Daemon as a source of skills: a mirror of its catalog, pages of its files, and a limit of
//! concurrent calls. The daemon of an executor has the kind `executor`; a daemon inside this
//! process may have another kind.

use super::mirror_changes::{mirror_changes, unavailable_reason};
use super::{
    PackageFile, PackageFilesPage, PackageFilesRequest, SkillListing, SkillSource, SourceChanges,
    SourceKind, SourceSnapshot, TextPage, TextPageRequest, WholeFile, check_requested,
    invalid_response_error, unavailable_error, unknown_digests_error, unlisted_package_error,
    wrong_authority_error,
};
use crate::options::session_options::SessionOptions;
use crate::skills::readiness::is_missing_something;
use crate::skills::result::{ToolError, ToolErrorCode};
use crate::skills::skill::mirrored_view;
use caproot_client::{
    CallError, Client, Fleet, Mirror, MirrorCatalog, MirrorSelection, MirrorSnapshot, MirrorState,
    ResumePoint, is_of_root, listed_package_files,
};
use caproot_core::lock::{ApprovedFiles, MAX_PACKAGE_FILES};
use caproot_core::proto::caproot::v1::{
    Authority, ListResourcesRequest, Plugin, ReadResourceRequest, ReadResourceResponse, Resource,
    RootReason, RootState, RootStatus, SelectedCapabilityRoot, Skill,
};
use caproot_core::sync::Mutex;
use caproot_core::wire::handle::{ResourceHandle, is_within};
use futures_util::future::BoxFuture;
use serde::Serialize;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

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
    /// Ids of roots that may be missing without a warning.
    optional_roots: Vec<String>,
    /// Whether skills that miss something on the executor are left out.
    ready_only: bool,
    /// Whether the mirror has more roots than `roots`.
    is_partial: bool,
    cached_listing: Mutex<CachedListing>,
}

/// Latest listing, with the catalog from which it was built.
#[derive(Debug, Default)]
struct CachedListing {
    catalog: Arc<MirrorCatalog>,
    listing: Arc<SkillListing>,
}

/// Mirrored catalog, and the reason if the catalog must not be used.
struct CatalogAvailability {
    catalog: Arc<MirrorCatalog>,
    unavailable_reason: Option<String>,
}

#[derive(Debug)]
struct DaemonConnection {
    client: Client,
    mirror: Mirror,
    permits: Semaphore,
}

/// State of one executor of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
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
    /// Number of mirrored skills that the session has.
    pub skills: usize,
}

/// State of the connection of a session to an executor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema)]
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

impl DaemonSource {
    /// Starts the source of an environment's executor. Waits for the first list at most for the
    /// start timeout.
    pub(crate) async fn start_executor(
        fleet: &Fleet,
        environment_id: String,
        selection: MirrorSelection,
        from: Option<ResumePoint>,
        options: &SessionOptions,
    ) -> Self {
        let roots = selection.roots.clone();
        let client = fleet.lazy_client(&environment_id);
        let mirror = match from {
            Some(from) => fleet.resume_mirror(&environment_id, selection, from),
            None => fleet.mirror(&environment_id, selection),
        };
        let connection = DaemonConnection::start(client, mirror, options.start_timeout).await;

        Self::new(
            SourceKind::Executor,
            environment_id,
            roots,
            connection,
            options,
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
            view: mirrored_view(options.has_plugins()),
            ..MirrorSelection::new(roots.clone())
        };
        let mirror = Mirror::start(&client, selection);
        let connection = DaemonConnection::start(client, mirror, options.start_timeout).await;

        Self::new(kind, id.to_owned(), roots, connection, options)
    }

    fn new(
        kind: SourceKind,
        id: String,
        roots: Vec<SelectedCapabilityRoot>,
        connection: DaemonConnection,
        options: &SessionOptions,
    ) -> Self {
        Self {
            kind,
            id,
            roots,
            connection: Arc::new(connection),
            grace_period: options.grace_period,
            ready_only: options.ready_only,
            optional_roots: Vec::new(),
            is_partial: false,
            cached_listing: Mutex::default(),
        }
    }

    /// Returns the source without warnings about these roots while their directories do not exist.
    #[must_use]
    pub fn with_optional_roots(self, optional_roots: Vec<String>) -> Self {
        Self {
            optional_roots,
            // A listing may have been built with the warnings.
            cached_listing: Mutex::default(),
            ..self
        }
    }

    /// Returns the mirrored catalog. The catalog of a lost daemon can be used during the grace
    /// period.
    fn catalog_availability(&self) -> CatalogAvailability {
        let snapshot = self.connection.mirror.snapshot();
        CatalogAvailability {
            unavailable_reason: unavailable_reason(&snapshot.state, self.grace_period),
            catalog: snapshot.catalog,
        }
    }

    fn unavailable_error(&self, reason: &str) -> ToolError {
        unavailable_error(self.kind, &self.id, reason)
    }

    /// Returns a permit for a call.
    async fn acquire_permit(&self) -> Result<SemaphorePermit<'_>, ToolError> {
        let permit = timeout(PERMIT_TIMEOUT, self.connection.permits.acquire()).await;
        permit.ok().and_then(Result::ok).ok_or_else(|| {
            let message = "too many calls wait for this executor";
            ToolError::from_code(ToolErrorCode::Overloaded, message)
        })
    }

    /// Returns the root of a listed skill, or of the plugin of a listed skill if `allows_plugin`.
    fn find_root(
        &self,
        id: &str,
        package: &str,
        allows_plugin: bool,
    ) -> Result<&SelectedCapabilityRoot, ToolError> {
        if !is_of_root(package, id) {
            return Err(wrong_authority_error());
        }

        let CatalogAvailability {
            catalog,
            unavailable_reason,
        } = self.catalog_availability();
        if let Some(reason) = unavailable_reason {
            return Err(self.unavailable_error(&reason));
        }
        let is_plugin_of = |skill: &Arc<Skill>| skill.plugin_package() == Some(package);
        let is_listed = catalog.skill(package).is_some()
            || (allows_plugin && catalog.skills().any(is_plugin_of));
        if !is_listed {
            return Err(missing_skill_error(&catalog, id));
        }

        let root = self.roots.iter().find(|root| root.id == id);
        root.ok_or_else(|| self.unavailable_error("it has other roots"))
    }

    /// Returns the call for a page of a listed skill, or of a file of its plugin.
    fn read_request(&self, request: &TextPageRequest) -> Result<ReadResourceRequest, ToolError> {
        // Only a file that the call names is read of a plugin: the list of its files would name those of skills
        // that a session leaves out.
        let names_file = !request.resource.is_empty();
        let root = self.find_root(&request.authority, &request.package, names_file)?;
        request.check_resource_in_package()?;
        Ok(ReadResourceRequest {
            root: Some(root.clone()),
            authority: Some(executor_authority(&root.id)),
            package: request.package.clone(),
            resource: request.resource.clone(),
            cursor: request.cursor.clone(),
            max_bytes: i64::try_from(request.max_bytes).unwrap_or(i64::MAX),
            ..ReadResourceRequest::default()
        })
    }

    async fn fetch_page(
        &self,
        request: &TextPageRequest,
    ) -> Result<ReadResourceResponse, ToolError> {
        let read = self.read_request(request)?;
        let _permit = self.acquire_permit().await?;
        let page = self.connection.client.read_page(&read).await;
        let page = self.tool_result(page)?;
        check_requested(&read, &page)?;
        Ok(page)
    }

    /// Reads a file of several pages again from its beginning, once its size is known to be within the limit.
    async fn fetch_whole(&self, request: &TextPageRequest) -> Result<WholeFile, ToolError> {
        let page = self.fetch_page(request).await?;
        let max_bytes = request.max_bytes as u64;
        if page.next_cursor.is_empty() || page.total_bytes > max_bytes {
            return WholeFile::from_response(page, request.max_bytes);
        }

        let read = self.read_request(request)?;
        let mut bytes = Vec::with_capacity(usize::try_from(page.total_bytes).unwrap_or_default());
        drop(page);
        // The file may have grown since the first page.
        let mut add_bytes = |more: &[u8]| {
            if bytes.len() + more.len() > request.max_bytes {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            bytes.extend_from_slice(more);
            Ok(())
        };

        let _permit = self.acquire_permit().await?;
        let mut client = self.connection.client.clone();
        let file = match client.read_resource(&read, 0, &mut add_bytes).await {
            Err(CallError::Output(_)) => Err(CallError::ChangedDuringRead),
            read => read,
        };
        let file = self.tool_result(file)?;
        check_requested(&read, &file)?;
        Ok(WholeFile {
            bytes,
            media_type: file.media_type,
        })
    }

    async fn fetch_files(
        &self,
        request: &PackageFilesRequest,
    ) -> Result<PackageFilesPage, ToolError> {
        let root = self.find_root(&request.authority, &request.package, false)?;
        let list = ListResourcesRequest {
            root: Some(root.clone()),
            authority: Some(executor_authority(&root.id)),
            package: request.package.clone(),
            page_token: request.page_token.clone(),
            ..ListResourcesRequest::default()
        };

        let _permit = self.acquire_permit().await?;
        let mut client = self.connection.client.clone();
        // One page: the next page is another call.
        let page = client.list_resources_until(&list, 0);
        let page = self.tool_result(page.await)?;

        let files: Option<Vec<PackageFile>> = page
            .resources
            .into_iter()
            .map(|file| package_file(&request.package, file))
            .collect();
        let files = files.ok_or_else(|| {
            invalid_response_error("the executor", "a listed file is not in the package")
        })?;
        Ok(PackageFilesPage {
            files,
            next_page_token: page.next_page_token,
            truncated: page.truncated,
        })
    }

    /// Lists the files with their digests. Returns an error if a lock could not approve the list.
    async fn list_digests(
        &self,
        authority: &str,
        package: &str,
    ) -> Result<ApprovedFiles, ToolError> {
        let root = self.find_root(authority, package, false)?;
        let list = ListResourcesRequest {
            root: Some(root.clone()),
            authority: Some(executor_authority(&root.id)),
            package: package.to_owned(),
            include_digests: true,
            ..ListResourcesRequest::default()
        };

        let _permit = self.acquire_permit().await?;
        let mut client = self.connection.client.clone();
        let listed = client.list_resources_until(&list, MAX_PACKAGE_FILES);
        let listed = self.tool_result(listed.await)?;
        let is_whole = !listed.truncated && listed.next_page_token.is_empty();
        is_whole
            .then(|| listed_package_files(package, &listed.resources, &listed.withheld))
            .flatten()
            .ok_or_else(unknown_digests_error)
    }

    /// Returns the result of a call, with an error for a model.
    fn tool_result<T>(&self, called: Result<T, CallError>) -> Result<T, ToolError> {
        called.map_err(|error| {
            ToolError::from_call_error(&error)
                .unwrap_or_else(|| self.unavailable_error(&error.to_string()))
        })
    }

    /// Returns a source with the same mirror and permits for a part of the roots, or `None` if no
    /// root is left.
    pub(crate) fn restricted_to(&self, is_included: &dyn Fn(&str) -> bool) -> Option<Self> {
        let roots: Vec<_> = self
            .roots
            .iter()
            .filter(|root| is_included(&root.id))
            .cloned()
            .collect();

        (!roots.is_empty()).then(|| Self {
            kind: self.kind,
            id: self.id.clone(),
            connection: self.connection.clone(),
            grace_period: self.grace_period,
            optional_roots: self.optional_roots.clone(),
            ready_only: self.ready_only,
            is_partial: self.is_partial || roots.len() < self.roots.len(),
            cached_listing: Mutex::default(),
            roots,
        })
    }

    /// Returns the state of each root of the source, once the daemon has answered.
    pub(crate) fn root_statuses(&self) -> Vec<RootStatus> {
        let catalog = self.connection.mirror.snapshot().catalog;
        let roots = catalog.roots().iter();
        roots
            .filter(|root| self.includes_root(&root.id))
            .cloned()
            .collect()
    }

    /// Returns a snapshot of the mirror.
    pub(crate) fn mirror_snapshot(&self) -> MirrorSnapshot {
        self.connection.mirror.snapshot()
    }

    /// Returns whether the mirror has roots that the source does not list.
    pub(crate) fn is_partial(&self) -> bool {
        self.is_partial
    }

    fn includes_root(&self, root: &str) -> bool {
        !self.is_partial || self.roots.iter().any(|selected| selected.id == root)
    }

    /// Returns whether a root is optional, and its directory does not exist.
    fn may_be_missing(&self, root: &RootStatus) -> bool {
        root.reason() == RootReason::NotFound && self.optional_roots.contains(&root.id)
    }

    /// Returns whether a skill or plugin with this authority belongs to a root of the source.
    fn includes_authority(&self, authority: Option<&Authority>) -> bool {
        authority.is_some_and(|authority| self.includes_root(&authority.id))
    }

    /// Returns the skills of the source's roots.
    fn selected_skills<'a>(
        &'a self,
        catalog: &'a MirrorCatalog,
    ) -> impl Iterator<Item = &'a Arc<Skill>> {
        catalog
            .skills()
            .filter(|skill| self.includes_authority(skill.authority.as_ref()))
    }

    /// Returns a skill or plugin of the daemon, with the source's kind in the field `authority`.
    fn with_own_kind<T: Clone>(
        &self,
        item: &Arc<T>,
        authority: impl FnOnce(&mut T) -> &mut Option<Authority>,
    ) -> Arc<T> {
        if self.kind == SourceKind::Executor {
            return item.clone();
        }

        let mut item = T::clone(item);
        if let Some(authority) = authority(&mut item) {
            self.kind.name().clone_into(&mut authority.kind);
        }
        Arc::new(item)
    }

    /// Returns a catalog as a listing of the source's kind.
    fn build_listing(&self, catalog: &MirrorCatalog) -> SkillListing {
        let mut warnings = Vec::new();
        let mut skills: Vec<_> = self
            .selected_skills(catalog)
            .map(|skill| with_readiness(catalog, skill))
            .map(|skill| self.with_own_kind(&skill, |skill| &mut skill.authority))
            .collect();
        if self.ready_only {
            let all = skills.len();
            skills.retain(|skill| !is_missing_something(skill));
            warnings.extend(left_out_warning(all - skills.len(), &self.id));
        }

        let mut truncated = false;
        let mut reserved_names = Vec::new();
        for root in catalog.roots() {
            if !self.includes_root(&root.id) {
                continue;
            }
            if root.state() != RootState::Ready && !self.may_be_missing(root) {
                warnings.push(format!("root {:?} is not ready: {}", root.id, root.message));
            }
            truncated |= root.truncated;
            reserved_names.extend(root.reserved_names.iter().cloned());
        }

        SkillListing {
            skills,
            warnings,
            truncated,
            reserved_names,
        }
    }

    /// Returns the state of the connection and of the catalog.
    pub(crate) fn state(&self) -> ExecutorState {
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

/// Adds the readiness on the executor to a skill. Mirrors share the skills, so a skill with a readiness is
/// a copy.
fn with_readiness(catalog: &MirrorCatalog, skill: &Arc<Skill>) -> Arc<Skill> {
    let root_id = skill.authority.as_ref().map(|authority| &*authority.id);
    let readiness = catalog.readiness(root_id.unwrap_or_default(), &skill.package);
    match readiness {
        None => skill.clone(),
        Some(readiness) => Arc::new(Skill {
            readiness: Some(readiness.clone()),
            ..Skill::clone(skill)
        }),
    }
}

fn left_out_warning(count: usize, id: &str) -> Option<String> {
    (count > 0).then(|| {
        format!(
            "skills of {id:?} that are left out, because they miss programs, variables or their \
             platform: {count}"
        )
    })
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
        let CatalogAvailability {
            catalog,
            unavailable_reason,
        } = self.catalog_availability();

        // The lock is held while the listing is built, so that concurrent calls build it once.
        let mut cached = self.cached_listing.lock();
        if !Arc::ptr_eq(&cached.catalog, &catalog) {
            cached.listing = Arc::new(self.build_listing(&catalog));
            cached.catalog = catalog;
        }
        SourceSnapshot {
            listing: cached.listing.clone(),
            unavailable_reason,
        }
    }

    fn changes(&self) -> SourceChanges {
        let mut mirror = self.connection.mirror.clone();
        mirror.mark_seen();
        mirror_changes(mirror, self.grace_period)
    }

    fn plugins(&self) -> Vec<Arc<Plugin>> {
        let availability = self.catalog_availability();
        if availability.unavailable_reason.is_some() {
            return Vec::new();
        }
        availability
            .catalog
            .plugins()
            .filter(|plugin| self.includes_authority(plugin.authority.as_ref()))
            .map(|plugin| self.with_own_kind(plugin, |plugin| &mut plugin.authority))
            .collect()
    }

    fn read_timeout(&self) -> Duration {
        // A call is repeated once after a token was renewed.
        PERMIT_TIMEOUT + 2 * self.connection.client.timeout()
    }

    fn read_page<'a>(
        &'a self,
        request: &'a TextPageRequest,
    ) -> BoxFuture<'a, Result<TextPage, ToolError>> {
        Box::pin(async { TextPage::from_response(self.fetch_page(request).await?) })
    }

    fn read_whole<'a>(
        &'a self,
        request: &'a TextPageRequest,
    ) -> BoxFuture<'a, Result<WholeFile, ToolError>> {
        Box::pin(self.fetch_whole(request))
    }

    fn skill_files<'a>(
        &'a self,
        authority: &'a str,
        package: &'a str,
    ) -> BoxFuture<'a, Result<ApprovedFiles, ToolError>> {
        Box::pin(self.list_digests(authority, package))
    }

    fn list_files<'a>(
        &'a self,
        request: &'a PackageFilesRequest,
    ) -> BoxFuture<'a, Result<PackageFilesPage, ToolError>> {
        Box::pin(self.fetch_files(request))
    }
}

impl DaemonConnection {
    async fn start(client: Client, mirror: Mirror, start_timeout: Duration) -> Self {
        mirror.wait_until_live_or_failed(start_timeout).await;
        Self {
            client,
            mirror,
            permits: Semaphore::new(MAX_CONCURRENT_CALLS),
        }
    }
}

/// Returns the authority of a root. A daemon knows authorities of the kind `executor` only.
fn executor_authority(root_id: &str) -> Authority {
    Authority {
        kind: SourceKind::Executor.name().to_owned(),
        id: root_id.to_owned(),
    }
}

/// Returns a listed file, or `None` if the handle is not canonical or not in the package.
fn package_file(package: &str, file: Resource) -> Option<PackageFile> {
    let is_below = is_within(&file.resource, package) && file.resource != package;
    if !is_below || ResourceHandle::parse(&file.resource).is_err() {
        return None;
    }
    Some(PackageFile {
        resource: file.resource,
        size_bytes: Some(file.size_bytes),
        media_type: file.media_type,
    })
}

/// Returns the error of a skill that the catalog does not have: its root may not be ready.
fn missing_skill_error(catalog: &MirrorCatalog, root: &str) -> ToolError {
    let status = catalog.roots().iter().find(|status| status.id == root);
    match status {
        Some(status) if status.state() != RootState::Ready => {
            let message = format!("the root {root:?} is not ready: {}", status.message);
            ToolError::from_code(ToolErrorCode::RootUnavailable, &message)
        }
        _ => unlisted_package_error(),
    }
}
