//! `caproot fleet list`: one result for each executor, however it fails.

use std::process::Stdio;

use super::TestFleet;
use crate::commands::terminal::run_on_terminal;
use crate::harness::in_time;
use crate::harness::process::caproot;
use crate::harness::test_servers::{silent_listener, unused_address};

/// Adds an executor that does not answer to the file.
fn add_silent(fleet: &TestFleet, silent: &str) {
    fleet.write(&[
        ("dead", unused_address()),
        ("one", fleet.one.address.clone()),
        ("silent", silent.to_owned()),
        ("two", fleet.two.address.clone()),
        ("wrong", fleet.two.address.clone()),
    ]);
}

/// Words of the first two columns of a table.
fn first_columns(table: &str) -> Vec<(&str, &str)> {
    let pair = |line| {
        let mut words = str::split_whitespace(line);
        (
            words.next().expect("a word"),
            words.next().expect("two words"),
        )
    };
    table.lines().map(pair).collect()
}

const REASONS: [&str; 3] = [
    "error[NO_DAEMON] dead: no daemon answers at tcp:127.",
    "error[TRY_LATER] silent: no answer within 1s",
    "error[WRONG_ENVIRONMENT] wrong: the executor has the environment \"two\", and not \"wrong\"",
];

#[tokio::test]
async fn list_shows_the_state_of_each_executor() {
    let fleet = TestFleet::start().await;
    let (_listener, silent) = silent_listener();
    add_silent(&fleet, &silent);
    let output = fleet.run("fleet list FLEET").await;
    assert_eq!(output.code, Some(1), "{}", output.stderr);
    let lines: Vec<_> = output.text().lines().collect();
    let head: Vec<_> = lines[0].split_whitespace().collect();
    assert_eq!(
        head,
        [
            "ENVIRONMENT",
            "STATE",
            "VERSION",
            "CONNECT",
            "ROOTS",
            "AGE",
            "CATALOGS"
        ]
    );
    let one: Vec<_> = lines[2].split_whitespace().collect();
    assert_eq!(one[..3], ["one", "SERVING", env!("CARGO_PKG_VERSION")]);
    assert!(one[3].parse::<f64>().is_ok_and(|time| time >= 0.0));
    assert_eq!(one[4..7], ["ms", "1", "root"]);
    let expected = [
        ("silent", "TRY_LATER"),
        ("two", "SERVING"),
        ("wrong", "WRONG_ENVIRONMENT"),
    ];
    assert_eq!(first_columns(output.text())[3..], expected);
    let reported: Vec<_> = output.stderr.lines().collect();
    assert_eq!(reported.len(), REASONS.len() + 1, "{reported:#?}");
    for (line, reason) in reported.iter().zip(REASONS) {
        assert!(line.starts_with(reason), "{line}");
    }
    assert_eq!(reported[3], "2 of 5 executors serving");

    let output = fleet.run("fleet list FLEET --output json").await;
    assert_eq!((output.code, output.stderr.as_str()), (Some(1), ""));
    let answer = output.json();
    let executors = answer["executors"].as_array().expect("a list");
    assert_eq!(executors[0]["state"], "NO_DAEMON");
    assert!(executors[0]["error"].is_string(), "{answer}");
    // No connection to an executor that has the environment.
    for failed in [0, 2, 4] {
        assert_eq!(executors[failed].get("connectMs"), None, "{answer}");
    }
    let connect_time = executors[1]["connectMs"].as_f64();
    assert!(connect_time.is_some_and(|time| time >= 0.0), "{answer}");
    assert_eq!(
        executors[3]["endpoint"],
        format!("tcp:{}", fleet.two.address)
    );

    // Named executors, in this order.
    let output = fleet.run("fleet list FLEET two one").await.succeeded();
    assert_eq!(
        first_columns(output.text())[1..],
        [("two", "SERVING"), ("one", "SERVING")]
    );
    let output = fleet.run("fleet list FLEET one --timeout 30s").await;
    assert_eq!(output.succeeded().stderr, "1 of 1 executor serving\n");

    let output = fleet
        .run("fleet list FLEET one two --output json")
        .await
        .succeeded();
    let answer = output.json();
    assert_eq!(answer["executors"][1]["environmentId"], "two");
    let digest = |executor: usize| {
        let root = &answer["executors"][executor]["roots"][0];
        assert_eq!(root["state"], "READY", "{answer}");
        root["catalogDigest"].as_str().expect("a digest").to_owned()
    };
    assert_ne!(digest(0), digest(1), "other skills have another digest");
    assert!(
        lines[2].ends_with(&digest(0)["sha256:".len()..][..12]),
        "{}",
        lines[2]
    );
    for key in ["startTime", "epoch", "build", "endpoint"] {
        assert!(answer["executors"][0][key].is_string(), "{key}: {answer}");
    }

    // A root that is not ready is a problem of a serving executor.
    std::fs::remove_dir_all(fleet.fixture.path("two")).expect("removed");
    loop {
        let output = fleet.run("fleet list FLEET two").await;
        if output.code == Some(0) {
            continue;
        }
        assert_eq!(output.code, Some(1), "{}", output.stderr);
        assert!(
            output.text().contains("1 root (1 not ready)"),
            "{}",
            output.text()
        );
        let problem = "warning[UNAVAILABLE NOT_FOUND] two: root two\n";
        assert!(output.stderr.starts_with(problem), "{}", output.stderr);
        break;
    }
    fleet.stop().await;
}

#[tokio::test]
async fn targets_that_cannot_be_found_have_their_exit_codes() {
    let fleet = TestFleet::start().await;
    for command in ["fleet list", "watch --fleet"] {
        let output = fleet.run(&format!("{command} FLEET one twoo")).await;
        assert_eq!(
            (output.code, output.text()),
            (Some(2), ""),
            "{}",
            output.stderr
        );
        let says = "no executor for the environment \"twoo\"; did you mean two?";
        assert!(output.stderr.contains(says), "{}", output.stderr);
        fleet.fixture.write("empty.yaml", "executors: {}");
        let empty = fleet.fixture.path("empty.yaml");
        let output = fleet.run(&format!("{command} {}", empty.display())).await;
        assert_eq!(
            (output.code, output.text()),
            (Some(78), ""),
            "{}",
            output.stderr
        );
        assert!(
            output.stderr.contains("empty.yaml has no executors"),
            "{}",
            output.stderr
        );
        let output = fleet.run(&format!("{command} /nonexistent")).await;
        assert_eq!(
            (output.code, output.text()),
            (Some(78), ""),
            "{}",
            output.stderr
        );
        assert!(
            output.stderr.contains("/nonexistent: does not exist"),
            "{}",
            output.stderr
        );
    }
    fleet.stop().await;
}

/// Progress on a terminal counts the executors after a second.
#[tokio::test]
async fn a_terminal_shows_how_many_executors_answered() {
    let fleet = TestFleet::start().await;
    let (_listener, silent) = silent_listener();
    let mut command = caproot(["fleet", "list", "--timeout", "3s"]);
    add_silent(&fleet, &silent);
    command
        .arg(&fleet.file)
        .args(["one", "silent"])
        .env("TERM", "xterm");
    let screen = tokio::task::spawn_blocking(move || {
        run_on_terminal(command, 80, |command, terminal| {
            command.stdout(Stdio::null()).stderr(terminal);
        })
    });
    let (screen, ended) = in_time(screen).await.expect("no panic");
    assert_eq!(ended.code(), Some(1));
    for part in ["1 of 2 executors done", "1 of 2 executors serving"] {
        assert!(screen.contains(part), "{part}: {screen}");
    }
    fleet.stop().await;
}
