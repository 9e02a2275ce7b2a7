//! Storm over 60 executors behind three brokers, in this process. `CAPROOT_STORM` is the time with faults,
//! such as `1m`; without the variable the test is skipped. `CAPROOT_STORM_SEED` repeats the faults, but not
//! their timing.

use std::time::Duration;

use super::nats_cluster::find_nats_server;
use super::storm::executors::StormExecutors;
use super::storm::{BROKERS, ROUND, Storm, StormSize, start_brokers};
use crate::watching::random_walk::from_env;

const SIZE: StormSize = StormSize {
    executors: 60,
    fleets: 3,
    mirrors: 60,
};

/// Returns the time with faults, or `None` with a message if `CAPROOT_STORM` is not set, so that the
/// test is skipped.
pub(crate) fn storm_length() -> Option<Duration> {
    let Ok(length) = std::env::var("CAPROOT_STORM") else {
        println!("SKIPPED: CAPROOT_STORM is not set");
        return None;
    };
    Some(humantime::parse_duration(&length).expect("CAPROOT_STORM is a duration"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_mirrors_are_right_after_each_round_of_faults() {
    let Some(length) = storm_length() else {
        return;
    };
    let Some(program) = find_nats_server() else {
        println!("SKIPPED: nats-server is not installed, so there was no storm");
        return;
    };
    let seed = from_env("CAPROOT_STORM_SEED", fastrand::u64(..1 << 32));
    println!("CAPROOT_STORM_SEED={seed}, {} executors", SIZE.executors);

    let scratch = tempfile::tempdir().expect("a directory");
    let dir = scratch.path();
    let cluster = start_brokers(program, BROKERS, dir).await.expect("brokers");
    let executors = StormExecutors::new(cluster.urls(), SIZE.real(), dir).expect("an authority");
    let mut storm = Storm::new(seed, SIZE, cluster, executors, dir);
    storm.start_executors().await.expect("executors that serve");
    storm.start_mirrors().await.expect("mirrors that are right");

    let mut rest = length;
    while !rest.is_zero() {
        let round = ROUND.min(rest);
        rest -= round;
        let quiet = storm
            .run_round(round)
            .await
            .expect("mirrors that are right");
        let times = quiet.seconds.iter().zip(&storm.mirrors);
        let slowest = times.max_by(|(one, _), (other, _)| one.total_cmp(other));
        let (seconds, mirror) = slowest.expect("a mirror");
        let last = mirror.tell_story(quiet.began);
        println!("all mirrors are right {seconds:.1} s after the faults; the last: {last}");
    }

    storm
        .wait_until_settled()
        .await
        .expect("one link for each environment");
    let states = storm.checks.states();
    println!(
        "{states} states of {} mirrors are right; {:?}",
        storm.mirrors.len(),
        storm.faults.counts
    );
    assert!(!storm.faults.counts.is_empty());
    assert!(states > storm.mirrors.len() as u64, "{states} states");
}
