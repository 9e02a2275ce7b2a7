//! Locks of the commands of an orchestrator, and of a fleet file.

use std::fs;

use serde_json::{Value, json};

use super::{TREE, lock_skills};
use crate::harness::fixture::Fixture;
use crate::harness::process::{Output, client_command, run_client};
use crate::harness::watch_harness::skill_text;
use crate::harness::{Daemon, Setup};
use crate::mcp::host::Host;
use crate::orchestrator::call_command::CallProcess;

/// Daemon without a lock, whose skill `mail` differs from the lock `caproot.lock`.
async fn start() -> (Fixture, Daemon) {
    let fixture = Fixture::new(TREE);
    lock_skills(&fixture, "--out caproot.lock").await;
    fixture.write(
        "r/mail/SKILL.md",
        "---\nname: mail\ndescription: Evil.\n---\n",
    );
    let daemon = Daemon::start(Setup::publishing("r", fixture.path("r"))).await;
    (fixture, daemon)
}

/// Runs a client command whose word `LOCK` is the path of the lock.
async fn run(fixture: &Fixture, daemon: &Daemon, words: &str) -> Output {
    run_client(daemon, &with_paths(fixture, words)).await
}

fn with_paths(fixture: &Fixture, words: &str) -> String {
    let path = |name: &str| fixture.path(name).display().to_string();
    words
        .replace("LOCK", &path("caproot.lock"))
        .replace("FLEET", &path("fleet.yaml"))
}

/// Returns the names of the skills in lines or documents of JSON.
fn names(list: &Value) -> Vec<&str> {
    let skills = list["skills"].as_array().expect("skills").iter();
    skills
        .map(|skill| skill["name"].as_str().expect("a name"))
        .collect()
}

#[tokio::test]
async fn a_list_has_only_approved_skills() {
    let (fixture, daemon) = start().await;
    let all = run(&fixture, &daemon, "list --output json").await.json();
    assert_eq!(names(&all), ["mail", "pdf"]);
    let approved = run(&fixture, &daemon, "list --output json --lock LOCK").await;
    assert!(approved.stderr.contains("1 skill"), "{}", approved.stderr);
    assert_eq!(names(&approved.json()), ["pdf"]);

    let unsigned = run(&fixture, &daemon, "list --lock LOCK --signers LOCK").await;
    unsigned.exited_with(78, "caproot.lock:1:1: expected `PRINCIPALS");
    let missing = run(&fixture, &daemon, "list --lock /nonexistent").await;
    missing.exited_with(78, "/nonexistent");
    daemon.stop().await;
}

// The id of the root `r` is `id-454349e4` in a session with a lock, as the executor listed the root.

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_of_call_lists_and_reads_only_approved_bytes() {
    let (fixture, daemon) = start().await;
    let words = with_paths(&fixture, "call --lock LOCK");
    let mut process = CallProcess::start(client_command(&daemon, &words));
    let list = process.call("skills.list", &json!({})).await;
    assert_eq!(names(&list), ["pdf"]);
    let steps = json!({"package": "skill://id-454349e4/pdf", "resource": "references/steps.md"});
    let page = process.call("skills.read", &steps).await;
    assert_eq!(page["contents"], "One.\n");
    let text = process.request(json!({"method": "instructions"})).await;
    assert!(!text["result"]["text"].to_string().contains("mail"));
    assert_eq!(process.end().await, Some(0));

    // Another process has no verified copy of the file.
    fs::write(fixture.path("r/pdf/references/steps.md"), "Two.\n").expect("written");
    let mut process = CallProcess::start(client_command(&daemon, &words));
    let error = process.call("skills.read", &steps).await;
    assert_eq!(error["error"]["code"], "NOT_VERIFIED", "{error}");
    assert_eq!(process.end().await, Some(0));
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_mcp_host_gets_only_approved_skills() {
    let (fixture, daemon) = start().await;
    let mut host = Host::start(&daemon, &with_paths(&fixture, "--lock LOCK"));
    let list = host.call("skills/list", json!({})).await.expect("a list");
    let skills = list["skills"].as_array().expect("skills");
    assert_eq!(skills.len(), 1, "{list}");
    assert_eq!(skills[0]["uri"], "skill://id-454349e4/pdf/SKILL.md");
    let read = json!({"uri": "skill://id-454349e4/mail/SKILL.md"});
    host.call("resources/read", read)
        .await
        .expect_err("not approved");
    let read = json!({"uri": "skill://id-454349e4/pdf/references/steps.md"});
    let file = host.call("resources/read", read).await.expect("a file");
    assert_eq!(file["contents"][0]["text"], "One.\n");
    assert_eq!(host.stop().await.code, Some(0));
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_mcp_host_sees_approved_names_in_place_of_paths() {
    let fixture = Fixture::new("skill r/pdf");
    fixture.write("r/x SYSTEM/1/SKILL.md", skill_text("tool", "Works."));
    fixture.write("r/x SYSTEM/1/data.md", "data");
    fixture.write("r/x SYSTEM/1/logo.bin", [0xff, 0]);
    fixture.write("r/x SYSTEM/1/edited.bin", [0xff, 1]);
    lock_skills(&fixture, "--out caproot.lock").await;
    fixture.write("r/x SYSTEM/1/edited.bin", [0xff, 2]);
    let daemon = Daemon::start(Setup::publishing("r", fixture.path("r"))).await;
    let mut host = Host::start(&daemon, &with_paths(&fixture, "--lock LOCK"));
    let mut seen = String::new();
    for method in ["skills/list", "resources/list", "tools/list"] {
        let list = host.call(method, json!({})).await.expect("a list");
        seen += &list.to_string();
    }
    assert!(seen.contains("skill://id-454349e4/tool/data.md"), "{seen}");
    for uri in [
        "skill://id-454349e4/tool/data.md",
        "skill://id-454349e4/tool/none.md",
    ] {
        match host.call("resources/read", json!({"uri": uri})).await {
            Ok(file) => assert_eq!(file["contents"][0]["text"], "data"),
            Err(error) => seen += &error.to_string(),
        }
    }
    // A file that is not text is verified, too.
    let logo = json!({"uri": "skill://id-454349e4/tool/logo.bin"});
    let logo = host.call("resources/read", logo).await.expect("a file");
    assert_eq!(logo["contents"][0]["blob"], "/wA=");
    let edited = json!({"uri": "skill://id-454349e4/tool/edited.bin"});
    let error = host.call("resources/read", edited).await;
    let error = error.expect_err("not the approved content");
    assert_eq!(error["data"]["reason"], "NOT_VERIFIED");
    seen += &error.to_string();
    let call = json!({"name": "skills_read", "arguments": {"package": "tool"}});
    let read = host.call("tools/call", call).await.expect("a result");
    seen += &read.to_string();
    assert!(
        seen.contains("name: tool") && !seen.contains("SYSTEM"),
        "{seen}"
    );
    assert_eq!(host.stop().await.code, Some(0));
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fleet_file_has_the_lock_of_each_session() {
    let (fixture, daemon) = start().await;
    let address = &daemon.address;
    let executors = format!("executors: {{local: {{endpoint: 'tcp:{address}'}}}}");
    fixture.write(
        "fleet.yaml",
        format!("{executors}\ntrust: {{lock: caproot.lock}}\n"),
    );
    let listed = run(&fixture, &daemon, "list --output json --fleet FLEET").await;
    let text = listed.succeeded().text().to_owned();
    assert!(
        text.contains("\"pdf\"") && !text.contains("\"mail\""),
        "{text}"
    );
    let words = with_paths(&fixture, "call --fleet FLEET");
    let mut process = CallProcess::start(client_command(&daemon, &words));
    let list = process.call("skills.list", &json!({})).await;
    assert_eq!(names(&list), ["pdf"]);
    assert_eq!(process.end().await, Some(0));

    for (trust, part) in [
        ("{lock: none.lock}", "none.lock"),
        ("{lock: fleet.yaml}", "fleet.yaml"),
        ("{lock: caproot.lock, signers: none}", "none"),
        ("{mode: hide}", "trust"),
        ("{}", "trust"),
    ] {
        fixture.write("fleet.yaml", format!("{executors}\ntrust: {trust}\n"));
        let failed = run(&fixture, &daemon, "list --fleet FLEET").await;
        failed.exited_with(78, part);
    }
    daemon.stop().await;
}
