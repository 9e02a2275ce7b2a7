//! Uses of skills: events of a session, and the file of `caproot call`.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use caproot_session::{ForkScope, UsageEvent, UsageKind, UsageWatch};
use serde_json::{Value, json};

use super::call_command::CallProcess;
use super::session::{call, session};
use super::{read_arguments, serve_tree};
use crate::harness::process::{Process, client_command, program, run_command};
use crate::harness::{Daemon, in_time};

const PAGE: &str = include_str!("../../../docs/orchestrate/usage.md");

async fn next_event(usage: &mut UsageWatch) -> UsageEvent {
    let event = in_time(usage.next()).await;
    event.expect("an open session")
}

#[tokio::test]
async fn each_use_is_an_event_with_the_digest_of_the_skill() {
    let (_fixture, daemon) = serve_tree("r", "skill r/a\nfile r/a/x.md\n| hello\nskill r/b").await;
    let session = session(&[("r", &daemon.address)]).await;
    let mut usage = session.watch_usage();
    let mut of_fork = session.fork(ForkScope::All).expect("open").watch_usage();

    // A list is shown twice, and the skills are listed once.
    call(&session, "skills.list", json!({})).await;
    let text = session.instruction_text(8_000);
    for name in ["a", "b"] {
        let event = next_event(&mut usage).await;
        assert_eq!((event.kind, event.name.as_str()), (UsageKind::Listed, name));
        let listed = text.skills.iter().find(|placed| placed.skill.name == name);
        let digest = &listed.expect("a listed skill").skill.digest;
        assert!(
            digest.starts_with("sha256:") && event.digest == *digest,
            "{event:?}"
        );
        assert_eq!((event.session.as_str(), event.lost), (session.id(), 0));
        assert_eq!((event.bytes, event.duration), (None, None));
    }

    call(
        &session,
        "skills.read",
        read_arguments("r", "skill://r/a", "x.md"),
    )
    .await;
    let unread = read_arguments("r", "skill://r/a", "none.md");
    assert!(!in_time(session.call("skills.read", &unread)).await.success);
    let unlisted = read_arguments("r", "skill://r/none", "");
    assert!(
        !in_time(session.call("skills.read", &unlisted))
            .await
            .success
    );
    in_time(session.inject(&"use $b and $none".into())).await;
    for (kind, name, outcome) in [
        (UsageKind::Read, "a", "OK"),
        (UsageKind::Read, "a", "RESOURCE_NOT_FOUND"),
        (UsageKind::Injected, "b", "OK"),
    ] {
        let event = next_event(&mut usage).await;
        assert_eq!((event.kind, event.name.as_str()), (kind, name));
        assert_eq!(event.package, format!("skill://r/{name}"));
        assert_eq!(event.outcome, outcome);
        assert!(
            event.bytes > Some(20) && event.duration.is_some(),
            "{event:?}"
        );
    }

    // The session ends, and its last events come.
    call(
        &session,
        "skills.read",
        read_arguments("r", "skill://r/b", ""),
    )
    .await;
    let _ = session.close(false).await;
    assert_eq!(next_event(&mut usage).await.name, "b");
    assert_eq!(in_time(usage.next()).await, None);
    assert_eq!(
        in_time(of_fork.next()).await,
        None,
        "a fork has its own uses"
    );
    daemon.stop().await;
}

fn call_with_usage(daemon: &Daemon, file: &Path) -> Command {
    let mut command = client_command(daemon, "call --usage");
    command.arg(file);
    command
}

fn read_lines(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).expect("the file of --usage");
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_has_a_line_for_each_use_of_each_session() {
    let (fixture, daemon) = serve_tree("local", "skill r/pdf\nskill r/log").await;
    let file = fixture.path("usage.jsonl");
    let mut process = Process::spawn(call_with_usage(&daemon, &file));
    for request in [
        json!({"id": 1, "method": "instructions"}),
        json!({"id": 2, "method": "fork", "exclude": ["name:log"]}),
    ] {
        process.send_line(request.to_string().as_bytes());
    }
    let answers = [process.line().await, process.line().await];
    let answers = answers.map(|line| serde_json::from_str::<Value>(&line).expect("JSON"));
    let answer = answers.iter().find(|answer| answer["id"] == 2);
    let fork = answer.expect("an answer")["result"]["session"].clone();
    let inject = json!({"id": 3, "method": "inject", "text": "use $pdf and $log", "session": fork});
    process.send_line(inject.to_string().as_bytes());
    process.line().await;
    assert_eq!(process.exit().await.code, Some(0));

    let lines = read_lines(&file);
    let uses: Vec<_> = lines
        .iter()
        .map(|line| (&line["kind"], &line["name"]))
        .collect();
    let listed = json!("listed");
    assert_eq!(uses.len(), 3, "{lines:?}");
    assert!(uses.contains(&(&listed, &json!("pdf"))) && uses.contains(&(&listed, &json!("log"))));
    let injected = lines
        .iter()
        .find(|line| line["kind"] == "injected")
        .expect("a line");
    assert_eq!(
        (&injected["name"], &injected["session"]),
        (&json!("pdf"), &fork)
    );
    let keys: Vec<_> = injected.as_object().expect("an object").keys().collect();
    let expected = [
        "authority",
        "bytes",
        "digest",
        "kind",
        "name",
        "outcome",
        "package",
        "seconds",
        "session",
        "time",
    ];
    assert_eq!(keys, expected, "no text");
    let mode = fs::metadata(&file).expect("the file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    // The next process appends.
    let mut process = CallProcess::start(call_with_usage(&daemon, &file));
    process.call("skills_list", &json!({})).await;
    assert_eq!(process.end().await, Some(0));
    assert_eq!(read_lines(&file).len(), 5);
    daemon.stop().await;
}

#[tokio::test]
async fn a_file_that_cannot_be_opened_is_an_error() {
    let (fixture, daemon) = serve_tree("local", "skill r/pdf").await;
    let pipe = fixture.path("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).expect("a pipe");
    for (path, part) in [
        (fixture.path("none/usage.jsonl"), "No such file"),
        (fixture.path("r"), "Is a directory"),
        (pipe, "cannot open"),
    ] {
        let mut command = client_command(&daemon, "call --usage");
        command.arg(path);
        run_command(command).await.exited_with(78, part);
    }
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_gets_the_uses_of_a_session_as_lines() {
    let (_fixture, daemon) = serve_tree("local", "skill r/pdf\nskill r/log").await;
    let mut process = CallProcess::start(client_command(&daemon, "call"));
    let fork = process
        .request(json!({"method": "fork", "include": ["name:pdf"], "manual": ["name:pdf"]}))
        .await;
    let fork = fork["result"]["session"].clone();
    let watched = process
        .request(json!({"method": "watch_usage", "session": fork}))
        .await;
    assert_eq!(watched["result"]["session"], fork, "{watched}");

    // The fork has one skill, which is hidden from models, and a person may still name the skill.
    let text = process
        .request(json!({"method": "instructions", "session": fork}))
        .await;
    assert_eq!(text["result"]["text"], "", "{text}");
    assert_eq!(text["result"]["hidden"], 1);
    let list = process
        .request(json!({"method": "list", "session": fork}))
        .await;
    assert_eq!(list["result"], json!([]));
    process.send(&json!({"id": 1, "method": "inject", "text": "$pdf $log", "session": fork}));
    let lines = [process.next().await, process.next().await];
    let event = lines
        .iter()
        .find(|line| line["event"] == "usage")
        .expect("an event");
    assert_eq!(
        (&event["kind"], &event["name"]),
        (&json!("injected"), &json!("pdf"))
    );
    assert_eq!(event["session"], fork);
    let answer = lines
        .iter()
        .find(|line| line["id"] == 1)
        .expect("an answer");
    assert_eq!(
        answer["result"]["fragments"].as_array().map(Vec::len),
        Some(1)
    );
    assert_eq!(process.end().await, Some(0));
    daemon.stop().await;
}

fn prepend_to_path(dir: &Path) -> OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = [dir.to_owned()]
        .into_iter()
        .chain(std::env::split_paths(&path));
    std::env::join_paths(dirs).expect("directories without a colon")
}

/// The program of the page names the skills that no session used.
#[tokio::test]
async fn the_program_of_the_page_finds_skills_without_a_use() {
    if program("python3").arg("--version").output().is_err() {
        println!("SKIPPED: python3 does not start");
        return;
    }
    let (_, script) = PAGE
        .split_once("```python\n# unused.py\n")
        .expect("a program");
    let (script, _) = script.split_once("```").expect("the end of the program");
    let (fixture, daemon) = serve_tree("local", "skill r/pdf\nskill r/log\nskill r/old").await;
    fixture.write("unused.py", script);
    // One use is older than 30 days.
    let old = r#"{"time":"2020-01-01T00:00:00.000Z","kind":"read","package":"skill://local/old","outcome":"OK"}"#;
    fixture.write("usage.jsonl", format!("{old}\n"));

    let mut command = client_command(&daemon, "call --usage");
    let mut process = CallProcess::start(command.arg(fixture.path("usage.jsonl")));
    process.call("skills_list", &json!({})).await;
    let arguments = json!({"package": "skill://local/pdf"});
    process.call("skills_read", &arguments).await;
    assert_eq!(process.end().await, Some(0));

    let caproot_dir = Path::new(env!("CARGO_BIN_EXE_caproot")).parent();
    let caproot_dir = caproot_dir.expect("a directory");
    let mut python = program("python3");
    python
        .arg("unused.py")
        .current_dir(fixture.path("."))
        .env("PATH", prepend_to_path(caproot_dir))
        .env("CAPROOT_ENDPOINT", format!("tcp:{}", daemon.address));
    let output = run_command(python).await.succeeded();
    assert_eq!(output.text(), "skill://local/log\nskill://local/old\n");
    daemon.stop().await;
}
