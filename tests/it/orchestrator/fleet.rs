//! Fleets: who answers for an environment, and lists of many executors at once.

use std::path::Path;
use std::process::Stdio;

use caproot::client::fleet::RegistryFuture;
use caproot::client::{ExecutorRegistry, Fleet, FleetError};
use caproot::proto::caproot::v1::ListSkillsRequest;
use serde_json::json;

use super::{executor, nobody, published, serving};
use crate::commands::{CommandOutput, caproot, run_command};
use crate::fixture::Fixture;
use crate::harness::in_time;
use crate::terminal::run_on_terminal;

struct Directory(String);

impl ExecutorRegistry for Directory {
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
async fn a_registry_of_ones_own() {
    let fixture = Fixture::new("skill r/a");
    let daemon = serving("known", fixture.path("r"), None).await;
    let fleet = Fleet::new(Directory(daemon.address.clone()));
    let mut client = fleet.client("known").await.expect("a client");
    assert_eq!(client.get_executor().await.expect("an answer").environment_ids, ["known"]);
    assert!(matches!(fleet.client("other").await, Err(FleetError::UnknownEnvironment(_))));
    let error = fleet.client("broken").await.expect_err("no client").to_string();
    assert!(error.contains("\"broken\"") && error.contains("the directory is down"), "{error}");
    // Another's environment is never asked of this one.
    let roots = vec![published("known"), published("other")];
    let listed = fleet.list_skills(Some(roots), &ListSkillsRequest::default(), &|_, _| {}).await;
    let [known, other] = &listed[..] else { panic!("two: {listed:?}") };
    assert_eq!(known.outcome.as_ref().expect("a list").skills.len(), 1);
    assert!(other.outcome.as_ref().expect_err("nobody").contains("no executor is known"));
    daemon.stop().await;
}

async fn list(fleet: &Path, more: &[&str]) -> CommandOutput {
    let mut command = caproot(["list", "--fleet"]);
    command.arg(fleet).args(more);
    run_command(command).await
}

#[tokio::test]
async fn a_list_of_many() {
    let fixture = Fixture::new("skill one/a\nskill one/b\nskill two/a");
    let one = serving("one", fixture.path("one"), None).await;
    let two = serving("two", fixture.path("two"), None).await;
    let down = nobody();
    let fleet = format!(
        "executors:\n  one: {{endpoint: 'tcp:{}'}}\n  two: {{endpoint: 'tcp:{}'}}\n",
        one.address, two.address
    );
    fixture.write("fleet.yaml", &fleet);
    let file = fixture.path("fleet.yaml");

    let said = list(&file, &[]).await;
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    let lines: Vec<_> = std::str::from_utf8(&said.stdout).expect("text").lines().collect();
    assert_eq!(
        lines,
        [
            "NAME  ENVIRONMENT  ROOT  DESCRIPTION",
            "a     one          one   Does a.",
            "b     one          one   Does b.",
            "a     two          two   Does a.",
        ]
    );
    assert!(said.stderr.ends_with("3 skills of 2 of 2 executors\n"), "{}", said.stderr);

    // One that is down is said, and takes nothing from the others.
    fixture
        .write("fleet.yaml", format!("{fleet}  zero: {{endpoint: 'tcp:{down}', timeout: 5s}}\n"));
    let said = list(&file, &["--output", "json"]).await;
    assert_eq!((said.code, said.stderr.as_str()), (Some(1), ""));
    let answer: serde_json::Value = serde_json::from_slice(&said.stdout).expect("JSON");
    let executors = answer["executors"].as_array().expect("a list");
    let ids: Vec<_> = executors.iter().map(|e| &e["environmentId"]).collect();
    assert_eq!(ids, ["one", "two", "zero"]);
    assert_eq!(executors[0]["list"]["skills"][1]["name"], "b");
    assert!(executors[2]["error"].as_str().expect("why").contains("no connection"));
    let said = list(&file, &[]).await;
    assert_eq!(said.code, Some(1));
    assert!(said.stderr.contains("error[UNAVAILABLE] zero: "), "{}", said.stderr);
    assert!(said.stderr.ends_with("3 skills of 2 of 3 executors\n"), "{}", said.stderr);

    // A selection goes to the executors of its environments alone.
    let roots = json!([
        {"id": "mine", "location": {"environmentId": "two", "path": "published:two"}},
        {"id": "lost", "location": {"environmentId": "nowhere", "path": "/"}},
    ]);
    fixture.write("selected.json", roots.to_string());
    let selected = fixture.path("selected.json");
    let said =
        list(&file, &["--output", "json", "--selected", selected.to_str().expect("UTF-8")]).await;
    assert_eq!(said.code, Some(1));
    let answer: serde_json::Value = serde_json::from_slice(&said.stdout).expect("JSON");
    assert_eq!(answer["executors"][1]["list"]["skills"][0]["package"], "skill://mine/a");
    let lost = &answer["executors"][0];
    assert_eq!(lost["environmentId"], "nowhere");
    assert!(lost["error"].as_str().expect("why").contains("no executor is known"));

    // Every mistake in the file is told at once.
    fixture.write("fleet.yaml", "executors: {a: {endpoint: x}, b: {}}\n");
    let said = list(&file, &[]).await;
    assert_eq!((said.code, said.stdout.len()), (Some(78), 0));
    assert_eq!(said.stderr.lines().count(), 2, "{}", said.stderr);
    let said = list(&file, &["--endpoint", "tcp:127.0.0.1:1"]).await;
    assert_eq!(said.code, Some(2), "{}", said.stderr);
    one.stop().await;
    two.stop().await;
}

/// Of executors that take long, a terminal shows how far each is.
#[tokio::test]
async fn progress_on_a_terminal() {
    let fixture = Fixture::new("skill r/a");
    let daemon = serving("here", fixture.path("r"), None).await;
    // It takes connections, and never says a word.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = silent.local_addr().expect("an address");
    let fleet = format!(
        "executors:\n  here: {{endpoint: 'tcp:{}'}}\n  silent: {{endpoint: 'tcp:{address}', timeout: 3s}}\n",
        daemon.address
    );
    fixture.write("fleet.yaml", fleet);
    let mut command = caproot(["list", "--fleet"]);
    command.arg(fixture.path("fleet.yaml")).env("TERM", "xterm");
    let shown = tokio::task::spawn_blocking(move || {
        run_on_terminal(command, 80, |command, terminal| {
            command.stdout(Stdio::null()).stderr(terminal);
        })
    });
    let (shown, ended) = in_time(shown).await.expect("no panic");
    assert_eq!(ended.code(), Some(1));
    for part in ["here: done", "silent: listing its published roots", "1 skill of 1 of 2 executors"]
    {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    daemon.stop().await;
}
