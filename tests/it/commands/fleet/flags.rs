//! `--fleet FILE --environment-id ID` on each client command.

use rustix::process::Signal;
use serde_json::json;

use super::TestFleet;
use crate::harness::process::{Process, caproot, run_command};
use crate::harness::test_servers::{silent_listener, unused_address};
use crate::orchestrator::call_command::CallProcess;

/// Words of each command that ends by itself, with a package of the environment `one`.
const COMMANDS: [&str; 7] = [
    "status",
    "resolve --published",
    "resolve",
    "list",
    "resources skill://one/a",
    "read skill://one/a",
    "pull skill://one/a --into PULLED",
];

#[tokio::test]
async fn each_command_uses_the_named_executor() {
    let fleet = TestFleet::start().await;
    let pulled = fleet
        .fixture
        .path("pulled")
        .to_str()
        .expect("UTF-8")
        .to_owned();
    for words in COMMANDS {
        let words = words.replace("PULLED", &pulled);
        let words = format!("{words} --fleet FLEET --environment-id one");
        fleet.run(&words).await.succeeded();
    }
    let list = |id: &str| format!("list --output json --fleet FLEET --environment-id {id}");
    let names = async |id: &str| {
        let answer = fleet.run(&list(id)).await.succeeded().json();
        let skills = answer["skills"].as_array().expect("skills").clone();
        skills
            .iter()
            .map(|skill| skill["name"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(names("one").await, ["a", "b"]);
    assert_eq!(names("two").await, ["c"]);
    let status = fleet
        .run("status --fleet FLEET --environment-id two --output json")
        .await;
    assert_eq!(
        status.succeeded().json()["executor"]["environmentIds"],
        json!(["two"])
    );
    fleet.stop().await;
}

#[tokio::test]
async fn failures_of_the_executor_have_their_exit_codes() {
    let fleet = TestFleet::start().await;
    let (_listener, silent) = silent_listener();
    fleet.write(&[
        ("dead", unused_address()),
        ("one", fleet.one.address.clone()),
        ("silent", silent.clone()),
        ("wrong", fleet.two.address.clone()),
    ]);
    for words in COMMANDS.into_iter().chain(["watch", "call", "mcp"]) {
        for (id, code, says) in [
            ("dead", 3, "no daemon answers at tcp:127."),
            (
                "wrong",
                4,
                "WRONG_ENVIRONMENT: the executor has the environment \"two\", and not",
            ),
            (
                "onee",
                2,
                "fleet.yaml has no executor for the environment \"onee\"; did you mean one?",
            ),
            ("zzz", 2, "\"zzz\"; it has dead, one, silent, wrong"),
        ] {
            if (words, id) == ("mcp", "dead") {
                // The server waits for its executor.
                continue;
            }
            let output = fleet
                .run(&format!("{words} --fleet FLEET --environment-id {id}"))
                .await;
            assert_eq!(
                (output.code, output.text()),
                (Some(code), ""),
                "{words}: {output:?}"
            );
            assert!(
                output.stderr.contains(says),
                "{words} of {id}: {}",
                output.stderr
            );
            assert!(
                !output.stderr.contains("--endpoint"),
                "{words} of {id}: {}",
                output.stderr
            );
        }
    }
    let output = fleet
        .run("list --fleet FLEET --environment-id silent")
        .await;
    assert_eq!(
        (output.code, output.text()),
        (Some(6), ""),
        "{}",
        output.stderr
    );
    assert!(
        output.stderr.contains("no response within 1s"),
        "{}",
        output.stderr
    );
    fleet.stop().await;
}

#[tokio::test]
async fn roots_of_the_command_line_are_in_the_environment() {
    let fleet = TestFleet::start().await;
    let root = fleet.fixture.path("one");
    let words = "list --output json --fleet FLEET --environment-id one";
    let listed = fleet
        .run(&format!("{words} --root mine={}", root.display()))
        .await
        .succeeded();
    assert_eq!(listed.json()["skills"][0]["package"], "skill://mine/a");
    // The roots of other environments are not sent to the executor.
    let at = |id: &str, environment: &str| {
        let path = format!("published:{environment}");
        json!({"id": id, "location": {"environmentId": environment, "path": path}})
    };
    fleet.fixture.write(
        "some.json",
        json!([at("x", "one"), at("y", "two")]).to_string(),
    );
    fleet
        .fixture
        .write("none.json", json!([at("y", "two")]).to_string());
    let selected = async |file: &str| {
        let file = fleet.fixture.path(file);
        fleet
            .run(&format!("{words} --selected {}", file.display()))
            .await
    };
    let listed = selected("some.json").await.succeeded().json();
    assert_eq!(listed["roots"].as_array().map(Vec::len), Some(1));
    assert_eq!(listed["skills"][1]["package"], "skill://x/b");
    let output = selected("none.json").await;
    assert_eq!((output.code, output.text()), (Some(78), ""));
    assert!(
        output
            .stderr
            .contains("no root of --selected is in the environment \"one\"")
    );
    fleet.stop().await;
}

#[tokio::test]
async fn variables_of_the_connection_are_ignored_with_a_fleet() {
    let fleet = TestFleet::start().await;
    let words = "resolve --published --environment-id one";
    let mut command = caproot(words.split(' '));
    command
        .arg("--fleet")
        .arg(&fleet.file)
        .env("CAPROOT_ENDPOINT", "tcp:127.0.0.1:1");
    command.env("CAPROOT_TOKEN_FILE", "/nonexistent");
    run_command(command).await.succeeded();
    let mut command = caproot(words.split(' ').chain(["--endpoint", "unix:/x"]));
    command
        .arg("--fleet")
        .arg(&fleet.file)
        .env("CAPROOT_ENDPOINT", "tcp:127.0.0.1:1");
    run_command(command).await.exited_with(2, "");
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_of_one_executor_and_a_watch() {
    let fleet = TestFleet::start().await;
    let flags = ["--environment-id", "two", "--fleet"];
    let mut command = caproot(["call"].into_iter().chain(flags));
    command.arg(&fleet.file);
    let mut call = CallProcess::start(command);
    let state = call.request(json!({"method": "state"})).await;
    let executors = state["result"].as_array().expect("a list");
    assert_eq!(executors.len(), 1, "{state}");
    assert_eq!(
        (&executors[0]["environmentId"], &executors[0]["skills"]),
        (&json!("two"), &json!(1))
    );
    assert_eq!(call.end().await, Some(0));

    let mut command = caproot(["watch", "--output", "json"].into_iter().chain(flags));
    command.arg(&fleet.file);
    let mut watch = Process::spawn(command);
    while !watch.line().await.contains("\"skill://two/c\"") {}
    fleet
        .fixture
        .write("two/new/SKILL.md", "---\ndescription: New.\n---\n");
    while !watch.line().await.contains("\"skill://two/new\"") {}
    assert_eq!(watch.exit_on(Signal::TERM).await.code, Some(0));

    let mut command = caproot(["mcp", "--http", "127.0.0.1:0"].into_iter().chain(flags));
    command.arg(&fleet.file);
    let mut mcp = Process::spawn(command);
    assert!(mcp.line().await.starts_with("listening http://127.0.0.1:"));
    assert_eq!(mcp.exit_on(Signal::TERM).await.code, Some(0));
    fleet.stop().await;
}

#[tokio::test]
async fn flags_that_conflict_are_refused() {
    let fleet = TestFleet::start().await;
    for (words, names) in [
        ("resolve --published --fresh", "--fresh"),
        ("resolve --published --root /", "--root"),
        ("resolve --published --selected -", "--selected"),
        ("watch --fleet FLEET --product x", "--product"),
        ("watch --fleet FLEET --bookmarks", "--bookmarks"),
        ("watch --fleet FLEET --root /", "--root"),
        ("watch --fleet FLEET one --selected -", "--selected"),
        ("watch --fleet FLEET --endpoint unix:/x", "--endpoint"),
        ("watch --fleet FLEET --timeout 1s", "--timeout"),
        (
            "watch --fleet FLEET --spiffe-id spiffe://a/b",
            "--spiffe-id",
        ),
        (
            "watch --fleet FLEET --environment-id one two",
            "--environment-id",
        ),
        (
            "watch --fleet FLEET --environment-id one --interval 1s",
            "--interval",
        ),
        ("watch one", "--fleet"),
        ("watch --interval 1s", "--fleet"),
    ] {
        let output = fleet.run(words).await;
        assert_eq!((output.code, output.text()), (Some(2), ""), "{words}");
        assert!(output.stderr.contains(names), "{words}: {}", output.stderr);
    }
    fleet.stop().await;
}
