//! Storm over executors behind a cluster of brokers. Rounds of faults by a seed and quiet: in each
//! quiet, all mirrors must become live and right. `docs/design/link.md` has the figures.

use crate::broker_cluster::{broker_kib, start_brokers};
use crate::equal_catalogs::{as_float, selection};
use crate::executor_process::ExecutorProcess;
use crate::nats_cluster::find_nats_server;
use crate::options::Options;
use crate::process_memory::resident_kib;
use crate::storm_checks::{CheckedMirror, StateChecks};
use crate::storm_executors::environment_id;
use crate::storm_faults::StormFaults;
use crate::storm_figures::StormFigures;
use crate::storm_registry::StormRegistry;
use crate::{Outcome, print_progress};
use caproot_client::link::BrokerConfig;
use caproot_client::{Fleet, NatsDialer};
use futures_util::future::join_all;
use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

/// Servers of the cluster.
const BROKERS: usize = 3;
/// How long the faults of a round last.
const ROUND: Duration = Duration::from_secs(20);
/// How long the mirrors may take until they are right. Two links that did not hear each other settle
/// within 10 s, and a mirror whose daemon rejected the watch pauses for 30 s at most.
const QUIET_TIMEOUT: Duration = Duration::from_mins(3);
/// Number of the slowest mirrors whose states are printed after each round.
const SLOWEST: usize = 3;

/// Runs the storm, and prints its table.
pub(crate) async fn run(options: &Options) -> Outcome<()> {
    let Some(program) = find_nats_server() else {
        writeln!(
            io::stdout(),
            "SKIPPED: nats-server is not installed, so there was no storm"
        )?;
        return Ok(());
    };
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..1 << 32));
    writeln!(
        io::stdout(),
        "storm of {} executors, --seed {seed}",
        options.executors
    )?;
    let ran = run_seed(options, program, seed).await;
    ran.map_err(|error| format!("the storm with --seed {seed} failed: {error}").into())
}

async fn run_seed(options: &Options, program: PathBuf, seed: u64) -> Outcome<()> {
    let scratch = tempfile::tempdir()?;
    let cluster = start_brokers(program, BROKERS, scratch.path()).await?;
    let urls = cluster.urls();
    let executors = ExecutorProcess::start(options, &urls, scratch.path()).await?;
    let mut faults = StormFaults::new(seed, cluster, executors, options.real());
    let ran = run_rounds(options, &mut faults, &urls, scratch.path()).await;
    let stopped = faults.executors.stop().await;
    ran?.print(options)?;
    stopped
}

/// Runs the rounds of faults, and returns their figures.
async fn run_rounds(
    options: &Options,
    faults: &mut StormFaults,
    urls: &[String],
    dir: &Path,
) -> Outcome<StormFigures> {
    print_progress(format_args!("starting {} executors", options.executors));
    let (before, brokers) = (
        faults.executors.resident_kib()?,
        broker_kib(&faults.cluster)?,
    );
    for _ in 0..options.executors {
        faults.add_environment().await?;
    }
    wait_until_settled(faults).await?;
    let count = as_float(options.executors as u64);
    let executor_kib = (faults.executors.resident_kib()? - before) / count;
    let brokers_with_links = broker_kib(&faults.cluster)?;

    print_progress(format_args!(
        "starting {} mirrors",
        options.fleets * options.mirrors()
    ));
    let (before, began) = (resident_kib("self")?, Instant::now());
    let checks = StateChecks::new();
    let (fleets, mirrors) = start_mirrors(faults, options, urls, dir, &checks);
    wait_until_right(faults, &mirrors, &checks, began).await?;
    let start_seconds = began.elapsed().as_secs_f64();
    let count_of_mirrors = as_float(mirrors.len() as u64);
    let mirror_kib = (resident_kib("self")? - before) / count_of_mirrors;
    let kib_of_brokers = [
        (brokers_with_links - brokers) / count,
        (broker_kib(&faults.cluster)? - brokers_with_links) / count_of_mirrors,
    ];
    let most_dials = Arc::<AtomicU64>::default();
    let _sampler = sample_dials(fleets.clone(), most_dials.clone());

    let (began, mut time_of_faults, mut rounds) = (Instant::now(), Duration::ZERO, 0);
    let mut convergence = Vec::new();
    while time_of_faults < options.duration {
        let round = ROUND.min(options.duration.saturating_sub(time_of_faults));
        faults.run_faults(round, &checks).await?;
        time_of_faults += round;
        rounds += 1;
        faults.repair().await?;
        let ended = Instant::now();
        let times = wait_until_right(faults, &mirrors, &checks, ended).await?;
        print_round(rounds, &mirrors, &times, ended);
        convergence.extend(times);
    }
    print_progress(format_args!(
        "waiting until one link serves each environment"
    ));
    wait_until_settled(faults).await?;
    convergence.sort_by(f64::total_cmp);
    Ok(StormFigures {
        seconds: began.elapsed().as_secs_f64(),
        start_seconds,
        executor_kib,
        mirror_kib,
        broker_kib: kib_of_brokers,
        states: checks.states(),
        mirrors: mirrors.len(),
        dials: count_dials(&fleets),
        most_dials_a_second: most_dials.load(Ordering::Relaxed),
        convergence,
        rounds,
        faults: faults.counts.clone(),
    })
}

/// Prints how long the mirrors took after the faults of a round, and the states of the slowest.
fn print_round(round: u64, mirrors: &[CheckedMirror], times: &[f64], ended: Instant) {
    let mut order: Vec<_> = times.iter().copied().zip(mirrors).collect();
    order.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    let at = |share: usize| order[order.len() * share / 100].0;
    print_progress(format_args!(
        "round {round}: half of the mirrors are right after {:.1} s, 99 % after {:.1} s, all after \
         {:.1} s; the last:",
        at(50),
        at(1),
        at(0)
    ));
    for (time, mirror) in order.iter().take(SLOWEST) {
        print_progress(format_args!("  {time:.1} s, {}", mirror.tell_story(ended)));
    }
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

/// Starts the orchestrators with their mirrors.
fn start_mirrors(
    faults: &mut StormFaults,
    options: &Options,
    urls: &[String],
    dir: &Path,
    checks: &StateChecks,
) -> (Vec<Fleet>, Vec<CheckedMirror>) {
    let (mut fleets, mut mirrors) = (Vec::new(), Vec::new());
    for _ in 0..options.fleets {
        let registry = StormRegistry {
            ca: dir.join("ca.pem"),
            executors: options.executors,
        };
        let dialer = NatsDialer::new(BrokerConfig::new(urls.to_vec()));
        let fleet = Fleet::new(registry).with_dialer(dialer);
        let mut chosen: Vec<_> = (0..options.executors).collect();
        faults.rng.shuffle(&mut chosen);
        for environment in chosen.into_iter().take(options.mirrors()) {
            let id = environment_id(environment);
            let mirror = fleet.mirror(&id, selection(&id));
            let is_real = faults.is_real(environment);
            mirrors.push(CheckedMirror::new(environment, is_real, mirror, checks));
        }
        fleets.push(fleet);
    }
    (fleets, mirrors)
}

/// Waits until all mirrors are right. Returns the times since `began` at which they were.
async fn wait_until_right(
    faults: &StormFaults,
    mirrors: &[CheckedMirror],
    checks: &StateChecks,
    began: Instant,
) -> Outcome<Vec<f64>> {
    let waits = mirrors.iter().map(|mirror| async move {
        let (key, generation) = faults.expected(mirror.environment);
        mirror.wait_until_right(key, generation).await;
        began.elapsed().as_secs_f64()
    });
    tokio::select! {
        wrong = checks.wait_for_wrong() => Err(wrong.into()),
        times = timeout(QUIET_TIMEOUT, join_all(waits)) => times.map_err(|_| {
            let wrong = mirrors.iter().filter_map(|mirror| {
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
async fn wait_until_settled(faults: &mut StormFaults) -> Outcome<()> {
    let expected = (0..faults.environment_count()).map(|environment| {
        let ((environment, epoch), _) = faults.expected(environment);
        format!("{environment}:{epoch}")
    });
    let expected: BTreeSet<_> = expected.collect();
    let began = Instant::now();
    loop {
        let serving = faults.executors.command("serving").await?;
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
