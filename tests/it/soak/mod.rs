//! Soak test: the real binary over a tree of 5,000 skills that changes all the time, with fifty
//! streams and readers of all kinds. In the first half, the daemon is stopped, killed and
//! restarted. In the second half, one daemon runs on, and its resource usage at the end equals the
//! usage at the beginning.
//!
//! `CAPROOT_SOAK` is the approximate duration, such as `10m`; without the variable the test is
//! skipped. `CAPROOT_SOAK_SEED` repeats the changes and calls, but not their timing.

mod churn;
mod counters;
mod daemon_process;
mod file_contents;
pub(crate) mod fleet_storm;
mod lists;
mod random_calls;
mod shared_state;
mod storm;
mod streams;
mod tree;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use caproot_core::proto::caproot::v1::{Consistency, ListSkillsRequest, ListSkillsResponse};
use tokio::sync::mpsc;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::sleep;

use self::churn::Churn;
use self::counters::Counters;
use self::daemon_process::{EndKind, HISTORY, SoakedDaemon};
use self::lists::list_all_pages;
use self::random_calls::{RANDOM_CALLERS, RandomCaller};
use self::shared_state::{Phase, SharedState};
use self::streams::{STREAMS, WatchClient};
use self::tree::{ROOTS, Tree};
use crate::harness::replica::Replica;
use crate::harness::rng::Rng;
use crate::harness::test_servers::slim_executor;
use crate::harness::watch_harness::watch_request;
use crate::harness::{Daemon, HANG_TIMEOUT};
use crate::tls::link::nats_cluster;
use crate::watching::random_walk::from_env;

/// Longest time of changes between two complete comparisons.
const ROUND: Duration = Duration::from_secs(10);

/// Tree, daemon and clients of the soak test.
struct Soak {
    tree: Arc<Tree>,
    shared: Arc<SharedState>,
    churn: Option<Churn>,
    process: Option<SoakedDaemon>,
    clients: JoinSet<()>,
    reports: mpsc::Receiver<usize>,
    dice: Rng,
    round: Duration,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_agree_with_the_tree_and_resource_usage_does_not_grow() {
    let Ok(length) = std::env::var("CAPROOT_SOAK") else {
        println!("SKIPPED: CAPROOT_SOAK is not set");
        return;
    };
    let length = humantime::parse_duration(&length).expect("CAPROOT_SOAK is a duration");
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let seed = from_env(
        "CAPROOT_SOAK_SEED",
        now.map_or(1, |d| u64::from(d.subsec_nanos())),
    );
    println!(
        "CAPROOT_SOAK_SEED={seed}, for {}",
        humantime::format_duration(length)
    );
    let started_at = Instant::now();
    let mut soak = Soak::start(seed, ROUND.min(length / 4)).await;
    let first = soak.compare_all(true).await;

    for end_kind in [EndKind::Killed, EndKind::Terminated]
        .into_iter()
        .cycle()
        .enumerate()
    {
        if end_kind.0 > 1 && started_at.elapsed() > length / 2 {
            break;
        }
        soak.change_and_compare(Some(end_kind.1)).await;
    }

    // One more round before the measurement exercises every part of the daemon.
    soak.restart(EndKind::Terminated).await;
    soak.change_and_compare(None).await;
    soak.restore().await;
    let before = soak.process().idle_usage().await;
    println!("soak: at the beginning {before}");
    let measured = Instant::now();
    for round in 0.. {
        if round > 1 && started_at.elapsed() > length {
            break;
        }
        soak.change_and_compare(None).await;
    }
    let last = soak.restore().await;
    let after = soak.process().assert_takes_no_more(before).await;
    println!("soak: at the end {after}, {:.0?} later", measured.elapsed());

    for (first, last) in first.iter().zip(last.iter()) {
        assert_eq!(
            (&first.skills, &first.roots),
            (&last.skills, &last.roots),
            "same as at the beginning"
        );
        assert_eq!(
            first.diagnostics, last.diagnostics,
            "same as at the beginning"
        );
    }
    let counters = soak.stop().await;
    for (what, prefix) in [
        ("changes", "change: "),
        ("calls", "call: "),
        ("files read", "read: "),
        ("refusals", "status: "),
        ("streams", "stream: "),
        ("checked", "check: "),
        ("daemons", "daemon: "),
    ] {
        println!("soak: {what}: {}", counters.format_prefix(prefix));
    }
    for what in [
        "check: equal to a list",
        "check: equal in a calm",
        "read: whole",
    ] {
        assert!(counters.get(what) > 0, "nothing was compared: {what}");
    }
    println!("soak: {:.0?} in all", started_at.elapsed());
}

impl Soak {
    /// Creates the tree, starts the daemon, and opens all streams.
    async fn start(seed: u64, round: Duration) -> Self {
        let tree = Arc::new(Tree::new());
        let counters = Arc::new(Counters::default());
        let shared = Arc::new(SharedState::new(&tree, counters.clone()));
        let process = Some(SoakedDaemon::start(&tree, &shared));
        let (report_sender, reports) = mpsc::channel(STREAMS);
        let mut seeds = Rng::new(seed);
        let mut clients = JoinSet::new();
        for number in 0..STREAMS {
            let seed = seeds.below(u64::MAX);
            clients.spawn(
                WatchClient::new(shared.clone(), number, seed, report_sender.clone())
                    .await
                    .run(),
            );
        }
        for _ in 0..RANDOM_CALLERS {
            clients.spawn(
                RandomCaller::new(shared.clone(), seeds.below(u64::MAX))
                    .await
                    .run(),
            );
        }
        let churn = Some(Churn::new(tree.clone(), seeds.below(u64::MAX), counters));
        Self {
            tree,
            shared,
            churn,
            process,
            clients,
            reports,
            dice: seeds,
            round,
        }
    }

    fn process(&self) -> &SoakedDaemon {
        self.process.as_ref().expect("a running daemon")
    }

    /// Runs one change of the tree on a blocking thread.
    async fn churn(&mut self, change: impl FnOnce(&mut Churn) + Send + 'static) {
        let mut churn = self.churn.take().expect("no concurrent use");
        let changed = spawn_blocking(move || {
            change(&mut churn);
            churn
        });
        self.churn = Some(changed.await.expect("the tree can be changed"));
    }

    /// Changes the tree for a while and then compares everything. The daemon may be restarted in
    /// between.
    async fn change_and_compare(&mut self, restart: Option<EndKind>) {
        self.shared.phase.send_replace(Phase::Busy);
        let (span, mut churn) = (self.round, self.churn.take().expect("no concurrent use"));
        let changed = spawn_blocking(move || {
            churn.change_for(span);
            churn
        });
        if let Some(end_kind) = restart {
            let percent = u32::try_from(20 + self.dice.below(60)).expect("below 100");
            sleep(span * percent / 100).await;
            self.restart(end_kind).await;
        }
        self.churn = Some(changed.await.expect("the tree can be changed"));
        self.compare_all(false).await;
    }

    async fn restart(&mut self, end_kind: EndKind) {
        self.process
            .take()
            .expect("no concurrent use")
            .stop(end_kind, &self.shared)
            .await;
        let (tree, shared) = (self.tree.clone(), self.shared.clone());
        let process = spawn_blocking(move || SoakedDaemon::start(&tree, &shared)).await;
        self.process = Some(process.expect("the daemon starts"));
    }

    /// Restores the tree, and replaces all states in the daemon's history by states of the restored
    /// tree.
    async fn restore(&mut self) -> Arc<Vec<ListSkillsResponse>> {
        self.churn(Churn::restore).await;
        self.compare_all(false).await;
        let (_, daemon) = self.shared.connect(0, false).await;
        for n in (0..=HISTORY).rev() {
            self.churn(move |churn| churn.edit_one_skill_per_root(n == 0))
                .await;
            let all = &self.shared.requests[ROOTS.len() + 1];
            let consistency = Consistency::Fresh.into();
            let request = ListSkillsRequest {
                page_size: 1,
                consistency,
                ..all.clone()
            };
            daemon.try_list(request).await.expect("a fresh list");
        }
        drop(daemon);
        self.compare_all(true).await
    }

    /// Waits until the resting tree has been unchanged for long enough, so that the lists have the
    /// files that only the repair of YAML can read.
    async fn wait_for_repaired_skills(&self, daemon: &Daemon) {
        for (root, request) in ROOTS.iter().zip(&self.shared.requests) {
            let expected = self.tree.expected_skills(root);
            let roots = request.selected_capability_roots.clone();
            let mut replica = Replica::synced(daemon, watch_request(roots)).await;
            replica
                .wait_while(|replica| !expected.has_repaired(&replica.skills, root))
                .await;
        }
    }

    /// Compares all replicas with fresh lists, and the lists with the tree.
    async fn compare_all(&mut self, all: bool) -> Arc<Vec<ListSkillsResponse>> {
        let (_, daemon) = self.shared.connect(0, false).await;
        self.wait_for_repaired_skills(&daemon).await;

        let mut lists = Vec::new();
        for original in &self.shared.requests {
            let consistency = Consistency::Fresh.into();
            let request = ListSkillsRequest {
                consistency,
                ..original.clone()
            };
            lists.push(
                list_all_pages(&daemon, &request)
                    .await
                    .expect("a fresh list of a resting tree"),
            );
        }
        drop(daemon);
        for (root, list) in ROOTS.iter().zip(&lists) {
            self.tree.expected_skills(root).assert_listed(list, root);
        }
        let lists = Arc::new(lists);
        self.shared
            .phase
            .send_replace(Phase::Calm(lists.clone(), all));
        let started_at = Instant::now();
        let mut waiting: BTreeSet<_> = (0..STREAMS).collect();
        while !waiting.is_empty() {
            let number = self.wait_for_report(&waiting).await;
            assert!(waiting.remove(&number), "each client reports once");
        }
        self.shared
            .counters
            .add("check: trees compared", ROOTS.len());
        let (revision, took) = (lists[ROOTS.len()].revision, started_at.elapsed());
        println!("soak: all clients agree at revision {revision} after {took:.1?}");
        lists
    }

    /// Waits for the next client that agrees with its list. No client may have ended.
    async fn wait_for_report(&mut self, waiting: &BTreeSet<usize>) -> usize {
        tokio::select! {
            report = self.reports.recv() => report.expect("a running client"),
            ended = self.clients.join_next() => {
                ended.expect("a client").expect("no panic");
                panic!("a client ended before the end");
            }
            () = sleep(HANG_TIMEOUT * 3) => panic!("clients {waiting:?} do not agree with their lists"),
        }
    }

    /// Ends all clients and the daemon.
    async fn stop(mut self) -> Arc<Counters> {
        self.shared.phase.send_replace(Phase::End);
        while let Some(ended) = self.clients.join_next().await {
            ended.expect("no panic");
        }
        self.process
            .take()
            .expect("a running daemon")
            .stop(EndKind::Terminated, &self.shared)
            .await;
        self.shared.counters.clone()
    }
}
