//! Resumed mirrors report exactly the changes since the earlier mirror, also during edits.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use caproot::daemon::config::{Config, ServeFlags};
use caproot_client::{
    ChangesSince, Mirror, MirrorSelection, MirrorSnapshot, MirrorState, ResumePoint,
};
use caproot_core::proto::caproot::v1::{
    Consistency, ListSkillsRequest, SelectedCapabilityRoot, SkillView,
};
use futures_util::future::join_all;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

use super::client;
use crate::harness::fixture::Fixture;
use crate::harness::test_servers::free_port;
use crate::harness::{Daemon, HANG_TIMEOUT, in_time, isolated_env, selected};

const VIEWS: [SkillView; 2] = [SkillView::Full, SkillView::Basic];

/// Starts a daemon that allows the fixture.
async fn start_daemon_allowing(fixture: &Fixture, address: Option<&str>) -> Daemon {
    let flags = ServeFlags {
        allow: vec![fixture.top().to_owned()],
        listen: vec![format!(
            "tcp:{}",
            address.map_or_else(free_port, str::to_owned)
        )],
        ..ServeFlags::default()
    };
    let env = isolated_env(std::path::Path::new("/nonexistent"));
    Daemon::start_with(Config::from_flags(flags, &env).expect("a good configuration")).await
}

fn select_both_roots(fixture: &Fixture) -> Vec<SelectedCapabilityRoot> {
    vec![
        selected("x", fixture.path("x")),
        selected("y", fixture.path("y")),
    ]
}

/// Waits until the daemon has seen every edit.
async fn wait_for_scan(daemon: &Daemon, roots: &[SelectedCapabilityRoot]) {
    let request = ListSkillsRequest {
        selected_capability_roots: roots.to_vec(),
        consistency: Consistency::Fresh.into(),
        ..ListSkillsRequest::default()
    };
    daemon.try_list(request).await.expect("a list");
}

/// Returns the first live state of a mirror, or a later one.
async fn wait_until_live(mirror: &mut Mirror) -> MirrorSnapshot {
    assert!(mirror.wait_until_live(HANG_TIMEOUT).await);
    mirror.snapshot()
}

/// Returns the changed and the removed packages.
fn difference(before: &MirrorSnapshot, after: &MirrorSnapshot) -> (Vec<String>, Vec<String>) {
    let upserted = after.catalog.skills();
    let upserted = upserted.filter(|s| before.catalog.skill(&s.package) != Some(s));
    let removed = before.catalog.skills();
    let removed = removed.filter(|s| after.catalog.skill(&s.package).is_none());
    let sorted = |packages: BTreeSet<String>| packages.into_iter().collect();
    (
        sorted(upserted.map(|s| s.package.clone()).collect()),
        sorted(removed.map(|s| s.package.clone()).collect()),
    )
}

fn root_of(package: &str) -> &str {
    package
        .trim_start_matches("skill://")
        .split('/')
        .next()
        .expect("a root")
}

#[derive(Debug, Clone)]
enum Edit {
    Write(&'static str, u8, u8),
    Break(&'static str, u8),
    Remove(&'static str, u8),
    Nothing,
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let root = || prop_oneof![3 => Just("x"), 1 => Just("y"), 1 => Just("other")];
    let edit = prop_oneof![
        4 => (root(), 0..6_u8, 0..4_u8).prop_map(|(root, n, text)| Edit::Write(root, n, text)),
        1 => (root(), 0..6_u8).prop_map(|(root, n)| Edit::Break(root, n)),
        3 => (root(), 0..6_u8).prop_map(|(root, n)| Edit::Remove(root, n)),
        1 => Just(Edit::Nothing),
    ];
    prop::collection::vec(edit, 0..8)
}

fn apply(fixture: &Fixture, edits: &[Edit]) {
    for edit in edits {
        match edit {
            Edit::Write(root, n, text) => fixture.write(
                &format!("{root}/s{n}/SKILL.md"),
                format!("---\nname: s{n}\ndescription: Text {text}.\n---\n"),
            ),
            Edit::Break(root, n) => {
                fixture.write(&format!("{root}/s{n}/SKILL.md"), "---\nname: \"\n");
            }
            Edit::Remove(root, n) => {
                drop(std::fs::remove_dir_all(
                    fixture.path(&format!("{root}/s{n}")),
                ));
            }
            Edit::Nothing => {}
        }
    }
}

/// The earlier and the later mirror have the same view in half of the rounds.
#[tokio::test]
async fn a_resumed_mirror_reports_exactly_the_changes() {
    let fixture = Fixture::new("skill x/s0\nskill x/s1\nskill y/s0\ndir other");
    let roots = select_both_roots(&fixture);
    let selection = MirrorSelection::new(roots.clone());
    let mut daemon = start_daemon_allowing(&fixture, None).await;
    let address = daemon.address.clone();
    let client = client(&address).await;
    let mut runner = TestRunner::deterministic();
    let (mut exact, mut unknown) = (0, 0);
    for round in 0..24 {
        wait_for_scan(&daemon, &roots).await;
        let earlier = MirrorSelection {
            view: VIEWS[round / 2 % 2],
            ..selection.clone()
        };
        let later = MirrorSelection {
            view: VIEWS[(round / 2 + round) % 2],
            ..selection.clone()
        };
        let mut mirror = Mirror::start(&client, earlier.clone());
        let before = wait_until_live(&mut mirror).await;
        let point = ResumePoint {
            view: earlier.view,
            ..ResumePoint::from_snapshot(&before).expect("a state")
        };
        drop(mirror);

        let edits = edits().new_tree(&mut runner).expect("edits").current();
        apply(&fixture, &edits);
        let is_restarted = matches!(round % 8, 3 | 6);
        if is_restarted {
            daemon.stop().await;
            daemon = start_daemon_allowing(&fixture, Some(&address)).await;
        }
        wait_for_scan(&daemon, &roots).await;
        let mut mirror = Mirror::resume(&client, later, point);
        let after = wait_until_live(&mut mirror).await;
        // Only skills of the same view can be compared.
        let expected = wait_until_live(&mut Mirror::start(&client, earlier)).await;
        let since = after
            .changes_since
            .clone()
            .expect("a report with the first state");
        let (changed, gone) = difference(&before, &expected);
        match &*since {
            ChangesSince::Known {
                revision,
                upserted,
                removed,
                ..
            } => {
                assert_eq!(*revision, after.revision, "{edits:?}");
                assert_eq!((upserted, removed), (&changed, &gone), "{edits:?}");
                assert!(!is_restarted || (changed.is_empty() && gone.is_empty()));
                exact += 1;
            }
            ChangesSince::Unknown { reason, roots } => {
                assert!(
                    is_restarted && reason.contains("restarted"),
                    "{edits:?}: {reason}"
                );
                let touched: BTreeSet<_> =
                    changed.iter().chain(&gone).map(|p| root_of(p)).collect();
                assert_eq!(
                    touched,
                    roots.iter().map(String::as_str).collect(),
                    "{edits:?}"
                );
                unknown += 1;
            }
        }
    }
    assert!(exact >= 18 && unknown > 0, "{exact} {unknown}");
    daemon.stop().await;
}

/// The daemon publishes changes of selected and other roots while mirrors resume.
#[tokio::test(flavor = "multi_thread")]
async fn mirrors_resume_while_skills_change() {
    let fixture = Arc::new(Fixture::new("skill x/s0\nskill y/s0\nskill other/s0"));
    let (roots, other) = (
        select_both_roots(&fixture),
        selected("other", fixture.path("other")),
    );
    let selection = MirrorSelection::new(roots.clone());
    let daemon = start_daemon_allowing(&fixture, None).await;
    let client = client(&daemon.address).await;
    let mut others = Mirror::start(&client, MirrorSelection::new(vec![other]));
    wait_until_live(&mut others).await;
    let mut mirror = Mirror::start(&client, selection.clone());
    let before = wait_until_live(&mut mirror).await;
    let point = ResumePoint::from_snapshot(&before).expect("a state");
    let (stop, mut n) = (Arc::new(AtomicBool::new(false)), 0_u8);
    let editor = std::thread::spawn({
        let (fixture, stop) = (fixture.clone(), stop.clone());
        move || {
            while !stop.load(Ordering::Relaxed) {
                let root = ["x", "other", "y", "other"][usize::from(n) % 4];
                let write = Edit::Write(root, n % 5, n % 3);
                let edit = if n % 7 == 6 {
                    Edit::Remove(root, 0)
                } else {
                    write
                };
                apply(&fixture, &[edit]);
                n = n.wrapping_add(1);
                // The pause lets the daemon publish each change.
                std::thread::sleep(std::time::Duration::from_millis(3));
            }
        }
    });
    // Waits for the first change.
    in_time(mirror.changed()).await;
    let mut resumed: Vec<_> = (0..16)
        .map(|_| Mirror::resume(&client, selection.clone(), point.clone()))
        .collect();
    let mut exact = 0;
    // Each mirror is checked as soon as it is live.
    for first in join_all(resumed.iter_mut().map(wait_until_live)).await {
        let ChangesSince::Known {
            revision,
            upserted,
            removed,
            ..
        } = &*first.changes_since.clone().expect("a report")
        else {
            continue;
        };
        if *revision == first.revision && first.state == MirrorState::Live {
            let reported = (upserted.clone(), removed.clone());
            assert_eq!(reported, difference(&before, &first));
            exact += 1;
        }
    }
    stop.store(true, Ordering::Relaxed);
    editor.join().expect("no panic");
    println!("{exact} of 16 were compared at the reported revision");
    assert!(exact > 0);
    daemon.stop().await;
}

/// With an invalid token or a token of another selection, digests still detect changes.
#[tokio::test]
async fn invalid_resume_tokens_fall_back_to_digests() {
    let fixture = Fixture::new("skill x/s0\nskill y/s0");
    let roots = select_both_roots(&fixture);
    let daemon = start_daemon_allowing(&fixture, None).await;
    let client = client(&daemon.address).await;
    let mut mirror = Mirror::start(&client, MirrorSelection::new(roots.clone()));
    let point = ResumePoint::from_snapshot(&wait_until_live(&mut mirror).await).expect("a state");
    let narrow = MirrorSelection::new(roots[..1].to_vec());
    let cases = [
        (
            ResumePoint {
                token: "garbage".into(),
                ..point.clone()
            },
            "does not know the token",
        ),
        (
            ResumePoint {
                token: String::new(),
                ..point.clone()
            },
            "no token",
        ),
        (point, "another selection"),
    ];
    for changed in [false, true] {
        if changed {
            apply(&fixture, &[Edit::Write("x", 0, 1)]);
            wait_for_scan(&daemon, &roots).await;
        }
        for (point, part) in cases.clone() {
            let mut mirror = Mirror::resume(&client, narrow.clone(), point);
            match &*wait_until_live(&mut mirror)
                .await
                .changes_since
                .expect("a report")
            {
                ChangesSince::Known {
                    upserted, removed, ..
                } => {
                    assert!(!changed && upserted.is_empty() && removed.is_empty());
                }
                ChangesSince::Unknown { reason, roots } => {
                    assert!(
                        changed && reason.contains(part) && *roots == ["x"],
                        "{reason} {roots:?}"
                    );
                }
            }
        }
    }
    daemon.stop().await;
}
