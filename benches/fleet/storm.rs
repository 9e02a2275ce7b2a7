//! Storm over executors behind a cluster of brokers. Rounds of faults by a seed and quiet: in each
//! quiet, all mirrors must become live and right. `docs/design/link.md` has the figures.

use crate::broker_cluster::{BrokerCluster, find_nats_server};
use crate::equal_catalogs::{as_float, selection};
use crate::options::Options;
use crate::process_memory::resident_kib;
use crate::storm_checks::{CheckedMirror, StateChecks};
use crate::storm_executors::{InstanceKey, environment_id, spiffe_id};
use crate::{Outcome, print_progress};
use caproot::client::fleet::RegistryFuture;
use caproot::client::{ClientCredentials, ExecutorConfig, ExecutorRegistry, Fleet, NatsDialer};
use caproot::link::BrokerConfig;
use fastrand::Rng;
use futures_util::future::join_all;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

/// Servers of the cluster.
const BROKERS: usize = 3;
/// How long the faults of a round last.
const ROUND: Duration = Duration::from_secs(20);
/// Average time between two faults of one executor.
const EXECUTOR_FAULT_PERIOD: Duration = Duration::from_secs(20);
/// Time between two faults of the brokers.
const BROKER_FAULT_PERIOD: Duration = Duration::from_secs(3);
/// How long the mirrors may take until they are right. Two links that did not hear each other settle
/// within 60 s, and mirrors pause for 30 s at most.
const QUIET_TIMEOUT: Duration = Duration::from_mins(3);
/// Goals of the design.
const GOAL_SECONDS: f64 = 15.0;
const GOAL_MIRROR_KIB: f64 = 160.0;
const GOAL_EXECUTOR_KIB: f64 = 64.0;

/// Storm with its processes, and what the executors should serve.
struct Storm {
    rng: Rng,
    cluster: BrokerCluster,
    executors: ExecutorProcess,
    environments: Vec<StormEnvironment>,
    real: usize,
    next_epoch: u64,
    next_link: u64,
    faults: BTreeMap<&'static str, u64>,
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

/// Process of the executors.
struct ExecutorProcess {
    child: Child,
    /// `None` once the process was told to end.
    stdin: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
}

/// Registry in which each environment has an executor, reached by its id.
struct StormRegistry {
    ca: PathBuf,
    executors: usize,
}

/// Figures of a storm.
struct StormFigures {
    seconds: f64,
    start_seconds: f64,
    executor_kib: f64,
    mirror_kib: f64,
    /// Memory of all brokers for one executor, and for one mirror.
    broker_kib: [f64; 2],
    states: u64,
    mirrors: usize,
    dials: u64,
    most_dials_a_second: u64,
    /// Times from the last fault until each mirror was right, in order.
    convergence: Vec<f64>,
    rounds: u64,
}

/// Runs the storm, and prints its table.
pub(crate) async fn run(options: &Options) -> Outcome<()> {
    let Some(program) = find_nats_server() else {
        writeln!(io::stdout(), "SKIPPED: nats-server is not installed, so there was no storm")?;
        return Ok(());
    };
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..1 << 32));
    writeln!(io::stdout(), "storm of {} executors, --seed {seed}", options.executors)?;
    let ran = run_seed(options, program, seed).await;
    ran.map_err(|error| format!("the storm with --seed {seed} failed: {error}").into())
}

async fn run_seed(options: &Options, program: PathBuf, seed: u64) -> Outcome<()> {
    let scratch = tempfile::tempdir()?;
    let cluster = BrokerCluster::start(program, BROKERS, scratch.path()).await?;
    let urls = cluster.urls();
    let executors = ExecutorProcess::start(options, &urls, scratch.path()).await?;
    let mut storm = Storm {
        rng: Rng::with_seed(seed),
        cluster,
        executors,
        environments: Vec::new(),
        real: options.real(),
        next_epoch: 1,
        next_link: 1,
        faults: BTreeMap::new(),
    };
    let ran = run_rounds(options, &mut storm, &urls, scratch.path()).await;
    let stopped = storm.executors.stop().await;
    ran?.print(options, &storm)?;
    stopped
}

/// Runs the rounds of faults, and returns their figures.
async fn run_rounds(
    options: &Options,
    storm: &mut Storm,
    urls: &[String],
    dir: &Path,
) -> Outcome<StormFigures> {
    print_progress(format_args!("starting {} executors", options.executors));
    let (before, brokers) = (storm.executors.resident_kib()?, storm.cluster.resident_kib()?);
    for environment in 0..options.executors {
        storm.environments.push(StormEnvironment::default());
        storm.start_instance(environment).await?;
    }
    storm.wait_until_settled().await?;
    let count = as_float(options.executors as u64);
    let executor_kib = (storm.executors.resident_kib()? - before) / count;
    let brokers_with_links = storm.cluster.resident_kib()?;

    print_progress(format_args!("starting {} mirrors", options.fleets * options.mirrors()));
    let (before, began) = (resident_kib("self")?, Instant::now());
    let checks = StateChecks::new();
    let (fleets, mirrors) = storm.start_mirrors(options, urls, dir, &checks);
    storm.wait_until_right(&mirrors, &checks, began).await?;
    let start_seconds = began.elapsed().as_secs_f64();
    let count_of_mirrors = as_float(mirrors.len() as u64);
    let mirror_kib = (resident_kib("self")? - before) / count_of_mirrors;
    let broker_kib = [
        (brokers_with_links - brokers) / count,
        (storm.cluster.resident_kib()? - brokers_with_links) / count_of_mirrors,
    ];
    let most_dials = Arc::<AtomicU64>::default();
    let _sampler = sample_dials(fleets.clone(), most_dials.clone());

    let (began, mut faulty, mut rounds) = (Instant::now(), Duration::ZERO, 0);
    let mut convergence = Vec::new();
    while faulty < options.duration {
        let round = ROUND.min(options.duration.saturating_sub(faulty));
        storm.run_faults(round, &checks).await?;
        faulty += round;
        rounds += 1;
        storm.repair().await?;
        let times = storm.wait_until_right(&mirrors, &checks, Instant::now()).await?;
        let last = times.iter().copied().fold(0.0, f64::max);
        print_progress(format_args!("round {rounds}: all mirrors are right after {last:.1} s"));
        convergence.extend(times);
    }
    print_progress(format_args!("waiting until one link serves each environment"));
    storm.wait_until_settled().await?;
    convergence.sort_by(f64::total_cmp);
    Ok(StormFigures {
        seconds: began.elapsed().as_secs_f64(),
        start_seconds,
        executor_kib,
        mirror_kib,
        broker_kib,
        states: checks.states(),
        mirrors: mirrors.len(),
        dials: count_dials(&fleets),
        most_dials_a_second: most_dials.load(Ordering::Relaxed),
        convergence,
        rounds,
    })
}

fn count_dials(fleets: &[Fleet]) -> u64 {
    fleets.iter().map(|fleet| fleet.stats().dials).sum()
}

/// Records the largest number of dials within a second.
fn sample_dials(fleets: Vec<Fleet>, most: Arc<AtomicU64>) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(async move {
        let mut before = count_dials(&fleets);
        loop {
            sleep(Duration::from_secs(1)).await;
            let now = count_dials(&fleets);
            most.fetch_max(now - before, Ordering::Relaxed);
            before = now;
        }
    }))
}

impl Storm {
    /// Starts another executor of an environment.
    async fn start_instance(&mut self, environment: usize) -> Outcome<()> {
        let epoch = self.next_epoch;
        self.next_epoch += 1;
        let instance = StormInstance { epoch, generation: 0, has_daemon: false, link: None };
        self.environments[environment].instances.push(instance);
        let at = self.environments[environment].instances.len() - 1;
        self.start_daemon(environment, at).await?;
        self.start_link(environment, at).await
    }

    fn instance(&mut self, environment: usize, at: usize) -> &mut StormInstance {
        &mut self.environments[environment].instances[at]
    }

    async fn command(&mut self, verb: &str, environment: usize, at: usize) -> Outcome<()> {
        let epoch = self.instance(environment, at).epoch;
        self.executors.command(&format!("{verb} {environment} {epoch}")).await.map(drop)
    }

    async fn start_daemon(&mut self, environment: usize, at: usize) -> Outcome<()> {
        self.instance(environment, at).has_daemon = true;
        self.command("start-daemon", environment, at).await
    }

    async fn start_link(&mut self, environment: usize, at: usize) -> Outcome<()> {
        let order = self.next_link;
        self.next_link += 1;
        self.instance(environment, at).link = Some(order);
        self.command("start-link", environment, at).await
    }

    /// Returns the executor whose link is the greatest of an environment, and its generation.
    fn expected(&self, environment: usize) -> (InstanceKey, u64) {
        let instances = self.environments[environment].instances.iter();
        let serving = instances.max_by_key(|instance| instance.link);
        let serving = serving.map(|instance| (instance.epoch, instance.generation));
        let (epoch, generation) = serving.unwrap_or_default();
        ((environment, epoch), generation)
    }

    /// Starts the orchestrators with their mirrors.
    fn start_mirrors(
        &mut self,
        options: &Options,
        urls: &[String],
        dir: &Path,
        checks: &StateChecks,
    ) -> (Vec<Fleet>, Vec<CheckedMirror>) {
        let (mut fleets, mut mirrors) = (Vec::new(), Vec::new());
        for _ in 0..options.fleets {
            let registry = StormRegistry { ca: dir.join("ca.pem"), executors: options.executors };
            let dialer = NatsDialer::new(BrokerConfig::new(urls.to_vec()));
            let fleet = Fleet::new(registry).with_dialer(dialer);
            let mut chosen: Vec<_> = (0..options.executors).collect();
            self.rng.shuffle(&mut chosen);
            for environment in chosen.into_iter().take(options.mirrors()) {
                let id = environment_id(environment);
                let mirror = fleet.mirror(&id, selection(&id));
                let is_real = environment < self.real;
                mirrors.push(CheckedMirror::new(environment, is_real, mirror, checks));
            }
            fleets.push(fleet);
        }
        (fleets, mirrors)
    }

    /// Waits until all mirrors are right. Returns the times since `began` at which they were.
    async fn wait_until_right(
        &self,
        mirrors: &[CheckedMirror],
        checks: &StateChecks,
        began: Instant,
    ) -> Outcome<Vec<f64>> {
        let waits = mirrors.iter().map(|mirror| async move {
            let (key, generation) = self.expected(mirror.environment);
            mirror.wait_until_right(key, generation).await;
            began.elapsed().as_secs_f64()
        });
        tokio::select! {
            wrong = checks.wait_for_wrong() => Err(wrong.into()),
            times = timeout(QUIET_TIMEOUT, join_all(waits)) => times.map_err(|_| {
                let wrong = mirrors.iter().filter_map(|mirror| {
                    let (key, generation) = self.expected(mirror.environment);
                    mirror.describe(key, generation)
                });
                let wrong: Vec<_> = wrong.collect();
                let some = wrong[..wrong.len().min(5)].join("\n");
                format!("{} mirrors are not right after the faults:\n{some}", wrong.len()).into()
            }),
        }
    }

    /// Waits until exactly the greatest link of each environment serves.
    async fn wait_until_settled(&mut self) -> Outcome<()> {
        let expected = (0..self.environments.len()).map(|environment| {
            let ((environment, epoch), _) = self.expected(environment);
            format!("{environment}:{epoch}")
        });
        let expected: BTreeSet<_> = expected.collect();
        let began = Instant::now();
        loop {
            let serving = self.executors.command("serving").await?;
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

    /// Injects faults for a while.
    async fn run_faults(&mut self, duration: Duration, checks: &StateChecks) -> Outcome<()> {
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
            let until = next.min(next_of_brokers).saturating_duration_since(Instant::now());
            tokio::select! {
                wrong = checks.wait_for_wrong() => return Err(wrong.into()),
                () = sleep(until) => {}
            }
        }
        Ok(())
    }

    async fn fault_of_brokers(&mut self) -> Outcome<()> {
        let at = self.rng.usize(..self.cluster.count());
        let name = if !self.cluster.is_running(at) {
            self.cluster.revive(at).await?;
            return Ok(());
        } else if self.cluster.is_frozen(at) {
            self.cluster.set_frozen(at, false)?;
            return Ok(());
        } else if self.cluster.is_cut(at) {
            self.cluster.set_cut(at, false);
            return Ok(());
        } else {
            match self.rng.u8(..3) {
                0 => {
                    self.cluster.kill(at)?;
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
        *self.faults.entry(name).or_default() += 1;
        Ok(())
    }

    async fn fault_of_executors(&mut self) -> Outcome<()> {
        let environment = self.rng.usize(..self.environments.len());
        let instances = self.environments[environment].instances.len();
        let at = self.rng.usize(..instances);
        let StormInstance { has_daemon, link, .. } = *self.instance(environment, at);
        let name = match self.rng.u8(..10) {
            0..=3 => {
                self.instance(environment, at).generation += 1;
                let StormInstance { epoch, generation, .. } = *self.instance(environment, at);
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
            _ if environment < self.real => return Ok(()),
            _ => {
                self.start_instance(environment).await?;
                "executor cloned"
            }
        };
        *self.faults.entry(name).or_default() += 1;
        Ok(())
    }

    /// Ends all faults: each executor has a daemon, and each environment a link.
    async fn repair(&mut self) -> Outcome<()> {
        self.cluster.repair().await?;
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

impl ExecutorProcess {
    async fn start(options: &Options, urls: &[String], dir: &Path) -> Outcome<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--saved").arg(dir);
        command.args(["--executors", &options.executors.to_string()]);
        for url in urls {
            command.args(["--servers", url]);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let stdin = child.stdin.take();
        let lines = BufReader::new(child.stdout.take().ok_or("stdout is piped")?).lines();
        let mut process = Self { child, stdin, lines };
        let line = process.lines.next_line().await?;
        if line.as_deref() != Some("ready") {
            return Err(format!("the process of the executors said {line:?}").into());
        }
        Ok(process)
    }

    /// Sends a command, and returns its result.
    async fn command(&mut self, line: &str) -> Outcome<String> {
        let stdin = self.stdin.as_mut().ok_or("the process of the executors ended")?;
        stdin.write_all(format!("{line}\n").as_bytes()).await?;
        let answer = self.lines.next_line().await?.ok_or("the process of the executors ended")?;
        let result = answer.strip_prefix("ok ").map(str::to_owned);
        result.ok_or_else(|| answer.into())
    }

    /// Ends the process, which ends its daemons.
    async fn stop(&mut self) -> Outcome<()> {
        self.stdin = None;
        timeout(QUIET_TIMEOUT, self.child.wait()).await??;
        Ok(())
    }

    fn resident_kib(&self) -> Outcome<f64> {
        resident_kib(&self.child.id().ok_or("the process of the executors ended")?.to_string())
    }
}

impl ExecutorRegistry for StormRegistry {
    fn find_executor<'a>(&'a self, environment_id: &'a str) -> RegistryFuture<'a> {
        let find = || -> Outcome<Option<ExecutorConfig>> {
            let environment = environment_id.strip_prefix('e').ok_or("no executor")?.parse()?;
            if environment >= self.executors {
                return Ok(None);
            }
            let endpoint = format!("tls:{environment_id}.executors.example:7420").parse()?;
            let credentials = ClientCredentials {
                ca: Some(self.ca.clone()),
                spiffe_id: Some(spiffe_id(environment).parse()?),
                ..ClientCredentials::default()
            };
            Ok(Some(ExecutorConfig { credentials, ..ExecutorConfig::new(endpoint) }))
        };
        let found = find().map_err(|error| error.to_string());
        Box::pin(std::future::ready(found))
    }
}

impl StormFigures {
    fn print(&self, options: &Options, storm: &Storm) -> Outcome<()> {
        let quantile = |share: usize| {
            let times = &self.convergence;
            times[(times.len() * share / 100).min(times.len() - 1)]
        };
        let is_met = |value: f64, most: f64| if value <= most { "met" } else { "not met" };
        let faults: Vec<_> =
            storm.faults.iter().map(|(name, count)| format!("{count} × {name}")).collect();
        let rows = [
            (
                "executors with a link each, of them real daemons".to_owned(),
                format!("{}, {}", options.executors, storm.real),
                String::new(),
            ),
            (
                "orchestrators, mirrors".to_owned(),
                format!("{}, {}", options.fleets, self.mirrors),
                String::new(),
            ),
            (
                "time until all mirrors are live at the start".to_owned(),
                format!("{:.1} s", self.start_seconds),
                String::new(),
            ),
            (format!("faults in {} rounds", self.rounds), faults.join(", "), String::new()),
            ("checked states, all right".to_owned(), self.states.to_string(), String::new()),
            (
                "from the last fault until a mirror is right, p50".to_owned(),
                format!("{:.1} s", quantile(50)),
                String::new(),
            ),
            (
                "from the last fault until a mirror is right, p99".to_owned(),
                format!("{:.1} s", quantile(99)),
                format!("at most {GOAL_SECONDS} s: {}", is_met(quantile(99), GOAL_SECONDS)),
            ),
            (
                "from the last fault until all mirrors are right".to_owned(),
                format!("{:.1} s", quantile(100)),
                String::new(),
            ),
            (
                "dials of all orchestrators a second, on average and at most".to_owned(),
                format!("{:.0}, {}", as_float(self.dials) / self.seconds, self.most_dials_a_second),
                String::new(),
            ),
            (
                "memory of a mirror with its connection and tunnel".to_owned(),
                format!("{:.0} KiB", self.mirror_kib),
                format!(
                    "at most {GOAL_MIRROR_KIB} KiB: {}",
                    is_met(self.mirror_kib, GOAL_MIRROR_KIB)
                ),
            ),
            (
                "memory of a link with its connection, and a daemon without files".to_owned(),
                format!("{:.0} KiB", self.executor_kib),
                format!(
                    "at most {GOAL_EXECUTOR_KIB} KiB: {}",
                    is_met(self.executor_kib, GOAL_EXECUTOR_KIB)
                ),
            ),
            (
                format!("memory of {BROKERS} brokers for an executor, and for a mirror"),
                format!("{:.0} KiB, {:.0} KiB", self.broker_kib[0], self.broker_kib[1]),
                String::new(),
            ),
        ];
        let mut out = io::stdout();
        writeln!(out, "| measured | value | target |\n| --- | --- | --- |")?;
        for (what, value, target) in rows {
            writeln!(out, "| {what} | {value} | {target} |")?;
        }
        Ok(())
    }
}
