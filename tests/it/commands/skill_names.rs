//! Client commands that accept the name of a skill, and the list with names and handles.

use crate::harness::fixture::Fixture;
use crate::harness::process::{client_command, run_client, run_command};
use crate::harness::{Daemon, Setup};

const TREE: &str = r#"
skill one/pdf
file one/pdf/notes.md
| Notes.
skill one/twice
skill two/twice
file two/kit/.claude-plugin/plugin.json
| {"name": "kit"}
skill two/kit/skills/deploy
repeat 12 skill two/more/{}/same
"#;

async fn publish_two_roots() -> (Fixture, Daemon) {
    let fixture = Fixture::new(TREE);
    let root = |id: &str| (Some(id.to_owned()), fixture.path(id));
    let setup = Setup {
        roots: vec![root("one"), root("two")],
        ..Setup::default()
    };
    let daemon = Daemon::start(setup).await;
    (fixture, daemon)
}

#[tokio::test]
async fn a_unique_name_works_like_its_handle() {
    let (_fixture, daemon) = publish_two_roots().await;
    for (name, handle) in [
        ("pdf", "skill://one/pdf"),
        ("kit:deploy", "skill://two/kit/skills/deploy"),
    ] {
        for command in ["read", "read --fresh", "read --output json", "resources"] {
            let by_name = run_client(&daemon, &format!("{command} {name}")).await;
            let by_handle = run_client(&daemon, &format!("{command} {handle}")).await;
            assert_eq!(
                (by_name.code, &*by_name.stderr),
                (Some(0), &*by_handle.stderr),
                "{name}"
            );
            assert_eq!(by_name.stdout, by_handle.stdout, "{command} {name}");
        }
    }
    daemon.stop().await;
}

#[tokio::test]
async fn an_ambiguous_or_unknown_name_lists_candidates() {
    let (_fixture, daemon) = publish_two_roots().await;
    for (name, says) in [
        (
            "twice",
            &[
                "2 skills",
                "skill://one/twice",
                "skill://two/twice",
                "handle",
            ][..],
        ),
        (
            "same",
            &["12 skills", "skill://two/more/00/same", "and 2 more"],
        ),
        (
            "deploy",
            &["no skill", "`deploy`", "kit:deploy", "caproot list --long"],
        ),
        ("none", &["no skill", "`none`", "caproot list --long"]),
        ("kit:none", &["no skill", "`kit:none`"]),
        ("pdv", &["no skill", "; did you mean pdf?"]),
        ("deply", &["no skill", "; did you mean kit:deploy?"]),
        ("kit:deply", &["no skill", "; did you mean kit:deploy?"]),
    ] {
        for command in ["read", "resources"] {
            let output = run_client(&daemon, &format!("{command} {name}")).await;
            assert_eq!(
                (output.code, output.text()),
                (Some(4), ""),
                "{command} {name}"
            );
            assert_eq!(
                output.stderr.lines().count(),
                2,
                "a sentence and a hint: {}",
                output.stderr
            );
            for part in says {
                assert!(output.stderr.contains(part), "{part} in {}", output.stderr);
            }
        }
    }
    // A name is looked up in the selected roots only.
    run_client(&daemon, "read twice --root published:two")
        .await
        .succeeded();
    run_client(&daemon, "read pdf --root published:two")
        .await
        .exited_with(4, "");
    let output = run_client(&daemon, "read pdf --root gone=/nonexistent").await;
    assert!(
        output.stderr.contains("1 of 1 roots are not ready"),
        "{}",
        output.stderr
    );
    for wrong in ["skill:pdf", "skill:/pdf"] {
        run_client(&daemon, &format!("read {wrong}"))
            .await
            .exited_with(2, "skill://ROOT/PATH");
    }
    daemon.stop().await;
}

#[tokio::test]
async fn a_long_list_shows_handles_that_can_be_read() {
    let (fixture, daemon) = publish_two_roots().await;
    let output = run_client(&daemon, "list --long").await.succeeded();
    let mut rows = output
        .text()
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    assert_eq!(
        rows.next().expect("a head"),
        ["NAME", "HANDLE", "SAME", "AS", "DESCRIPTION"]
    );
    let rows: Vec<_> = rows.collect();
    let json = run_client(&daemon, "list --output json").await.json();
    let skills = json["skills"].as_array().expect("skills");
    assert_eq!(rows.len(), skills.len());
    for (row, skill) in rows.iter().zip(skills) {
        assert_eq!(
            [row[0], row[1]],
            [&skill["name"], &skill["package"]].map(|v| v.as_str().expect("text"))
        );
    }
    run_client(&daemon, &format!("read {}", rows[0][1]))
        .await
        .succeeded();

    let fleet = format!(
        "executors: {{local: {{endpoint: 'tcp:{}'}}}}",
        daemon.address
    );
    fixture.write("fleet.yaml", fleet);
    let mut command = client_command(&daemon, "list --long --fleet");
    command.arg(fixture.path("fleet.yaml"));
    let output = run_command(command).await.succeeded();
    let row = output
        .text()
        .lines()
        .nth(1)
        .expect("a skill")
        .split_whitespace();
    let row: Vec<_> = row.take(3).collect();
    assert_eq!(row, [rows[0][0], "local", rows[0][1]]);
    daemon.stop().await;
}
