//! `caproot watch --fleet`: a line for each state, and for each change of a state.

use std::collections::BTreeSet;
use std::fs::File;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use super::TestFleet;
use crate::commands::terminal::run_on_terminal_until;
use crate::harness::in_time;
use crate::harness::process::{Process, caproot};
use crate::orchestrator::start_daemon;

struct FleetWatch(Process);

impl FleetWatch {
    fn start(fleet: &TestFleet, more: &[&str]) -> Self {
        let mut command = caproot(["watch", "--interval", "50ms"]);
        command.arg("--fleet").arg(&fleet.file).args(more);
        Self(Process::spawn(command))
    }

    /// Reads lines of JSON until an executor has a state. Returns that line.
    async fn wait_for(&mut self, id: &str, state: &str) -> Value {
        loop {
            let line = self.0.line().await;
            let line: Value = serde_json::from_str(&line).expect("one JSON object a line");
            assert!(line["time"].is_string(), "{line}");
            if line["environmentId"] == id && line["state"] == state {
                return line;
            }
        }
    }

    /// Reads lines of text until one of them is the expected one.
    async fn wait_for_text(&mut self, is_expected: impl Fn(&str) -> bool) {
        loop {
            let line = self.0.line().await;
            let has_word = |word: &str| line.split_whitespace().any(|other| other == word);
            assert_eq!(has_word("wrong"), has_word("WRONG_ENVIRONMENT"), "{line}");
            if is_expected(&line) {
                return;
            }
        }
    }

    /// Reads lines until an executor serves its root with a state. Other states may come before: a
    /// scan takes time, and a directory is emptied before it is removed.
    async fn wait_for_root(&mut self, id: &str, root_state: &str) {
        while self.wait_for(id, "SERVING").await["roots"][0]["state"] != root_state {}
    }
}

#[tokio::test]
async fn each_change_of_a_state_is_a_line() {
    let mut fleet = TestFleet::start().await;
    let mut watch = FleetWatch::start(&fleet, &["--output", "json"]);
    // The states of different executors come in any order, and a root may change meanwhile.
    let mut states = BTreeSet::new();
    while states.len() < 4 {
        let line: Value = serde_json::from_str(&watch.0.line().await).expect("JSON");
        states.insert(format!("{} {}", line["environmentId"], line["state"]).replace('"', ""));
    }
    let expected = [
        "dead NO_DAEMON",
        "one SERVING",
        "two SERVING",
        "wrong WRONG_ENVIRONMENT",
    ];
    assert!(states.iter().eq(expected), "{states:?}");

    let address = fleet.two.address.clone();
    fleet.two.stop().await;
    let line = watch.wait_for("two", "NO_DAEMON").await;
    assert!(
        line["error"]
            .as_str()
            .is_some_and(|why| why.contains("no daemon answers")),
        "{line}"
    );
    fleet.two = start_daemon("two", fleet.fixture.path("two"), Some(&address)).await;
    watch.wait_for_root("two", "READY").await;

    std::fs::remove_dir_all(fleet.fixture.path("one")).expect("removed");
    watch.wait_for_root("one", "UNAVAILABLE NOT_FOUND").await;
    assert_eq!(watch.0.exit_on(Signal::TERM).await.code, Some(0));
    fleet.stop().await;
}

/// Executors come and go with the entries of the file. A named executor is watched until the end.
#[tokio::test]
async fn changes_of_the_file_are_followed() {
    let fleet = TestFleet::start().await;
    let one = ("one", fleet.one.address.clone());
    let two = ("two", fleet.two.address.clone());
    fleet.write(std::slice::from_ref(&one));
    let mut all = FleetWatch::start(&fleet, &["--output", "json"]);
    all.wait_for("one", "SERVING").await;
    fleet.write(&[one.clone(), two.clone()]);
    all.wait_for("two", "SERVING").await;

    let mut command = caproot(["watch", "--interval", "50ms", "--output", "json"]);
    command.arg("--fleet").arg(&fleet.file).arg("two");
    let mut named = FleetWatch(Process::spawn(command));
    named.wait_for("two", "SERVING").await;
    fleet.write(std::slice::from_ref(&one));
    for watch in [&mut all, &mut named] {
        let line = watch.wait_for("two", "REMOVED").await;
        assert_eq!(line.get("error"), None, "{line}");
    }
    fleet.write(&[one, two.clone()]);
    all.wait_for("two", "SERVING").await;
    named.wait_for("two", "SERVING").await;
    // The entry names another daemon now.
    fleet.write(&[("one", two.1.clone()), two]);
    let line = all.wait_for("one", "WRONG_ENVIRONMENT").await;
    assert!(
        line["error"]
            .as_str()
            .is_some_and(|why| why.contains("\"two\"")),
        "{line}"
    );
    for watch in [all, named] {
        assert_eq!(watch.0.exit_on(Signal::TERM).await.code, Some(0));
    }
    fleet.stop().await;
}

/// On a terminal, the lines are drawn again at the same place.
#[tokio::test]
async fn a_terminal_shows_one_line_for_each_executor() {
    let fleet = TestFleet::start().await;
    let mut command = caproot(["watch", "--interval", "50ms"]);
    command.arg("--fleet").arg(&fleet.file).env("TERM", "xterm");

    let screen = tokio::task::spawn_blocking(move || {
        let attach = |command: &mut Command, terminal: File| {
            command.stdout(terminal).stderr(Stdio::null());
        };
        let ids = ["dead ", "one ", "two ", "wrong "];
        let shows_all = |printed: &str| ids.iter().all(|id| printed.contains(id));
        run_on_terminal_until(command, 80, attach, shows_all)
    });
    let (screen, ended) = in_time(screen).await.expect("no panic");
    assert_eq!(ended.code(), Some(0), "{screen:?}");
    // Moves the cursor up or clears a line (ECMA-48).
    assert!(
        screen.contains("\x1b[2K") || screen.contains("\x1b[1A"),
        "{screen:?}"
    );
    for state in ["NO_DAEMON", "SERVING", "WRONG_ENVIRONMENT"] {
        assert!(screen.contains(state), "{state}: {screen:?}");
    }
    fleet.stop().await;
}

#[tokio::test]
async fn text_has_the_version_and_the_roots() {
    let fleet = TestFleet::start().await;
    let mut watch = FleetWatch::start(&fleet, &[]);
    let serving = format!("one SERVING {}, 1 root", env!("CARGO_PKG_VERSION"));
    let serving: Vec<_> = serving.split(' ').collect();
    watch
        .wait_for_text(|line| line.split_whitespace().skip(1).eq(serving.iter().copied()))
        .await;
    fleet
        .fixture
        .write("one/new/SKILL.md", "---\ndescription: New.\n---\n");
    watch
        .wait_for_text(|line| line.ends_with(", changed catalog of one"))
        .await;
    assert_eq!(watch.0.exit_on(Signal::INT).await.code, Some(0));
    fleet.stop().await;
}
