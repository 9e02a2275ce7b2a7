//! Random walk of changes, with clients of different speed that must all end with the state of the
//! tree. `Replica` and `WatchClients` check that events are ordered, unique and resumable.
//! `RevisionRecord` checks that each revision is one state, for every revision that a client recorded
//! or listed.
//! `CAPROOT_WALK_SEED` repeats one walk. `CAPROOT_WALK_STEPS` sets its length.

use std::collections::BTreeMap;
use std::time::Duration;

use caproot::daemon::catalog::{FaultInjector, WatchTiming};
use caproot_core::proto::caproot::v1::{
    ListSkillsResponse, ResetReason, Skill, WatchSkillsRequest,
};

use crate::harness::replica::Replica;
use crate::harness::watch_harness::{fresh_list, skill_text, watch_request, watch_status};
use crate::harness::{Daemon, selected};
use crate::watching::random_walk::{RandomWalk, from_env};

/// `RevisionRecord` of recorded and listed states. All holders of one revision must hold the same state.
#[derive(Default)]
struct RevisionRecord(BTreeMap<u64, BTreeMap<String, Skill>>);

impl RevisionRecord {
    fn record_state(&mut self, revision: u64, skills: &BTreeMap<String, Skill>) {
        let recorded = self.0.entry(revision).or_insert_with(|| skills.clone());
        assert_eq!(recorded, skills, "one revision is one state");
    }

    fn record_list(&mut self, list: &ListSkillsResponse) {
        let skills = list.skills.iter().map(|s| (s.package.clone(), s.clone()));
        self.record_state(list.revision, &skills.collect());
    }
}

/// Daemon, its clients, and the record of their states.
struct WatchClients {
    daemon: Daemon,
    clients: Vec<Replica>,
    record: RevisionRecord,
}

impl WatchClients {
    async fn new(daemon: Daemon, request: &WatchSkillsRequest, clients: usize) -> Self {
        let mut followed = Self {
            daemon,
            clients: Vec::new(),
            record: RevisionRecord::default(),
        };
        for _ in 0..clients {
            let client = Replica::open(&followed.daemon, request.clone()).await;
            followed.clients.push(client);
            followed
                .read_first_batch(followed.clients.len() - 1, &[ResetReason::Initial])
                .await;
        }
        followed
    }

    /// Reads up to the first `synced` of a stream that was just opened. A reset needs one of
    /// `reasons`.
    async fn read_first_batch(&mut self, client: usize, reasons: &[ResetReason]) {
        let client = &mut self.clients[client];
        let reset = client.next_batch().await.reset;
        assert!(reset.is_none_or(|why| reasons.contains(&why)), "{reset:?}");
        self.record.record_state(client.revision, &client.skills);
    }

    async fn resume(&mut self, client: usize) {
        self.clients[client].resume(&self.daemon).await;
        self.read_first_batch(client, &[ResetReason::Compacted])
            .await;
    }

    async fn catch_up(&mut self, client: usize) {
        let client = &mut self.clients[client];
        client.catch_up(&self.daemon).await;
        self.record.record_state(client.revision, &client.skills);
    }

    /// Stops the daemon. The last event of a client that reads must be a bookmark.
    async fn stop(mut self, reads: &[bool]) -> Vec<Replica> {
        self.daemon.stop().await;
        for (client, reads) in self.clients.iter_mut().zip(reads) {
            let mut is_bookmark = false;
            while let Ok(step) = client.try_next_batch().await {
                is_bookmark = step.is_bookmark;
                self.record.record_state(client.revision, &client.skills);
            }
            assert!(is_bookmark || !reads, "the last event is a bookmark");
        }
        self.clients
    }
}

async fn run_walk(timing: WatchTiming, faults: FaultInjector, steps: u64) {
    let mut walk = RandomWalk::new();
    let roots = [selected("r", walk.fixture.path("r"))];
    let daemon = walk.start_daemon(&timing, &faults).await;
    let mut followed = WatchClients::new(daemon, &watch_request(roots.to_vec()), 4).await;
    let mut other = walk.follow_other_root(&followed.daemon).await;
    for number in 0..steps {
        walk.apply_change(number);
        if number == steps / 4 {
            let before = watch_status(&followed.daemon).await.overflows;
            walk.flood();
            walk.apply_change(steps + number);
            followed
                .record
                .record_list(&fresh_list(&followed.daemon, &roots).await);
            assert!(
                watch_status(&followed.daemon).await.overflows > before,
                "the queue overflowed"
            );
        }
        // Client 0 reads at once, client 1 rarely, client 2 resumes often, client 3 only after the
        // restart.
        let reads = [true, walk.below(8) == 0, walk.below(2) == 0, false];
        if walk.below(4) == 0 {
            followed.resume(2).await;
        }
        for client in (0..4).filter(|client| reads[*client]) {
            followed.catch_up(client).await;
        }
        followed
            .record
            .record_list(&fresh_list(&followed.daemon, &roots).await);
        if number == steps / 2 {
            for client in 0..3 {
                followed.catch_up(client).await;
            }
            let clients = followed.stop(&[true, true, true, false]).await;
            let daemon = walk.start_daemon(&timing, &faults).await;
            followed = WatchClients {
                daemon,
                clients,
                record: RevisionRecord::default(),
            };
            for client in 0..4 {
                followed.clients[client].resume(&followed.daemon).await;
                followed
                    .read_first_batch(client, &[ResetReason::EpochChanged])
                    .await;
            }
            other = walk.follow_other_root(&followed.daemon).await;
        }
    }
    walk.repair_skills();
    let expected = walk.list_of_new_daemon().await;
    for client in 0..4 {
        followed.catch_up(client).await;
        followed.clients[client].assert_matches(&expected);
        assert!(
            !followed.clients[client].skills.is_empty(),
            "seed {}",
            walk.seed
        );
    }
    other.catch_up(&followed.daemon).await;
    followed.stop(&[true; 4]).await;
}

#[tokio::test]
async fn fast_and_slow_clients_converge_to_the_list() {
    let steps = from_env("CAPROOT_WALK_STEPS", 60);
    run_walk(WatchTiming::default(), FaultInjector::default(), steps).await;
}

#[tokio::test]
async fn a_watcher_that_loses_events_still_converges() {
    let timing = WatchTiming {
        full_scan_interval: Duration::from_millis(200),
        recheck_interval: Duration::from_millis(50),
        ..WatchTiming::default()
    };
    let faults = FaultInjector::default();
    let mut walk = RandomWalk::new();
    let daemon = walk.start_daemon(&timing, &faults).await;
    let root = selected("r", walk.fixture.path("r"));
    let mut client = Replica::synced(&daemon, watch_request(vec![root])).await;
    faults.drop_events(30);
    let mut number = 0;
    while faults.dropped_events() < 100 {
        walk.apply_change(number);
        number += 1;
        tokio::task::yield_now().await;
    }
    walk.repair_skills();
    let expected = walk.list_of_new_daemon().await;
    // The audit, a recheck of links or an event that was not dropped reports the change.
    client.wait_while(|client| !client.matches(&expected)).await;
    client.assert_matches(&expected);
    // A single change is found as reliably as many changes.
    for n in 0..10 {
        walk.fixture
            .write("r/last/SKILL.md", skill_text("last", &format!("Last {n}.")));
        let expected = walk.list_of_new_daemon().await;
        client.wait_while(|client| !client.matches(&expected)).await;
    }
    // A third of the events is enough to find most changes. With all events dropped, only the audit
    // finds a change.
    faults.drop_events(100);
    let before = watch_status(&daemon).await.missed_changes;
    let mut number = 0;
    // The daemon may still have an event from before, whose scan finds the next change.
    while watch_status(&daemon).await.missed_changes == before {
        assert!(number < 10, "no audit found a change");
        let text = format!("Without an event, {number}.");
        walk.fixture
            .replace("r/last/SKILL.md", skill_text("last", &text));
        let expected = walk.list_of_new_daemon().await;
        client.wait_while(|client| !client.matches(&expected)).await;
        number += 1;
    }
    daemon.stop().await;
}

#[tokio::test]
async fn a_failed_inotify_instance_is_replaced() {
    let faults = FaultInjector::default();
    let mut walk = RandomWalk::new();
    let daemon = walk.start_daemon(&WatchTiming::default(), &faults).await;
    let root = selected("r", walk.fixture.path("r"));
    let mut client = Replica::synced(&daemon, watch_request(vec![root])).await;
    for round in 0..5 {
        faults.kill_instance();
        // Only the stream is open, and no other call causes a new inotify instance.
        for k in 0..5 {
            let says = format!("Round {round}.{k}.");
            walk.fixture.write("r/s1/SKILL.md", skill_text("s", &says));
            client
                .wait_while(|client| client.skills["skill://r/s1"].description != says)
                .await;
        }
    }
    walk.apply_change(0);
    client.catch_up(&daemon).await;
    daemon.stop().await;
}
