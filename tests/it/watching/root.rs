//! Roots that appear and disappear, also because of changes above them.

use std::fs;

use caproot::daemon::catalog::WatchTiming;
use caproot_core::proto::caproot::v1::{RemovalReason, RootReason, RootState};

use crate::harness::fixture::Fixture;
use crate::harness::selected;
use crate::harness::watch_harness::{WatchHarness, fresh_list, skill_text};

#[tokio::test]
async fn a_missing_root_appears_by_itself() {
    let mut live = WatchHarness::with_root("dir top", "top/not/yet/r").await;
    let status = &live.replica.roots["r"];
    assert_eq!(
        (status.state(), status.reason()),
        (RootState::Unavailable, RootReason::NotFound)
    );
    live.fixture
        .write("top/not/yet/r/a/SKILL.md", skill_text("a", "Here."));
    live.wait_while(|live| live.replica.skills.is_empty()).await;
    assert_eq!(live.replica.roots["r"].state(), RootState::Ready);
    live.finish().await;
}

#[tokio::test]
async fn a_root_that_is_removed_and_recreated_is_found() {
    let mut live = WatchHarness::new("skill r/a").await;
    for round in 0..3 {
        fs::remove_dir_all(live.fixture.path("r")).expect("remove");
        live.wait_while(|live| live.replica.roots["r"].state() == RootState::Ready)
            .await;
        assert!(live.replica.skills.is_empty());
        assert_eq!(live.replica.roots["r"].reason(), RootReason::NotFound);
        live.fixture
            .write("r/b/SKILL.md", skill_text("b", &format!("Round {round}.")));
        live.wait_while(|live| live.replica.skills.is_empty()).await;
        assert_eq!(live.replica.roots["r"].state(), RootState::Ready);
        live.replica.catch_up(&live.daemon).await;
    }
    live.finish().await;
}

#[tokio::test]
async fn an_ancestor_renamed_away_and_back_is_noticed() {
    let mut live = WatchHarness::with_root("skill up/mid/r/a", "up/mid/r").await;
    let (up, away) = (live.fixture.path("up"), live.fixture.path("away"));
    fs::rename(&up, &away).expect("away");
    let gone = live.next_change().await;
    assert_eq!(
        gone.removed,
        [("skill://r/a".to_owned(), RemovalReason::RootUnavailable)]
    );
    live.fixture.write(
        "away/mid/r/a/SKILL.md",
        skill_text("a", "Changed while away."),
    );
    fs::rename(&away, &up).expect("back");
    assert_eq!(live.next_change().await.upserted, ["skill://r/a"]);
    assert_eq!(
        live.replica.skills["skill://r/a"].description,
        "Changed while away."
    );
    live.finish().await;
}

#[tokio::test]
async fn a_root_appears_if_a_file_above_it_becomes_a_directory() {
    let mut live = WatchHarness::with_root("file f", "f/r").await;
    assert_eq!(live.replica.roots["r"].state(), RootState::Unavailable);
    fs::remove_file(live.fixture.path("f")).expect("remove");
    live.fixture
        .write("f/r/a/SKILL.md", skill_text("a", "Here."));
    live.wait_while(|live| live.replica.skills.is_empty()).await;
    live.finish().await;
}

#[tokio::test]
async fn a_plugins_new_name_renames_all_its_skills_at_once() {
    let mut live = WatchHarness::new("repeat 5 skill r/p/s{}").await;
    fs::create_dir(live.fixture.path("r/p/.codex-plugin")).expect("mkdir");
    // The directory is first scanned without its manifest.
    live.fresh_list().await;
    for name in ["one", "two"] {
        let before = live.fresh_list().await.revision;
        let manifest = format!(r#"{{"name": "{name}"}}"#);
        live.fixture
            .write("r/p/.codex-plugin/plugin.json", manifest);
        live.wait_while(|live| live.replica.revision <= before)
            .await;
        assert_eq!(live.replica.revision, before + 1);
        assert!(live.replica.skills.values().all(|s| s.plugin == name));
    }
    live.finish().await;
}

#[tokio::test]
async fn a_new_manifest_above_the_root_renames_its_skills() {
    let fixture = Fixture::new("skill p/skills/a");
    let root = selected("r", fixture.path("p/skills"));
    let mut live =
        WatchHarness::with_roots(fixture, vec![root.clone()], WatchTiming::default()).await;
    fs::create_dir(live.fixture.path("p/.codex-plugin")).expect("mkdir");
    // The directory is first scanned while it is empty.
    fresh_list(&live.daemon, &[root]).await;
    for name in ["one", "two"] {
        let manifest = format!(r#"{{"name": "{name}"}}"#);
        live.fixture
            .replace("p/.codex-plugin/plugin.json", manifest);
        live.next_change().await;
        assert_eq!(live.replica.skills["skill://r/a"].name, format!("{name}:a"));
    }
    live.finish().await;
}

#[tokio::test]
async fn changes_of_a_sidecar_update_its_skill() {
    let mut live = WatchHarness::new("skill r/a\ndir r/a/agents").await;
    for name in ["Anna", "Otto"] {
        let sidecar = format!("interface:\n  display_name: {name}\n");
        live.fixture.write("r/a/agents/openai.yaml", sidecar);
        let display_name = |live: &WatchHarness| {
            let skill = &live.replica.skills["skill://r/a"];
            skill.interface.as_ref().map(|i| i.display_name.clone())
        };
        live.wait_while(|live| display_name(live).as_deref() != Some(name))
            .await;
    }
    fs::remove_dir_all(live.fixture.path("r/a/agents")).expect("remove");
    live.wait_while(|live| live.replica.skills["skill://r/a"].interface.is_some())
        .await;
    live.finish().await;
}
