//! Daemon with scripted responses.

use std::pin::Pin;

use caproot_core::proto::caproot::v1::capability_service_server::{
    CapabilityService, CapabilityServiceServer,
};
use caproot_core::proto::caproot::v1::read_resource_response::Body;
use caproot_core::proto::caproot::v1::watch_skills_response::Event;
use caproot_core::proto::caproot::v1::{
    Authority, GetExecutorRequest, GetExecutorResponse, ListResourcesRequest,
    ListResourcesResponse, ListRootsRequest, ListRootsResponse, ListSkillsRequest,
    ListSkillsResponse, PublishedRoot, ReadResourceRequest, ReadResourceResponse, Reset,
    ResolveRootsRequest, ResolveRootsResponse, RootState, RootStatus, Skill, SkillDelta, Synced,
    WatchSkillsRequest, WatchSkillsResponse,
};
use caproot_core::wire::ContentDigest;
use tokio_stream::Stream;
use tonic::service::Routes;
use tonic::{Request, Response, Status};

use super::unused_calls::unused_calls;
use super::{free_port, start_grpc};

pub(crate) type ReadResponder = dyn Fn(&ReadResourceRequest) -> ReadResourceResponse + Send + Sync;
type FilesResponder = dyn Fn(&ListResourcesRequest) -> ListResourcesResponse + Send + Sync;

/// Daemon with scripted responses.
pub(crate) struct HostileDaemon {
    pub(crate) skills: Vec<Skill>,
    pub(crate) read: Box<ReadResponder>,
    pub(crate) files: Box<FilesResponder>,
    pub(crate) published: usize,
    /// Events of a stream that is resumed with a token.
    pub(crate) resumed_events: Vec<Event>,
    /// Events of a stream that names known catalogs. If there are any, other streams end after their
    /// events.
    pub(crate) known_events: Vec<Event>,
    /// Digest of the catalog of the root `r`. If it is set, the daemon lists the states of roots.
    pub(crate) catalog_digest: String,
}

impl Default for HostileDaemon {
    /// A daemon without skills, whose files are empty texts.
    fn default() -> Self {
        Self {
            skills: Vec::new(),
            read: Box::new(|request| read_response(request, "", "")),
            files: Box::new(|_| ListResourcesResponse::default()),
            published: 0,
            resumed_events: Vec::new(),
            known_events: Vec::new(),
            catalog_digest: String::new(),
        }
    }
}

/// Returns a skill with this package of a root.
pub(crate) fn hostile_skill(root: &str, package: &str) -> Skill {
    Skill {
        authority: Some(Authority {
            kind: "executor".into(),
            id: root.into(),
        }),
        package: package.into(),
        main_resource: format!("{package}/SKILL.md"),
        name: "a".into(),
        description: "d".into(),
        user_invocable: true,
        ..Skill::default()
    }
}

impl HostileDaemon {
    fn ready_root(&self) -> RootStatus {
        RootStatus {
            id: "r".into(),
            state: RootState::Ready.into(),
            catalog_digest: self.catalog_digest.clone(),
            ..RootStatus::default()
        }
    }

    /// Serves the daemon until the end of the test. Returns its address.
    pub(crate) async fn start(self) -> String {
        start_grpc(
            &free_port(),
            Routes::new(CapabilityServiceServer::new(self)),
        )
        .await
    }
}

#[tonic::async_trait]
impl CapabilityService for HostileDaemon {
    type WatchSkillsStream =
        Pin<Box<dyn Stream<Item = Result<WatchSkillsResponse, Status>> + Send>>;

    unused_calls! {
        get_executor(GetExecutorRequest) -> GetExecutorResponse;
        resolve_roots(ResolveRootsRequest) -> ResolveRootsResponse;
    }

    async fn list_roots(
        &self,
        _: Request<ListRootsRequest>,
    ) -> Result<Response<ListRootsResponse>, Status> {
        let roots = vec![PublishedRoot::default(); self.published];
        Ok(Response::new(ListRootsResponse {
            roots,
            ..ListRootsResponse::default()
        }))
    }

    async fn list_skills(
        &self,
        request: Request<ListSkillsRequest>,
    ) -> Result<Response<ListSkillsResponse>, Status> {
        if self.catalog_digest.is_empty() || !request.get_ref().roots_only {
            return Err(Status::unimplemented(""));
        }
        let (epoch, roots) = ("e".to_owned(), vec![self.ready_root()]);
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
        let ready = self.ready_root();
        let delta = SkillDelta {
            root_id: "r".into(),
            upserted: self.skills.clone(),
            ..Default::default()
        };
        let mut events = vec![
            Event::Reset(Reset::default()),
            Event::RootStatus(ready),
            Event::Delta(delta),
            Event::Synced(Synced::default()),
        ];
        if !request.get_ref().resume_token.is_empty() {
            events.clone_from(&self.resumed_events);
        }
        let names_known =
            !request.get_ref().known_catalogs.is_empty() && !self.known_events.is_empty();
        if names_known {
            events.clone_from(&self.known_events);
        }
        let message = |event| {
            Ok(WatchSkillsResponse {
                epoch: "e".into(),
                revision: 1,
                event: Some(event),
            })
        };
        let events = tokio_stream::iter(events.into_iter().map(message));
        if !self.known_events.is_empty() && !names_known {
            return Ok(Response::new(Box::pin(events)));
        }
        let stream = tokio_stream::StreamExt::chain(events, tokio_stream::pending());
        Ok(Response::new(Box::pin(stream)))
    }

    async fn list_resources(
        &self,
        request: Request<ListResourcesRequest>,
    ) -> Result<Response<ListResourcesResponse>, Status> {
        Ok(Response::new((self.files)(request.get_ref())))
    }

    async fn read_resource(
        &self,
        request: Request<ReadResourceRequest>,
    ) -> Result<Response<ReadResourceResponse>, Status> {
        Ok(Response::new((self.read)(request.get_ref())))
    }
}

/// Returns a response with the text and the cursor of the next page. The digest is the one of the text.
pub(crate) fn read_response(
    request: &ReadResourceRequest,
    body: &str,
    next: &str,
) -> ReadResourceResponse {
    ReadResourceResponse {
        resource: request.resource.clone(),
        body: Some(Body::Contents(body.into())),
        digest: ContentDigest::of(body).to_string(),
        next_cursor: next.into(),
        ..ReadResourceResponse::default()
    }
}
