//! Where the races are run: a root, a directory outside that holds the same with a secret in it, and
//! a thread that exchanges one for the other.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::fixture::Fixture;
use crate::reads::digest;

/// In the content and in the path of everything outside.
pub(super) const SECRET: &str = "secret-of-outside";

/// How often something is exchanged before others have their turn.
const BURST: usize = 100;

/// What is read: package and file.
pub(super) const FILES: [(&str, &str); 6] = [
    ("a", "SKILL.md"),
    ("a", "x.md"),
    ("a", "docs/x.md"),
    ("a", "docs/up.md"),
    ("a", "agents/openai.yaml"),
    ("b", "SKILL.md"),
];

/// What is exchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Storm {
    /// A directory, and a link to a directory outside.
    Directories,
    /// A file, and a link to a file outside.
    Files,
    /// A directory is moved out; there a secret takes the place of what it holds; then all goes back.
    Moved,
}

impl Storm {
    pub(super) const ALL: [Self; 3] = [Self::Directories, Self::Files, Self::Moved];

    /// Places below the root, each with a link beside it to the same place outside.
    fn places(self) -> &'static [&'static str] {
        match self {
            Self::Directories => &["a/docs", "a/agents", "b", "p/.codex-plugin"],
            Self::Files => {
                &["a/x.md", "a/agents/openai.yaml", "b/SKILL.md", "p/.codex-plugin/plugin.json"]
            }
            Self::Moved => &["a/docs", "b"],
        }
    }
}

/// The trees.
pub(super) struct Arena {
    fixture: Fixture,
    /// What must not come out.
    secrets: Vec<Vec<u8>>,
}

/// A storm that goes on.
pub(super) struct Race {
    stop: Arc<AtomicBool>,
    exchanges: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

impl Arena {
    pub(super) fn new() -> Self {
        let skill =
            |name: &str, says: &str| format!("---\nname: {name}\ndescription: {says}\n---\n");
        let inside = "What lies inside.";
        let fixture = Fixture::new("skill root/a\nskill root/p/s");
        for (top, says) in [("root", inside), (SECRET, SECRET)] {
            fixture.write(&format!("{top}/a/x.md"), says);
            fixture.write(&format!("{top}/a/docs/x.md"), says);
            let sidecar = format!("interface:\n  display_name: {says}\n");
            fixture.write(&format!("{top}/a/agents/openai.yaml"), sidecar);
            fixture.write(&format!("{top}/b/SKILL.md"), skill("b", says));
            let manifest =
                format!("{{\"name\": \"{}\"}}", if top == "root" { "kit" } else { SECRET });
            fixture.write(&format!("{top}/p/.codex-plugin/plugin.json"), manifest);
        }
        fixture.write(&format!("{SECRET}/a/docs/{SECRET}.md"), SECRET);
        std::os::unix::fs::symlink("../x.md", fixture.path("root/a/docs/up.md")).expect("a link");
        // Where `up.md` would lead from a directory that was moved out.
        fixture.write("away/x.md", SECRET);
        let mut secrets = vec![SECRET.as_bytes().to_vec()];
        for file in ["a/x.md", "a/agents/openai.yaml", "b/SKILL.md", "p/.codex-plugin/plugin.json"]
        {
            let content =
                fs::read(fixture.path(&format!("{SECRET}/{file}"))).expect("just written");
            secrets.push(digest(&content).into_bytes());
        }
        Self { fixture, secrets }
    }

    pub(super) fn root(&self) -> PathBuf {
        self.fixture.path("root")
    }

    /// Whether an answer holds anything of what lies outside: its content, its digest, its path.
    pub(super) fn betrays(&self, answer: &[u8]) -> bool {
        let holds = |secret: &Vec<u8>| answer.windows(secret.len()).any(|part| part == secret);
        self.secrets.iter().any(holds)
    }

    /// Lets a storm go on until its race is ended; `None` where files cannot be exchanged.
    pub(super) fn begin(&self, storm: Storm) -> Option<Race> {
        let pairs: Vec<_> = storm.places().iter().map(|place| self.pair(storm, place)).collect();
        let [one, other] = ["x.md", "away/x.md"].map(|file| self.fixture.path(file));
        fs::write(&one, SECRET).expect("write");
        if let Err(error) = exchange(&one, &other) {
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
                        pair.turn();
                        exchanges.fetch_add(1, Ordering::Relaxed);
                    }
                    // Somebody must be there to race with.
                    thread::yield_now();
                }
            })
        };
        Some(Race { stop, exchanges, thread })
    }

    fn pair(&self, storm: Storm, place: &str) -> Pair {
        let inside = self.fixture.path(&format!("root/{place}"));
        let outside = self.fixture.path(&format!("{SECRET}/{place}"));
        if storm == Storm::Moved {
            let name = if outside.join("SKILL.md").exists() { "SKILL.md" } else { "x.md" };
            let away = self.fixture.path(&format!("away/{}", place.replace('/', "-")));
            return Pair::Moved { inside, away, secret: outside.join(name), name };
        }
        let link = inside.with_extension("link");
        std::os::unix::fs::symlink(outside, &link).expect("a link");
        Pair::Exchanged(inside, link)
    }
}

/// What is exchanged in one turn.
enum Pair {
    Exchanged(PathBuf, PathBuf),
    Moved { inside: PathBuf, away: PathBuf, secret: PathBuf, name: &'static str },
}

impl Pair {
    fn turn(&self) {
        match self {
            Self::Exchanged(one, other) => exchange(one, other).expect("an exchange"),
            Self::Moved { inside, away, secret, name } => {
                fs::rename(inside, away).expect("move out");
                exchange(secret, &away.join(name)).expect("an exchange");
                exchange(secret, &away.join(name)).expect("an exchange");
                fs::rename(away, inside).expect("move in");
            }
        }
    }
}

fn exchange(one: &PathBuf, other: &PathBuf) -> rustix::io::Result<()> {
    renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE)
}

impl Race {
    /// Ends the storm; gives how often something was exchanged.
    pub(super) fn end(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("no panic");
        self.exchanges.load(Ordering::Relaxed)
    }
}
