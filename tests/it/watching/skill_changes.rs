//! Changes of skills as events of a stream.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use caproot::daemon::catalog::WatchTiming;
use caproot_core::proto::caproot::v1::{DiagnosticCode, RemovalReason, Severity};

use crate::harness::watch_harness::{BusyThread, WatchHarness, skill_text, watch_status};
use crate::harness::{Daemon, Setup, in_time};

const A: &str = "skill://r/a";

#[tokio::test]
async fn the_backend_is_reported_before_the_first_root() {
    let daemon = Daemon::start(Setup::default()).await;
    let watch = watch_status(&daemon).await;
    assert_eq!((watch.backend.as_str(), watch.roots), ("inotify", 0));
    daemon.stop().await;
}

#[tokio::test]
async fn a_skill_is_added_changed_renamed_and_removed() {
    let mut live = WatchHarness::new("skill r/a").await;
    assert_eq!(live.replica.skills.len(), 1);

    live.fixture.write("r/b/SKILL.md", skill_text("b", "Two."));
    assert_eq!(live.next_change().await.upserted, ["skill://r/b"]);
    let digest = live.replica.skills["skill://r/b"].digest.clone();

    live.fixture
        .write("r/b/SKILL.md", skill_text("b", "Three."));
    assert_eq!(live.next_change().await.upserted, ["skill://r/b"]);
    let now = &live.replica.skills["skill://r/b"];
    assert_eq!(now.description, "Three.");
    assert_ne!(now.digest, digest);

    let before = live.replica.revision;
    fs::rename(live.fixture.path("r/b"), live.fixture.path("r/c")).expect("rename");
    let moved = live.next_change().await;
    assert_eq!(
        live.replica.revision,
        before + 1,
        "a rename is one revision"
    );
    assert_eq!(moved.upserted, ["skill://r/c"]);
    assert_eq!(
        moved.removed,
        [("skill://r/b".to_owned(), RemovalReason::Renamed)]
    );

    fs::remove_dir_all(live.fixture.path("r/a")).expect("remove");
    let gone = live.next_change().await;
    assert_eq!(gone.removed, [(A.to_owned(), RemovalReason::Deleted)]);
    live.finish().await;
}

#[tokio::test]
async fn changes_without_effect_on_a_skill_cause_no_event() {
    let mut live = WatchHarness::new("skill r/a").await;
    let before = live.replica.revision;
    let path = live.fixture.path("r/a/SKILL.md");
    let text = fs::read(&path).expect("read");
    let touches: [&dyn Fn(); 6] = [
        &|| {
            let file = fs::File::options().append(true).open(&path).expect("open");
            file.set_modified(SystemTime::UNIX_EPOCH).expect("touch");
        },
        &|| fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("chmod"),
        &|| live.fixture.write("r/a/notes.txt", "unrelated"),
        &|| live.fixture.write("r/README.md", "unrelated"),
        &|| fs::remove_file(live.fixture.path("r/README.md")).expect("remove"),
        &|| live.fixture.replace("r/a/SKILL.md", &text),
    ];
    for touch in touches {
        touch();
        // The daemon has rescanned the skill before it answers a fresh list.
        assert_eq!(live.fresh_list().await.revision, before);
    }
    live.fixture.write("r/z/SKILL.md", skill_text("z", "Real."));
    let next = live.next_change().await;
    assert_eq!(next.upserted, ["skill://r/z"]);
    assert_eq!(live.replica.revision, before + 1);
    live.finish().await;
}

#[tokio::test]
async fn an_editors_save_is_one_revision() {
    let mut live = WatchHarness::new("skill r/a").await;
    let before = live.replica.revision;
    live.fixture
        .replace("r/a/SKILL.md", skill_text("a", "Saved."));
    let step = live.next_change().await;
    assert_eq!((step.upserted, step.removed.len()), (vec![A.to_owned()], 0));
    assert_eq!(live.replica.revision, before + 1);
    assert_eq!(live.fresh_list().await.revision, before + 1);
    live.finish().await;
}

#[tokio::test]
async fn new_directories_that_are_filled_at_once_are_always_seen() {
    let mut live = WatchHarness::new("dir r").await;
    let top = live.fixture.path("r");
    let writer = thread::spawn(move || {
        for n in 0..1_000 {
            let dir = top.join(format!("s{n}"));
            fs::create_dir(&dir).expect("mkdir");
            fs::write(dir.join("SKILL.md"), skill_text("s", "Here.")).expect("write");
        }
    });
    live.wait_while(|live| live.replica.skills.len() < 1_000)
        .await;
    writer.join().expect("no panic");
    assert_eq!(
        watch_status(&live.daemon).await.missed_changes,
        0,
        "all changes were found by events"
    );
    // A list of diagnostics over one page would fail in `finish`, so only stop the daemon.
    live.daemon.stop().await;
}

#[tokio::test]
async fn ten_nested_directories_created_at_once_are_seen() {
    let mut live = WatchHarness::new("dir r").await;
    for n in 0..20 {
        live.fixture.write(
            &format!("r/{n}/b/c/d/e/f/g/h/i/j/SKILL.md"),
            skill_text("deep", "Found."),
        );
        let package = format!("skill://r/{n}/b/c/d/e/f/g/h/i/j");
        live.wait_while(|live| !live.replica.skills.contains_key(&package))
            .await;
    }
    live.finish().await;
}

#[tokio::test]
async fn a_broken_skill_is_stale_until_it_is_fixed_or_removed() {
    let mut live = WatchHarness::new("skill r/a").await;
    let good = live.replica.skills[A].clone();
    live.fixture.write("r/a/SKILL.md", "---\nname: a\n");
    live.next_change().await;
    let stale = &live.replica.skills[A];
    assert!(stale.stale);
    assert_eq!(
        (&stale.digest, &stale.description),
        (&good.digest, &good.description)
    );
    let problems = &live.replica.diagnostics["r"];
    assert!(
        problems.iter().any(|d| {
            d.severity() == Severity::Error && d.code() == DiagnosticCode::NoFrontmatter
        }),
        "{problems:?}"
    );
    live.replica.catch_up(&live.daemon).await;

    live.fixture
        .write("r/a/SKILL.md", skill_text("a", "Healed."));
    live.next_change().await;
    assert!(!live.replica.skills[A].stale);
    assert_eq!(live.replica.skills[A].description, "Healed.");
    assert!(live.replica.diagnostics["r"].is_empty());

    live.fixture.write("r/a/SKILL.md", "broken again");
    live.next_change().await;
    assert_eq!(live.replica.skills[A].description, "Healed.");
    fs::remove_file(live.fixture.path("r/a/SKILL.md")).expect("remove");
    let gone = live.next_change().await;
    assert_eq!(gone.removed, [(A.to_owned(), RemovalReason::Deleted)]);
    live.finish().await;
}

#[tokio::test]
async fn a_half_written_file_is_not_sent_while_its_writer_is_busy() {
    // With a shorter debounce, a writer that is not scheduled in time would look finished.
    let timing = WatchTiming {
        debounce: Duration::from_secs(3),
        max_debounce: Duration::from_millis(50),
        ..WatchTiming::default()
    };
    let mut live = WatchHarness::with_timing("skill r/a", timing).await;
    let path = live.fixture.path("r/a/SKILL.md");
    let busy = BusyThread::new(move |n| {
        fs::write(&path, "---\nname: a\n").expect("half");
        // A slow writer, so that the kernel's queue does not overflow.
        thread::sleep(Duration::from_millis(1));
        fs::write(&path, skill_text("a", &format!("Save {n}."))).expect("whole");
        thread::sleep(Duration::from_millis(1));
    });
    for _ in 0..10 {
        let step = live.next_change().await;
        assert!(step.removed.is_empty());
        assert!(
            !live.replica.skills[A].stale,
            "only a complete file is listed"
        );
    }
    drop(busy);
    live.finish().await;
}

/// A SKILL.md that is valid YAML only after a repair.
fn repairable_text(description: &str) -> String {
    format!("---\nname: a\ndescription: {description}: more\n---\n")
}

#[tokio::test]
async fn a_half_written_skill_that_a_repair_can_read_is_sent_when_it_is_unchanged() {
    let mut live = WatchHarness::new("skill r/a\nskill r/b").await;
    let good = live.replica.skills[A].description.clone();
    live.fixture.write("r/a/SKILL.md", repairable_text("Half"));
    let listed = live.fresh_list().await;
    assert_eq!(listed.skills[0].description, good);
    live.fixture
        .write("r/b/SKILL.md", skill_text("b", "Changed."));
    assert_eq!(live.next_change().await.upserted, ["skill://r/b"]);

    live.fixture
        .write("r/a/SKILL.md", skill_text("a", "Whole."));
    assert_eq!(live.next_change().await.upserted, [A]);
    assert_eq!(live.replica.skills[A].description, "Whole.");

    let written_at = Instant::now();
    live.fixture.write("r/a/SKILL.md", repairable_text("Stays"));
    assert_eq!(live.next_change().await.upserted, [A]);
    assert_eq!(live.replica.skills[A].description, "Stays: more");
    assert!(written_at.elapsed() >= Duration::from_secs(2));
    // The published version is repaired itself, so that the next one needs no delay.
    live.fixture.write("r/a/SKILL.md", repairable_text("Next"));
    let listed = live.fresh_list().await;
    assert_eq!(listed.skills[0].description, "Next: more");
    live.finish().await;
}

#[tokio::test]
async fn an_endless_writer_does_not_delay_other_skills() {
    let mut live = WatchHarness::new("skill r/noisy\nskill r/a").await;
    let path = live.fixture.path("r/noisy/SKILL.md");
    let busy = BusyThread::new(move |n| {
        fs::write(&path, skill_text("noisy", &format!("Line {n}."))).expect("write");
    });
    for n in 0..3 {
        live.fixture
            .write("r/a/SKILL.md", skill_text("a", &format!("Round {n}.")));
        // At most half a second passes between an event and its revision.
        let update = async { while !live.next_change().await.upserted.contains(&A.into()) {} };
        let update = tokio::time::timeout(Duration::from_secs(10), update).await;
        update.expect("within max_debounce, while the writer runs");
    }
    drop(busy);
    live.finish().await;
}

#[tokio::test]
async fn a_directory_moved_in_is_one_revision() {
    let mut live = WatchHarness::new("dir r\nrepeat 30 skill out/pack/in/s{}").await;
    let before = live.replica.revision;
    fs::rename(live.fixture.path("out/pack"), live.fixture.path("r/pack")).expect("rename");
    assert_eq!(live.next_change().await.upserted.len(), 30);
    assert_eq!(live.replica.revision, before + 1);
    live.finish().await;
}

#[tokio::test]
async fn a_replaced_directory_is_read_completely() {
    let mut live = WatchHarness::new("skill r/pack/in/a\nskill out/pack/in/a").await;
    live.fixture
        .write("out/pack/in/a/SKILL.md", skill_text("a", "From outside."));
    live.fixture
        .write("out/pack/.codex-plugin/plugin.json", r#"{"name": "p"}"#);
    fs::rename(live.fixture.path("r/pack"), live.fixture.path("out/old")).expect("rename");
    fs::rename(live.fixture.path("out/pack"), live.fixture.path("r/pack")).expect("rename");
    live.wait_while(|live| {
        live.replica
            .skills
            .get("skill://r/pack/in/a")
            .is_none_or(|s| s.name != "p:a")
    })
    .await;
    let now = &live.replica.skills["skill://r/pack/in/a"];
    assert_eq!(now.description, "From outside.");
    // The old directory is no longer watched, the new directory is watched to the bottom.
    live.fixture
        .write("out/old/in/a/SKILL.md", skill_text("a", "Gone."));
    live.fixture
        .write("r/pack/in/a/SKILL.md", skill_text("a", "Watched."));
    assert_eq!(live.next_change().await.upserted, ["skill://r/pack/in/a"]);
    assert_eq!(
        live.replica.skills["skill://r/pack/in/a"].description,
        "Watched."
    );
    live.finish().await;
}

#[tokio::test]
async fn a_thousand_changes_at_once_are_few_revisions() {
    let mut live = WatchHarness::new("repeat 1000 skill r/s{}").await;
    let before = live.replica.revision;
    for n in 0..1_000 {
        live.fixture
            .write(&format!("r/s{n:03}/SKILL.md"), skill_text("s", "All anew."));
    }
    let all = async {
        live.wait_while(|live| {
            live.replica
                .skills
                .values()
                .any(|s| s.description != "All anew.")
        })
        .await;
    };
    in_time(all).await;
    let revisions = live.replica.revision - before;
    assert!(revisions <= 50, "{revisions} revisions");
    live.finish().await;
}
