//! `caproot lock` and `caproot pull --lock`: the real binary on directories, daemons and fleets.

mod memory;
mod merge;
mod plugins;
mod pull;
mod signed;

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use serde_json::json;

use crate::harness::Daemon;
use crate::harness::fixture::Fixture;
use crate::harness::process::{Output, caproot, client_command, run_command};
use crate::harness::watch_harness::skill_text;

const TREE: &str = "skill r/pdf\nfile r/pdf/scripts/fill.py\n| #!\nmode 0755 r/pdf/scripts/fill.py\n\
                    file r/pdf/references/the steps.md\n| One.\nskill r/mail";

/// Runs a command in the directory of a fixture.
async fn run(fixture: &Fixture, words: &str) -> Output {
    let mut command = caproot(words.split_whitespace());
    command.current_dir(fixture.top());
    run_command(command).await
}

/// Creates `caproot.lock` of `r`.
async fn create_lock(tree: &str) -> Fixture {
    let fixture = Fixture::new(tree);
    run(&fixture, "lock r --out caproot.lock").await.succeeded();
    fixture
}

fn lock_text(fixture: &Fixture) -> String {
    fs::read_to_string(fixture.path("caproot.lock")).expect("a lock")
}

/// Lines of stdout.
fn lines(output: &Output) -> Vec<&str> {
    output.text().lines().collect()
}

#[tokio::test]
async fn a_lock_of_the_demo_has_the_published_digest() {
    let fixture = Fixture::new("");
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/trees/demo");
    let mut command = caproot(["lock"]);
    command.arg(demo).args(["--out", "caproot.lock"]);
    command.current_dir(fixture.top());
    let created = run_command(command).await.succeeded();
    assert_eq!(
        lines(&created),
        [
            "+ review-kit:review-diff  2 files, 1,160 bytes",
            "+ triage-logs             2 files, 1,418 bytes",
            "+ write-changelog         1 file, 919 bytes",
            "+ plugin review-kit       5 files, 1,659 bytes",
            "caproot.lock: 3 skills and 1 plugin approved",
        ]
    );
    let text = lock_text(&fixture);
    let digest = "sha256:dfbbb5ec0a71ce6958b7c8d68c5b1f9509511ce74cd347d1e2525995f5a31a75";
    assert!(text.contains(digest), "{text}");
}

#[tokio::test]
async fn two_locks_of_the_same_skills_have_the_same_bytes() {
    let fixture = create_lock(TREE).await;
    let first = lock_text(&fixture);
    run(&fixture, "lock r --out other.lock").await.succeeded();
    let other = fs::read_to_string(fixture.path("other.lock")).expect("a lock");
    assert_eq!(first, other);

    let again = run(&fixture, "lock r --out caproot.lock").await.succeeded();
    assert_eq!(lines(&again), ["caproot.lock is unchanged"]);
    assert_eq!(lock_text(&fixture), first);
    let check = run(&fixture, "lock r --check caproot.lock")
        .await
        .succeeded();
    assert_eq!(
        lines(&check),
        ["caproot.lock: 2 skills approved, no difference"]
    );
}

#[tokio::test]
async fn a_check_names_each_difference() {
    let fixture = create_lock(TREE).await;
    fixture.write("r/pdf/references/the steps.md", "One, two.\n");
    fixture.write("r/pdf/run.sh", "#!/bin/sh\n");
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(fixture.path("r/pdf/run.sh"), mode).expect("a mode");
    fs::remove_file(fixture.path("r/pdf/scripts/fill.py")).expect("removed");
    fixture.write("r/deploy/SKILL.md", skill_text("deploy", "Deploys."));
    fs::remove_dir_all(fixture.path("r/mail")).expect("removed");

    let check = run(&fixture, "lock r --check caproot.lock").await;
    let check = check.exited_with(1, "caproot: 1 changed, 1 new, 1 gone");
    assert_eq!(
        lines(&check),
        [
            "new      deploy",
            "gone     mail",
            "changed  pdf",
            "         ~ references/the%20steps.md  5 -> 10 bytes",
            "         + run.sh                     10 bytes, executable",
            "         - scripts/fill.py            3 bytes",
        ]
    );
    let hint =
        "hint: review the files, then run: caproot lock r --update deploy pdf --out caproot.lock";
    assert!(check.stderr.contains(hint), "{}", check.stderr);

    let json = run(&fixture, "lock r --check caproot.lock --output json").await;
    assert_eq!(json.code, Some(1));
    let report = json.json();
    assert_eq!(
        report["differences"][0],
        json!({"name": "deploy", "kind": "new"})
    );
    let files = &report["differences"][2]["files"];
    assert_eq!(files[1]["kind"], "added");
    assert_eq!(files[1]["current"]["executable"], true);
    assert_eq!(files[2]["approved"]["bytes"], 3);

    // An existing lock is never replaced as a whole.
    let before = lock_text(&fixture);
    let again = run(&fixture, "lock r --out caproot.lock").await;
    again.exited_with(1, "nothing is written: caproot.lock exists");
    assert_eq!(lock_text(&fixture), before);
}

#[tokio::test]
async fn of_twins_only_the_named_package_is_approved() {
    let fixture = create_lock(TREE).await;
    let before = lock_text(&fixture);
    fixture.write("r/pdf/references/the steps.md", "One, two.\n");
    // An author adds another package with the name.
    fixture.write("r/deep/evil/SKILL.md", skill_text("pdf", "Evil."));

    let check = run(&fixture, "lock r --check caproot.lock").await;
    let check = check.exited_with(1, "caproot: 1 twin");
    let handles = ["skill://1/deep/evil", "skill://1/pdf"];
    let indented = handles.map(|handle| format!("         {handle}"));
    assert_eq!(lines(&check), ["twin     pdf", &indented[0], &indented[1]]);
    assert!(
        check.stderr.contains("--update pdf --package HANDLE"),
        "{}",
        check.stderr
    );
    let json = run(&fixture, "lock r --check caproot.lock --output json").await;
    assert_eq!(
        json.json()["differences"],
        json!([{"name": "pdf", "kind": "twin", "packages": handles}])
    );

    for flags in ["--update pdf", "--add pdf"] {
        let refused = run(&fixture, &format!("lock r {flags} --out caproot.lock")).await;
        assert_eq!(refused.code, Some(4), "{}", refused.stderr);
        for part in [handles[0], handles[1], "--package HANDLE"] {
            assert!(refused.stderr.contains(part), "{}", refused.stderr);
        }
        let other = format!("lock r {flags} --package skill://1/mail --out caproot.lock");
        run(&fixture, &other).await.exited_with(
            4,
            "no package of the named skills has the handle skill://1/mail",
        );
    }
    assert_eq!(lock_text(&fixture), before);

    run(
        &fixture,
        "lock r --update pdf --package skill://1/pdf --out caproot.lock",
    )
    .await
    .succeeded();
    let text = lock_text(&fixture);
    assert!(!text.contains("Evil.") && text != before, "{text}");
    // The twin that is not approved stays a difference.
    run(&fixture, "lock r --check caproot.lock")
        .await
        .exited_with(1, "caproot: 1 twin");

    // A copy with equal files is the same approval.
    fs::remove_dir_all(fixture.path("r/deep")).expect("removed");
    let copy = fs::read(fixture.path("r/mail/SKILL.md")).expect("a skill");
    fixture.write("r/copy/SKILL.md", copy);
    run(&fixture, "lock r --update mail --out caproot.lock")
        .await
        .succeeded();
    run(&fixture, "lock r --check caproot.lock")
        .await
        .succeeded();
}

#[tokio::test]
async fn changes_of_content_and_mode_alone_are_differences() {
    let fixture = create_lock(TREE).await;
    fixture.write("r/pdf/references/the steps.md", "Two.\n");
    let mode = fs::Permissions::from_mode(0o644);
    fs::set_permissions(fixture.path("r/pdf/scripts/fill.py"), mode).expect("a mode");
    let check = run(&fixture, "lock r --check caproot.lock").await;
    assert_eq!(
        lines(&check),
        [
            "changed  pdf",
            "         ~ references/the%20steps.md  5 bytes, other content",
            "         ~ scripts/fill.py            3 bytes, no longer executable",
        ]
    );
}

#[tokio::test]
async fn an_update_changes_only_the_named_entries() {
    let fixture = create_lock(TREE).await;
    let before = lock_text(&fixture);
    fixture.write("r/pdf/references/the steps.md", "One, two.\n");
    fixture.write("r/mail/more.md", "More.\n");

    let update = run(&fixture, "lock r --update pdf --out caproot.lock").await;
    let update = update.succeeded();
    assert_eq!(
        lines(&update),
        [
            "changed  pdf",
            "         ~ references/the%20steps.md  5 -> 10 bytes",
            "caproot.lock: 2 skills approved",
        ]
    );
    let after = lock_text(&fixture);
    let mail = |text: &str| text[..text.find("\"pdf\"").expect("pdf")].to_owned();
    assert_eq!(mail(&before), mail(&after));
    assert_ne!(before, after);
    let check = run(&fixture, "lock r --check caproot.lock").await;
    assert_eq!(lines(&check)[0], "changed  mail");
}

#[tokio::test]
async fn versions_are_added_removed_and_pruned_by_name() {
    let fixture = create_lock(TREE).await;
    fixture.write("r/pdf/SKILL.md", skill_text("pdf", "Another."));
    run(&fixture, "lock r --add pdf --out caproot.lock")
        .await
        .succeeded();
    assert_eq!(lock_text(&fixture).matches("\"name\": \"pdf\"").count(), 2);
    // Both versions are approved.
    run(&fixture, "lock r --check caproot.lock")
        .await
        .succeeded();
    fixture.write("r/pdf/SKILL.md", skill_text("pdf", "pdf"));

    // The removal of a name needs neither directories nor a daemon.
    run(&fixture, "lock --remove pdf --out caproot.lock")
        .await
        .succeeded();
    assert_eq!(lock_text(&fixture).matches("\"name\": \"pdf\"").count(), 0);
    fs::remove_dir_all(fixture.path("r/mail")).expect("removed");
    let prune = run(&fixture, "lock r --prune --out caproot.lock")
        .await
        .succeeded();
    assert_eq!(
        lines(&prune),
        ["gone     mail", "caproot.lock: 0 skills approved"]
    );
}

#[tokio::test]
async fn unknown_names_and_files_are_errors() {
    let fixture = create_lock(TREE).await;
    let before = lock_text(&fixture);
    for (words, code, part) in [
        (
            "lock r --update pdff --out caproot.lock",
            4,
            "no skill or plugin has the qualified name `pdff`; did you mean pdf?",
        ),
        (
            "lock r --remove pdff --out caproot.lock",
            4,
            "the lock has no skill or plugin `pdff`; did you mean pdf?",
        ),
        (
            "lock r --update pdf --out none.lock",
            78,
            "none.lock: does not exist",
        ),
        ("lock r --check none.lock", 78, "none.lock: does not exist"),
        ("lock r --check r", 78, "r: is a directory; name a file"),
        ("lock none --out new.lock", 78, "none is no directory"),
        (
            "lock r --out none/new.lock",
            74,
            "cannot write none/new.lock: ",
        ),
        (
            "lock r --out /dev/null",
            78,
            "/dev/null: is not a regular file",
        ),
        ("lock r", 2, "--out <FILE>"),
        ("lock r --check a --update pdf", 2, "cannot be used with"),
        ("lock r --out a --signers b", 2, "cannot be used with"),
        (
            "lock r --root r --out a",
            2,
            "'DIR' cannot be used with '--root'",
        ),
        (
            "lock r --endpoint tcp:[::1]:1 --out a",
            2,
            "'DIR' cannot be used with '--endpoint'",
        ),
    ] {
        run(&fixture, words).await.exited_with(code, part);
    }
    assert_eq!(lock_text(&fixture), before);
    assert!(!fixture.path("new.lock").exists());

    fixture.write(
        "caproot.lock",
        before.replace("contentDigest", "contentDigst"),
    );
    let invalid = run(&fixture, "lock r --check caproot.lock").await;
    invalid.exited_with(
        78,
        "caproot.lock:7:7: skills[0].contentDigst: unknown key; did you mean \"contentDigest\"?",
    );
    fixture.write(
        "caproot.lock",
        before.replace("  \"skills\"", "<<<<<<< HEAD\n  \"skills\""),
    );
    let conflict = run(&fixture, "lock r --check caproot.lock").await;
    conflict.exited_with(
        78,
        "caproot.lock: line 3: a conflict of git; resolve it, then run caproot lock --check",
    );
}

#[tokio::test]
async fn a_skill_that_no_lock_can_have_is_reported() {
    let fixture = Fixture::new(TREE);
    fixture.write("r/pdf/a\\tb.md", "x");
    let created = run(&fixture, "lock r --out caproot.lock").await;
    let sentence = "caproot: pdf cannot be approved: it has a control character in the name of the file \
                    `a%09b.md`; rename the file";
    let created = created.exited_with(1, sentence);
    assert_eq!(
        lines(&created).last(),
        Some(&"caproot.lock: 1 skill approved")
    );
    run(&fixture, "lock r --check caproot.lock")
        .await
        .exited_with(1, sentence);
    let update = run(&fixture, "lock r --update pdf --out caproot.lock").await;
    update.exited_with(1, sentence);
}

#[tokio::test]
async fn the_lock_is_replaced_as_a_whole() {
    let fixture = create_lock(TREE).await;
    fs::create_dir(fixture.path("config")).expect("a directory");
    fs::rename(fixture.path("caproot.lock"), fixture.path("config/real")).expect("renamed");
    symlink("config/real", fixture.path("caproot.lock")).expect("a link");
    let mode = fs::Permissions::from_mode(0o640);
    fs::set_permissions(fixture.path("config/real"), mode).expect("a mode");

    run(&fixture, "lock --remove pdf --out caproot.lock")
        .await
        .succeeded();
    let link = fs::symlink_metadata(fixture.path("caproot.lock")).expect("an entry");
    let real = fs::metadata(fixture.path("config/real")).expect("a file");
    assert!(link.is_symlink());
    assert_eq!(real.permissions().mode() & 0o777, 0o640);
    let names = fs::read_dir(fixture.path("config")).expect("a directory");
    assert_eq!(names.count(), 1, "no temporary file stays");
}

#[tokio::test]
async fn a_lock_of_a_daemon_equals_the_lock_of_its_directory() {
    let (fixture, daemon) = Daemon::publishing("r", TREE).await;
    let mut command = client_command(&daemon, "lock --out daemon.lock");
    command.current_dir(fixture.top());
    run_command(command).await.succeeded();
    run(&fixture, "lock r --out caproot.lock").await.succeeded();
    let of_daemon = fs::read_to_string(fixture.path("daemon.lock")).expect("a lock");
    assert_eq!(of_daemon, lock_text(&fixture));
    daemon.stop().await;
}

#[tokio::test]
async fn one_lock_has_the_skills_of_a_fleet() {
    let fleet = crate::commands::fleet::TestFleet::start().await;
    let one = ("one", fleet.one.address.clone());
    fleet.write(&[one, ("two", fleet.two.address.clone())]);
    let out = fleet.fixture.path("fleet.lock");
    let out = out.to_str().expect("UTF-8");
    let words = format!("lock --fleet FLEET --out {out}");
    let created = fleet.run(&words).await.succeeded();
    assert!(
        created.text().ends_with("3 skills approved\n"),
        "{}",
        created.text()
    );

    // The skills of an executor that does not answer are not gone.
    let dead = crate::harness::test_servers::unused_address();
    fleet.write(&[("one", fleet.one.address.clone()), ("two", dead)]);
    let check = fleet
        .run(&format!("lock --fleet FLEET --check {out}"))
        .await;
    check.exited_with(6, "the roots of two are omitted: ");
    fleet.stop().await;
}

#[tokio::test]
async fn names_of_authors_are_no_commands_in_hints() {
    let fixture = create_lock("skill r/pdf").await;
    fixture.write("r/x/SKILL.md", skill_text("'$(touch owned)'", "Evil."));
    let check = run(&fixture, "lock r --check caproot.lock").await;
    assert_eq!(check.code, Some(1), "{}", check.stderr);
    let hint = "then run: caproot lock r --update NAME --out caproot.lock";
    assert!(check.stderr.contains(hint), "{}", check.stderr);
}

#[tokio::test]
async fn the_file_of_a_killed_command_is_removed() {
    let fixture = create_lock(TREE).await;
    fixture.write("caproot.lock.999.tmp", "half");
    fixture.write("caproot.lock.tmp", "of a user");
    fixture.write("caproot.lock.998.tmp", "of a running command");
    let running = fs::File::open(fixture.path("caproot.lock.998.tmp")).expect("a file");
    running.lock().expect("a lock");
    fixture.write("r/new/SKILL.md", skill_text("new", "New."));
    run(&fixture, "lock r --add new --out caproot.lock")
        .await
        .succeeded();
    for (file, exists) in [
        ("caproot.lock.999.tmp", false),
        ("caproot.lock.998.tmp", true),
        ("caproot.lock.tmp", true),
    ] {
        assert_eq!(fixture.path(file).exists(), exists, "{file}");
    }
}
