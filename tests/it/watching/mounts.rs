//! Mounts over directories that were already scanned, unmounts, and changes behind a mount.

use std::path::Path;
use std::time::Duration;

use caproot::daemon::catalog::WatchTiming;
use caproot_core::proto::caproot::v1::{RemovalReason, RootState, WatchMode};

use crate::harness::fixture::Fixture;
use crate::harness::namespaces::{Mount, run_in_namespaces};
use crate::harness::open_counter::OpenCounter;
use crate::harness::replica::Replica;
use crate::harness::watch_harness::{
    WatchHarness, fast_timing, fresh_list, skill_text, watch_request, watch_status,
};
use crate::harness::{Daemon, Setup, selected};

/// Mounts a filesystem with two skills outside every root.
fn mount_outside(fixture: &Fixture) -> Mount {
    let mounted = Mount::new("tmpfs", &fixture.path("out"), "").expect("tmpfs");
    fixture.write("out/in/a/SKILL.md", skill_text("a", "Mount."));
    fixture.write("out/in/new/SKILL.md", skill_text("new", "Mount."));
    mounted
}

fn description(live: &WatchHarness, package: &str) -> String {
    live.replica.skills[package].description.clone()
}

#[tokio::test]
async fn a_mount_over_a_listed_directory_is_one_revision() {
    run_in_namespaces!("--mount");
    let fixture = Fixture::new("skill r/d/in/a\nskill r/d/in/old\nskill r/b\ndir out\ndir empty");
    let out = mount_outside(&fixture);
    let root = selected("r", fixture.path("r"));
    let mut live = WatchHarness::with_roots(fixture, vec![root], fast_timing()).await;
    let before = watch_status(&live.daemon).await.watches_used;
    let mut unrelated = OpenCounter::start(&live.fixture.path("r/b"));
    let (from, to) = (live.fixture.path("out"), live.fixture.path("r/d"));
    for round in 0..3 {
        let revision = live.replica.revision;
        let over = Mount::bind(&from, &to);
        let step = live.next_change().await;
        let mut upserted = step.upserted;
        upserted.sort();
        assert_eq!(upserted, ["skill://r/d/in/a", "skill://r/d/in/new"]);
        assert_eq!(
            step.removed,
            [("skill://r/d/in/old".to_owned(), RemovalReason::Deleted)]
        );
        assert_eq!(
            live.replica.revision,
            revision + 1,
            "one mount is one revision"
        );
        // The newly mounted directories are watched.
        let text = format!("Below, {round}.");
        live.fixture
            .replace("out/in/new/SKILL.md", skill_text("new", &text));
        assert_eq!(live.next_change().await.upserted, ["skill://r/d/in/new"]);
        assert_eq!(description(&live, "skill://r/d/in/new"), text);
        drop(over);
        let step = live.next_change().await;
        assert_eq!(
            step.removed,
            [("skill://r/d/in/new".to_owned(), RemovalReason::Deleted)]
        );
        assert_eq!(description(&live, "skill://r/d/in/a"), "Does a.");
        assert_eq!(live.replica.revision, revision + 3);
    }
    assert_eq!(unrelated.count(), 0, "unrelated skills are not read again");
    assert_eq!(
        watch_status(&live.daemon).await.missed_changes,
        0,
        "no audit was needed"
    );
    assert_eq!(
        watch_status(&live.daemon).await.watches_used,
        before,
        "watches are removed"
    );
    // A mount outside the root does not affect the root.
    let revision = live.fresh_list().await.revision;
    let elsewhere = Mount::bind(&from, &live.fixture.path("empty"));
    assert_eq!(live.fresh_list().await.revision, revision);
    drop((elsewhere, out));
    live.finish().await;
}

#[tokio::test]
async fn a_fresh_list_includes_every_earlier_mount() {
    run_in_namespaces!("--mount");
    let fixture = Fixture::new("skill r/d/in/a\nskill r/f\ndir out\nfile out2");
    fixture.write("out2", skill_text("f", "Mount."));
    let out = mount_outside(&fixture);
    let roots = [selected("r", fixture.path("r"))];
    // Only a fresh list checks for mounts with this timing.
    let timing = WatchTiming {
        recheck_interval: Duration::from_mins(10),
        ..WatchTiming::default()
    };
    let setup = Setup {
        timing,
        ..Setup::allowing([fixture.top().to_owned()])
    };
    let daemon = Daemon::start(setup).await;
    let first = fresh_list(&daemon, &roots).await;
    let described = |list: &caproot_core::proto::caproot::v1::ListSkillsResponse| {
        list.skills
            .iter()
            .map(|s| s.description.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(described(&first), ["Does a.", "Does f."]);
    let bind = |from: &str, to: &str| Mount::bind(&fixture.path(from), &fixture.path(to));
    for _ in 0..10 {
        let over = bind("out/in", "r/d/in");
        assert_eq!(
            described(&fresh_list(&daemon, &roots).await),
            ["Mount.", "Does f.", "Mount."]
        );
        // Mounts over a single file in a listed directory.
        let file = bind("out2", "r/f/SKILL.md");
        assert_eq!(
            described(&fresh_list(&daemon, &roots).await),
            ["Mount.", "Mount.", "Mount."]
        );
        drop((over, file));
        assert_eq!(
            described(&fresh_list(&daemon, &roots).await),
            ["Does a.", "Does f."]
        );
    }
    drop(out);
    daemon.stop().await;
}

#[tokio::test]
async fn a_mount_that_is_undone_before_the_next_check_hides_nothing() {
    run_in_namespaces!("--mount");
    let mut live = WatchHarness::with_timing(
        "skill r/d/a\nskill r/d/in/b\ndir empty",
        WatchTiming {
            recheck_interval: Duration::from_millis(500),
            ..WatchTiming::default()
        },
    )
    .await;
    let empty = live.fixture.path("empty");
    for (round, at) in ["r/d", "r/d/a", "r", "r/d/in"]
        .iter()
        .cycle()
        .take(12)
        .enumerate()
    {
        let text = |step: &str| format!("Round {round}, {step}.");
        for package in ["a", "in/b"] {
            let file = format!("r/d/{package}/SKILL.md");
            let name = &package[package.len() - 1..];
            live.fixture.write(&file, skill_text(name, &text("one")));
        }
        let over = Mount::bind(&empty, &live.fixture.path(at));
        // The scan of the edit happens while the mount exists.
        tokio::time::sleep(Duration::from_millis(60)).await;
        drop(over);

        if round % 2 == 0 {
            let list = live.fresh_list().await;
            let says: Vec<_> = list.skills.iter().map(|s| &*s.description).collect();
            assert_eq!(says, [text("one"), text("one")], "{at}");
        }
        let is_described = |live: &WatchHarness, package: &str, says: &str| {
            let skill = live.replica.skills.get(package);
            skill.is_some_and(|skill| skill.description == says)
        };
        for package in ["skill://r/d/a", "skill://r/d/in/b"] {
            live.wait_while(|live| !is_described(live, package, &text("one")))
                .await;
        }

        live.fixture
            .write("r/d/a/SKILL.md", skill_text("a", &text("two")));
        live.wait_while(|live| !is_described(live, "skill://r/d/a", &text("two")))
            .await;
    }
    live.finish().await;
}

#[tokio::test]
async fn a_mount_over_the_root_or_a_parent_is_noticed() {
    run_in_namespaces!("--mount");
    let mut live = WatchHarness::with_root("skill up/r/a\nskill away/r/b\ndir out", "up/r").await;
    for (from, to) in [("away/r", "up/r"), ("away", "up"), ("out", "up")] {
        let over = Mount::bind(&live.fixture.path(from), &live.fixture.path(to));
        live.wait_while(|live| live.replica.skills.contains_key("skill://r/a"))
            .await;
        let is_ready = live.replica.roots["r"].state() == RootState::Ready;
        assert_eq!(
            is_ready,
            from != "out",
            "an empty mount makes the root unavailable"
        );
        assert_eq!(live.replica.skills.contains_key("skill://r/b"), is_ready);
        live.replica.catch_up(&live.daemon).await;
        drop(over);
        live.wait_while(|live| !live.replica.skills.contains_key("skill://r/a"))
            .await;
        live.replica.catch_up(&live.daemon).await;
    }
    live.finish().await;
}

fn overlay(fixture: &Fixture, at: &Path) -> Option<Mount> {
    let [lower, upper, work] = ["lower", "upper", "work"].map(|dir| fixture.path(dir));
    let (lower, upper, work) = (lower.display(), upper.display(), work.display());
    let options = format!("lowerdir={lower},upperdir={upper},workdir={work},userxattr");
    let mounted = Mount::new("overlay", at, &options);
    mounted
        .inspect_err(|e| println!("SKIPPED: no overlay can be mounted here: {e}"))
        .ok()
}

#[tokio::test]
async fn changes_behind_an_overlay_are_found_by_the_audit() {
    run_in_namespaces!("--mount");
    // An overlay may not be supported on the filesystem of the temporary directory.
    let fixture = Fixture::new("dir top");
    let base = Mount::new("tmpfs", fixture.top(), "").expect("tmpfs");
    for dir in ["upper", "work", "r"] {
        std::fs::create_dir(fixture.path(dir)).expect("a directory");
    }
    for name in ["a", "b"] {
        fixture.write(
            &format!("lower/{name}/SKILL.md"),
            skill_text(name, "Below."),
        );
    }
    let Some(over) = overlay(&fixture, &fixture.path("r")) else {
        return;
    };
    let timing = WatchTiming {
        overlay_scan_interval: Duration::from_millis(200),
        ..WatchTiming::default()
    };
    let setup = Setup {
        timing,
        ..Setup::allowing([fixture.top().to_owned()])
    };
    let daemon = Daemon::start(setup).await;
    let root = selected("r", fixture.path("r"));
    let mut replica = Replica::synced(&daemon, watch_request(vec![root])).await;
    assert_eq!(replica.skills.len(), 2);
    let missed_changes = async || watch_status(&daemon).await.missed_changes;

    // A change through the mount is reported by events.
    fixture.write("r/a/SKILL.md", skill_text("a", "Through the mount."));
    replica
        .wait_while(|replica| replica.skills["skill://r/a"].description != "Through the mount.")
        .await;
    let mut missed = missed_changes().await;
    assert_eq!(missed, 0, "an event reported the change");
    // Changes behind the mount, in the lower and in the upper directory.
    fixture.write(
        "lower/b/SKILL.md",
        skill_text("b", "Behind the mount, below."),
    );
    fixture.write(
        "upper/a/SKILL.md",
        skill_text("a", "Behind the mount, above."),
    );
    for (package, says) in [
        ("skill://r/b", "Behind the mount, below."),
        ("skill://r/a", "Behind the mount, above."),
    ] {
        replica
            .wait_while(|replica| replica.skills[package].description != says)
            .await;
        assert!(missed_changes().await > 0);
        missed = missed_changes().await;
    }
    fixture.write("upper/new/SKILL.md", skill_text("new", "Behind the mount."));
    replica
        .wait_while(|replica| !replica.skills.contains_key("skill://r/new"))
        .await;
    assert!(missed_changes().await > missed);
    assert_eq!(replica.roots["r"].watch_mode(), WatchMode::Events);
    replica.catch_up(&daemon).await;
    daemon.stop().await;
    drop((over, base));
}
