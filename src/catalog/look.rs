//! What is done when a root is looked at: the work on the disk, the rule for work that is stuck, and
//! what is published of it. Leaves when to look to `tend`.

use super::bell::Aim;
use super::ledger::{Degraded, WatchMode};
use super::tend::{Quiet, Tended};
use crate::disk::{Dirty, Progress, Survey, Surveyed};
use crate::domain::{Catalog, Reason};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::task::JoinError;
use tokio::time::{Instant, timeout};

impl Tended {
    /// Looks at all of the root, or at what is dirty, and publishes what was found.
    pub(super) async fn look(&mut self, is_audit: bool, dirty: Option<(Dirty, Quiet)>) {
        let nothing = dirty
            .as_ref()
            .is_some_and(|(dirty, _)| dirty.tokens.is_empty() && !dirty.compare_files);
        {
            let mut ledger = self.keeper.ledger();
            let Some(work) = ledger.work(&self.key) else { return };
            work.started += 1;
        }
        let is_full = dirty.is_none();
        if is_full {
            self.renew();
        }
        let watched = self.watch;
        let surveyed = if nothing {
            Surveyed { catalog: None, unsettled: Vec::new() }
        } else {
            let keeper = self.keeper.clone();
            let bound = self.bound.clone();
            let target = || self.regime.target(&self.key);
            let survey = self.survey.take().unwrap_or_else(|| Survey::new(target()));
            // A new instance takes the place of one that died; without one, roots are polled.
            if let Err(error) = keeper.0.watcher.start() {
                tracing::debug!(%error, "there is no inotify instance; the root is polled");
            }
            let aim = Aim::new(&keeper.0.watcher, &self.bell);
            let search = move |progress: &Progress| {
                let mut survey = survey;
                let allowed = &bound.allowed;
                let surveyed = match dirty {
                    None => survey.full(allowed, &aim, progress),
                    Some((dirty, quiet)) => {
                        survey.update(allowed, &dirty, quiet == Quiet::Yes, &aim, progress)
                    }
                };
                let failed = aim.failed();
                (survey, surveyed, failed)
            };
            let begun = Instant::now();
            let searched = self.on_the_disk(search).await;
            self.shared().searches.count(is_full, begun.elapsed());
            match searched {
                Ok((survey, surveyed, failed)) => {
                    self.watch = mode(&survey, failed, is_full, self.watch);
                    self.survey = Some(survey);
                    surveyed
                }
                Err(panic) => {
                    tracing::error!(%panic, "a search ended by a defect");
                    Surveyed { catalog: Some(Err(Reason::IoError)), unsettled: Vec::new() }
                }
            }
        };
        if is_full {
            self.searched = self.survey.is_some();
        }
        // A root that is polled from now on must not wait for the next audit.
        if is_full || self.watch != watched {
            self.plan_search();
        }
        let was_stuck = self.is_stuck;
        let changed = self.publish_found(surveyed.catalog);
        if changed && is_audit && !was_stuck && self.watch == WatchMode::Events {
            self.shared().audit_repairs.fetch_add(1, Ordering::Relaxed);
            tracing::warn!("an audit found a change that no event told");
        }
        if !surveyed.unsettled.is_empty() {
            self.bell.note(|notes| notes.dirty.extend(surveyed.unsettled));
        }
        let mut ledger = self.keeper.ledger();
        if let Some(work) = ledger.work(&self.key) {
            work.done.send_replace(work.started);
        }
    }

    /// Goes by the terms in force from now on. Who changes them has every root searched again, so that
    /// a look at less than everything never goes by old ones for long.
    fn renew(&mut self) {
        let regime = self.keeper.regime();
        if Arc::ptr_eq(&regime, &self.regime) {
            return;
        }
        self.bound = regime.bounds.of(self.keeper.reach());
        if let Some(survey) = &mut self.survey {
            survey.aim(regime.target(&self.key));
        }
        self.regime = regime;
    }

    /// Looks for what no event of a directory tells, and has it looked at.
    pub(super) async fn recheck(&mut self) {
        self.recheck_at = Instant::now() + self.regime.timing.recheck;
        let Some(survey) = self.survey.take() else { return };
        let (keeper, bell) = (self.keeper.clone(), self.bell.clone());
        let bound = self.bound.clone();
        let look = move |progress: &Progress| {
            // Told to this root too, on whose behalf it is asked.
            keeper.0.watcher.look_at_mounts();
            let mounts = std::mem::take(&mut bell.notes().mounts);
            let strayed = survey.strayed(&bound.allowed, &mounts, progress);
            (survey, strayed)
        };
        match self.on_the_disk(look).await {
            Ok((survey, strayed)) => {
                self.survey = Some(survey);
                match strayed {
                    None => self.bell.note(|notes| notes.lost = true),
                    Some(strayed) if strayed.is_empty() => drop(self.publish_found(None)),
                    Some(strayed) => self.bell.note(|notes| notes.dirty.extend(strayed)),
                }
            }
            Err(panic) => tracing::error!(%panic, "a look at links ended by a defect"),
        }
    }

    /// Has work done on the disk. While nothing goes on in it for long, the root is said to be
    /// unavailable; who publishes what was found next says otherwise.
    async fn on_the_disk<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&Progress) -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        let progress = self.under_way.begin();
        let seen = progress.clone();
        let mut task = tokio::task::spawn_blocking(move || work(&seen));
        let stuck = self.regime.timing.stuck;
        let done = loop {
            match timeout(stuck, &mut task).await {
                Ok(done) => break done,
                Err(_) if progress.quiet() >= stuck => {
                    self.is_stuck = true;
                    self.publish(Some(Err(Reason::Timeout)));
                }
                Err(_) => {}
            }
        };
        self.under_way.end();
        done
    }

    /// Publishes what a look gave, if anything. Of a root that was said to be stuck, it is news again
    /// that it is as it was before.
    fn publish_found(&mut self, content: Option<Result<Arc<Catalog>, Reason>>) -> bool {
        let was_stuck = std::mem::take(&mut self.is_stuck);
        let last = || self.survey.as_ref().filter(|_| was_stuck).and_then(Survey::last);
        let content = content.or_else(last);
        self.publish(content)
    }

    fn publish(&self, content: Option<Result<Arc<Catalog>, Reason>>) -> bool {
        let mut ledger = self.keeper.ledger();
        let changed = ledger.publish(&self.key, content, self.watch);
        if changed {
            // Told under the lock, so that no revision is told before an earlier one.
            self.shared().revisions.send_replace(ledger.revision());
        }
        changed
    }
}

/// How changes are noticed after a look.
fn mode(survey: &Survey, failed: Option<Degraded>, is_full: bool, before: WatchMode) -> WatchMode {
    match (survey.eventless(), failed) {
        (Some(name), _) => WatchMode::Polling(Degraded::Eventless(name)),
        (None, Some(why)) => WatchMode::Polling(why),
        // Only a look at everything tells that all is watched.
        (None, None) if is_full => WatchMode::Events,
        (None, None) => before,
    }
}
