//! The service: check, ask the keeper, answer. Leaves rules to `domain` and waiting to `keeper`.

use super::callers::{caller, pass};
use super::door::{IsStream, account};
use super::errors::{BadField, Failure, shutting_down, too_many_streams};
use super::kept::{Kept, Key};
use super::offer::offer;
use super::places::Places;
use super::shared::{Made, Shared};
use super::stream::Stream;
use super::{answers, compression, files, limits, pages, parts, requests, state};
use crate::catalog::{Consistency, Keeper, Patience, View};
use crate::domain::token::{Cursor, PageToken};
use crate::domain::{ConfigState, Published, RootId, Sandbox, Selected, handle, main_file};
use crate::proto::caproot::v1 as pb;
use pb::capability_service_server::CapabilityService;
use std::pin::Pin;
use std::sync::Arc;
use std::time::SystemTime;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;
use tokio_stream::StreamExt as _;
use tonic::{Request, Response, Status};

/// Abilities that a client may rely on.
const FEATURES: [&str; 5] = ["fresh", "file-uri", "published", "plugins", "gzip"];

/// `caproot.v1.CapabilityService`.
#[derive(Debug)]
pub struct Service {
    /// Bound to nothing: what is about roots goes by [`Self::keeper_of`].
    keeper: Keeper,
    facts: Facts,
    /// Whether the daemon stops. A watch holds only the latest, so it is never full.
    stopping: watch::Receiver<bool>,
    /// Streams that may be open.
    streams: Places,
    /// Pages of lists.
    kept: Kept,
    /// Events of streams.
    shared: Shared,
}

/// What the service says of its daemon.
#[derive(Debug)]
pub struct Facts {
    /// When it started.
    pub started: SystemTime,
    /// Of what it was built.
    pub build: &'static str,
    /// What it denied itself.
    pub sandbox: Sandbox,
    /// What became of its config file. A watch holds only the latest, so it is never full.
    pub config: watch::Receiver<ConfigState>,
}

pub(super) type Answer<T> = Result<Response<T>, Status>;
/// The events of one stream, made already.
pub(super) type Sendings =
    Pin<Box<dyn futures_util::Stream<Item = Result<Arc<Made>, Status>> + Send>>;
/// The same as the generated code knows them.
pub(super) type Events =
    Pin<Box<dyn futures_util::Stream<Item = Result<pb::WatchSkillsResponse, Status>> + Send>>;

/// Which page, and how recent the first must be.
struct Asked<'a> {
    token: &'a str,
    /// What the token is bound to.
    bytes: Vec<u8>,
    consistency: Consistency,
}

impl Service {
    /// Serves what the keeper keeps, until `stopping` turns true.
    #[must_use]
    pub fn new(
        keeper: Keeper,
        facts: Facts,
        streams: Places,
        stopping: watch::Receiver<bool>,
    ) -> Self {
        let (kept, shared) = (Kept::default(), Shared::default());
        Self { keeper, facts, stopping, streams, kept, shared }
    }

    fn serving(&self) -> Result<(), Status> {
        if *self.stopping.borrow() { Err(shutting_down()) } else { Ok(()) }
    }

    /// The keeper as whoever calls may see it.
    fn keeper_of<T>(&self, request: &Request<T>) -> Result<Keeper, Status> {
        Ok(self.keeper.bound_to(&caller(request.extensions())?.reach))
    }

    fn epoch(&self) -> String {
        pages::print_epoch(self.keeper.epoch())
    }

    /// What a page shows, and where in it the page begins.
    async fn page_view(
        &self,
        keeper: &Keeper,
        selection: &[Selected],
        asked: &Asked<'_>,
        patience: Patience,
    ) -> Result<(View, (usize, usize)), Status> {
        if asked.token.is_empty() {
            let view = keeper.view(selection, asked.consistency, patience).await;
            return Ok((view.map_err(|late| Failure::from(late).status(None))?, (0, 0)));
        }
        let token = PageToken::parse(asked.token, &asked.bytes);
        let refuse = || BadField::new("page_token", "was not given for this list; start again");
        let token = token.ok_or_else(refuse)?;
        let is_here = token.epoch == self.keeper.epoch();
        let view = is_here.then(|| keeper.view_at(selection, token.revision)).flatten();
        let view = view.ok_or_else(|| Failure::CatalogChanged.status(None))?;
        Ok((view, (token.root as usize, token.skill as usize)))
    }

    fn selection(&self, roots: Vec<pb::SelectedCapabilityRoot>) -> Result<Vec<Selected>, BadField> {
        requests::selection(roots, self.keeper.limits().max_roots)
    }

    /// Begins a stream; whoever calls looks at its events.
    pub(super) fn watch(&self, request: Request<pb::WatchSkillsRequest>) -> Answer<Sendings> {
        self.serving()?;
        let account = account(request.extensions())?;
        let keeper = self.keeper_of(&request)?;
        let pass = pass(request.extensions())?;
        let request = request.into_inner();
        let selection = self.selection(request.selected_capability_roots)?;
        let view = requests::view(request.view)?;
        let bookmark = requests::bookmark_interval(request.bookmark_interval)?;
        let place = self.streams.take(&account, 1).map_err(too_many_streams)?;
        let (events, sent) = offer();
        let (end, ended) = oneshot::channel();
        let stream = Stream {
            keeper,
            pass,
            selection,
            lease: None,
            product: request.product,
            view,
            bookmark,
            events,
            shared: self.shared.clone(),
            stopping: self.stopping.clone(),
            end,
            place,
            closed: None,
            bookmark_at: Instant::now() + bookmark,
        };
        // Ends with its caller, or with the daemon.
        tokio::spawn(stream.run(request.resume_token));
        // Nothing else than a daemon that stops ends a stream that is still read, unless it says so.
        let end = async { Err(ended.await.unwrap_or_else(|_| shutting_down())) };
        let end = futures_util::stream::once(end);
        let mut answer: Response<Sendings> = Response::new(Box::pin(sent.chain(end)));
        answer.extensions_mut().insert(IsStream);
        Ok(answer)
    }
}

#[tonic::async_trait]
impl CapabilityService for Service {
    async fn get_executor(
        &self,
        request: Request<pb::GetExecutorRequest>,
    ) -> Answer<pb::GetExecutorResponse> {
        self.serving()?;
        let holdings = self.keeper_of(&request)?.holdings();
        let limits = self.keeper.limits();
        Ok(Response::new(pb::GetExecutorResponse {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            environment_ids: self.keeper.environments().to_vec(),
            start_time: Some(self.facts.started.into()),
            limits: Some(limits::limits(&limits)),
            features: FEATURES.map(str::to_owned).to_vec(),
            epoch: self.epoch(),
            revision: self.keeper.revision(),
            watch: Some(limits::watching(self.keeper.watching())),
            sandbox: Some(limits::sandbox(&self.facts.sandbox)),
            resolver: self.keeper.opener().name().to_owned(),
            build: self.facts.build.to_owned(),
            config: Some(state::config(&self.facts.config.borrow())),
            holdings: Some(state::holdings(&holdings)),
        }))
    }

    async fn list_roots(
        &self,
        request: Request<pb::ListRootsRequest>,
    ) -> Answer<pb::ListRootsResponse> {
        self.serving()?;
        let patience = Patience::new(requests::timeout(request.metadata()));
        let keeper = self.keeper_of(&request)?;
        let published = keeper.published();
        let environment = &keeper.environments()[0];
        let select = |p: &Published| p.select(environment);
        let selection: Vec<_> = published.iter().map(select).collect();
        let view = keeper.view(&selection, Consistency::Cached, patience).await;
        let view = view.map_err(|late| Failure::from(late).status(None))?;
        Ok(Response::new(pb::ListRootsResponse {
            roots: answers::published(&view, &published, environment),
            epoch: self.epoch(),
            revision: view.revision,
        }))
    }

    async fn resolve_roots(
        &self,
        request: Request<pb::ResolveRootsRequest>,
    ) -> Answer<pb::ResolveRootsResponse> {
        self.serving()?;
        let patience = Patience::new(requests::timeout(request.metadata()));
        let keeper = self.keeper_of(&request)?;
        let request = request.into_inner();
        let selection = self.selection(request.selected_capability_roots)?;
        let question = pages::Question {
            reach: keeper.reach(),
            selection: &selection,
            product: "",
            view: pb::SkillView::Full,
            page_size: requests::page_size(request.page_size)?,
        };
        let asked = Asked {
            token: &request.page_token,
            bytes: question.resolved_bytes(),
            consistency: requests::consistency(request.consistency)?,
        };
        let (view, begin) = self.page_view(&keeper, &selection, &asked, patience).await?;
        Ok(Response::new(question.resolved_page(self.keeper.epoch(), &view, begin)))
    }

    async fn list_skills(
        &self,
        request: Request<pb::ListSkillsRequest>,
    ) -> Answer<pb::ListSkillsResponse> {
        self.serving()?;
        let patience = Patience::new(requests::timeout(request.metadata()));
        let keeper = self.keeper_of(&request)?;
        let may_be_compressed = compression::is_offered(request.metadata());
        let request = request.into_inner();
        let selection = self.selection(request.selected_capability_roots)?;
        let question = pages::Question {
            reach: keeper.reach(),
            selection: &selection,
            product: &request.product,
            view: requests::view(request.view)?,
            page_size: requests::page_size(request.page_size)?,
        };
        let asked = Asked {
            token: &request.page_token,
            bytes: question.bytes(),
            consistency: requests::consistency(request.consistency)?,
        };
        let (view, begin) = self.page_view(&keeper, &selection, &asked, patience).await?;
        let key = Key::new(&asked.bytes, question.page_size, &view, begin);
        let kept = key.as_ref().and_then(|key| self.kept.get(key));
        let (page, message) = if let Some(message) = kept {
            (question.head(&view), message)
        } else {
            let made = question.page(self.keeper.epoch(), &view, begin)?;
            if let Some(key) = key {
                self.kept.put(key, &made.1);
            }
            made
        };
        if may_be_compressed {
            // By tonic, which takes it as a value.
            return Ok(Response::new(parts::value(&message)?));
        }
        Ok(parts::in_place_of(page, message.into()))
    }

    type WatchSkillsStream = Events;

    async fn watch_skills(
        &self,
        request: Request<pb::WatchSkillsRequest>,
    ) -> Answer<Self::WatchSkillsStream> {
        Ok(parts::of_events(self.watch(request)?, |_| ()))
    }

    async fn list_resources(
        &self,
        request: Request<pb::ListResourcesRequest>,
    ) -> Answer<pb::ListResourcesResponse> {
        self.serving()?;
        let patience = Patience::new(requests::timeout(request.metadata()));
        let keeper = self.keeper_of(&request)?;
        let mut request = request.into_inner();
        let wanted = requests::files(&request)?;
        let (root, package) = (wanted.root.id.clone(), wanted.package.clone());
        check_authority(request.authority.take(), &root)?;
        let fail = |e| Failure::Read(e).status(Some(root.as_str()));
        let found = keeper.files(wanted, patience).await.map_err(fail)?;
        let resources = found.files.iter().map(|file| files::resource(&root, &package, file));
        let next = found.next.map(|bookmark| bookmark.print(&files::question(&request)));
        Ok(Response::new(pb::ListResourcesResponse {
            resources: resources.collect(),
            next_page_token: next.unwrap_or_default(),
            truncated: found.truncated,
            epoch: self.epoch(),
            revision: self.keeper.revision(),
        }))
    }

    async fn read_resource(
        &self,
        request: Request<pb::ReadResourceRequest>,
    ) -> Answer<pb::ReadResourceResponse> {
        self.serving()?;
        let patience = Patience::new(requests::timeout(request.metadata()));
        let keeper = self.keeper_of(&request)?;
        let mut request = request.into_inner();
        let authority = request.authority.take();
        let read = requests::read(request)?;
        let root = read.root.id.clone();
        check_authority(authority, &root)?;
        let fail = |failure: Failure| failure.status(Some(root.as_str()));
        let resource = read.resource.clone().unwrap_or_else(main_file);
        let place = read.package.join_all(&resource);
        let done = keeper.read(read, patience).await.map_err(|e| fail(Failure::Read(e)))?;
        let next = done.next.map(|offset| Cursor { version: done.version, offset });
        let page = pb::ReadResourceResponse {
            resource: handle::print(&root, &place),
            not_modified: done.body.is_none(),
            digest: done.digest.to_string(),
            total_bytes: done.version.size,
            truncated: next.is_some(),
            next_cursor: next.map(|c| c.print(&root, &place)).unwrap_or_default(),
            media_type: files::media_type(&place, done.body.as_ref()),
            body: None,
            epoch: self.epoch(),
            revision: self.keeper.revision(),
        };
        Ok(parts::in_place_of(pb::ReadResourceResponse::default(), files::page(&page, done.body)?))
    }
}

/// Refuses an authority, if one is given, that is not the root's.
fn check_authority(given: Option<pb::Authority>, root: &RootId) -> Result<(), Status> {
    match given {
        Some(given) if given.kind != "executor" || given.id != root.as_str() => {
            Err(Failure::AuthorityMismatch.status(Some(root.as_str())))
        }
        _ => Ok(()),
    }
}
