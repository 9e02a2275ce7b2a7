//! Fifty clients of `WatchSkills`, of four tempers, through everything that happens. `Replica` checks
//! each event; what each holds is compared with lists while the tree changes and whenever it is calm.

use std::sync::Arc;
use std::time::Duration;

use caproot::proto::caproot::v1::{
    Consistency, ListSkillsRequest, ListSkillsResponse, ResetReason, WatchSkillsRequest,
};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout_at};
use tonic::Status;

use super::lists::whole_list;
use super::stage::{Mode, Place, Stage, assert_own};
use crate::rng::Rng;
use crate::harness::{Daemon, HANG_TIMEOUT};
use crate::watch_harness::watch_request;
use crate::replica::Replica;

/// So many streams are open at once.
pub(super) const STREAMS: usize = 50;

/// How a client reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Temper {
    /// All at once.
    Prompt,
    /// With a pause after each state.
    Slow,
    /// Goes away, now and then in the middle of a state, and comes back: with its token, or with nothing.
    Returning,
    /// Never, but when all is calm at the beginning and the end of what is measured.
    Never,
}

/// Why following a stream ended, if the stream did not.
enum Left {
    /// There is another daemon.
    Life,
    /// The client wanted to.
    Gone,
    /// The soak is over.
    End,
}

/// One client.
pub(super) struct Client {
    stage: Arc<Stage>,
    number: usize,
    ask: usize,
    temper: Temper,
    dice: Rng,
    replica: Replica,
    daemon: Daemon,
    /// Of `daemon`.
    life: u64,
    /// Of what is held; 0 where nothing is.
    held_life: u64,
    /// Whether nothing was read of the stream yet.
    is_new: bool,
    mode: watch::Receiver<Mode>,
    place: watch::Receiver<Place>,
    /// Where it tells its number when it holds what a calm tree's list says.
    settled: mpsc::Sender<usize>,
}

impl Client {
    /// The client of this number, connected.
    pub(super) async fn new(
        stage: Arc<Stage>,
        number: usize,
        seed: u64,
        settled: mpsc::Sender<usize>,
    ) -> Self {
        let temper = match number {
            0..5 => Temper::Never,
            5..15 => Temper::Slow,
            15..25 => Temper::Returning,
            _ => Temper::Prompt,
        };
        let ask = number * 3 % stage.asks.len();
        let (life, daemon) = stage.connect(0, temper == Temper::Never).await;
        let request = WatchSkillsRequest {
            product: stage.asks[ask].product.clone(),
            view: stage.asks[ask].view,
            // So that a calm is soon noticed where nothing else comes.
            bookmark_interval: Some(prost_types::Duration { seconds: 1, nanos: 0 }),
            ..watch_request(stage.roots(ask).to_vec())
        };
        let replica = Replica::new(request);
        let (held_life, is_new) = (0, true);
        let (mode, place) = (stage.mode.subscribe(), stage.place.subscribe());
        let dice = Rng::new(seed);
        Self {
            stage,
            number,
            ask,
            temper,
            dice,
            replica,
            daemon,
            life,
            held_life,
            is_new,
            mode,
            place,
            settled,
        }
    }

    /// Follows the daemon through all its lives.
    pub(super) async fn run(mut self) {
        loop {
            self.is_new = true;
            let left = match self.replica.try_resume(&self.daemon).await {
                Ok(()) => self.follow().await,
                Err(status) => Err(Some(status)),
            };
            let after = match left {
                Ok(Left::End) => return,
                Ok(Left::Life) => self.life,
                Ok(Left::Gone) => {
                    self.stage.tally.add("stream: left and resumed", 1);
                    match self.dice.below(3) {
                        // By the same connection.
                        0 if !self.stage.is_over(self.life) => continue,
                        1 => sleep(Duration::from_millis(self.dice.below(3_000))).await,
                        _ => {}
                    }
                    self.life - 1
                }
                Err(status) => {
                    let is_over = self.stage.is_over(self.life);
                    assert!(is_over, "{:?}: the stream ended: {status:?}", self.temper);
                    if let Some(status) = status {
                        self.stage.judge(self.life, &status, &[]);
                    }
                    self.life
                }
            };
            let is_narrow = self.temper == Temper::Never;
            (self.life, self.daemon) = self.stage.connect(after, is_narrow).await;
        }
    }

    /// Reads by temper, until the stream ends or is left. What is held when it is left is whole.
    async fn follow(&mut self) -> Result<Left, Option<Status>> {
        // Some leave between two states, some whenever it is.
        let (leaves, is_torn) = (self.dice.below(4_000), self.dice.one_in(3));
        let leaves = Instant::now() + Duration::from_millis(50 + leaves);
        loop {
            if self.temper == Temper::Never {
                let (mode, place, life) = (&mut self.mode, &mut self.place, self.life);
                tokio::select! {
                    changed = mode.changed() => changed.expect("the stage stays"),
                    other = place.wait_for(|p| p.life > life) => {
                        drop(other.expect("the stage stays"));
                        return Ok(Left::Life);
                    }
                }
                // What is still to be looked at below.
                mode.mark_changed();
            }
            if self.mode.has_changed().expect("the stage stays") {
                let mode = self.mode.borrow_and_update().clone();
                match mode {
                    Mode::Busy => {}
                    Mode::Calm(lists, all) => {
                        if all || self.temper != Temper::Never {
                            self.settle(&lists[self.ask]).await?;
                        }
                        self.settled.send(self.number).await.expect("somebody waits");
                    }
                    Mode::End => return Ok(Left::End),
                }
            }
            // While all is calm, connections are counted.
            let may_leave = matches!(*self.mode.borrow(), Mode::Busy);
            match self.temper {
                Temper::Never => continue,
                Temper::Prompt | Temper::Slow => self.step().await?,
                Temper::Returning if is_torn && may_leave => {
                    let Ok(step) = timeout_at(leaves, self.step()).await else {
                        // Perhaps in the middle of a state: then nothing is held.
                        (self.replica, self.held_life) = (self.replica.forget(), 0);
                        return Ok(Left::Gone);
                    };
                    step?;
                }
                Temper::Returning => {
                    self.step().await?;
                    if Instant::now() > leaves && may_leave {
                        self.replica.close_stream();
                        return Ok(Left::Gone);
                    }
                }
            }
            match self.temper {
                Temper::Slow => sleep(Duration::from_millis(self.dice.below(1_000))).await,
                Temper::Prompt if self.dice.one_in(150) => self.compare().await?,
                _ => {}
            }
        }
    }

    /// Reads a state, and judges it.
    async fn step(&mut self) -> Result<(), Option<Status>> {
        let step = self.replica.try_next_batch().await?;
        let tally = &self.stage.tally;
        if let Some(why) = step.reset {
            let is_right = match why {
                ResetReason::Initial => self.is_new && self.held_life == 0,
                ResetReason::EpochChanged => {
                    self.is_new && (1..self.life).contains(&self.held_life)
                }
                ResetReason::Compacted => self.is_new && self.held_life == self.life,
                ResetReason::Resync => true,
                ResetReason::SelectionChanged | ResetReason::Unspecified => false,
            };
            assert!(is_right, "{why:?}, held of life {} in {}", self.held_life, self.life);
            tally.add(&format!("stream: {}", why.as_str_name()), 1);
        } else {
            assert_eq!(self.held_life, self.life, "what was held goes on without a word");
        }
        // What came and went in one step is not there any more.
        for skill in step.upserted.iter().filter_map(|package| self.replica.skills.get(package)) {
            assert_own(skill);
        }
        tally.add(if step.is_bookmark { "stream: bookmarks" } else { "stream: states" }, 1);
        tally.add("stream: skills told", step.upserted.len());
        tally.add("stream: removals told", step.removed.len());
        (self.held_life, self.is_new) = (self.life, false);
        if !step.is_bookmark {
            let skills = self.replica.skills.values();
            self.stage.note(self.life, self.ask, self.replica.revision, skills);
        }
        Ok(())
    }

    /// Asks for a fresh list while the tree changes, and reads on up to its revision. A stream that
    /// merged states may pass it by.
    async fn compare(&mut self) -> Result<(), Option<Status>> {
        let consistency = Consistency::Fresh.into();
        let ask = ListSkillsRequest { consistency, ..self.stage.asks[self.ask].clone() };
        let list = match whole_list(&self.daemon, &ask).await {
            Ok(list) => list,
            Err(status) => {
                self.stage.judge(self.life, &status, &["CATALOG_CHANGED"]);
                return Ok(());
            }
        };
        assert_eq!(list.epoch, self.replica.epoch, "one life is one epoch");
        self.stage.note(self.life, self.ask, list.revision, list.skills.iter());
        while self.replica.revision < list.revision && !self.replica.matches(&list) {
            self.step().await?;
        }
        let is_there = self.replica.revision <= list.revision;
        let agrees = !is_there || self.replica.matches(&list);
        assert!(agrees, "another state: {}", self.difference(&list));
        let what = if is_there { "check: equal to a list" } else { "check: lists passed by" };
        self.stage.tally.add(what, 1);
        Ok(())
    }

    /// Reads on until this list is held, of a tree that does not change.
    async fn settle(&mut self, list: &ListSkillsResponse) -> Result<(), Option<Status>> {
        let end = Instant::now() + HANG_TIMEOUT * 2;
        // What is read up to there may be what was held before: then, too, it is to be read.
        let behind = |client: &Self| {
            client.held_life != client.life || client.replica.revision < list.revision
        };
        while behind(self) || !self.replica.matches(list) {
            assert!(Instant::now() < end, "not in step: {}", self.difference(list));
            self.step().await?;
        }
        self.replica.assert_plugins_match(&self.daemon).await;
        self.stage.tally.add("check: equal in a calm", 1);
        Ok(())
    }

    /// What is held otherwise than a list says, in short.
    fn difference(&self, list: &ListSkillsResponse) -> String {
        let Self { replica, number, temper, life, .. } = self;
        let mut held: Vec<_> =
            list.roots.iter().filter(|r| replica.roots.get(&r.id) != Some(*r)).collect();
        held.truncate(1);
        let other = list.skills.iter().filter(|s| replica.skills.get(&s.package) != Some(*s));
        let other: Vec<_> = other.map(|s| (s, replica.skills.get(&s.package))).collect();
        let skills = (replica.skills.len(), list.skills.len());
        format!(
            "client {number} ({temper:?}, life {life}) holds revision {}, the list is {}; skills {skills:?}; \
             {} differ, such as {:?}; roots {held:?}",
            replica.revision,
            list.revision,
            other.len(),
            other.first(),
        )
    }
}
