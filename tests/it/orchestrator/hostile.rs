//! A hostile daemon: responses have size limits, and skills of other roots are rejected.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use caproot_client::{CallError, ChangesSince, Mirror, MirrorSelection, MirrorState, ResumePoint};
use caproot_core::proto::caproot::v1::read_resource_response::Body;
use caproot_core::proto::caproot::v1::watch_skills_response::Event;
use caproot_core::proto::caproot::v1::{
    ReadResourceResponse, Reset, RootStatus, SkillDelta, Synced,
};
use serde_json::json;

use super::session::{parse_result, session};
use super::{client, published};
use crate::harness::test_servers::{HostileDaemon, ReadResponder, hostile_skill, read_response};
use crate::harness::{in_time, read_request};

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
                ..read_response(r, "\0", "")
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
        let error = parse_result(&result);
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

/// Reader of a file that the daemon sends in two pages, or in one. The first responses of each read
/// have bytes of another version than the digest.
async fn read_changing_file(
    is_paged: bool,
    changed_reads: usize,
    hold: usize,
) -> (Result<Vec<u8>, CallError>, usize) {
    let reads = Arc::new(AtomicUsize::new(0));
    let count = reads.clone();
    let read: Box<ReadResponder> = Box::new(move |request| {
        let is_first = request.cursor.is_empty();
        let number = count.fetch_add(usize::from(is_first), Ordering::Relaxed);
        let is_changed = number < changed_reads;
        let (body, next) = match (is_paged, is_first) {
            (false, _) => (if is_changed { "new bytes" } else { "old bytes" }, ""),
            (true, true) => (if is_changed { "new " } else { "old " }, "1"),
            (true, false) => ("bytes", ""),
        };
        ReadResourceResponse {
            digest: read_response(request, "old bytes", "").digest,
            total_bytes: 9,
            ..read_response(request, body, next)
        }
    });
    let hostile = HostileDaemon {
        read,
        ..HostileDaemon::default()
    };
    let mut client = client(&hostile.start().await).await;
    let request = read_request(&published("r"), "skill://r/a", "skill://r/a/x");
    let mut bytes = Vec::new();
    let mut append = |page: &[u8]| {
        bytes.extend_from_slice(page);
        Ok(())
    };
    let outcome = in_time(client.read_resource(&request, hold, &mut append)).await;
    let outcome = outcome.map(|_| bytes);
    (outcome, reads.load(Ordering::Relaxed))
}

/// The bytes of a file and its digest belong together: otherwise the file counts as changed.
#[tokio::test]
async fn bytes_without_their_digest_are_read_again() {
    for is_paged in [false, true] {
        let (read, reads) = read_changing_file(is_paged, 2, 100).await;
        assert_eq!(read.expect("the third read"), b"old bytes");
        assert_eq!(reads, 3);
        let (read, reads) = read_changing_file(is_paged, 100, 100).await;
        assert!(matches!(read, Err(CallError::DigestMismatch)), "{read:?}");
        assert_eq!(reads, 4);
    }
    // The first page was written before the last page came.
    let (read, reads) = read_changing_file(true, 1, 0).await;
    assert!(
        matches!(read, Err(CallError::ChangedDuringRead)),
        "{read:?}"
    );
    assert_eq!(reads, 1);
}

/// A page that is the whole file is compared with the digest, too.
#[tokio::test]
async fn a_whole_page_without_its_digest_is_read_again() {
    let reads = Arc::new(AtomicUsize::new(0));
    let count = reads.clone();
    let read: Box<ReadResponder> = Box::new(move |request| {
        let number = count.fetch_add(1, Ordering::Relaxed);
        let body = if number < 6 { "new bytes" } else { "old bytes" };
        ReadResourceResponse {
            digest: read_response(request, "old bytes", "").digest,
            ..read_response(request, body, "")
        }
    });
    let hostile = HostileDaemon {
        read,
        ..HostileDaemon::default()
    };
    let client = client(&hostile.start().await).await;
    let request = read_request(&published("r"), "skill://r/a", "skill://r/a/x");
    let error = in_time(client.read_page(&request))
        .await
        .expect_err("changes");
    assert!(matches!(error, CallError::DigestMismatch), "{error}");
    let page = in_time(client.read_page(&request)).await.expect("a page");
    assert_eq!(page.body, Some(Body::Contents("old bytes".to_owned())));
    assert_eq!(reads.load(Ordering::Relaxed), 7);
}
