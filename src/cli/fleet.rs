//! Fleets of executors, from `--fleet FILE` or from the connection flags.

use super::exit;
use super::failure::CommandFailure;
use crate::client::fleet::{ExecutorConfig, Fleet, FleetFileError};
use crate::proto::caproot::v1::SelectedCapabilityRoot;
use std::collections::HashSet;
use std::path::Path;

/// Reads a fleet file. The failure has all errors of the file.
pub async fn read_fleet(file: &Path) -> Result<Fleet, CommandFailure> {
    Fleet::from_file(file).await.map_err(|errors| {
        let sentences: Vec<_> = errors.0.iter().map(FleetFileError::to_string).collect();
        CommandFailure::from_messages(exit::BAD_CONFIG, &sentences)
    })
}

/// Creates a fleet in which one executor has all environments of the roots.
pub fn single_executor_fleet(executor: &ExecutorConfig, roots: &[SelectedCapabilityRoot]) -> Fleet {
    let environment = |root: &SelectedCapabilityRoot| {
        root.location.as_ref().map_or_else(String::new, |l| l.environment_id.clone())
    };
    let environments: HashSet<String> = roots.iter().map(environment).collect();
    Fleet::from_executors(environments.into_iter().map(|id| (id, executor.clone())))
}
