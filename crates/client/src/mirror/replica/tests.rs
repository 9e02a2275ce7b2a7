//! Valid and invalid events applied to a replica.

use super::{MirrorReplica, MirrorUpdate};
use crate::mirror::MirrorSelection;
use caproot_core::proto::caproot::v1::watch_skills_response::Event;
use caproot_core::proto::caproot::v1::{
    Authority, Bookmark, Diagnostic, DiagnosticList, Marketplace, MarketplaceList, Plugin,
    RemovedSkill, Reset, RootState, RootStatus, SelectedCapabilityRoot, Skill, SkillDelta, Synced,
    WatchSkillsResponse,
};
use std::collections::HashMap;
use std::sync::Arc;

/// Epoch, revision, token, and whether the catalog changed.
type CompleteState = (Arc<str>, u64, Arc<str>, bool);

fn apply(
    replica: &mut MirrorReplica,
    message: WatchSkillsResponse,
) -> Result<Option<CompleteState>, String> {
    let state =
        |update: MirrorUpdate| (update.epoch, update.revision, update.token, update.changed);
    Ok(replica.apply_event(message)?.map(state))
}

fn selection(ids: &[&str]) -> MirrorSelection {
    let root = |id: &&str| SelectedCapabilityRoot {
        id: (*id).into(),
        location: None,
    };
    MirrorSelection::new(ids.iter().map(root).collect())
}

fn event(event: Event) -> WatchSkillsResponse {
    WatchSkillsResponse {
        epoch: "e".into(),
        revision: 7,
        event: Some(event),
    }
}

fn skill(root: &str, name: &str) -> Skill {
    Skill {
        authority: Some(Authority {
            kind: "executor".into(),
            id: root.into(),
        }),
        package: format!("skill://{root}/{name}"),
        main_resource: format!("skill://{root}/{name}/SKILL.md"),
        name: name.into(),
        ..Skill::default()
    }
}

fn delta(root: &str, upserted: Vec<Skill>, removed: &[&str]) -> Event {
    let gone = |name: &&str| RemovedSkill {
        package: format!("skill://{root}/{name}"),
        reason: 1,
    };
    let removed = removed.iter().map(gone).collect();
    Event::Delta(SkillDelta {
        root_id: root.into(),
        upserted,
        removed,
        ..SkillDelta::default()
    })
}

fn reset() -> Event {
    Event::Reset(Reset::default())
}

fn synced() -> Event {
    Event::Synced(Synced::default())
}

fn names(replica: &MirrorReplica) -> Vec<String> {
    replica
        .catalog()
        .skills()
        .map(|skill| skill.package.clone())
        .collect()
}

/// Returns an event of root `a` with a plugin of `root`.
fn plugin_delta(root: &str) -> Event {
    let plugin = Plugin {
        package: format!("skill://{root}/p"),
        ..Plugin::default()
    };
    Event::Delta(SkillDelta {
        root_id: "a".to_owned(),
        upserted_plugins: vec![plugin],
        marketplaces: Some(MarketplaceList {
            marketplaces: vec![Marketplace::default()],
        }),
        ..SkillDelta::default()
    })
}

#[test]
fn skills_are_in_list_order() {
    let mut replica = MirrorReplica::new(&selection(&["z", "a", "z"]));
    let status = |id: &str| {
        Event::RootStatus(RootStatus {
            id: id.into(),
            ..RootStatus::default()
        })
    };
    for part in [
        reset(),
        status("a"),
        status("z"),
        delta("a", vec![skill("a", "y"), skill("a", "b")], &[]),
        delta("z", vec![skill("z", "c")], &[]),
    ] {
        assert_eq!(apply(&mut replica, event(part)), Ok(None));
    }

    let state = |changed| Ok(Some(("e".into(), 7, "".into(), changed)));
    assert_eq!(apply(&mut replica, event(synced())), state(true));
    assert_eq!(
        names(&replica),
        ["skill://z/c", "skill://a/b", "skill://a/y"]
    );
    let roots: Vec<_> = replica
        .catalog()
        .roots()
        .iter()
        .map(|root| root.id.clone())
        .collect();
    assert_eq!(roots, ["z", "a"]);
    assert_eq!(
        apply(&mut replica, event(Event::Bookmark(Bookmark::default()))),
        state(false)
    );
    assert!(
        replica
            .apply_event(event(delta(
                "a",
                vec![Skill {
                    name: "x".into(),
                    ..skill("a", "b")
                }],
                &["y"]
            )))
            .is_ok()
    );
    assert_eq!(names(&replica), ["skill://z/c", "skill://a/b"]);
    assert_eq!(
        replica
            .catalog()
            .skill("skill://a/b")
            .expect("it is replica")
            .name,
        "x"
    );
    assert!(
        replica
            .apply_event(event(delta("a", vec![], &["b", "none"])))
            .is_ok()
    );
    assert!(
        replica
            .apply_event(event(delta("z", vec![], &["c"])))
            .is_ok()
    );

    let before = replica.bytes();
    assert!(replica.apply_event(event(plugin_delta("a"))).is_ok());
    assert_eq!(
        (
            replica.catalog().plugins().count(),
            replica.catalog().marketplaces().count()
        ),
        (1, 1)
    );
    assert!(
        replica.apply_event(event(plugin_delta("z"))).is_err(),
        "a plugin of another root"
    );

    let gone = SkillDelta {
        root_id: "a".to_owned(),
        removed_plugins: vec!["skill://a/p".to_owned()],
        marketplaces: Some(MarketplaceList::default()),
        ..SkillDelta::default()
    };
    assert!(replica.apply_event(event(Event::Delta(gone))).is_ok());
    assert_eq!(
        (replica.catalog().plugins().count(), replica.bytes()),
        (0, before)
    );

    assert_eq!(apply(&mut replica, event(reset())), Ok(None));
    assert_eq!(
        (names(&replica).len(), replica.bytes()),
        (0, 0),
        "nothing is counted twice"
    );
}

#[test]
fn foreign_roots_are_rejected() {
    let stranger = Skill {
        package: "skill://b/x".into(),
        ..skill("a", "x")
    };
    let resource = Skill {
        main_resource: "skill://b/x".into(),
        ..skill("a", "x")
    };
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
    assert!(
        replica.apply_event(event(synced())).is_err(),
        "no state yet"
    );
    assert!(
        replica.apply_event(event(reset())).is_ok() && replica.apply_event(event(synced())).is_ok()
    );
    replica.handle_disconnect();
    assert!(
        replica.apply_event(event(synced())).is_ok(),
        "resumed after the last complete state"
    );
    assert!(
        replica
            .apply_event(event(delta("a", vec![skill("a", "x")], &[])))
            .is_ok()
    );
    replica.handle_disconnect();
    assert!(
        replica.apply_event(event(synced())).is_err(),
        "an incomplete state"
    );
    assert!(replica.apply_event(WatchSkillsResponse::default()).is_err());
}

#[test]
fn byte_limit_is_enforced() {
    let mut replica = MirrorReplica::new(&MirrorSelection {
        max_bytes: 20_000,
        ..selection(&["a"])
    });
    assert!(replica.apply_event(event(reset())).is_ok());
    let one_more = |n| event(delta("a", vec![skill("a", &format!("s{n}"))], &[]));
    let refused = (0..100).find(|n| replica.apply_event(one_more(*n)).is_err());
    let most = 20_000 / size_of::<Skill>();
    assert!(refused.is_some_and(|n| n > 10 && n < most), "{refused:?}");
    // A skill that is sent again replaces its earlier size.
    let mut replica = MirrorReplica::new(&MirrorSelection {
        max_bytes: 20_000,
        ..selection(&["a"])
    });
    assert!(replica.apply_event(event(reset())).is_ok());
    assert!((0..1_000).all(|_| replica.apply_event(one_more(1)).is_ok()));
}

#[test]
fn removal_reasons_last_until_the_state_is_complete() {
    let mut replica = MirrorReplica::new(&selection(&["a"]));
    let both = vec![skill("a", "x"), skill("a", "y")];
    for part in [reset(), delta("a", both, &["x"])] {
        assert!(
            replica
                .apply_event(event(part))
                .is_ok_and(|update| update.is_none())
        );
    }
    let mut complete = |parts: Vec<Event>| {
        for part in parts {
            assert!(
                replica
                    .apply_event(event(part))
                    .is_ok_and(|update| update.is_none())
            );
        }
        replica
            .apply_event(event(synced()))
            .expect("valid")
            .expect("a state")
    };
    let first = complete(vec![]);
    assert!(first.is_reset && first.changed && first.removed.is_empty());
    let second = complete(vec![delta("a", vec![], &["x", "none"])]);
    assert_eq!(
        second.removed.into_iter().collect::<Vec<_>>(),
        [("skill://a/x".into(), 1)]
    );
    assert!(!second.is_reset && !Arc::ptr_eq(&first.catalog, &second.catalog));
    let unknown = WatchSkillsResponse::default();
    assert!(
        replica
            .apply_event(unknown)
            .is_ok_and(|update| update.is_none()),
        "a newer daemon's"
    );
    let third = replica.apply_event(event(Event::Bookmark(Bookmark::default())));
    let third = third.expect("valid").expect("a state");
    assert!(third.is_bookmark && third.removed.is_empty() && !third.changed);
    assert!(Arc::ptr_eq(&second.catalog, &third.catalog));
}

#[test]
fn removals_count_towards_the_byte_limit() {
    let mut replica = MirrorReplica::new(&MirrorSelection {
        max_bytes: 10_000,
        ..selection(&["a"])
    });
    assert!(replica.apply_event(event(reset())).is_ok());
    let mut add_and_remove = |n: usize| {
        let name = format!("s{n}");
        let added = replica.apply_event(event(delta("a", vec![skill("a", &name)], &[])));
        added.and_then(|_| replica.apply_event(event(delta("a", vec![], &[&name]))))
    };
    assert!((0..100).any(|n| add_and_remove(n).is_err()));
}

/// State of the root with the digest of its contents.
fn status(replica: &mut MirrorReplica, id: &str, unchanged: bool) -> Event {
    let known = replica
        .offer_catalogs(&HashMap::new())
        .into_iter()
        .find(|known| known.root_id == id);
    let catalog_digest = known.expect("a complete root").catalog_digest;
    let state = RootState::Ready.into();
    Event::RootStatus(RootStatus {
        id: id.into(),
        state,
        catalog_digest,
        unchanged,
        ..Default::default()
    })
}

/// Returns a replica of the roots `a` and `b` whose stream was lost.
fn lost_replica() -> MirrorReplica {
    let mut replica = MirrorReplica::new(&selection(&["a", "b"]));
    assert!(
        replica.offer_catalogs(&HashMap::new()).is_empty(),
        "there is no state yet"
    );
    let plugin = Plugin {
        package: "skill://a/p".into(),
        ..Plugin::default()
    };
    let with_plugin = SkillDelta {
        root_id: "a".into(),
        upserted: vec![skill("a", "x"), skill("a", "y")],
        upserted_plugins: vec![plugin],
        marketplaces: Some(MarketplaceList {
            marketplaces: vec![Marketplace::default()],
        }),
        ..SkillDelta::default()
    };
    let problems = vec![Diagnostic {
        root_id: "a".into(),
        ..Diagnostic::default()
    }];
    let list = DiagnosticList {
        root_id: "a".into(),
        diagnostics: problems,
        continued: false,
    };
    let deltas = [
        Event::Delta(with_plugin),
        delta("b", vec![skill("b", "z")], &[]),
    ];
    for part in [reset()]
        .into_iter()
        .chain(deltas)
        .chain([Event::Diagnostics(list), synced()])
    {
        assert!(replica.apply_event(event(part)).is_ok());
    }
    for id in ["a", "b"] {
        let status = status(&mut replica, id, false);
        assert!(replica.apply_event(event(status)).is_ok());
    }
    assert!(replica.apply_event(event(synced())).is_ok());
    replica.handle_disconnect();
    replica
}

#[test]
fn unchanged_roots_keep_their_contents() {
    let mut replica = lost_replica();
    let (before, bytes) = (replica.complete.clone(), replica.bytes());
    let statuses = ["a", "b"].map(|id| status(&mut replica, id, true));
    // The next stream is lost after its first root, and the daemon restarts once more.
    for part in [reset(), statuses[0].clone()] {
        assert_eq!(apply(&mut replica, event(part)), Ok(None));
    }
    replica.handle_disconnect();
    assert_eq!(replica.offer_catalogs(&HashMap::new()).len(), 2);
    for part in [reset(), statuses[1].clone(), statuses[0].clone()] {
        assert_eq!(apply(&mut replica, event(part)), Ok(None));
    }
    let update = replica
        .apply_event(event(synced()))
        .expect("valid")
        .expect("a state");
    assert!(
        !update.changed && Arc::ptr_eq(&update.catalog, &before),
        "the same catalog"
    );
    assert_eq!(replica.bytes(), bytes);
    // The contents can be changed and sent again.
    for part in [delta("a", vec![], &["x"]), synced()] {
        assert!(replica.apply_event(event(part)).is_ok());
    }
    assert_eq!(names(&replica), ["skill://a/y", "skill://b/z"]);
    assert_eq!(
        (
            replica.catalog().plugins().count(),
            replica.catalog().diagnostics().count()
        ),
        (1, 1)
    );
}

#[test]
fn a_changed_root_is_replaced_next_to_an_unchanged_root() {
    let mut replica = lost_replica();
    let unchanged = status(&mut replica, "a", true);
    for part in [reset(), unchanged, delta("b", vec![skill("b", "new")], &[])] {
        assert_eq!(apply(&mut replica, event(part)), Ok(None));
    }
    let update = replica
        .apply_event(event(synced()))
        .expect("valid")
        .expect("a state");
    assert!(update.changed);
    assert_eq!(
        names(&replica),
        ["skill://a/x", "skill://a/y", "skill://b/new"]
    );
}

/// The offered contents stay until the root is first ready, also over the next loss of the stream.
#[test]
fn a_root_that_is_ready_later_can_be_unchanged() {
    let mut replica = lost_replica();
    let before = replica.complete.clone();
    let unchanged = ["a", "b"].map(|id| status(&mut replica, id, true));
    let state = RootState::Pending.into();
    let pending = RootStatus {
        id: "a".into(),
        state,
        ..RootStatus::default()
    };
    for _ in 0..2 {
        let events = [
            reset(),
            Event::RootStatus(pending.clone()),
            unchanged[1].clone(),
            synced(),
        ];
        for part in events {
            assert!(replica.apply_event(event(part)).is_ok());
        }
        assert_eq!(names(&replica), ["skill://b/z"]);
        replica.handle_disconnect();
        assert_eq!(replica.offer_catalogs(&HashMap::new()).len(), 2);
    }
    for part in [unchanged[0].clone(), synced()] {
        assert!(replica.apply_event(event(part)).is_ok());
    }
    assert_eq!(*replica.complete, *before);
    // Only the first time.
    assert!(replica.apply_event(event(unchanged[0].clone())).is_err());
}

/// A listed state is complete with the next `synced`, or is replaced after a `reset`.
#[test]
fn a_listed_state_is_taken() {
    let Some(Event::RootStatus(status)) = Some(status(&mut lost_replica(), "a", false)) else {
        unreachable!()
    };
    let contents = lost_replica()
        .complete
        .root("a")
        .expect("a root")
        .contents
        .clone();
    let mut replica = MirrorReplica::new(&selection(&["a"]));
    let other = RootStatus {
        id: "b".into(),
        ..status.clone()
    };
    assert!(
        !replica.adopt_state(vec![(other, contents.clone())]),
        "another root"
    );
    assert!(!replica.adopt_state(vec![]), "a missing root");
    let state = || vec![(status.clone(), contents.clone())];
    assert!(replica.adopt_state(state()));
    replica.handle_disconnect();
    assert!(
        replica.apply_event(event(synced())).is_err(),
        "the state is not complete"
    );
    assert!(replica.adopt_state(state()));
    assert_eq!(
        apply(&mut replica, event(synced())),
        Ok(Some(("e".into(), 7, "".into(), true)))
    );
    assert_eq!(names(&replica), ["skill://a/x", "skill://a/y"]);
    let update = replica.apply_event(event(delta("a", vec![], &["x"])));
    assert!(
        update.is_ok() && contents.skill_count() == 2,
        "shared contents are copied"
    );
    let mut small = MirrorReplica::new(&MirrorSelection {
        max_bytes: 500,
        ..selection(&["a"])
    });
    assert!(!small.adopt_state(state()), "over the size limit");
}

type Part = fn(&mut MirrorReplica) -> Event;

#[test]
fn catalogs_that_the_mirror_does_not_hold_are_rejected() {
    let wrong = |replica: &mut MirrorReplica| {
        let Event::RootStatus(other) = status(replica, "b", true) else {
            unreachable!()
        };
        Event::RootStatus(RootStatus {
            id: "a".into(),
            ..other
        })
    };
    let right = |replica: &mut MirrorReplica| status(replica, "a", true);
    let nothing = |_: &mut MirrorReplica| synced();
    // Each list of events before an `unchanged` that refers to nothing.
    let cases: [(&[Part], Part); 4] = [
        (&[|_| reset()], wrong),
        // The same root twice.
        (&[|_| reset(), right], right),
        // After the first state, and after an event without a `reset`.
        (
            &[
                |_| reset(),
                right,
                |replica| status(replica, "b", true),
                nothing,
                |_| reset(),
            ],
            right,
        ),
        (&[], wrong),
    ];
    for (parts, last) in cases {
        let mut replica = lost_replica();
        let last = last(&mut replica);
        let parts: Vec<_> = parts.iter().map(|part| part(&mut replica)).collect();
        for part in parts {
            assert!(replica.apply_event(event(part)).is_ok());
        }
        let published = replica.complete.clone();
        let error = replica.apply_event(event(last)).expect_err("a violation");
        assert!(error.contains("does not hold its catalog"), "{error}");
        assert!(Arc::ptr_eq(&published, &replica.complete));
    }
}

#[test]
fn a_changed_copy_is_not_offered() {
    let mut replica = lost_replica();
    assert_eq!(
        apply(
            &mut replica,
            event(delta("a", vec![skill("a", "new")], &[]))
        ),
        Ok(None)
    );
    replica.handle_disconnect();
    let unchanged = status(&mut replica, "a", true);
    for part in [reset(), unchanged, synced()] {
        assert!(replica.apply_event(event(part)).is_ok());
    }
    assert_eq!(
        names(&replica),
        ["skill://a/x", "skill://a/y"],
        "the last complete state"
    );
}
