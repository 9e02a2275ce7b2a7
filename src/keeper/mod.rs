//! Owner of the catalogs: resolves selections, has roots searched, publishes what was found, and
//! reads resources of what is published. Knows nothing of gRPC.

mod ledger;
mod reads;
mod wait;

pub use reads::{ReadError, ReadRequest};
pub use wait::Patience;

use crate::disk::{Allowed, Progress, Target, Versions, scan};
use crate::domain::search::Rules;
use crate::domain::{Catalog, Limits, Published, Reason, RootId, RootPath, Selected};
use ledger::{Key, Ledger};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Semaphore, watch};

/// What a keeper keeps.
#[derive(Debug)]
pub struct Settings {
    /// The environments whose roots it resolves.
    pub environments: Vec<String>,
    /// The directories below which roots and their links may lie, absolute.
    pub allowed: Vec<PathBuf>,
    /// In scope order, then by id.
    pub published: Vec<Published>,
    /// What a search may do.
    pub rules: Rules,
}

/// How recent an answer must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consistency {
    /// What is held, if anything is.
    Cached,
    /// Searched after the question came.
    Fresh,
}

/// A root that answers could not be searched in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Late;

/// All selected roots at one revision, in the order of the selection.
#[derive(Debug, Clone)]
pub struct View {
    /// The revision.
    pub revision: u64,
    /// One for each selected root.
    pub roots: Vec<RootView>,
}

/// One selected root at one revision.
#[derive(Debug, Clone)]
pub struct RootView {
    /// The id under which it was selected.
    pub id: RootId,
    /// What is known of it.
    pub state: RootState,
}

/// What is known of a root.
#[derive(Debug, Clone)]
pub enum RootState {
    /// What it holds.
    Ready(Arc<Catalog>),
    /// The first search goes on.
    Pending,
    /// It cannot be used.
    Unavailable(Reason),
}

/// Owner of the catalogs. Cheap to clone; all clones are one.
#[derive(Debug, Clone)]
pub struct Keeper(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    epoch: u64,
    environments: Vec<String>,
    allowed: Allowed,
    published: Arc<[Published]>,
    rules: Rules,
    versions: Versions,
    ledger: Mutex<Ledger<Work>>,
}

/// The searches and reads of one root.
#[derive(Debug)]
struct Work {
    /// Searches are counted from 1. The latest that somebody waits for.
    wanted: u64,
    /// The latest that began.
    started: u64,
    /// The latest that ended. A watch holds only the latest, so it is never full.
    done: watch::Sender<u64>,
    /// Of the latest that began.
    progress: Arc<Progress>,
    /// Reads of this root at once; further ones wait here, and a root that hangs holds up only its
    /// own.
    reads: Arc<Semaphore>,
}

impl Keeper {
    /// A keeper that has searched nothing yet.
    #[must_use]
    pub fn new(settings: Settings, epoch: u64) -> Self {
        let Settings { environments, allowed, published, rules } = settings;
        Self(Arc::new(Shared {
            epoch,
            environments,
            allowed: Allowed::new(allowed),
            published: published.into(),
            rules,
            versions: Versions::default(),
            ledger: Mutex::new(Ledger::new()),
        }))
    }

    /// Random per daemon start.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.0.epoch
    }

    /// The revision now.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.ledger().revision()
    }

    /// The environments whose roots it resolves.
    #[must_use]
    pub fn environments(&self) -> &[String] {
        &self.0.environments
    }

    /// The published roots, in scope order, then by id.
    #[must_use]
    pub fn published(&self) -> &[Published] {
        &self.0.published
    }

    /// The limits in force.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.0.rules.limits
    }

    /// What is known of the selected roots. Waits for searches that must come first.
    pub async fn view(
        &self,
        selection: &[Selected],
        consistency: Consistency,
        patience: Patience,
    ) -> Result<View, Late> {
        let keys: Vec<_> = selection.iter().map(|s| self.key(s)).collect();
        // All searches run at once; the waits are then one after the other.
        let searches: Vec<_> = keys
            .iter()
            .map(|key| key.as_ref().ok().and_then(|key| self.search(key, consistency)))
            .collect();
        let mut unanswered = Vec::with_capacity(selection.len());
        for search in searches {
            unanswered.push(match search {
                Some(search) => patience.wait(search, consistency).await?,
                None => None,
            });
        }
        let ledger = self.ledger();
        let state = |key: &Result<Key, Reason>, unanswered: Option<RootState>| match key {
            Err(reason) => RootState::Unavailable(*reason),
            Ok(key) => unanswered.unwrap_or_else(|| match ledger.latest(key) {
                Some(state) => state.into(),
                None => RootState::Pending,
            }),
        };
        let roots = selection.iter().zip(keys.iter().zip(unanswered));
        let roots = roots.map(|(s, (key, u))| RootView { id: s.id.clone(), state: state(key, u) });
        Ok(View { revision: ledger.revision(), roots: roots.collect() })
    }

    /// What was known at a revision of this epoch; `None` where that is forgotten.
    #[must_use]
    pub fn view_at(&self, selection: &[Selected], revision: u64) -> Option<View> {
        let ledger = self.ledger();
        let roots = selection.iter().map(|selected| {
            let state = match self.key(selected) {
                Err(reason) => RootState::Unavailable(reason),
                Ok(key) => ledger.at(&key, revision)?.into(),
            };
            Some(RootView { id: selected.id.clone(), state })
        });
        let roots = roots.collect::<Option<_>>()?;
        (revision <= ledger.revision()).then_some(View { revision, roots })
    }

    fn key(&self, selected: &Selected) -> Result<Key, Reason> {
        match selected.place(&self.0.environments)? {
            RootPath::Native(path) => Ok(path.into()),
            RootPath::Published(id) => {
                let root = self.0.published.iter().find(|p| p.id.as_str() == &*id);
                root.map(|p| (&*p.path).into()).ok_or(Reason::InvalidPath)
            }
        }
    }

    /// The search to wait for; `None` where what is held will do.
    fn search(&self, key: &Key, consistency: Consistency) -> Option<wait::Search> {
        let limits = self.limits();
        let mut ledger = self.ledger();
        ledger.used(key, || Work::new(limits.max_reads));
        ledger.shrink(limits.max_warm_roots, Work::is_busy);
        let held = matches!(ledger.latest(key), Some(Ok(_)));
        let work = ledger.work(key)?;
        let number = match consistency {
            Consistency::Cached if held => return None,
            Consistency::Cached if work.is_busy() => work.started,
            // A search that is under way may have passed by the change already.
            Consistency::Cached | Consistency::Fresh => work.started + 1,
        };
        work.wanted = work.wanted.max(number);
        if !work.is_busy() {
            work.begin();
            // Ends by itself when nobody wants a further search.
            tokio::spawn(self.clone().run(key.clone()));
        }
        let (done, progress) = (work.done.subscribe(), work.progress.clone());
        Some(wait::Search { number, done, progress, first: !held })
    }

    /// Searches a root until nobody wants another search of it.
    async fn run(self, key: Key) {
        loop {
            let (shared, path) = (self.0.clone(), key.clone());
            let Some(progress) = self.ledger().work(&key).map(|w| w.progress.clone()) else {
                return;
            };
            let searched = tokio::task::spawn_blocking(move || {
                let target = Target {
                    path: (*path).into(),
                    rules: shared.rules.clone(),
                    published: shared.published.clone(),
                };
                scan(&shared.allowed, &target, &progress)
            });
            let state = searched.await.unwrap_or_else(|panic| {
                tracing::error!(%panic, "a search ended by a defect");
                Err(Reason::IoError)
            });
            let mut ledger = self.ledger();
            ledger.publish(&key, state);
            let Some(work) = ledger.work(&key) else { return };
            work.done.send_replace(work.started);
            if work.wanted <= work.started {
                return;
            }
            work.begin();
        }
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger<Work>> {
        self.0.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Work {
    fn new(max_reads: usize) -> Self {
        Self {
            wanted: 0,
            started: 0,
            done: watch::Sender::new(0),
            progress: Arc::default(),
            reads: Arc::new(Semaphore::new(max_reads)),
        }
    }

    fn is_busy(&self) -> bool {
        self.started > *self.done.borrow()
    }

    fn begin(&mut self) {
        self.started += 1;
        self.progress = Arc::default();
    }
}

impl From<&ledger::State> for RootState {
    fn from(state: &ledger::State) -> Self {
        match state {
            Ok(catalog) => Self::Ready(catalog.clone()),
            Err(reason) => Self::Unavailable(*reason),
        }
    }
}
