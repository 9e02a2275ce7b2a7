//! Random walk of changes through a tree. The checks are in `convergence`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use caproot::daemon::catalog::{FaultInjector, WatchTiming};
use caproot_core::proto::caproot::v1::ListSkillsResponse;

use crate::harness::fixture::Fixture;
use crate::harness::replica::Replica;
use crate::harness::rng::Rng;
use crate::harness::watch_harness::{retarget, skill_text, watch_request};
use crate::harness::{Daemon, Setup, selected};

/// Tree that changes, and the generator of the changes.
pub(crate) struct RandomWalk {
    /// Seed of all random numbers.
    pub seed: u64,
    rng: Rng,
    /// Tree that the walk changes.
    pub fixture: Fixture,
}

/// Reads a number from an environment variable.
pub(crate) fn from_env(name: &str, otherwise: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(otherwise)
}

impl RandomWalk {
    /// Uses the seed of the environment, or a new seed for each run.
    pub(crate) fn new() -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let seed = from_env(
            "CAPROOT_WALK_SEED",
            now.map_or(1, |d| u64::from(d.subsec_nanos())),
        );
        println!("CAPROOT_WALK_SEED={seed}");
        let fixture = Fixture::new(
            "repeat 6 skill r/s{}\nrepeat 3 skill v/1/t{}\nrepeat 4 skill v/2/t{}\n\
             link r/current -> ../v/1\nskill r/p/in/a\nfile r/flood/a\nfile r/flood/b\nskill q/a",
        );
        Self {
            seed,
            rng: Rng::new(seed),
            fixture,
        }
    }

    /// Returns the next random number below `n`.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.rng.below(n)
    }

    /// Applies one change. A change that cannot be made is skipped.
    pub(crate) fn apply_change(&mut self, number: u64) {
        let (n, m, kind) = (self.below(6), self.below(6), self.below(12));
        let path = |relative: String| self.fixture.path(&relative);
        let says = format!("Step {number}.");
        match kind {
            0 | 1 => self
                .fixture
                .write(&format!("r/s{n}/SKILL.md"), skill_text("s", &says)),
            2 => self
                .fixture
                .replace("r/current/t0/SKILL.md", skill_text("t", &says)),
            3 => drop(fs::rename(path(format!("r/s{n}")), path(format!("r/s{m}")))),
            4 => retarget(&path("r/current".into()), &format!("../v/{}", 1 + n % 2)),
            5 => {
                for k in 0..6 {
                    self.fixture
                        .write(&format!("r/s{k}/SKILL.md"), skill_text("s", &says));
                }
            }
            6 => self
                .fixture
                .write(&format!("r/s{n}/SKILL.md"), "---\nbroken"),
            7 => drop(fs::remove_dir_all(path(format!("r/s{n}")))),
            8 => {
                let manifest = format!(r#"{{"name": "p{n}"}}"#);
                self.fixture
                    .write("r/p/.codex-plugin/plugin.json", manifest);
            }
            9 => self.check_out(n % 3, &says),
            // A change of another root: a revision without events for this root.
            10 => self.fixture.replace("q/a/SKILL.md", skill_text("a", &says)),
            _ => {
                self.fixture.write(
                    &format!("next{number}/in/a/SKILL.md"),
                    skill_text("a", &says),
                );
                drop(fs::rename(path("r/p".into()), path(format!("old{number}"))));
                fs::rename(path(format!("next{number}")), path("r/p".into()))
                    .expect("rename over it");
            }
        }
    }

    /// Gives a directory the state of one of three branches, file by file: some files are new, some
    /// are removed, and all others are changed.
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

    /// Causes more events than the kernel's queue holds. Nothing reads the queue meanwhile, since
    /// the daemon runs on this thread.
    pub(crate) fn flood(&self) {
        let most = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").expect("a limit");
        let modes = [0o600, 0o644].map(fs::Permissions::from_mode);
        for n in 0..most.trim().parse().expect("a number") {
            // The kernel merges identical successive events, so alternate between two files.
            for file in ["r/flood/a", "r/flood/b"] {
                let mode: &fs::Permissions = &modes[n % 2];
                fs::set_permissions(self.fixture.path(file), mode.clone()).expect("chmod");
            }
        }
    }

    /// Returns the list of a new daemon, which has seen nothing of the walk. The caller first
    /// repairs all skills: only a daemon that saw an earlier version can list a broken skill as
    /// stale.
    pub(crate) async fn list_of_new_daemon(&self) -> ListSkillsResponse {
        let daemon = self
            .start_daemon(&WatchTiming::default(), &FaultInjector::default())
            .await;
        let list = daemon.list(&[selected("r", self.fixture.path("r"))]).await;
        assert!(list.next_page_token.is_empty(), "one page");
        daemon.stop().await;
        list
    }

    /// Makes every skill valid again.
    pub(crate) fn repair_skills(&self) {
        for n in 0..6 {
            let file = format!("r/s{n}/SKILL.md");
            if fs::read_to_string(self.fixture.path(&file)).is_ok_and(|t| t.ends_with("broken")) {
                self.fixture.write(&file, skill_text("s", "Mended."));
            }
        }
    }

    /// Client of another root, so that the daemon watches that root too.
    pub(crate) async fn follow_other_root(&self, daemon: &Daemon) -> Replica {
        Replica::synced(
            daemon,
            watch_request(vec![selected("q", self.fixture.path("q"))]),
        )
        .await
    }

    /// Starts a daemon that may read the whole tree.
    pub(crate) async fn start_daemon(
        &self,
        timing: &WatchTiming,
        faults: &FaultInjector,
    ) -> Daemon {
        let setup = Setup {
            timing: timing.clone(),
            faults: faults.clone(),
            ..Setup::default()
        };
        Daemon::start(Setup {
            allow: vec![self.fixture.top().to_owned()],
            ..setup
        })
        .await
    }
}
