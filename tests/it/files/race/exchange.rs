//! Trees for races: a root, a directory outside with the same files and a secret, and a thread that
//! exchanges the two.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::harness::content_digest;
use crate::harness::fixture::Fixture;

/// Text in the content and in the path of everything outside.
pub(super) const SECRET: &str = "secret-of-outside";

/// Exchanges before the thread yields.
const BURST: usize = 100;

/// Files to read: package and resource.
pub(super) const FILES: [(&str, &str); 6] = [
    ("a", "SKILL.md"),
    ("a", "x.md"),
    ("a", "docs/x.md"),
    ("a", "docs/up.md"),
    ("a", "agents/openai.yaml"),
    ("b", "SKILL.md"),
];

/// Kind of exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExchangeKind {
    /// A directory and a link to a directory outside.
    Directories,
    /// A file and a link to a file outside.
    Files,
    /// A directory moves out, a secret replaces its content outside, then both move back.
    Moved,
}

impl ExchangeKind {
    pub(super) const ALL: [Self; 3] = [Self::Directories, Self::Files, Self::Moved];

    /// Paths below the root that are exchanged. Each has a link next to it that leads to the same
    /// path outside.
    fn places(self) -> &'static [&'static str] {
        match self {
            Self::Directories => &["a/docs", "a/agents", "b", "p/.codex-plugin"],
            Self::Files => &[
                "a/x.md",
                "a/agents/openai.yaml",
                "b/SKILL.md",
                "p/.codex-plugin/plugin.json",
            ],
            Self::Moved => &["a/docs", "b"],
        }
    }
}

/// Directory trees of a race.
pub(super) struct RaceFixture {
    fixture: Fixture,
    /// Byte strings that no answer may contain.
    secrets: Vec<Vec<u8>>,
}

/// Thread that makes exchanges.
pub(super) struct ExchangeThread {
    stop: Arc<AtomicBool>,
    exchanges: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

impl RaceFixture {
    pub(super) fn new() -> Self {
        let skill =
            |name: &str, text: &str| format!("---\nname: {name}\ndescription: {text}\n---\n");
        let inside = "What lies inside.";
        let fixture = Fixture::new("skill root/a\nskill root/p/s");
        for (top, text) in [("root", inside), (SECRET, SECRET)] {
            fixture.write(&format!("{top}/a/x.md"), text);
            fixture.write(&format!("{top}/a/docs/x.md"), text);
            let sidecar = format!("interface:\n  display_name: {text}\n");
            fixture.write(&format!("{top}/a/agents/openai.yaml"), sidecar);
            fixture.write(&format!("{top}/b/SKILL.md"), skill("b", text));
            let manifest = format!(
                "{{\"name\": \"{}\"}}",
                if top == "root" { "kit" } else { SECRET }
            );
            fixture.write(&format!("{top}/p/.codex-plugin/plugin.json"), manifest);
        }
        fixture.write(&format!("{SECRET}/a/docs/{SECRET}.md"), SECRET);
        std::os::unix::fs::symlink("../x.md", fixture.path("root/a/docs/up.md")).expect("a link");
        // `up.md` leads here if its directory was moved out.
        fixture.write("away/x.md", SECRET);
        let mut secrets = vec![SECRET.as_bytes().to_vec()];
        for file in [
            "a/x.md",
            "a/agents/openai.yaml",
            "b/SKILL.md",
            "p/.codex-plugin/plugin.json",
        ] {
            let content =
                fs::read(fixture.path(&format!("{SECRET}/{file}"))).expect("just written");
            secrets.push(content_digest(&content).into_bytes());
        }
        Self { fixture, secrets }
    }

    pub(super) fn root(&self) -> PathBuf {
        self.fixture.path("root")
    }

    /// Whether an answer contains content, a digest or a path from outside.
    pub(super) fn contains_secret(&self, answer: &[u8]) -> bool {
        let holds = |secret: &Vec<u8>| answer.windows(secret.len()).any(|part| part == secret);
        self.secrets.iter().any(holds)
    }

    /// Starts exchanges that run until `ExchangeThread::stop`. Returns `None` if the filesystem
    /// cannot exchange files.
    pub(super) fn start_exchanges(&self, kind: ExchangeKind) -> Option<ExchangeThread> {
        let pairs: Vec<_> = kind
            .places()
            .iter()
            .map(|place| self.exchange_paths(kind, place))
            .collect();
        let [one, other] = ["x.md", "away/x.md"].map(|file| self.fixture.path(file));
        fs::write(&one, SECRET).expect("write");
        if let Err(error) = swap_entries(&one, &other) {
            println!("SKIPPED: files cannot be exchanged on this filesystem: {error}");
            return None;
        }
        let stop = Arc::new(AtomicBool::new(false));
        let exchanges = Arc::new(AtomicU64::new(0));
        let thread = {
            let (stop, exchanges) = (stop.clone(), exchanges.clone());
            thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    for pair in pairs.iter().cycle().take(BURST) {
                        pair.exchange_once();
                        exchanges.fetch_add(1, Ordering::Relaxed);
                    }
                    // The thread yields, so that readers race with it.
                    thread::yield_now();
                }
            })
        };
        Some(ExchangeThread {
            stop,
            exchanges,
            thread,
        })
    }

    fn exchange_paths(&self, kind: ExchangeKind, place: &str) -> ExchangePaths {
        let inside = self.fixture.path(&format!("root/{place}"));
        let outside = self.fixture.path(&format!("{SECRET}/{place}"));
        if kind == ExchangeKind::Moved {
            let name = if outside.join("SKILL.md").exists() {
                "SKILL.md"
            } else {
                "x.md"
            };
            let away = self
                .fixture
                .path(&format!("away/{}", place.replace('/', "-")));
            return ExchangePaths::Moved {
                inside,
                away,
                secret: outside.join(name),
                name,
            };
        }
        let link = inside.with_extension("link");
        std::os::unix::fs::symlink(outside, &link).expect("a link");
        ExchangePaths::Exchanged(inside, link)
    }
}

/// Paths of one exchange.
enum ExchangePaths {
    Exchanged(PathBuf, PathBuf),
    Moved {
        inside: PathBuf,
        away: PathBuf,
        secret: PathBuf,
        name: &'static str,
    },
}

impl ExchangePaths {
    fn exchange_once(&self) {
        match self {
            Self::Exchanged(one, other) => swap_entries(one, other).expect("an exchange"),
            Self::Moved {
                inside,
                away,
                secret,
                name,
            } => {
                fs::rename(inside, away).expect("move out");
                swap_entries(secret, &away.join(name)).expect("an exchange");
                swap_entries(secret, &away.join(name)).expect("an exchange");
                fs::rename(away, inside).expect("move in");
            }
        }
    }
}

pub(super) fn swap_entries(one: &PathBuf, other: &PathBuf) -> rustix::io::Result<()> {
    renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE)
}

impl ExchangeThread {
    /// Stops the exchanges. Returns the number of exchanges.
    pub(super) fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("no panic");
        self.exchanges.load(Ordering::Relaxed)
    }
}
