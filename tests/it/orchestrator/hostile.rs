//! A hostile daemon: responses have size limits, and skills of other roots are rejected.

use caproot::client::{CallError, ChangesSince, Mirror, MirrorSelection, MirrorState, ResumePoint};
use caproot::proto::caproot::v1::read_resource_response::Body;
use caproot::proto::caproot::v1::watch_skills_response::Event;
use caproot::proto::caproot::v1::{ReadResourceResponse, Reset, RootStatus, SkillDelta, Synced};
use serde_json::json;

use super::session::{session, value};
use super::{client, published};
use crate::harness::in_time;
use crate::test_servers::{HostileDaemon, ReadResponder, hostile_skill, read_response};

#[tokio::test]
async fn invalid_read_responses_are_errors() {
    let cases: Vec<(&str, Box<ReadResponder>)> = vec![
        (
            "INVALID_RESPONSE",
            Box::new(|r| read_response(r, &"x".repeat(100_000), "")),
        ),
        (
            "INVALID_RESPONSE",
            Box::new(|r| read_response(r, &"x".repeat(5 << 20), "")),
        ),
        (
            "INVALID_RESPONSE",
            Box::new(|r| read_response(r, "x", &"c".repeat(4_000))),
        ),
        (
            "INVALID_RESPONSE",
            Box::new(|r| read_response(r, "", "again")),
        ),
        (
            "INVALID_RESPONSE",
            Box::new(|r| ReadResourceResponse {
                body: None,
                ..read_response(r, "", "")
            }),
        ),
        (
            "INVALID_RESPONSE",
            Box::new(|r| ReadResourceResponse {
                resource: "skill://q/x".into(),
                ..read_response(r, "x", "")
            }),
        ),
        (
            "NOT_TEXT",
            Box::new(|r| ReadResourceResponse {
                body: Some(Body::Data(vec![0])),
                ..read_response(r, "", "")
            }),
        ),
        // The first response does not fit into the result. A shorter one does.
        (
            "",
            Box::new(|r| {
                let max_bytes = usize::try_from(r.max_bytes).expect("a page size");
                let cursor = "\u{1}".repeat(500);
                read_response(r, &"\u{1}".repeat(max_bytes), &cursor)
            }),
        ),
    ];
    for (n, (code, read)) in cases.into_iter().enumerate() {
        let skills = vec![hostile_skill("r", "skill://r/a")];
        let hostile = HostileDaemon {
            skills,
            read,
            ..HostileDaemon::default()
        };
        let address = hostile.start().await;
        let session = session(&[("r", &address)]).await;
        let arguments = json!({
            "authority": {"kind": "executor", "id": "r"},
            "package": "skill://r/a",
            "resource": "skill://r/a/x"
        });
        let result = in_time(session.call("skills.read", &arguments)).await;
        let error = value(&result);
        let actual_code = error["error"]["code"].as_str().unwrap_or_default();
        assert_eq!(actual_code, code, "case {n}: {error}");
    }
}

#[tokio::test]
async fn skills_outside_the_selection_are_rejected() {
    for package in ["skill://q/a", "/etc/passwd", ""] {
        let hostile = HostileDaemon {
            skills: vec![hostile_skill("r", package)],
            ..HostileDaemon::default()
        };
        let address = hostile.start().await;
        let mut mirror = Mirror::start(
            &client(&address).await,
            MirrorSelection::new(vec![published("r")]),
        );
        let snapshot = in_time(async {
            loop {
                let snapshot = mirror.changed().await;
                if snapshot.state != MirrorState::Connecting(None) {
                    return snapshot;
                }
            }
        })
        .await;
        let MirrorState::Failed(why) = &snapshot.state else {
            panic!("{:?}", snapshot.state)
        };
        assert!(why.contains("below another root"), "{why}");
        assert!(snapshot.catalog.skill_count() == 0);
    }
}

#[tokio::test]
async fn too_large_responses_are_errors() {
    // Each root takes two bytes.
    let hostile = HostileDaemon {
        published: 3 << 20,
        ..HostileDaemon::default()
    };
    let address = hostile.start().await;
    let error = in_time(client(&address).await.list_roots())
        .await
        .expect_err("too large");
    let CallError::Status(status) = &error else {
        panic!("{error}")
    };
    assert!(status.message().contains("too large"), "{error}");
}

/// Changes outside the selection are rejected. The catalog is still complete.
#[tokio::test]
async fn changes_outside_the_selection_are_rejected() {
    let delta = |root: &str, package: &str| {
        let upserted = vec![hostile_skill(root, package)];
        let root_id = root.to_owned();
        Event::Delta(SkillDelta {
            root_id,
            upserted,
            ..SkillDelta::default()
        })
    };
    let status = RootStatus {
        id: "q".into(),
        ..RootStatus::default()
    };
    for (resumed_events, part) in [
        (delta("q", "skill://q/a"), "not selected"),
        (delta("r", "skill://q/a"), "not selected"),
        (delta("r", "/etc/passwd"), "not selected"),
        (Event::RootStatus(status), "not selected"),
        (Event::Reset(Reset::default()), "does not know the token"),
    ] {
        let hostile = HostileDaemon {
            skills: vec![hostile_skill("r", "skill://r/a")],
            resumed_events: vec![resumed_events, Event::Synced(Synced::default())],
            ..HostileDaemon::default()
        };
        let client = client(&hostile.start().await).await;
        let from = ResumePoint {
            token: "t".into(),
            ..ResumePoint::default()
        };
        let mirror = Mirror::resume(&client, MirrorSelection::new(vec![published("r")]), from);
        assert!(mirror.wait_until_live(crate::harness::HANG_TIMEOUT).await);
        let snapshot = mirror.snapshot();
        let ChangesSince::Unknown { reason, roots } = &*snapshot.changes_since.expect("a report")
        else {
            panic!("changes outside the selection were accepted")
        };
        assert!(reason.contains(part) && *roots == ["r"], "{reason}");
        assert_eq!(snapshot.catalog.skill_count(), 1);
    }
}

/// A daemon that refers to a catalog that the mirror does not hold is rejected. The mirror keeps its
/// last catalog.
#[tokio::test]
async fn unknown_catalogs_are_rejected() {
    let digest = format!("sha256:{}", "0".repeat(64));
    for catalog_digest in [digest, String::new()] {
        let status = RootStatus {
            id: "r".into(),
            unchanged: true,
            catalog_digest,
            ..RootStatus::default()
        };
        let hostile = HostileDaemon {
            skills: vec![hostile_skill("r", "skill://r/a")],
            known_events: vec![
                Event::Reset(Reset::default()),
                Event::RootStatus(status),
                Event::Synced(Synced::default()),
            ],
            ..HostileDaemon::default()
        };
        let client = client(&hostile.start().await).await;
        let mut mirror = Mirror::start(&client, MirrorSelection::new(vec![published("r")]));
        let snapshot = in_time(async {
            loop {
                let snapshot = mirror.changed().await;
                if let MirrorState::Stale { why, .. } = &snapshot.state
                    && why.contains("does not hold its catalog")
                {
                    return snapshot;
                }
            }
        })
        .await;
        assert_eq!(snapshot.catalog.skill_count(), 1, "the last catalog stays");
    }
}
