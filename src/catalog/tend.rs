//! Looks after one root for as long as somebody needs it: waits until it must be looked at, and has
//! it looked at. One such task a root, so that a root that hangs holds up nobody else. Leaves how to
//! look to `look`.

use super::bell::{Bell, Notes};
use super::bound::Bound;
use super::ledger::{Key, WatchMode};
use super::regime::Regime;
use super::work::{UnderWay, Work};
use super::{Keeper, Shared};
use crate::disk::{Dirty, Survey};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// What to do next.
enum Job {
    /// Search everything.
    Full(Why),
    /// Look again at these directories.
    Dirty(Dirty, Quiet),
    /// Look for what no event of a directory tells.
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
pub(super) enum Quiet {
    Yes,
    No,
}

/// One root that is looked after.
pub(super) struct Tended {
    pub(super) keeper: Keeper,
    /// What it goes by, and what of that it may open: as they were at the last look at everything.
    pub(super) regime: Arc<Regime>,
    pub(super) bound: Arc<Bound>,
    pub(super) key: Key,
    pub(super) bell: Arc<Bell>,
    pub(super) under_way: UnderWay,
    /// `None` only while a search has it, or lost it by a defect.
    pub(super) survey: Option<Survey>,
    pub(super) watch: WatchMode,
    /// It was said to be unavailable because nothing went on.
    pub(super) is_stuck: bool,
    pub(super) searched: bool,
    pub(super) recheck_at: Instant,
    search_at: Instant,
}

/// Looks after a root until nobody needs it.
pub(super) fn tend(keeper: Keeper, key: Key, work: &Work) -> impl Future<Output = ()> + use<> {
    let now = Instant::now();
    let regime = keeper.regime();
    let tended = Tended {
        bound: regime.bounds.of(keeper.reach()),
        keeper,
        regime,
        key,
        bell: work.bell.clone(),
        under_way: work.under_way.clone(),
        survey: None,
        watch: WatchMode::Events,
        is_stuck: false,
        searched: false,
        recheck_at: now,
        search_at: now,
    };
    tended.run()
}

impl Tended {
    async fn run(mut self) {
        loop {
            match self.next().await {
                Job::End => return,
                Job::Full(why) => self.look(why == Why::Audit, None).await,
                Job::Dirty(dirty, quiet) => self.look(false, Some((dirty, quiet))).await,
                Job::Recheck => self.recheck().await,
            }
        }
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.keeper.0
    }

    /// Waits until there is something to do.
    async fn next(&mut self) -> Job {
        loop {
            let timing = &self.regime.timing;
            let Some(wanted) = self.is_wanted() else { return Job::End };
            let now = Instant::now();
            let polling = self.watch != WatchMode::Events;
            let is_found = self.survey.as_ref().is_some_and(Survey::is_found);
            let mut wake = self.search_at.min(self.recheck_at);
            {
                let mut notes = self.bell.notes();
                if notes.lost || wanted && (polling || !self.searched || !is_found) {
                    *notes = Notes::default();
                    return Job::Full(Why::Needed);
                }
                let quiet_at = notes.last.map(|last| last + timing.settle);
                let cap_at = notes.first.map(|first| first + timing.settle_cap);
                let due_at = quiet_at.min(cap_at);
                if wanted && !notes.mounts.is_empty() {
                    return Job::Recheck;
                }
                if wanted || due_at.is_some_and(|due_at| now >= due_at) {
                    let is_quiet = wanted || quiet_at.is_some_and(|quiet_at| now >= quiet_at);
                    let quiet = if is_quiet { Quiet::Yes } else { Quiet::No };
                    let mounts = std::mem::take(&mut notes.mounts);
                    let rest = Notes { mounts, ..Notes::default() };
                    let Notes { dirty, moved, .. } = std::mem::replace(&mut *notes, rest);
                    return Job::Dirty(
                        Dirty { tokens: dirty, moved, compare_files: wanted },
                        quiet,
                    );
                }
                wake = due_at.map_or(wake, |due_at| wake.min(due_at));
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
        let warm = self.regime.timing.warm;
        let work = ledger.work(&self.key).filter(|work| Arc::ptr_eq(&work.bell, &self.bell))?;
        let wanted = work.wanted > work.started;
        if !wanted && !work.is_used() && work.last_use.elapsed() > warm {
            ledger.forget(&self.key);
            return None;
        }
        Some(wanted)
    }

    /// Plans the next search of everything, at a time that other roots hardly have too.
    pub(super) fn plan_search(&mut self) {
        let timing = &self.regime.timing;
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

/// Give or take a tenth, by a hash of the root's path.
fn jittered(wait: Duration, key: &Key) -> Duration {
    use std::hash::BuildHasher as _;
    let hash = std::hash::RandomState::new().hash_one(key) % 200;
    wait.mul_f64(0.9 + f64::from(u32::try_from(hash).unwrap_or_default()) / 1_000.0)
}
