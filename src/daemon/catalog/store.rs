//! Store of the catalogs: the snapshots of all roots, by revision, and the queries of callers.

use super::policy::{CatalogPolicy, CatalogScope, PolicyConfig, RootKey, WatchTiming};
use super::root_task;
use super::root_task_handle::{RequestedScan, RootTaskHandle, WaitBudget};
use super::stats::{CatalogStats, CountedRoot, ScanCounters, ScopeStats, WatchStats};
use super::view::{
    CatalogView, ConsistencyLevel, DeadlineExceeded, RootSnapshot, RootState, RootView,
    ScopedSelection, WatchMode,
};
use crate::daemon::fs::{OpenMethod, ReadCaches};
use crate::daemon::model::{AccessScope, Catalog, Limits, PublishedRoot, RootReason, TrustPolicy};
use crate::daemon::watch::{FaultInjector, InotifyWatcher};
use caproot_core::sync::Mutex;
use caproot_core::wire::RootId;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout_at};
use tokio_util::task::AbortOnDropHandle;

/// Maximum number of concurrent scans. Each scan has up to 8 threads, so more scans would only wait
/// for each other.
const MAX_SCANS: usize = 16;

/// Configuration of a [`CatalogStore`].
#[derive(Debug)]
pub struct CatalogStoreConfig {
    /// Initial policy.
    pub policy: PolicyConfig,
    /// Watcher faults that tests request.
    #[doc(hidden)]
    pub fault_injector: FaultInjector,
    /// Method of opening files; `None` probes the kernel.
    pub opener: Option<OpenMethod>,
}

/// Catalogs of all roots. Each query about roots names the access scope of its caller. Cheap to
/// clone; all clones share one state.
#[derive(Debug, Clone)]
pub struct CatalogStore {
    pub(super) inner: Arc<StoreInner>,
}

/// Keeps the tasks of selected roots running until the lease is dropped.
#[derive(Debug)]
pub struct RootLease {
    _lease_tokens: Vec<Arc<()>>,
    keys: Vec<Result<RootKey, RootReason>>,
}

/// State that all clones of a store share.
#[derive(Debug)]
pub struct StoreInner {
    epoch: u64,
    opener: OpenMethod,
    /// Replaced only while `state` is locked, so that a thread that holds the lock of `state` sees
    /// a single policy.
    policy: Mutex<Arc<CatalogPolicy>>,
    pub read_caches: ReadCaches,
    /// Reads of files that are not approved.
    pub refused_reads: AtomicU64,
    pub watcher: InotifyWatcher,
    state: Mutex<StoreState>,
    /// Current revision. A watch channel holds only the latest value, so it is never full.
    revisions: watch::Sender<u64>,
    /// Changes that a periodic full scan found and inotify did not report.
    pub missed_changes: AtomicU64,
    /// Permits of scans that make progress.
    pub scan_permits: Semaphore,
    pub scan_counters: ScanCounters,
}

/// Snapshots and tasks of all roots in use. All roots share one revision counter.
#[derive(Debug, Default)]
pub struct StoreState {
    revision: u64,
    /// Snapshots that are kept per root.
    max_history: usize,
    /// First revision at which selections resolve to the same roots as now.
    history_floor: u64,
    /// First revision from which a page of a list continues. Earlier catalogs may have skills that the
    /// lock does not approve any more.
    page_floor: u64,
    use_count: u64,
    roots: HashMap<RootKey, RootRecord>,
}

#[derive(Debug)]
struct RootRecord {
    /// Oldest first, each with its first revision.
    history: VecDeque<(u64, RootSnapshot)>,
    /// Value of [`StoreState::use_count`] at the latest use.
    last_use: u64,
    task_handle: RootTaskHandle,
}

/// Ends the tasks of all roots when it is dropped. Otherwise each task keeps the store, and the inotify
/// instance, until its root is idle.
#[derive(Debug)]
#[must_use]
pub struct RootTasksGuard(CatalogStore);

impl Drop for RootTasksGuard {
    fn drop(&mut self) {
        self.0.lock_state().roots.clear();
    }
}

impl CatalogStore {
    /// Returns a store without snapshots.
    #[must_use]
    pub fn new(config: CatalogStoreConfig, epoch: u64) -> Self {
        let policy = config.policy;
        let state = StoreState {
            max_history: policy.rules.limits.max_history,
            ..StoreState::default()
        };
        let opener = config.opener.unwrap_or_else(OpenMethod::probe);
        let inner = StoreInner {
            epoch,
            opener,
            policy: Mutex::new(Arc::new(CatalogPolicy::new(opener, policy))),
            read_caches: ReadCaches::default(),
            refused_reads: AtomicU64::new(0),
            watcher: InotifyWatcher::new(config.fault_injector),
            state: Mutex::new(state),
            revisions: watch::Sender::new(0),
            missed_changes: AtomicU64::new(0),
            scan_permits: Semaphore::new(MAX_SCANS),
            scan_counters: ScanCounters::default(),
        };

        Self {
            inner: Arc::new(inner),
        }
    }

    /// Returns a guard of the tasks of all roots.
    pub fn guard_root_tasks(&self) -> RootTasksGuard {
        RootTasksGuard(self.clone())
    }

    /// Returns the random epoch of this daemon process.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.inner.epoch
    }

    /// Returns the current revision.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.lock_state().revision
    }

    /// Returns the environments whose roots the daemon resolves; never empty.
    #[must_use]
    pub fn environments(&self) -> Arc<[String]> {
        self.policy().environments.clone()
    }

    /// Returns the published roots in an access scope, in scope order, then by id.
    #[must_use]
    pub fn published_roots(&self, access_scope: &AccessScope) -> Arc<[PublishedRoot]> {
        self.policy()
            .scope_for(access_scope)
            .published_roots
            .clone()
    }

    /// Returns all published roots as a selection of the daemon itself.
    #[must_use]
    pub fn select_published_roots(&self) -> ScopedSelection {
        let policy = self.policy();
        let environment = &policy.environments[0];
        let access_scope = Arc::new(AccessScope::All);
        let published = policy.scope_for(&access_scope).published_roots.clone();
        let roots = published
            .iter()
            .map(|root| root.to_selected_root(environment))
            .collect();
        ScopedSelection {
            access_scope,
            roots,
        }
    }

    /// Returns the current limits.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.policy().limits().clone()
    }

    /// Returns the lock in force and its effect; `None` if skills need no approval.
    #[must_use]
    pub fn trust(&self) -> Option<TrustPolicy> {
        self.policy().trust().cloned()
    }

    /// Returns the current intervals and timeouts.
    #[must_use]
    pub fn timing(&self) -> WatchTiming {
        self.policy().timing.clone()
    }

    /// Returns the method of opening files below the allowed directories.
    #[must_use]
    pub fn opener(&self) -> OpenMethod {
        self.inner.opener
    }

    /// Replaces the policy and rescans every root. Calls in flight may end under the old policy.
    pub fn apply_policy(&self, config: PolicyConfig) {
        let mut state = self.lock_state();
        let before = self.policy();
        let policy = Arc::new(before.with_config(config));
        *self.inner.policy.lock() = policy.clone();
        let limits = policy.limits();
        state.max_history = limits.max_history;
        // Clients cannot resume from a revision at which selections resolve to other roots.
        if !before.resolves_selections_like(&policy) {
            state.revision += 1;
            state.history_floor = state.revision;
        }
        if !before.approves_like(&policy) {
            state.revision += 1;
            state.page_floor = state.revision;
        }

        for root in state.roots.values_mut() {
            root.truncate_history(limits.max_history);
            let task = &mut root.task_handle;
            if limits.max_reads_per_root != before.limits().max_reads_per_root {
                // Reads in flight keep the permits of the old semaphore.
                task.read_permits = Arc::new(Semaphore::new(limits.max_reads_per_root));
            }
            task.require_scan_with_new_policy();
        }
        self.inner.revisions.send_replace(state.revision);
    }

    /// Returns the states of the selected roots, after the scans that the consistency level
    /// requires.
    pub async fn view(
        &self,
        selection: &ScopedSelection,
        consistency: ConsistencyLevel,
        wait_budget: WaitBudget,
    ) -> Result<CatalogView, DeadlineExceeded> {
        let keys = self.root_keys(selection);
        // Without inotify, or if the wait takes too long, events may be missing.
        let barrier = self.inner.watcher.barrier();
        let has_all_events = consistency == ConsistencyLevel::Cached
            || timeout_at(wait_budget.short_deadline, barrier).await == Ok(true);

        // All scans run at the same time, although the waits follow each other.
        let scope = &selection.access_scope;
        let scans: Vec<_> = keys
            .iter()
            .map(|key| self.request_scan(scope, key.as_ref().ok()?, consistency, has_all_events))
            .collect();

        let mut overrides = Vec::with_capacity(keys.len());
        for scan in scans {
            overrides.push(match scan {
                Some(scan) => wait_budget.wait_for_scan(scan).await?,
                None => None,
            });
        }

        let state = self.lock_state();
        // If the policy changed meanwhile, the outcome of the wait belongs to another root.
        let current_keys = self.root_keys(selection);

        let waited = keys.iter().zip(current_keys).zip(overrides);
        let root_states = waited.map(|((key, current_key), waited_state)| {
            waited_state
                .filter(|_| *key == current_key)
                .unwrap_or_else(|| state.root_state(&current_key))
        });
        Ok(self.view_of(&state, selection, state.revision, root_states))
    }

    /// Requests a scan of a root and starts the task of the root if no task runs. Returns `None` if
    /// the latest snapshot satisfies the consistency level. `has_all_events`: the watcher reported
    /// all events that the kernel queued; otherwise only a full rescan finds all changes.
    fn request_scan(
        &self,
        access_scope: &Arc<AccessScope>,
        key: &RootKey,
        consistency: ConsistencyLevel,
        has_all_events: bool,
    ) -> Option<RequestedScan> {
        let policy = self.policy();
        self.start_watcher();

        let mut state = self.lock_state();
        state.touch_or_insert(key, || {
            let mut task = RootTaskHandle::new(policy.limits().max_reads_per_root);
            // Also ends by itself when the root is idle.
            let work =
                root_task::run_root_task(self.clone(), access_scope.clone(), key.clone(), &task);
            task.task = Some(AbortOnDropHandle::new(tokio::spawn(work)));
            task
        });

        state.evict_idle_roots(policy.limits().max_cached_roots);
        let has_snapshot = state.latest_snapshot(key).is_some();
        let task = state.task_handle_mut(key)?;
        let is_current = has_snapshot && task.has_current_result();

        if consistency == ConsistencyLevel::Cached && is_current {
            return None;
        }

        if !has_all_events {
            task.changes.require_full_rescan();
        }
        Some(task.request_scan(consistency, !has_snapshot))
    }

    /// Returns the current states of the selected roots without waiting.
    #[must_use]
    pub fn current_view(&self, selection: &ScopedSelection) -> CatalogView {
        let state = self.lock_state();
        let keys = self.root_keys(selection);
        let root_states = keys.iter().map(|key| state.root_state(key));
        self.view_of(&state, selection, state.revision, root_states)
    }

    /// Returns the states of the selected roots at a revision of this epoch; `None` if the history
    /// no longer has the revision.
    #[must_use]
    pub fn view_at(&self, selection: &ScopedSelection, revision: u64) -> Option<CatalogView> {
        let state = self.lock_state();
        if !(state.history_floor..=state.revision).contains(&revision) {
            return None;
        }
        let keys = self.root_keys(selection).into_iter();
        let root_states = keys.map(|key| match key {
            Err(reason) => Some(RootState::Unavailable(reason)),
            Ok(key) => state.snapshot_at(&key, revision).map(RootState::Snapshot),
        });
        let root_states = root_states.collect::<Option<Vec<_>>>()?;
        Some(self.view_of(&state, selection, revision, root_states))
    }

    /// Returns the states of a page token's revision like [`Self::view_at`]; `None` if the approved
    /// skills have changed since.
    #[must_use]
    pub fn view_of_page(&self, selection: &ScopedSelection, revision: u64) -> Option<CatalogView> {
        let is_current = revision >= self.lock_state().page_floor;
        self.view_at(selection, revision).filter(|_| is_current)
    }

    /// Keeps the tasks of the selected roots running until the lease is dropped.
    #[must_use]
    pub fn lease_roots(&self, selection: &ScopedSelection) -> RootLease {
        let keys = self.root_keys(selection);
        let tokens = keys.iter().flatten().filter_map(|key| {
            self.request_scan(&selection.access_scope, key, ConsistencyLevel::Cached, true);
            let mut state = self.lock_state();
            Some(state.task_handle_mut(key)?.lease_token.clone())
        });
        RootLease {
            _lease_tokens: tokens.collect(),
            keys,
        }
    }

    /// Whether the lease still covers the selected roots. A new policy can resolve the same
    /// selection to other roots.
    #[must_use]
    pub fn is_lease_current(&self, lease: &RootLease, selection: &ScopedSelection) -> bool {
        self.root_keys(selection) == lease.keys
    }

    /// Subscribes to revisions. A slow subscriber sees only the latest revision.
    #[must_use]
    pub fn subscribe_revisions(&self) -> watch::Receiver<u64> {
        self.inner.revisions.subscribe()
    }

    /// Starts the watcher, so that [`CatalogStore::watch_stats`] names the right backend before the
    /// first selection of a root. If the start fails, each scan tries again. Call within the tokio
    /// runtime.
    pub fn start_watcher(&self) {
        if let Err(error) = self.inner.watcher.start() {
            tracing::debug!(%error, "inotify is not available; polling roots");
        }
    }

    /// Waits until the watcher has reported all events that the kernel queued before this call.
    /// Returns at once if inotify is not available.
    pub async fn wait_for_watcher(&self) {
        self.inner.watcher.barrier().await;
    }

    /// Returns the inotify counters and the number of polled roots. Hidden published roots of the
    /// access scope do not count.
    #[must_use]
    pub fn watch_stats(&self, access_scope: &AccessScope) -> WatchStats {
        self.watch_stats_of(&self.counted_roots(access_scope, None))
    }

    fn watch_stats_of(&self, roots: &[CountedRoot]) -> WatchStats {
        let polled_roots = roots
            .iter()
            .filter_map(|root| root.snapshot.as_ref())
            .filter(|snapshot| snapshot.watch_mode != WatchMode::Events);
        WatchStats {
            has_inotify: self.inner.watcher.is_running(),
            watches_used: self.inner.watcher.watch_count(),
            watches_limit: self.inner.watcher.watch_limit(),
            overflows: self.inner.watcher.overflow_count(),
            missed_changes: self.inner.missed_changes.load(Ordering::Relaxed),
            roots: roots.len(),
            polling_roots: polled_roots.count(),
        }
    }

    /// Counts the roots in an access scope. Costs as much as [`CatalogStore::stats`].
    #[must_use]
    pub fn scope_stats(&self, access_scope: &AccessScope) -> ScopeStats {
        let is_restricted = *access_scope != AccessScope::All;
        let scope = is_restricted.then(|| self.policy().scope_for(access_scope));
        ScopeStats {
            unrequested: self.count_unrequested(access_scope),
            ..ScopeStats::of_roots(&self.counted_roots(access_scope, scope.as_deref()))
        }
    }

    /// Counts the published roots that no call has asked for. Optional roots do not count, as their
    /// directory may not exist.
    fn count_unrequested(&self, access_scope: &AccessScope) -> usize {
        let published = self.published_roots(access_scope);
        let state = self.lock_state();
        let requested: HashSet<_> = state.iter_roots().map(|(key, _)| &*key.path).collect();
        let roots = published.iter();
        roots
            .filter(|root| !root.is_optional && !requested.contains(&*root.path))
            .count()
    }

    /// Counts all roots, scans and diagnostics. The cost grows with the number of diagnostics.
    #[must_use]
    pub fn stats(&self) -> CatalogStats {
        let roots = self.counted_roots(&AccessScope::All, None);
        let watch = self.watch_stats_of(&roots);
        CatalogStats {
            refused_reads: self.inner.refused_reads.load(Ordering::Relaxed),
            ..CatalogStats::of_roots(watch, self.revision(), &self.inner.scan_counters, &roots)
        }
    }

    /// Returns each root that the scope uses, or that any scope uses, with its latest snapshot.
    /// Hidden published roots of the access scope are omitted. If several scopes use a root, returns
    /// the snapshot with the most skills, so that the root is counted once.
    fn counted_roots(
        &self,
        access_scope: &AccessScope,
        scope: Option<&CatalogScope>,
    ) -> Vec<CountedRoot> {
        let published = self.published_roots(access_scope);
        let state = self.lock_state();
        let mut by_path = HashMap::new();

        for (key, snapshot) in state.iter_roots() {
            if scope.is_some_and(|scope| !scope.contains_key(key)) {
                continue;
            }
            let reason = snapshot.and_then(|snapshot| snapshot.catalog.as_ref().err().copied());
            let mut published_here = published.iter().filter(|root| *root.path == *key.path);
            let is_published = published_here.clone().next().is_some();
            if published_here.any(|root| root.is_hidden(reason)) {
                continue;
            }

            let counted = by_path.entry(&*key.path).or_insert(CountedRoot {
                is_published,
                snapshot: None,
            });
            if size_order(snapshot) > size_order(counted.snapshot.as_ref()) {
                counted.snapshot = snapshot.cloned();
            }
        }
        by_path.into_values().collect()
    }

    /// Stores a scan result; `None` means that the catalog did not change. Returns whether the
    /// snapshot differs from the last snapshot, which creates a new revision.
    pub(super) fn publish_snapshot(
        &self,
        key: &RootKey,
        catalog: Option<Result<Arc<Catalog>, RootReason>>,
        watch_mode: WatchMode,
    ) -> bool {
        let mut state = self.lock_state();

        let StoreState {
            revision,
            max_history,
            roots,
            ..
        } = &mut *state;
        let Some(root) = roots.get_mut(key) else {
            return false;
        };

        let last = root.latest();
        let catalog = match (last.map(|last| &last.catalog), catalog) {
            (None, None) => return false,
            (Some(old), None) => old.clone(),
            (Some(Ok(old)), Some(Ok(new)))
                if !Arc::ptr_eq(old, &new) && old.is_equivalent(&new) =>
            {
                Ok(old.clone())
            }
            (_, Some(new)) => new,
        };

        let snapshot = RootSnapshot {
            catalog,
            watch_mode,
        };

        if last.is_some_and(|last| last.is_same(&snapshot)) {
            return false;
        }

        *revision += 1;
        root.history.push_back((*revision, snapshot));
        root.truncate_history(*max_history);
        // Sent while `state` is locked, so that subscribers see revisions in order.
        self.inner.revisions.send_replace(*revision);
        true
    }

    /// Returns the view of a selection from the states of its roots.
    fn view_of(
        &self,
        state: &StoreState,
        selection: &ScopedSelection,
        revision: u64,
        root_states: impl IntoIterator<Item = RootState>,
    ) -> CatalogView {
        let roots = selection.roots.iter().zip(root_states);
        let roots = roots.map(|(selected, root_state)| RootView {
            id: selected.id.clone(),
            published_ids: match root_state.reason() {
                Some(RootReason::UnknownPublished) => {
                    self.visible_published_ids(state, &selection.access_scope)
                }
                _ => Vec::new(),
            },
            state: root_state,
        });
        CatalogView {
            revision,
            roots: roots.collect(),
        }
    }

    /// Returns the ids of the published roots that a caller sees. Optional roots without a scan are
    /// omitted, as their directory may not exist.
    fn visible_published_ids(&self, state: &StoreState, access_scope: &AccessScope) -> Vec<RootId> {
        let policy = self.policy();
        let scope = policy.scope_for(access_scope);
        let visible = scope.published_roots.iter().filter(|root| {
            let snapshot = state.latest_snapshot(&scope.key_of(root));
            match snapshot.map(|snapshot| &snapshot.catalog) {
                Some(catalog) => !root.is_hidden(catalog.as_ref().err().copied()),
                None => !root.is_optional,
            }
        });
        visible.map(|root| root.id.clone()).collect()
    }

    fn root_keys(&self, selection: &ScopedSelection) -> Vec<Result<RootKey, RootReason>> {
        self.policy()
            .root_keys(&selection.access_scope, &selection.roots)
    }

    pub(super) fn policy(&self) -> Arc<CatalogPolicy> {
        self.inner.policy.lock().clone()
    }

    pub(super) fn lock_state(&self) -> MutexGuard<'_, StoreState> {
        self.inner.state.lock()
    }
}

/// Key that orders snapshots: no snapshot, an unavailable root, and a catalog by its size.
fn size_order(snapshot: Option<&RootSnapshot>) -> (bool, Option<usize>) {
    let catalog = snapshot.and_then(|snapshot| snapshot.catalog.as_ref().ok());
    (snapshot.is_some(), catalog.map(|catalog| catalog.len()))
}

impl RootRecord {
    fn latest(&self) -> Option<&RootSnapshot> {
        self.history.back().map(|(_, snapshot)| snapshot)
    }

    fn truncate_history(&mut self, max_history: usize) {
        let excess = self.history.len().saturating_sub(max_history);
        self.history.drain(..excess);
    }
}

impl StoreState {
    pub fn iter_roots(&self) -> impl Iterator<Item = (&RootKey, Option<&RootSnapshot>)> {
        self.roots.iter().map(|(key, root)| (key, root.latest()))
    }

    pub fn task_handle_mut(&mut self, key: &RootKey) -> Option<&mut RootTaskHandle> {
        Some(&mut self.roots.get_mut(key)?.task_handle)
    }

    /// Records a use of a root, and adds the root if it is unknown. `new` creates the task handle.
    pub fn touch_or_insert(&mut self, key: &RootKey, new: impl FnOnce() -> RootTaskHandle) {
        self.use_count += 1;
        let root = self.roots.entry(key.clone()).or_insert_with(|| RootRecord {
            history: VecDeque::new(),
            last_use: 0,
            task_handle: new(),
        });
        root.last_use = self.use_count;
        root.task_handle.last_used_at = Instant::now();
    }

    /// Records a use of a root and returns its latest snapshot; `None` if the root has no snapshot.
    pub fn touch_known(&mut self, key: &RootKey) -> Option<&RootSnapshot> {
        let root = self.roots.get_mut(key)?;
        let (_, snapshot) = root.history.back()?;
        self.use_count += 1;
        root.last_use = self.use_count;
        root.task_handle.last_used_at = Instant::now();
        Some(snapshot)
    }

    pub fn remove_root(&mut self, key: &RootKey) {
        self.roots.remove(key);
    }

    /// Removes least recently used roots until `max_roots` are left. Busy roots stay.
    pub fn evict_idle_roots(&mut self, max_roots: usize) {
        while self.roots.len() > max_roots {
            let idle = self.roots.iter().filter(|(_, root)| {
                let task = &root.task_handle;
                !task.is_scanning() && !task.is_leased()
            });
            let Some((key, _)) = idle.min_by_key(|(_, root)| root.last_use) else {
                return;
            };
            let key = key.clone();
            self.roots.remove(&key);
        }
    }

    pub fn latest_snapshot(&self, key: &RootKey) -> Option<&RootSnapshot> {
        self.roots.get(key)?.latest()
    }

    pub fn root_state(&self, key: &Result<RootKey, RootReason>) -> RootState {
        match key {
            Err(reason) => RootState::Unavailable(*reason),
            Ok(key) => {
                let snapshot = self.latest_snapshot(key).cloned();
                snapshot.map_or(RootState::Pending, RootState::Snapshot)
            }
        }
    }

    /// Returns the snapshot of a root at a revision; `None` if the history starts later.
    pub fn snapshot_at(&self, key: &RootKey, revision: u64) -> Option<RootSnapshot> {
        let mut history = self.roots.get(key)?.history.iter();
        let found = history.rfind(|(first, _)| *first <= revision);
        found.map(|(_, snapshot)| snapshot.clone())
    }
}
