//! What all who take part in the soak share: what may be asked, where the daemon is, and what is to be
//! done now. Judges errors, and keeps what was held at each revision.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex};

use caproot::proto::caproot::v1::capability_service_client::CapabilityServiceClient;
use caproot::proto::caproot::v1::{
    ListSkillsRequest, ListSkillsResponse, SelectedCapabilityRoot, Skill, SkillView,
};
use tokio::sync::watch;
use tonic::transport::Endpoint;
use tonic::{Code, Status};

use super::tally::Tally;
use super::texts::version_of;
use super::tree::{ROOTS, Tree};
use crate::harness::{Daemon, list_request, rpc_error, selected};

/// The id under which `r0` is selected once more.
pub(super) const TWIN: &str = "twin";

/// Where the daemon is.
#[derive(Debug, Clone, Default)]
pub(super) struct Place {
    /// Grows with each start.
    pub life: u64,
    pub address: String,
    /// Whether its end was begun.
    pub is_ending: bool,
}

/// What is to be done.
#[derive(Clone)]
pub(super) enum Mode {
    /// The tree changes: read, ask, come and go.
    Busy,
    /// Nothing changes: hold what these lists say, of each question, and tell. The flag says whether
    /// those do it too who never read.
    Calm(Arc<Vec<ListSkillsResponse>>, bool),
    /// Go.
    End,
}

/// What all share.
pub(super) struct Stage {
    /// What is asked, of lists and of streams.
    pub asks: Vec<ListSkillsRequest>,
    pub place: watch::Sender<Place>,
    pub mode: watch::Sender<Mode>,
    pub tally: Arc<Tally>,
    /// What was held, by life, question and revision: a digest of it.
    held: Mutex<BTreeMap<(u64, usize, u64), u64>>,
}

/// Which directory a root's id stands for here.
pub(super) fn dir_of(id: &str) -> &str {
    if id == TWIN { ROOTS[0] } else { id }
}

/// Whether a skill is one of the root that it says it is of.
pub(super) fn assert_own(skill: &Skill) {
    let id = &skill.authority.as_ref().expect("an authority").id;
    let below = skill.package.strip_prefix("skill://").and_then(|rest| rest.strip_prefix(&**id));
    assert!(below.is_some_and(|rest| rest.starts_with('/')), "of {id}: {skill:?}");
    assert!(version_of(&skill.description, dir_of(id)).is_some(), "of {id}: {skill:?}");
}

impl Stage {
    pub(super) fn new(tree: &Tree, tally: Arc<Tally>) -> Self {
        let root = |id: &str| selected(id, tree.path(dir_of(id)));
        let roots = |ids: &[&str]| ids.iter().map(|id| root(id)).collect::<Vec<_>>();
        let mut asks: Vec<_> = ROOTS.iter().map(|id| list_request(&[root(id)])).collect();
        asks.push(list_request(&roots(&["r3", "r1"])));
        asks.push(list_request(&roots(&ROOTS)));
        asks.push(list_request(&roots(&["r0", TWIN])));
        let view = SkillView::Basic.into();
        asks.push(ListSkillsRequest { view, ..list_request(&roots(&ROOTS)) });
        let product = "codex".into();
        asks.push(ListSkillsRequest { product, ..list_request(&[root("r2")]) });
        let (place, mode) = (watch::Sender::default(), watch::Sender::new(Mode::Busy));
        Self { asks, place, mode, tally, held: Mutex::default() }
    }

    /// The roots of a question.
    pub(super) fn roots(&self, ask: usize) -> &[SelectedCapabilityRoot] {
        &self.asks[ask].selected_capability_roots
    }

    /// A connection to the daemon of later than this life, once there is one; a narrow one takes no more
    /// than 64 KiB before it is read.
    pub(super) async fn connect(&self, after: u64, is_narrow: bool) -> (u64, Daemon) {
        let mut places = self.place.subscribe();
        let place = places.wait_for(|place| place.life > after && !place.is_ending).await;
        let place = place.expect("the stage stays").clone();
        let mut endpoint = Endpoint::new(format!("http://{}", place.address)).expect("an address");
        if is_narrow {
            endpoint = endpoint.initial_stream_window_size(65_535);
            endpoint = endpoint.initial_connection_window_size(65_535);
        }
        let client = CapabilityServiceClient::new(endpoint.connect_lazy());
        (place.life, Daemon::from_client(client, &place.address))
    }

    /// Whether the end of that life was begun, or is over.
    pub(super) fn is_over(&self, life: u64) -> bool {
        let place = self.place.borrow();
        place.life > life || place.is_ending
    }

    /// Judges what a call ended with: it may be one of these refusals; or the daemon's end, where that
    /// was begun. Nothing else, and never a defect.
    #[track_caller]
    pub(super) fn judge(&self, life: u64, status: &Status, may_be: &[&str]) {
        // What the daemon said has no source; the client's own library made the others.
        let is_said = status.source().is_none();
        let is_defect = matches!(status.code(), Code::Internal | Code::Unknown);
        assert!(!(is_said && is_defect), "a defect: {status:?}");
        if !is_said {
            assert!(self.is_over(life), "the connection broke: {status:?}");
            return self.tally.add("status: connection lost", 1);
        }
        let refusal = rpc_error(status);
        let is_told = refusal.reason == "SHUTTING_DOWN" && self.is_over(life);
        assert!(is_told || may_be.contains(&&*refusal.reason), "{status:?}");
        self.tally.add(&format!("status: {}", refusal.reason), 1);
    }

    /// Notes what was held or listed of a question: whoever has one revision of it has the same.
    pub(super) fn note<'a>(
        &self,
        life: u64,
        ask: usize,
        revision: u64,
        skills: impl Iterator<Item = &'a Skill>,
    ) {
        // Some of them, but for all the same ones: it costs time.
        if !revision.is_multiple_of(8) {
            return;
        }
        let mut digest = 0_u64;
        for skill in skills {
            let mut hasher = DefaultHasher::new();
            let policy = skill.policy.as_ref().map(|p| (&p.products, p.allow_implicit_invocation));
            (&skill.package, &skill.name, &skill.description, &skill.digest).hash(&mut hasher);
            (skill.stale, skill.size_bytes, &skill.plugin, policy).hash(&mut hasher);
            // In any order.
            digest = digest.wrapping_add(hasher.finish());
        }
        let mut held = self.held.lock().expect("no panic while it is held");
        let first = *held.entry((life, ask, revision)).or_insert(digest);
        assert_eq!(first, digest, "question {ask}, revision {revision}: one revision is one state");
        drop(held);
        self.tally.add("check: states noted", 1);
    }
}
