//! `caproot fleet watch`: a line for each state, and for each change of a state.

use rustix::process::Signal;
use serde_json::Value;

use super::TestFleet;
use crate::orchestrator::start_daemon;
use crate::process::{Process, caproot};

struct FleetWatch(Process);

impl FleetWatch {
    fn start(fleet: &TestFleet, more: &[&str]) -> Self {
        let mut command = caproot(["fleet", "watch", "--interval", "50ms"]);
        command.args(more).arg(&fleet.file);
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
}

#[tokio::test]
async fn each_change_of_a_state_is_a_line() {
    let mut fleet = TestFleet::start().await;
    let mut watch = FleetWatch::start(&fleet, &["--output", "json"]);
    // The states of different executors come in any order.
    let mut states = Vec::new();
    for _ in 0..4 {
        let line: Value = serde_json::from_str(&watch.0.line().await).expect("JSON");
        states.push(format!("{} {}", line["environmentId"], line["state"]).replace('"', ""));
    }
    states.sort();
    let expected = ["dead NO_DAEMON", "one SERVING", "two SERVING", "wrong WRONG_ENVIRONMENT"];
    assert_eq!(states, expected);

    let address = fleet.two.address.clone();
    fleet.two.stop().await;
    let line = watch.wait_for("two", "NO_DAEMON").await;
    assert!(line["error"].as_str().is_some_and(|why| why.contains("no daemon answers")), "{line}");
    fleet.two = start_daemon("two", fleet.fixture.path("two"), Some(&address)).await;
    let line = watch.wait_for("two", "SERVING").await;
    assert_eq!(line["roots"][0]["state"], "READY", "{line}");

    std::fs::remove_dir_all(fleet.fixture.path("one")).expect("removed");
    let line = watch.wait_for("one", "SERVING").await;
    assert_eq!(line["roots"][0]["state"], "UNAVAILABLE NOT_FOUND", "{line}");
    assert_eq!(watch.0.exit_on(Signal::TERM).await.code, Some(0));
    fleet.stop().await;
}

#[tokio::test]
async fn text_has_the_version_and_the_roots() {
    let fleet = TestFleet::start().await;
    let mut watch = FleetWatch::start(&fleet, &["--timeout", "20s"]);
    let version = env!("CARGO_PKG_VERSION");
    loop {
        let line = watch.0.line().await;
        let words: Vec<_> = line.split_whitespace().skip(1).collect();
        match words[0] {
            "one" if line.ends_with(", changed catalog of one") => break,
            "one" => {
                assert_eq!(words, ["one", "SERVING", &format!("{version},"), "1", "root"]);
                fleet.fixture.write("one/new/SKILL.md", "---\ndescription: New.\n---\n");
            }
            "wrong" => assert_eq!(words[1], "WRONG_ENVIRONMENT", "{line}"),
            _ => {}
        }
    }
    assert_eq!(watch.0.exit_on(Signal::INT).await.code, Some(0));
    fleet.stop().await;
}
