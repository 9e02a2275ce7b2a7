//! Valid and invalid events applied to a replica.

use super::{MirrorReplica, ReplicaUpdate};
use crate::client::mirror::MirrorSelection;
use crate::proto::caproot::v1::watch_skills_response::Event;
use crate::proto::caproot::v1::{
    Authority, Bookmark, Marketplace, MarketplaceList, Plugin, RemovedSkill, Reset, RootStatus,
    SelectedCapabilityRoot, Skill, SkillDelta, Synced, WatchSkillsResponse,
};

fn selection(ids: &[&str]) -> MirrorSelection {
    let root = |id: &&str| SelectedCapabilityRoot { id: (*id).into(), location: None };
    MirrorSelection::new(ids.iter().map(root).collect())
}

fn event(event: Event) -> WatchSkillsResponse {
    WatchSkillsResponse { epoch: "e".into(), revision: 7, event: Some(event) }
}

fn skill(root: &str, name: &str) -> Skill {
    Skill {
        authority: Some(Authority { kind: "executor".into(), id: root.into() }),
        package: format!("skill://{root}/{name}"),
        main_resource: format!("skill://{root}/{name}/SKILL.md"),
        name: name.into(),
        ..Skill::default()
    }
}

fn delta(root: &str, upserted: Vec<Skill>, removed: &[&str]) -> Event {
    let gone = |name: &&str| RemovedSkill { package: format!("skill://{root}/{name}"), reason: 1 };
    let removed = removed.iter().map(gone).collect();
    Event::Delta(SkillDelta { root_id: root.into(), upserted, removed, ..SkillDelta::default() })
}

fn reset() -> Event {
    Event::Reset(Reset::default())
}

fn synced() -> Event {
    Event::Synced(Synced::default())
}

fn names(replica: &MirrorReplica) -> Vec<String> {
    replica.catalog().skills().iter().map(|skill| skill.package.clone()).collect()
}

#[test]
fn skills_are_in_list_order() {
    let mut replica = MirrorReplica::new(&selection(&["z", "a", "z"]));
    let status =
        |id: &str| Event::RootStatus(RootStatus { id: id.into(), ..RootStatus::default() });
    for part in [
        reset(),
        status("a"),
        status("z"),
        delta("a", vec![skill("a", "y"), skill("a", "b")], &[]),
        delta("z", vec![skill("z", "c")], &[]),
    ] {
        assert_eq!(replica.apply_event(event(part)), Ok(ReplicaUpdate::Partial));
    }
    let state = |changed| {
        Ok(ReplicaUpdate::Complete { epoch: "e".into(), revision: 7, token: "".into(), changed })
    };
    assert_eq!(replica.apply_event(event(synced())), state(true));
    assert_eq!(names(&replica), ["skill://z/c", "skill://a/b", "skill://a/y"]);
    let roots: Vec<_> = replica.catalog().roots().iter().map(|root| root.id.clone()).collect();
    assert_eq!(roots, ["z", "a"]);
    assert_eq!(replica.apply_event(event(Event::Bookmark(Bookmark::default()))), state(false));
    assert!(
        replica
            .apply_event(event(delta(
                "a",
                vec![Skill { name: "x".into(), ..skill("a", "b") }],
                &["y"]
            )))
            .is_ok()
    );
    assert_eq!(names(&replica), ["skill://z/c", "skill://a/b"]);
    assert_eq!(replica.catalog().skill("skill://a/b").expect("it is replica").name, "x");
    assert!(replica.apply_event(event(delta("a", vec![], &["b", "none"]))).is_ok());
    assert!(replica.apply_event(event(delta("z", vec![], &["c"]))).is_ok());
    let plugin = |root: &str| {
        let package = format!("skill://{root}/p");
        let upserted_plugins = vec![Plugin { package, ..Plugin::default() }];
        let marketplaces = Some(MarketplaceList { marketplaces: vec![Marketplace::default()] });
        let root_id = "a".to_owned();
        Event::Delta(SkillDelta { root_id, upserted_plugins, marketplaces, ..Default::default() })
    };
    let before = replica.bytes;
    assert!(replica.apply_event(event(plugin("a"))).is_ok());
    assert_eq!((replica.catalog().plugins().len(), replica.catalog().marketplaces().len()), (1, 1));
    assert!(replica.apply_event(event(plugin("z"))).is_err(), "a plugin of another root");
    let gone = SkillDelta {
        root_id: "a".to_owned(),
        removed_plugins: vec!["skill://a/p".to_owned()],
        marketplaces: Some(MarketplaceList::default()),
        ..SkillDelta::default()
    };
    assert!(replica.apply_event(event(Event::Delta(gone))).is_ok());
    assert_eq!((replica.catalog().plugins().len(), replica.bytes), (0, before));
    assert_eq!(replica.apply_event(event(reset())), Ok(ReplicaUpdate::Partial));
    assert_eq!((names(&replica).len(), replica.bytes), (0, 0), "nothing is counted twice");
}

#[test]
fn foreign_roots_are_rejected() {
    let stranger = Skill { package: "skill://b/x".into(), ..skill("a", "x") };
    let resource = Skill { main_resource: "skill://b/x".into(), ..skill("a", "x") };
    for bad in [
        delta("b", vec![], &[]),
        delta("a", vec![skill("b", "x")], &[]),
        delta("a", vec![stranger], &[]),
        delta("a", vec![resource], &[]),
        delta("a", vec![Skill::default()], &[]),
        Event::RootStatus(RootStatus::default()),
    ] {
        let mut replica = MirrorReplica::new(&selection(&["a"]));
        assert!(replica.apply_event(event(reset())).is_ok());
        assert!(replica.apply_event(event(bad.clone())).is_err(), "{bad:?}");
    }
}

#[test]
fn partial_state_cannot_be_resumed() {
    let mut replica = MirrorReplica::new(&selection(&["a"]));
    assert!(replica.apply_event(event(synced())).is_err(), "no state yet");
    assert!(
        replica.apply_event(event(reset())).is_ok() && replica.apply_event(event(synced())).is_ok()
    );
    replica.handle_disconnect();
    assert!(replica.apply_event(event(synced())).is_ok(), "resumed after the last complete state");
    assert!(replica.apply_event(event(delta("a", vec![skill("a", "x")], &[]))).is_ok());
    replica.handle_disconnect();
    assert!(replica.apply_event(event(synced())).is_err(), "an incomplete state");
    assert!(replica.apply_event(WatchSkillsResponse::default()).is_err());
}

#[test]
fn byte_limit_is_enforced() {
    let mut replica =
        MirrorReplica::new(&MirrorSelection { max_bytes: 10_000, ..selection(&["a"]) });
    assert!(replica.apply_event(event(reset())).is_ok());
    let one_more = |n| event(delta("a", vec![skill("a", &format!("s{n}"))], &[]));
    let refused = (0..100).find(|n| replica.apply_event(one_more(*n)).is_err());
    assert!(refused.is_some_and(|n| n > 10), "{refused:?}");
    // A skill that is sent again replaces its earlier size.
    let mut replica =
        MirrorReplica::new(&MirrorSelection { max_bytes: 10_000, ..selection(&["a"]) });
    assert!(replica.apply_event(event(reset())).is_ok());
    assert!((0..1_000).all(|_| replica.apply_event(one_more(1)).is_ok()));
}
