//! Looks after one root for as long as somebody needs it: waits until it must be looked at, has it
//! looked at, publishes what was found. One such task a root, so that a root that hangs holds up
//! nobody else.

use super::bell::{Aim, Bell};
use super::ledger::{Degraded, Key, WatchMode};
use super::{Keeper, Shared};
use crate::disk::{Survey, Surveyed, Target};
use crate::domain::{Catalog, Reason};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout};

/// When roots are looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timing {
    /// How long after the last event a change is published.
    pub settle: Duration,
    /// How long after the first event a change is published, however many follow.
    pub settle_cap: Duration,
    /// How often is looked for what no event tells: where links and the root's path lead.
    pub recheck: Duration,
    /// How often a root without events is searched.
    pub poll: Duration,
    /// How often a root with events is searched all the same, give or take a tenth.
    pub audit: Duration,
    /// The same, where an overlay filesystem misses events.
    pub overlay_audit: Duration,
    /// How long a root is looked after that nobody asks for.
    pub warm: Duration,
    /// After how long a search in which nothing goes on makes its root unavailable.
    pub stuck: Duration,
    /// How long a stream's reader may stop in the middle of a state before it loses its place.
    pub stuck_reader: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            settle: Duration::from_millis(20),
            settle_cap: Duration::from_millis(500),
            recheck: Duration::from_secs(2),
            poll: Duration::from_secs(5),
            audit: Duration::from_mins(10),
            overlay_audit: Duration::from_mins(1),
            warm: Duration::from_mins(10),
            stuck: Duration::from_secs(5),
            stuck_reader: Duration::from_secs(10),
        }
    }
}

/// What to do next.
enum Job {
    /// Search everything.
    Full(Why),
    /// Look again at these directories.
    Dirty(HashSet<u64>, Quiet),
    /// Look for what no event tells.
    Recheck,
    /// Nobody needs the root any more.
    End,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Why {
    Needed,
    Audit,
}

/// Whether the directories had time to settle.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Quiet {
    Yes,
    No,
}

/// One root that is looked after.
struct Tended {
    keeper: Keeper,
    key: Key,
    bell: Arc<Bell>,
    /// `None` only while a search has it, or lost it by a defect.
    survey: Option<Survey>,
    watch: WatchMode,
    searched: bool,
    recheck_at: Instant,
    search_at: Instant,
}

/// Looks after a root until nobody needs it.
pub(super) async fn tend(keeper: Keeper, key: Key, bell: Arc<Bell>) {
    let now = Instant::now();
    let mut tended = Tended {
        keeper,
        key,
        bell,
        survey: None,
        watch: WatchMode::Events,
        searched: false,
        recheck_at: now,
        search_at: now,
    };
    loop {
        match tended.next().await {
            Job::End => return,
            Job::Full(why) => tended.look(why == Why::Audit, None).await,
            Job::Dirty(dirty, quiet) => tended.look(false, Some((dirty, quiet))).await,
            Job::Recheck => tended.recheck().await,
        }
    }
}

impl Tended {
    fn shared(&self) -> &Shared {
        &self.keeper.0
    }

    /// Waits until there is something to do.
    async fn next(&mut self) -> Job {
        loop {
            let timing = &self.shared().timing;
            let Some(wanted) = self.is_wanted() else { return Job::End };
            let now = Instant::now();
            let polling = self.watch != WatchMode::Events;
            let (is_lost, is_dirty, first_note, last_note) = {
                let notes = self.bell.notes();
                (notes.lost, !notes.dirty.is_empty(), notes.first, notes.last)
            };
            if wanted || is_lost {
                let is_found = self.survey.as_ref().is_some_and(Survey::is_found);
                let notes = self.bell.take();
                let all = notes.lost || polling || !self.searched || !is_found;
                return if all {
                    Job::Full(Why::Needed)
                } else {
                    Job::Dirty(notes.dirty, Quiet::Yes)
                };
            }
            let mut wake = self.search_at.min(self.recheck_at);
            if is_dirty {
                let quiet_at = last_note.map_or(now, |last| last + timing.settle);
                let cap_at = first_note.map_or(now, |first| first + timing.settle_cap);
                if now >= quiet_at.min(cap_at) {
                    let quiet = if now >= quiet_at { Quiet::Yes } else { Quiet::No };
                    let notes = self.bell.take();
                    // Events may have been lost since the look at the notes.
                    return if notes.lost {
                        Job::Full(Why::Needed)
                    } else {
                        Job::Dirty(notes.dirty, quiet)
                    };
                }
                wake = wake.min(quiet_at).min(cap_at);
            }
            if now >= self.search_at {
                return Job::Full(Why::Audit);
            }
            if now >= self.recheck_at {
                return Job::Recheck;
            }
            tokio::select! {
                () = self.bell.heard() => {}
                () = sleep_until(wake) => {}
            }
        }
    }

    /// Whether somebody waits for a search; `None` where the root is no longer to be looked after.
    fn is_wanted(&self) -> Option<bool> {
        let mut ledger = self.keeper.ledger();
        let warm = self.shared().timing.warm;
        let work = ledger.work(&self.key).filter(|work| Arc::ptr_eq(&work.bell, &self.bell))?;
        let wanted = work.wanted > work.started;
        if !wanted && !work.is_used() && work.last_use.elapsed() > warm {
            ledger.forget(&self.key);
            return None;
        }
        Some(wanted)
    }

    /// Looks at all of the root, or at what is dirty, and publishes what was found.
    async fn look(&mut self, is_audit: bool, dirty: Option<(HashSet<u64>, Quiet)>) {
        let nothing = dirty.as_ref().is_some_and(|(dirty, _)| dirty.is_empty());
        let progress = {
            let mut ledger = self.keeper.ledger();
            let Some(work) = ledger.work(&self.key) else { return };
            work.begin()
        };
        let is_full = dirty.is_none();
        let watched = self.watch;
        let surveyed = if nothing {
            Surveyed { catalog: None, unsettled: Vec::new() }
        } else {
            let keeper = self.keeper.clone();
            let key = self.key.clone();
            let survey = self.survey.take().unwrap_or_else(|| Survey::new(keeper.0.target(&key)));
            // A new instance takes the place of one that died; without one, roots are polled.
            if let Err(error) = keeper.0.watcher.start() {
                tracing::debug!(%error, "there is no inotify instance; the root is polled");
            }
            let aim = Aim::new(&keeper.0.watcher, &self.bell);
            let work = progress.clone();
            let mut search = tokio::task::spawn_blocking(move || {
                let mut survey = survey;
                let allowed = &keeper.0.allowed;
                let surveyed = match dirty {
                    None => survey.full(allowed, &aim, &work),
                    Some((dirty, quiet)) => {
                        survey.update(allowed, &dirty, quiet == Quiet::Yes, &aim, &work)
                    }
                };
                let failed = aim.failed();
                (survey, surveyed, failed)
            });
            let stuck = self.shared().timing.stuck;
            let begun = Instant::now();
            let mut was_stuck = false;
            let ended = loop {
                match timeout(stuck, &mut search).await {
                    Ok(ended) => break ended,
                    Err(_) if progress.quiet() >= stuck => {
                        was_stuck = true;
                        self.publish(Some(Err(Reason::Timeout)), self.watch);
                    }
                    Err(_) => {}
                }
            };
            self.shared().searches.count(is_full, begun.elapsed());
            match ended {
                Ok((survey, surveyed, failed)) => {
                    self.watch = mode(&survey, failed, is_full, self.watch);
                    // It was said to be stuck; that it is as it was before is news again.
                    let catalog = surveyed.catalog.or_else(|| survey.last().filter(|_| was_stuck));
                    self.survey = Some(survey);
                    Surveyed { catalog, ..surveyed }
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
        let changed = self.publish(surveyed.catalog, self.watch);
        if changed && is_audit && self.watch == WatchMode::Events {
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

    /// Looks for what no event tells, and has it looked at.
    async fn recheck(&mut self) {
        self.recheck_at = Instant::now() + self.shared().timing.recheck;
        let Some(survey) = self.survey.take() else { return };
        let keeper = self.keeper.clone();
        let looked = tokio::task::spawn_blocking(move || {
            let strayed = survey.strayed(&keeper.0.allowed);
            (survey, strayed)
        });
        match looked.await {
            Ok((survey, strayed)) => {
                self.survey = Some(survey);
                match strayed {
                    None => self.bell.note(|notes| notes.lost = true),
                    Some(strayed) if strayed.is_empty() => {}
                    Some(strayed) => self.bell.note(|notes| notes.dirty.extend(strayed)),
                }
            }
            Err(panic) => tracing::error!(%panic, "a look at links ended by a defect"),
        }
    }

    fn publish(&self, content: Option<Result<Arc<Catalog>, Reason>>, watch: WatchMode) -> bool {
        let mut ledger = self.keeper.ledger();
        let changed = ledger.publish(&self.key, content, watch);
        if changed {
            // Told under the lock, so that no revision is told before an earlier one.
            self.shared().revisions.send_replace(ledger.revision());
        }
        changed
    }

    /// Plans the next search of everything, at a time that other roots hardly have too.
    fn plan_search(&mut self) {
        let timing = &self.shared().timing;
        let has_overlay = self.survey.as_ref().is_some_and(Survey::has_overlay);
        let wait = match self.watch {
            WatchMode::Polling(_) => timing.poll,
            WatchMode::Events if has_overlay => jittered(timing.overlay_audit, &self.key),
            WatchMode::Events => jittered(timing.audit, &self.key),
        };
        let now = Instant::now();
        let recheck = timing.recheck;
        self.search_at = now + wait;
        self.recheck_at = now + recheck;
    }
}

impl Shared {
    fn target(&self, key: &Key) -> Target {
        Target {
            path: (**key).into(),
            rules: self.rules.clone(),
            published: self.published.clone(),
        }
    }
}

/// Give or take a tenth, by a hash of the root's path.
fn jittered(wait: Duration, key: &Key) -> Duration {
    use std::hash::BuildHasher as _;
    let hash = std::hash::RandomState::new().hash_one(key) % 200;
    wait.mul_f64(0.9 + f64::from(u32::try_from(hash).unwrap_or_default()) / 1_000.0)
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
