//! A merge of two updates by git.

use std::process::Command;

use super::{TREE, create_lock, lock_text, run};
use crate::harness::fixture::Fixture;
use crate::harness::process::{has_program, program};

/// Runs git in the directory of a fixture. Returns whether git succeeded.
fn git(fixture: &Fixture, words: &str) -> bool {
    let mut command: Command = program("git");
    command
        .current_dir(fixture.top())
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .args(["-c", "user.name=t", "-c", "user.email=t@example.org"])
        .args(words.split_whitespace());
    command.output().expect("git").status.success()
}

/// Commits an update of one skill on a new branch of `main`.
async fn commit_update(fixture: &Fixture, branch: &str, file: &str, name: &str) {
    assert!(git(fixture, "checkout -q main"));
    assert!(git(fixture, &format!("checkout -q -b {branch}")));
    fixture.write(file, format!("Text of {branch}.\n"));
    let update = format!("lock r --update {name} --out caproot.lock");
    run(fixture, &update).await.succeeded();
    assert!(git(fixture, "add -A") && git(fixture, &format!("commit -qm {branch}")));
}

#[tokio::test]
async fn a_merge_of_updates_of_two_skills_is_valid() {
    if !has_program("git", &["--version"]) {
        return;
    }
    let fixture = create_lock(TREE).await;
    assert!(git(&fixture, "init -q -b main ."));
    assert!(git(&fixture, "add -A") && git(&fixture, "commit -qm one"));
    commit_update(&fixture, "mail", "r/mail/more.md", "mail").await;
    commit_update(&fixture, "pdf", "r/pdf/more.md", "pdf").await;
    assert!(git(&fixture, "merge -q mail -m both"));

    run(&fixture, "lock r --check caproot.lock")
        .await
        .succeeded();
}

#[tokio::test]
async fn a_conflict_of_updates_of_one_skill_is_an_error() {
    if !has_program("git", &["--version"]) {
        return;
    }
    let fixture = create_lock(TREE).await;
    assert!(git(&fixture, "init -q -b main ."));
    assert!(git(&fixture, "add -A") && git(&fixture, "commit -qm one"));
    commit_update(&fixture, "first", "r/pdf/references/the steps.md", "pdf").await;
    commit_update(&fixture, "second", "r/pdf/references/the steps.md", "pdf").await;
    assert!(!git(&fixture, "merge -q first -m both"));

    assert!(lock_text(&fixture).contains("<<<<<<<"));
    let check = run(&fixture, "lock r --check caproot.lock").await;
    check.exited_with(
        78,
        ": a conflict of git; resolve it, then run caproot lock --check",
    );
}
