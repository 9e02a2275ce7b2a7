//! Files that a scan looks for: each is created, edited, replaced and removed, directly and through
//! links, at delays around the debounce time. Lists, fresh lists and the stream must say what a daemon
//! says that starts afterwards.

use std::fs;
use std::time::Duration;

use caproot::daemon::catalog::WatchTiming;
use caproot::daemon::model::Limits;
use caproot_core::proto::caproot::v1::{
    ListSkillsResponse, RootState, SelectedCapabilityRoot, WatchMode,
};

use futures_util::StreamExt as _;

use crate::harness::fixture::Fixture;
use crate::harness::replica::Replica;
use crate::harness::watch_harness::{fresh_list, skill_text, watch_request};
use crate::harness::{Daemon, Setup, selected, short_or_long};

/// Tree with a plugin whose files do not exist.
macro_rules! plugin {
    () => {
        "file r/p/.claude-plugin/plugin.json\n\
         | {\"name\": \"p\", \"mcpServers\": \"./conf/mcp.json\", \"interface\": {\"logo\": \"./img/logo.png\"}}\n\
         skill r/p/skills/s\n"
    };
}

/// Cases: a tree with the root `r`, the directory that is created in it, and the name of the file in
/// that directory. `max_depth` is 2.
const CASES: [(&str, &str, &str); 29] = [
    ("dir r", "r/a", "SKILL.md"),
    ("dir out\nlink r/a -> ../out/a", "out/a", "SKILL.md"),
    (
        "dir r/a\nlink r/a/SKILL.md -> ../../out/x/SKILL.md\ndir out",
        "out/x",
        "SKILL.md",
    ),
    (
        "dir out\nlink r/a -> ../hop/one\nlink hop/one -> ../hop/two\nlink hop/two -> ../out/a",
        "out/a",
        "SKILL.md",
    ),
    ("skill r/a", "r/a/agents", "openai.yaml"),
    ("skill r", "r/agents", "openai.yaml"),
    (
        "skill r/a\nlink r/a/agents -> side",
        "r/a/side",
        "openai.yaml",
    ),
    (
        "skill r/a\nlink r/a/agents -> ../../out/side\ndir out",
        "out/side",
        "openai.yaml",
    ),
    (
        "skill r/a\nlink r/a/agents -> node_modules/side",
        "r/a/node_modules/side",
        "openai.yaml",
    ),
    (
        "skill r/a\nlink r/a/agents -> ../../hop\nlink hop -> out/side\ndir out",
        "out/side",
        "openai.yaml",
    ),
    (
        "skill r/a\nlink r/a/agents/openai.yaml -> ../../../out/side/openai.yaml\ndir out",
        "out/side",
        "openai.yaml",
    ),
    ("skill r/deep/a", "r/deep/a/agents", "openai.yaml"),
    ("skill r/p/s", "r/p/.claude-plugin", "plugin.json"),
    (
        "skill r/p/s\nlink r/p/.claude-plugin -> ../../out/m\ndir out",
        "out/m",
        "plugin.json",
    ),
    (
        "skill r/p/s\nlink r/p/.claude-plugin/plugin.json -> ../../../out/m/plugin.json\ndir out",
        "out/m",
        "plugin.json",
    ),
    ("skill r/deep/a", "r/deep/a/.claude-plugin", "plugin.json"),
    ("skill r/a", ".claude-plugin", "plugin.json"),
    (
        "skill r/a\nlink .claude-plugin -> out/m\ndir out",
        "out/m",
        "plugin.json",
    ),
    (
        "skill out/p/s/a\nlink r/a -> ../out/p/s/a",
        "out/p/.claude-plugin",
        "plugin.json",
    ),
    (
        "skill r/p/s\nfile r/p/.claude-plugin/plugin.json\n| {\"name\": \"second\"}",
        "r/p/.codex-plugin",
        "plugin.json",
    ),
    (plugin!(), "r/p/conf", "mcp.json"),
    (
        concat!(plugin!(), "link r/p/conf -> side/deep"),
        "r/p/side/deep",
        "mcp.json",
    ),
    (
        concat!(plugin!(), "link r/p/conf -> hop\nlink r/p/hop -> side"),
        "r/p/side",
        "mcp.json",
    ),
    (
        concat!(plugin!(), "link r/p/conf/mcp.json -> ../side/mcp.json"),
        "r/p/side",
        "mcp.json",
    ),
    (plugin!(), "r/p/img", "logo.png"),
    (plugin!(), "r/p/commands", "c.md"),
    (
        concat!(plugin!(), "link r/p/commands/c.md -> ../texts/c.md"),
        "r/p/texts",
        "c.md",
    ),
    ("skill r/a", "r/.claude-plugin", "marketplace.json"),
    (
        "skill r/a\nlink r/.claude-plugin -> side",
        "r/side",
        "marketplace.json",
    ),
];

/// Returns a version of a file. The versions differ in length.
fn content(file: &str, version: usize) -> String {
    let text = "x".repeat(version);
    match file {
        "SKILL.md" => skill_text("a", &text),
        "openai.yaml" => format!(
            "interface:\n  display_name: {text}\npolicy:\n  allow_implicit_invocation: false\n"
        ),
        "plugin.json" => format!("{{\"name\": \"p-{text}\"}}"),
        "mcp.json" => format!("{{\"mcpServers\": {{\"a\": {{\"command\": \"{text}\"}}}}}}"),
        "marketplace.json" => {
            format!("{{\"name\": \"{text}\", \"owner\": {{\"name\": \"o\"}}, \"plugins\": []}}")
        }
        _ => format!("---\ndescription: {text}\n---\n{text}\n"),
    }
}

/// Daemon that follows a tree, and a client of the daemon.
struct SoughtFile {
    fixture: Fixture,
    roots: [SelectedCapabilityRoot; 1],
    daemon: Daemon,
    replica: Replica,
}

/// Starts a daemon that finds changes by events only.
async fn start(fixture: &Fixture) -> Daemon {
    let timing = WatchTiming {
        recheck_interval: Duration::from_mins(10),
        ..WatchTiming::default()
    };
    let limits = Limits {
        max_depth: 2,
        ..Limits::default()
    };
    let setup = Setup {
        limits,
        timing,
        ..Setup::allowing([fixture.top()])
    };
    Daemon::start(setup).await
}

/// Returns the digest of the catalog of the root.
fn digest(list: &ListSkillsResponse) -> &str {
    let [root] = &*list.roots else {
        panic!("one root: {:?}", list.roots);
    };
    assert_eq!(root.watch_mode(), WatchMode::Events);
    &root.catalog_digest
}

/// Asserts that a list has the catalog of a new daemon. The skills come first: their difference is readable.
fn assert_same_catalog(list: &ListSkillsResponse, expected: &ListSkillsResponse, step: &str) {
    assert_eq!(list.skills, expected.skills, "{step}");
    let diagnostics = (&list.diagnostics, &expected.diagnostics);
    assert_eq!(digest(list), digest(expected), "{step}: {diagnostics:?}");
}

impl SoughtFile {
    async fn new(tree: &str) -> Self {
        let fixture = Fixture::new(tree);
        let roots = [selected("r", fixture.path("r"))];
        let daemon = start(&fixture).await;
        let replica = Replica::synced(&daemon, watch_request(roots.to_vec())).await;
        Self {
            fixture,
            roots,
            daemon,
            replica,
        }
    }

    /// Asserts that the stream, a list and a fresh list have the state of a new daemon.
    async fn assert_current(&mut self, is_stream_first: bool, step: &str) {
        let cold = start(&self.fixture).await;
        let mut expected = cold.list(&self.roots).await;
        // On a loaded machine, the first scan may take longer than a list waits.
        while expected.roots[0].state() == RootState::Pending {
            expected = cold.list(&self.roots).await;
        }
        cold.stop().await;

        if !is_stream_first {
            let fresh = fresh_list(&self.daemon, &self.roots).await;
            assert_same_catalog(&fresh, &expected, &format!("fresh list after {step}"));
        }
        while self.replica.digest("r") != digest(&expected) {
            let next = tokio::time::timeout(Duration::from_secs(10), self.replica.next_batch());
            assert!(next.await.is_ok(), "the stream has no event after {step}");
        }
        let list = self.daemon.list(&self.roots).await;
        assert_same_catalog(&list, &expected, &format!("list after {step}"));
        self.replica.catch_up(&self.daemon).await;
    }

    /// Creates, edits, replaces and removes a file, with `delay` between its directory and the file.
    async fn change_file(&mut self, dir: &str, file: &str, delay: Duration, round: usize) {
        let path = format!("{dir}/{file}");
        let steps = [
            "create",
            "edit",
            "replace",
            "remove",
            "remove the directory",
        ];
        for (at, step) in steps.into_iter().enumerate() {
            let version = 1 + at + round;
            match step {
                "create" => {
                    fs::create_dir_all(self.fixture.path(dir)).expect("a directory");
                    tokio::time::sleep(delay).await;
                    self.fixture.write(&path, content(file, version));
                }
                "edit" => self.fixture.write(&path, content(file, version)),
                "replace" => self.fixture.replace(&path, content(file, version)),
                "remove" => fs::remove_file(self.fixture.path(&path)).expect("the file"),
                _ => fs::remove_dir(self.fixture.path(dir)).expect("the directory"),
            }
            let step = format!("{step} {path}, {delay:?}");
            self.assert_current((at + round).is_multiple_of(2), &step)
                .await;
        }
    }
}

#[tokio::test]
async fn each_change_of_each_file_is_reported() {
    let ms = short_or_long(&[0, 20][..], &[0, 1, 5, 18, 19, 20, 21, 22, 23, 40][..]);
    // On the heap: the futures of all cases are large.
    let cases = CASES.iter().map(|(tree, dir, file)| {
        Box::pin(async move {
            let mut sought = SoughtFile::new(tree).await;
            for (round, ms) in ms.iter().enumerate() {
                let delay = Duration::from_millis(*ms);
                sought.change_file(dir, file, delay, round).await;
            }
            sought.daemon.stop().await;
        })
    });
    // Each case has two daemons, and all tests of the user share 128 inotify instances. The kernel frees an
    // instance some time after it is closed.
    let mut running = tokio_stream::iter(cases).buffer_unordered(10);
    while running.next().await.is_some() {}
}
