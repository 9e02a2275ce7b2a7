//! Live local copy of one executor's catalog for one selection. A mirror follows every change,
//! through lost connections and restarts of the daemon.

mod catalog;
mod catalog_sharing;
mod follow;
mod reconciler;
mod replica;
mod resume;
mod resumed_view;
mod retry_requests;
mod root_contents;
mod root_readiness;
mod shared_catalogs;
mod stream;

pub use catalog::MirrorCatalog;
pub(crate) use catalog_sharing::SharingExecutor;
pub(crate) use reconciler::ResumeReconciler;
pub use replica::{MirrorReplica, MirrorUpdate};
pub use resume::{ChangesSince, ResumePoint};
pub(crate) use retry_requests::RetryRequests;
pub(crate) use shared_catalogs::{DEFAULT_MAX_BYTES, SharedCatalogs};
pub use stream::MirrorStream;

use super::call::Client;
use crate::connect::response_budget::MAX_LIST_MEMORY;
use caproot_core::proto::caproot::v1::{SelectedCapabilityRoot, SkillView};
use follow::{SnapshotPublisher, follow_executor};
use reconciler::follow_mirror;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

/// Selection and limits of a mirror.
#[derive(Debug, Clone, PartialEq)]
pub struct MirrorSelection {
    /// Roots, all of one executor.
    pub roots: Vec<SelectedCapabilityRoot>,
    /// Only skills for this product or for every product. Empty means all.
    pub product: String,
    /// Detail of each skill. The default has the fields of a model's list, and no plugins.
    pub view: SkillView,
    /// Maximum size of the copy in memory; 256 MiB by default. If the catalog is larger, the mirror is
    /// stale and gives the reason.
    pub max_bytes: usize,
    /// Interval of bookmarks, from 1 s to 5 min. A connection without an event for this interval
    /// plus the call timeout counts as dead.
    pub bookmark_interval: Duration,
}

impl MirrorSelection {
    /// Selects the roots with the defaults.
    #[must_use]
    pub fn new(roots: Vec<SelectedCapabilityRoot>) -> Self {
        Self {
            roots,
            product: String::new(),
            view: SkillView::Basic,
            max_bytes: MAX_LIST_MEMORY,
            bookmark_interval: Duration::from_secs(30),
        }
    }
}

/// State of the connection between a mirror and its executor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MirrorState {
    /// No state came yet. Has the error of the last attempt, if there was one. The catalog is
    /// empty.
    Connecting(Option<Arc<str>>),
    /// No state came yet, and none is expected now: no daemon listens at the endpoint, the daemon
    /// rejected the watch, or the registry of a fleet names no executor. The mirror retries. The
    /// catalog is empty.
    Failed(Arc<str>),
    /// The catalog is the executor's, as of the last event.
    Live,
    /// The catalog is the last one before the executor was lost.
    Stale {
        /// Time of the loss.
        since: Instant,
        /// Cause of the loss.
        why: Arc<str>,
    },
}

/// State of a mirror at one moment. A clone is cheap.
#[derive(Debug, Clone)]
pub struct MirrorSnapshot {
    /// Catalog of the last complete state.
    pub catalog: Arc<MirrorCatalog>,
    /// Start of the daemon that the revision belongs to. Empty before the first state.
    pub epoch: Arc<str>,
    /// Revision at which `ListSkills` returns exactly this catalog.
    pub revision: u64,
    /// Token to resume from this state on another stream. Empty before the first state, or if the
    /// daemon gave none.
    pub resume_token: Arc<str>,
    /// Whether the catalog is current.
    pub state: MirrorState,
    /// For a resumed mirror: changes up to its first state. Set together with that state.
    pub changes_since: Option<Arc<ChangesSince>>,
    /// Whether the catalog changed after the state of `changes_since`.
    pub changed_since_resume: bool,
}

impl MirrorSnapshot {
    /// Returns a snapshot from before the first state.
    fn without_catalog(state: MirrorState) -> Self {
        Self {
            catalog: Arc::default(),
            epoch: Arc::default(),
            revision: 0,
            resume_token: Arc::default(),
            state,
            changes_since: None,
            changed_since_resume: false,
        }
    }
}

/// Follower of one executor's catalog. The task ends when the last clone is dropped.
///
/// A snapshot is one whole state, never half of one. After a lost connection or a restart of the
/// daemon, the mirror resumes with its token. Until then it is [`MirrorState::Stale`] and keeps its
/// last catalog.
///
/// A mirror checks everything that it receives. Events of roots that were not selected, an
/// incomplete state, and more than `max_bytes` make the mirror stale. It starts again after 5 to 30 s.
///
/// ```
/// use caproot_client::{Client, ClientCredentials, Mirror, MirrorSelection};
/// use std::fs;
/// use std::time::Duration;
/// # mod demo { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/support/demo.rs")); }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let endpoint = demo::start_daemon(dir.path()).await;
/// let credentials = ClientCredentials::default();
/// let mut client = Client::connect(&endpoint, &credentials, Duration::from_secs(30)).await?;
/// let published = client.list_roots().await?.roots;
/// let roots = published.into_iter().filter_map(|root| root.selected_capability_root);
///
/// let mut mirror = Mirror::start(&client, MirrorSelection::new(roots.collect()));
/// assert!(mirror.wait_until_live(Duration::from_secs(30)).await);
///
/// // An author writes a skill on the executor.
/// fs::create_dir(dir.path().join("greet"))?;
/// fs::write(dir.path().join("greet/SKILL.md"), "---\ndescription: Greets.\n---\n")?;
///
/// let skill = loop {
///     if let Some(skill) = mirror.changed().await.catalog.skill("skill://demo/greet") {
///         break skill.clone();
///     }
/// };
/// assert_eq!(skill.description, "Greets.");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Mirror {
    snapshots: watch::Receiver<MirrorSnapshot>,
    /// Number of complete states and bookmarks received.
    messages: watch::Receiver<u64>,
    task: Arc<MirrorTask>,
}

/// Task of a mirror, and the channels for new clones.
#[derive(Debug)]
pub(super) struct MirrorTask {
    publisher: watch::Sender<MirrorSnapshot>,
    snapshots: watch::Receiver<MirrorSnapshot>,
    messages: watch::Receiver<u64>,
    retry_requests: Arc<RetryRequests>,
    _handle: AbortOnDropHandle<()>,
}

impl Mirror {
    /// Starts to follow. Returns at once, without waiting for the executor. Needs a tokio runtime.
    #[must_use]
    pub fn start(client: &Client, selection: MirrorSelection) -> Self {
        Self::start_sharing(client.clone(), selection, None)
    }

    /// Starts to follow an executor, and shares its catalogs with the other mirrors of its fleet.
    pub(super) fn start_sharing(
        client: Client,
        selection: MirrorSelection,
        sharing: Option<SharingExecutor>,
    ) -> Self {
        let requests = Arc::<RetryRequests>::default();
        Self::spawn(requests.clone(), |publisher| {
            follow_executor(client, selection, sharing, requests, publisher)
        })
    }

    /// Starts to follow, and reports in [`MirrorSnapshot::changes_since`] the changes since an
    /// earlier mirror of the same roots and product was at `from`. The earlier mirror may have had
    /// another view, which is [`ResumePoint::view`]. The changes end exactly at the first
    /// state of this mirror, so no change is lost between them.
    #[must_use]
    pub fn resume(client: &Client, selection: MirrorSelection, from: ResumePoint) -> Self {
        let reconciler = ResumeReconciler::new(client, &selection, from);
        Self::start(client, selection).resumed(reconciler)
    }

    /// Returns a mirror with the states of this mirror that reports the changes since an earlier
    /// state. The reconciler has the selection of this mirror.
    pub(super) fn resumed(self, reconciler: ResumeReconciler) -> Self {
        let requests = self.task.retry_requests.clone();
        Self::spawn(requests, |publisher| {
            follow_mirror(self, reconciler, publisher)
        })
    }

    fn spawn<F: Future<Output = ()> + Send + 'static>(
        retry_requests: Arc<RetryRequests>,
        follow: impl FnOnce(SnapshotPublisher) -> F,
    ) -> Self {
        let before = MirrorSnapshot::without_catalog(MirrorState::Connecting(None));
        let (publisher, snapshots) = watch::channel(before);
        let (message_count, messages) = watch::channel(0);
        let task = tokio::spawn(follow(SnapshotPublisher {
            snapshots: publisher.clone(),
            message_count,
        }));

        Self::from_task(Arc::new(MirrorTask {
            publisher,
            snapshots,
            messages,
            retry_requests,
            _handle: AbortOnDropHandle::new(task),
        }))
    }

    /// Returns the mirror of a task.
    pub(super) fn from_task(task: Arc<MirrorTask>) -> Self {
        Self {
            snapshots: task.snapshots.clone(),
            messages: task.messages.clone(),
            task,
        }
    }

    /// Returns a reference that does not keep the mirror running.
    pub(super) fn downgrade(&self) -> Weak<MirrorTask> {
        Arc::downgrade(&self.task)
    }

    /// Ends the delay of a mirror that waits for its next attempt, at most once a second. A mirror
    /// that has failed and retries at once is [`MirrorState::Connecting`] until the attempt ends, so
    /// that a new user waits for the outcome.
    pub(super) fn request_retry(&self) {
        if !self.task.retry_requests.request_retry() {
            return;
        }
        self.task.publisher.send_if_modified(|snapshot| {
            let MirrorState::Failed(why) = &snapshot.state else {
                return false;
            };
            snapshot.state = MirrorState::Connecting(Some(why.clone()));
            true
        });
    }

    /// Returns the current snapshot.
    #[must_use]
    pub fn snapshot(&self) -> MirrorSnapshot {
        self.snapshots.borrow().clone()
    }

    /// Waits until the catalog or the state differs from the last snapshot that this method
    /// returned to this clone. A new revision with the same catalog is no change.
    pub async fn changed(&mut self) -> MirrorSnapshot {
        wait_for_change(&mut self.snapshots).await;
        self.snapshots.borrow_and_update().clone()
    }

    /// Marks the current snapshot as seen, so that [`Mirror::changed`] waits for the next one.
    pub fn mark_seen(&mut self) {
        self.snapshots.mark_unchanged();
    }

    /// Waits until the snapshot differs in any part, such as a new revision with the same catalog.
    async fn any_change(&mut self) {
        tokio::select! {
            () = wait_for_change(&mut self.snapshots) => {}
            () = wait_for_change(&mut self.messages) => {}
        }
    }

    /// Waits for the next complete state or bookmark, and returns the current snapshot.
    pub async fn next_message(&mut self) -> MirrorSnapshot {
        wait_for_change(&mut self.messages).await;
        self.snapshot()
    }

    /// Waits until the mirror is live, at most `within`. Returns whether the mirror is live.
    pub async fn wait_until_live(&self, within: Duration) -> bool {
        self.wait_for(within, |state| *state == MirrorState::Live)
            .await
    }

    /// Waits until the mirror is live or has failed, at most `within`.
    pub async fn wait_until_live_or_failed(&self, within: Duration) {
        self.wait_for(within, |state| {
            matches!(state, MirrorState::Live | MirrorState::Failed(_))
        })
        .await;
    }

    async fn wait_for(&self, within: Duration, is_it: impl Fn(&MirrorState) -> bool) -> bool {
        let mut snapshots = self.snapshots.clone();
        let reached = snapshots.wait_for(|held| is_it(&held.state));
        matches!(tokio::time::timeout(within, reached).await, Ok(Ok(_)))
    }
}

/// Waits for the next value of a mirror's task.
async fn wait_for_change<T>(receiver: &mut watch::Receiver<T>) {
    if receiver.changed().await.is_err() {
        // The task lives as long as a mirror exists, so it can only have panicked.
        std::future::pending::<()>().await;
    }
}
