//! Task of one root, and the changes that the task has not handled: the watcher records changes, and
//! the task scans the root when the changes are due, and publishes snapshots. Each root has its own
//! task, so that a root on a filesystem that hangs blocks no other root.

use super::debounce_timer::DebounceTimer;
use super::event_trust::EventTrust;
use super::policy::{CatalogPolicy, CatalogScope, RootKey, WatchTiming};
use super::root_task_handle::{InFlightWork, RootTaskHandle};
use super::{CatalogStore, PollReason, WatchMode};
use crate::daemon::model::{AccessScope, Catalog, RootReason};
use crate::daemon::scan::{
    DirWatcher, DirtyDirs, HeldSkill, PathRole, RootIndex, ScanOutcome, ScanProgress, WatchGuard,
    WatchedEntries,
};
use crate::daemon::watch::{InotifyWatch, InotifyWatcher, WatchError, WatchListener};
use caproot_core::backoff::{Backoff, full_jitter};
use caproot_core::sync::{BlockingError, Mutex, run_blocking};
use caproot_core::wire::RelPath;
use std::collections::{HashMap, HashSet};
use std::os::fd::BorrowedFd;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};

/// Changed mount points that are stored for one root. More mount changes cause a full rescan.
const MAX_CHANGED_MOUNTS: usize = 1_000;

/// Delays until a scan that failed is tried again.
const RETRY_BACKOFF: Backoff = Backoff::new(Duration::from_secs(2), Duration::from_mins(1));

/// Time without progress after which a scan no longer counts as a concurrent scan. Its filesystem
/// may hang, and must not delay other roots.
const SLOW_AFTER: Duration = Duration::from_millis(500);

/// Longest wait for the events of changes that a scan found.
const EVENT_TIMEOUT: Duration = Duration::from_secs(1);

/// Changes below one root since the last rescan.
#[derive(Debug, Default)]
pub struct PendingChanges {
    changes: Mutex<ChangeSet>,
    wakeup: Notify,
}

/// The size is bounded by the number of directories of the root and by [`MAX_CHANGED_MOUNTS`].
#[derive(Debug, Default)]
struct ChangeSet {
    /// Tokens of directories that changed.
    dirty_tokens: HashSet<u64>,
    /// Subset of `dirty_tokens`: directories that were moved, or whose path changed.
    moved_tokens: HashSet<u64>,
    /// Packages of which a read found bytes that are not approved. Bounded by the packages of the catalog.
    refused_packages: HashSet<RelPath>,
    /// Absolute paths in the daemon's mount namespace at which filesystems were mounted or
    /// unmounted; empty if each change was undone. They do not wake the task: the next recheck handles
    /// them. `None` if the mount table did not change.
    changed_mounts: Option<HashSet<Box<[u8]>>>,
    /// Directories with a SKILL.md that is not published yet, with the end of its delay.
    held_until: HashMap<u64, Instant>,
    needs_full_rescan: bool,
    /// Whether inotify reported a change.
    has_event: bool,
    /// Since when scans find files that no longer parse, and whose writer may be in the middle of a save.
    unstable_since: Option<Instant>,
    first_change_at: Option<Instant>,
    last_change_at: Option<Instant>,
}

impl PendingChanges {
    pub fn notify_root_task(&self) {
        self.wakeup.notify_one();
    }

    pub fn require_full_rescan(&self) {
        self.record_change(|changes| changes.needs_full_rescan = true);
    }

    fn record_dirty_dirs(&self, tokens: impl IntoIterator<Item = u64>) {
        self.record_change(|changes| changes.dirty_tokens.extend(tokens));
    }

    /// Records directories with files that no longer parse. Returns whether callers wait for the next scan, which
    /// starts after the next event or the debounce time. They wait no longer than `max_wait` in all.
    fn record_unstable_dirs(&self, tokens: Vec<u64>, max_wait: Duration) -> bool {
        if tokens.is_empty() {
            self.changes.lock().unstable_since = None;
            return false;
        }

        let mut unstable_since = Instant::now();
        self.record_change(|changes| {
            changes.dirty_tokens.extend(tokens);
            unstable_since = *changes.unstable_since.get_or_insert(unstable_since);
        });
        unstable_since.elapsed() < max_wait
    }

    /// Records a package of which a read found bytes that are not approved.
    pub fn record_refused_package(&self, package: &RelPath) {
        self.record_change(|changes| {
            changes.refused_packages.insert(package.clone());
        });
    }

    /// Records directories to rescan when the delay of their SKILL.md ends. A change of the file
    /// before that time is a change of its directory, and starts the delay again.
    fn record_held_skills(&self, held: &[HeldSkill]) {
        let mut changes = self.changes.lock();
        for HeldSkill { token, until } in held {
            changes.held_until.insert(*token, (*until).into());
        }
    }

    /// Takes the changes that are due, and returns the action that they require. If a caller requests a
    /// scan, all changes are due at once; if a caller waits for a file whose writer may be in the middle of a
    /// save, after the next event; else the debounce time must be over. Returns `Err` if no change is due,
    /// with the times at which the changes so far are due.
    fn take_due(
        &self,
        demand: ScanDemand,
        needs_full_scan: bool,
        timing: &WatchTiming,
        now: Instant,
    ) -> Result<RootAction, DueTimes> {
        let mut changes = self.changes.lock();
        let has_released = changes.release_held_skills(now);
        let is_requested = demand == ScanDemand::Requested;
        if changes.needs_full_rescan || is_requested && needs_full_scan {
            *changes = ChangeSet {
                refused_packages: std::mem::take(&mut changes.refused_packages),
                ..ChangeSet::default()
            };
            return Ok(RootAction::Scan(ScanKind::Full { is_periodic: false }));
        }
        if is_requested && changes.changed_mounts.is_some() {
            return Ok(RootAction::Recheck);
        }
        let settled_at = changes.last_change_at.map(|last| last + timing.debounce);
        let latest_at = changes
            .first_change_at
            .map(|first| first + timing.max_debounce);
        let debounce_ends_at = settled_at.min(latest_at);
        let is_debounced = debounce_ends_at.map_or(has_released, |due_at| now >= due_at);
        let is_awaited = demand == ScanDemand::Awaited && changes.has_event;
        if !is_requested && !is_awaited && !is_debounced {
            return Err(DueTimes {
                debounce_ends_at,
                hold_ends_at: changes.held_until.values().min().copied(),
            });
        }

        // A requested scan may find a change before its event is reported.
        let is_settled = settled_at.map_or(!is_requested, |settled_at| now >= settled_at);
        let rest = ChangeSet {
            unstable_since: changes.unstable_since,
            changed_mounts: changes.changed_mounts.take(),
            held_until: std::mem::take(&mut changes.held_until),
            ..ChangeSet::default()
        };
        let taken = std::mem::replace(&mut *changes, rest);
        let dirty = DirtyDirs {
            tokens: taken.dirty_tokens,
            moved: taken.moved_tokens,
            refused: taken.refused_packages,
            compare_files: is_requested,
        };
        Ok(RootAction::Scan(ScanKind::Partial { dirty, is_settled }))
    }

    fn record_change(&self, record: impl FnOnce(&mut ChangeSet)) {
        let now = Instant::now();
        let mut changes = self.changes.lock();
        record(&mut changes);
        changes.first_change_at.get_or_insert(now);
        changes.last_change_at = Some(now);
        drop(changes);
        self.notify_root_task();
    }
}

impl ChangeSet {
    /// Moves directories whose SKILL.md was held long enough to the changed directories. Returns
    /// whether there were any.
    fn release_held_skills(&mut self, now: Instant) -> bool {
        let released = self.held_until.extract_if(|_, until| now >= *until);
        let tokens: Vec<u64> = released.map(|(token, _)| token).collect();
        self.dirty_tokens.extend(&tokens);
        !tokens.is_empty()
    }
}

impl WatchListener for PendingChanges {
    fn on_dir_changed(&self, token: u64, _: Option<&[u8]>, moved: bool) {
        self.record_change(|changes| {
            changes.has_event = true;
            changes.dirty_tokens.insert(token);
            if moved {
                changes.moved_tokens.insert(token);
            }
        });
    }

    fn on_mounts_changed(&self, mount_points: &[Box<[u8]>]) {
        let too_many = {
            let mut changes = self.changes.lock();
            let mounts = changes.changed_mounts.get_or_insert_default();
            mounts.extend(mount_points.iter().cloned());
            mounts.len() > MAX_CHANGED_MOUNTS
        };
        if too_many {
            self.on_events_lost();
        }
    }

    fn on_events_lost(&self) {
        self.require_full_rescan();
    }
}

/// Times at which recorded changes are due.
struct DueTimes {
    debounce_ends_at: Option<Instant>,
    /// First end of the delay of a SKILL.md that is not published yet.
    hold_ends_at: Option<Instant>,
}

/// Demand for the next scan of a root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanDemand {
    /// No caller waits.
    None,
    /// Callers wait, because the last scan found a file that no longer parses.
    Awaited,
    /// A caller waits for a scan that starts now.
    Requested,
}

enum RootAction {
    Scan(ScanKind),
    /// Look for changes that inotify does not report.
    Recheck,
    /// End the task: no caller uses the root.
    Stop,
}

enum ScanKind {
    Full {
        /// Whether the scan is neither requested nor the repetition of a scan that failed.
        is_periodic: bool,
    },
    Partial {
        dirty: DirtyDirs,
        /// Whether no event came during the debounce time.
        is_settled: bool,
    },
}

struct RootTask {
    store: CatalogStore,
    access_scope: Arc<AccessScope>,
    /// Policy of the last full scan.
    policy: Arc<CatalogPolicy>,
    /// Scope of the last full scan.
    scope: Arc<CatalogScope>,
    key: RootKey,
    changes: Arc<PendingChanges>,
    in_flight: InFlightWork,
    /// `None` before the first scan, during disk work, and after disk work that panicked.
    index: Option<RootIndex>,
    watch_mode: WatchMode,
    event_trust: EventTrust,
    /// Whether the root was published as unavailable because disk work made no progress.
    is_stuck: bool,
    has_full_scan: bool,
    next_recheck_at: Instant,
    next_full_scan_at: Instant,
    /// Delays until the next attempts; `None` unless the last scan failed.
    retry_backoff: Option<Backoff>,
}

/// Returns a future that keeps the catalog of a root up to date until the root is idle.
pub fn run_root_task(
    store: CatalogStore,
    access_scope: Arc<AccessScope>,
    key: RootKey,
    handle: &RootTaskHandle,
) -> impl Future<Output = ()> + use<> {
    let now = Instant::now();
    let policy = store.policy();

    let task = RootTask {
        scope: policy.scope_for(&access_scope),
        store,
        access_scope,
        policy,
        key,
        changes: handle.changes.clone(),
        in_flight: handle.in_flight.clone(),
        index: None,
        watch_mode: WatchMode::Events,
        event_trust: EventTrust::default(),
        is_stuck: false,
        has_full_scan: false,
        next_recheck_at: now,
        next_full_scan_at: now,
        retry_backoff: None,
    };
    task.run()
}

impl RootTask {
    async fn run(mut self) {
        loop {
            match self.next_action().await {
                RootAction::Stop => return,
                RootAction::Scan(kind) => self.rescan_root(kind).await,
                RootAction::Recheck => self.recheck_links_and_mounts().await,
            }
        }
    }

    async fn next_action(&mut self) -> RootAction {
        let mut debounce_timer = None;
        loop {
            let Some(demand) = self.check_demand() else {
                return RootAction::Stop;
            };

            let now = Instant::now();
            let is_polled = self.watch_mode != WatchMode::Events;
            let is_usable = self.index.as_ref().is_some_and(RootIndex::is_usable);
            let needs_full_scan = is_polled || !self.has_full_scan || !is_usable;
            let timing = &self.policy.timing;

            let due = match self.changes.take_due(demand, needs_full_scan, timing, now) {
                Ok(action) => return action,
                Err(times) => times,
            };

            if now >= self.next_full_scan_at {
                let is_periodic = self.retry_backoff.is_none();
                return RootAction::Scan(ScanKind::Full { is_periodic });
            }

            if now >= self.next_recheck_at {
                return RootAction::Recheck;
            }

            let ends = [due.debounce_ends_at, due.hold_ends_at]
                .into_iter()
                .flatten();
            let wake_at = ends
                .chain([self.next_full_scan_at])
                .fold(self.next_recheck_at, Instant::min);

            // A timer that ends before a later deadline is started again.
            let timer = due.debounce_ends_at.map(|due_at| {
                debounce_timer.get_or_insert_with(|| DebounceTimer::start(due_at - now))
            });

            tokio::select! {
                // A notification that came while the task was busy counts.
                () = self.changes.wakeup.notified() => {}
                () = sleep_until(wake_at) => {}
                () = DebounceTimer::wait(timer.as_deref()) => debounce_timer = None,
            }
        }
    }

    /// Returns the demand for a scan; `None` if the root was evicted or is idle. Removes an idle root.
    fn check_demand(&self) -> Option<ScanDemand> {
        let mut state = self.store.lock_state();
        let handle = state
            .task_handle_mut(&self.key)
            .filter(|handle| Arc::ptr_eq(&handle.changes, &self.changes))?;
        let demand = handle.scan_demand();
        if demand != ScanDemand::Requested && handle.is_idle(self.policy.timing.idle_timeout) {
            state.remove_root(&self.key);
            return None;
        }
        Some(demand)
    }

    /// Whether this is the task of the root, and not of a root that was removed.
    fn is_current(&self) -> bool {
        let mut state = self.store.lock_state();
        let handle = state.task_handle_mut(&self.key);
        handle.is_some_and(|handle| Arc::ptr_eq(&handle.changes, &self.changes))
    }

    /// Schedules the next full scan and the next recheck.
    fn schedule_full_scan(&mut self) {
        let timing = &self.policy.timing;
        let has_overlay = self.index.as_ref().is_some_and(RootIndex::has_overlay);
        let wait = match self.watch_mode {
            WatchMode::Polling(_) => timing.poll_interval,
            WatchMode::Events if has_overlay => vary_interval(timing.overlay_scan_interval),
            WatchMode::Events => vary_interval(timing.full_scan_interval),
        };
        let retry_delay = self.retry_backoff.as_mut().map(Backoff::next_delay);
        let wait = retry_delay.map_or(wait, |delay| delay.min(wait));
        let now = Instant::now();
        self.next_recheck_at = now + timing.recheck_interval;
        self.next_full_scan_at = now + wait;
    }

    /// Scans the root and publishes the outcome.
    async fn rescan_root(&mut self, kind: ScanKind) {
        match self.store.lock_state().task_handle_mut(&self.key) {
            Some(handle) => handle.started_scan += 1,
            None => return,
        }

        let is_full = matches!(kind, ScanKind::Full { .. });
        let is_periodic = matches!(kind, ScanKind::Full { is_periodic: true });
        if is_full {
            self.refresh_policy();
        }

        let previous_watch_mode = self.watch_mode;
        let outcome = match kind {
            ScanKind::Partial { dirty, .. } if dirty.is_empty() => ScanOutcome::default(),
            kind => self.scan_on_disk(kind).await,
        };

        // The scan of a root that was removed meanwhile was cancelled, and its result is incomplete.
        if !self.is_current() {
            return;
        }

        let has_failed = self.retry_backoff.is_some();
        if is_full || has_failed {
            self.has_full_scan = !has_failed;
        }
        // A root whose scan failed, or whose watch mode becomes polling, must not wait for the
        // interval of full scans.
        if is_full || has_failed || self.watch_mode != previous_watch_mode {
            self.schedule_full_scan();
        }

        let was_stuck = self.is_stuck;
        let changed = self.publish_scan_result(outcome.catalog);
        // While a root is polled, inotify does not report its changes. The first scan that sets all
        // watches finds the last of them.
        let suspect = WatchMode::Polling(PollReason::UnannouncedChanges);
        let modes = [previous_watch_mode, self.watch_mode];
        let had_events = modes == [WatchMode::Events; 2] || modes == [suspect; 2];
        if is_periodic && had_events && !was_stuck && !has_failed {
            let is_missed = changed && !self.is_change_reported().await;
            if is_missed {
                self.store
                    .inner
                    .missed_changes
                    .fetch_add(1, Ordering::Relaxed);
                tracing::warn!("periodic full scan found a change that inotify did not report");
            }
            self.update_event_trust(is_missed);
        }

        self.changes.record_held_skills(&outcome.held);
        let max_wait = self.policy.timing.max_debounce;
        let is_unstable = self
            .changes
            .record_unstable_dirs(outcome.unstable, max_wait);
        if is_unstable && !is_full {
            return;
        }

        if let Some(handle) = self.store.lock_state().task_handle_mut(&self.key) {
            handle.complete_scan();
        }
    }

    /// Polls the root if its events cannot be trusted, and returns to events when they can.
    fn update_event_trust(&mut self, is_missed: bool) {
        self.event_trust.record_full_scan(is_missed);
        let watch_mode = if self.event_trust.is_lost() {
            WatchMode::Polling(PollReason::UnannouncedChanges)
        } else {
            WatchMode::Events
        };
        if self.watch_mode != watch_mode {
            self.watch_mode = watch_mode;
            self.schedule_full_scan();
            self.publish_scan_result(None);
        }
    }

    /// Waits for the events that the kernel queued, and returns whether a change below the root was
    /// reported since the last scan by events. The full scan was then only faster.
    async fn is_change_reported(&self) -> bool {
        let watcher = &self.store.inner.watcher;
        let is_current = timeout(EVENT_TIMEOUT, watcher.barrier()).await;
        let changes = self.changes.changes.lock();
        !is_current.unwrap_or(false)
            || changes.needs_full_rescan
            || !changes.dirty_tokens.is_empty()
    }

    async fn scan_on_disk(&mut self, kind: ScanKind) -> ScanOutcome {
        let is_full = matches!(kind, ScanKind::Full { .. });
        let scope = self.scope.clone();
        let mut index = self
            .index
            .take()
            .unwrap_or_else(|| RootIndex::new(self.policy.scan_target(&self.key)));

        // Replaces an inotify instance that failed. Without an instance, roots are polled.
        let watcher = &self.store.inner.watcher;
        if let Err(error) = watcher.start() {
            tracing::debug!(%error, "inotify is not available; polling the root");
        }

        let registrar = WatchRegistrar {
            watcher: watcher.clone(),
            listener: self.changes.clone(),
            file_listener: Arc::new(FilePathListener(self.changes.clone())),
            first_failure: Mutex::default(),
        };
        let scan = move |progress: &ScanProgress| {
            let allowed_dirs = &scope.allowed_dirs;
            let outcome = match kind {
                ScanKind::Full { .. } => index.rescan_all(allowed_dirs, &registrar, progress),
                ScanKind::Partial { dirty, is_settled } => {
                    index.rescan_dirty(allowed_dirs, &dirty, is_settled, &registrar, progress)
                }
            };
            let failure = *registrar.first_failure.lock();
            (index, outcome, failure)
        };

        let started_at = Instant::now();
        let result = self.run_disk_work(scan).await;
        self.store
            .inner
            .scan_counters
            .record_scan(is_full, started_at.elapsed());

        match result {
            Ok((index, outcome, failure)) => {
                self.retry_backoff = None;
                let is_suspect = self.event_trust.is_lost();
                let failure = failure.or(is_suspect.then_some(PollReason::UnannouncedChanges));
                self.watch_mode = choose_watch_mode(&index, failure, is_full, self.watch_mode);
                self.index = Some(index);
                outcome
            }
            Err(error) => self.record_failed_scan(&error),
        }
    }

    /// Starts the delay until the next try after a scan without a result. Returns the outcome with the
    /// reason.
    fn record_failed_scan(&mut self, error: &BlockingError) -> ScanOutcome {
        self.retry_backoff.get_or_insert(RETRY_BACKOFF);
        let reason = match error {
            // Logged for all roots at once.
            BlockingError::NoThread(_) => RootReason::NoThread,
            BlockingError::Panicked(_) => {
                tracing::error!(%error, "internal error: scan panicked");
                RootReason::ScanFailed
            }
        };
        ScanOutcome {
            catalog: Some(Err(reason)),
            ..ScanOutcome::default()
        }
    }

    /// Adopts the current policy. [`CatalogStore::apply_policy`] makes all roots rescan, so partial
    /// scans do not use an old policy for long.
    fn refresh_policy(&mut self) {
        let policy = self.store.policy();
        if Arc::ptr_eq(&policy, &self.policy) {
            return;
        }
        self.scope = policy.scope_for(&self.access_scope);
        if let Some(index) = &mut self.index {
            index.set_target(policy.scan_target(&self.key));
        }
        self.policy = policy;
    }

    /// Records changes that inotify does not report: retargeted links, and mounts.
    async fn recheck_links_and_mounts(&mut self) {
        self.next_recheck_at = Instant::now() + self.policy.timing.recheck_interval;
        let Some(index) = self.index.take() else {
            return;
        };

        // Without a thread, the root keeps its index until the next recheck.
        let kept = Arc::new(Mutex::new(Some(index)));
        let taken = kept.clone();

        let store = self.store.clone();
        let changes = self.changes.clone();
        let scope = self.scope.clone();
        let recheck = move |progress: &ScanProgress| {
            let mut index = taken.lock().take()?;
            // The watcher reports mount changes to all roots, also to this root.
            store.inner.watcher.report_mount_changes();
            let mounts = changes.changes.lock().changed_mounts.take();
            let dirty = index.unreported_changes(&scope.allowed_dirs, mounts.as_ref(), progress);
            Some((index, dirty))
        };

        match self.run_disk_work(recheck).await {
            Ok(None) => {}
            Ok(Some((index, dirty))) => {
                self.index = Some(index);
                match dirty {
                    None => self.changes.require_full_rescan(),
                    Some(dirty) if dirty.is_empty() => drop(self.publish_scan_result(None)),
                    Some(dirty) => self.changes.record_dirty_dirs(dirty),
                }
            }
            Err(BlockingError::NoThread(_)) => self.index = kept.lock().take(),
            Err(error) => {
                tracing::error!(%error, "internal error: recheck of links and mounts panicked");
                self.changes.require_full_rescan();
            }
        }
    }

    /// Runs blocking disk work, after a wait for a permit. If the work makes no progress for long,
    /// publishes the root as unavailable. The next published result makes the root available again.
    async fn run_disk_work<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&ScanProgress) -> T + Send + 'static,
    ) -> Result<T, BlockingError> {
        let store = self.store.clone();
        // The semaphore is never closed.
        let mut permit = store.inner.scan_permits.acquire().await.ok();
        let progress = self.in_flight.start();
        let _cancel_guard = CancelOnDrop(progress.clone());
        let work_progress = progress.clone();
        let mut task = pin!(run_blocking(move || {
            let _registered = work_progress.register_thread();
            work(&work_progress)
        }));
        let stuck_timeout = self.policy.timing.stuck_timeout;
        let check_interval = stuck_timeout.min(SLOW_AFTER);

        let result = loop {
            if let Ok(result) = timeout(check_interval, &mut task).await {
                break result;
            }

            let idle_time = progress.measure_idle_time();
            // The filesystem may hang, and must not keep other roots from their scans.
            if idle_time >= SLOW_AFTER {
                permit = None;
            }
            if idle_time >= stuck_timeout {
                let reason = stop_slow_parsers(&progress);
                if !std::mem::replace(&mut self.is_stuck, true) {
                    self.store
                        .publish_snapshot(&self.key, Some(Err(reason)), self.watch_mode);
                }
            }
        };

        drop(permit);
        self.in_flight.finish();
        result
    }

    /// Publishes the result of a scan; `None` means no change. After a stuck scan, publishes the
    /// last result again. Returns whether a new revision was created.
    fn publish_scan_result(&mut self, result: Option<Result<Arc<Catalog>, RootReason>>) -> bool {
        let was_stuck = std::mem::take(&mut self.is_stuck);
        let result = result.or_else(|| {
            let index = self.index.as_ref().filter(|_| was_stuck);
            index.and_then(RootIndex::last_result)
        });
        self.store
            .publish_snapshot(&self.key, result, self.watch_mode)
    }
}

/// Cancels disk work when its task ends, such as at the shutdown of the daemon.
struct CancelOnDrop(Arc<ScanProgress>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Stops the parsers of files that keep a scan from making progress. Returns the reason why the scan
/// is stuck.
fn stop_slow_parsers(progress: &ScanProgress) -> RootReason {
    let Some(file) = progress.slow_file() else {
        return RootReason::Timeout;
    };
    tracing::warn!(file = %file.rel_path, "a file takes too long to parse");
    progress.stop_slow_parsers();
    RootReason::ParseTimeout
}

/// Returns the watch mode after a scan. `failure` is the reason why the scan or its watches miss
/// changes; a filesystem without support for inotify comes first.
fn choose_watch_mode(
    index: &RootIndex,
    failure: Option<PollReason>,
    is_full: bool,
    before: WatchMode,
) -> WatchMode {
    match (index.no_inotify_support(), failure) {
        (Some(name), _) => WatchMode::Polling(PollReason::NoInotifySupport(name)),
        (None, Some(reason)) => WatchMode::Polling(reason),
        // Only a full scan shows that all directories are watched.
        (None, None) if is_full => WatchMode::Events,
        (None, None) => before,
    }
}

/// Changes an interval by up to 10 % up or down, so that roots do not all scan at the same time.
fn vary_interval(interval: Duration) -> Duration {
    interval.mul_f64(0.9) + full_jitter(interval / 5)
}

/// Registers the directories of one root with the inotify watcher.
#[derive(Debug)]
struct WatchRegistrar {
    watcher: InotifyWatcher,
    listener: Arc<dyn WatchListener>,
    file_listener: Arc<dyn WatchListener>,
    /// Reason why the first directory could not be watched; `None` if all are watched.
    first_failure: Mutex<Option<PollReason>>,
}

/// Listener for the entries on the way to a file. The file is read again after each change, so a
/// replaced entry makes no other directory outdated.
#[derive(Debug)]
struct FilePathListener(Arc<PendingChanges>);

impl WatchListener for FilePathListener {
    fn on_dir_changed(&self, token: u64, name: Option<&[u8]>, _: bool) {
        self.0.on_dir_changed(token, name, false);
    }

    fn on_mounts_changed(&self, mount_points: &[Box<[u8]>]) {
        self.0.on_mounts_changed(mount_points);
    }

    fn on_events_lost(&self) {
        self.0.on_events_lost();
    }
}

impl WatchRegistrar {
    fn guard_or_record_failure(
        &self,
        watched: Result<InotifyWatch, WatchError>,
    ) -> Option<WatchGuard> {
        let reason = match watched {
            Ok(watch) => return Some(WatchGuard::new(watch)),
            Err(WatchError::LimitReached) => PollReason::WatchLimit,
            Err(WatchError::NoInotifyInstance) => PollReason::NoInotifyInstance,
            Err(WatchError::Rejected) => PollReason::WatchRejected,
        };
        self.first_failure.lock().get_or_insert(reason);
        None
    }
}

impl DirWatcher for WatchRegistrar {
    fn watch_dir(
        &self,
        dir: BorrowedFd<'_>,
        token: u64,
        entries: WatchedEntries<'_>,
    ) -> Option<WatchGuard> {
        let (listener, only) = match entries {
            WatchedEntries::All => (&self.listener, &[][..]),
            WatchedEntries::OnPath(PathRole::Directory, names) => (&self.listener, names),
            WatchedEntries::OnPath(PathRole::File, names) => (&self.file_listener, names),
        };
        let watched = self.watcher.watch_dir(dir, listener, token, only);
        // An ancestor directory without read permission cannot be watched. The periodic recheck
        // finds changes of its entries.
        if !only.is_empty() && matches!(watched, Err(WatchError::Rejected)) {
            return None;
        }
        self.guard_or_record_failure(watched)
    }

    fn watch_file(&self, file: BorrowedFd<'_>, token: u64) -> Option<WatchGuard> {
        self.guard_or_record_failure(self.watcher.watch_file(file, &self.listener, token))
    }
}

#[cfg(test)]
mod tests {
    use super::{PendingChanges, RootAction, ScanDemand, ScanKind, WatchTiming};
    use crate::daemon::scan::HeldSkill;
    use std::time::{Duration, Instant};

    /// Returns the dirty tokens of a partial scan that is due, and whether the root has settled.
    fn take_due(changes: &PendingChanges, now: Instant) -> Option<(Vec<u64>, bool)> {
        let timing = WatchTiming::default();
        match changes.take_due(ScanDemand::None, false, &timing, now.into()) {
            Ok(RootAction::Scan(ScanKind::Partial { dirty, is_settled })) => {
                let mut tokens: Vec<u64> = dirty.tokens.into_iter().collect();
                tokens.sort_unstable();
                Some((tokens, is_settled))
            }
            Ok(_) => panic!("a full scan"),
            Err(_) => None,
        }
    }

    #[test]
    fn held_skills_are_rescanned_when_their_delay_ends() {
        let changes = PendingChanges::default();
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        let held = [(1, 2_000), (2, 3_000)].map(|(token, ms)| HeldSkill {
            token,
            until: after(ms),
        });
        changes.record_held_skills(&held);
        assert_eq!(take_due(&changes, after(1_999)), None);
        assert_eq!(take_due(&changes, after(2_000)), Some((vec![1], true)));
        assert_eq!(take_due(&changes, after(2_001)), None);

        // A change of another directory keeps its debounce, and takes the released one along.
        changes.record_dirty_dirs([3]);
        let changed_at = changes.changes.lock().last_change_at.expect("a change");
        changes.record_held_skills(&[HeldSkill {
            token: 2,
            until: changed_at.into_std(),
        }]);
        let due_at = changed_at.into_std() + WatchTiming::default().debounce;
        assert_eq!(take_due(&changes, changed_at.into_std()), None);
        assert_eq!(take_due(&changes, due_at), Some((vec![2, 3], true)));
        assert_eq!(take_due(&changes, after(9_000)), None);
    }
}
