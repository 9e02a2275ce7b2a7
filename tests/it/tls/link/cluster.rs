//! A cluster of three NATS servers: dead and frozen servers, and a partition. The routes between the
//! servers go through proxies of the test, which cut them.

use std::sync::{Arc, Mutex};

use caproot::client::Fleet;
use rustix::process::Signal;
use tokio::net::TcpListener;

use super::broker::NatsServer;
use super::cuttable_route::CuttableRoute;
use super::{
    LinkedExecutor, call, call_until_success, is_stale, mirror_one, wait_for, wait_until_live_with,
    wait_until_live_within,
};
use crate::fixture::Fixture;
use crate::harness::{HANG_TIMEOUT, in_time, short_or_long};
use crate::test_servers::{free_port, unused_address};

/// Three servers, each of which has a route to each other.
struct NatsCluster {
    servers: Vec<NatsServer>,
    /// Address of the routes of each server. The address changes with a restart.
    route_addresses: Vec<Arc<Mutex<String>>>,
    routes: Vec<CuttableRoute>,
    _configs: Fixture,
}

impl NatsCluster {
    /// Starts the servers. Returns `None` without the broker's program.
    async fn start() -> Option<Self> {
        let (mut servers, mut route_addresses, mut routes) = (Vec::new(), Vec::new(), Vec::new());
        let configs = Fixture::new("");
        for at in 0..3 {
            let mut urls = Vec::new();
            for (other, address) in route_addresses.iter().enumerate() {
                let listener = TcpListener::bind(free_port()).await.expect("a free port");
                let proxy = listener.local_addr().expect("an address");
                let route = CuttableRoute::start(listener, (other, at), Arc::clone(address));
                routes.push(route);
                urls.push(format!("\"nats://{proxy}\""));
            }
            // Servers tell each other their addresses; all routes stay in the proxies, because no
            // server is at this one. The interval of pings ends the routes of a frozen server.
            let config = format!(
                "ping_interval: \"5s\"\nping_max: 2\ncluster {{\n  name: fleet\n  listen: \
                 \"127.0.0.1:-1\"\n  no_advertise: true\n  advertise: \"{}\"\n  routes: [{}]\n}}\n",
                unused_address(),
                urls.join(", ")
            );
            let name = format!("{at}.conf");
            configs.write(&name, config);
            let file = configs.path(&name);
            let mut server = NatsServer::start(&format!("-c {}", file.display())).await?;
            route_addresses.push(Arc::new(Mutex::new(route_address(&mut server).await)));
            servers.push(server);
        }
        Some(Self { servers, route_addresses, routes, _configs: configs })
    }

    async fn restart(&mut self, at: usize) {
        self.servers[at].restart().await;
        let address = route_address(&mut self.servers[at]).await;
        *self.route_addresses[at].lock().expect("no panic") = address;
    }

    /// Cuts the routes of a server, or heals them.
    fn set_cut(&self, at: usize, is_cut: bool) {
        for route in self.routes.iter().filter(|route| route.ends_at(at)) {
            route.set_cut(is_cut);
        }
    }

    fn signal(&self, at: usize, signal: Signal) {
        self.servers[at].process.send_signal(signal);
    }

    /// URLs of all servers.
    fn all(&self) -> String {
        self.servers.iter().map(NatsServer::url).collect::<Vec<_>>().join(", ")
    }

    fn url(&self, at: usize) -> String {
        self.servers[at].url()
    }
}

/// Returns the address of a server's routes.
async fn route_address(server: &mut NatsServer) -> String {
    let line = server.process.wait_for_log("Listening for route connections on").await;
    line.rsplit(' ').next().expect("an address").to_owned()
}

/// Calls the executor of an environment until no link serves it.
async fn call_until_unserved(fleet: &Fleet, environment_id: &str) {
    in_time(async {
        while !call(fleet, environment_id)
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
    let Some(cluster) = NatsCluster::start().await else { return };
    let mut executor = LinkedExecutor::behind(cluster);
    let servers = executor.broker.all();
    let link = executor.start_link_to(&servers, "one", "").await;
    let fleet = executor.open_fleet_to(&servers, "fleet.yaml").await;
    let mut mirror = mirror_one(&fleet);
    wait_until_live_with(&mut mirror, 1).await;
    for at in 0..3 {
        executor.broker.servers[at].kill();
        executor.add_skill(&format!("new-{at}"));
        wait_until_live_with(&mut mirror, at + 2).await;
        executor.broker.restart(at).await;
    }
    drop(link);
}

/// A server is frozen under a link. The link goes to another server, and its mirror too. A mirror
/// through the frozen server keeps its catalog, and is live once the server continues.
#[tokio::test]
async fn a_link_leaves_a_frozen_server() {
    let Some(cluster) = NatsCluster::start().await else { return };
    let mut executor = LinkedExecutor::behind(cluster);
    let servers = executor.broker.all();
    // The link can only connect to the first server.
    executor.broker.servers[1].kill();
    executor.broker.servers[2].kill();
    let mut link = executor.start_link_to(&servers, "one", "").await;
    executor.broker.restart(1).await;
    executor.broker.restart(2).await;
    let outside = executor.open_fleet_to(&executor.broker.url(1), "outside.yaml").await;
    let inside = executor.open_fleet_to(&executor.broker.url(0), "inside.yaml").await;
    // The servers may still connect to each other.
    call_until_success(&outside, "one").await;
    let (mut moving, mut waiting) = (mirror_one(&outside), mirror_one(&inside));
    wait_until_live_with(&mut moving, 1).await;
    wait_until_live_with(&mut waiting, 1).await;
    link.wait_for_log("connected to the broker").await;
    executor.broker.signal(0, Signal::STOP);
    link.wait_for_log("connection to the broker lost").await;
    link.wait_for_log("connected to the broker").await;
    wait_for(&mut waiting, is_stale).await;
    executor.add_skill("b");
    // A server that has no frozen route any more answers the next ping in the tunnel, and then the
    // mirror opens another tunnel after a pause.
    wait_until_live_within(3 * HANG_TIMEOUT, &mut moving, 2).await;
    assert_eq!(waiting.snapshot().catalog.skill_count(), 1);
    executor.broker.signal(0, Signal::CONT);
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
    let Some(cluster) = NatsCluster::start().await else { return };
    let mut executor = LinkedExecutor::behind(cluster);
    let (left, right) = (executor.broker.url(0), executor.broker.url(1));
    let mut older = executor.start_link_to(&left, "one", "").await;
    older.wait_for_log("environment claimed").await;
    let left = executor.open_fleet_to(&left, "left.yaml").await;
    let far = executor.open_fleet_to(&executor.broker.url(2), "far.yaml").await;
    call_until_success(&left, "one").await;
    call_until_success(&far, "one").await;
    executor.broker.set_cut(0, true);
    call_until_unserved(&far, "one").await;
    call_until_success(&left, "one").await;
    // The newer link hears nothing of the older, and the other way around.
    let newer = executor.start_link_to(&right, "one", "").await;
    call_until_success(&far, "one").await;
    call_until_success(&left, "one").await;
    executor.broker.set_cut(0, false);
    // The newer link repeats its claim for each connection to a server, and once in a minute.
    let limit = short_or_long(HANG_TIMEOUT, 3 * HANG_TIMEOUT);
    if limit == HANG_TIMEOUT {
        executor.broker.servers[1].kill();
        executor.broker.restart(1).await;
    }
    older.wait_for_log_within(limit, "a newer link serves the environment").await;
    call_until_success(&left, "one").await;
    call_until_success(&far, "one").await;
    // Only the newer link serves.
    let output = newer.exit_on(Signal::TERM).await;
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert!(!output.stderr.contains("a newer link serves"), "{}", output.stderr);
    older.wait_for_log("environment claimed").await;
    call_until_success(&left, "one").await;
    call_until_success(&far, "one").await;
}
