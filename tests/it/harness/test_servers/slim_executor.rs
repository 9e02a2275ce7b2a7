//! Executor without files: serves generated catalogs, which the test changes.

use std::pin::Pin;
use std::sync::Arc;

use caproot_core::proto::caproot::v1::capability_service_server::{
    CapabilityService, CapabilityServiceServer,
};
use caproot_core::proto::caproot::v1::watch_skills_response::Event;
use caproot_core::proto::caproot::v1::{
    GetExecutorRequest, GetExecutorResponse, ListResourcesRequest, ListResourcesResponse,
    ListRootsRequest, ListRootsResponse, ListSkillsRequest, ListSkillsResponse,
    ReadResourceRequest, ReadResourceResponse, RemovedSkill, Reset, ResolveRootsRequest,
    ResolveRootsResponse, RootState, RootStatus, SelectedCapabilityRoot, Skill, SkillDelta, Synced,
    WatchSkillsRequest, WatchSkillsResponse,
};
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_stream::Stream;
use tokio_util::task::AbortOnDropHandle;
use tonic::service::Routes;
use tonic::{Request, Response, Status};

use super::unused_calls::unused_calls;
use super::{bind, free_port, hostile_skill};
use crate::calls::catalog_digests::digest_messages;

/// Skills of each root, by root id.
pub(crate) type SlimCatalogs = Vec<(&'static str, Vec<Skill>)>;

/// Executor that serves until it is dropped. Its connections end with it.
pub(crate) struct SlimExecutor {
    pub(crate) address: String,
    catalogs: watch::Sender<Arc<SlimCatalogs>>,
    _task: AbortOnDropHandle<()>,
}

#[derive(Clone)]
struct SlimService {
    epoch: String,
    catalogs: watch::Receiver<Arc<SlimCatalogs>>,
}

/// Returns a skill of a root with this name.
pub(crate) fn slim_skill(root: &str, name: &str) -> Skill {
    Skill {
        name: name.to_owned(),
        ..hostile_skill(root, &format!("skill://{root}/{name}"))
    }
}

impl SlimExecutor {
    pub(crate) async fn start(catalogs: SlimCatalogs) -> Self {
        let (sender, catalogs) = watch::channel(Arc::new(catalogs));
        let (listener, address) = bind(&free_port()).await;
        // Each start has its own address.
        let service = SlimService {
            epoch: address.clone(),
            catalogs,
        };
        let routes = Routes::new(CapabilityServiceServer::new(service));
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let service = TowerToHyperService::new(routes.clone());
                let server = http2::Builder::new(TokioExecutor::new());
                connections.spawn(server.serve_connection(TokioIo::new(stream), service));
            }
        });
        Self {
            address,
            catalogs: sender,
            _task: AbortOnDropHandle::new(task),
        }
    }

    /// Replaces all catalogs.
    pub(crate) fn change(&self, catalogs: SlimCatalogs) {
        self.catalogs.send_replace(Arc::new(catalogs));
    }
}

fn root_status(id: &str, skills: &[Skill]) -> RootStatus {
    RootStatus {
        id: id.to_owned(),
        state: RootState::Ready.into(),
        catalog_digest: digest_messages(skills.iter(), [].iter(), [].iter(), [].iter()),
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

/// Returns the events of all roots that differ from the earlier catalogs, or of all roots.
fn events(
    request: &WatchSkillsRequest,
    before: Option<&SlimCatalogs>,
    now: &SlimCatalogs,
) -> Vec<Event> {
    let mut events: Vec<_> = before
        .is_none()
        .then(|| Event::Reset(Reset::default()))
        .into_iter()
        .collect();
    for (id, skills) in selected(&request.selected_capability_roots, now) {
        let earlier = before.map(|before| skills_of(before, id));
        if earlier == Some(skills) {
            continue;
        }
        let mut status = root_status(id, skills);
        let is_known = |known: &caproot_core::proto::caproot::v1::KnownCatalog| {
            known.root_id == id && known.catalog_digest == status.catalog_digest
        };
        let unchanged = before.is_none() && request.known_catalogs.iter().any(is_known);
        status.unchanged = unchanged;
        events.push(Event::RootStatus(status));
        if !unchanged {
            let removed = earlier.unwrap_or_default().iter();
            let removed = removed.map(|s| RemovedSkill {
                package: s.package.clone(),
                reason: 1,
            });
            let (root_id, removed, upserted) = (id.to_owned(), removed.collect(), skills.to_vec());
            events.push(Event::Delta(SkillDelta {
                root_id,
                removed,
                upserted,
                ..Default::default()
            }));
        }
    }
    events
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
        let catalogs = self.catalogs.borrow().clone();
        let roots = selected(&request.get_ref().selected_capability_roots, &catalogs);
        let roots = roots.map(|(id, skills)| root_status(id, skills)).collect();
        let epoch = self.epoch.clone();
        Ok(Response::new(ListSkillsResponse {
            epoch,
            revision: 1,
            roots,
            ..Default::default()
        }))
    }

    async fn watch_skills(
        &self,
        request: Request<WatchSkillsRequest>,
    ) -> Result<Response<Self::WatchSkillsStream>, Status> {
        let (request, service, revision) = (request.into_inner(), self.clone(), 0_u64);
        let start = (request, service, None::<Arc<SlimCatalogs>>, revision);
        let states = futures_util::stream::unfold(start, |state| async move {
            let (request, mut service, before, revision) = state;
            if before.is_some() {
                service.catalogs.changed().await.ok()?;
            }
            let now = service.catalogs.borrow_and_update().clone();
            let mut events = events(&request, before.as_deref(), &now);
            events.push(Event::Synced(Synced::default()));
            let revision = revision + 1;
            let message = |event| {
                let (epoch, event) = (service.epoch.clone(), Some(event));
                Ok(WatchSkillsResponse {
                    epoch,
                    revision,
                    event,
                })
            };
            let messages: Vec<_> = events.into_iter().map(message).collect();
            Some((
                futures_util::stream::iter(messages),
                (request, service, Some(now), revision),
            ))
        });
        Ok(Response::new(Box::pin(futures_util::StreamExt::flatten(
            states,
        ))))
    }
}
