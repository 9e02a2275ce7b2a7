//! Fleets whose executors move, come late and are used no more.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use caproot_client::fleet::RegistryFuture;
use caproot_client::{
    ClientCredentials, DialLimits, ExecutorConfig, ExecutorRegistry, Fleet, Mirror,
    MirrorSelection, MirrorSnapshot,
};
use caproot_session::{ExecutorStatus, Session, SessionOptions};
use serde_json::json;

use super::{executor, published, serve_tree, start_daemon};
use crate::harness::fixture::Fixture;
use crate::harness::{HANG_TIMEOUT, in_time};

/// Registry with the address that the test sets.
#[derive(Clone, Default)]
pub(super) struct MovableRegistry(Arc<Mutex<Option<ExecutorConfig>>>);

impl MovableRegistry {
    pub(super) fn set(&self, executor: Option<ExecutorConfig>) {
        *self.0.lock().expect("no panic") = executor;
    }
}

impl ExecutorRegistry for MovableRegistry {
    fn find_executor<'a>(&'a self, _: &'a str) -> RegistryFuture<'a> {
        let executor = self.0.lock().expect("no panic").clone();
        Box::pin(std::future::ready(Ok(executor)))
    }
}

pub(super) async fn wait_for_skill(mirror: &mut Mirror, package: &str) -> MirrorSnapshot {
    in_time(async {
        loop {
            let snapshot = mirror.snapshot();
            if snapshot.catalog.skill(package).is_some() {
                return snapshot;
            }
            mirror.changed().await;
        }
    })
    .await
}

#[tokio::test]
async fn an_executor_that_moved_is_found_again() {
    let fixture = Fixture::new("skill one/first\nskill two/second");
    let one = start_daemon("x", fixture.path("one"), None).await;
    let registry = MovableRegistry::default();
    registry.set(Some(executor(&one.address)));
    let fleet = Fleet::new(registry.clone());
    let mut client = fleet.client("x").await.expect("a client");
    let selection = MirrorSelection::new(vec![published("x")]);
    let mut mirror = Mirror::start(&client, selection);
    let before = wait_for_skill(&mut mirror, "skill://x/first").await;
    assert_eq!(
        fleet.stats().connections,
        1,
        "calls and streams share the connection"
    );

    let two = start_daemon("x", fixture.path("two"), None).await;
    let timeout = Duration::from_secs(44);
    registry.set(Some(ExecutorConfig {
        timeout,
        ..executor(&two.address)
    }));
    one.stop().await;
    let after = wait_for_skill(&mut mirror, "skill://x/second").await;
    assert_ne!(before.epoch, after.epoch);
    assert_eq!(
        client.get_executor().await.expect("an answer").epoch,
        *after.epoch
    );
    assert_eq!(client.timeout(), timeout);
    let stats = fleet.stats();
    assert_eq!((stats.clients, stats.connections), (1, 1), "{stats:?}");
    assert!(
        stats.dials >= 2 && stats.dials > stats.failed_dials,
        "{stats:?}"
    );
    two.stop().await;
}

/// The registry is asked for each connection, and not for each call.
#[tokio::test]
async fn a_lost_executor_is_an_error_with_the_reason() {
    let (_fixture, daemon) = serve_tree("x", "skill r/a").await;
    let registry = MovableRegistry::default();
    registry.set(Some(executor(&daemon.address)));
    let fleet = Fleet::new(registry.clone());
    let mut client = fleet.client("x").await.expect("a client");
    client.get_executor().await.expect("an answer");
    registry.set(None);
    client
        .get_executor()
        .await
        .expect("the connection is still open");
    fleet
        .client("x")
        .await
        .expect("the connection is still open");
    daemon.stop().await;
    let error = in_time(client.get_executor())
        .await
        .expect_err("no executor")
        .to_string();
    assert!(
        error.contains("no executor is known for the environment \"x\""),
        "{error}"
    );
    fleet
        .client("x")
        .await
        .expect_err("the registry names no executor");
    assert_eq!(fleet.stats().connections, 0);
}

#[tokio::test]
async fn a_session_shows_the_skills_of_a_late_executor() {
    let fixture = Fixture::new("skill r/a");
    let registry = MovableRegistry::default();
    let fleet = Fleet::new(registry.clone());
    // The timeout is longer than the test: a missing executor is not waited for.
    let options = SessionOptions {
        start_timeout: Duration::from_hours(1),
        ..SessionOptions::default()
    };
    let session = in_time(Session::start(&fleet, vec![published("x")], &options)).await;
    let session = session.expect("a selection");
    let state = session.executors().remove(0);
    assert_eq!((state.state, state.skills), (ExecutorStatus::Failed, 0));
    let reason = state.reason.expect("a reason");
    assert!(
        reason.contains("no executor is known for the environment \"x\""),
        "{reason}"
    );

    let mut changes = session.watch();
    let daemon = start_daemon("x", fixture.path("r"), None).await;
    registry.set(Some(executor(&daemon.address)));
    in_time(async {
        while session.executors()[0].state != ExecutorStatus::Live {
            changes.next().await;
        }
    })
    .await;
    let list = session.call("skills.list", &json!({})).await;
    assert!(list.json.contains("skill://x/a"), "{}", list.json);
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_client_is_let_go_ten_minutes_after_its_last_use() {
    let address = crate::harness::test_servers::unused_address();
    let executors = ["used", "unused"].map(|id| (id.to_owned(), executor(&address)));
    let fleet = Fleet::from_executors(executors);
    let used = fleet.client("used").await.expect("a client");
    drop(fleet.client("unused").await.expect("a client"));
    tokio::time::sleep(Duration::from_secs(9 * 60 + 50)).await;
    assert_eq!(fleet.stats().clients, 2);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(fleet.stats().clients, 1);
    // A clone is a use, however old it is.
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(fleet.stats().clients, 1);
    drop(used);
    tokio::time::sleep(Duration::from_mins(9)).await;
    drop(fleet.lazy_client("used"));
    tokio::time::sleep(Duration::from_mins(9)).await;
    assert_eq!(
        fleet.stats().clients,
        1,
        "the time counts from the last use"
    );
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert_eq!(fleet.stats().clients, 0);
    // After the last client, the next client is let go as well.
    drop(fleet.lazy_client("used"));
    tokio::time::sleep(Duration::from_mins(11)).await;
    assert_eq!(fleet.stats().clients, 0);
}

#[tokio::test]
async fn a_client_that_was_let_go_closes_its_connection() {
    let (_fixture, daemon) = serve_tree("x", "skill r/a").await;
    let fleet = Fleet::from_executors([("x".to_owned(), executor(&daemon.address))]);
    for _ in 0..2 {
        let mut client = fleet.client("x").await.expect("a client");
        client.get_executor().await.expect("an answer");
        assert_eq!(fleet.stats().connections, 1);
        drop(client);
        tokio::time::pause();
        tokio::time::advance(Duration::from_mins(11)).await;
        while fleet.stats().connections > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(fleet.stats().clients, 0);
        tokio::time::resume();
    }
    daemon.stop().await;
}

/// A file of credentials is read at each connection, and its error is the reason.
#[tokio::test]
async fn unusable_credentials_are_the_reason_for_no_connection() {
    let (fixture, daemon) = serve_tree("x", "skill r/a").await;
    let token = Some(caproot_client::ClientToken::File(fixture.path("token")));
    let config = ExecutorConfig {
        credentials: ClientCredentials {
            token,
            ..ClientCredentials::default()
        },
        ..executor(&daemon.address)
    };
    let fleet = Fleet::from_executors([("x".to_owned(), config)]);
    let error = fleet.client("x").await.expect_err("no token").to_string();
    assert!(error.contains("token does not exist"), "{error}");
    let mut client = fleet.lazy_client("x");
    let error = in_time(client.get_executor())
        .await
        .expect_err("no token")
        .to_string();
    assert!(error.contains("token does not exist"), "{error}");
    fixture.write("token", "secret");
    client.get_executor().await.expect("an answer");
    daemon.stop().await;
}

/// At most one dial is in progress, and the other executors wait for their turn.
#[tokio::test]
async fn dials_wait_for_each_other() {
    let (_fixture, daemon) = serve_tree("x", "skill r/a").await;
    let environments: Vec<String> = (0..20).map(|n| format!("e{n}")).collect();
    let executors = environments
        .iter()
        .map(|id| (id.clone(), executor(&daemon.address)));
    let limits = DialLimits {
        dials_at_once: 1,
        dials_per_second: 1_000,
    };
    let fleet = Fleet::from_executors(executors).with_dial_limits(limits);
    let calls = environments.iter().map(|id| async {
        let mut client = fleet.client(id).await.expect("a client");
        let answer = client.get_executor().await.expect("an answer");
        assert!(fleet.stats().dials_in_progress <= 1);
        answer
    });
    tokio::time::timeout(HANG_TIMEOUT, futures_util::future::join_all(calls))
        .await
        .expect("ends");
    let stats = fleet.stats();
    assert_eq!(
        (stats.dials, stats.connections, stats.waiting_dials),
        (20, 20, 0),
        "{stats:?}"
    );
    daemon.stop().await;
}
