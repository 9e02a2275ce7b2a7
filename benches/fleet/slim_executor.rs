//! Executor without files, for the storm: serves generated skills over TLS at a fixed address.

use crate::Outcome;
use crate::unused_calls::unused_calls;
use caproot_core::proto::caproot::v1::capability_service_server::{
    CapabilityService, CapabilityServiceServer,
};
use caproot_core::proto::caproot::v1::watch_skills_response::Event;
use caproot_core::proto::caproot::v1::{
    Authority, GetExecutorRequest, GetExecutorResponse, KnownCatalog, ListResourcesRequest,
    ListResourcesResponse, ListRootsRequest, ListRootsResponse, ListSkillsRequest,
    ListSkillsResponse, ReadResourceRequest, ReadResourceResponse, RemovedSkill, Reset,
    ResolveRootsRequest, ResolveRootsResponse, RootState, RootStatus, Skill, SkillDelta, Synced,
    WatchSkillsRequest, WatchSkillsResponse,
};
use data_encoding::HEXLOWER;
use futures_util::StreamExt as _;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use prost::Message as _;
use sha2::{Digest as _, Sha256};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_stream::Stream;
use tokio_util::task::AbortOnDropHandle;
use tonic::service::Routes;
use tonic::{Request, Response, Status};

/// Root of all executors.
pub(crate) const ROOT: &str = "r";

/// Executor that serves until it is dropped. Its connections end with it.
pub(crate) struct SlimExecutor {
    pub(crate) address: SocketAddr,
    state: watch::Sender<SlimState>,
    _task: AbortOnDropHandle<()>,
}

/// Names of the skills, and their revision.
#[derive(Clone)]
struct SlimState {
    names: Arc<Vec<String>>,
    revision: u64,
}

#[derive(Clone)]
struct SlimService {
    epoch: Arc<str>,
    state: watch::Receiver<SlimState>,
}

impl SlimExecutor {
    /// Starts the executor at an address, which may have port 0.
    pub(crate) async fn start(
        address: SocketAddr,
        tls: TlsAcceptor,
        epoch: &str,
        names: Vec<String>,
    ) -> Outcome<Self> {
        let (state, receiver) = watch::channel(SlimState {
            names: Arc::new(names),
            revision: 1,
        });
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let service = SlimService {
            epoch: epoch.into(),
            state: receiver,
        };
        let routes = Routes::new(CapabilityServiceServer::new(service));
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                tokio::select! {
                    accepted = listener.accept() => {
                        let Ok((stream, _)) = accepted else { continue };
                        let (tls, routes) = (tls.clone(), routes.clone());
                        connections.spawn(async move {
                            let stream = TokioIo::new(tls.accept(stream).await?);
                            let mut http = http2::Builder::new(TokioExecutor::new());
                            http.timer(TokioTimer::new());
                            let service = TowerToHyperService::new(routes);
                            let served = http.serve_connection(stream, service).await;
                            served.map_err(std::io::Error::other)
                        });
                    }
                    // The ends of connections, so that the set does not grow.
                    Some(_) = connections.join_next() => {}
                }
            }
        });
        Ok(Self {
            address,
            state,
            _task: AbortOnDropHandle::new(task),
        })
    }

    /// Replaces all skills.
    pub(crate) fn change(&self, names: Vec<String>) {
        let next = |state: &mut SlimState| {
            *state = SlimState {
                names: Arc::new(names),
                revision: state.revision + 1,
            };
        };
        self.state.send_modify(next);
    }
}

fn package(name: &str) -> String {
    format!("skill://{ROOT}/{name}")
}

fn skill(name: &str) -> Skill {
    let package = package(name);
    Skill {
        authority: Some(Authority {
            kind: "executor".into(),
            id: ROOT.into(),
        }),
        main_resource: format!("{package}/SKILL.md"),
        package,
        name: name.to_owned(),
        description: "d".into(),
        ..Skill::default()
    }
}

/// Computes the digest of the skills, at least one, as `root.proto` describes it.
fn digest_skills(skills: &[Skill]) -> String {
    let hash = |skill: &Skill| Sha256::digest([&[1][..], &skill.encode_to_vec()].concat());
    let mut hashes: Vec<_> = skills.iter().map(hash).collect();
    hashes.sort();
    let digest = Sha256::digest(Sha256::digest(hashes.concat()));
    format!("sha256:{}", HEXLOWER.encode(&digest))
}

fn skills(names: &[String]) -> Vec<Skill> {
    names.iter().map(|name| skill(name)).collect()
}

fn root_status(skills: &[Skill]) -> RootStatus {
    RootStatus {
        id: ROOT.into(),
        state: RootState::Ready.into(),
        catalog_digest: digest_skills(skills),
        ..RootStatus::default()
    }
}

/// Returns the events of a whole state, or of the difference to an earlier state. A whole state that
/// the caller knows is not sent.
fn events(known: &[KnownCatalog], before: Option<&SlimState>, now: &SlimState) -> Vec<Event> {
    let upserted = skills(&now.names);
    let mut status = root_status(&upserted);
    let first = before.is_none().then(|| Event::Reset(Reset::default()));
    status.unchanged = before.is_none()
        && known
            .iter()
            .any(|known| known.catalog_digest == status.catalog_digest);
    let is_unchanged = status.unchanged;
    let removed = before.into_iter().flat_map(|before| before.names.iter());
    let removed = removed
        .map(|name| RemovedSkill {
            package: package(name),
            reason: 1,
        })
        .collect();
    let delta = SkillDelta {
        root_id: ROOT.into(),
        removed,
        upserted,
        ..SkillDelta::default()
    };
    let delta = (!is_unchanged).then_some(Event::Delta(delta));
    let rest = [
        Some(Event::RootStatus(status)),
        delta,
        Some(Event::Synced(Synced::default())),
    ];
    first
        .into_iter()
        .chain(rest.into_iter().flatten())
        .collect()
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

    /// Lists only the state of the root.
    async fn list_skills(
        &self,
        _: Request<ListSkillsRequest>,
    ) -> Result<Response<ListSkillsResponse>, Status> {
        let SlimState { names, revision } = self.state.borrow().clone();
        Ok(Response::new(ListSkillsResponse {
            epoch: self.epoch.to_string(),
            revision,
            roots: vec![root_status(&skills(&names))],
            ..ListSkillsResponse::default()
        }))
    }

    async fn watch_skills(
        &self,
        request: Request<WatchSkillsRequest>,
    ) -> Result<Response<Self::WatchSkillsStream>, Status> {
        let known = request.into_inner().known_catalogs;
        let start = (self.clone(), known, None::<SlimState>);
        let states =
            futures_util::stream::unfold(start, |(mut service, known, before)| async move {
                if before.is_some() {
                    service.state.changed().await.ok()?;
                }
                let now = service.state.borrow_and_update().clone();
                let (epoch, revision) = (service.epoch.to_string(), now.revision);
                let message = |event| {
                    let (epoch, event) = (epoch.clone(), Some(event));
                    Ok(WatchSkillsResponse {
                        epoch,
                        revision,
                        event,
                    })
                };
                let messages: Vec<_> = events(&known, before.as_ref(), &now)
                    .into_iter()
                    .map(message)
                    .collect();
                Some((
                    futures_util::stream::iter(messages),
                    (service, known, Some(now)),
                ))
            });
        Ok(Response::new(Box::pin(states.flatten())))
    }
}
