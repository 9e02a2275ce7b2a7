//! Runs `caproot watch` as a process: lines, JSON, a restart of the daemon, and the exit.

use std::collections::BTreeMap;
use std::fs;
use std::io::BufRead as _;

use caproot_client::json;
use caproot_core::proto::caproot::v1::WatchSkillsResponse;
use caproot_core::proto::caproot::v1::watch_skills_response::Event;
use rustix::process::Signal;

use crate::harness::fixture::Fixture;
use crate::harness::process::{Process, caproot};
use crate::harness::watch_harness::skill_text;

/// Starts `caproot watch`.
fn start_watch(endpoint: &str, flags: &[&str]) -> Process {
    Process::spawn(caproot(["watch", "--endpoint", endpoint]).args(flags))
}

/// Returns the next line without its time, which must be valid.
async fn untimed_line(watching: &mut Process) -> String {
    let line = watching.line().await;
    let (time, rest) = line.split_once(' ').expect("a time and more");
    let numbers: Vec<u8> = time
        .split(':')
        .map(|n| n.parse().expect("a number"))
        .collect();
    assert!(
        matches!(numbers[..], [0..24, 0..60, 0..61]) && time.len() == 8,
        "{line}"
    );
    rest.to_owned()
}

/// Asserts the next lines without their times. The end `…` stands for the rest of a line.
async fn assert_lines(watching: &mut Process, expected: &[&str]) {
    for expected in expected {
        let line = untimed_line(watching).await;
        match expected.strip_suffix('…') {
            Some(start) => assert!(line.starts_with(start), "{line}, not {expected}"),
            None => assert_eq!(line, *expected),
        }
    }
}

/// Lines of a watch of `tree` until it is synced.
const FIRST_LINES: [&str; 2] = ["+ a  skill://r/a  Does a.", "= synced at revision …"];

/// Daemon that publishes `r` on a socket at which it can be started again.
fn serve_on_socket(fixture: &Fixture) -> Process {
    let listen = format!("unix:{}", fixture.path("run/c.sock").display());
    let root = format!("r={}", fixture.path("r").display());
    Process::start(caproot(["serve", "--root", &root, "--listen", &listen]))
}

fn tree() -> Fixture {
    Fixture::new("dir run\nmode 0700 run\nskill r/a")
}

#[tokio::test]
async fn each_change_is_printed_until_the_command_is_interrupted() {
    let fixture = tree();
    let serving = serve_on_socket(&fixture);
    let mut watching = start_watch(serving.endpoint(), &[]);
    assert_lines(&mut watching, &FIRST_LINES).await;

    let rename = |from: &str, to: &str| {
        fs::rename(fixture.path(from), fixture.path(to)).expect("rename");
    };
    let replace = |text: String| fixture.replace("r/b/SKILL.md", text);
    fixture.write("new/SKILL.md", skill_text("b", "Sees\u{202e} you."));
    let changes: [(&dyn Fn(), &[&str]); 7] = [
        (
            &|| rename("new", "r/b"),
            &[
                r"+ b  skill://r/b  Sees\u{202e} you.",
                "! warning[HIDDEN_TEXT] skill://r/b/SKILL.md:3:18: …",
            ],
        ),
        (
            &|| replace(skill_text("b", "Another.")),
            &["~ b  skill://r/b  Another."],
        ),
        (
            &|| replace("---\nname: b\ndescription: \"open\n---\n".to_owned()),
            &["~ b  skill://r/b  stale: error[YAML_SYNTAX] line …"],
        ),
        (
            &|| replace(skill_text("b", "Whole again.")),
            &["~ b  skill://r/b  Whole again."],
        ),
        (&|| rename("r/b", "gone"), &["- b  skill://r/b  DELETED"]),
        (
            &|| rename("r", "elsewhere"),
            &[
                "! root r: UNAVAILABLE NOT_FOUND …",
                "- a  skill://r/a  ROOT_UNAVAILABLE",
            ],
        ),
        (
            &|| rename("elsewhere", "r"),
            &["! root r: READY", "+ a  skill://r/a  Does a."],
        ),
    ];
    for (change, lines) in changes {
        change();
        assert_lines(&mut watching, lines).await;
    }

    assert_eq!(watching.exit_on(Signal::INT).await.code, Some(0));
    serving.stop().await;
}

#[tokio::test]
async fn json_lines_are_the_events_of_the_stream() {
    let fixture = tree();
    let serving = serve_on_socket(&fixture);
    let mut watching = start_watch(serving.endpoint(), &["--output", "json"]);
    let mut skills = BTreeMap::new();
    let mut until = async |whole: &[(&str, &str)]| {
        loop {
            let value = serde_json::from_str(&watching.line().await).expect("JSON");
            let response: WatchSkillsResponse = json::parse(value).expect("an event");
            match response.event.expect("an event") {
                Event::Delta(delta) => {
                    for gone in delta.removed {
                        assert!(skills.remove(&gone.package).is_some());
                    }
                    skills.extend(
                        delta
                            .upserted
                            .into_iter()
                            .map(|s| (s.package, s.description)),
                    );
                }
                Event::Synced(_) => {
                    let now: Vec<_> = skills
                        .iter()
                        .map(|(p, d)| (p.as_str(), d.as_str()))
                        .collect();
                    if now == whole {
                        return;
                    }
                }
                Event::Bookmark(_) => panic!("no bookmarks were requested"),
                Event::Reset(_)
                | Event::RootStatus(_)
                | Event::Diagnostics(_)
                | Event::Readiness(_) => {}
            }
        }
    };
    until(&[("skill://r/a", "Does a.")]).await;
    fixture.write("r/b/SKILL.md", skill_text("b", "Does b."));
    until(&[("skill://r/a", "Does a."), ("skill://r/b", "Does b.")]).await;
    fs::remove_dir_all(fixture.path("r/a")).expect("remove");
    until(&[("skill://r/b", "Does b.")]).await;
    assert_eq!(watching.exit_on(Signal::INT).await.code, Some(0));
    serving.stop().await;
}

#[tokio::test]
async fn the_command_survives_a_restart_of_the_daemon() {
    let fixture = tree();
    let serving = serve_on_socket(&fixture);
    let mut watching = start_watch(serving.endpoint(), &[]);
    assert_lines(&mut watching, &FIRST_LINES).await;
    let endpoint = serving.endpoint().to_owned();
    serving.stop().await;
    let stderr_line = watching.log_line().await;
    assert!(stderr_line.starts_with("caproot: ") && stderr_line.contains("reconnecting"));

    fixture.write("r/b/SKILL.md", skill_text("b", "Came meanwhile."));
    let serving = serve_on_socket(&fixture);
    assert_eq!(serving.endpoint(), endpoint);
    let resumed = loop {
        let stderr_line = watching.log_line().await;
        if stderr_line.contains("reconnected;") {
            break stderr_line;
        }
    };
    assert!(
        resumed.contains("EPOCH_CHANGED"),
        "the stream resumes with the old token: {resumed}"
    );
    // The lines have only the differences.
    let resumed = [
        "+ b  skill://r/b  Came meanwhile.",
        "= synced at revision …",
    ];
    assert_lines(&mut watching, &resumed).await;
    fixture.write("r/b/SKILL.md", skill_text("b", "Goes on."));
    assert_lines(&mut watching, &["~ b  skill://r/b  Goes on."]).await;
    serving.stop().await;
    // The command runs until its user ends it.
    assert!(watching.is_running());
    assert_eq!(watching.exit_on(Signal::INT).await.code, Some(0));
}

#[tokio::test]
async fn a_closed_stdout_ends_the_command_without_a_change() {
    let fixture = tree();
    let serving = serve_on_socket(&fixture);
    let command = caproot(["watch", "--endpoint", serving.endpoint()]);
    let (watching, stdout) = Process::spawn_unread(command);
    let line = stdout.lines().next().expect("a line").expect("text");
    assert!(line.contains(" + a "), "{line}");
    let output = watching.exit().await;
    assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""));
    serving.stop().await;
}

#[tokio::test]
async fn permanent_errors_are_not_retried() {
    let fixture = tree();
    let serving = serve_on_socket(&fixture);
    fs::write(fixture.path("roots.json"), r#"[{"id":".."}]"#).expect("write");
    let file = fixture.path("roots.json");
    let flags = ["--selected", file.to_str().expect("UTF-8")];
    let mut refused = start_watch(serving.endpoint(), &flags);
    assert!(refused.log_line().await.contains("INVALID_ARGUMENT"));
    assert_eq!(refused.exit().await.code, Some(4));
    let endpoint = serving.endpoint().to_owned();
    serving.stop().await;
    assert_eq!(
        start_watch(&endpoint, &[]).exit().await.code,
        Some(3),
        "no daemon at the start"
    );
}
