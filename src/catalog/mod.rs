//! Owner of the catalogs: resolves selections, has roots searched, publishes what was found, and
//! reads resources of what is published. Knows nothing of gRPC.

mod files;
mod look;
mod pending_changes;
mod policy;
mod reads;
mod root_task;
mod root_task_handle;
mod scope;
mod state;
mod stats;
mod timing;
mod view;
mod wait_budget;

pub use files::FilesRequest;
pub use policy::PolicyConfig;
pub use reads::{PackageReadError, ReadRequest};
pub use root_task_handle::RootLease;
pub use state::{PollReason, RootSnapshot, WatchMode};
pub use timing::WatchTiming;
pub use view::{
    CatalogStats, CatalogView, DeadlineExceeded, RootState, RootView, ScopeStats, WatchStats,
};
pub use wait_budget::WaitBudget;

use crate::disk::DigestCache;
#[doc(hidden)]
pub use crate::disk::OpenMethod;
use crate::domain::{AccessScope, Limits, PublishedRoot, RootReason, SelectedRoot};
#[doc(hidden)]
pub use crate::watch::FaultInjector;
use crate::watch::InotifyWatcher;
use policy::CatalogPolicy;
use root_task_handle::RootTaskHandle;
use scope::CatalogScope;
use state::{RootKey, StoreState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;
use tokio::time::Instant;

/// What a keeper keeps.
#[derive(Debug)]
pub struct CatalogStoreConfig {
    /// What it goes by, until it is told otherwise.
    pub policy: PolicyConfig,
    /// Of the watcher, ordered by tests.
    #[doc(hidden)]
    pub fault_injector: FaultInjector,
    /// How files are opened; `None` asks the kernel, now.
    pub opener: Option<OpenMethod>,
}

/// How recent an answer must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConsistencyLevel {
    /// What is held, if anything is.
    Cached,
    /// Searched after the question came.
    Fresh,
}

/// Owner of the catalogs, as somebody sees them who is bound to a part of what may be served. Cheap
/// to clone; all clones are one.
#[derive(Debug, Clone)]
pub struct CatalogStore(Arc<StoreInner>, Arc<AccessScope>);

#[derive(Debug)]
struct StoreInner {
    epoch: u64,
    opener: OpenMethod,
    /// Changed only while the ledger is held, so that whoever holds it sees one of them.
    policy: Mutex<Arc<CatalogPolicy>>,
    versions: DigestCache,
    watcher: InotifyWatcher,
    state: Mutex<StoreState<RootTaskHandle>>,
    /// The revision now. A watch holds only the latest, so it is never full.
    revisions: watch::Sender<u64>,
    /// Changes that an audit found and no event told.
    missed_changes: AtomicU64,
    scan_counters: stats::ScanCounters,
}

impl CatalogStore {
    /// A keeper that has searched nothing yet, for somebody who may ask for everything.
    #[must_use]
    pub fn new(settings: CatalogStoreConfig, epoch: u64) -> Self {
        let CatalogStoreConfig { policy: terms, fault_injector: faults, opener } = settings;
        let max_history = terms.rules.limits.max_history;
        let opener = opener.unwrap_or_else(OpenMethod::probe);
        let shared = StoreInner {
            epoch,
            opener,
            policy: Mutex::new(Arc::new(CatalogPolicy::from_config(opener, terms))),
            versions: DigestCache::default(),
            watcher: InotifyWatcher::with_faults(faults),
            state: Mutex::new(StoreState::new(max_history)),
            revisions: watch::Sender::new(0),
            missed_changes: AtomicU64::new(0),
            scan_counters: stats::ScanCounters::default(),
        };
        Self(Arc::new(shared), Arc::new(AccessScope::All))
    }

    /// The same catalogs for a caller of this reach, whoever this keeper is for.
    #[must_use]
    pub fn with_access_scope(&self, reach: &AccessScope) -> Self {
        Self(self.0.clone(), Arc::new(reach.clone()))
    }

    /// What it is bound to.
    #[must_use]
    pub fn access_scope(&self) -> &AccessScope {
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
        self.lock_state().revision()
    }

    /// The environments whose roots it resolves; never empty.
    #[must_use]
    pub fn environments(&self) -> Arc<[String]> {
        self.policy().environments.clone()
    }

    /// The published roots that are offered, in scope order, then by id.
    #[must_use]
    pub fn published_roots(&self) -> Arc<[PublishedRoot]> {
        self.scope().published_roots.clone()
    }

    /// The published roots that are offered, as a caller selects them.
    #[must_use]
    pub fn select_published_roots(&self) -> Vec<SelectedRoot> {
        let regime = self.policy();
        let environment = &regime.environments[0];
        let published = &regime.scopes.scope_for(&self.1).published_roots;
        published.iter().map(|root| root.to_selected_root(environment)).collect()
    }

    /// The limits in force.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.policy().rules.limits.clone()
    }

    /// The times in force.
    #[must_use]
    pub fn timing(&self) -> WatchTiming {
        self.policy().timing.clone()
    }

    /// How everything below the allowed roots is opened.
    #[must_use]
    pub fn opener(&self) -> OpenMethod {
        self.0.opener
    }

    /// What is known of the selected roots. Waits for searches that must come first.
    pub async fn view(
        &self,
        selection: &[SelectedRoot],
        consistency: ConsistencyLevel,
        patience: WaitBudget,
    ) -> Result<CatalogView, DeadlineExceeded> {
        let keys = self.root_keys(selection);
        if consistency == ConsistencyLevel::Fresh
            && !patience.wait_for_watcher(&self.0.watcher).await
        {
            // Nothing tells what changed: look at everything.
            let mut ledger = self.lock_state();
            for key in keys.iter().flatten() {
                if let Some(work) = ledger.task_handle_mut(key) {
                    work.changes.record_change(|notes| notes.needs_full_rescan = true);
                }
            }
        }
        // All searches run at once; the waits are then one after the other.
        let searches: Vec<_> = keys
            .iter()
            .map(|key| key.as_ref().ok().and_then(|key| self.request_scan(key, consistency)))
            .collect();
        let mut unanswered = Vec::with_capacity(selection.len());
        for search in searches {
            unanswered.push(match search {
                Some(search) => patience.wait_for_scan(search, consistency).await?,
                None => None,
            });
        }
        let ledger = self.lock_state();
        // Other terms may be in force by now; what was waited for is then another root.
        let now = self.root_keys(selection);
        let roots = selection.iter().zip(keys.iter().zip(now).zip(unanswered));
        let roots = roots.map(|(selected, ((key, now), unanswered))| {
            let unanswered = unanswered.filter(|_| *key == now);
            let state = unanswered.unwrap_or_else(|| latest_root_state(&ledger, &now));
            RootView { id: selected.id.clone(), state }
        });
        Ok(CatalogView { revision: ledger.revision(), roots: roots.collect() })
    }

    /// What is known of the selected roots now, at once.
    #[must_use]
    pub fn current_view(&self, selection: &[SelectedRoot]) -> CatalogView {
        let ledger = self.lock_state();
        let keys = self.root_keys(selection);
        let roots = selection.iter().zip(&keys);
        let roots = roots.map(|(selected, key)| RootView {
            id: selected.id.clone(),
            state: latest_root_state(&ledger, key),
        });
        CatalogView { revision: ledger.revision(), roots: roots.collect() }
    }

    /// Has the selected roots looked after for as long as the answer is held.
    #[must_use]
    pub fn lease_roots(&self, selection: &[SelectedRoot]) -> RootLease {
        let keys = self.root_keys(selection);
        let users = keys.iter().flatten().filter_map(|key| {
            self.request_scan(key, ConsistencyLevel::Cached);
            Some(self.lock_state().task_handle_mut(key)?.lease_token.clone())
        });
        RootLease { _lease_tokens: users.collect(), keys }
    }

    /// Whether those roots are the ones that are looked after while the lease is held. Under other terms
    /// they need not be.
    #[must_use]
    pub fn is_lease_current(&self, lease: &RootLease, selection: &[SelectedRoot]) -> bool {
        self.root_keys(selection) == lease.keys
    }

    /// The revision now, and each later one. Whoever is slow sees only the latest.
    #[must_use]
    pub fn subscribe_revisions(&self) -> watch::Receiver<u64> {
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
    pub fn watch_stats(&self) -> WatchStats {
        let ledger = self.lock_state();
        let polling =
            |held: Option<&RootSnapshot>| held.is_some_and(|h| h.watch_mode != WatchMode::Events);
        WatchStats {
            has_inotify: self.0.watcher.is_running(),
            watches_used: self.0.watcher.watch_count(),
            watches_limit: self.0.watcher.watch_limit(),
            overflows: self.0.watcher.overflow_count(),
            missed_changes: self.0.missed_changes.load(Ordering::Relaxed),
            roots: ledger.iter_roots().count(),
            polling_roots: ledger.iter_roots().filter(|(_, held)| polling(*held)).count(),
        }
    }

    /// What was known at a revision of this epoch; `None` where that is forgotten.
    #[must_use]
    pub fn view_at(&self, selection: &[SelectedRoot], revision: u64) -> Option<CatalogView> {
        let ledger = self.lock_state();
        if revision < ledger.history_floor() {
            return None;
        }
        let keys = self.root_keys(selection);
        let roots = selection.iter().zip(keys).map(|(selected, key)| {
            let state = match key {
                Err(reason) => RootState::Unavailable(reason),
                Ok(key) => RootState::Snapshot(ledger.snapshot_at(&key, revision)?.clone()),
            };
            Some(RootView { id: selected.id.clone(), state })
        });
        let roots = roots.collect::<Option<_>>()?;
        (revision <= ledger.revision()).then_some(CatalogView { revision, roots })
    }

    fn root_keys(&self, selection: &[SelectedRoot]) -> Vec<Result<RootKey, RootReason>> {
        self.policy().root_keys(&self.1, selection)
    }

    /// The search to wait for; `None` where what is held will do. Has the root looked after, if it is
    /// not yet.
    fn request_scan(
        &self,
        key: &RootKey,
        consistency: ConsistencyLevel,
    ) -> Option<wait_budget::RequestedScan> {
        let limits = self.limits();
        self.start_watcher();
        let mut ledger = self.lock_state();
        let work = ledger.touch_or_insert(key, || {
            let work = RootTaskHandle::new(limits.max_reads_per_root);
            // Ends by itself when nobody needs the root any more.
            tokio::spawn(root_task::run_root_task(self.clone(), key.clone(), &work));
            work
        });
        work.last_used_at = Instant::now();
        ledger.evict_idle_roots(limits.max_cached_roots, |work| {
            work.is_scanning() || work.is_leased()
        });
        let held = ledger.latest_snapshot(key).map(|held| &held.catalog);
        let is_held = held.is_some();
        let work = ledger.task_handle_mut(key)?;
        let number = match consistency {
            ConsistencyLevel::Cached if is_held => return None,
            ConsistencyLevel::Cached if work.is_scanning() => work.started_scan,
            // A search that is under way may have passed by the change already.
            ConsistencyLevel::Cached | ConsistencyLevel::Fresh => work.started_scan + 1,
        };
        work.requested_scan = work.requested_scan.max(number);
        work.changes.notify_root_task();
        let (done, under_way) = (work.completed_scan.subscribe(), work.in_flight.clone());
        Some(wait_budget::RequestedScan {
            number,
            completed: done,
            in_flight: under_way,
            is_first: !is_held,
        })
    }

    /// What it goes by now.
    fn policy(&self) -> Arc<CatalogPolicy> {
        self.0.policy.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What it may open and offers now.
    fn scope(&self) -> Arc<CatalogScope> {
        self.policy().scopes.scope_for(&self.1)
    }

    fn lock_state(&self) -> MutexGuard<'_, StoreState<RootTaskHandle>> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn latest_root_state(
    ledger: &StoreState<RootTaskHandle>,
    key: &Result<RootKey, RootReason>,
) -> RootState {
    match key {
        Err(reason) => RootState::Unavailable(*reason),
        Ok(key) => ledger
            .latest_snapshot(key)
            .map_or(RootState::Pending, |h| RootState::Snapshot(h.clone())),
    }
}
