//! Looks after one root for as long as somebody needs it: waits until it must be looked at, and has
//! it looked at. One such task a root, so that a root that hangs holds up nobody else. Leaves how to
//! look to `look`.

use super::pending_changes::{ChangeSet, PendingChanges};
use super::policy::CatalogPolicy;
use super::root_task_handle::{InFlightWork, RootTaskHandle};
use super::scope::CatalogScope;
use super::state::{RootKey, WatchMode};
use super::{CatalogStore, StoreInner};
use crate::disk::{DirtyDirs, RootIndex};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// What to do next.
enum RootAction {
    /// Search everything.
    FullScan(RescanReason),
    /// Look again at these directories.
    PartialScan(DirtyDirs, DebounceState),
    /// Look for what no event of a directory tells.
    Recheck,
    /// Nobody needs the root any more.
    Stop,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum RescanReason {
    Requested,
    Periodic,
}

/// Whether the directories had time to settle.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum DebounceState {
    Settled,
    Unsettled,
}

/// One root that is looked after.
pub(super) struct RootTask {
    pub(super) store: CatalogStore,
    /// What it goes by, and what of that it may open: as they were at the last look at everything.
    pub(super) policy: Arc<CatalogPolicy>,
    pub(super) scope: Arc<CatalogScope>,
    pub(super) key: RootKey,
    pub(super) changes: Arc<PendingChanges>,
    pub(super) in_flight: InFlightWork,
    /// `None` only while a search has it, or lost it by a defect.
    pub(super) index: Option<RootIndex>,
    pub(super) watch_mode: WatchMode,
    /// It was said to be unavailable because nothing went on.
    pub(super) is_stuck: bool,
    pub(super) has_full_scan: bool,
    pub(super) next_recheck_at: Instant,
    next_full_scan_at: Instant,
}

/// Looks after a root until nobody needs it.
pub(super) fn run_root_task(
    keeper: CatalogStore,
    key: RootKey,
    work: &RootTaskHandle,
) -> impl Future<Output = ()> + use<> {
    let now = Instant::now();
    let regime = keeper.policy();
    let tended = RootTask {
        scope: regime.scopes.scope_for(keeper.access_scope()),
        store: keeper,
        policy: regime,
        key,
        changes: work.changes.clone(),
        in_flight: work.in_flight.clone(),
        index: None,
        watch_mode: WatchMode::Events,
        is_stuck: false,
        has_full_scan: false,
        next_recheck_at: now,
        next_full_scan_at: now,
    };
    tended.run()
}

impl RootTask {
    async fn run(mut self) {
        loop {
            match self.next_action().await {
                RootAction::Stop => return,
                RootAction::FullScan(why) => {
                    self.rescan_root(why == RescanReason::Periodic, None).await
                }
                RootAction::PartialScan(dirty, quiet) => {
                    self.rescan_root(false, Some((dirty, quiet))).await
                }
                RootAction::Recheck => self.recheck_links_and_mounts().await,
            }
        }
    }

    pub(super) fn store_inner(&self) -> &StoreInner {
        &self.store.0
    }

    /// Waits until there is something to do.
    async fn next_action(&mut self) -> RootAction {
        loop {
            let timing = &self.policy.timing;
            let Some(wanted) = self.check_demand() else { return RootAction::Stop };
            let now = Instant::now();
            let polling = self.watch_mode != WatchMode::Events;
            let is_found = self.index.as_ref().is_some_and(RootIndex::is_usable);
            let mut wake = self.next_full_scan_at.min(self.next_recheck_at);
            {
                let mut notes = self.changes.changes();
                if notes.needs_full_rescan
                    || wanted && (polling || !self.has_full_scan || !is_found)
                {
                    *notes = ChangeSet::default();
                    return RootAction::FullScan(RescanReason::Requested);
                }
                let quiet_at = notes.last_change_at.map(|last| last + timing.debounce);
                let cap_at = notes.first_change_at.map(|first| first + timing.max_debounce);
                let due_at = quiet_at.min(cap_at);
                if wanted && !notes.changed_mounts.is_empty() {
                    return RootAction::Recheck;
                }
                if wanted || due_at.is_some_and(|due_at| now >= due_at) {
                    let is_quiet = wanted || quiet_at.is_some_and(|quiet_at| now >= quiet_at);
                    let quiet =
                        if is_quiet { DebounceState::Settled } else { DebounceState::Unsettled };
                    let mounts = std::mem::take(&mut notes.changed_mounts);
                    let rest = ChangeSet { changed_mounts: mounts, ..ChangeSet::default() };
                    let ChangeSet { dirty_tokens: dirty, moved_tokens: moved, .. } =
                        std::mem::replace(&mut *notes, rest);
                    return RootAction::PartialScan(
                        DirtyDirs { tokens: dirty, moved, compare_files: wanted },
                        quiet,
                    );
                }
                wake = due_at.map_or(wake, |due_at| wake.min(due_at));
            }
            if now >= self.next_full_scan_at {
                return RootAction::FullScan(RescanReason::Periodic);
            }
            if now >= self.next_recheck_at {
                return RootAction::Recheck;
            }
            tokio::select! {
                () = self.changes.notified() => {}
                () = sleep_until(wake) => {}
            }
        }
    }

    /// Whether somebody waits for a search; `None` where the root is no longer to be looked after.
    fn check_demand(&self) -> Option<bool> {
        let mut ledger = self.store.lock_state();
        let warm = self.policy.timing.idle_timeout;
        let work = ledger
            .task_handle_mut(&self.key)
            .filter(|work| Arc::ptr_eq(&work.changes, &self.changes))?;
        let wanted = work.requested_scan > work.started_scan;
        if !wanted && !work.is_leased() && work.last_used_at.elapsed() > warm {
            ledger.remove_root(&self.key);
            return None;
        }
        Some(wanted)
    }

    /// Plans the next search of everything, at a time that other roots hardly have too.
    pub(super) fn schedule_full_scan(&mut self) {
        let timing = &self.policy.timing;
        let has_overlay = self.index.as_ref().is_some_and(RootIndex::has_overlay);
        let wait = match self.watch_mode {
            WatchMode::Polling(_) => timing.poll_interval,
            WatchMode::Events if has_overlay => {
                with_jitter(timing.overlay_scan_interval, &self.key)
            }
            WatchMode::Events => with_jitter(timing.full_scan_interval, &self.key),
        };
        let now = Instant::now();
        let recheck = timing.recheck_interval;
        self.next_full_scan_at = now + wait;
        self.next_recheck_at = now + recheck;
    }
}

/// Give or take a tenth, by a hash of the root's path.
fn with_jitter(wait: Duration, key: &RootKey) -> Duration {
    use std::hash::BuildHasher as _;
    let hash = std::hash::RandomState::new().hash_one(key) % 200;
    wait.mul_f64(0.9 + f64::from(u32::try_from(hash).unwrap_or_default()) / 1_000.0)
}
