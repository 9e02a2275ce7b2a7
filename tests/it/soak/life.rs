//! The daemon, as a process: how it begins, how it ends, and what it takes of the machine.

use std::fmt;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::stage::{Place, Stage};
use super::tree::{ROOTS, Tree};
use crate::binary::DaemonProcess;
use crate::harness::HANG_TIMEOUT;
use crate::process_usage::{descriptors, resident, threads, watches};

/// States of a root that the daemon holds: few, so that they are soon others.
pub(super) const HISTORY: u64 = 16;

/// How long a thread that waits for work on the disk stays: tokio's own 10 s, and some.
const IDLE_THREADS: Duration = Duration::from_secs(11);
const LOOK: Duration = Duration::from_millis(100);

/// How it ends.
#[derive(Debug, Clone, Copy)]
pub(super) enum End {
    Told,
    Killed,
}

/// What a process takes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Usage {
    /// In KiB.
    memory: u64,
    descriptors: u64,
    watches: u64,
    threads: u64,
}

/// A daemon that serves the tree.
pub(super) struct Life(DaemonProcess);

impl Life {
    /// Starts it, and tells all where it is.
    pub(super) fn begin(tree: &Tree, stage: &Stage) -> Self {
        let config = tree.path("config.yaml");
        let text = format!(
            "allow: [.]\nlisten: [\"tcp:127.0.0.1:0\"]\nlimits:\n  max_history: {HISTORY}\n"
        );
        std::fs::write(&config, text).expect("write");
        let serving = DaemonProcess::start(&["--config".as_ref(), config.as_os_str()]);
        let address = serving.endpoint().strip_prefix("tcp:").expect("TCP").to_owned();
        let life = stage.place.borrow().life + 1;
        stage.place.send_replace(Place { life, address, is_ending: false });
        Self(serving)
    }

    /// Ends it, once all know that it ends, and looks through its log.
    pub(super) async fn end(self, how: End, stage: &Stage) {
        stage.place.send_modify(|place| place.is_ending = true);
        let (code, log) = match how {
            End::Told => self.0.terminate_async().await,
            End::Killed => {
                self.0.send_signal(Signal::KILL);
                spawn_blocking(move || self.0.wait_for_exit()).await.expect("it ends")
            }
        };
        let right = match how {
            End::Told => Some(0),
            End::Killed => None,
        };
        assert_eq!(code, right, "{log}");
        for bad in ["panicked", "internal error", " ERROR "] {
            assert!(!log.contains(bad), "{bad} in the log: {log}");
        }
        let warnings = log.lines().filter(|line| line.contains(" WARN ")).count();
        stage.tally.add("life: warnings in the log", warnings);
        stage.tally.add(&format!("life: {how:?}").to_lowercase(), 1);
    }

    /// What it takes when it does nothing: threads end when they had nothing to do for long.
    pub(super) async fn usage_at_rest(&self) -> Usage {
        let (mut since, mut fewest) = (Instant::now(), u64::MAX);
        while since.elapsed() < IDLE_THREADS {
            let usage = self.usage();
            if usage.threads < fewest {
                (since, fewest) = (Instant::now(), usage.threads);
            }
            sleep(LOOK).await;
        }
        self.usage()
    }

    /// Waits until it takes no more than before.
    pub(super) async fn assert_takes_no_more(&self, before: Usage) -> Usage {
        let begun = Instant::now();
        loop {
            let usage = self.usage();
            if usage.is_within(before) {
                return usage;
            }
            assert!(begun.elapsed() < HANG_TIMEOUT, "{usage} at the end, {before} at the beginning");
            sleep(LOOK).await;
        }
    }

    fn usage(&self) -> Usage {
        let pid = self.0.pid();
        Usage {
            memory: resident(pid),
            descriptors: descriptors(pid),
            watches: watches(pid),
            threads: threads(pid),
        }
    }
}

impl Usage {
    /// Whether this is as it was. The same tree is watched by the same watches, and as many connections
    /// and roots take as many descriptors. A thread for each root comes and goes with
    /// the looks at where links lead. Memory may be a quarter and 16 MiB more: the heap that was full of other skills has holes, and
    /// digests of files that are gone are kept, up to a bound.
    fn is_within(self, before: Self) -> bool {
        self.watches == before.watches
            && self.descriptors == before.descriptors
            && self.threads <= before.threads + ROOTS.len() as u64
            && self.memory <= before.memory + before.memory / 4 + (16 << 10)
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { memory, descriptors, watches, threads } = self;
        write!(f, "{memory} KiB, {descriptors} descriptors, {watches} watches, {threads} threads")
    }
}
