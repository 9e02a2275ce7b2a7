//! State that all clients of the soak test share: requests, daemon address, phase, expected errors,
//! and a digest of the catalog at each revision.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex};

use caproot_core::proto::caproot::v1::capability_service_client::CapabilityServiceClient;
use caproot_core::proto::caproot::v1::{
    ListSkillsRequest, ListSkillsResponse, SelectedCapabilityRoot, Skill, SkillView,
};
use tokio::sync::watch;
use tonic::transport::Endpoint;
use tonic::{Code, Status};

use super::counters::Counters;
use super::file_contents::version_of;
use super::tree::{ROOTS, Tree};
use crate::harness::{Daemon, list_request, rpc_error, selected};

/// Id of a second selection of `r0`.
pub(super) const TWIN: &str = "twin";

/// Address and state of the current daemon process.
#[derive(Debug, Clone, Default)]
pub(super) struct DaemonState {
    /// Number of daemon starts.
    pub process_number: u64,
    pub address: String,
    /// Whether the daemon is being ended.
    pub is_ending: bool,
}

/// Phase of the test.
#[derive(Clone)]
pub(super) enum Phase {
    /// The tree changes, and clients read, call, disconnect and reconnect.
    Busy,
    /// The tree does not change. Each client reads up to its list and reports. The flag includes
    /// the clients that never read.
    Calm(Arc<Vec<ListSkillsResponse>>, bool),
    /// Clients end.
    End,
}

/// State that all clients share.
pub(super) struct SharedState {
    /// Requests for lists and streams.
    pub requests: Vec<ListSkillsRequest>,
    pub daemon_state: watch::Sender<DaemonState>,
    pub phase: watch::Sender<Phase>,
    pub counters: Arc<Counters>,
    /// Digest of the catalog, by daemon process, request and revision.
    digests: Mutex<BTreeMap<(u64, usize, u64), u64>>,
}

/// Returns the directory of a root id.
pub(super) fn root_dir(id: &str) -> &str {
    if id == TWIN { ROOTS[0] } else { id }
}

/// Asserts that a skill belongs to the root that it names.
pub(super) fn assert_skill_of_its_root(skill: &Skill) {
    let id = &skill.authority.as_ref().expect("an authority").id;
    let below = skill
        .package
        .strip_prefix("skill://")
        .and_then(|rest| rest.strip_prefix(&**id));
    assert!(
        below.is_some_and(|rest| rest.starts_with('/')),
        "of {id}: {skill:?}"
    );
    assert!(
        version_of(&skill.description, root_dir(id)).is_some(),
        "of {id}: {skill:?}"
    );
}

impl SharedState {
    pub(super) fn new(tree: &Tree, counters: Arc<Counters>) -> Self {
        let root = |id: &str| selected(id, tree.path(root_dir(id)));
        let roots = |ids: &[&str]| ids.iter().map(|id| root(id)).collect::<Vec<_>>();
        let mut requests: Vec<_> = ROOTS.iter().map(|id| list_request(&[root(id)])).collect();
        requests.push(list_request(&roots(&["r3", "r1"])));
        requests.push(list_request(&roots(&ROOTS)));
        requests.push(list_request(&roots(&["r0", TWIN])));
        let view = SkillView::Basic.into();
        requests.push(ListSkillsRequest {
            view,
            ..list_request(&roots(&ROOTS))
        });
        let product = "codex".into();
        requests.push(ListSkillsRequest {
            product,
            ..list_request(&[root("r2")])
        });
        let (daemon_state, phase) = (watch::Sender::default(), watch::Sender::new(Phase::Busy));
        Self {
            requests,
            daemon_state,
            phase,
            counters,
            digests: Mutex::default(),
        }
    }

    /// Returns the roots of a request.
    pub(super) fn roots(&self, request_index: usize) -> &[SelectedCapabilityRoot] {
        &self.requests[request_index].selected_capability_roots
    }

    /// Connects to a daemon process later than `after`, and waits for its start if needed. A narrow
    /// connection buffers at most 64 KiB of unread data.
    pub(super) async fn connect(&self, after: u64, is_narrow: bool) -> (u64, Daemon) {
        let mut daemon_states = self.daemon_state.subscribe();
        let daemon_state = daemon_states
            .wait_for(|daemon_state| daemon_state.process_number > after && !daemon_state.is_ending)
            .await;
        let daemon_state = daemon_state.expect("the shared state exists").clone();
        let mut endpoint =
            Endpoint::new(format!("http://{}", daemon_state.address)).expect("an address");
        if is_narrow {
            endpoint = endpoint.initial_stream_window_size(65_535);
            endpoint = endpoint.initial_connection_window_size(65_535);
        }
        let client = CapabilityServiceClient::new(endpoint.connect_lazy());
        (
            daemon_state.process_number,
            Daemon::from_client(client, &daemon_state.address),
        )
    }

    /// Whether that daemon process is ending or has ended.
    pub(super) fn is_over(&self, process_number: u64) -> bool {
        let daemon_state = self.daemon_state.borrow();
        daemon_state.process_number > process_number || daemon_state.is_ending
    }

    /// Asserts that an error is an allowed one, or that the daemon is ending. Internal errors are
    /// never allowed.
    #[track_caller]
    pub(super) fn assert_expected_error(
        &self,
        process_number: u64,
        status: &Status,
        allowed_reasons: &[&str],
    ) {
        // A status from the daemon has no source. A status of the client library has one.
        let is_from_daemon = status.source().is_none();
        let is_internal_error = matches!(status.code(), Code::Internal | Code::Unknown);
        assert!(
            !(is_from_daemon && is_internal_error),
            "internal error: {status:?}"
        );
        if !is_from_daemon {
            assert!(
                self.is_over(process_number),
                "the connection broke: {status:?}"
            );
            return self.counters.add("status: connection lost", 1);
        }
        let refusal = rpc_error(status);
        let is_shutdown = refusal.reason == "SHUTTING_DOWN" && self.is_over(process_number);
        assert!(
            is_shutdown || allowed_reasons.contains(&&*refusal.reason),
            "{status:?}"
        );
        self.counters.add(&format!("status: {}", refusal.reason), 1);
    }

    /// Records the digest of a catalog. All clients must see the same digest at one revision.
    pub(super) fn record_catalog<'a>(
        &self,
        process_number: u64,
        request_index: usize,
        revision: u64,
        skills: impl Iterator<Item = &'a Skill>,
    ) {
        // Only some revisions are recorded, because a digest costs time. The choice is the same for
        // all clients.
        if !revision.is_multiple_of(8) {
            return;
        }
        let mut digest = 0_u64;
        for skill in skills {
            let mut hasher = DefaultHasher::new();
            let policy = (&skill.products, skill.not_offered, skill.user_invocable);
            (
                &skill.package,
                &skill.name,
                &skill.description,
                &skill.digest,
            )
                .hash(&mut hasher);
            (skill.stale, skill.size_bytes, &skill.plugin, policy).hash(&mut hasher);
            // The order of skills does not matter.
            digest = digest.wrapping_add(hasher.finish());
        }
        let mut digests = self.digests.lock().expect("no panic under the lock");
        let first = *digests
            .entry((process_number, request_index, revision))
            .or_insert(digest);
        assert_eq!(
            first, digest,
            "request {request_index}, revision {revision}: one revision is one state"
        );
        drop(digests);
        self.counters.add("check: states noted", 1);
    }
}
