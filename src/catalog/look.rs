//! What is done when a root is looked at: the work on the disk, the rule for work that is stuck, and
//! what is published of it. Leaves when to look to `tend`.

use super::pending_changes::WatchRegistrar;
use super::root_task::{DebounceState, RootTask};
use super::state::{PollReason, WatchMode};
use crate::disk::{DirtyDirs, RootIndex, ScanOutcome, ScanProgress};
use crate::domain::{Catalog, RootReason};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::task::JoinError;
use tokio::time::{Instant, timeout};

impl RootTask {
    /// Looks at all of the root, or at what is dirty, and publishes what was found.
    pub(super) async fn rescan_root(
        &mut self,
        is_audit: bool,
        dirty: Option<(DirtyDirs, DebounceState)>,
    ) {
        let nothing = dirty
            .as_ref()
            .is_some_and(|(dirty, _)| dirty.tokens.is_empty() && !dirty.compare_files);
        {
            let mut ledger = self.store.lock_state();
            let Some(work) = ledger.task_handle_mut(&self.key) else { return };
            work.started_scan += 1;
        }
        let is_full = dirty.is_none();
        if is_full {
            self.refresh_policy();
        }
        let watched = self.watch_mode;
        let surveyed = if nothing {
            ScanOutcome { catalog: None, unstable: Vec::new() }
        } else {
            let keeper = self.store.clone();
            let bound = self.scope.clone();
            let target = || self.policy.scan_target(&self.key);
            let survey = self.index.take().unwrap_or_else(|| RootIndex::new(target()));
            // A new instance takes the place of one that died; without one, roots are polled.
            if let Err(error) = keeper.0.watcher.start() {
                tracing::debug!(%error, "there is no inotify instance; the root is polled");
            }
            let aim = WatchRegistrar::new(&keeper.0.watcher, &self.changes);
            let search = move |progress: &ScanProgress| {
                let mut survey = survey;
                let allowed = &bound.allowed_dirs;
                let surveyed = match dirty {
                    None => survey.rescan_all(allowed, &aim, progress),
                    Some((dirty, quiet)) => survey.rescan_dirty(
                        allowed,
                        &dirty,
                        quiet == DebounceState::Settled,
                        &aim,
                        progress,
                    ),
                };
                let failed = aim.first_failure();
                (survey, surveyed, failed)
            };
            let begun = Instant::now();
            let searched = self.run_disk_work(search).await;
            self.store_inner().scan_counters.record_scan(is_full, begun.elapsed());
            match searched {
                Ok((survey, surveyed, failed)) => {
                    self.watch_mode =
                        watch_mode_after_scan(&survey, failed, is_full, self.watch_mode);
                    self.index = Some(survey);
                    surveyed
                }
                Err(panic) => {
                    tracing::error!(%panic, "a search ended by a defect");
                    ScanOutcome { catalog: Some(Err(RootReason::IoError)), unstable: Vec::new() }
                }
            }
        };
        if is_full {
            self.has_full_scan = self.index.is_some();
        }
        // A root that is polled from now on must not wait for the next audit.
        if is_full || self.watch_mode != watched {
            self.schedule_full_scan();
        }
        let was_stuck = self.is_stuck;
        let changed = self.publish_scan_result(surveyed.catalog);
        if changed && is_audit && !was_stuck && self.watch_mode == WatchMode::Events {
            self.store_inner().missed_changes.fetch_add(1, Ordering::Relaxed);
            tracing::warn!("an audit found a change that no event told");
        }
        if !surveyed.unstable.is_empty() {
            self.changes.record_change(|notes| notes.dirty_tokens.extend(surveyed.unstable));
        }
        let mut ledger = self.store.lock_state();
        if let Some(work) = ledger.task_handle_mut(&self.key) {
            work.completed_scan.send_replace(work.started_scan);
        }
    }

    /// Goes by the terms in force from now on. Who changes them has every root searched again, so that
    /// a look at less than everything never goes by old ones for long.
    fn refresh_policy(&mut self) {
        let regime = self.store.policy();
        if Arc::ptr_eq(&regime, &self.policy) {
            return;
        }
        self.scope = regime.scopes.scope_for(self.store.access_scope());
        if let Some(survey) = &mut self.index {
            survey.set_target(regime.scan_target(&self.key));
        }
        self.policy = regime;
    }

    /// Looks for what no event of a directory tells, and has it looked at.
    pub(super) async fn recheck_links_and_mounts(&mut self) {
        self.next_recheck_at = Instant::now() + self.policy.timing.recheck_interval;
        let Some(survey) = self.index.take() else { return };
        let (keeper, bell) = (self.store.clone(), self.changes.clone());
        let bound = self.scope.clone();
        let look = move |progress: &ScanProgress| {
            // Told to this root too, on whose behalf it is asked.
            keeper.0.watcher.report_mount_changes();
            let mounts = std::mem::take(&mut bell.changes().changed_mounts);
            let strayed = survey.unreported_changes(&bound.allowed_dirs, &mounts, progress);
            (survey, strayed)
        };
        match self.run_disk_work(look).await {
            Ok((survey, strayed)) => {
                self.index = Some(survey);
                match strayed {
                    None => self.changes.record_change(|notes| notes.needs_full_rescan = true),
                    Some(strayed) if strayed.is_empty() => drop(self.publish_scan_result(None)),
                    Some(strayed) => {
                        self.changes.record_change(|notes| notes.dirty_tokens.extend(strayed))
                    }
                }
            }
            Err(panic) => tracing::error!(%panic, "a look at links ended by a defect"),
        }
    }

    /// Has work done on the disk. While nothing goes on in it for long, the root is said to be
    /// unavailable; who publishes what was found next says otherwise.
    async fn run_disk_work<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&ScanProgress) -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        let progress = self.in_flight.start();
        let seen = progress.clone();
        let mut task = tokio::task::spawn_blocking(move || work(&seen));
        let stuck = self.policy.timing.stuck_timeout;
        let done = loop {
            match timeout(stuck, &mut task).await {
                Ok(done) => break done,
                Err(_) if progress.idle_time() >= stuck => {
                    self.is_stuck = true;
                    self.publish_snapshot(Some(Err(RootReason::Timeout)));
                }
                Err(_) => {}
            }
        };
        self.in_flight.finish();
        done
    }

    /// Publishes what a look gave, if anything. Of a root that was said to be stuck, it is news again
    /// that it is as it was before.
    fn publish_scan_result(&mut self, content: Option<Result<Arc<Catalog>, RootReason>>) -> bool {
        let was_stuck = std::mem::take(&mut self.is_stuck);
        let last = || self.index.as_ref().filter(|_| was_stuck).and_then(RootIndex::last_result);
        let content = content.or_else(last);
        self.publish_snapshot(content)
    }

    fn publish_snapshot(&self, content: Option<Result<Arc<Catalog>, RootReason>>) -> bool {
        let mut ledger = self.store.lock_state();
        let changed = ledger.publish_snapshot(&self.key, content, self.watch_mode);
        if changed {
            // Told under the lock, so that no revision is told before an earlier one.
            self.store_inner().revisions.send_replace(ledger.revision());
        }
        changed
    }
}

/// How changes are noticed after a look.
fn watch_mode_after_scan(
    survey: &RootIndex,
    failed: Option<PollReason>,
    is_full: bool,
    before: WatchMode,
) -> WatchMode {
    match (survey.no_inotify_support(), failed) {
        (Some(name), _) => WatchMode::Polling(PollReason::NoInotifySupport(name)),
        (None, Some(why)) => WatchMode::Polling(why),
        // Only a look at everything tells that all is watched.
        (None, None) if is_full => WatchMode::Events,
        (None, None) => before,
    }
}
