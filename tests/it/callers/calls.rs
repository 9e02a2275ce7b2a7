//! Calls of a caller with a token.

use caproot::proto::caproot::v1::watch_skills_response::Event;
use caproot::proto::caproot::v1::{
    Diagnostic, ListResourcesRequest, ListRootsRequest, ListRootsResponse, ListSkillsRequest,
    ListSkillsResponse, ReadResourceRequest, ReadResourceResponse, ResetReason,
    ResolveRootsRequest, ResolvedRoot, RootStatus, SelectedCapabilityRoot, WatchSkillsRequest,
    WatchSkillsResponse,
};
use tonic::{Status, Streaming};

use super::with_token;
use crate::harness::{Daemon, in_time, list_request, located};

pub(super) fn published(id: &str) -> SelectedCapabilityRoot {
    located(id, &format!("published:{id}"))
}

pub(super) async fn list_roots(daemon: &Daemon, token: &str) -> ListRootsResponse {
    let call =
        async { daemon.client.clone().list_roots(with_token(token, ListRootsRequest {})).await };
    in_time(call).await.expect("ListRoots").into_inner()
}

pub(super) async fn try_list(
    daemon: &Daemon,
    token: &str,
    request: ListSkillsRequest,
) -> Result<ListSkillsResponse, Status> {
    let call = async { daemon.client.clone().list_skills(with_token(token, request)).await };
    Ok(in_time(call).await?.into_inner())
}

pub(super) async fn list(
    daemon: &Daemon,
    token: &str,
    roots: &[SelectedCapabilityRoot],
) -> ListSkillsResponse {
    try_list(daemon, token, list_request(roots)).await.expect("ListSkills")
}

pub(super) fn packages(list: &ListSkillsResponse) -> Vec<&str> {
    list.skills.iter().map(|skill| &*skill.package).collect()
}

pub(super) async fn resolve(
    daemon: &Daemon,
    token: &str,
    root: &SelectedCapabilityRoot,
) -> ResolvedRoot {
    let request = ResolveRootsRequest {
        selected_capability_roots: vec![root.clone()],
        ..ResolveRootsRequest::default()
    };
    let call = async { daemon.client.clone().resolve_roots(with_token(token, request)).await };
    let mut roots = in_time(call).await.expect("ResolveRoots").into_inner().roots;
    roots.pop().expect("one root")
}

pub(super) async fn read(
    daemon: &Daemon,
    token: &str,
    request: ReadResourceRequest,
) -> Result<ReadResourceResponse, Status> {
    let call = async { daemon.client.clone().read_resource(with_token(token, request)).await };
    Ok(in_time(call).await?.into_inner())
}

pub(super) async fn list_files(
    daemon: &Daemon,
    token: &str,
    root: &SelectedCapabilityRoot,
    package: &str,
) -> Result<Vec<String>, Status> {
    let request = ListResourcesRequest {
        root: Some(root.clone()),
        package: package.into(),
        ..ListResourcesRequest::default()
    };
    let call = async { daemon.client.clone().list_resources(with_token(token, request)).await };
    let files = in_time(call).await?.into_inner().resources.into_iter();
    Ok(files.map(|file| file.resource[package.len() + 1..].to_owned()).collect())
}

pub(super) async fn watch(
    daemon: &Daemon,
    token: &str,
    root: &SelectedCapabilityRoot,
    resume_token: &str,
) -> Streaming<WatchSkillsResponse> {
    let request = WatchSkillsRequest {
        selected_capability_roots: vec![root.clone()],
        resume_token: resume_token.into(),
        ..WatchSkillsRequest::default()
    };
    let call = async { daemon.client.clone().watch_skills(with_token(token, request)).await };
    in_time(call).await.expect("a stream").into_inner()
}

/// Events of a stream up to the next `synced`.
#[derive(Debug, Default)]
pub(super) struct WatchUpdate {
    pub reset: Option<ResetReason>,
    pub upserted: Vec<String>,
    pub removed: Vec<String>,
    pub statuses: Vec<RootStatus>,
    pub diagnostics: Vec<Diagnostic>,
    pub token: String,
}

/// Collects the events of a stream up to the next `synced`.
pub(super) async fn next_update(stream: &mut Streaming<WatchSkillsResponse>) -> WatchUpdate {
    let mut update = WatchUpdate::default();
    loop {
        let event = in_time(stream.message()).await.expect("no error").expect("no end").event;
        match event.expect("an event") {
            Event::Reset(reset) => update.reset = Some(reset.reason()),
            Event::RootStatus(status) => update.statuses.push(status),
            Event::Delta(delta) => {
                update.upserted.extend(delta.upserted.into_iter().map(|skill| skill.package));
                update.removed.extend(delta.removed.into_iter().map(|removed| removed.package));
            }
            Event::Diagnostics(list) => update.diagnostics.extend(list.diagnostics),
            Event::Synced(synced) => {
                update.token = synced.resume_token;
                return update;
            }
            Event::Bookmark(_) => {}
        }
    }
}
