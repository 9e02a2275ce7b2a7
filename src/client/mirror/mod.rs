//! A live local copy of one executor's catalog, for one selection: opened once, it follows every change,
//! through lost connections and restarts of the daemon. Leaves what a copy holds to `catalog`, and
//! applying events to `held`.

mod catalog;
mod held;

pub use catalog::Catalog;

use super::call::Client;
use super::watch::{Heard, SkillWatch};
use crate::proto::caproot::v1::{SelectedCapabilityRoot, SkillView, WatchSkillsRequest};
use held::{Held, Told};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// How long a mirror waits after a daemon refused it for good, or broke its promises. Somebody may have
/// mended what was wrong.
const REFUSED_WAIT: Duration = Duration::from_secs(30);

/// What a mirror shows, and how.
#[derive(Debug, Clone, PartialEq)]
pub struct Selection {
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

impl Selection {
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
pub struct Snapshot {
    /// Whole states only, never one half applied.
    pub catalog: Arc<Catalog>,
    /// The daemon's start that the revision belongs to; empty before the first state.
    pub epoch: Arc<str>,
    /// `ListSkills` gives exactly this catalog at this revision.
    pub revision: u64,
    /// Whether it is up to date.
    pub state: MirrorState,
}

/// Follows one executor's catalog until the last clone is dropped.
#[derive(Debug, Clone)]
pub struct Mirror {
    told: watch::Receiver<Snapshot>,
    /// How many whole states and bookmarks came.
    heard: watch::Receiver<u64>,
    _task: Arc<Task>,
}

/// Ends with whoever holds it.
#[derive(Debug)]
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Mirror {
    /// Begins to follow. Returns at once, whatever the executor does; needs a tokio runtime.
    #[must_use]
    pub fn start(client: &Client, selection: Selection) -> Self {
        let (tell, told) = watch::channel(Snapshot {
            catalog: Arc::default(),
            epoch: Arc::from(""),
            revision: 0,
            state: MirrorState::Connecting(None),
        });
        let (count, heard) = watch::channel(0);
        let teller = Teller { tell, count };
        let task = tokio::spawn(follow(client.clone(), selection, teller));
        Self { told, heard, _task: Arc::new(Task(task)) }
    }

    /// What is held now.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.told.borrow().clone()
    }

    /// Waits until the catalog or the state is another than when this, or the last `changed` of this
    /// clone, returned; then what is held. That the revision grew for others is no change.
    pub async fn changed(&mut self) -> Snapshot {
        if self.told.changed().await.is_err() {
            // The task lives as long as any mirror does; it can only have panicked.
            std::future::pending::<()>().await;
        }
        self.told.borrow_and_update().clone()
    }

    /// Takes what is held now for known, so that `changed` waits for something else.
    pub fn mark_seen(&mut self) {
        self.told.mark_unchanged();
    }

    /// Waits for the next word of the daemon, be it that nothing changed; then what is held.
    pub async fn heard(&mut self) -> Snapshot {
        if self.heard.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        self.snapshot()
    }

    /// Waits until the mirror is live, at most so long; whether it is.
    pub async fn live(&self, within: Duration) -> bool {
        let mut told = self.told.clone();
        let live = told.wait_for(|held| held.state == MirrorState::Live);
        matches!(tokio::time::timeout(within, live).await, Ok(Ok(_)))
    }
}

/// Shows what is held.
struct Teller {
    tell: watch::Sender<Snapshot>,
    count: watch::Sender<u64>,
}

/// Keeps the copy, for ever.
async fn follow(client: Client, selection: Selection, teller: Teller) {
    let request = WatchSkillsRequest {
        selected_capability_roots: selection.roots.clone(),
        product: selection.product.clone(),
        view: selection.view.into(),
        bookmark_interval: selection.bookmark_interval.try_into().ok(),
        ..WatchSkillsRequest::default()
    };
    loop {
        let mut held = Held::new(&selection);
        let mut watch = client.watch_skills(request.clone());
        let why = listen(&mut watch, &mut held, &teller).await;
        drop(watch);
        teller.lose(&why);
        tokio::time::sleep(REFUSED_WAIT).await;
    }
}

/// Applies what comes until it can no longer be gone on; why not.
async fn listen(watch: &mut SkillWatch, held: &mut Held, teller: &Teller) -> String {
    loop {
        match watch.next().await {
            Ok(Heard::Event(event)) => match held.hear(*event) {
                Ok(Told::Nothing) => {}
                Ok(Told::State { epoch, revision, changed }) => {
                    let catalog = changed.then(|| Arc::new(held.catalog()));
                    teller.publish(catalog, epoch, revision);
                }
                Err(why) => return why,
            },
            Ok(Heard::Lost { cause, .. }) => {
                held.lose();
                teller.lose(&cause.to_string());
            }
            Err(cause) => return cause.to_string(),
        }
    }
}

impl Teller {
    /// Shows a whole state; `None`: the one before.
    fn publish(&self, catalog: Option<Arc<Catalog>>, epoch: Arc<str>, revision: u64) {
        self.tell.send_if_modified(|held| {
            let news = catalog.is_some() || held.state != MirrorState::Live;
            if let Some(catalog) = catalog {
                held.catalog = catalog;
            }
            (held.epoch, held.revision, held.state) = (epoch, revision, MirrorState::Live);
            news
        });
        self.count.send_modify(|count| *count += 1);
    }

    /// Shows that the executor is lost; the first reason since it was there stays.
    fn lose(&self, why: &str) {
        self.tell.send_if_modified(|held| {
            let lost = match &held.state {
                MirrorState::Stale { .. } => return false,
                MirrorState::Live => MirrorState::Stale { since: Instant::now(), why: why.into() },
                MirrorState::Connecting(_) => MirrorState::Connecting(Some(why.into())),
            };
            let news = held.state != lost;
            held.state = lost;
            news
        });
    }
}
