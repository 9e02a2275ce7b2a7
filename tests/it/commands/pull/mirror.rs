//! `caproot pull --all` with `--watch` and `--prune`: the directory follows the list, and nothing of a
//! user is touched.

use std::fs;
use std::path::Path;

use caproot_client::pull::CHECKSUM_FILE;
use rustix::process::Signal;

use super::{names_in, publish_tree, read_tree, run_pull, wait_for_line};
use crate::harness::fixture::Fixture;
use crate::harness::namespaces::{Mount, run_in_namespaces};
use crate::harness::process::{ConfiguredDaemon, Process, client_command};
use crate::harness::watch_harness::{fresh_list, skill_text};
use crate::harness::{Daemon, located};

/// Waits until the daemon has seen each change of these published roots.
async fn refresh(daemon: &Daemon, ids: &[&str]) {
    for id in ids {
        fresh_list(daemon, &[located(id, &format!("published:{id}"))]).await;
    }
}

fn start_mirror(daemon: &Daemon, fixture: &Fixture, words: &str) -> Process {
    let mut command = client_command(daemon, words);
    command.current_dir(fixture.top());
    Process::spawn(command)
}

/// Handle of the package that a pull wrote to a directory.
fn package_in(dir: &Path) -> String {
    let text = fs::read_to_string(dir.join(CHECKSUM_FILE)).expect("a checksum file");
    let checksums: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    checksums["package"].as_str().expect("a handle").to_owned()
}

#[tokio::test]
async fn a_mirror_follows_the_list() {
    let tree = "skill r/pdf\nskill r/group/mail\nfile r/kit/.claude-plugin/plugin.json\n| {\"name\": \"kit\"}\n\
                skill r/kit/skills/deploy";
    let (mut fixture, daemon) = publish_tree(tree).await;
    fixture.add("file out/skills/mine/notes.md\n| Mine.\nfile out/skills/loose.txt\n| Loose.");
    let words = "pull --all --watch --prune --into out/skills";
    let mut mirror = start_mirror(&daemon, &fixture, words);
    wait_for_line(&mut mirror, "pulled 3 of 3 skills").await;
    let skills = fixture.path("out/skills");
    assert_eq!(
        names_in(&skills),
        ["deploy", "loose.txt", "mail", "mine", "pdf"]
    );

    // A second mirror of the directory would remove the directories of the first.
    let second = run_pull(&daemon, &fixture, "pull --all --prune --into out/skills").await;
    second.exited_with(6, "another pull is writing");

    fixture.add("skill r/new\nfile r/new/scripts/run.sh\n| #!/bin/sh");
    wait_for_line(&mut mirror, "+ new/SKILL.md").await;
    wait_for_line(&mut mirror, "pulled 4 of 4 skills").await;
    fixture.replace("r/pdf/SKILL.md", skill_text("pdf", "Edited."));
    wait_for_line(&mut mirror, "+ pdf/SKILL.md").await;
    wait_for_line(&mut mirror, "pulled 4 of 4 skills").await;
    assert_eq!(
        read_tree(&skills.join("pdf")),
        read_tree(&fixture.path("r/pdf"))
    );

    // A renamed skill moves to the directory of its new name.
    fixture.replace("r/group/mail/SKILL.md", skill_text("letters", "Mail."));
    wait_for_line(&mut mirror, "+ letters/SKILL.md").await;
    wait_for_line(&mut mirror, "- mail/SKILL.md").await;
    fs::remove_dir_all(fixture.path("r/new")).expect("remove");
    wait_for_line(&mut mirror, "- new/SKILL.md").await;
    wait_for_line(&mut mirror, "pulled 3 of 3 skills, removed 1").await;
    assert_eq!(
        names_in(&skills),
        ["deploy", "letters", "loose.txt", "mine", "pdf"]
    );

    mirror.exit_on(Signal::TERM).await.succeeded();
    daemon.stop().await;
}

#[tokio::test]
async fn only_unchanged_copies_of_a_complete_list_are_removed() {
    let (mut fixture, daemon) =
        publish_tree("skill r/pdf\nskill r/mail\nskill r/web\nfile r/web/more.md\n| More.").await;
    fixture.add("file out/s/web/own.md\n| Own.\nfile out/s/empty/.caproot-checksums.json\n| {}");
    let words = "pull --all --prune --into out/s";
    let skills = fixture.path("out/s");

    // The directory of the user has the name of a skill.
    let first = run_pull(&daemon, &fixture, words).await;
    let first = first.exited_with(
        1,
        "caproot: web: nothing is written: 1 file not from a pull, or changed since: extra    own.md",
    );
    assert!(first.text().ends_with("pulled 2 of 3 skills\n"));
    assert_eq!(names_in(&skills), ["empty", "mail", "pdf", "web"]);

    // The root is away.
    fs::rename(fixture.path("r"), fixture.path("away")).expect("rename");
    refresh(&daemon, &["r"]).await;
    run_pull(&daemon, &fixture, words)
        .await
        .exited_with(1, "error[NOT_FOUND] root r");
    assert_eq!(names_in(&skills), ["empty", "mail", "pdf", "web"]);
    fs::rename(fixture.path("away"), fixture.path("r")).expect("rename");

    // A skill is gone, and the user changed its copy.
    fs::remove_dir_all(fixture.path("r/pdf")).expect("remove");
    fs::remove_dir_all(fixture.path("r/web")).expect("remove");
    fixture.write("out/s/pdf/own.md", "Own.");
    refresh(&daemon, &["r"]).await;
    run_pull(&daemon, &fixture, words).await.exited_with(
        1,
        "caproot: pdf: the skill is no longer listed, and the directory stays: 1 file not from a \
         pull, or changed since: extra    own.md",
    );
    assert_eq!(names_in(&skills), ["empty", "mail", "pdf", "web"]);

    fs::remove_file(fixture.path("out/s/pdf/own.md")).expect("remove");
    let kept = run_pull(&daemon, &fixture, "pull --all --into out/s").await;
    kept.succeeded();
    assert!(skills.join("pdf").exists(), "removed without --prune");
    let removed = run_pull(&daemon, &fixture, words).await.succeeded();
    assert_eq!(
        removed.text().lines().collect::<Vec<_>>(),
        ["- pdf/SKILL.md", "pulled 1 of 1 skill, removed 1"]
    );
    assert_eq!(names_in(&skills), ["empty", "mail", "web"]);

    for arguments in [
        "pull --prune --into out/x",
        "pull mail --prune --into out/x",
        "pull --all --prune --force --into out/x",
    ] {
        let output = run_pull(&daemon, &fixture, arguments).await;
        assert_eq!(output.code, Some(2), "{arguments}");
    }
    daemon.stop().await;
}

#[tokio::test]
async fn the_first_root_has_the_directory_of_a_name() {
    let fixture = Fixture::new("skill a/x/pdf\nskill b/y/pdf\nskill b/mail\ndir out");
    let config = "roots: [{id: a, path: a}, {id: b, path: b}]\n";
    let daemon = ConfiguredDaemon::start(&fixture, config).await;
    let pull = async || {
        refresh(&daemon, &["a", "b"]).await;
        run_pull(&daemon, &fixture, "pull --all --prune --into out/s").await
    };
    let pdf = fixture.path("out/s/pdf");

    let first = pull().await;
    first.exited_with(
        1,
        "caproot: skill://b/y/pdf is skipped: skill://a/x/pdf has the directory pdf",
    );
    assert_eq!(package_in(&pdf), "skill://a/x/pdf");

    // While the first root is away, its copy stays.
    fs::rename(fixture.path("a"), fixture.path("away")).expect("rename");
    let away = pull().await;
    away.exited_with(
        1,
        "caproot: pdf: the directory holds another package, skill://a/x/pdf",
    );
    assert_eq!(package_in(&pdf), "skill://a/x/pdf");

    // Without the first skill, the second has the directory, and the first takes it again.
    fs::create_dir(fixture.path("a")).expect("a directory");
    pull().await.succeeded();
    assert_eq!(package_in(&pdf), "skill://b/y/pdf");
    fs::remove_dir(fixture.path("a")).expect("remove");
    fs::rename(fixture.path("away"), fixture.path("a")).expect("rename");
    pull().await.exited_with(1, "is skipped");
    assert_eq!(package_in(&pdf), "skill://a/x/pdf");
    daemon.stop().await;
}

#[tokio::test]
async fn a_directory_that_the_daemon_serves_has_no_second_source() {
    let (fixture, daemon) =
        publish_tree("skill r/one/pdf\nskill r/mail\nskill r/skills/web\nfile r/mail/a.md\n| A.")
            .await;
    let pull = async |words: &str| {
        refresh(&daemon, &["r"]).await;
        run_pull(&daemon, &fixture, words).await
    };

    // `web` is its own source, and stays as the author wrote it.
    let words = "pull --all --prune --into r/skills";
    let first = pull(words).await.succeeded();
    assert!(
        first.text().ends_with("pulled 3 of 3 skills\n"),
        "{}",
        first.text()
    );
    let skills = fixture.path("r/skills");
    assert_eq!(names_in(&skills), ["mail", "pdf", "web"]);
    assert_eq!(names_in(&skills.join("web")), ["SKILL.md"]);

    let second = pull(words).await.succeeded();
    assert_eq!(second.text(), "pulled 3 of 3 skills\n");
    assert!(
        second
            .stderr
            .starts_with("caproot: not pulled again, because a pull wrote them: 2 listed skills\n"),
        "{}",
        second.stderr
    );
    assert_eq!(package_in(&skills.join("pdf")), "skill://r/one/pdf");
    run_pull(&daemon, &fixture, "pull skill://r/skills/pdf --into out/x")
        .await
        .exited_with(4, "the package is a copy that a pull made");

    // A copy does not outlive its source.
    fs::remove_dir_all(fixture.path("r/one")).expect("remove");
    let removed = pull(words).await.succeeded();
    assert!(removed.text().starts_with("- pdf/SKILL.md\n"));
    assert_eq!(names_in(&skills), ["mail", "web"]);
    daemon.stop().await;
}

#[tokio::test]
async fn a_mirror_without_its_daemon_keeps_everything() {
    let (fixture, daemon) = publish_tree("skill r/pdf\nskill r/mail").await;
    let words = "pull --all --watch --prune --timeout 1s --into out/s";
    let mut mirror = start_mirror(&daemon, &fixture, words);
    wait_for_line(&mut mirror, "pulled 2 of 2 skills").await;
    daemon.stop().await;
    mirror
        .wait_for_log("; the directories stay as they are")
        .await;
    assert_eq!(names_in(&fixture.path("out/s")), ["mail", "pdf"]);
    mirror.exit_on(Signal::TERM).await.succeeded();
}

#[tokio::test]
async fn a_full_disk_loses_nothing() {
    run_in_namespaces!("--mount");
    let (mut fixture, daemon) = publish_tree("skill r/pdf\nskill r/mail").await;
    let disk = Mount::new("tmpfs", &fixture.path("out"), "size=256k").expect("tmpfs");
    let words = "pull --all --prune --into out/s";
    run_pull(&daemon, &fixture, words).await.succeeded();
    let old = read_tree(&fixture.path("out/s/pdf"));

    fixture.write("r/pdf/large.bin", vec![b'x'; 512 << 10]);
    fixture.replace("r/mail/SKILL.md", skill_text("mail", "Edited."));
    refresh(&daemon, &["r"]).await;
    let full = run_pull(&daemon, &fixture, words).await;
    let full = full.exited_with(74, "No space left on device");
    assert!(full.text().contains("+ mail/SKILL.md"), "{}", full.text());
    assert_eq!(read_tree(&fixture.path("out/s/pdf")), old);
    assert_eq!(names_in(&fixture.path("out/s")), ["mail", "pdf"]);

    fs::remove_file(fixture.path("r/pdf/large.bin")).expect("remove");
    fixture.add("file r/pdf/small.md\n| Small.");
    run_pull(&daemon, &fixture, words).await.succeeded();
    assert!(fixture.path("out/s/pdf/small.md").exists());
    drop(disk);
    daemon.stop().await;
}

#[tokio::test]
async fn a_filesystem_that_cannot_exchange_directories_says_so() {
    run_in_namespaces!("--mount");
    let (mut fixture, daemon) = publish_tree("skill r/pdf").await;
    fixture.add("dir image\ndir container");
    let scratch = Mount::new("tmpfs", &fixture.path("container"), "").expect("tmpfs");
    fixture.add("dir container/upper\ndir container/work");
    run_pull(&daemon, &fixture, "pull --all --into image")
        .await
        .succeeded();
    let options = format!(
        "lowerdir={},upperdir={},workdir={},redirect_dir=off",
        fixture.path("image").display(),
        fixture.path("container/upper").display(),
        fixture.path("container/work").display()
    );
    let Ok(overlay) = Mount::new("overlay", &fixture.path("out"), &options) else {
        println!("SKIPPED: an overlay cannot be mounted here");
        return;
    };

    let old = read_tree(&fixture.path("out/pdf"));
    fixture.replace("r/pdf/SKILL.md", skill_text("pdf", "Edited."));
    refresh(&daemon, &["r"]).await;
    run_pull(&daemon, &fixture, "pull --all --prune --into out")
        .await
        .exited_with(
            78,
            "its filesystem cannot replace a directory, as the overlay of a container; pull into a \
             volume",
        );
    assert_eq!(read_tree(&fixture.path("out/pdf")), old);
    drop(overlay);
    drop(scratch);
    daemon.stop().await;
}
