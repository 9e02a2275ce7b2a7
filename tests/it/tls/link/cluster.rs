//! A cluster of three NATS servers: dead and frozen servers, and a partition. The routes between the
//! servers go through proxies of the test, which cut them.

use caproot_client::Fleet;
use rustix::process::Signal;

use super::nats_cluster::{NatsCluster, find_nats_server};
use super::{
    LinkedExecutor, call_executor, call_until_success, is_stale, mirror_one, wait_for,
    wait_until_live_with, wait_until_live_within,
};
use crate::harness::fixture::Fixture;
use crate::harness::test_servers::free_port;
use crate::harness::{HANG_TIMEOUT, in_time};

/// Starts three servers. Returns `None` without the broker's program.
async fn start_cluster() -> Option<(NatsCluster, Fixture)> {
    let Some(program) = find_nats_server() else {
        println!("SKIPPED: nats-server is not installed");
        return None;
    };
    let configs = Fixture::new("");
    let hosts = [(); 3].map(|()| free_port().trim_end_matches(":0").to_owned());
    // The interval of pings ends the routes of a frozen server.
    let cluster = NatsCluster::start(program, &hosts, "5s", &configs.path("")).await;
    Some((cluster.expect("the servers start"), configs))
}

/// Calls the executor of an environment until no link serves it.
async fn call_until_unserved(fleet: &Fleet, environment_id: &str) {
    in_time(async {
        while !call_executor(fleet, environment_id)
            .await
            .is_err_and(|error| error.contains("no link serves the environment"))
        {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Each server is killed in turn, so also the servers of the link and of the orchestrator.
#[tokio::test]
async fn a_mirror_goes_on_through_the_other_servers() {
    let Some((cluster, _configs)) = start_cluster().await else {
        return;
    };
    let mut executor = LinkedExecutor::behind(cluster);
    let servers = executor.broker.urls().join(", ");
    let link = executor.start_link_to(&servers, "one", "").await;
    let fleet = executor.open_fleet_to(&servers, "fleet.yaml").await;
    let mut mirror = mirror_one(&fleet);
    wait_until_live_with(&mut mirror, 1).await;
    for at in 0..3 {
        executor.broker.kill(at).await.expect("a server");
        executor.add_skill(&format!("new-{at}"));
        wait_until_live_with(&mut mirror, at + 2).await;
        executor.broker.revive(at).await.expect("a server");
    }
    drop(link);
}

/// A server is frozen under a link. The link goes to another server, and its mirror too. A mirror
/// through the frozen server keeps its catalog, and is live once the server continues.
#[tokio::test]
async fn a_link_leaves_a_frozen_server() {
    let Some((cluster, _configs)) = start_cluster().await else {
        return;
    };
    let mut executor = LinkedExecutor::behind(cluster);
    let servers = executor.broker.urls().join(", ");
    // The link can only connect to the first server.
    executor.broker.kill(1).await.expect("a server");
    executor.broker.kill(2).await.expect("a server");
    let mut link = executor.start_link_to(&servers, "one", "").await;
    executor.broker.revive(1).await.expect("a server");
    executor.broker.revive(2).await.expect("a server");
    let outside = executor
        .open_fleet_to(&executor.broker.urls()[1], "outside.yaml")
        .await;
    let inside = executor
        .open_fleet_to(&executor.broker.urls()[0], "inside.yaml")
        .await;
    // The servers may still connect to each other.
    call_until_success(&outside, "one").await;
    let (mut moving, mut waiting) = (mirror_one(&outside), mirror_one(&inside));
    wait_until_live_with(&mut moving, 1).await;
    wait_until_live_with(&mut waiting, 1).await;
    link.wait_for_log("connected to the broker").await;
    executor.broker.set_frozen(0, true).expect("a server");
    link.wait_for_log("connection to the broker lost").await;
    link.wait_for_log("connected to the broker").await;
    wait_for(&mut waiting, is_stale).await;
    executor.add_skill("b");
    // A server that has no frozen route any more answers the next ping in the tunnel, and then the
    // mirror opens another tunnel after a pause.
    wait_until_live_within(3 * HANG_TIMEOUT, &mut moving, 2).await;
    assert_eq!(waiting.snapshot().catalog.skill_count(), 1);
    executor.broker.set_frozen(0, false).expect("a server");
    wait_until_live_with(&mut waiting, 2).await;
    executor.add_skill("c");
    wait_until_live_with(&mut moving, 3).await;
    wait_until_live_with(&mut waiting, 3).await;
    assert!(link.is_running());
}

/// Each side of a partition serves what it reaches. After the partition, the greatest of two links
/// serves both sides.
#[tokio::test]
async fn the_greatest_link_serves_after_a_partition() {
    let Some((cluster, _configs)) = start_cluster().await else {
        return;
    };
    let mut executor = LinkedExecutor::behind(cluster);
    let servers = executor.broker.urls();
    let [left, right, far] = &servers[..] else {
        panic!("three servers")
    };
    let mut older = executor.start_link_to(left, "one", "").await;
    older.wait_for_log("environment claimed").await;
    let left = executor.open_fleet_to(left, "left.yaml").await;
    let far = executor.open_fleet_to(far, "far.yaml").await;
    call_until_success(&left, "one").await;
    call_until_success(&far, "one").await;
    executor.broker.set_cut(0, true);
    call_until_unserved(&far, "one").await;
    call_until_success(&left, "one").await;
    // The newer link hears nothing of the older, and the other way around.
    let newer = executor.start_link_to(right, "one", "").await;
    call_until_success(&far, "one").await;
    call_until_success(&left, "one").await;
    executor.broker.set_cut(0, false);
    // The newer link repeats its claim.
    older
        .wait_for_log("a newer link serves the environment")
        .await;
    call_until_success(&left, "one").await;
    call_until_success(&far, "one").await;
    // Only the newer link serves.
    let output = newer.exit_on(Signal::TERM).await;
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert!(
        !output.stderr.contains("a newer link serves"),
        "{}",
        output.stderr
    );
    older.wait_for_log("environment claimed").await;
    call_until_success(&left, "one").await;
    call_until_success(&far, "one").await;
}
