//! Storm over executors behind a cluster of brokers: rounds of faults by a seed, and quiet, in which all
//! mirrors must become live and right. Each state of each mirror is checked. A bench runs the same storm
//! for its figures.

pub(crate) mod checks;
pub(crate) mod executors;
pub(crate) mod faults;
mod registry;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use caproot_client::{Fleet, MirrorSelection, NatsDialer};
use caproot_core::proto::caproot::v1::{CapabilityRootLocation, SelectedCapabilityRoot};
use caproot_link::BrokerConfig;
use futures_util::future::join_all;
use tokio::time::{sleep, timeout};

use self::checks::{CheckedMirror, StateChecks};
use self::executors::{ExecutorCommands, ROOT, environment_id};
use self::faults::StormFaults;
use self::registry::StormRegistry;
use super::nats_cluster::NatsCluster;

/// Result of a part of the storm.
pub(crate) type StormResult<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Servers of the cluster.
pub(crate) const BROKERS: usize = 3;
/// Interval of pings, as `docs/operate/link.md` sets it.
const PING_INTERVAL: &str = "10s";
/// How long the faults of a round last.
pub(crate) const ROUND: Duration = Duration::from_secs(20);
/// How long the mirrors may take until they are right. Two links that did not hear each other settle
/// within 10 s, and a mirror whose daemon rejected the watch pauses for 30 s at most.
const QUIET_TIMEOUT: Duration = Duration::from_mins(3);

/// Size of a storm.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StormSize {
    pub(crate) executors: usize,
    /// Orchestrators, each with a connection of its own.
    pub(crate) fleets: usize,
    /// Mirrors of each orchestrator, at most one for each executor.
    pub(crate) mirrors: usize,
}

/// Storm with its executors, orchestrators and mirrors.
pub(crate) struct Storm<E> {
    pub(crate) faults: StormFaults<E>,
    pub(crate) fleets: Vec<Fleet>,
    pub(crate) mirrors: Vec<CheckedMirror>,
    pub(crate) checks: StateChecks,
    size: StormSize,
    urls: Vec<String>,
    dir: PathBuf,
}

/// Times of the quiet after a round of faults.
pub(crate) struct QuietTimes {
    /// End of the faults.
    pub(crate) began: Instant,
    /// Seconds until each mirror was right.
    pub(crate) seconds: Vec<f64>,
}

/// Process that is killed at the end.
pub(crate) struct ChildGuard(pub(crate) Child);

impl Drop for ChildGuard {
    fn drop(&mut self) {
        // The process may have exited already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl StormSize {
    /// How many executors are real daemons.
    pub(crate) fn real(&self) -> usize {
        self.executors.div_ceil(20)
    }
}

/// Starts a cluster of brokers, with their config files in a directory.
pub(crate) async fn start_brokers(
    program: PathBuf,
    servers: usize,
    dir: &Path,
) -> StormResult<NatsCluster> {
    let hosts: Vec<_> = (0..servers)
        .map(|at| loopback_host(79, at).to_string())
        .collect();
    Ok(NatsCluster::start(program, &hosts, PING_INTERVAL, dir).await?)
}

/// Returns an address of this machine that no client connects from, so that the port of a server that
/// has ended stays free for its next start.
fn loopback_host(group: u8, number: usize) -> IpAddr {
    let [.., high, low] = number.to_be_bytes();
    IpAddr::from([127, group, high, low])
}

/// Selects the root of the executors.
pub(crate) fn select_root(environment_id: &str) -> MirrorSelection {
    let location = CapabilityRootLocation {
        r#type: "environment".to_owned(),
        environment_id: environment_id.to_owned(),
        path: format!("published:{ROOT}"),
    };
    MirrorSelection::new(vec![SelectedCapabilityRoot {
        id: ROOT.to_owned(),
        location: Some(location),
    }])
}

impl<E: ExecutorCommands> Storm<E> {
    /// Prepares a storm over executors without environments. `dir` has their certificate authority.
    pub(crate) fn new(
        seed: u64,
        size: StormSize,
        cluster: NatsCluster,
        executors: E,
        dir: &Path,
    ) -> Self {
        Self {
            urls: cluster.urls(),
            faults: StormFaults::new(seed, cluster, executors, size.real()),
            fleets: Vec::new(),
            mirrors: Vec::new(),
            checks: StateChecks::new(),
            size,
            dir: dir.to_owned(),
        }
    }

    /// Starts the executors, and waits until each serves.
    pub(crate) async fn start_executors(&mut self) -> StormResult<()> {
        for _ in 0..self.size.executors {
            self.faults.add_environment().await?;
        }
        self.wait_until_settled().await
    }

    /// Starts the orchestrators with their mirrors, and waits until all mirrors are right.
    pub(crate) async fn start_mirrors(&mut self) -> StormResult<()> {
        for _ in 0..self.size.fleets {
            let registry = StormRegistry {
                ca: self.dir.join("ca.pem"),
                executors: self.size.executors,
            };
            let dialer = NatsDialer::new(BrokerConfig::new(self.urls.clone()));
            let fleet = Fleet::new(registry).with_dialer(dialer);

            let mut chosen: Vec<_> = (0..self.size.executors).collect();
            self.faults.rng.shuffle(&mut chosen);
            for environment in chosen.into_iter().take(self.size.mirrors) {
                let id = environment_id(environment);
                let mirror = fleet.mirror(&id, select_root(&id));
                let is_real = self.faults.is_real(environment);
                let checked = CheckedMirror::new(environment, is_real, mirror, &self.checks);
                self.mirrors.push(checked);
            }
            self.fleets.push(fleet);
        }
        self.wait_until_right(Instant::now()).await.map(drop)
    }

    /// Injects faults for a while, ends them, and waits until all mirrors are right.
    pub(crate) async fn run_round(&mut self, duration: Duration) -> StormResult<QuietTimes> {
        self.faults.run_faults(duration, &self.checks).await?;
        self.faults.repair().await?;
        let began = Instant::now();
        let seconds = self.wait_until_right(began).await?;
        Ok(QuietTimes { began, seconds })
    }

    /// Waits until all mirrors are right. Returns the seconds since `began` at which they were.
    async fn wait_until_right(&self, began: Instant) -> StormResult<Vec<f64>> {
        let faults = &self.faults;
        let waits = self.mirrors.iter().map(|mirror| async move {
            let (key, generation) = faults.expected(mirror.environment);
            mirror.wait_until_right(key, generation).await;
            began.elapsed().as_secs_f64()
        });
        tokio::select! {
            wrong = self.checks.wait_for_wrong() => Err(wrong.into()),
            times = timeout(QUIET_TIMEOUT, join_all(waits)) => times.map_err(|_| {
                let wrong = self.mirrors.iter().filter_map(|mirror| {
                    let (key, generation) = faults.expected(mirror.environment);
                    mirror.describe(key, generation)
                });
                let wrong: Vec<_> = wrong.collect();
                let some = wrong[..wrong.len().min(5)].join("\n");
                format!("{} mirrors are not right after the faults:\n{some}", wrong.len()).into()
            }),
        }
    }

    /// Waits until exactly the greatest link of each environment serves.
    pub(crate) async fn wait_until_settled(&mut self) -> StormResult<()> {
        let expected = (0..self.faults.environment_count()).map(|environment| {
            let ((environment, epoch), _) = self.faults.expected(environment);
            format!("{environment}:{epoch}")
        });
        let expected: BTreeSet<_> = expected.collect();

        let began = Instant::now();
        loop {
            let serving = self.faults.executors.command("serving").await?;
            let serving: BTreeSet<_> = serving.split(' ').map(str::to_owned).collect();
            if serving == expected {
                return Ok(());
            }
            if began.elapsed() > QUIET_TIMEOUT {
                let differ = serving.symmetric_difference(&expected).take(5);
                let differ = differ.cloned().collect::<Vec<_>>().join(", ");
                return Err(format!("the greatest links do not serve alone: {differ}").into());
            }
            sleep(Duration::from_millis(500)).await;
        }
    }
}
