//! Executors of a command for a fleet: all of a fleet file, or some by their environment ids.

use super::{fleet_failure, read_fleet};
use crate::cli::args::parse_timeout;
use crate::cli::exit;
use crate::cli::failure::CommandFailure;
use caproot_client::{ExecutorConfig, Fleet, FleetError};
use clap::Args;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Fleet file, executors and time limit of a command.
#[derive(Debug, Args)]
pub struct FleetTargetArgs {
    /// The fleet file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Executors, by their environment ids [default: every executor of the file]
    #[arg(value_name = "ENVIRONMENT_ID")]
    environment_ids: Vec<String>,
    /// Time limit of each executor, such as 2s or 1m [default: the timeout in the file]
    #[arg(long, value_name = "DURATION", value_parser = parse_timeout)]
    timeout: Option<Duration>,
}

/// Executor of a command.
#[derive(Debug, Clone)]
pub struct FleetTarget {
    pub environment_id: String,
    pub config: ExecutorConfig,
    pub fleet: Fleet,
}

impl FleetTargetArgs {
    /// Executors of a fleet file, with the timeouts of the file. Without environment ids, every executor.
    pub fn new(file: &Path, environment_ids: Vec<String>) -> Self {
        Self {
            file: file.to_owned(),
            environment_ids,
            timeout: None,
        }
    }

    /// Reads the fleet file.
    pub async fn open_fleet(&self) -> Result<Fleet, CommandFailure> {
        read_fleet(&self.file).await
    }

    /// Returns the executors of the command line in the order of the command line, or every executor
    /// of the file in the byte order of the environment ids. The time limit of the command line
    /// replaces the timeouts in the file.
    pub async fn find_targets(&self, fleet: &Fleet) -> Result<Vec<FleetTarget>, CommandFailure> {
        let ids = match &self.environment_ids[..] {
            [] => fleet.environment_ids(),
            ids => ids.to_vec(),
        };
        if ids.is_empty() {
            let sentence = format!("{} has no executors", self.file.display());
            return Err(CommandFailure::new(exit::BAD_CONFIG, sentence)
                .with_hint("add executors to the file, or name environment ids after the file"));
        }
        let mut targets = Vec::new();
        for id in &ids {
            let target = self.find_target(fleet, id).await;
            targets.push(target.map_err(|error| self.failure(error, fleet))?);
        }
        Ok(targets)
    }

    /// Returns the executors of the command line. Empty if every executor of the file is meant.
    pub fn environment_ids(&self) -> &[String] {
        &self.environment_ids
    }

    /// Returns the executor of an environment, at its present address.
    pub async fn find_target(&self, fleet: &Fleet, id: &str) -> Result<FleetTarget, FleetError> {
        let mut config = fleet.find_executor(id).await?;
        config.timeout = self.timeout.unwrap_or(config.timeout);
        Ok(FleetTarget {
            environment_id: id.to_owned(),
            config,
            fleet: fleet.clone(),
        })
    }

    /// Converts a failure of [`FleetTargetArgs::find_target`].
    pub fn failure(&self, error: FleetError, fleet: &Fleet) -> CommandFailure {
        fleet_failure(error, fleet, &self.file)
    }
}
