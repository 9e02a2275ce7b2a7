//! The soak: the real binary over a tree of 5,000 skills that changes all the time, with fifty streams
//! and readers of all kinds, while it is stopped, killed and started anew; and then a long life of one
//! daemon, at whose end it takes as much of the machine as at its beginning.
//!
//! `CAPROOT_SOAK` is about how long, such as `10m`; without it nothing is done. `CAPROOT_SOAK_SEED` repeats
//! what is changed and asked; not when, since the machine decides that.

mod churn;
mod life;
mod lists;
mod reads;
mod stage;
mod streams;
mod tally;
mod texts;
mod tree;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use caproot::proto::caproot::v1::{Consistency, ListSkillsRequest, ListSkillsResponse};
use tokio::sync::mpsc;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::sleep;

use self::churn::Churn;
use self::life::{End, HISTORY, Life};
use self::lists::whole_list;
use self::reads::{READERS, Reader};
use self::stage::{Mode, Stage};
use self::streams::{Client, STREAMS};
use self::tally::Tally;
use self::tree::{ROOTS, Tree};
use crate::rng::Rng;
use crate::harness::HANG_TIMEOUT;
use crate::random_walk::from_env;

/// The longest that the tree changes before all must be in step.
const ROUND: Duration = Duration::from_secs(10);

/// All that takes part.
struct Soak {
    tree: Arc<Tree>,
    stage: Arc<Stage>,
    churn: Option<Churn>,
    life: Option<Life>,
    crew: JoinSet<()>,
    settled: mpsc::Receiver<usize>,
    dice: Rng,
    round: Duration,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn through_everything_all_hold_what_is_there_and_nothing_is_left() {
    let Ok(length) = std::env::var("CAPROOT_SOAK") else {
        println!("SKIPPED: CAPROOT_SOAK does not say how long to soak");
        return;
    };
    let length = humantime::parse_duration(&length).expect("CAPROOT_SOAK is a time");
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let seed = from_env("CAPROOT_SOAK_SEED", now.map_or(1, |d| u64::from(d.subsec_nanos())));
    println!("CAPROOT_SOAK_SEED={seed}, for {}", humantime::format_duration(length));
    let begun = Instant::now();
    let mut soak = Soak::begin(seed, ROUND.min(length / 4)).await;
    let first = soak.calm(true).await;

    for how in [End::Killed, End::Told].into_iter().cycle().enumerate() {
        if how.0 > 1 && begun.elapsed() > length / 2 {
            break;
        }
        soak.round(Some(how.1)).await;
    }

    // A round more, so that every part of the daemon has been at work before it is measured.
    soak.restart(End::Told).await;
    soak.round(None).await;
    soak.undo().await;
    let before = soak.life().usage_at_rest().await;
    println!("soak: at the beginning {before}");
    let measured = Instant::now();
    for round in 0.. {
        if round > 1 && begun.elapsed() > length {
            break;
        }
        soak.round(None).await;
    }
    let last = soak.undo().await;
    let after = soak.life().assert_takes_no_more(before).await;
    println!("soak: at the end {after}, {:.0?} later", measured.elapsed());

    for (first, last) in first.iter().zip(last.iter()) {
        assert_eq!((&first.skills, &first.roots), (&last.skills, &last.roots), "as it was");
        assert_eq!(first.diagnostics, last.diagnostics, "as it was");
    }
    let tally = soak.end().await;
    for (what, prefix) in [
        ("changes", "change: "),
        ("calls", "call: "),
        ("files read", "read: "),
        ("refusals", "status: "),
        ("streams", "stream: "),
        ("checked", "check: "),
        ("daemons", "life: "),
    ] {
        println!("soak: {what}: {}", tally.line(prefix));
    }
    for what in ["check: equal to a list", "check: equal in a calm", "read: whole"] {
        assert!(tally.of(what) > 0, "nothing was compared: {what}");
    }
    println!("soak: {:.0?} in all", begun.elapsed());
}

impl Soak {
    /// Plants the tree, starts the daemon, and opens all streams.
    async fn begin(seed: u64, round: Duration) -> Self {
        let tree = Arc::new(Tree::new());
        let tally = Arc::new(Tally::default());
        let stage = Arc::new(Stage::new(&tree, tally.clone()));
        let life = Some(Life::begin(&tree, &stage));
        let (settle, settled) = mpsc::channel(STREAMS);
        let mut seeds = Rng::new(seed);
        let mut crew = JoinSet::new();
        for number in 0..STREAMS {
            let seed = seeds.below(u64::MAX);
            crew.spawn(Client::new(stage.clone(), number, seed, settle.clone()).await.run());
        }
        for _ in 0..READERS {
            crew.spawn(Reader::new(stage.clone(), seeds.below(u64::MAX)).await.run());
        }
        let churn = Some(Churn::new(tree.clone(), seeds.below(u64::MAX), tally));
        Self { tree, stage, churn, life, crew, settled, dice: seeds, round }
    }

    fn life(&self) -> &Life {
        self.life.as_ref().expect("between restarts there is one")
    }

    /// Does something to the tree, elsewhere.
    async fn churn(&mut self, change: impl FnOnce(&mut Churn) + Send + 'static) {
        let mut churn = self.churn.take().expect("one at a time");
        let changed = spawn_blocking(move || {
            change(&mut churn);
            churn
        });
        self.churn = Some(changed.await.expect("the tree can be changed"));
    }

    /// Changes the tree for a while, in the middle of which the daemon may end and begin anew; then all
    /// must be in step.
    async fn round(&mut self, restart: Option<End>) {
        self.stage.mode.send_replace(Mode::Busy);
        let (span, mut churn) = (self.round, self.churn.take().expect("one at a time"));
        let changed = spawn_blocking(move || {
            churn.go_on(span);
            churn
        });
        if let Some(how) = restart {
            let percent = u32::try_from(20 + self.dice.below(60)).expect("below 100");
            sleep(span * percent / 100).await;
            self.restart(how).await;
        }
        self.churn = Some(changed.await.expect("the tree can be changed"));
        self.calm(false).await;
    }

    async fn restart(&mut self, how: End) {
        self.life.take().expect("one at a time").end(how, &self.stage).await;
        let (tree, stage) = (self.tree.clone(), self.stage.clone());
        let life = spawn_blocking(move || Life::begin(&tree, &stage)).await;
        self.life = Some(life.expect("it begins"));
    }

    /// Makes the tree what it was, and has all states that the daemon still holds be of it.
    async fn undo(&mut self) -> Arc<Vec<ListSkillsResponse>> {
        self.churn(Churn::undo).await;
        self.calm(false).await;
        let (_, daemon) = self.stage.connect(0, false).await;
        for n in (0..=HISTORY).rev() {
            self.churn(move |churn| churn.nudge(n == 0)).await;
            let all = &self.stage.asks[ROOTS.len() + 1];
            let consistency = Consistency::Fresh.into();
            let request = ListSkillsRequest { page_size: 1, consistency, ..all.clone() };
            daemon.try_list(request).await.expect("a fresh list");
        }
        drop(daemon);
        self.calm(true).await
    }

    /// Compares what all hold with fresh lists, and these with the tree itself.
    async fn calm(&mut self, all: bool) -> Arc<Vec<ListSkillsResponse>> {
        let (_, daemon) = self.stage.connect(0, false).await;
        let mut lists = Vec::new();
        for ask in &self.stage.asks {
            let consistency = Consistency::Fresh.into();
            let request = ListSkillsRequest { consistency, ..ask.clone() };
            lists.push(whole_list(&daemon, &request).await.expect("a fresh list of what stays"));
        }
        drop(daemon);
        for (root, list) in ROOTS.iter().zip(&lists) {
            self.tree.truth(root).assert_is(list, root);
        }
        let lists = Arc::new(lists);
        self.stage.mode.send_replace(Mode::Calm(lists.clone(), all));
        let begun = Instant::now();
        let mut waiting: BTreeSet<_> = (0..STREAMS).collect();
        while !waiting.is_empty() {
            let number = self.reported(&waiting).await;
            assert!(waiting.remove(&number), "each tells once");
        }
        self.stage.tally.add("check: trees compared", ROOTS.len());
        let (revision, took) = (lists[ROOTS.len()].revision, begun.elapsed());
        println!("soak: in step at revision {revision} after {took:.1?}");
        lists
    }

    /// Waits for the next of the crew to hold what it should; nobody may have ended.
    async fn reported(&mut self, waiting: &BTreeSet<usize>) -> usize {
        tokio::select! {
            settled = self.settled.recv() => settled.expect("clients that live"),
            ended = self.crew.join_next() => {
                ended.expect("a crew").expect("no panic");
                panic!("one of the crew went before the end");
            }
            () = sleep(HANG_TIMEOUT * 3) => panic!("not in step: {waiting:?}"),
        }
    }

    /// Ends all.
    async fn end(mut self) -> Arc<Tally> {
        self.stage.mode.send_replace(Mode::End);
        while let Some(ended) = self.crew.join_next().await {
            ended.expect("no panic");
        }
        self.life.take().expect("one").end(End::Told, &self.stage).await;
        self.stage.tally.clone()
    }
}
