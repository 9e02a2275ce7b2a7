//! Brokers of the storm: the faults of a cluster that the tests do not need, and its memory.

use crate::Outcome;
use crate::nats_cluster::NatsCluster;
use crate::process_memory::resident_kib;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// Interval of pings, as `docs/operate/link.md` sets it.
const PING_INTERVAL: &str = "10s";

/// Starts a cluster of servers, with their config files in a directory.
pub(crate) async fn start_brokers(
    program: PathBuf,
    servers: usize,
    dir: &Path,
) -> Outcome<NatsCluster> {
    let hosts: Vec<_> = (0..servers)
        .map(|at| loopback_host(79, at).to_string())
        .collect();
    Ok(NatsCluster::start(program, &hosts, PING_INTERVAL, dir).await?)
}

/// Returns an address of this machine that no client connects from, so that the port of a server that
/// has ended stays free for its next start.
pub(crate) fn loopback_host(group: u8, number: usize) -> IpAddr {
    let [.., high, low] = number.to_be_bytes();
    IpAddr::from([127, group, high, low])
}

/// Resident memory of all servers.
pub(crate) fn broker_kib(cluster: &NatsCluster) -> Outcome<f64> {
    let processes = cluster
        .servers
        .iter()
        .filter_map(|server| server.process.as_ref()?.id());
    processes.map(|id| resident_kib(&id.to_string())).sum()
}

/// Ends all faults.
pub(crate) async fn repair_brokers(cluster: &mut NatsCluster) -> Outcome<()> {
    for at in 0..cluster.servers.len() {
        cluster.set_frozen(at, false)?;
        cluster.revive(at).await?;
        cluster.set_cut(at, false);
    }
    Ok(())
}
