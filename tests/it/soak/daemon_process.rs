//! The daemon process: start, end, and resource usage.

use std::fmt;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tokio::time::sleep;

use super::shared_state::{DaemonState, SharedState};
use super::tree::{ROOTS, Tree};
use crate::harness::HANG_TIMEOUT;
use crate::harness::process::{Output, Process, caproot};
use crate::harness::process_usage::{descriptors, resident, threads, watches};

/// History limit of the daemon. The limit is low, so that old states are dropped soon.
pub(super) const HISTORY: u64 = 16;

/// How long an idle blocking thread stays: 10 s in tokio, and a margin.
const IDLE_THREADS: Duration = Duration::from_secs(11);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Kind of end of a daemon process.
#[derive(Debug, Clone, Copy)]
pub(super) enum EndKind {
    Terminated,
    Killed,
}

/// Resource usage of a process.
#[derive(Debug, Clone, Copy)]
pub(super) struct ResourceUsage {
    /// Resident memory in KiB.
    memory: u64,
    descriptors: u64,
    watches: u64,
    threads: u64,
}

/// Daemon process that serves the tree.
pub(super) struct SoakedDaemon(Process);

impl SoakedDaemon {
    /// Starts a daemon and publishes its address to all clients.
    pub(super) fn start(tree: &Tree, shared: &SharedState) -> Self {
        let config = tree.path("config.yaml");
        let text = format!(
            "allow: [.]\nlisten: [\"tcp:127.0.0.1:0\"]\nlimits:\n  max_history: {HISTORY}\n"
        );
        std::fs::write(&config, text).expect("write");
        let mut command = caproot(["serve", "--config"]);
        let serving = Process::start(command.arg(config));
        let address = serving.address().to_owned();
        let process_number = shared.daemon_state.borrow().process_number + 1;
        shared.daemon_state.send_replace(DaemonState {
            process_number,
            address,
            is_ending: false,
        });
        Self(serving)
    }

    /// Ends the daemon, after telling the clients, and checks its log.
    pub(super) async fn stop(self, end_kind: EndKind, shared: &SharedState) {
        shared
            .daemon_state
            .send_modify(|daemon_state| daemon_state.is_ending = true);
        let (signal, expected_code) = match end_kind {
            EndKind::Terminated => (Signal::TERM, Some(0)),
            EndKind::Killed => (Signal::KILL, None),
        };
        let Output {
            code, stderr: log, ..
        } = self.0.exit_on(signal).await;
        assert_eq!(code, expected_code, "{log}");
        for bad in ["panicked", "internal error", " ERROR "] {
            assert!(!log.contains(bad), "{bad} in the log: {log}");
        }
        let warnings = log.lines().filter(|line| line.contains(" WARN ")).count();
        shared.counters.add("daemon: warnings in the log", warnings);
        shared
            .counters
            .add(&format!("daemon: {end_kind:?}").to_lowercase(), 1);
    }

    /// Returns the usage of an idle daemon, when idle threads have ended.
    pub(super) async fn idle_usage(&self) -> ResourceUsage {
        let (mut since, mut fewest) = (Instant::now(), u64::MAX);
        while since.elapsed() < IDLE_THREADS {
            let usage = self.usage();
            if usage.threads < fewest {
                (since, fewest) = (Instant::now(), usage.threads);
            }
            sleep(POLL_INTERVAL).await;
        }
        self.usage()
    }

    /// Waits until the usage is not above `before`.
    pub(super) async fn assert_takes_no_more(&self, before: ResourceUsage) -> ResourceUsage {
        let started_at = Instant::now();
        loop {
            let usage = self.usage();
            if usage.is_within(before) {
                return usage;
            }
            assert!(
                started_at.elapsed() < HANG_TIMEOUT,
                "{usage} at the end, {before} at the beginning"
            );
            sleep(POLL_INTERVAL).await;
        }
    }

    fn usage(&self) -> ResourceUsage {
        let pid = self.0.pid();
        ResourceUsage {
            memory: resident(pid),
            descriptors: descriptors(pid),
            watches: watches(pid),
            threads: threads(pid),
        }
    }
}

impl ResourceUsage {
    /// Whether the usage is not above `before`.
    /// The number of watches is equal for the same tree. The number of descriptors is equal for the
    /// same connections and roots. One thread for each root comes and goes with link checks. Memory
    /// may grow by a quarter and 16 MiB: the heap has holes after other skills, and digests of
    /// removed files stay cached up to a limit.
    fn is_within(self, before: Self) -> bool {
        self.watches == before.watches
            && self.descriptors == before.descriptors
            && self.threads <= before.threads + ROOTS.len() as u64
            && self.memory <= before.memory + before.memory / 4 + (16 << 10)
    }
}

impl fmt::Display for ResourceUsage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            memory,
            descriptors,
            watches,
            threads,
        } = self;
        write!(
            f,
            "{memory} KiB, {descriptors} descriptors, {watches} watches, {threads} threads"
        )
    }
}
