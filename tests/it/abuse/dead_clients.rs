//! Clients that disappear without closing the connection, such as after a power failure.

use std::fs;
use std::process::Command;
use std::time::Duration;

use caproot::daemon::config::ConnectionTiming;
use caproot::daemon::model::Limits;
use caproot_core::proto::caproot::v1::WatchSkillsRequest;
use tonic::Code;

use crate::harness::fixture::Fixture;
use crate::harness::namespaces::run_in_namespaces;
use crate::harness::replica::Replica;
use crate::harness::watch_harness::{skill_text, watch_request};
use crate::harness::{Daemon, Setup, assert_rpc_error, in_time, selected};

/// Turns the loopback interface of this network namespace on or off.
fn set_loopback(state: &str) -> bool {
    let done = Command::new("ip")
        .args(["link", "set", "lo", state])
        .status();
    done.is_ok_and(|status| status.success())
}

/// Number of established connections on the daemon's side.
fn established(address: &str) -> usize {
    let (_, port) = address.rsplit_once(':').expect("a port");
    let port = format!(":{:04X}", port.parse::<u16>().expect("a number"));
    let table = fs::read_to_string("/proc/self/net/tcp").expect("the table of connections");
    // Local and remote address, and the state: 01 is ESTABLISHED.
    let fields = table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    fields
        .filter(|f| f[1].ends_with(&port) && f[3] == "01")
        .count()
}

#[tokio::test]
async fn the_permit_of_a_dead_client_is_released() {
    run_in_namespaces!("--net");
    if !set_loopback("up") {
        println!("SKIPPED: `ip` is not installed");
        return;
    }
    let fixture = Fixture::new("skill r/a");
    let connection_timing = ConnectionTiming {
        ping_interval: Duration::from_millis(300),
        ping_timeout: Duration::from_secs(2),
        ..ConnectionTiming::default()
    };
    let limits = Limits {
        max_streams: 1,
        ..Limits::default()
    };
    let allow = Setup::allowing([fixture.top().to_owned()]);
    let daemon = Daemon::start(Setup {
        limits,
        connection_timing,
        ..allow
    })
    .await;
    let vanishing = Daemon::connect_to(&daemon.address).await;
    let request = WatchSkillsRequest {
        bookmark_interval: Some(prost_types::Duration {
            seconds: 2,
            nanos: 0,
        }),
        ..watch_request(vec![selected("r", fixture.path("r"))])
    };
    let mut replica = Replica::synced(&vanishing, request.clone()).await;
    // A silent client that still responds keeps its permit.
    assert!(replica.next_batch().await.is_bookmark);
    let refused = daemon.watch(request.clone()).await;
    assert_rpc_error(refused, Code::ResourceExhausted, "TOO_MANY_STREAMS", None);
    assert_eq!(established(&daemon.address), 2);

    assert!(set_loopback("down"), "the network can be cut");
    let noticed = async {
        while established(&daemon.address) > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    in_time(noticed).await;
    assert!(set_loopback("up"), "the network can be restored");
    let another = Daemon::connect_to(&daemon.address).await;
    let mut replica = Replica::synced(&another, request).await;
    fixture.replace("r/a/SKILL.md", skill_text("a", "Told."));
    assert_eq!(replica.next_change().await.upserted, ["skill://r/a"]);
    drop(vanishing);
    daemon.stop().await;
}
