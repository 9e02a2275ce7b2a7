//! Links below a root whose targets change.

use std::fs;

use caproot_core::proto::caproot::v1::RemovalReason;

use crate::harness::fixture::Fixture;
use crate::harness::selected;
use crate::harness::watch_harness::{WatchHarness, fast_timing, retarget, skill_text};

#[tokio::test]
async fn a_link_changed_to_another_release_is_one_revision() {
    let mut live = WatchHarness::new(
        "skill releases/1/x\nskill releases/1/y\nskill releases/2/x\nskill releases/2/z\n\
         link r/current -> ../releases/1",
    )
    .await;
    live.fixture
        .write("releases/2/x/SKILL.md", skill_text("x", "Second."));
    assert_eq!(live.replica.skills.len(), 2);
    let before = live.replica.revision;
    retarget(&live.fixture.path("r/current"), "../releases/2");
    let step = live.next_change().await;
    assert_eq!(
        live.replica.revision,
        before + 1,
        "old out and new in at once"
    );
    let mut upserted = step.upserted;
    upserted.sort();
    assert_eq!(upserted, ["skill://r/current/x", "skill://r/current/z"]);
    assert_eq!(
        step.removed,
        [("skill://r/current/y".to_owned(), RemovalReason::Deleted)]
    );
    live.fixture
        .write("releases/2/x/SKILL.md", skill_text("x", "Watched."));
    assert_eq!(live.next_change().await.upserted, ["skill://r/current/x"]);
    live.finish().await;
}

#[tokio::test]
async fn a_config_map_is_updated_in_one_revision() {
    let mut live = WatchHarness::with_timing(
        "skill maps/..1/a\nlink maps/..data -> ..1\nlink r/cm -> ../maps/..data",
        fast_timing(),
    )
    .await;
    assert_eq!(
        live.replica.skills.keys().collect::<Vec<_>>(),
        ["skill://r/cm/a"]
    );
    let before = live.replica.revision;
    for n in 2..5 {
        live.fixture.write(
            &format!("maps/..{n}/a/SKILL.md"),
            skill_text("a", &format!("No. {n}.")),
        );
        retarget(&live.fixture.path("maps/..data"), &format!("..{n}"));
        fs::remove_dir_all(live.fixture.path(&format!("maps/..{}", n - 1))).expect("remove");
        let step = live.next_change().await;
        assert_eq!(
            (step.upserted, step.removed.len()),
            (vec!["skill://r/cm/a".to_owned()], 0)
        );
        assert_eq!(
            live.replica.skills["skill://r/cm/a"].description,
            format!("No. {n}.")
        );
    }
    assert_eq!(live.replica.revision, before + 3);
    live.finish().await;
}

#[tokio::test]
async fn changes_of_a_linked_file_are_seen() {
    let mut live =
        WatchHarness::new("skill shared/a\nlink r/a/SKILL.md -> ../../shared/a/SKILL.md").await;
    live.fixture
        .write("shared/a/SKILL.md", skill_text("a", "In place."));
    live.wait_while(|live| live.replica.skills["skill://r/a"].description != "In place.")
        .await;
    live.fixture
        .replace("shared/a/SKILL.md", skill_text("a", "Replaced."));
    live.next_change().await;
    assert_eq!(live.replica.skills["skill://r/a"].description, "Replaced.");
    live.finish().await;
}

#[tokio::test]
async fn changes_behind_two_links_are_seen() {
    let tree = Fixture::new(
        "skill v/1/a\nskill v/2/a\nlink hop -> v/1\nlink r/x -> ../hop\nskill w/deep/b\n\
         link r/y -> ../w/deep",
    );
    tree.write("v/2/a/SKILL.md", skill_text("a", "Second."));
    let root = selected("r", tree.path("r"));
    let mut live = WatchHarness::with_roots(tree, vec![root], fast_timing()).await;
    retarget(&live.fixture.path("hop"), "v/2");
    live.wait_while(|live| live.replica.skills["skill://r/x/a"].description != "Second.")
        .await;
    // The directory at the target path is replaced by a rename of its parent.
    live.fixture
        .write("w2/deep/SKILL.md", skill_text("b", "Exchanged."));
    fs::rename(live.fixture.path("w"), live.fixture.path("w1")).expect("away");
    fs::rename(live.fixture.path("w2"), live.fixture.path("w")).expect("in its place");
    live.wait_while(|live| {
        live.replica
            .skills
            .get("skill://r/y")
            .is_none_or(|s| s.description != "Exchanged.")
    })
    .await;
    live.finish().await;
}

#[tokio::test]
async fn a_directory_in_two_roots_is_updated_in_both() {
    let fixture = Fixture::new("skill r/a\nlink alias -> r");
    let roots = [("r", "r"), ("s", "alias")].map(|(id, at)| selected(id, fixture.path(at)));
    let mut live = WatchHarness::with_roots(fixture, roots.into(), fast_timing()).await;
    for n in 0..20 {
        live.fixture
            .write("r/a/SKILL.md", skill_text("a", &format!("No. {n}.")));
        let says = format!("No. {n}.");
        live.wait_while(|live| {
            live.replica
                .skills
                .values()
                .filter(|s| s.description == says)
                .count()
                < 2
        })
        .await;
    }
    live.finish().await;
}
