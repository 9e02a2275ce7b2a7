//! Daemon as a source of skills: a mirror of its catalog, pages of its files, and a limit of
//! concurrent calls. The daemon of an executor has the kind `executor`; a daemon inside this
//! process may have another kind.

use super::mirror_changes::{mirror_changes, unavailable_reason};
use super::{
    PackageFile, PackageFilesPage, PackageFilesRequest, SkillListing, SkillSource, SourceChanges,
    SourceKind, SourceSnapshot, TextPage, TextPageRequest, WholeFile, authority_of,
    check_requested, invalid_response_error, larger_file_error, missing_body_error,
    unavailable_error, unknown_digests_error, unlisted_package_error, wrong_authority_error,
};
use crate::options::session_options::SessionOptions;
use crate::skills::readiness::is_missing_something;
use crate::skills::result::{ToolError, ToolErrorCode};
use crate::skills::skill::{AuthorityRef, mirrored_view};
use caproot_client::{
    CallError, Client, Fleet, Mirror, MirrorCatalog, MirrorSelection, MirrorSnapshot, MirrorState,
    ResumePoint, is_of_root, listed_package_files,
};
use caproot_core::lock::{ApprovedFiles, MAX_PACKAGE_FILES};
use caproot_core::proto::caproot::v1::read_resource_response::Body;
use caproot_core::proto::caproot::v1::{
    Authority, ListResourcesRequest, ListResourcesResponse, Plugin, ReadResourceRequest,
    ReadResourceResponse, RootReason, RootState, RootStatus, SelectedCapabilityRoot, Skill,
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
    client: Client,
    mirror: Mirror,
    permits: Arc<Semaphore>,
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

        Self::new(environment_id, roots, client, mirror, options).await
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

        Self {
            kind,
            ..Self::new(id.to_owned(), roots, client, mirror, options).await
        }
    }

    /// Returns the source of an executor, once its mirror has a list or has failed.
    async fn new(
        id: String,
        roots: Vec<SelectedCapabilityRoot>,
        client: Client,
        mirror: Mirror,
        options: &SessionOptions,
    ) -> Self {
        mirror
            .wait_until_live_or_failed(options.start_timeout)
            .await;

        Self {
            kind: SourceKind::Executor,
            id,
            roots,
            client,
            mirror,
            permits: Arc::new(Semaphore::new(MAX_CONCURRENT_CALLS)),
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

    fn unavailable_error(&self, reason: &str) -> ToolError {
        unavailable_error(self.kind, &self.id, reason)
    }

    /// Returns a permit for a call.
    async fn acquire_permit(&self) -> Result<SemaphorePermit<'_>, ToolError> {
        let permit = timeout(PERMIT_TIMEOUT, self.permits.acquire()).await;
        permit.ok().and_then(Result::ok).ok_or_else(|| {
            ToolError::from_code(
                ToolErrorCode::Overloaded,
                "too many calls wait for this executor",
            )
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

        let MirrorSnapshot { catalog, state, .. } = self.mirror.snapshot();
        if let Some(reason) = unavailable_reason(&state, self.grace_period) {
            return Err(self.unavailable_error(&reason));
        }
        let is_listed = catalog.skill(package).is_some()
            || (allows_plugin
                && catalog
                    .skills()
                    .any(|skill| skill.plugin_package() == Some(package)));
        if !is_listed {
            return Err(
                match catalog.roots().iter().find(|status| status.id == id) {
                    Some(status) if status.state() != RootState::Ready => ToolError::from_code(
                        ToolErrorCode::RootUnavailable,
                        &format!("the root {id:?} is not ready: {}", status.message),
                    ),
                    _ => unlisted_package_error(),
                },
            );
        }

        self.roots
            .iter()
            .find(|root| root.id == id)
            .ok_or_else(|| self.unavailable_error("it has other roots"))
    }

    /// Returns the call for a page of a listed skill, or of a file of its plugin.
    fn read_request(&self, request: &TextPageRequest) -> Result<ReadResourceRequest, ToolError> {
        // Only a file that the call names is read of a plugin: the list of its files would name those of skills
        // that a session leaves out.
        let allows_plugin = !request.resource.is_empty();
        let root = self.find_root(&request.authority, &request.package, allows_plugin)?;
        request.check_resource_in_package()?;
        Ok(ReadResourceRequest {
            root: Some(root.clone()),
            // A daemon knows authorities of the kind `executor` only.
            authority: Some(authority_of(SourceKind::Executor, &root.id)),
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
        let page = self.tool_result(self.client.read_page(&read).await)?;
        check_requested(&read, &page)?;
        Ok(page)
    }

    /// Reads a file of several pages again from its beginning, once its size is known to be within the limit.
    async fn fetch_whole(&self, request: &TextPageRequest) -> Result<WholeFile, ToolError> {
        let page = self.fetch_page(request).await?;
        if page.next_cursor.is_empty() {
            return Ok(WholeFile {
                bytes: match page.body {
                    Some(Body::Contents(text)) => text.into_bytes(),
                    Some(Body::Data(data)) => data,
                    None => return Err(missing_body_error()),
                },
                media_type: page.media_type,
            });
        }
        let max_bytes = request.max_bytes as u64;
        if page.total_bytes > max_bytes {
            return Err(larger_file_error(page.total_bytes, max_bytes));
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
        let mut client = self.client.clone();
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
        let list = ListResourcesRequest {
            package: request.package.clone(),
            page_token: request.page_token.clone(),
            ..ListResourcesRequest::default()
        };
        // One page: the next page is another call.
        let page = self.list_resources(&request.authority, list, 0).await?;

        Ok(PackageFilesPage {
            files: page
                .resources
                .into_iter()
                .map(|file| {
                    let is_canonical = is_within(&file.resource, &request.package)
                        && file.resource != request.package
                        && ResourceHandle::parse(&file.resource).is_ok();
                    is_canonical.then_some(PackageFile {
                        resource: file.resource,
                        size_bytes: Some(file.size_bytes),
                        media_type: file.media_type,
                    })
                })
                .collect::<Option<_>>()
                .ok_or_else(|| {
                    invalid_response_error("the executor", "a listed file is not in the package")
                })?,
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
        let list = ListResourcesRequest {
            package: package.to_owned(),
            include_digests: true,
            ..ListResourcesRequest::default()
        };
        let listed = self
            .list_resources(authority, list, MAX_PACKAGE_FILES)
            .await?;
        let is_whole = !listed.truncated && listed.next_page_token.is_empty();
        is_whole
            .then(|| listed_package_files(package, &listed.resources, &listed.withheld))
            .flatten()
            .ok_or_else(unknown_digests_error)
    }

    /// Lists the files of a listed skill page by page, until there are more than `enough`.
    async fn list_resources(
        &self,
        authority: &str,
        list: ListResourcesRequest,
        enough: usize,
    ) -> Result<ListResourcesResponse, ToolError> {
        let root = self.find_root(authority, &list.package, false)?;
        let list = ListResourcesRequest {
            root: Some(root.clone()),
            authority: Some(authority_of(SourceKind::Executor, &root.id)),
            ..list
        };
        let _permit = self.acquire_permit().await?;
        let listed = self
            .client
            .clone()
            .list_resources_until(&list, enough)
            .await;
        self.tool_result(listed)
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
            client: self.client.clone(),
            mirror: self.mirror.clone(),
            permits: self.permits.clone(),
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
        let catalog = self.mirror.snapshot().catalog;
        catalog
            .roots()
            .iter()
            .filter(|root| self.includes_root(&root.id))
            .cloned()
            .collect()
    }

    /// Returns a snapshot of the mirror.
    pub(crate) fn mirror_snapshot(&self) -> MirrorSnapshot {
        self.mirror.snapshot()
    }

    /// Returns whether the mirror has roots that the source does not list.
    pub(crate) fn is_partial(&self) -> bool {
        self.is_partial
    }

    fn includes_root(&self, root: &str) -> bool {
        !self.is_partial || self.roots.iter().any(|selected| selected.id == root)
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
            let mut count = skills.len();
            skills.retain(|skill| !is_missing_something(skill));
            count -= skills.len();
            if count > 0 {
                warnings.push(format!(
                    "skills of {:?} that are left out, because they miss programs, variables or their platform: {count}",
                    self.id
                ));
            }
        }

        let mut truncated = false;
        let mut reserved_names = Vec::new();
        for root in catalog.roots() {
            if !self.includes_root(&root.id) {
                continue;
            }
            let may_be_missing =
                root.reason() == RootReason::NotFound && self.optional_roots.contains(&root.id);
            if root.state() != RootState::Ready && !may_be_missing {
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
        let snapshot = self.mirror.snapshot();
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
    match catalog.readiness(AuthorityRef::of_skill(skill).id, &skill.package) {
        None => skill.clone(),
        Some(readiness) => Arc::new(Skill {
            readiness: Some(readiness.clone()),
            ..Skill::clone(skill)
        }),
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
        let MirrorSnapshot { catalog, state, .. } = self.mirror.snapshot();

        // The lock is held while the listing is built, so that concurrent calls build it once.
        let mut cached = self.cached_listing.lock();
        if !Arc::ptr_eq(&cached.catalog, &catalog) {
            cached.listing = Arc::new(self.build_listing(&catalog));
            cached.catalog = catalog;
        }
        SourceSnapshot {
            listing: cached.listing.clone(),
            unavailable_reason: unavailable_reason(&state, self.grace_period),
        }
    }

    fn changes(&self) -> SourceChanges {
        let mut mirror = self.mirror.clone();
        mirror.mark_seen();
        mirror_changes(mirror, self.grace_period)
    }

    fn plugins(&self) -> Vec<Arc<Plugin>> {
        let MirrorSnapshot { catalog, state, .. } = self.mirror.snapshot();
        if unavailable_reason(&state, self.grace_period).is_some() {
            return Vec::new();
        }
        catalog
            .plugins()
            .filter(|plugin| self.includes_authority(plugin.authority.as_ref()))
            .map(|plugin| self.with_own_kind(plugin, |plugin| &mut plugin.authority))
            .collect()
    }

    fn read_timeout(&self) -> Duration {
        // A call is repeated once after a token was renewed.
        PERMIT_TIMEOUT + 2 * self.client.timeout()
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
