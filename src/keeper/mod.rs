//! Owner of the catalogs: resolves selections, has roots searched, publishes what was found, and
//! reads resources of what is published. Knows nothing of gRPC.

mod bell;
mod figures;
mod files;
mod ledger;
mod reads;
mod tend;
mod view;
mod wait;
mod work;

pub use files::FilesRequest;
pub use ledger::{Degraded, Held, WatchMode};
pub use reads::{ReadError, ReadRequest};
pub use tend::Timing;
pub use view::{Figures, Late, RootState, RootView, View, Watching};
pub use wait::Patience;
pub use work::Lease;

use crate::disk::{Allowed, Versions};
use crate::domain::search::Rules;
use crate::domain::{Limits, Published, Reason, RootPath, Selected};
#[doc(hidden)]
pub use crate::watch::Faults;
use crate::watch::Watcher;
use ledger::{Key, Ledger};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;
use tokio::time::Instant;
use work::Work;

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
    /// When roots are looked at.
    pub timing: Timing,
    /// Of the watcher, ordered by tests.
    #[doc(hidden)]
    pub faults: Faults,
}

/// How recent an answer must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consistency {
    /// What is held, if anything is.
    Cached,
    /// Searched after the question came.
    Fresh,
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
    timing: Timing,
    watcher: Watcher,
    ledger: Mutex<Ledger<Work>>,
    /// The revision now. A watch holds only the latest, so it is never full.
    revisions: watch::Sender<u64>,
    /// Changes that an audit found and no event told.
    audit_repairs: AtomicU64,
    searches: figures::Searches,
}

impl Keeper {
    /// A keeper that has searched nothing yet.
    #[must_use]
    pub fn new(settings: Settings, epoch: u64) -> Self {
        let Settings { environments, allowed, published, rules, timing, faults } = settings;
        let max_history = rules.limits.max_history;
        Self(Arc::new(Shared {
            epoch,
            environments,
            allowed: Allowed::new(allowed),
            published: published.into(),
            rules,
            versions: Versions::default(),
            timing,
            watcher: Watcher::with_faults(faults),
            ledger: Mutex::new(Ledger::new(max_history)),
            revisions: watch::Sender::new(0),
            audit_repairs: AtomicU64::new(0),
            searches: figures::Searches::default(),
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

    /// The times in force.
    #[must_use]
    pub fn timing(&self) -> &Timing {
        &self.0.timing
    }

    /// What is known of the selected roots. Waits for searches that must come first.
    pub async fn view(
        &self,
        selection: &[Selected],
        consistency: Consistency,
        patience: Patience,
    ) -> Result<View, Late> {
        let keys: Vec<_> = selection.iter().map(|s| self.key(s)).collect();
        if consistency == Consistency::Fresh && !patience.barrier(&self.0.watcher).await {
            // Nothing tells what changed: look at everything.
            let mut ledger = self.ledger();
            for key in keys.iter().flatten() {
                if let Some(work) = ledger.work(key) {
                    work.bell.note(|notes| notes.lost = true);
                }
            }
        }
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
        let roots = selection.iter().zip(keys.iter().zip(unanswered));
        let roots = roots.map(|(selected, (key, unanswered))| {
            let state = unanswered.unwrap_or_else(|| known(&ledger, key));
            RootView { id: selected.id.clone(), state }
        });
        Ok(View { revision: ledger.revision(), roots: roots.collect() })
    }

    /// What is known of the selected roots now, at once.
    #[must_use]
    pub fn view_now(&self, selection: &[Selected]) -> View {
        let keys: Vec<_> = selection.iter().map(|s| self.key(s)).collect();
        let ledger = self.ledger();
        let roots = selection.iter().zip(&keys);
        let roots = roots.map(|(selected, key)| RootView {
            id: selected.id.clone(),
            state: known(&ledger, key),
        });
        View { revision: ledger.revision(), roots: roots.collect() }
    }

    /// Has the selected roots looked after for as long as the answer is held.
    #[must_use]
    pub fn lease(&self, selection: &[Selected]) -> Lease {
        let keys = selection.iter().filter_map(|s| self.key(s).ok());
        let users = keys.filter_map(|key| {
            self.search(&key, Consistency::Cached);
            Some(self.ledger().work(&key)?.users.clone())
        });
        Lease { _users: users.collect() }
    }

    /// The revision now, and each later one. Whoever is slow sees only the latest.
    #[must_use]
    pub fn revisions(&self) -> watch::Receiver<u64> {
        self.0.revisions.subscribe()
    }

    /// What is noticed by events, and what by polling.
    #[must_use]
    pub fn watching(&self) -> Watching {
        let ledger = self.ledger();
        let polling = |held: Option<&Held>| held.is_some_and(|h| h.watch != WatchMode::Events);
        Watching {
            has_events: self.0.watcher.is_running(),
            used: self.0.watcher.used(),
            allowed: self.0.watcher.allowed(),
            overflows: self.0.watcher.overflows(),
            audit_repairs: self.0.audit_repairs.load(Ordering::Relaxed),
            roots: ledger.all().count(),
            polling_roots: ledger.all().filter(|(_, held)| polling(*held)).count(),
        }
    }

    /// What was known at a revision of this epoch; `None` where that is forgotten.
    #[must_use]
    pub fn view_at(&self, selection: &[Selected], revision: u64) -> Option<View> {
        let ledger = self.ledger();
        let roots = selection.iter().map(|selected| {
            let state = match self.key(selected) {
                Err(reason) => RootState::Unavailable(reason),
                Ok(key) => RootState::Held(ledger.at(&key, revision)?.clone()),
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

    /// The search to wait for; `None` where what is held will do. Has the root looked after, if it is
    /// not yet.
    fn search(&self, key: &Key, consistency: Consistency) -> Option<wait::Search> {
        let limits = self.limits();
        if let Err(error) = self.0.watcher.start() {
            tracing::debug!(%error, "there is no inotify instance; roots are polled");
        }
        let mut ledger = self.ledger();
        let work = ledger.used(key, || {
            let work = Work::new(limits.max_reads);
            // Ends by itself when nobody needs the root any more.
            tokio::spawn(tend::tend(self.clone(), key.clone(), work.bell.clone()));
            work
        });
        work.last_use = Instant::now();
        ledger.shrink(limits.max_warm_roots, |work| work.is_busy() || work.is_used());
        let held = ledger.latest(key).map(|held| &held.content);
        let is_held = held.is_some();
        let work = ledger.work(key)?;
        let number = match consistency {
            Consistency::Cached if is_held => return None,
            Consistency::Cached if work.is_busy() => work.started,
            // A search that is under way may have passed by the change already.
            Consistency::Cached | Consistency::Fresh => work.started + 1,
        };
        work.wanted = work.wanted.max(number);
        work.bell.ring();
        let (done, progress) = (work.done.subscribe(), work.progress.clone());
        Some(wait::Search { number, done, progress, first: !is_held })
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger<Work>> {
        self.0.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn known(ledger: &Ledger<Work>, key: &Result<Key, Reason>) -> RootState {
    match key {
        Err(reason) => RootState::Unavailable(*reason),
        Ok(key) => ledger.latest(key).map_or(RootState::Pending, |h| RootState::Held(h.clone())),
    }
}
