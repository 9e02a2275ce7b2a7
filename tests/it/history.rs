//! A random walk of changes, and clients of every temper that must all end where the tree does.
//! `CAPROOT_WALK_SEED` repeats one walk; `CAPROOT_WALK_STEPS` makes it longer.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use caproot::keeper::{Faults, Timing};
use caproot::proto::caproot::v1::{ListSkillsResponse, Skill};

use crate::fixture::Fixture;
use crate::harness::{Daemon, Setup, selected};
use crate::live::{retarget, skill, status, watching};
use crate::replica::Replica;

struct Walk {
    seed: u64,
    state: u64,
    fixture: Fixture,
}

fn from_env(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

impl Walk {
    fn new() -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let seed = from_env("CAPROOT_WALK_SEED", now.map_or(1, |d| u64::from(d.subsec_nanos())));
        println!("CAPROOT_WALK_SEED={seed}");
        let fixture = Fixture::new(
            "repeat 6 skill r/s{}\nrepeat 3 skill v/1/t{}\nrepeat 4 skill v/2/t{}\n\
             link r/current -> ../v/1\nskill r/p/in/a",
        );
        Self { seed, state: seed | 1, fixture }
    }

    fn below(&mut self, n: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 16) % n
    }

    /// One change; what cannot be done is left out.
    fn step(&mut self, number: u64) {
        let (n, m) = (self.below(6), self.below(6));
        let path = |relative: String| self.fixture.path(&relative);
        let says = format!("Step {number}.");
        match self.state % 10 {
            0 | 1 => self.fixture.write(&format!("r/s{n}/SKILL.md"), skill("s", &says)),
            2 => self.fixture.replace("r/current/t0/SKILL.md", skill("t", &says)),
            3 => drop(fs::rename(path(format!("r/s{n}")), path(format!("r/s{m}")))),
            4 => retarget(&path("r/current".into()), &format!("../v/{}", 1 + n % 2)),
            5 => {
                for k in 0..6 {
                    self.fixture.write(&format!("r/s{k}/SKILL.md"), skill("s", &says));
                }
            }
            6 => self.fixture.write(&format!("r/s{n}/SKILL.md"), "---\nbroken"),
            7 => drop(fs::remove_dir_all(path(format!("r/s{n}")))),
            8 => {
                let manifest = format!(r#"{{"name": "p{n}"}}"#);
                self.fixture.write("r/p/.codex-plugin/plugin.json", manifest);
            }
            _ => {
                self.fixture.write(&format!("next{number}/in/a/SKILL.md"), skill("a", &says));
                drop(fs::rename(path("r/p".into()), path(format!("old{number}"))));
                fs::rename(path(format!("next{number}")), path("r/p".into())).expect("in place");
            }
        }
    }

    /// What a daemon that saw nothing of the walk says of the tree, once no skill is kept in its last
    /// good version, which only the daemon that saw that one can know.
    async fn truth(&self) -> ListSkillsResponse {
        let daemon = self.daemon(&Timing::default(), &Faults::default()).await;
        let list = daemon.list(&[selected("r", self.fixture.path("r"))]).await;
        assert!(list.next_page_token.is_empty(), "one page");
        daemon.stop().await;
        list
    }

    /// Makes every skill readable again.
    fn mend(&self) {
        for n in 0..6 {
            let file = format!("r/s{n}/SKILL.md");
            if fs::read_to_string(self.fixture.path(&file)).is_ok_and(|t| t.ends_with("broken")) {
                self.fixture.write(&file, skill("s", "Mended."));
            }
        }
    }

    async fn daemon(&self, timing: &Timing, faults: &Faults) -> Daemon {
        let setup = Setup { timing: timing.clone(), faults: faults.clone(), ..Setup::default() };
        Daemon::start(Setup { allow: vec![self.fixture.top().to_owned()], ..setup }).await
    }
}

/// Notes what a client holds; clients that hold one revision of one daemon hold the same.
#[derive(Default)]
struct Record(BTreeMap<u64, BTreeMap<String, Skill>>);

impl Record {
    fn note(&mut self, replica: &Replica) {
        let held = self.0.entry(replica.revision).or_insert_with(|| replica.skills.clone());
        assert_eq!(*held, replica.skills, "one revision is one state");
    }
}

async fn walk(timing: Timing, faults: Faults, steps: u64) {
    let mut walk = Walk::new();
    let mut daemon = walk.daemon(&timing, &faults).await;
    let request = watching(vec![selected("r", walk.fixture.path("r"))]);
    let mut record = Record::default();
    let mut clients = Vec::new();
    for _ in 0..4 {
        let mut client = Replica::open(&daemon, request.clone()).await;
        client.step().await;
        record.note(&client);
        clients.push(client);
    }
    for number in 0..steps {
        walk.step(number);
        // The first reads all at once, the second seldom, the third comes back again and again, the
        // last only after a restart.
        let reads = [true, walk.below(8) == 0, walk.below(2) == 0, false];
        if walk.below(4) == 0 {
            clients[2].resume(&daemon).await;
        }
        for (client, _) in clients.iter_mut().zip(reads).filter(|(_, reads)| *reads) {
            client.catch_up(&daemon).await;
            record.note(client);
        }
        if number == steps / 2 {
            daemon.stop().await;
            record = Record::default();
            daemon = walk.daemon(&timing, &faults).await;
            for client in &mut clients {
                client.resume(&daemon).await;
                client.step().await;
                record.note(client);
            }
        }
    }
    walk.mend();
    let truth = walk.truth().await;
    for client in &mut clients {
        client.catch_up(&daemon).await;
        client.assert_holds(&truth);
        record.note(client);
        assert!(!client.skills.is_empty(), "seed {}", walk.seed);
    }
    daemon.stop().await;
}

#[tokio::test]
async fn clients_of_every_temper_hold_what_a_list_gives() {
    let steps = from_env("CAPROOT_WALK_STEPS", 60);
    walk(Timing::default(), Faults::default(), steps).await;
}

#[tokio::test]
async fn a_watcher_that_loses_events_still_converges() {
    let timing = Timing {
        audit: Duration::from_millis(200),
        recheck: Duration::from_millis(50),
        ..Timing::default()
    };
    let faults = Faults::default();
    let mut walk = Walk::new();
    let daemon = walk.daemon(&timing, &faults).await;
    let root = selected("r", walk.fixture.path("r"));
    let mut client = Replica::open(&daemon, watching(vec![root])).await;
    client.step().await;
    faults.drop_events(30);
    let mut number = 0;
    while faults.dropped() < 100 {
        walk.step(number);
        number += 1;
        tokio::task::yield_now().await;
    }
    walk.mend();
    let truth = walk.truth().await;
    // Told by an audit, by a look at links or by a lucky event; the stream says so by itself.
    while !client.agrees(&truth) {
        client.change().await;
    }
    client.assert_holds(&truth);
    // What is one change is found as surely as what is many.
    for n in 0..10 {
        walk.fixture.write("r/last/SKILL.md", skill("last", &format!("Last {n}.")));
        let truth = walk.truth().await;
        while !client.agrees(&truth) {
            client.change().await;
        }
    }
    // One in three lost leaves events enough for most; what no event tells is the audit's alone.
    faults.drop_events(100);
    walk.fixture.replace("r/last/SKILL.md", skill("last", "Told by nobody."));
    let truth = walk.truth().await;
    while !client.agrees(&truth) {
        client.change().await;
    }
    assert!(status(&daemon).await.audit_repairs > 0);
    daemon.stop().await;
}

#[tokio::test]
async fn an_instance_that_dies_is_replaced() {
    let faults = Faults::default();
    let mut walk = Walk::new();
    let daemon = walk.daemon(&Timing::default(), &faults).await;
    let root = selected("r", walk.fixture.path("r"));
    let mut client = Replica::open(&daemon, watching(vec![root])).await;
    client.step().await;
    for round in 0..5 {
        faults.kill_instance();
        // No call but the stream's own: nothing else makes a new instance.
        for k in 0..5 {
            let says = format!("Round {round}.{k}.");
            walk.fixture.write("r/s1/SKILL.md", skill("s", &says));
            while client.skills["skill://r/s1"].description != says {
                client.change().await;
            }
        }
    }
    walk.step(0);
    client.catch_up(&daemon).await;
    daemon.stop().await;
}
