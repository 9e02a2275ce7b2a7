//! Fleets: the executor of an environment, and lists of several executors at once.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use caproot::daemon::config::{Config, RootFlag, ServeFlags};
use caproot_client::fleet::RegistryFuture;
use caproot_client::{ExecutorRegistry, Fleet, FleetError};
use caproot_core::proto::caproot::v1::{ListSkillsRequest, SelectedCapabilityRoot};
use serde_json::json;

use super::{executor, published, serve_tree, start_daemon};
use crate::commands::terminal::run_on_terminal;
use crate::harness::fixture::Fixture;
use crate::harness::process::{Output, caproot, run_command};
use crate::harness::test_servers::{free_port, silent_listener, unused_address};
use crate::harness::{Daemon, in_time, isolated_env};

struct TestRegistry(String);

impl ExecutorRegistry for TestRegistry {
    fn find_executor<'a>(&'a self, environment_id: &'a str) -> RegistryFuture<'a> {
        Box::pin(async move {
            match environment_id {
                "known" => Ok(Some(executor(&self.0))),
                "broken" => Err("the directory is down".to_owned()),
                _ => Ok(None),
            }
        })
    }
}

#[tokio::test]
async fn a_custom_registry_finds_executors() {
    let (_fixture, daemon) = serve_tree("known", "skill r/a").await;
    let fleet = Fleet::new(TestRegistry(daemon.address.clone()));
    let mut client = fleet.client("known").await.expect("a client");
    assert_eq!(
        client
            .get_executor()
            .await
            .expect("an answer")
            .environment_ids,
        ["known"]
    );
    assert!(matches!(
        fleet.client("other").await,
        Err(FleetError::UnknownEnvironment(_))
    ));
    let error = fleet
        .client("broken")
        .await
        .expect_err("no client")
        .to_string();
    assert!(
        error.contains("\"broken\"") && error.contains("the directory is down"),
        "{error}"
    );
    // The registry returned no executor for `other`, so no request is sent for its root.
    let roots = vec![published("known"), published("other")];
    let listed = fleet
        .list_skills(Some(roots), &ListSkillsRequest::default(), &|_, _| {})
        .await;
    let [known, other] = &listed[..] else {
        panic!("two: {listed:?}")
    };
    assert_eq!(known.outcome.as_ref().expect("a list").skills.len(), 1);
    assert!(
        other
            .outcome
            .as_ref()
            .expect_err("no executor")
            .contains("no executor is known")
    );
    daemon.stop().await;
}

#[tokio::test]
async fn published_roots_of_a_fleet_are_a_selection() {
    let fixture = Fixture::new("skill one/a\nskill two/b");
    let one = start_daemon("one", fixture.path("one"), None).await;
    let two = start_daemon("two", fixture.path("two"), None).await;
    let (_listener, silent) = silent_listener();
    let down = unused_address();
    let at = |id: &str, address: &str| (id.to_owned(), executor(address));
    let fleet = Fleet::from_executors([
        at("down", &down),
        at("one", &one.address),
        at("other", &two.address),
        at("silent", &silent),
    ]);
    let published = in_time(fleet.published_roots(Duration::from_secs(1))).await;
    let named = SelectedCapabilityRoot {
        id: "one@one".to_owned(),
        ..super::published("one")
    };
    assert_eq!(published.roots, [named]);
    let omitted: Vec<_> = published
        .omitted
        .iter()
        .map(|e| (e.environment_id.as_str(), e.timed_out))
        .collect();
    assert_eq!(omitted[1..], [("other", false), ("silent", true)]);
    assert_eq!(omitted[0].0, "down");
    let reason = &published.omitted[1].reason;
    assert!(
        reason.contains("has the environment \"two\", and not \"other\""),
        "{reason}"
    );

    // One executor has all environments of a selection.
    let roots = published.roots;
    let single = Fleet::from_single_executor(&executor(&one.address), &roots);
    assert_eq!(single.environment_ids(), ["one"]);
    let listed = single
        .list_skills(Some(roots), &ListSkillsRequest::default(), &|_, _| {})
        .await;
    assert_eq!(listed[0].outcome.as_ref().expect("a list").skills.len(), 1);
    for daemon in [one, two] {
        daemon.stop().await;
    }
}

#[tokio::test]
async fn an_executor_with_another_environment_is_omitted_by_list_and_call() {
    let fixture = Fixture::new("skill r/a");
    let flags = ServeFlags {
        roots: vec![RootFlag {
            id: Some("r".to_owned()),
            dir: fixture.path("r"),
        }],
        environment_ids: vec!["first".to_owned(), "second".to_owned()],
        listen: vec![format!("tcp:{}", free_port())],
        ..ServeFlags::default()
    };
    let env = isolated_env(Path::new("/nonexistent"));
    let daemon = Daemon::start_with(Config::from_flags(flags, &env).expect("a config")).await;
    let line = |id: &str| format!("  {id}: {{endpoint: 'tcp:{}'}}\n", daemon.address);
    fixture.write(
        "fleet.yaml",
        format!("executors:\n{}{}", line("second"), line("wrong")),
    );
    let file = fixture.path("fleet.yaml");

    let output = run_list(&file, &[]).await.exited_with(1, "");
    let text = String::from_utf8(output.stdout).expect("text");
    assert_eq!(text.lines().count(), 2, "{text}");
    assert!(text.contains("a     second       r     Does a."), "{text}");
    let why = "WRONG_ENVIRONMENT: the executor has the environment \"first\", \"second\", and not \
               \"wrong\"; correct the key in the fleet";
    assert!(
        output
            .stderr
            .contains(&format!("error[UNAVAILABLE] wrong: {why}")),
        "{}",
        output.stderr
    );
    let mut call = caproot(["call", "--fleet"]);
    call.arg(&file);
    let output = run_command(call).await.succeeded();
    assert!(
        output
            .stderr
            .contains(&format!("the roots of wrong are omitted: {why}")),
        "{}",
        output.stderr
    );
    daemon.stop().await;
}

async fn run_list(fleet: &Path, more: &[&str]) -> Output {
    let mut command = caproot(["list", "--fleet"]);
    command.arg(fleet).args(more);
    run_command(command).await
}

#[tokio::test]
async fn list_shows_the_skills_of_all_executors() {
    let fixture = Fixture::new("skill one/a\nskill one/b\nskill two/a");
    let one = start_daemon("one", fixture.path("one"), None).await;
    let two = start_daemon("two", fixture.path("two"), None).await;
    let down = unused_address();
    let fleet = format!(
        "executors:\n  one: {{endpoint: 'tcp:{}'}}\n  two: {{endpoint: 'tcp:{}'}}\n",
        one.address, two.address
    );
    fixture.write("fleet.yaml", &fleet);
    let file = fixture.path("fleet.yaml");

    let output = run_list(&file, &[]).await.succeeded();
    let lines: Vec<_> = output.text().lines().collect();
    assert_eq!(
        lines,
        [
            "NAME  ENVIRONMENT  ROOT  DESCRIPTION",
            "a     one          one   Does a.",
            "b     one          one   Does b.",
            "a     two          two   Does a.",
        ]
    );
    assert!(
        output.stderr.ends_with("3 skills of 2 of 2 executors\n"),
        "{}",
        output.stderr
    );

    // An unavailable executor is reported, and the lists of the other executors are complete.
    fixture.write(
        "fleet.yaml",
        format!("{fleet}  zero: {{endpoint: 'tcp:{down}', timeout: 5s}}\n"),
    );
    let output = run_list(&file, &["--output", "json"]).await;
    assert_eq!((output.code, output.stderr.as_str()), (Some(1), ""));
    let answer = output.json();
    let executors = answer["executors"].as_array().expect("a list");
    let ids: Vec<_> = executors.iter().map(|e| &e["environmentId"]).collect();
    assert_eq!(ids, ["one", "two", "zero"]);
    assert_eq!(executors[0]["list"]["skills"][1]["name"], "b");
    assert!(
        executors[2]["error"]
            .as_str()
            .expect("why")
            .contains("no connection")
    );
    let output = run_list(&file, &[])
        .await
        .exited_with(1, "error[UNAVAILABLE] zero: ");
    assert!(
        output.stderr.ends_with("3 skills of 2 of 3 executors\n"),
        "{}",
        output.stderr
    );

    // A selection is sent only to the executors of its environments.
    let roots = json!([
        {"id": "mine", "location": {"environmentId": "two", "path": "published:two"}},
        {"id": "lost", "location": {"environmentId": "nowhere", "path": "/"}},
    ]);
    fixture.write("selected.json", roots.to_string());
    let selected = fixture.path("selected.json");
    let output = run_list(
        &file,
        &[
            "--output",
            "json",
            "--selected",
            selected.to_str().expect("UTF-8"),
        ],
    )
    .await
    .exited_with(1, "");
    let answer = output.json();
    assert_eq!(
        answer["executors"][1]["list"]["skills"][0]["package"],
        "skill://mine/a"
    );
    let lost = &answer["executors"][0];
    assert_eq!(lost["environmentId"], "nowhere");
    assert!(
        lost["error"]
            .as_str()
            .expect("why")
            .contains("no executor is known")
    );

    // All errors in the file are reported at once.
    fixture.write("fleet.yaml", "executors: {a: {endpoint: x}, b: {}}\n");
    let output = run_list(&file, &[]).await;
    assert_eq!((output.code, output.stdout.len()), (Some(78), 0));
    assert_eq!(output.stderr.lines().count(), 2, "{}", output.stderr);
    run_list(&file, &["--endpoint", "tcp:127.0.0.1:1"])
        .await
        .exited_with(2, "");
    one.stop().await;
    two.stop().await;
}

/// Progress on a terminal names each slow executor.
#[tokio::test]
async fn a_terminal_shows_the_progress_of_each_executor() {
    let (fixture, daemon) = serve_tree("here", "skill r/a").await;
    let (_listener, address) = silent_listener();
    let fleet = format!(
        "executors:\n  here: {{endpoint: 'tcp:{}'}}\n  silent: {{endpoint: 'tcp:{address}', timeout: 3s}}\n",
        daemon.address
    );
    fixture.write("fleet.yaml", fleet);
    let mut command = caproot(["list", "--fleet"]);
    command.arg(fixture.path("fleet.yaml")).env("TERM", "xterm");
    let screen = tokio::task::spawn_blocking(move || {
        run_on_terminal(command, 80, |command, terminal| {
            command.stdout(Stdio::null()).stderr(terminal);
        })
    });
    let (screen, ended) = in_time(screen).await.expect("no panic");
    assert_eq!(ended.code(), Some(1));
    for part in [
        "here: done",
        "silent: listing its published roots",
        "1 skill of 1 of 2 executors",
    ] {
        assert!(screen.contains(part), "{part}: {screen}");
    }
    daemon.stop().await;
}
