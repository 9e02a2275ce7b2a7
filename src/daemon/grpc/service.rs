//! `CapabilityService`: validates requests, queries the catalog store and builds responses.

use super::audit_log::AuditedCall;
use super::auth::{authenticated, caller_access_scope};
use super::catalog_digests::CatalogDigests;
use super::encoded_body::{ChunkStream, EncodedEvent, EncodedMessage};
use super::errors::{RpcError, shutting_down, too_many_streams};
use super::executor_info::DaemonInfo;
use super::load_limit::request_quota_key;
use super::message_cache::{EVENT_CACHE_LIMITS, MessageCache, MessageKey, PAGE_CACHE_LIMITS};
use super::quota::Quota;
use super::readiness_messages::{check_view, readiness_version};
use super::requests::PageRequest;
use super::watch_stream::WatchStream;
use super::{list_pages, requests, resources, root_messages};
use crate::daemon::catalog::{CatalogStore, CatalogView, ConsistencyLevel, ScopedSelection};
use crate::daemon::model::skill_file_name;
use crate::daemon::model::token::ReadCursor;
use crate::daemon::readiness::ReadinessChecker;
use bytes::Bytes;
use caproot_core::proto::caproot::v1 as pb;
use caproot_core::wire::cursor::Cursor as _;
use caproot_core::wire::handle;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Status};

/// Implementation of `caproot.v1.CapabilityService`.
#[derive(Debug)]
pub struct GrpcService {
    pub(super) store: CatalogStore,
    pub(super) readiness: ReadinessChecker,
    daemon_info: DaemonInfo,
    /// Cancelled when the daemon stops: ends the streams, and new calls are rejected.
    pub(super) shutdown: CancellationToken,
    /// Quota of open streams.
    stream_quota: Quota,
    /// Cached pages of `ListSkills`.
    page_cache: MessageCache<Bytes>,
    /// Cached events of streams.
    pub(super) event_cache: MessageCache<EncodedEvent>,
    /// Digests of served catalogs.
    pub(super) catalog_digests: CatalogDigests,
}

/// Encoded response of a method.
type RpcResult = Result<EncodedMessage, Status>;

impl GrpcService {
    /// Creates a service that serves the catalogs of `store` until `shutdown` is cancelled.
    #[must_use]
    pub fn new(
        store: CatalogStore,
        readiness: ReadinessChecker,
        daemon_info: DaemonInfo,
        stream_quota: Quota,
        shutdown: CancellationToken,
    ) -> Self {
        Self {
            store,
            readiness,
            daemon_info,
            shutdown,
            stream_quota,
            page_cache: MessageCache::new(PAGE_CACHE_LIMITS),
            event_cache: MessageCache::new(EVENT_CACHE_LIMITS),
            catalog_digests: CatalogDigests::new(),
        }
    }

    /// Returns the size limit of a request.
    pub(super) fn max_request_bytes(&self) -> usize {
        self.store.limits().max_request_bytes()
    }

    /// Returns an error if the daemon is stopping.
    fn check_running(&self) -> Result<(), Status> {
        if self.shutdown.is_cancelled() {
            return Err(shutting_down());
        }
        Ok(())
    }

    /// Returns the view of a page: the revision that the page continues, or the latest states after
    /// the scans that the request requires.
    async fn find_view(&self, request: &PageRequest) -> Result<CatalogView, RpcError> {
        let selection = &request.query.selection;
        let Some(token) = request.token else {
            let store = &self.store;
            let view = store.view(selection, request.consistency, request.wait_budget);
            return Ok(view.await?);
        };

        // Revisions of another process cannot be compared.
        if token.epoch != self.store.epoch() {
            return Err(RpcError::CatalogChanged);
        }
        self.store
            .view_of_page(selection, token.revision)
            .ok_or(RpcError::CatalogChanged)
    }

    fn epoch(&self) -> String {
        list_pages::format_epoch(self.store.epoch())
    }

    pub(super) fn get_executor(
        &self,
        request: &Request<pb::GetExecutorRequest>,
        call: &mut AuditedCall,
    ) -> RpcResult {
        call.set_method("GetExecutor", &[]);
        self.check_running()?;
        let access_scope = caller_access_scope(request.extensions())?;
        EncodedMessage::new(
            &self
                .daemon_info
                .executor_response(&self.store, &access_scope),
        )
    }

    pub(super) async fn list_roots(
        &self,
        request: &Request<pb::ListRootsRequest>,
        call: &mut AuditedCall,
    ) -> RpcResult {
        // A call without a method is not recorded, so the name is set before anything can fail.
        call.set_method("ListRoots", &[]);
        self.check_running()?;
        let access_scope = caller_access_scope(request.extensions())?;
        let wait_budget = requests::call_wait_budget(request);

        let published = self.store.published_roots(&access_scope);

        // Any environment of the executor will do, and there is at least one.
        let environment = &self.store.environments()[0];
        let selection = ScopedSelection {
            access_scope,
            roots: published
                .iter()
                .map(|root| root.to_selected_root(environment))
                .collect(),
        };
        let view = self
            .store
            .view(&selection, ConsistencyLevel::Cached, wait_budget)
            .await
            .map_err(RpcError::from)?;

        EncodedMessage::new(&pb::ListRootsResponse {
            roots: root_messages::published_roots(&view, &published, environment),
            epoch: self.epoch(),
            revision: view.revision,
        })
    }

    pub(super) async fn resolve_roots(
        &self,
        request: Request<pb::ResolveRootsRequest>,
        call: &mut AuditedCall,
    ) -> RpcResult {
        call.set_method("ResolveRoots", &request.get_ref().selected_capability_roots);
        self.check_running()?;
        let request = requests::parse_resolve_request(request, self.store.limits().max_roots)?;
        let view = self.find_view(&request).await?;
        call.record_denied_roots(&view);

        EncodedMessage::new(&list_pages::resolved_page(
            &request,
            self.store.epoch(),
            &view,
        ))
    }

    pub(super) async fn list_skills(
        &self,
        request: Request<pb::ListSkillsRequest>,
        call: &mut AuditedCall,
    ) -> RpcResult {
        call.set_method("ListSkills", &request.get_ref().selected_capability_roots);
        self.check_running()?;
        let request = requests::parse_list_request(request, self.store.limits().max_roots)?;
        let view = self.find_view(&request).await?;
        call.record_denied_roots(&view);

        let readiness = if request.roots_only {
            Vec::new()
        } else {
            check_view(&self.readiness, &view).await
        };

        // Readiness changes without a new revision, so that the key of a page has its version.
        let parameters = [request.page_size, readiness_version(&readiness)];
        let key = MessageKey::new(&request.token_binding, None, &view, parameters)
            .map(|key| key.at_position(request.begin));
        if let Some(page) = key.and_then(|key| self.page_cache.get(&key)) {
            return Ok(Bytes::clone(&page).into());
        }

        let epoch = self.store.epoch();
        let digests = &self.catalog_digests;
        let page = list_pages::encode_skill_page(&request, epoch, digests, &view, &readiness)?;
        let Some(key) = key else {
            return Ok(page.into());
        };
        Ok(Bytes::clone(&self.page_cache.insert(key, page)).into())
    }

    pub(super) fn watch_skills(
        self: &Arc<Self>,
        request: Request<pb::WatchSkillsRequest>,
        call: &mut AuditedCall,
    ) -> Result<ChunkStream, Status> {
        call.set_method("WatchSkills", &request.get_ref().selected_capability_roots);
        self.check_running()?;
        let quota_key = request_quota_key(request.extensions())?;
        let credentials = authenticated(request.extensions())?;
        let request = requests::parse_watch_request(request, self.store.limits().max_roots)?;
        let permit = self
            .stream_quota
            .acquire(&quota_key, 1)
            .map_err(too_many_streams)?;
        let service = self.clone();
        Ok(WatchStream::spawn(
            service,
            credentials,
            request,
            permit,
            call.clone(),
        ))
    }

    pub(super) async fn list_resources(
        &self,
        request: Request<pb::ListResourcesRequest>,
        call: &mut AuditedCall,
    ) -> RpcResult {
        let pb::ListResourcesRequest { root, package, .. } = request.get_ref();
        call.set_method("ListResources", root.as_slice());
        call.set_handles(package, "");
        self.check_running()?;
        let wait_budget = requests::call_wait_budget(&request);
        let files_request = requests::parse_files_request(&request)?;
        let root = files_request.root.id.clone();
        let package = files_request.package.clone();

        let found = self
            .store
            .list_files(files_request, wait_budget)
            .await
            .map_err(|error| RpcError::Read(error).into_status(Some(root.as_str())))?;

        let next = found
            .next
            .map(|token| token.encode(&resources::page_token_binding(request.get_ref())));
        EncodedMessage::new(&pb::ListResourcesResponse {
            resources: resources::resource_messages(&root, &package, &found.files),
            next_page_token: next.unwrap_or_default(),
            truncated: found.truncated,
            epoch: self.epoch(),
            revision: self.store.revision(),
            withheld: resources::resource_messages(&root, &package, &found.withheld),
        })
    }

    pub(super) async fn read_resource(
        &self,
        request: Request<pb::ReadResourceRequest>,
        call: &mut AuditedCall,
    ) -> RpcResult {
        let pb::ReadResourceRequest {
            root,
            package,
            resource,
            ..
        } = request.get_ref();
        call.set_method("ReadResource", root.as_slice());
        call.set_handles(package, resource);
        self.check_running()?;
        let wait_budget = requests::call_wait_budget(&request);
        let read = requests::parse_read_request(request)?;
        let root = read.root.id.clone();
        let resource = read.resource.clone().unwrap_or_else(skill_file_name);
        let path = read.package.join_path(&resource);

        let read_page = self.store.read(read, wait_budget).await.map_err(|error| {
            call.record_unapproved_read(&error);
            RpcError::Read(error).into_status(Some(root.as_str()))
        })?;

        let next = read_page.next.map(|offset| ReadCursor {
            version: read_page.version,
            offset,
        });
        let resource = handle::format_handle(&root, &path);
        let page = pb::ReadResourceResponse {
            not_modified: read_page.body.is_none(),
            digest: read_page.digest.to_string(),
            total_bytes: read_page.version.size,
            truncated: next.is_some(),
            next_cursor: next
                .map(|cursor| cursor.encode(resource.as_bytes()))
                .unwrap_or_default(),
            resource,
            media_type: resources::media_type(&path, read_page.body.as_ref()),
            body: None,
            epoch: self.epoch(),
            revision: self.store.revision(),
        };

        resources::encode_page(&page, read_page.body)
    }
}
