//! Readiness of skills: the programs and variables that the operator lets the daemon look up, in lists,
//! in streams, in mirrors of a client and in sessions.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::time::Instant;

use caproot_client::{ExecutorConfig, Fleet};
use caproot_core::proto::caproot::v1::{
    ListSkillsResponse, MissingRequirement, ReadinessState, RequirementKind,
};
use caproot_session::{DEFAULT_BUDGET, Session, SessionOptions};
use serde_json::json;

use crate::harness::fixture::Fixture;
use crate::harness::process::{ConfiguredDaemon, client_command, run_command};
use crate::harness::replica::Replica;
use crate::harness::watch_harness::{fresh_list, watch_request};
use crate::harness::{poll_until, published};

/// Skills with each form of a requirement.
const TREE: &str = "\
dir bin
file r/openclaw/SKILL.md
| ---
| name: openclaw
| description: Nested forms.
| metadata: {\"openclaw\": {\"requires\": {\"bins\": [\"git\", \"jq\"], \"anyBins\": [\"docker\", \"podman\"], \"env\": [\"API_KEY\", \"OTHER\"]}, \"os\": [\"linux\", \"darwin\"]}}
| ---
file r/hermes/SKILL.md
| ---
| name: hermes
| description: Forms at the top.
| platforms: [macos]
| required_environment_variables:
|   - name: API_KEY
|     prompt: A key
| ---
file r/tools/SKILL.md
| ---
| name: tools
| description: Tools of rules.
| allowed-tools: Read, Bash(jq:*), Bash(cd:*), Bash(git log:*)
| ---
file r/sidecar/SKILL.md
| ---
| name: sidecar
| description: A sidecar.
| ---
file r/sidecar/agents/openai.yaml
| dependencies:
|   tools:
|     - {type: cli, value: jq}
|     - {type: mcp, value: server}
file r/bad/SKILL.md
| ---
| name: bad
| description: Names that are looked up nowhere.
| metadata: {x: {requires: {bins: [/bin/sh, ../sh, '']}}}
| ---
skill r/plain
";

/// Config with the directory `bin` as PATH, and the variables that may be answered.
const CONFIG: &str =
    "roots: [{id: r, path: r}]\nreadiness: {path: [bin], variables: [API_KEY, HOME]}\n";

async fn start_session(daemon: &ConfiguredDaemon, ready_only: bool) -> Session {
    let endpoint = format!("tcp:{}", daemon.address)
        .parse()
        .expect("an endpoint");
    let fleet = Fleet::from_executors([("local".to_owned(), ExecutorConfig::new(endpoint))]);
    let options = SessionOptions {
        ready_only,
        ..SessionOptions::default()
    };
    let started = Session::start(&fleet, vec![published("r")], &options).await;
    started.expect("a session")
}

fn install(fixture: &Fixture, name: &str) {
    let path = fixture.path(&format!("bin/{name}"));
    fs::write(&path, "").expect("a program");
    fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("a mode");
}

fn missing(kind: RequirementKind, names: &[&str]) -> MissingRequirement {
    MissingRequirement {
        kind: kind.into(),
        names: names.iter().map(|name| (*name).to_owned()).collect(),
    }
}

fn readiness(
    list: &ListSkillsResponse,
    name: &str,
) -> Option<(ReadinessState, Vec<MissingRequirement>)> {
    let skill = list.skills.iter().find(|skill| skill.name == name);
    let mut readiness = skill.expect("the skill").readiness.clone()?;
    readiness.missing.sort_by(|a, b| a.names.cmp(&b.names));
    Some((readiness.state(), readiness.missing))
}

#[tokio::test]
async fn each_form_of_a_requirement_is_looked_up() {
    let fixture = Fixture::new(TREE);
    install(&fixture, "git");
    let daemon = ConfiguredDaemon::start(&fixture, CONFIG).await;
    let list = fresh_list(&daemon, &[published("r")]).await;

    let jq = missing(RequirementKind::Program, &["jq"]);
    let key = missing(RequirementKind::Variable, &["API_KEY"]);
    let (state, all) = readiness(&list, "openclaw").expect("a readiness");
    let containers = missing(RequirementKind::Program, &["docker", "podman"]);
    assert_eq!(
        (state, all),
        (
            ReadinessState::Missing,
            vec![key.clone(), containers, jq.clone()]
        )
    );
    let (state, all) = readiness(&list, "hermes").expect("a readiness");
    let platform = missing(RequirementKind::Platform, &["macos"]);
    assert_eq!((state, all), (ReadinessState::Missing, vec![key, platform]));
    for name in ["tools", "sidecar"] {
        assert_eq!(
            readiness(&list, name),
            Some((ReadinessState::Missing, vec![jq.clone()])),
            "{name}"
        );
    }
    assert_eq!(
        readiness(&list, "bad"),
        Some((ReadinessState::Unknown, Vec::new()))
    );
    assert_eq!(readiness(&list, "plain"), None);

    let table = run_command(client_command(&daemon, "list --root r=published:r")).await;
    let table = table.succeeded();
    assert!(
        table.text().contains("MISSING") && table.text().contains("program jq"),
        "{}",
        table.text()
    );
    daemon.stop().await;
}

#[tokio::test]
async fn nothing_is_missing_without_a_configuration_or_a_visible_directory() {
    for config in [
        "roots: [{id: r, path: r}]\n",
        "roots: [{id: r, path: r}]\nreadiness: {path: [bin, hidden]}\n",
    ] {
        let fixture = Fixture::new(TREE);
        let daemon = ConfiguredDaemon::start(&fixture, config).await;
        let list = fresh_list(&daemon, &[published("r")]).await;
        for name in ["openclaw", "tools", "sidecar", "bad"] {
            let unknown = Some((ReadinessState::Unknown, Vec::new()));
            assert_eq!(readiness(&list, name), unknown, "{config} {name}");
        }
        daemon.stop().await;
    }
}

#[tokio::test]
async fn an_install_is_one_event_of_2000_skills() {
    let fixture = Fixture::new("dir bin\nskill r/plain");
    for number in 0..2_000 {
        let needs = if number % 100 == 0 { "late" } else { "git" };
        fixture.write(
            &format!("r/s{number}/SKILL.md"),
            format!(
                "---\nname: s{number}\ndescription: S.\nmetadata: {{x: {{requires: {{bins: [{needs}]}}}}}}\n---\n"
            ),
        );
    }
    install(&fixture, "git");
    let daemon = ConfiguredDaemon::start(&fixture, CONFIG).await;
    let roots = vec![published("r")];
    let mut replica = Replica::synced(&daemon, watch_request(roots.clone())).await;
    // On a loaded machine, the first scan may end after the stream began.
    replica
        .wait_while(|replica| replica.readiness.len() < 2_000)
        .await;
    let digest = replica.roots["r"].catalog_digest.clone();
    let revision = replica.revision;

    let begun = Instant::now();
    install(&fixture, "late");
    let step = replica.next_change().await;
    let elapsed = begun.elapsed();
    println!("readiness of 2,000 skills: {elapsed:?} after an install");
    assert_eq!((step.readiness_events, step.readiness.len()), (1, 20));
    assert_eq!((step.deltas, step.statuses.len()), (0, 0), "{step:?}");
    assert_eq!(replica.revision, revision);
    let list = fresh_list(&daemon, &roots).await;
    assert_eq!(
        list.roots[0].catalog_digest, digest,
        "not in the catalog digest"
    );
    replica.catch_up(&daemon).await;

    // A resumed stream begins with the readiness, although the catalog is known.
    let mut resumed = replica.fork();
    resumed.resume(&daemon).await;
    let step = resumed.next_change().await;
    assert_eq!((step.reset, step.upserted.len()), (None, 0));
    assert_eq!(resumed.readiness, replica.readiness);

    fs::remove_file(fixture.path("bin/git")).expect("removed");
    let step = replica.next_change().await;
    assert_eq!(step.readiness.len(), 1_980);
    assert_eq!(step.deltas, 0);
    daemon.stop().await;
}

#[tokio::test]
async fn a_session_notes_or_leaves_out_what_is_not_ready() {
    let fixture = Fixture::new(
        "dir bin\nskill r/plain\nfile r/tools/SKILL.md\n| ---\n| name: tools\n| description: T.\n\
         | allowed-tools: Bash(jq:*)\n| ---",
    );
    let daemon = ConfiguredDaemon::start(&fixture, CONFIG).await;
    let noting = start_session(&daemon, false).await;
    let strict = start_session(&daemon, true).await;

    let note = "[missing on its machine: program jq]";
    poll_until("the text follows", || {
        noting.instruction_text(DEFAULT_BUDGET).text.contains(note)
    })
    .await;
    let text = strict.instruction_text(DEFAULT_BUDGET);
    assert!(!text.text.contains("- tools"), "{}", text.text);
    assert!(
        text.warnings
            .iter()
            .any(|warning| warning.ends_with("their platform: 1")),
        "{:?}",
        text.warnings
    );
    let list = noting.call("skills.list", &json!({})).await;
    assert!(format!("{list:?}").contains("program jq"), "{list:?}");

    install(&fixture, "jq");
    poll_until("the text follows", || {
        !noting.instruction_text(DEFAULT_BUDGET).text.contains(note)
    })
    .await;
    poll_until("the text follows", || {
        strict
            .instruction_text(DEFAULT_BUDGET)
            .text
            .contains("- tools")
    })
    .await;
    drop((noting, strict));
    daemon.stop().await;
}
