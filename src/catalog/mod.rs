//! Owner of the catalogs: resolves selections, has roots searched, publishes what was found, and
//! reads resources of what is published. Knows nothing of gRPC.

mod bell;
mod bound;
mod figures;
mod files;
mod ledger;
mod look;
mod reads;
mod regime;
mod tend;
mod timing;
mod view;
mod wait;
mod work;

pub use files::FilesRequest;
pub use ledger::{Degraded, Held, WatchMode};
pub use reads::{ReadError, ReadRequest};
pub use regime::Terms;
pub use timing::Timing;
pub use view::{Figures, Holdings, Late, RootState, RootView, View, Watching};
pub use wait::Patience;
pub use work::Lease;

#[doc(hidden)]
pub use crate::disk::Opener;
use crate::disk::Versions;
use crate::domain::{Limits, Published, Reach, Reason, Selected};
#[doc(hidden)]
pub use crate::watch::Faults;
use crate::watch::Watcher;
use bound::Bound;
use ledger::{Key, Ledger};
use regime::Regime;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;
use tokio::time::Instant;
use work::Work;

/// What a keeper keeps.
#[derive(Debug)]
pub struct Settings {
    /// What it goes by, until it is told otherwise.
    pub terms: Terms,
    /// Of the watcher, ordered by tests.
    #[doc(hidden)]
    pub faults: Faults,
    /// How files are opened; `None` asks the kernel, now.
    pub opener: Option<Opener>,
}

/// How recent an answer must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consistency {
    /// What is held, if anything is.
    Cached,
    /// Searched after the question came.
    Fresh,
}

/// Owner of the catalogs, as somebody sees them who is bound to a part of what may be served. Cheap
/// to clone; all clones are one.
#[derive(Debug, Clone)]
pub struct Keeper(Arc<Shared>, Arc<Reach>);

#[derive(Debug)]
struct Shared {
    epoch: u64,
    opener: Opener,
    /// Changed only while the ledger is held, so that whoever holds it sees one of them.
    regime: Mutex<Arc<Regime>>,
    versions: Versions,
    watcher: Watcher,
    ledger: Mutex<Ledger<Work>>,
    /// The revision now. A watch holds only the latest, so it is never full.
    revisions: watch::Sender<u64>,
    /// Changes that an audit found and no event told.
    audit_repairs: AtomicU64,
    searches: figures::Searches,
}

impl Keeper {
    /// A keeper that has searched nothing yet, for somebody who may ask for everything.
    #[must_use]
    pub fn new(settings: Settings, epoch: u64) -> Self {
        let Settings { terms, faults, opener } = settings;
        let max_history = terms.rules.limits.max_history;
        let opener = opener.unwrap_or_else(Opener::probe);
        let shared = Shared {
            epoch,
            opener,
            regime: Mutex::new(Arc::new(Regime::first(opener, terms))),
            versions: Versions::default(),
            watcher: Watcher::with_faults(faults),
            ledger: Mutex::new(Ledger::new(max_history)),
            revisions: watch::Sender::new(0),
            audit_repairs: AtomicU64::new(0),
            searches: figures::Searches::default(),
        };
        Self(Arc::new(shared), Arc::new(Reach::All))
    }

    /// The same catalogs for a caller of this reach, whoever this keeper is for.
    #[must_use]
    pub fn bound_to(&self, reach: &Reach) -> Self {
        Self(self.0.clone(), Arc::new(reach.clone()))
    }

    /// What it is bound to.
    #[must_use]
    pub fn reach(&self) -> &Reach {
        &self.1
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

    /// The environments whose roots it resolves; never empty.
    #[must_use]
    pub fn environments(&self) -> Arc<[String]> {
        self.regime().environments.clone()
    }

    /// The published roots that are offered, in scope order, then by id.
    #[must_use]
    pub fn published(&self) -> Arc<[Published]> {
        self.bound().published.clone()
    }

    /// The published roots that are offered, as a caller selects them.
    #[must_use]
    pub fn offered(&self) -> Vec<Selected> {
        let regime = self.regime();
        let environment = &regime.environments[0];
        let published = &regime.bounds.of(&self.1).published;
        published.iter().map(|root| root.select(environment)).collect()
    }

    /// The limits in force.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.regime().rules.limits.clone()
    }

    /// The times in force.
    #[must_use]
    pub fn timing(&self) -> Timing {
        self.regime().timing.clone()
    }

    /// How everything below the allowed roots is opened.
    #[must_use]
    pub fn opener(&self) -> Opener {
        self.0.opener
    }

    /// What is known of the selected roots. Waits for searches that must come first.
    pub async fn view(
        &self,
        selection: &[Selected],
        consistency: Consistency,
        patience: Patience,
    ) -> Result<View, Late> {
        let keys = self.keys(selection);
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
        // Other terms may be in force by now; what was waited for is then another root.
        let now = self.keys(selection);
        let roots = selection.iter().zip(keys.iter().zip(now).zip(unanswered));
        let roots = roots.map(|(selected, ((key, now), unanswered))| {
            let unanswered = unanswered.filter(|_| *key == now);
            let state = unanswered.unwrap_or_else(|| known(&ledger, &now));
            RootView { id: selected.id.clone(), state }
        });
        Ok(View { revision: ledger.revision(), roots: roots.collect() })
    }

    /// What is known of the selected roots now, at once.
    #[must_use]
    pub fn view_now(&self, selection: &[Selected]) -> View {
        let ledger = self.ledger();
        let keys = self.keys(selection);
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
        let keys = self.keys(selection);
        let users = keys.iter().flatten().filter_map(|key| {
            self.search(key, Consistency::Cached);
            Some(self.ledger().work(key)?.users.clone())
        });
        Lease { _users: users.collect(), keys }
    }

    /// Whether those roots are the ones that are looked after while the lease is held. Under other terms
    /// they need not be.
    #[must_use]
    pub fn is_leased(&self, lease: &Lease, selection: &[Selected]) -> bool {
        self.keys(selection) == lease.keys
    }

    /// The revision now, and each later one. Whoever is slow sees only the latest.
    #[must_use]
    pub fn revisions(&self) -> watch::Receiver<u64> {
        self.0.revisions.subscribe()
    }

    /// Starts the watcher, so that [`Keeper::watching`] names the right backend before a root is
    /// selected. If that fails, each search tries again. Must be called within the runtime.
    pub fn start_watcher(&self) {
        if let Err(error) = self.0.watcher.start() {
            tracing::debug!(%error, "there is no inotify instance; roots are polled");
        }
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
        if revision < ledger.floor() {
            return None;
        }
        let keys = self.keys(selection);
        let roots = selection.iter().zip(keys).map(|(selected, key)| {
            let state = match key {
                Err(reason) => RootState::Unavailable(reason),
                Ok(key) => RootState::Held(ledger.at(&key, revision)?.clone()),
            };
            Some(RootView { id: selected.id.clone(), state })
        });
        let roots = roots.collect::<Option<_>>()?;
        (revision <= ledger.revision()).then_some(View { revision, roots })
    }

    fn keys(&self, selection: &[Selected]) -> Vec<Result<Key, Reason>> {
        self.regime().keys(&self.1, selection)
    }

    /// The search to wait for; `None` where what is held will do. Has the root looked after, if it is
    /// not yet.
    fn search(&self, key: &Key, consistency: Consistency) -> Option<wait::Search> {
        let limits = self.limits();
        self.start_watcher();
        let mut ledger = self.ledger();
        let work = ledger.used(key, || {
            let work = Work::new(limits.max_reads);
            // Ends by itself when nobody needs the root any more.
            tokio::spawn(tend::tend(self.clone(), key.clone(), &work));
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
        let (done, under_way) = (work.done.subscribe(), work.under_way.clone());
        Some(wait::Search { number, done, under_way, first: !is_held })
    }

    /// What it goes by now.
    fn regime(&self) -> Arc<Regime> {
        self.0.regime.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What it may open and offers now.
    fn bound(&self) -> Arc<Bound> {
        self.regime().bounds.of(&self.1)
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
