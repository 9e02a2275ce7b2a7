//! Fleet files with a pattern, and fleet files that change.

use std::path::Path;

use caproot::daemon::config::{Config, RootFlag, ServeFlags};
use caproot_client::{Fleet, FleetError, Mirror, MirrorSelection, MirrorState};
use caproot_session::{Session, SessionOptions};
use serde_json::json;

use super::moving_executors::wait_for_skill;
use super::{published, start_daemon};
use crate::harness::fixture::Fixture;
use crate::harness::{Daemon, in_time, isolated_env, poll_until};

/// An executor with another entry is left, even if the old daemon still runs.
#[tokio::test]
async fn a_changed_file_moves_its_executors() {
    let fixture = Fixture::new("skill one/first\nskill two/second");
    let one = start_daemon("x", fixture.path("one"), None).await;
    let two = start_daemon("x", fixture.path("two"), None).await;
    let text =
        |daemon: &Daemon| format!("executors: {{x: {{endpoint: 'tcp:{}'}}}}", daemon.address);
    fixture.write("fleet.yaml", text(&one));
    let fleet = Fleet::from_file(&fixture.path("fleet.yaml"))
        .await
        .expect("a valid file");
    let mut client = fleet.client("x").await.expect("a client");
    let mut mirror = Mirror::start(&client, MirrorSelection::new(vec![published("x")]));
    wait_for_skill(&mut mirror, "skill://x/first").await;

    fixture.write("fleet.yaml", text(&two));
    let moved = wait_for_skill(&mut mirror, "skill://x/second").await;
    assert_eq!(
        client.get_executor().await.expect("an answer").epoch,
        *moved.epoch
    );
    let stats = fleet.stats();
    assert_eq!((stats.file_rereads, stats.file_error), (1, None));

    // A broken file changes nothing but the reported error.
    fixture.write("fleet.yaml", "executors: {x: {endpoint: nowhere}}");
    poll_until("the file has an error", || {
        fleet.stats().file_error.is_some()
    })
    .await;
    let error = fleet.stats().file_error.expect("an error");
    assert!(
        error.contains("fleet.yaml:1:27: executors.x.endpoint: invalid value"),
        "{error}"
    );
    assert_eq!(
        client.get_executor().await.expect("an answer").epoch,
        *moved.epoch
    );
    assert_eq!(mirror.snapshot().state, MirrorState::Live);
    fixture.write("fleet.yaml", text(&two));
    poll_until("the file has no error", || {
        fleet.stats().file_error.is_none()
    })
    .await;
    assert_eq!(
        (fleet.stats().connections, fleet.environment_ids()),
        (1, vec!["x".to_owned()])
    );

    // An executor without an entry is left.
    fixture.write("fleet.yaml", "executors: {}");
    in_time(async { while mirror.changed().await.state == MirrorState::Live {} }).await;
    poll_until("the connections are closed", || {
        fleet.stats().connections == 0
    })
    .await;
    let error = in_time(client.get_executor())
        .await
        .expect_err("no executor")
        .to_string();
    assert!(
        error.contains("no executor is known for the environment \"x\""),
        "{error}"
    );
    assert!(fleet.environment_ids().is_empty());
    one.stop().await;
    two.stop().await;
}

/// Starts a daemon of one environment on a Unix socket with its name.
async fn start_on_socket(environment: &str, fixture: &Fixture) -> Daemon {
    let socket = fixture.path(&format!("sockets/{environment}.sock"));
    let flags = ServeFlags {
        roots: vec![RootFlag {
            id: Some(environment.into()),
            dir: fixture.path(environment),
        }],
        environment_ids: vec![environment.to_owned()],
        listen: vec![
            format!("unix:{}", socket.display()),
            "tcp:127.0.0.1:0".to_owned(),
        ],
        ..ServeFlags::default()
    };
    let env = isolated_env(Path::new("/nonexistent"));
    Daemon::start_with(Config::from_flags(flags, &env).expect("a config")).await
}

#[tokio::test]
async fn a_pattern_finds_executors_that_the_file_does_not_list() {
    let fixture = Fixture::new("skill one/a\nskill two-2/b\nskill Listed/c\ndir sockets");
    let one = start_on_socket("one", &fixture).await;
    let two = start_on_socket("two-2", &fixture).await;
    let listed = start_daemon("Listed", fixture.path("Listed"), None).await;
    let sockets = fixture.path("sockets");
    let text = format!(
        "pattern:\n  endpoint: unix:{}/{{id}}.sock\nexecutors:\n  Listed: {{endpoint: 'tcp:{}'}}\n",
        sockets.display(),
        listed.address
    );
    fixture.write("fleet.yaml", text);
    let fleet = Fleet::from_file(&fixture.path("fleet.yaml"))
        .await
        .expect("a valid file");
    assert_eq!(fleet.environment_ids(), ["Listed"]);
    let roots = ["one", "two-2", "Listed"].map(published).to_vec();
    let session = Session::start(&fleet, roots, &SessionOptions::default()).await;
    let list = session
        .expect("a selection")
        .call("skills.list", &json!({}))
        .await;
    for package in ["skill://one/a", "skill://two-2/b", "skill://Listed/c"] {
        assert!(list.json.contains(package), "{}", list.json);
    }
    for id in ["../sockets/one", "One", "", "one.sock", "one/"] {
        let error = fleet.client(id).await.expect_err(id);
        assert!(
            matches!(error, FleetError::Registry { .. }),
            "{id}: {error}"
        );
        assert!(
            error
                .to_string()
                .contains("lower-case letters, digits and hyphens"),
            "{error}"
        );
    }
    for daemon in [one, two, listed] {
        daemon.stop().await;
    }
}
