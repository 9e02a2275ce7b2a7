//! Clients that make random calls while the tree changes. Each answer must be complete, of one
//! version, of the right root, and not older than the previous answer.

use std::sync::Arc;
use std::time::Duration;

use caproot_core::proto::caproot::v1::{
    Consistency, GetExecutorRequest, ListResourcesRequest, ListRootsRequest, ListSkillsRequest,
    ReadResourceRequest, ResolveRootsRequest, SelectedCapabilityRoot,
};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tonic::Status;

use super::file_contents::{ContentKind, recognize};
use super::lists::list_all_pages;
use super::shared_state::{Phase, SharedState, root_dir};
use super::tree::{GROUPS, SKILLS};
use crate::harness::content_digest;
use crate::harness::rng::Rng;
use crate::harness::{Daemon, bytes_of, in_time, read_request};

/// Number of clients with random calls.
pub(super) const RANDOM_CALLERS: usize = 4;

/// Longest pause between two calls, in milliseconds, so that other clients get CPU time.
const MAX_PAUSE_MS: u64 = 50;

/// Errors for a file that never existed, was removed, or is being removed.
const NOT_FOUND_REASONS: [&str; 4] = [
    "PACKAGE_NOT_FOUND",
    "RESOURCE_NOT_FOUND",
    "RESOURCE_CHANGED",
    "ROOT_UNAVAILABLE",
];

/// Client with random calls.
pub(super) struct RandomCaller {
    shared: Arc<SharedState>,
    dice: Rng,
    daemon: Daemon,
    /// Number of the daemon process behind `daemon`.
    process_number: u64,
    /// Epoch and revision of the last answer.
    last_answer: (String, u64),
    phase: watch::Receiver<Phase>,
}

impl RandomCaller {
    /// Connects a client.
    pub(super) async fn new(shared: Arc<SharedState>, seed: u64) -> Self {
        let (process_number, daemon) = shared.connect(0, false).await;
        let (dice, phase, last_answer) =
            (Rng::new(seed), shared.phase.subscribe(), (String::new(), 0));
        Self {
            shared,
            dice,
            daemon,
            process_number,
            last_answer,
            phase,
        }
    }

    /// Makes calls while the tree changes.
    pub(super) async fn run(mut self) {
        loop {
            let busy = |phase: &Phase| matches!(phase, Phase::Busy | Phase::End);
            let phase = self
                .phase
                .wait_for(busy)
                .await
                .expect("the shared state exists")
                .clone();
            if matches!(phase, Phase::End) {
                return;
            }
            if self.shared.is_over(self.process_number) || self.dice.one_in(60) {
                let after =
                    self.process_number - u64::from(!self.shared.is_over(self.process_number));
                let (process_number, daemon) = self.shared.connect(after, false).await;
                if process_number > self.process_number {
                    self.last_answer = (String::new(), 0);
                }
                (self.process_number, self.daemon) = (process_number, daemon);
                self.shared.counters.add("call: reconnects", 1);
            }
            let (kind, result) = match self.dice.below(40) {
                0 => ("ListSkills cached", self.list(Consistency::Cached).await),
                1 => ("ListSkills fresh", self.list(Consistency::Fresh).await),
                2 => ("ResolveRoots", self.resolve().await),
                3 => ("GetExecutor", self.executor().await),
                4..=9 => ("ListResources", self.resources().await),
                10..=24 => ("ReadResource main", self.read("").await),
                25..=38 => ("ReadResource other", self.read("/references/notes").await),
                _ => ("left without waiting", self.drop_call().await),
            };
            self.shared.counters.add(&format!("call: {kind}"), 1);
            if let Err((status, allowed_reasons)) = result {
                self.shared
                    .assert_expected_error(self.process_number, &status, allowed_reasons);
            }
            sleep(Duration::from_millis(self.dice.below(MAX_PAUSE_MS))).await;
        }
    }

    /// Asserts one epoch and growing revisions for each daemon process.
    fn assert_not_older(&mut self, epoch: &str, revision: u64) {
        let (before, last) = &self.last_answer;
        assert!(
            before.is_empty() || before == epoch,
            "one epoch for each process"
        );
        assert!(revision >= *last, "revision {revision} after {last}");
        self.last_answer = (epoch.to_owned(), revision);
    }

    fn pick_request(&mut self) -> usize {
        let requests = self.shared.requests.len() as u64;
        usize::try_from(self.dice.below(requests)).expect("a place in memory")
    }

    /// Picks a root of one of the requests, and a package that may exist in it.
    fn package(&mut self) -> (SelectedCapabilityRoot, String) {
        let request_index = self.pick_request();
        let root = self.dice.pick(self.shared.roots(request_index)).clone();
        let (group, skill) = (self.dice.below(GROUPS), self.dice.below(SKILLS));
        let package = match self.dice.below(10) {
            0 => format!("moved/g{group:02}/s{skill:02}"),
            1 => format!("g{group:02}/x{}", skill % 9),
            2 => format!("current/t{}", skill % 2),
            3 => format!("g{group:02}/missing"),
            _ => format!("g{group:02}/s{skill:02}"),
        };
        let package = format!("skill://{}/{package}", root.id);
        (root, package)
    }

    async fn list(&mut self, consistency: Consistency) -> Result<(), CallError> {
        let request_index = self.pick_request();
        let request = ListSkillsRequest {
            consistency: consistency.into(),
            page_size: *self.dice.pick(&[0, 0, 100, 333]),
            ..self.shared.requests[request_index].clone()
        };
        let list = list_all_pages(&self.daemon, &request).await;
        let list = list.map_err(allow_reasons(&["CATALOG_CHANGED"]))?;
        self.assert_not_older(&list.epoch, list.revision);
        self.shared.record_catalog(
            self.process_number,
            request_index,
            list.revision,
            list.skills.iter(),
        );
        Ok(())
    }

    async fn resolve(&mut self) -> Result<(), CallError> {
        let request_index = self.pick_request();
        let roots = self.shared.roots(request_index).to_vec();
        let ids: Vec<_> = roots.iter().map(|root| root.id.clone()).collect();
        let consistency = *self.dice.pick(&[Consistency::Cached, Consistency::Fresh]);
        let mut request = ResolveRootsRequest {
            selected_capability_roots: roots,
            consistency: consistency.into(),
            page_size: *self.dice.pick(&[0, 1]),
            page_token: String::new(),
        };
        let mut first = None;
        loop {
            let answer = in_time(self.daemon.client.resolve_roots(request.clone())).await;
            let answer = answer
                .map_err(allow_reasons(&["CATALOG_CHANGED"]))?
                .into_inner();
            let version = (answer.epoch.clone(), answer.revision);
            assert_eq!(
                first.get_or_insert_with(|| version.clone()),
                &version,
                "of one revision"
            );
            assert!(
                answer.roots.iter().map(|root| &root.id).eq(&ids),
                "in request order"
            );
            for (root, plugin) in answer
                .roots
                .iter()
                .flat_map(|r| r.plugins.iter().map(move |p| (r, p)))
            {
                assert!(
                    plugin.package.starts_with(&format!("skill://{}/", root.id)),
                    "{plugin:?}"
                );
            }
            request.page_token = answer.next_page_token;
            if request.page_token.is_empty() {
                self.assert_not_older(&version.0, version.1);
                return Ok(());
            }
        }
    }

    async fn executor(&mut self) -> Result<(), CallError> {
        let executor = in_time(self.daemon.client.get_executor(GetExecutorRequest {})).await;
        let executor = executor.map_err(allow_reasons(&[]))?.into_inner();
        self.assert_not_older(&executor.epoch, executor.revision);
        let watch = executor.watch.expect("a watch status");
        assert_eq!(watch.backend, "inotify", "{watch:?}");
        let roots = in_time(self.daemon.client.list_roots(ListRootsRequest {})).await;
        let roots = roots.map_err(allow_reasons(&[]))?.into_inner();
        assert!(roots.roots.is_empty(), "none is published: {roots:?}");
        self.assert_not_older(&roots.epoch, roots.revision);
        Ok(())
    }

    async fn resources(&mut self) -> Result<(), CallError> {
        let (root, package) = self.package();
        let mut request = ListResourcesRequest {
            root: Some(root),
            package: package.clone(),
            page_size: *self.dice.pick(&[0, 1]),
            include_digests: self.dice.one_in(2),
            ..ListResourcesRequest::default()
        };
        let mut last = String::new();
        loop {
            let page = in_time(self.daemon.client.list_resources(request.clone())).await;
            let page = page
                .map_err(allow_reasons(&NOT_FOUND_REASONS))?
                .into_inner();
            self.assert_not_older(&page.epoch, page.revision);
            for resource in page.resources {
                assert!(
                    resource.resource.starts_with(&format!("{package}/")),
                    "{resource:?}"
                );
                assert!(
                    resource.resource > last,
                    "in order, each once: {resource:?} after {last}"
                );
                last = resource.resource;
            }
            request.page_token = page.next_page_token;
            if request.page_token.is_empty() {
                return Ok(());
            }
        }
    }

    /// Reads a file page by page, sometimes with a pause in which the file may change.
    async fn read(&mut self, file: &str) -> Result<(), CallError> {
        let (root, package) = self.package();
        let resource = if file.is_empty() {
            String::new()
        } else {
            format!("{package}{file}")
        };
        let consistency = *self.dice.pick(&[Consistency::Cached, Consistency::Fresh]);
        let mut request = ReadResourceRequest {
            consistency: consistency.into(),
            max_bytes: *self.dice.pick(&[0, 500, 4_000, 100_000]),
            ..read_request(&root, &package, &resource)
        };
        let mut joined = Vec::new();
        loop {
            let page = self
                .daemon
                .read(request.clone())
                .await
                .map_err(allow_reasons(&NOT_FOUND_REASONS))?;
            self.assert_not_older(&page.epoch, page.revision);
            joined.extend(bytes_of(&page));
            assert!(
                page.resource.starts_with(&format!("{package}/")),
                "{page:?}"
            );
            request.cursor = page.next_cursor;
            if request.cursor.is_empty() {
                assert_eq!(
                    joined.len() as u64,
                    page.total_bytes,
                    "pages joined are the file"
                );
                assert_eq!(
                    content_digest(&joined),
                    page.digest,
                    "pages joined are the file"
                );
                let read = recognize(&joined, root_dir(&root.id));
                assert_ne!(
                    read,
                    ContentKind::Unknown,
                    "{}: {:?}",
                    page.resource,
                    joined.escape_ascii()
                );
                let name = if read == ContentKind::Partial {
                    "half written"
                } else {
                    "whole"
                };
                self.shared.counters.add(&format!("read: {name}"), 1);
                return Ok(());
            }
            if self.dice.one_in(8) {
                sleep(Duration::from_millis(self.dice.below(100))).await;
            }
        }
    }

    /// Calls `ListSkills` and drops the call before the answer.
    async fn drop_call(&mut self) -> Result<(), CallError> {
        let consistency = Consistency::Fresh.into();
        let request_index = self.pick_request();
        let request = ListSkillsRequest {
            consistency,
            ..self.shared.requests[request_index].clone()
        };
        let call_timeout = Duration::from_millis(self.dice.below(20));
        let result = timeout(call_timeout, list_all_pages(&self.daemon, &request)).await;
        result
            .map_or(Ok(()), |list| list.map(drop))
            .map_err(allow_reasons(&["CATALOG_CHANGED"]))
    }
}

/// Error of a call, and the allowed error reasons.
type CallError = (Status, &'static [&'static str]);

fn allow_reasons(reasons: &'static [&'static str]) -> impl Fn(Status) -> CallError {
    move |status| (status, reasons)
}
