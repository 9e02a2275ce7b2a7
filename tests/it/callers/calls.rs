//! Calls of a caller with a token.

use caproot_core::proto::caproot::v1::watch_skills_response::Event;
use caproot_core::proto::caproot::v1::{
    Diagnostic, ListRootsRequest, ListSkillsResponse, PublishedRoot, ResetReason, ResolvedRoot,
    RootStatus, SelectedCapabilityRoot, WatchSkillsRequest, WatchSkillsResponse,
};
use tonic::{Status, Streaming};

use super::with_token;
use crate::harness::{Daemon, files_request, in_time, list_request, resolve_request};

pub(super) async fn published_roots(daemon: &Daemon, token: &str) -> Vec<PublishedRoot> {
    let mut client = daemon.client.clone();
    let answer = in_time(client.list_roots(with_token(token, ListRootsRequest {}))).await;
    answer.expect("ListRoots").into_inner().roots
}

pub(super) async fn list(
    daemon: &Daemon,
    token: &str,
    roots: &[SelectedCapabilityRoot],
) -> ListSkillsResponse {
    daemon
        .try_list(with_token(token, list_request(roots)))
        .await
        .expect("ListSkills")
}

pub(super) async fn resolve(
    daemon: &Daemon,
    token: &str,
    root: &SelectedCapabilityRoot,
) -> ResolvedRoot {
    let request = resolve_request(std::slice::from_ref(root));
    let answer = daemon.try_resolve(with_token(token, request)).await;
    answer.expect("ResolveRoots").roots.pop().expect("one root")
}

pub(super) async fn list_files(
    daemon: &Daemon,
    token: &str,
    root: &SelectedCapabilityRoot,
    package: &str,
) -> Result<Vec<String>, Status> {
    let request = files_request(root, package);
    let files = daemon
        .list_resources(with_token(token, request))
        .await?
        .resources
        .into_iter();
    Ok(files
        .map(|file| file.resource[package.len() + 1..].to_owned())
        .collect())
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
    daemon
        .watch(with_token(token, request))
        .await
        .expect("a stream")
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
        let event = in_time(stream.message())
            .await
            .expect("no error")
            .expect("no end")
            .event;
        match event.expect("an event") {
            Event::Reset(reset) => update.reset = Some(reset.reason()),
            Event::RootStatus(status) => update.statuses.push(status),
            Event::Delta(delta) => {
                update
                    .upserted
                    .extend(delta.upserted.into_iter().map(|skill| skill.package));
                update
                    .removed
                    .extend(delta.removed.into_iter().map(|removed| removed.package));
            }
            Event::Diagnostics(list) => update.diagnostics.extend(list.diagnostics),
            Event::Synced(synced) => {
                update.token = synced.resume_token;
                return update;
            }
            Event::Bookmark(_) | Event::Readiness(_) => {}
        }
    }
}
