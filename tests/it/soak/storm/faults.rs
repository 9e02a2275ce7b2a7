//! Faults of the storm: kills, freezes and separates brokers, and kills, clones and changes executors,
//! by a seed.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fastrand::Rng;
use tokio::time::sleep;

use super::super::nats_cluster::NatsCluster;
use super::StormResult;
use super::checks::StateChecks;
use super::executors::{ExecutorCommands, InstanceKey};

/// Average time between two faults of one executor.
const EXECUTOR_FAULT_PERIOD: Duration = Duration::from_secs(20);
/// Time between two faults of the brokers.
const BROKER_FAULT_PERIOD: Duration = Duration::from_secs(3);

/// Faults of the brokers and executors, and the state that the executors should have.
pub(crate) struct StormFaults<E> {
    pub(crate) rng: Rng,
    pub(crate) cluster: NatsCluster,
    pub(crate) executors: E,
    environments: Vec<StormEnvironment>,
    /// Number of executors that are real daemons.
    real: usize,
    next_epoch: u64,
    next_link: u64,
    /// Number of the faults of each kind.
    pub(crate) counts: BTreeMap<&'static str, u64>,
}

#[derive(Default)]
struct StormEnvironment {
    instances: Vec<StormInstance>,
}

struct StormInstance {
    epoch: u64,
    generation: u64,
    has_daemon: bool,
    /// Order of the start of the link, while the link runs.
    link: Option<u64>,
}

impl<E: ExecutorCommands> StormFaults<E> {
    pub(crate) fn new(seed: u64, cluster: NatsCluster, executors: E, real: usize) -> Self {
        Self {
            rng: Rng::with_seed(seed),
            cluster,
            executors,
            environments: Vec::new(),
            real,
            next_epoch: 1,
            next_link: 1,
            counts: BTreeMap::new(),
        }
    }

    /// Starts the executor of another environment.
    pub(crate) async fn add_environment(&mut self) -> StormResult<()> {
        self.environments.push(StormEnvironment::default());
        self.start_instance(self.environments.len() - 1).await
    }

    pub(crate) fn environment_count(&self) -> usize {
        self.environments.len()
    }

    /// Whether the executor of an environment is a real daemon.
    pub(crate) fn is_real(&self, environment: usize) -> bool {
        environment < self.real
    }

    /// Starts another executor of an environment.
    async fn start_instance(&mut self, environment: usize) -> StormResult<()> {
        let epoch = self.next_epoch;
        self.next_epoch += 1;
        let instance = StormInstance {
            epoch,
            generation: 0,
            has_daemon: false,
            link: None,
        };
        self.environments[environment].instances.push(instance);
        let at = self.environments[environment].instances.len() - 1;
        self.start_daemon(environment, at).await?;
        self.start_link(environment, at).await
    }

    fn instance(&mut self, environment: usize, at: usize) -> &mut StormInstance {
        &mut self.environments[environment].instances[at]
    }

    async fn command(&mut self, verb: &str, environment: usize, at: usize) -> StormResult<()> {
        let epoch = self.instance(environment, at).epoch;
        self.executors
            .command(&format!("{verb} {environment} {epoch}"))
            .await
            .map(drop)
    }

    async fn start_daemon(&mut self, environment: usize, at: usize) -> StormResult<()> {
        self.instance(environment, at).has_daemon = true;
        self.command("start-daemon", environment, at).await
    }

    async fn start_link(&mut self, environment: usize, at: usize) -> StormResult<()> {
        let order = self.next_link;
        self.next_link += 1;
        self.instance(environment, at).link = Some(order);
        self.command("start-link", environment, at).await
    }

    /// Returns the executor whose link is the greatest of an environment, and its generation.
    pub(crate) fn expected(&self, environment: usize) -> (InstanceKey, u64) {
        let instances = self.environments[environment].instances.iter();
        let serving = instances.max_by_key(|instance| instance.link);
        let serving = serving.map(|instance| (instance.epoch, instance.generation));
        let (epoch, generation) = serving.unwrap_or_default();
        ((environment, epoch), generation)
    }

    /// Injects faults for a while.
    pub(crate) async fn run_faults(
        &mut self,
        duration: Duration,
        checks: &StateChecks,
    ) -> StormResult<()> {
        let began = Instant::now();
        let count = u32::try_from(self.environments.len())?;
        let pause = EXECUTOR_FAULT_PERIOD / count;
        let (mut next, mut next_of_brokers) = (began, began + BROKER_FAULT_PERIOD / 2);
        while began.elapsed() < duration {
            if next_of_brokers <= next {
                self.fault_of_brokers().await?;
                next_of_brokers += BROKER_FAULT_PERIOD;
            } else {
                self.fault_of_executors().await?;
                next += pause;
            }
            let until = next
                .min(next_of_brokers)
                .saturating_duration_since(Instant::now());
            tokio::select! {
                wrong = checks.wait_for_wrong() => return Err(wrong.into()),
                () = sleep(until) => {}
            }
        }
        Ok(())
    }

    async fn fault_of_brokers(&mut self) -> StormResult<()> {
        let at = self.rng.usize(..self.cluster.servers.len());
        let server = &self.cluster.servers[at];
        let name = if server.process.is_none() {
            self.cluster.revive(at).await?;
            return Ok(());
        } else if server.is_frozen {
            self.cluster.set_frozen(at, false)?;
            return Ok(());
        } else if server.is_cut {
            self.cluster.set_cut(at, false);
            return Ok(());
        } else {
            match self.rng.u8(..3) {
                0 => {
                    self.cluster.kill(at).await?;
                    "broker killed"
                }
                1 => {
                    self.cluster.set_frozen(at, true)?;
                    "broker frozen"
                }
                _ => {
                    self.cluster.set_cut(at, true);
                    "broker separated"
                }
            }
        };
        *self.counts.entry(name).or_default() += 1;
        Ok(())
    }

    async fn fault_of_executors(&mut self) -> StormResult<()> {
        let environment = self.rng.usize(..self.environments.len());
        let instances = self.environments[environment].instances.len();
        let at = self.rng.usize(..instances);
        let StormInstance {
            has_daemon, link, ..
        } = *self.instance(environment, at);
        let name = match self.rng.u8(..10) {
            0..=3 => {
                self.instance(environment, at).generation += 1;
                let StormInstance {
                    epoch, generation, ..
                } = *self.instance(environment, at);
                let command = format!("change {environment} {epoch} {generation}");
                self.executors.command(&command).await?;
                "skills changed"
            }
            kind @ 4..=6 => {
                if link.is_none() {
                    return self.start_link(environment, at).await;
                }
                self.instance(environment, at).link = None;
                let (verb, name) = if kind == 6 {
                    ("stop-link", "link stopped")
                } else {
                    ("kill-link", "link killed")
                };
                self.command(verb, environment, at).await?;
                name
            }
            7 => {
                if !has_daemon {
                    return self.start_daemon(environment, at).await;
                }
                self.instance(environment, at).has_daemon = false;
                self.command("kill-daemon", environment, at).await?;
                "daemon killed"
            }
            _ if instances > 1 => {
                self.command("forget", environment, at).await?;
                self.environments[environment].instances.remove(at);
                "clone killed"
            }
            // The clone of a real daemon would need another directory.
            _ if self.is_real(environment) => return Ok(()),
            _ => {
                self.start_instance(environment).await?;
                "executor cloned"
            }
        };
        *self.counts.entry(name).or_default() += 1;
        Ok(())
    }

    /// Ends all faults: each executor has a daemon, and each environment a link.
    pub(crate) async fn repair(&mut self) -> StormResult<()> {
        for at in 0..self.cluster.servers.len() {
            self.cluster.set_frozen(at, false)?;
            self.cluster.revive(at).await?;
            self.cluster.set_cut(at, false);
        }
        for environment in 0..self.environments.len() {
            let instances = self.environments[environment].instances.len();
            for at in 0..instances {
                if !self.instance(environment, at).has_daemon {
                    self.start_daemon(environment, at).await?;
                }
            }
            let links = self.environments[environment].instances.iter();
            if links.filter(|instance| instance.link.is_some()).count() == 0 {
                self.start_link(environment, instances - 1).await?;
            }
        }
        Ok(())
    }
}
