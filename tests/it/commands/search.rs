//! `caproot search`: the skills of one daemon and of a fleet, as text and JSON.

use serde_json::Value;

use super::fleet::TestFleet;
use crate::harness::Daemon;
use crate::harness::process::run_client;

const TREE: &str = "\
file r/pdf-forms/SKILL.md\n| ---\n| description: Fills forms in PDF files.\n| license: MIT\n| ---\n\
file r/zip/SKILL.md\n| ---\n| description: Packs files.\n| ---\n\
file r/quiet/SKILL.md\n| ---\n| description: Fills secret forms.\n| disable-model-invocation: true\n| ---\n";

fn names(list: &Value) -> Vec<&str> {
    let skills = list["skills"].as_array().map_or(&[][..], Vec::as_slice);
    skills
        .iter()
        .map(|skill| skill["name"].as_str().expect("a name"))
        .collect()
}

#[tokio::test]
async fn search_prints_the_best_skills_first() {
    let (_fixture, daemon) = Daemon::publishing("r", TREE).await;
    let output = run_client(&daemon, "search fill form").await.succeeded();
    let lines: Vec<_> = output.text().lines().collect();
    assert_eq!(
        lines[0].split_whitespace().collect::<Vec<_>>(),
        ["NAME", "ROOT", "DESCRIPTION"]
    );
    assert!(
        lines[1].starts_with("pdf-forms  r     Fills forms"),
        "{lines:?}"
    );
    assert_eq!((lines.len(), output.stderr.as_str()), (2, "1 skill\n"));

    let output = run_client(&daemon, "search --output json pdf-forms")
        .await
        .succeeded();
    let found = output.json();
    assert_eq!(names(&found), ["pdf-forms"]);
    assert_eq!(found["skills"][0]["license"], "MIT");
    let listed = run_client(&daemon, "list --output json")
        .await
        .succeeded()
        .json();
    assert_eq!(found["skills"][0], listed["skills"][0]);

    let output = run_client(&daemon, "search --output json --limit 1 files")
        .await
        .succeeded();
    assert_eq!(names(&output.json()).len(), 1);
    let output = run_client(&daemon, "search quantum").await.succeeded();
    assert_eq!(output.stderr, "0 skills\n");

    let output = run_client(&daemon, "search please help")
        .await
        .exited_with(4, "");
    assert!(
        output.stderr.contains("no word to search for"),
        "{}",
        output.stderr
    );
    let output = run_client(&daemon, "search --limit 101 x")
        .await
        .exited_with(2, "");
    assert!(output.stderr.contains("1..=100"), "{}", output.stderr);
    run_client(&daemon, "search").await.exited_with(2, "");
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn search_finds_the_skills_of_a_fleet() {
    let fleet = TestFleet::start().await;
    for (name, text) in [("deploy", "Ships releases."), ("ship", "Ships parcels.")] {
        let dir = if name == "deploy" { "one" } else { "two" };
        let text = format!("---\ndescription: {text}\n---\n");
        fleet.fixture.write(&format!("{dir}/{name}/SKILL.md"), text);
    }
    fleet.run("list --fleet FLEET --fresh").await;

    let output = fleet
        .run("search --fleet FLEET --long ships")
        .await
        .exited_with(1, "");
    let lines: Vec<Vec<_>> = output
        .text()
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(lines[0][..3], ["NAME", "ENVIRONMENT", "HANDLE"]);
    assert_eq!(lines[1][..2], ["ship", "two"]);
    assert_eq!(lines[2][..2], ["deploy", "one"]);
    assert!(
        output.stderr.contains("the roots of dead are omitted"),
        "{}",
        output.stderr
    );

    let output = fleet
        .run("search --fleet FLEET --environment-id one --output json ships")
        .await;
    assert_eq!(names(&output.succeeded().json()), ["deploy"]);
    let output = fleet
        .run("search --fleet FLEET --endpoint tcp:127.0.0.1:1 x")
        .await;
    output.exited_with(2, "");
    fleet.stop().await;
}
