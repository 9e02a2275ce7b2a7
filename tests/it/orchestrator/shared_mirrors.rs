//! Sessions with one selection share a mirror, so that the daemon has one stream for all of them.

use caproot_client::{DaemonEndpoint, ExecutorConfig, Fleet, MirrorSelection};
use caproot_session::{ExecutorStatus, Session, SessionOptions};
use futures_util::future::join_all;
use serde_json::json;

use crate::config::metrics::{scrape, series_value};
use crate::harness::fixture::Fixture;
use crate::harness::process::ConfiguredDaemon;
use crate::harness::{HANG_TIMEOUT, in_time, published};

const CONFIG: &str = "roots: [{id: r, path: root}, {id: s, path: other}]\n\
                      metrics: {listen: 'unix:run/m.sock'}\n";

fn open_streams(fixture: &Fixture) -> f64 {
    series_value(
        &scrape(fixture),
        "caproot_calls_in_flight{method=\"caproot.v1.CapabilityService/WatchSkills\"}",
    )
}

/// Waits until the daemon has this number of open streams.
async fn wait_for_streams(fixture: &Fixture, count: f64) {
    in_time(async {
        while (open_streams(fixture) - count).abs() > f64::EPSILON {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn sessions_with_one_selection_share_one_stream() {
    let mut fixture = Fixture::new("dir run\nmode 0700 run\nskill root/a\nskill other/b");
    let served = ConfiguredDaemon::start(&fixture, CONFIG).await;
    let endpoint: DaemonEndpoint = format!("tcp:{}", served.address)
        .parse()
        .expect("an endpoint");
    let executor = ExecutorConfig {
        timeout: HANG_TIMEOUT,
        ..ExecutorConfig::new(endpoint)
    };
    let fleet = Fleet::from_executors([("local".to_owned(), executor)]);
    let options = SessionOptions::default();
    let start = |id: &str| Session::start(&fleet, vec![published(id)], &options);
    let sessions: Vec<_> = join_all((0..20).map(|_| start("r"))).await;
    let mut sessions: Vec<_> = sessions
        .into_iter()
        .map(|s| s.expect("a selection"))
        .collect();
    for session in &sessions {
        assert_eq!(session.executors()[0].state, ExecutorStatus::Live);
    }
    wait_for_streams(&fixture, 1.0).await;
    assert_eq!((fleet.stats().mirrors, fleet.stats().connections), (1, 1));

    // Another selection, and another view of the same roots, have their own streams.
    let other = start("s").await.expect("a selection");
    let options = SessionOptions {
        plugins: true,
        ..SessionOptions::default()
    };
    let with_plugins = Session::start(&fleet, vec![published("r")], &options).await;
    wait_for_streams(&fixture, 3.0).await;
    assert_eq!(fleet.stats().mirrors, 3);
    drop((other, with_plugins));
    wait_for_streams(&fixture, 1.0).await;

    // Every session sees every change, and the mirror ends with the last session.
    let last = sessions.pop().expect("a session");
    let mut changes = last.watch();
    drop(sessions);
    fixture.add("skill root/new");
    in_time(async {
        while !last
            .call("skills.list", &json!({}))
            .await
            .json
            .contains("skill://r/new")
        {
            changes.next().await;
        }
    })
    .await;
    drop((last, changes));
    wait_for_streams(&fixture, 0.0).await;
    assert_eq!(fleet.stats().mirrors, 0);

    // The next session starts a new mirror, which starts with the skills of now.
    let mirror = fleet.mirror("local", MirrorSelection::new(vec![published("r")]));
    assert!(mirror.wait_until_live(HANG_TIMEOUT).await);
    assert!(mirror.snapshot().catalog.skill("skill://r/new").is_some());
    drop(mirror);
    served.stop().await;
}

/// A restored session has a mirror of its own until it ends, and later sessions share that mirror.
#[tokio::test]
async fn later_sessions_share_the_mirror_of_a_restored_session() {
    let fixture = Fixture::new("dir run\nmode 0700 run\nskill root/a\nskill other/b");
    let served = ConfiguredDaemon::start(&fixture, CONFIG).await;
    let endpoint: DaemonEndpoint = format!("tcp:{}", served.address)
        .parse()
        .expect("an endpoint");
    let fleet = Fleet::from_executors([("local".to_owned(), ExecutorConfig::new(endpoint))]);
    let options = SessionOptions::default();
    let first = Session::start(&fleet, vec![published("r")], &options)
        .await
        .expect("a selection");
    let saved = first.save().expect("a saved session");
    drop(first);
    let restored = Session::restore(&fleet, &saved, &options)
        .await
        .expect("a session");
    let session = Session::start(&fleet, vec![published("r")], &options).await;
    let session = session.expect("a selection");
    assert!(session.changes_since_save().is_empty());
    wait_for_streams(&fixture, 1.0).await;
    drop(restored);
    let list = session.call("skills.list", &json!({})).await;
    assert!(list.json.contains("skill://r/a"), "{}", list.json);
    served.stop().await;
}
