//! A hostile daemon: responses have size limits, and skills of other roots are rejected.

use std::pin::Pin;

use caproot::client::{CallError, ChangesSince, Mirror, MirrorSelection, MirrorState, ResumePoint};
use caproot::proto::caproot::v1::capability_service_server::{
    CapabilityService, CapabilityServiceServer,
};
use caproot::proto::caproot::v1::read_resource_response::Body;
use caproot::proto::caproot::v1::watch_skills_response::Event;
use caproot::proto::caproot::v1::{
    Authority, GetExecutorRequest, GetExecutorResponse, ListResourcesRequest,
    ListResourcesResponse, ListRootsRequest, ListRootsResponse, ListSkillsRequest,
    ListSkillsResponse, PublishedRoot, ReadResourceRequest, ReadResourceResponse, Reset,
    ResolveRootsRequest, ResolveRootsResponse, RootState, RootStatus, Skill, SkillDelta, Synced,
    WatchSkillsRequest, WatchSkillsResponse,
};
use serde_json::json;
use tokio_stream::Stream;
use tonic::{Request, Response, Status};

use super::session::{session, value};
use super::{client, published};
use crate::harness::in_time;

pub(super) type ReadResponder = dyn Fn(&ReadResourceRequest) -> ReadResourceResponse + Send + Sync;

/// Daemon with scripted responses.
pub(super) struct HostileDaemon {
    pub(super) skills: Vec<Skill>,
    pub(super) read: Box<ReadResponder>,
    pub(super) published: usize,
    /// Events of a stream that is resumed with a token.
    pub(super) resumed_events: Vec<Event>,
}

pub(super) fn skill(root: &str, package: &str) -> Skill {
    Skill {
        authority: Some(Authority { kind: "executor".into(), id: root.into() }),
        package: package.into(),
        main_resource: format!("{package}/SKILL.md"),
        name: "a".into(),
        description: "d".into(),
        ..Skill::default()
    }
}

#[tonic::async_trait]
impl CapabilityService for HostileDaemon {
    type WatchSkillsStream =
        Pin<Box<dyn Stream<Item = Result<WatchSkillsResponse, Status>> + Send>>;

    async fn get_executor(
        &self,
        _: Request<GetExecutorRequest>,
    ) -> Result<Response<GetExecutorResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn list_roots(
        &self,
        _: Request<ListRootsRequest>,
    ) -> Result<Response<ListRootsResponse>, Status> {
        let roots = vec![PublishedRoot::default(); self.published];
        Ok(Response::new(ListRootsResponse { roots, ..ListRootsResponse::default() }))
    }

    async fn resolve_roots(
        &self,
        _: Request<ResolveRootsRequest>,
    ) -> Result<Response<ResolveRootsResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn list_skills(
        &self,
        _: Request<ListSkillsRequest>,
    ) -> Result<Response<ListSkillsResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn watch_skills(
        &self,
        request: Request<WatchSkillsRequest>,
    ) -> Result<Response<Self::WatchSkillsStream>, Status> {
        let ready =
            RootStatus { id: "r".into(), state: RootState::Ready.into(), ..RootStatus::default() };
        let delta =
            SkillDelta { root_id: "r".into(), upserted: self.skills.clone(), ..Default::default() };
        let mut events = vec![
            Event::Reset(Reset::default()),
            Event::RootStatus(ready),
            Event::Delta(delta),
            Event::Synced(Synced::default()),
        ];
        if !request.get_ref().resume_token.is_empty() {
            events.clone_from(&self.resumed_events);
        }
        let message =
            |event| Ok(WatchSkillsResponse { epoch: "e".into(), revision: 1, event: Some(event) });
        let events = tokio_stream::iter(events.into_iter().map(message));
        let stream = tokio_stream::StreamExt::chain(events, tokio_stream::pending());
        Ok(Response::new(Box::pin(stream)))
    }

    async fn list_resources(
        &self,
        _: Request<ListResourcesRequest>,
    ) -> Result<Response<ListResourcesResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn read_resource(
        &self,
        request: Request<ReadResourceRequest>,
    ) -> Result<Response<ReadResourceResponse>, Status> {
        Ok(Response::new((self.read)(request.get_ref())))
    }
}

/// Serves the daemon for the duration of the test. Returns its address.
pub(super) async fn serve(hostile: HostileDaemon) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address").to_string();
    let service = CapabilityServiceServer::new(hostile);
    let incoming = tokio_stream::wrappers::TcpListenerStream::new(listener);
    tokio::spawn(
        tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming),
    );
    address
}

pub(super) fn read_response(
    request: &ReadResourceRequest,
    body: &str,
    next: &str,
) -> ReadResourceResponse {
    ReadResourceResponse {
        resource: request.resource.clone(),
        body: Some(Body::Contents(body.into())),
        next_cursor: next.into(),
        ..ReadResourceResponse::default()
    }
}

#[tokio::test]
async fn invalid_read_responses_are_errors() {
    let cases: Vec<(&str, Box<ReadResponder>)> = vec![
        ("INVALID_RESPONSE", Box::new(|r| read_response(r, &"x".repeat(100_000), ""))),
        ("INVALID_RESPONSE", Box::new(|r| read_response(r, &"x".repeat(5 << 20), ""))),
        ("INVALID_RESPONSE", Box::new(|r| read_response(r, "x", &"c".repeat(4_000)))),
        ("INVALID_RESPONSE", Box::new(|r| read_response(r, "", "again"))),
        (
            "INVALID_RESPONSE",
            Box::new(|r| ReadResourceResponse { body: None, ..read_response(r, "", "") }),
        ),
        (
            "INVALID_RESPONSE",
            Box::new(|r| ReadResourceResponse {
                resource: "skill://q/x".into(),
                ..read_response(r, "x", "")
            }),
        ),
        (
            "NOT_TEXT",
            Box::new(|r| ReadResourceResponse {
                body: Some(Body::Data(vec![0])),
                ..read_response(r, "", "")
            }),
        ),
        // The first response does not fit into the result. A shorter one does.
        (
            "",
            Box::new(|r| {
                let max_bytes = usize::try_from(r.max_bytes).expect("a page size");
                let cursor = "\u{1}".repeat(500);
                read_response(r, &"\u{1}".repeat(max_bytes), &cursor)
            }),
        ),
    ];
    for (n, (code, read)) in cases.into_iter().enumerate() {
        let skills = vec![skill("r", "skill://r/a")];
        let hostile = HostileDaemon { skills, read, published: 0, resumed_events: Vec::new() };
        let address = serve(hostile).await;
        let session = session(&[("r", &address)]).await;
        let arguments = json!({
            "authority": {"kind": "executor", "id": "r"},
            "package": "skill://r/a",
            "resource": "skill://r/a/x"
        });
        let result = in_time(session.call("skills.read", &arguments)).await;
        let error = value(&result);
        let actual_code = error["error"]["code"].as_str().unwrap_or_default();
        assert_eq!(actual_code, code, "case {n}: {error}");
    }
}

#[tokio::test]
async fn skills_outside_the_selection_are_rejected() {
    for package in ["skill://q/a", "/etc/passwd", ""] {
        let hostile = HostileDaemon {
            skills: vec![skill("r", package)],
            read: Box::new(|r| read_response(r, "", "")),
            published: 0,
            resumed_events: Vec::new(),
        };
        let address = serve(hostile).await;
        let mut mirror =
            Mirror::start(&client(&address).await, MirrorSelection::new(vec![published("r")]));
        let snapshot = in_time(async {
            loop {
                let snapshot = mirror.changed().await;
                if snapshot.state != MirrorState::Connecting(None) {
                    return snapshot;
                }
            }
        })
        .await;
        let MirrorState::Failed(why) = &snapshot.state else { panic!("{:?}", snapshot.state) };
        assert!(why.contains("below another root"), "{why}");
        assert!(snapshot.catalog.skills().is_empty());
    }
}

#[tokio::test]
async fn too_large_responses_are_errors() {
    let hostile = HostileDaemon {
        skills: Vec::new(),
        read: Box::new(|r| read_response(r, "", "")),
        // Each root takes two bytes.
        published: 3 << 20,
        resumed_events: Vec::new(),
    };
    let address = serve(hostile).await;
    let error = in_time(client(&address).await.list_roots()).await.expect_err("too large");
    let CallError::Status(status) = &error else { panic!("{error}") };
    assert!(status.message().contains("too large"), "{error}");
}

/// Changes outside the selection are rejected. The catalog is still complete.
#[tokio::test]
async fn changes_outside_the_selection_are_rejected() {
    let delta = |root: &str, package: &str| {
        let upserted = vec![skill(root, package)];
        let root_id = root.to_owned();
        Event::Delta(SkillDelta { root_id, upserted, ..SkillDelta::default() })
    };
    let status = RootStatus { id: "q".into(), ..RootStatus::default() };
    for (resumed_events, part) in [
        (delta("q", "skill://q/a"), "not selected"),
        (delta("r", "skill://q/a"), "not selected"),
        (delta("r", "/etc/passwd"), "not selected"),
        (Event::RootStatus(status), "not selected"),
        (Event::Reset(Reset::default()), "does not know the token"),
    ] {
        let hostile = HostileDaemon {
            skills: vec![skill("r", "skill://r/a")],
            read: Box::new(|r| read_response(r, "", "")),
            published: 0,
            resumed_events: vec![resumed_events, Event::Synced(Synced::default())],
        };
        let client = client(&serve(hostile).await).await;
        let from = ResumePoint { token: "t".into(), ..ResumePoint::default() };
        let mirror = Mirror::resume(&client, MirrorSelection::new(vec![published("r")]), from);
        assert!(mirror.wait_until_live(crate::harness::HANG_TIMEOUT).await);
        let snapshot = mirror.snapshot();
        let ChangesSince::Unknown { reason, roots } = &*snapshot.changes_since.expect("a report")
        else {
            panic!("changes outside the selection were accepted")
        };
        assert!(reason.contains(part) && *roots == ["r"], "{reason}");
        assert_eq!(snapshot.catalog.skills().len(), 1);
    }
}
