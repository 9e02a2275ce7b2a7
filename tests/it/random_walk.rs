//! A random walk of changes through a tree. Leaves what is said of it to `history`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use caproot::catalog::{FaultInjector, WatchTiming};
use caproot::proto::caproot::v1::ListSkillsResponse;

use crate::rng::Rng;
use crate::fixture::Fixture;
use crate::harness::{Daemon, Setup, selected};
use crate::watch_harness::{retarget, skill_text, watch_request};
use crate::replica::Replica;

/// The tree that changes, and the numbers that say how.
pub(crate) struct Walk {
    /// Of all of them.
    pub seed: u64,
    dice: Rng,
    /// The tree.
    pub fixture: Fixture,
}

/// A number that a variable sets.
pub(crate) fn from_env(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

impl Walk {
    /// By the seed that is asked for, or another one each time.
    pub(crate) fn new() -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let seed = from_env("CAPROOT_WALK_SEED", now.map_or(1, |d| u64::from(d.subsec_nanos())));
        println!("CAPROOT_WALK_SEED={seed}");
        let fixture = Fixture::new(
            "repeat 6 skill r/s{}\nrepeat 3 skill v/1/t{}\nrepeat 4 skill v/2/t{}\n\
             link r/current -> ../v/1\nskill r/p/in/a\nfile r/flood/a\nfile r/flood/b\nskill q/a",
        );
        Self { seed, dice: Rng::new(seed), fixture }
    }

    /// The next number, below this one.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.dice.below(n)
    }

    /// One change; what cannot be done is left out.
    pub(crate) fn step(&mut self, number: u64) {
        let (n, m, kind) = (self.below(6), self.below(6), self.below(12));
        let path = |relative: String| self.fixture.path(&relative);
        let says = format!("Step {number}.");
        match kind {
            0 | 1 => self.fixture.write(&format!("r/s{n}/SKILL.md"), skill_text("s", &says)),
            2 => self.fixture.replace("r/current/t0/SKILL.md", skill_text("t", &says)),
            3 => drop(fs::rename(path(format!("r/s{n}")), path(format!("r/s{m}")))),
            4 => retarget(&path("r/current".into()), &format!("../v/{}", 1 + n % 2)),
            5 => {
                for k in 0..6 {
                    self.fixture.write(&format!("r/s{k}/SKILL.md"), skill_text("s", &says));
                }
            }
            6 => self.fixture.write(&format!("r/s{n}/SKILL.md"), "---\nbroken"),
            7 => drop(fs::remove_dir_all(path(format!("r/s{n}")))),
            8 => {
                let manifest = format!(r#"{{"name": "p{n}"}}"#);
                self.fixture.write("r/p/.codex-plugin/plugin.json", manifest);
            }
            9 => self.check_out(n % 3, &says),
            // Of another root: a revision in which nothing is told here.
            10 => self.fixture.replace("q/a/SKILL.md", skill_text("a", &says)),
            _ => {
                self.fixture.write(&format!("next{number}/in/a/SKILL.md"), skill_text("a", &says));
                drop(fs::rename(path("r/p".into()), path(format!("old{number}"))));
                fs::rename(path(format!("next{number}")), path("r/p".into())).expect("in place");
            }
        }
    }

    /// Makes of one directory what one of three branches holds, file by file: some are new, some are
    /// gone, and what is in all of them has changed.
    fn check_out(&self, branch: u64, says: &str) {
        for n in 0..12 {
            let (dir, file) = (format!("r/branch/{n}"), format!("r/branch/{n}/SKILL.md"));
            if n % 3 == branch {
                drop(fs::remove_dir_all(self.fixture.path(&dir)));
            } else {
                self.fixture.write(&format!("{dir}/notes"), says);
                self.fixture.replace(&file, skill_text("b", says));
            }
        }
    }

    /// Makes more events than the kernel's queue holds, while nobody reads them: the daemon runs on
    /// this very thread.
    pub(crate) fn flood(&self) {
        let most = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").expect("a limit");
        let modes = [0o600, 0o644].map(fs::Permissions::from_mode);
        for n in 0..most.trim().parse().expect("a number") {
            // Two that are alike would be one event.
            for file in ["r/flood/a", "r/flood/b"] {
                let mode: &fs::Permissions = &modes[n % 2];
                fs::set_permissions(self.fixture.path(file), mode.clone()).expect("chmod");
            }
        }
    }

    /// What a daemon that saw nothing of the walk says of the tree, once no skill is kept in its last
    /// good version, which only the daemon that saw that one can know.
    pub(crate) async fn truth(&self) -> ListSkillsResponse {
        let daemon = self.daemon(&WatchTiming::default(), &FaultInjector::default()).await;
        let list = daemon.list(&[selected("r", self.fixture.path("r"))]).await;
        assert!(list.next_page_token.is_empty(), "one page");
        daemon.stop().await;
        list
    }

    /// Makes every skill readable again.
    pub(crate) fn mend(&self) {
        for n in 0..6 {
            let file = format!("r/s{n}/SKILL.md");
            if fs::read_to_string(self.fixture.path(&file)).is_ok_and(|t| t.ends_with("broken")) {
                self.fixture.write(&file, skill_text("s", "Mended."));
            }
        }
    }

    /// A client of another root, so that it is looked after too.
    pub(crate) async fn aside(&self, daemon: &Daemon) -> Replica {
        let mut aside =
            Replica::open(daemon, watch_request(vec![selected("q", self.fixture.path("q"))])).await;
        aside.next_batch().await;
        aside
    }

    /// A daemon that may look at all of the tree.
    pub(crate) async fn daemon(&self, timing: &WatchTiming, faults: &FaultInjector) -> Daemon {
        let setup = Setup { timing: timing.clone(), faults: faults.clone(), ..Setup::default() };
        Daemon::start(Setup { allow: vec![self.fixture.top().to_owned()], ..setup }).await
    }
}
