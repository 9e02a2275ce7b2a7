//! Options of the bench.

use crate::equal_catalogs::Phase;
use crate::storm::StormSize;
use clap::Parser;
use std::path::PathBuf;
use std::time::Duration;

/// Measures a fleet of executors: by default, executors with one plugin set.
#[derive(Debug, Parser)]
#[command(name = "cargo bench --bench fleet --", version, max_term_width = 100)]
pub(crate) struct Options {
    /// Number of executors.
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    pub(crate) executors: usize,
    /// Measures executors behind a NATS cluster that die, move and change under faults of the cluster.
    /// Each state of each mirror is checked. Needs `nats-server`.
    #[arg(long, conflicts_with = "link")]
    pub(crate) storm: bool,
    /// Compares an executor behind a NATS server with a direct connection over TLS. Needs
    /// `nats-server`.
    #[arg(long)]
    pub(crate) link: bool,
    /// How long the storm has faults, without the time in which the mirrors converge.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = humantime::parse_duration)]
    pub(crate) duration: Duration,
    /// Orchestrators of the storm, each with a connection of its own.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) fleets: usize,
    /// Mirrors of each orchestrator of the storm, at most one for each executor.
    #[arg(long, value_name = "N", default_value_t = 500)]
    pub(crate) mirrors: usize,
    /// Seed of the faults; by default a random number, which the storm prints.
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Runs one phase against the server at this address.
    #[arg(long, value_name = "ADDRESS", hide = true, requires = "phase")]
    pub(crate) address: Option<String>,
    #[arg(long, value_name = "PHASE", hide = true)]
    pub(crate) phase: Option<Phase>,
    /// Directory of saved sessions, or of the files of the storm's executors.
    #[arg(long, value_name = "DIR", hide = true, default_value = ".")]
    pub(crate) saved: PathBuf,
    /// Runs the executors of the storm, with links to these servers.
    #[arg(long, value_name = "URL", hide = true)]
    pub(crate) servers: Vec<String>,
    /// Flag that `cargo bench` sets.
    #[arg(long, hide = true)]
    bench: bool,
}

impl Options {
    /// Size of the storm.
    pub(crate) fn storm_size(&self) -> StormSize {
        StormSize {
            executors: self.executors,
            fleets: self.fleets,
            mirrors: self.mirrors.min(self.executors),
        }
    }
}
