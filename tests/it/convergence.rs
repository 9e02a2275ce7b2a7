//! A random walk of changes, and clients of every temper that must all end where the tree does. What
//! each is told must be ordered, unique, resumable and bookmarkable, which `Replica` checks while it
//! applies events and `Followed` where streams begin and end; atomic and reliable, which `Record`
//! checks at every revision that anybody held or listed.
//! `CAPROOT_WALK_SEED` repeats one walk; `CAPROOT_WALK_STEPS` makes it longer.

use std::collections::BTreeMap;
use std::time::Duration;

use caproot::catalog::{FaultInjector, WatchTiming};
use caproot::proto::caproot::v1::{ListSkillsResponse, ResetReason, Skill, WatchSkillsRequest};

use crate::harness::{Daemon, selected};
use crate::watch_harness::{fresh_list, skill_text, watch_status, watch_request};
use crate::replica::Replica;
use crate::random_walk::{Walk, from_env};

/// Notes what was held or listed; whoever holds one revision of one daemon holds the same.
#[derive(Default)]
struct Record(BTreeMap<u64, BTreeMap<String, Skill>>);

impl Record {
    fn note(&mut self, revision: u64, skills: &BTreeMap<String, Skill>) {
        let held = self.0.entry(revision).or_insert_with(|| skills.clone());
        assert_eq!(held, skills, "one revision is one state");
    }

    fn note_list(&mut self, list: &ListSkillsResponse) {
        let skills = list.skills.iter().map(|s| (s.package.clone(), s.clone()));
        self.note(list.revision, &skills.collect());
    }
}

/// A daemon, the clients that follow it, and what they held.
struct Followed {
    daemon: Daemon,
    clients: Vec<Replica>,
    record: Record,
}

impl Followed {
    async fn new(daemon: Daemon, request: &WatchSkillsRequest, clients: usize) -> Self {
        let mut followed = Self { daemon, clients: Vec::new(), record: Record::default() };
        for _ in 0..clients {
            let client = Replica::open(&followed.daemon, request.clone()).await;
            followed.clients.push(client);
            followed.step(followed.clients.len() - 1, &[ResetReason::Initial]).await;
        }
        followed
    }

    /// Up to the next `synced` of a stream that was just opened. It begins anew only for a reason.
    async fn step(&mut self, client: usize, reasons: &[ResetReason]) {
        let client = &mut self.clients[client];
        let reset = client.next_batch().await.reset;
        assert!(reset.is_none_or(|why| reasons.contains(&why)), "{reset:?}");
        self.record.note(client.revision, &client.skills);
    }

    async fn resume(&mut self, client: usize) {
        self.clients[client].resume(&self.daemon).await;
        self.step(client, &[ResetReason::Compacted]).await;
    }

    async fn catch_up(&mut self, client: usize) {
        let client = &mut self.clients[client];
        client.catch_up(&self.daemon).await;
        self.record.note(client.revision, &client.skills);
    }

    /// Stops the daemon. Who reads is told last up to where that is right.
    async fn stop(mut self, reads: &[bool]) -> Vec<Replica> {
        self.daemon.stop().await;
        for (client, reads) in self.clients.iter_mut().zip(reads) {
            let mut is_bookmark = false;
            while let Ok(step) = client.try_next_batch().await {
                is_bookmark = step.is_bookmark;
                self.record.note(client.revision, &client.skills);
            }
            assert!(is_bookmark || !reads, "the last word is a bookmark");
        }
        self.clients
    }
}

async fn walk(timing: WatchTiming, faults: FaultInjector, steps: u64) {
    let mut walk = Walk::new();
    let roots = [selected("r", walk.fixture.path("r"))];
    let daemon = walk.daemon(&timing, &faults).await;
    let mut followed = Followed::new(daemon, &watch_request(roots.to_vec()), 4).await;
    let mut aside = walk.aside(&followed.daemon).await;
    for number in 0..steps {
        walk.step(number);
        if number == steps / 4 {
            let before = watch_status(&followed.daemon).await.overflows;
            walk.flood();
            walk.step(steps + number);
            followed.record.note_list(&fresh_list(&followed.daemon, &roots).await);
            assert!(watch_status(&followed.daemon).await.overflows > before, "the queue overflowed");
        }
        // The first reads all at once, the second seldom, the third comes back again and again, the
        // last only after a restart.
        let reads = [true, walk.below(8) == 0, walk.below(2) == 0, false];
        if walk.below(4) == 0 {
            followed.resume(2).await;
        }
        for client in (0..4).filter(|client| reads[*client]) {
            followed.catch_up(client).await;
        }
        followed.record.note_list(&fresh_list(&followed.daemon, &roots).await);
        if number == steps / 2 {
            for client in 0..3 {
                followed.catch_up(client).await;
            }
            let clients = followed.stop(&[true, true, true, false]).await;
            let daemon = walk.daemon(&timing, &faults).await;
            followed = Followed { daemon, clients, record: Record::default() };
            for client in 0..4 {
                followed.clients[client].resume(&followed.daemon).await;
                followed.step(client, &[ResetReason::EpochChanged]).await;
            }
            aside = walk.aside(&followed.daemon).await;
        }
    }
    walk.mend();
    let truth = walk.truth().await;
    for client in 0..4 {
        followed.catch_up(client).await;
        followed.clients[client].assert_matches(&truth);
        assert!(!followed.clients[client].skills.is_empty(), "seed {}", walk.seed);
    }
    aside.catch_up(&followed.daemon).await;
    followed.stop(&[true; 4]).await;
}

#[tokio::test]
async fn clients_of_every_temper_hold_what_a_list_gives() {
    let steps = from_env("CAPROOT_WALK_STEPS", 60);
    walk(WatchTiming::default(), FaultInjector::default(), steps).await;
}

#[tokio::test]
async fn a_watcher_that_loses_events_still_converges() {
    let timing = WatchTiming {
        full_scan_interval: Duration::from_millis(200),
        recheck_interval: Duration::from_millis(50),
        ..WatchTiming::default()
    };
    let faults = FaultInjector::default();
    let mut walk = Walk::new();
    let daemon = walk.daemon(&timing, &faults).await;
    let root = selected("r", walk.fixture.path("r"));
    let mut client = Replica::open(&daemon, watch_request(vec![root])).await;
    client.next_batch().await;
    faults.drop_events(30);
    let mut number = 0;
    while faults.dropped_events() < 100 {
        walk.step(number);
        number += 1;
        tokio::task::yield_now().await;
    }
    walk.mend();
    let truth = walk.truth().await;
    // Told by an audit, by a look at links or by a lucky event; the stream says so by itself.
    while !client.matches(&truth) {
        client.next_change().await;
    }
    client.assert_matches(&truth);
    // What is one change is found as surely as what is many.
    for n in 0..10 {
        walk.fixture.write("r/last/SKILL.md", skill_text("last", &format!("Last {n}.")));
        let truth = walk.truth().await;
        while !client.matches(&truth) {
            client.next_change().await;
        }
    }
    // One in three lost leaves events enough for most; what no event tells is the audit's alone.
    faults.drop_events(100);
    walk.fixture.replace("r/last/SKILL.md", skill_text("last", "Told by nobody."));
    let truth = walk.truth().await;
    while !client.matches(&truth) {
        client.next_change().await;
    }
    assert!(watch_status(&daemon).await.missed_changes > 0);
    daemon.stop().await;
}

#[tokio::test]
async fn an_instance_that_dies_is_replaced() {
    let faults = FaultInjector::default();
    let mut walk = Walk::new();
    let daemon = walk.daemon(&WatchTiming::default(), &faults).await;
    let root = selected("r", walk.fixture.path("r"));
    let mut client = Replica::open(&daemon, watch_request(vec![root])).await;
    client.next_batch().await;
    for round in 0..5 {
        faults.kill_instance();
        // No call but the stream's own: nothing else makes a new instance.
        for k in 0..5 {
            let says = format!("Round {round}.{k}.");
            walk.fixture.write("r/s1/SKILL.md", skill_text("s", &says));
            while client.skills["skill://r/s1"].description != says {
                client.next_change().await;
            }
        }
    }
    walk.step(0);
    client.catch_up(&daemon).await;
    daemon.stop().await;
}
