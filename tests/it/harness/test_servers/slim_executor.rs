//! Executor without files, for tests and benches: serves generated catalogs, which its owner changes.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use caproot_core::proto::caproot::v1::capability_service_server::{
    CapabilityService, CapabilityServiceServer,
};
use caproot_core::proto::caproot::v1::watch_skills_response::Event;
use caproot_core::proto::caproot::v1::{
    Authority, GetExecutorRequest, GetExecutorResponse, KnownCatalog, ListResourcesRequest,
    ListResourcesResponse, ListRootsRequest, ListRootsResponse, ListSkillsRequest,
    ListSkillsResponse, ReadResourceRequest, ReadResourceResponse, RemovedSkill, Reset,
    ResolveRootsRequest, ResolveRootsResponse, RootState, RootStatus, SelectedCapabilityRoot,
    Skill, SkillDelta, Synced, WatchSkillsRequest, WatchSkillsResponse,
};
use caproot_core::wire::{CatalogMessage, MessageDigest, digest_catalog};
use futures_util::StreamExt as _;
use futures_util::stream::{self, Stream};
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use prost::Message as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::either::Either;
use tokio_util::task::AbortOnDropHandle;
use tonic::service::Routes;
use tonic::{Request, Response, Status};

use super::unused_calls::unused_calls;

/// Skills of each root, by root id.
pub(crate) type SlimCatalogs = Vec<(&'static str, Vec<Skill>)>;

/// Executor that serves until it is dropped. Its connections end with it.
pub(crate) struct SlimExecutor {
    pub(crate) address: SocketAddr,
    state: watch::Sender<SlimState>,
    _task: AbortOnDropHandle<()>,
}

/// Catalogs and their revision.
#[derive(Clone)]
struct SlimState {
    catalogs: Arc<SlimCatalogs>,
    revision: u64,
}

#[derive(Clone)]
struct SlimService {
    epoch: Arc<str>,
    state: watch::Receiver<SlimState>,
}

/// Stream of `WatchSkills` before its next state.
struct SlimStream {
    request: WatchSkillsRequest,
    service: SlimService,
    /// Catalogs that the caller has.
    before: Option<Arc<SlimCatalogs>>,
}

/// Returns a skill of a root with this name.
pub(crate) fn slim_skill(root: &str, name: &str) -> Skill {
    let package = format!("skill://{root}/{name}");
    Skill {
        authority: Some(Authority {
            kind: "executor".into(),
            id: root.into(),
        }),
        main_resource: format!("{package}/SKILL.md"),
        package,
        name: name.to_owned(),
        description: "d".into(),
        user_invocable: true,
        ..Skill::default()
    }
}

impl SlimExecutor {
    /// Starts the executor at an address, which may have port 0. Each start needs an epoch of its own.
    pub(crate) async fn start(
        address: SocketAddr,
        tls: Option<TlsAcceptor>,
        epoch: &str,
        catalogs: SlimCatalogs,
    ) -> io::Result<Self> {
        let (state, receiver) = watch::channel(SlimState {
            catalogs: Arc::new(catalogs),
            revision: 1,
        });
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let service = SlimService {
            epoch: epoch.into(),
            state: receiver,
        };
        let routes = Routes::new(CapabilityServiceServer::new(service));
        let task = tokio::spawn(accept_connections(listener, tls, routes));

        Ok(Self {
            address,
            state,
            _task: AbortOnDropHandle::new(task),
        })
    }

    /// Replaces all catalogs.
    pub(crate) fn change(&self, catalogs: SlimCatalogs) {
        self.state.send_modify(|state| {
            *state = SlimState {
                catalogs: Arc::new(catalogs),
                revision: state.revision + 1,
            };
        });
    }
}

async fn accept_connections(listener: TcpListener, tls: Option<TlsAcceptor>, routes: Routes) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                if let Ok((stream, _)) = accepted {
                    connections.spawn(serve_connection(stream, tls.clone(), routes.clone()));
                }
            }
            // The ends of connections, so that the set does not grow.
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve_connection(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    routes: Routes,
) -> io::Result<()> {
    let stream = match tls {
        Some(tls) => Either::Left(tls.accept(stream).await?),
        None => Either::Right(stream),
    };
    let mut http = http2::Builder::new(TokioExecutor::new());
    http.timer(TokioTimer::new());
    http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes))
        .await
        .map_err(io::Error::other)
}

fn root_status(id: &str, skills: &[Skill]) -> RootStatus {
    let digests = skills
        .iter()
        .map(|skill| MessageDigest::new(CatalogMessage::Skill, &skill.encode_to_vec()));
    RootStatus {
        id: id.to_owned(),
        state: RootState::Ready.into(),
        catalog_digest: digest_catalog(digests.collect()).to_string(),
        ..RootStatus::default()
    }
}

fn skills_of<'a>(catalogs: &'a SlimCatalogs, id: &str) -> &'a [Skill] {
    let found = catalogs.iter().find(|(root, _)| *root == id);
    found.map_or(&[][..], |(_, skills)| skills)
}

/// Returns the selected roots with their skills.
fn selected<'a>(
    roots: &'a [SelectedCapabilityRoot],
    catalogs: &'a SlimCatalogs,
) -> impl Iterator<Item = (&'a str, &'a [Skill])> {
    roots
        .iter()
        .map(|root| (root.id.as_str(), skills_of(catalogs, &root.id)))
}

/// Returns the events of all roots that differ from the earlier catalogs, or of all roots. A catalog
/// that the caller knows is not sent.
fn events(
    request: &WatchSkillsRequest,
    before: Option<&SlimCatalogs>,
    now: &SlimCatalogs,
) -> Vec<Event> {
    let mut events = Vec::new();
    if before.is_none() {
        events.push(Event::Reset(Reset::default()));
    }

    for (id, skills) in selected(&request.selected_capability_roots, now) {
        let earlier = before.map(|before| skills_of(before, id));
        if earlier == Some(skills) {
            continue;
        }
        let mut status = root_status(id, skills);
        let is_known = |known: &KnownCatalog| {
            known.root_id == id && known.catalog_digest == status.catalog_digest
        };
        let unchanged = before.is_none() && request.known_catalogs.iter().any(is_known);
        status.unchanged = unchanged;
        events.push(Event::RootStatus(status));

        if !unchanged {
            let removed = earlier.unwrap_or_default().iter();
            let removed = removed.map(|skill| RemovedSkill {
                package: skill.package.clone(),
                reason: 1,
            });
            events.push(Event::Delta(SkillDelta {
                root_id: id.to_owned(),
                removed: removed.collect(),
                upserted: skills.to_vec(),
                ..SkillDelta::default()
            }));
        }
    }

    events.push(Event::Synced(Synced::default()));
    events
}

impl SlimStream {
    /// Waits for the next state, and returns its messages.
    async fn next(mut self) -> Option<(Vec<Result<WatchSkillsResponse, Status>>, Self)> {
        if self.before.is_some() {
            self.service.state.changed().await.ok()?;
        }
        let now = self.service.state.borrow_and_update().clone();
        let events = events(&self.request, self.before.as_deref(), &now.catalogs);
        let messages = events.into_iter().map(|event| {
            Ok(WatchSkillsResponse {
                epoch: self.service.epoch.to_string(),
                revision: now.revision,
                event: Some(event),
            })
        });
        let messages = messages.collect();
        self.before = Some(now.catalogs);
        Some((messages, self))
    }
}

#[tonic::async_trait]
impl CapabilityService for SlimService {
    type WatchSkillsStream =
        Pin<Box<dyn Stream<Item = Result<WatchSkillsResponse, Status>> + Send>>;

    unused_calls! {
        get_executor(GetExecutorRequest) -> GetExecutorResponse;
        list_roots(ListRootsRequest) -> ListRootsResponse;
        resolve_roots(ResolveRootsRequest) -> ResolveRootsResponse;
        list_resources(ListResourcesRequest) -> ListResourcesResponse;
        read_resource(ReadResourceRequest) -> ReadResourceResponse;
    }

    /// Lists only the states of roots. There are no tokens, so that each stream names its catalogs.
    async fn list_skills(
        &self,
        request: Request<ListSkillsRequest>,
    ) -> Result<Response<ListSkillsResponse>, Status> {
        let SlimState { catalogs, revision } = self.state.borrow().clone();
        let roots = selected(&request.get_ref().selected_capability_roots, &catalogs);
        Ok(Response::new(ListSkillsResponse {
            epoch: self.epoch.to_string(),
            revision,
            roots: roots.map(|(id, skills)| root_status(id, skills)).collect(),
            ..ListSkillsResponse::default()
        }))
    }

    async fn watch_skills(
        &self,
        request: Request<WatchSkillsRequest>,
    ) -> Result<Response<Self::WatchSkillsStream>, Status> {
        let start = SlimStream {
            request: request.into_inner(),
            service: self.clone(),
            before: None,
        };
        let states = stream::unfold(start, SlimStream::next);
        Ok(Response::new(Box::pin(states.flat_map(stream::iter))))
    }
}
