//! A live local copy of one executor's catalog, for one selection: opened once, it follows every change,
//! through lost connections and restarts of the daemon. Leaves what a copy holds to `catalog`, applying
//! events to `held`, following a stream to `follow`, and going on from where an earlier mirror was to
//! `meeting` and `resume`.

mod catalog;
mod follow;
mod reconciler;
mod replica;
mod resume;

pub use catalog::MirrorCatalog;
pub use resume::{ChangesSince, ResumePoint};

use super::call::Client;
use crate::proto::caproot::v1::{SelectedCapabilityRoot, SkillView};
use follow::{SnapshotPublisher, follow_executor};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// What a mirror shows, and how.
#[derive(Debug, Clone, PartialEq)]
pub struct MirrorSelection {
    /// The roots, all of the one executor.
    pub roots: Vec<SelectedCapabilityRoot>,
    /// Only skills for this product, or for every product; empty means all.
    pub product: String,
    /// How much of each skill; by default only what a model's list needs, and no plugins.
    pub view: SkillView,
    /// The most bytes that the copy may take, as the wire counts them; 256 MiB by default. Beyond, the
    /// mirror is stale, and says why.
    pub max_bytes: usize,
    /// How often the daemon is to say that nothing changed, from 1 s to 5 min. A connection is taken for
    /// dead that is silent for longer than this and a call's deadline.
    pub bookmark_interval: Duration,
}

impl MirrorSelection {
    /// These roots, by the defaults.
    #[must_use]
    pub fn new(roots: Vec<SelectedCapabilityRoot>) -> Self {
        Self {
            roots,
            product: String::new(),
            view: SkillView::Basic,
            max_bytes: 256 << 20,
            bookmark_interval: Duration::from_secs(30),
        }
    }
}

/// How a mirror stands to its executor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MirrorState {
    /// No state came yet; why not, where an attempt failed. The catalog is empty.
    Connecting(Option<Arc<str>>),
    /// No state came yet, and none is expected now: nothing listens at the executor's address, or the
    /// daemon refused. The mirror tries again. The catalog is empty.
    Failed(Arc<str>),
    /// The catalog is the executor's, as of the last event.
    Live,
    /// The catalog is what it was when the executor was lost.
    Stale {
        /// Since when.
        since: Instant,
        /// Why.
        why: Arc<str>,
    },
}

/// What a mirror holds at one moment. A clone costs next to nothing.
#[derive(Debug, Clone)]
pub struct MirrorSnapshot {
    /// Whole states only, never one half applied.
    pub catalog: Arc<MirrorCatalog>,
    /// The daemon's start that the revision belongs to; empty before the first state.
    pub epoch: Arc<str>,
    /// `ListSkills` gives exactly this catalog at this revision.
    pub revision: u64,
    /// To go on from exactly this on another stream; empty before the first state, or where the daemon
    /// gave none.
    pub resume_token: Arc<str>,
    /// Whether it is up to date.
    pub state: MirrorState,
    /// Of a mirror that was resumed: what changed up to its first state. It is there with that state.
    pub changes_since: Option<Arc<ChangesSince>>,
    /// Whether the catalog changed after the state that `since` speaks of.
    pub changed_since_resume: bool,
}

/// Follows one executor's catalog until the last clone is dropped.
#[derive(Debug, Clone)]
pub struct Mirror {
    snapshots: watch::Receiver<MirrorSnapshot>,
    /// How many whole states and bookmarks came.
    messages: watch::Receiver<u64>,
    _task: Arc<AbortOnDrop>,
}

/// Ends with whoever holds it.
#[derive(Debug)]
struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Mirror {
    /// Begins to follow. Returns at once, whatever the executor does; needs a tokio runtime.
    #[must_use]
    pub fn start(client: &Client, selection: MirrorSelection) -> Self {
        Self::spawn(client, selection, None)
    }

    /// Begins to follow, and tells by [`Snapshot::since`] what changed since an earlier mirror of the
    /// same selection was at `from`. Its first state is exactly the one that this speaks of, so that
    /// no change falls between the two.
    #[must_use]
    pub fn resume(client: &Client, selection: MirrorSelection, from: ResumePoint) -> Self {
        Self::spawn(client, selection, Some(from))
    }

    fn spawn(client: &Client, selection: MirrorSelection, from: Option<ResumePoint>) -> Self {
        let (tell, told) = watch::channel(MirrorSnapshot {
            catalog: Arc::default(),
            epoch: Arc::from(""),
            revision: 0,
            resume_token: Arc::from(""),
            state: MirrorState::Connecting(None),
            changes_since: None,
            changed_since_resume: false,
        });
        let (count, heard) = watch::channel(0);
        let teller = SnapshotPublisher::new(tell, count);
        let task = tokio::spawn(follow_executor(client.clone(), selection, from, teller));
        Self { snapshots: told, messages: heard, _task: Arc::new(AbortOnDrop(task)) }
    }

    /// What is held now.
    #[must_use]
    pub fn snapshot(&self) -> MirrorSnapshot {
        self.snapshots.borrow().clone()
    }

    /// Waits until the catalog or the state is another than when this, or the last `changed` of this
    /// clone, returned; then what is held. That the revision grew for others is no change.
    pub async fn changed(&mut self) -> MirrorSnapshot {
        if self.snapshots.changed().await.is_err() {
            // The task lives as long as any mirror does; it can only have panicked.
            std::future::pending::<()>().await;
        }
        self.snapshots.borrow_and_update().clone()
    }

    /// Takes what is held now for known, so that `changed` waits for something else.
    pub fn mark_seen(&mut self) {
        self.snapshots.mark_unchanged();
    }

    /// Waits for the next word of the daemon, be it that nothing changed; then what is held.
    pub async fn messages(&mut self) -> MirrorSnapshot {
        if self.messages.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        self.snapshot()
    }

    /// Waits until the mirror is live, at most so long; whether it is.
    pub async fn wait_until_live(&self, within: Duration) -> bool {
        self.wait_for(within, |state| *state == MirrorState::Live).await
    }

    /// Waits until the mirror is live or has failed, at most so long.
    pub async fn wait_until_live_or_failed(&self, within: Duration) {
        let is_settled =
            |state: &MirrorState| matches!(state, MirrorState::Live | MirrorState::Failed(_));
        self.wait_for(within, is_settled).await;
    }

    async fn wait_for(&self, within: Duration, is_it: impl Fn(&MirrorState) -> bool) -> bool {
        let mut told = self.snapshots.clone();
        let reached = told.wait_for(|held| is_it(&held.state));
        matches!(tokio::time::timeout(within, reached).await, Ok(Ok(_)))
    }
}
