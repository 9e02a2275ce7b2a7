//! Changes of a tree as a stream tells them.

use caproot::proto::caproot::v1::{
    RemovalReason, ResetReason, RootState, SelectedCapabilityRoot, WatchSkillsRequest,
};

use crate::fixture::Fixture;
use crate::harness::{Daemon, Setup, selected};
use crate::replica::Replica;

fn skill(name: &str, says: &str) -> String {
    format!("---\nname: {name}\ndescription: {says}\n---\n")
}

fn watching(roots: Vec<SelectedCapabilityRoot>) -> WatchSkillsRequest {
    WatchSkillsRequest { selected_capability_roots: roots, ..WatchSkillsRequest::default() }
}

#[tokio::test]
async fn a_skill_comes_changes_and_goes() {
    let fixture = Fixture::new("");
    fixture.write("r/a/SKILL.md", skill("a", "One."));
    let daemon = Daemon::start(Setup::allowing([fixture.path("r")])).await;
    let mut replica =
        Replica::open(&daemon, watching(vec![selected("r", fixture.path("r"))])).await;
    let first = replica.step().await;
    assert_eq!(first.reset, Some(ResetReason::Initial));
    assert_eq!(first.upserted, ["skill://r/a"]);
    replica.catch_up(&daemon).await;

    fixture.write("r/b/SKILL.md", skill("b", "Two."));
    assert_eq!(replica.change().await.upserted, ["skill://r/b"]);
    replica.catch_up(&daemon).await;

    fixture.write("r/b/SKILL.md", skill("b", "Three."));
    assert_eq!(replica.change().await.upserted, ["skill://r/b"]);
    assert_eq!(replica.skills["skill://r/b"].description, "Three.");

    std::fs::rename(fixture.path("r/b"), fixture.path("r/c")).expect("rename");
    let moved = replica.change().await;
    assert_eq!(moved.upserted, ["skill://r/c"]);
    assert_eq!(moved.removed, [("skill://r/b".to_owned(), RemovalReason::Renamed)]);

    std::fs::remove_dir_all(fixture.path("r/a")).expect("remove");
    let gone = replica.change().await;
    assert_eq!(gone.removed, [("skill://r/a".to_owned(), RemovalReason::Deleted)]);
    replica.catch_up(&daemon).await;

    std::fs::remove_dir_all(fixture.path("r")).expect("remove");
    let gone = replica.change().await;
    assert_eq!(gone.removed, [("skill://r/c".to_owned(), RemovalReason::RootUnavailable)]);
    assert_eq!(replica.roots["r"].state(), RootState::Unavailable);
    replica.catch_up(&daemon).await;

    fixture.write("r/d/SKILL.md", skill("d", "Four."));
    while replica.skills.is_empty() {
        replica.step().await;
    }
    replica.catch_up(&daemon).await;
    daemon.stop().await;
}
