//! Restarts of the daemon under mirrors and sessions: no catalog is sent again, and a session has no
//! event.

use std::sync::Arc;

use caproot_client::{Fleet, Mirror, MirrorSelection, MirrorState};
use caproot_core::proto::caproot::v1::{ListSkillsRequest, RootState};
use caproot_session::{Session, SessionOptions};

use super::mirror::wait_until;
use super::session::list_all;
use super::{client, executor, published, serve_tree, start_daemon};
use crate::harness::test_servers::RecordingProxy;
use crate::harness::{Daemon, HANG_TIMEOUT, in_time, list_request};

/// Waits for the first scan, which can take longer than the daemon lets a caller wait.
async fn wait_until_scanned(daemon: &Daemon) {
    let request = ListSkillsRequest {
        roots_only: true,
        ..list_request(&[published("x")])
    };
    loop {
        let list = daemon.try_list(request.clone()).await.expect("a list");
        if list.roots[0].state() == RootState::Ready {
            return;
        }
    }
}

/// A restart of the daemon under a mirror of 3,000 skills costs less than 2 KiB on the wire, and the
/// mirror keeps its catalog. A change during the restart is received.
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_sends_no_catalog_again() {
    let (mut fixture, mut daemon) = serve_tree(
        "x",
        "repeat 3000 skill r/s{}\nfile r/bad/SKILL.md\n| no fence",
    )
    .await;
    let address = daemon.address.clone();
    let proxy = RecordingProxy::start(&address).await;
    wait_until_scanned(&daemon).await;
    let mut mirror = Mirror::start(
        &client(&proxy.address).await,
        MirrorSelection::new(vec![published("x")]),
    );
    assert!(mirror.wait_until_live(HANG_TIMEOUT).await);
    let first = mirror.snapshot();
    assert_eq!(
        (
            first.catalog.skill_count(),
            first.catalog.diagnostics().count()
        ),
        (3_000, 1)
    );
    let whole = proxy.byte_count();
    for is_changed in [false, true] {
        proxy.set_paused(true);
        daemon.stop().await;
        wait_until(&mut mirror, |snapshot| snapshot.state != MirrorState::Live).await;
        if is_changed {
            fixture.add("skill r/new");
        }
        daemon = start_daemon("x", fixture.path("r"), Some(&address)).await;
        wait_until_scanned(&daemon).await;
        let before = proxy.byte_count();
        proxy.set_paused(false);
        let again = wait_until(&mut mirror, |snapshot| snapshot.state == MirrorState::Live).await;
        let cost = proxy.byte_count() - before;
        println!("first state {whole} bytes, after a restart {cost} bytes");
        assert_ne!(again.epoch, first.epoch);
        assert_eq!(
            Arc::ptr_eq(&again.catalog, &first.catalog),
            !is_changed,
            "no event"
        );
        assert_eq!(cost < 2_048, !is_changed, "{cost} bytes");
        assert_eq!(again.catalog.skill_count(), 3_000 + usize::from(is_changed));
    }
    daemon.stop().await;
}

/// The only event of a session is the change after the restart.
#[tokio::test]
async fn a_restart_is_no_event_of_a_session() {
    let (mut fixture, mut daemon) = serve_tree("x", "skill r/a\nskill r/b").await;
    let address = daemon.address.clone();
    let fleet = Fleet::from_executors([("x".to_owned(), executor(&address))]);
    let options = SessionOptions {
        grace_period: HANG_TIMEOUT,
        ..SessionOptions::default()
    };
    let session = Session::start(&fleet, vec![published("x")], &options)
        .await
        .expect("a session");
    let mut watch = session.watch();
    for n in 0..3 {
        daemon.stop().await;
        daemon = start_daemon("x", fixture.path("r"), Some(&address)).await;
        fixture.add(&format!("skill r/new{n}"));
        in_time(watch.next()).await;
        let (listed, warnings) = list_all(&session).await;
        assert_eq!((listed.len(), warnings.len()), (3 + n, 0), "{listed:?}");
    }
    daemon.stop().await;
}
