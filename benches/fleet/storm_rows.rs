//! Figures of the storm over executors behind a cluster of brokers. `docs/design/link.md` has them.

use crate::equal_catalogs::as_float;
use crate::executor_process::{ExecutorProcesses, ProcessPlan};
use crate::nats_cluster::{NatsCluster, find_nats_server};
use crate::options::Options;
use crate::process_memory::resident_kib;
use crate::storm::checks::CheckedMirror;
use crate::storm::{BROKERS, QuietTimes, ROUND, Storm, start_brokers};
use crate::storm_figures::StormFigures;
use crate::{Outcome, print_progress};
use caproot_client::Fleet;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

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
    let plan = ProcessPlan::new(options)?;
    writeln!(
        io::stdout(),
        "storm of {} executors in {} processes, each with at most {} of {} open files, --seed {seed}",
        options.executors,
        plan.processes,
        plan.files,
        plan.limit
    )?;
    let ran = run_seed(options, plan, program, seed).await;
    ran.map_err(|error| format!("the storm with --seed {seed} failed: {error}").into())
}

async fn run_seed(
    options: &Options,
    plan: ProcessPlan,
    program: PathBuf,
    seed: u64,
) -> Outcome<()> {
    let scratch = tempfile::tempdir()?;
    let dir = scratch.path();
    let cluster = start_brokers(program, BROKERS, dir).await?;
    let executors = ExecutorProcesses::start(options, plan, &cluster.urls(), dir).await?;
    let mut storm = Storm::new(seed, options.storm_size(), cluster, executors, dir);
    let ran = measure_rounds(options, &mut storm).await;
    let stopped = storm.faults.executors.stop().await;
    ran?.print(options)?;
    stopped
}

/// Runs the rounds of faults, and returns their figures.
async fn measure_rounds(
    options: &Options,
    storm: &mut Storm<ExecutorProcesses>,
) -> Outcome<StormFigures> {
    print_progress(format_args!("starting {} executors", options.executors));
    let executors_before = storm.faults.executors.resident_kib()?;
    let brokers_before = broker_kib(&storm.faults.cluster)?;
    storm.start_executors().await?;
    let count = as_float(options.executors as u64);
    let executor_kib = (storm.faults.executors.resident_kib()? - executors_before) / count;
    let brokers_with_links = broker_kib(&storm.faults.cluster)?;

    let size = options.storm_size();
    print_progress(format_args!(
        "starting {} mirrors",
        size.fleets * size.mirrors
    ));
    let mirrors_before = resident_kib("self")?;
    let began = Instant::now();
    storm.start_mirrors().await?;
    let start_seconds = began.elapsed().as_secs_f64();
    let count_of_mirrors = as_float(storm.mirrors.len() as u64);
    let mirror_kib = (resident_kib("self")? - mirrors_before) / count_of_mirrors;
    let brokers_with_mirrors = broker_kib(&storm.faults.cluster)?;
    let broker_kib = [
        (brokers_with_links - brokers_before) / count,
        (brokers_with_mirrors - brokers_with_links) / count_of_mirrors,
    ];
    let most_dials = Arc::<AtomicU64>::default();
    let _sampler = sample_dials(storm.fleets.clone(), most_dials.clone());

    let began = Instant::now();
    let mut rest = options.duration;
    let mut rounds = 0;
    let mut convergence = Vec::new();
    while !rest.is_zero() {
        let round = ROUND.min(rest);
        rest -= round;
        rounds += 1;
        let quiet = storm.run_round(round).await?;
        print_round(rounds, &storm.mirrors, &quiet);
        convergence.extend(quiet.seconds);
    }

    print_progress(format_args!(
        "waiting until one link serves each environment"
    ));
    storm.wait_until_settled().await?;
    convergence.sort_by(f64::total_cmp);
    Ok(StormFigures {
        seconds: began.elapsed().as_secs_f64(),
        start_seconds,
        executor_kib,
        mirror_kib,
        broker_kib,
        states: storm.checks.states(),
        mirrors: storm.mirrors.len(),
        dials: count_dials(&storm.fleets),
        most_dials_a_second: most_dials.load(Ordering::Relaxed),
        convergence,
        rounds,
        faults: storm.faults.counts.clone(),
    })
}

/// Resident memory of all servers.
fn broker_kib(cluster: &NatsCluster) -> Outcome<f64> {
    let processes = cluster
        .servers
        .iter()
        .filter_map(|server| server.process.as_ref()?.id());
    processes.map(|id| resident_kib(&id.to_string())).sum()
}

/// Prints how long the mirrors took after the faults of a round, and the states of the slowest.
fn print_round(round: u64, mirrors: &[CheckedMirror], quiet: &QuietTimes) {
    let mut order: Vec<_> = quiet.seconds.iter().copied().zip(mirrors).collect();
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
        let story = mirror.tell_story(quiet.began);
        print_progress(format_args!("  {time:.1} s, {story}"));
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
