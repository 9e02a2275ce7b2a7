//! Views of the lock for an operator: `list --long`, `status`, metrics and the audit log.

use super::{LockedDaemon, TREE, config};
use crate::harness::fixture::Fixture;
use crate::harness::process::{ConfiguredDaemon, Output, caproot, run_client, run_command};
use crate::harness::shared_mapping::SharedMapping;
use crate::harness::watch_harness::skill_text;
use crate::harness::{content_digest, published, read_request};

#[tokio::test]
async fn list_and_status_have_the_states() {
    let locked = LockedDaemon::start(TREE, "warn").await;
    locked.fixture.write("r/pdf/scripts/fill.py", "#!other\n");
    locked
        .fixture
        .write("r/new/SKILL.md", skill_text("new", "New."));
    locked
        .wait_for_list(|list| list.skills.len() == 3 && super::warnings(list) == 2)
        .await;

    let list = run_client(&locked.daemon, "list --long").await.succeeded();
    let rows: Vec<Vec<&str>> = list
        .text()
        .lines()
        .map(|line| line.split_whitespace().take(3).collect())
        .collect();
    assert_eq!(
        rows,
        [
            ["NAME", "TRUST", "HANDLE"],
            ["mail", "approved", "skill://r/mail"],
            ["new", "unknown", "skill://r/new"],
            ["pdf", "changed", "skill://r/pdf"],
        ]
    );
    let status = run_client(&locked.daemon, "status").await.succeeded();
    let line = status.text().lines().find(|line| line.starts_with("trust"));
    let line = line.expect("the lock");
    assert!(
        line.contains(
            "warn: 1 approved, 1 changed, 1 unknown; lock with 2 approved versions, read "
        ),
        "{line}"
    );
    locked.daemon.stop().await;
}

#[tokio::test]
async fn a_lock_of_no_listed_skill_is_named_in_the_status() {
    let locked = LockedDaemon::start("skill r/a", "hide").await;
    std::fs::remove_dir_all(locked.fixture.path("r/a")).expect("removed");
    locked.wait_for_list(|list| list.skills.is_empty()).await;
    let status = run_client(&locked.daemon, "status").await.succeeded();
    assert!(
        status.text().contains("0 of 1 approved skills exist"),
        "{}",
        status.text()
    );
    locked.daemon.stop().await;
}

#[tokio::test]
async fn a_refused_read_is_counted_and_audited() {
    let fixture = Fixture::new(TREE);
    let path = fixture.path("r/pdf/references/steps.md");
    let mut mapping = SharedMapping::new(&path);
    mapping.write(b"Two.\n");
    mapping.write(b"One.\n");
    super::lock_skills(&fixture, "--out caproot.lock").await;
    let config = format!("{}\nmetrics: {{listen: 'tcp:127.0.0.1:0'}}", config("hide"));
    let daemon = ConfiguredDaemon::start(&fixture, &config).await;
    let locked = LockedDaemon { fixture, daemon };
    assert_eq!(locked.list().await.skills.len(), 2);

    let read = read_request(
        &published("r"),
        "skill://r/pdf",
        "skill://r/pdf/references/steps.md",
    );
    locked
        .daemon
        .read(read.clone())
        .await
        .expect("the approved text");
    mapping.write(b"Two.\n");
    locked.daemon.read(read).await.expect_err("other bytes");
    locked.wait_for_list(|list| list.skills.len() == 1).await;

    let log = locked.daemon.stop().await;
    let line = log
        .lines()
        .find(|line| line.contains("content is not approved"));
    let line = line.unwrap_or_else(|| panic!("no audit line in {log}"));
    for part in [
        "ReadResource",
        "skill://r/pdf/references/steps.md",
        &content_digest(b"One.\n"),
        &content_digest(b"Two.\n"),
    ] {
        assert!(line.contains(part), "{part}: {line}");
    }
}

#[tokio::test]
async fn check_warns_about_skills_that_a_lock_does_not_approve() {
    let fixture = Fixture::new(TREE);
    super::lock_skills(&fixture, "--out caproot.lock").await;
    check_with_lock(&fixture).await;
    fixture.write("r/pdf/scripts/fill.py", "#!other\n");
    fixture.write("r/new/SKILL.md", skill_text("new", "New. Use when new."));
    let output = check_with_lock(&fixture).await;
    for part in ["warning[PACKAGE_CHANGED]", "warning[PACKAGES_NOT_APPROVED]"] {
        assert!(output.text().contains(part), "{}", output.text());
    }
}

async fn check_with_lock(fixture: &Fixture) -> Output {
    let mut command = caproot(["check", "r", "--lock", "caproot.lock"]);
    command.current_dir(fixture.top());
    run_command(command).await.succeeded()
}
