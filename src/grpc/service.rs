//! `CapabilityService`: validates requests, queries the catalog store and builds responses.

use super::auth::{authenticated_caller, caller_credentials};
use super::errors::{BadField, RpcError, shutting_down, too_many_streams};
use super::event_cache::{EncodedEvent, EventCache};
use super::load_limit::{StreamMarker, request_quota_key};
use super::page_cache::{PageCache, PageKey};
use super::pull_channel::pull_channel;
use super::quota::Quota;
use super::watch_stream::WatchStream;
use super::{
    compression, encoded_body, executor_info, requests, resources, root_messages, skill_pages,
    state,
};
use crate::catalog::{CatalogStore, CatalogView, ConsistencyLevel, WaitBudget};
use crate::domain::token::{PageToken, ReadCursor};
use crate::domain::{
    ConfigState, PublishedRoot, RootId, SandboxStatus, SelectedRoot, handle, skill_file_name,
};
use crate::proto::caproot::v1 as pb;
use pb::capability_service_server::CapabilityService;
use std::pin::Pin;
use std::sync::Arc;
use std::time::SystemTime;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;
use tokio_stream::StreamExt as _;
use tonic::{Request, Response, Status};

/// Features that a client may rely on.
const FEATURES: [&str; 5] = ["fresh", "file-uri", "published", "plugins", "gzip"];

/// Implementation of `caproot.v1.CapabilityService`.
#[derive(Debug)]
pub struct GrpcService {
    /// Store without access restrictions. Requests about roots use [`Self::scoped_store`].
    store: CatalogStore,
    daemon_info: DaemonInfo,
    /// Whether the daemon is stopping. A watch channel keeps only the latest value, so it is never
    /// full.
    shutdown: watch::Receiver<bool>,
    /// Quota of open streams.
    stream_quota: Quota,
    /// Cached pages of ListSkills.
    page_cache: PageCache,
    /// Cached events of streams.
    event_cache: EventCache,
}

/// Facts about the daemon, for `GetExecutor`.
#[derive(Debug)]
pub struct DaemonInfo {
    /// Start time of the daemon.
    pub start_time: SystemTime,
    /// Commit, profile and target of the build.
    pub build: &'static str,
    /// Sandbox of the daemon.
    pub sandbox: SandboxStatus,
    /// State of the config file. A watch channel keeps only the latest value, so it is never full.
    pub config_state: watch::Receiver<ConfigState>,
}

pub(super) type RpcResult<T> = Result<Response<T>, Status>;
/// Encoded events of one stream.
pub(super) type EventStream =
    Pin<Box<dyn futures_util::Stream<Item = Result<Arc<EncodedEvent>, Status>> + Send>>;
/// Stream type of the generated trait. Always empty: the events are sent by a [`BodyOverride`].
pub(super) type WatchResponseStream =
    Pin<Box<dyn futures_util::Stream<Item = Result<pb::WatchSkillsResponse, Status>> + Send>>;

/// Page token and required freshness of a request for a page.
struct PageRequest<'a> {
    token: &'a str,
    /// Query that the page token must match.
    token_binding: Vec<u8>,
    consistency: ConsistencyLevel,
}

impl GrpcService {
    /// Creates a service that serves the catalogs of `store` until `shutdown` is true.
    #[must_use]
    pub fn new(
        keeper: CatalogStore,
        facts: DaemonInfo,
        streams: Quota,
        stopping: watch::Receiver<bool>,
    ) -> Self {
        let (kept, shared) = (PageCache::default(), EventCache::default());
        Self {
            store: keeper,
            daemon_info: facts,
            shutdown: stopping,
            stream_quota: streams,
            page_cache: kept,
            event_cache: shared,
        }
    }

    fn ensure_running(&self) -> Result<(), Status> {
        if *self.shutdown.borrow() { Err(shutting_down()) } else { Ok(()) }
    }

    /// Returns the store, restricted to the roots that the caller may access.
    fn scoped_store<T>(&self, request: &Request<T>) -> Result<CatalogStore, Status> {
        Ok(self.store.with_access_scope(&authenticated_caller(request.extensions())?.access_scope))
    }

    fn epoch(&self) -> String {
        skill_pages::format_epoch(self.store.epoch())
    }

    /// Returns the view of a page and the position at which the page begins.
    async fn page_view(
        &self,
        keeper: &CatalogStore,
        selection: &[SelectedRoot],
        asked: &PageRequest<'_>,
        patience: WaitBudget,
    ) -> Result<(CatalogView, (usize, usize)), Status> {
        if asked.token.is_empty() {
            let view = keeper.view(selection, asked.consistency, patience).await;
            return Ok((view.map_err(|late| RpcError::from(late).into_status(None))?, (0, 0)));
        }
        let token = PageToken::decode(asked.token, &asked.token_binding);
        let refuse = || BadField::new("page_token", "was not given for this list; start again");
        let token = token.ok_or_else(refuse)?;
        let is_here = token.epoch == self.store.epoch();
        let view = is_here.then(|| keeper.view_at(selection, token.revision)).flatten();
        let view = view.ok_or_else(|| RpcError::CatalogChanged.into_status(None))?;
        Ok((view, (token.root as usize, token.item as usize)))
    }

    fn parse_selection(
        &self,
        roots: Vec<pb::SelectedCapabilityRoot>,
    ) -> Result<Vec<SelectedRoot>, BadField> {
        requests::parse_selection(roots, self.store.limits().max_roots)
    }

    /// Opens a stream and returns its encoded events.
    pub(super) fn open_watch_stream(
        &self,
        request: Request<pb::WatchSkillsRequest>,
    ) -> RpcResult<EventStream> {
        self.ensure_running()?;
        let account = request_quota_key(request.extensions())?;
        let keeper = self.scoped_store(&request)?;
        let pass = caller_credentials(request.extensions())?;
        let request = request.into_inner();
        let selection = self.parse_selection(request.selected_capability_roots)?;
        let view = requests::parse_view(request.view)?;
        let bookmark = requests::parse_bookmark_interval(request.bookmark_interval)?;
        let place = self.stream_quota.acquire(&account, 1).map_err(too_many_streams)?;
        let (events, sent) = pull_channel();
        let (end, ended) = oneshot::channel();
        let stream = WatchStream {
            store: keeper,
            credentials: pass,
            selection,
            lease: None,
            product: request.product,
            view,
            bookmark_interval: bookmark,
            event_sender: events,
            event_cache: self.event_cache.clone(),
            shutdown: self.shutdown.clone(),
            end_status: end,
            permit: place,
            synced_revision: None,
            next_bookmark: Instant::now() + bookmark,
        };
        // The task ends when the client disconnects or the daemon stops.
        tokio::spawn(stream.run(request.resume_token));
        // If the task drops the sender without a status, the daemon is stopping.
        let end = async { Err(ended.await.unwrap_or_else(|_| shutting_down())) };
        let end = futures_util::stream::once(end);
        let mut answer: Response<EventStream> = Response::new(Box::pin(sent.chain(end)));
        answer.extensions_mut().insert(StreamMarker);
        Ok(answer)
    }
}

#[tonic::async_trait]
impl CapabilityService for GrpcService {
    async fn get_executor(
        &self,
        request: Request<pb::GetExecutorRequest>,
    ) -> RpcResult<pb::GetExecutorResponse> {
        self.ensure_running()?;
        let holdings = self.scoped_store(&request)?.scope_stats();
        let limits = self.store.limits();
        Ok(Response::new(pb::GetExecutorResponse {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            environment_ids: self.store.environments().to_vec(),
            start_time: Some(self.daemon_info.start_time.into()),
            limits: Some(executor_info::limits_message(&limits)),
            features: FEATURES.map(str::to_owned).to_vec(),
            epoch: self.epoch(),
            revision: self.store.revision(),
            watch: Some(executor_info::watch_status(self.store.watch_stats())),
            sandbox: Some(executor_info::sandbox_status(&self.daemon_info.sandbox)),
            resolver: self.store.opener().name().to_owned(),
            build: self.daemon_info.build.to_owned(),
            config: Some(state::config_status(&self.daemon_info.config_state.borrow())),
            catalog_stats: Some(state::catalog_stats(&holdings)),
        }))
    }

    async fn list_roots(
        &self,
        request: Request<pb::ListRootsRequest>,
    ) -> RpcResult<pb::ListRootsResponse> {
        self.ensure_running()?;
        let patience = WaitBudget::new(requests::grpc_timeout(request.metadata()));
        let keeper = self.scoped_store(&request)?;
        let published = keeper.published_roots();
        let environment = &keeper.environments()[0];
        let select = |p: &PublishedRoot| p.to_selected_root(environment);
        let selection: Vec<_> = published.iter().map(select).collect();
        let view = keeper.view(&selection, ConsistencyLevel::Cached, patience).await;
        let view = view.map_err(|late| RpcError::from(late).into_status(None))?;
        Ok(Response::new(pb::ListRootsResponse {
            roots: root_messages::published_roots(&view, &published, environment),
            epoch: self.epoch(),
            revision: view.revision,
        }))
    }

    async fn resolve_roots(
        &self,
        request: Request<pb::ResolveRootsRequest>,
    ) -> RpcResult<pb::ResolveRootsResponse> {
        self.ensure_running()?;
        let patience = WaitBudget::new(requests::grpc_timeout(request.metadata()));
        let keeper = self.scoped_store(&request)?;
        let request = request.into_inner();
        let selection = self.parse_selection(request.selected_capability_roots)?;
        let question = skill_pages::ListQuery {
            access_scope: keeper.access_scope(),
            selection: &selection,
            product: "",
            view: pb::SkillView::Full,
            page_size: requests::parse_page_size(request.page_size)?,
        };
        let asked = PageRequest {
            token: &request.page_token,
            token_binding: question.resolve_token_binding(),
            consistency: requests::parse_consistency(request.consistency)?,
        };
        let (view, begin) = self.page_view(&keeper, &selection, &asked, patience).await?;
        Ok(Response::new(question.resolved_page(self.store.epoch(), &view, begin)))
    }

    async fn list_skills(
        &self,
        request: Request<pb::ListSkillsRequest>,
    ) -> RpcResult<pb::ListSkillsResponse> {
        self.ensure_running()?;
        let patience = WaitBudget::new(requests::grpc_timeout(request.metadata()));
        let keeper = self.scoped_store(&request)?;
        let may_be_compressed = compression::accepts_compression(request.metadata());
        let request = request.into_inner();
        let selection = self.parse_selection(request.selected_capability_roots)?;
        let question = skill_pages::ListQuery {
            access_scope: keeper.access_scope(),
            selection: &selection,
            product: &request.product,
            view: requests::parse_view(request.view)?,
            page_size: requests::parse_page_size(request.page_size)?,
        };
        let asked = PageRequest {
            token: &request.page_token,
            token_binding: question.page_token_binding(),
            consistency: requests::parse_consistency(request.consistency)?,
        };
        let (view, begin) = self.page_view(&keeper, &selection, &asked, patience).await?;
        let key = PageKey::new(&asked.token_binding, question.page_size, &view, begin);
        let kept = key.as_ref().and_then(|key| self.page_cache.get(key));
        let (page, message) = if let Some(message) = kept {
            (question.page_header(&view), message)
        } else {
            let made = question.encode_page(self.store.epoch(), &view, begin)?;
            if let Some(key) = key {
                self.page_cache.insert(key, &made.1);
            }
            made
        };
        if may_be_compressed {
            // tonic compresses the response, so it needs the message as a value.
            return Ok(Response::new(encoded_body::decode_message(&message)?));
        }
        Ok(encoded_body::encoded_response(page, message.into()))
    }

    type WatchSkillsStream = WatchResponseStream;

    async fn watch_skills(
        &self,
        request: Request<pb::WatchSkillsRequest>,
    ) -> RpcResult<Self::WatchSkillsStream> {
        Ok(encoded_body::encoded_event_response(self.open_watch_stream(request)?, |_| ()))
    }

    async fn list_resources(
        &self,
        request: Request<pb::ListResourcesRequest>,
    ) -> RpcResult<pb::ListResourcesResponse> {
        self.ensure_running()?;
        let patience = WaitBudget::new(requests::grpc_timeout(request.metadata()));
        let keeper = self.scoped_store(&request)?;
        let mut request = request.into_inner();
        let wanted = requests::parse_files_request(&request)?;
        let (root, package) = (wanted.root.id.clone(), wanted.package.clone());
        check_authority(request.authority.take(), &root)?;
        let fail = |e| RpcError::Read(e).into_status(Some(root.as_str()));
        let found = keeper.list_files(wanted, patience).await.map_err(fail)?;
        let resources =
            found.files.iter().map(|file| resources::resource_message(&root, &package, file));
        let next =
            found.next.map(|bookmark| bookmark.encode(&resources::page_token_binding(&request)));
        Ok(Response::new(pb::ListResourcesResponse {
            resources: resources.collect(),
            next_page_token: next.unwrap_or_default(),
            truncated: found.truncated,
            epoch: self.epoch(),
            revision: self.store.revision(),
        }))
    }

    async fn read_resource(
        &self,
        request: Request<pb::ReadResourceRequest>,
    ) -> RpcResult<pb::ReadResourceResponse> {
        self.ensure_running()?;
        let patience = WaitBudget::new(requests::grpc_timeout(request.metadata()));
        let keeper = self.scoped_store(&request)?;
        let mut request = request.into_inner();
        let authority = request.authority.take();
        let read = requests::parse_read_request(request)?;
        let root = read.root.id.clone();
        check_authority(authority, &root)?;
        let fail = |failure: RpcError| failure.into_status(Some(root.as_str()));
        let resource = read.resource.clone().unwrap_or_else(skill_file_name);
        let place = read.package.join_path(&resource);
        let done = keeper.read(read, patience).await.map_err(|e| fail(RpcError::Read(e)))?;
        let next = done.next.map(|offset| ReadCursor { version: done.version, offset });
        let page = pb::ReadResourceResponse {
            resource: handle::format_handle(&root, &place),
            not_modified: done.body.is_none(),
            digest: done.digest.to_string(),
            total_bytes: done.version.size,
            truncated: next.is_some(),
            next_cursor: next.map(|c| c.encode(&root, &place)).unwrap_or_default(),
            media_type: resources::media_type(&place, done.body.as_ref()),
            body: None,
            epoch: self.epoch(),
            revision: self.store.revision(),
        };
        Ok(encoded_body::encoded_response(
            pb::ReadResourceResponse::default(),
            resources::encode_page(&page, done.body)?,
        ))
    }
}

/// Returns an error if the request has an authority and it is not the authority of the root.
fn check_authority(given: Option<pb::Authority>, root: &RootId) -> Result<(), Status> {
    match given {
        Some(given) if given.kind != "executor" || given.id != root.as_str() => {
            Err(RpcError::AuthorityMismatch.into_status(Some(root.as_str())))
        }
        _ => Ok(()),
    }
}
