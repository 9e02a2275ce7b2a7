//! `caproot fleet check`: the errors of a fleet file, without a connection.

use super::progress::run_for_each;
use crate::cli::ask::report::count_with_noun;
use crate::cli::exit;
use crate::cli::failure::{CommandFailure, CommandResult as _};
use crate::cli::file_check::{FileCheckArgs, FileFindings};
use caproot_client::{ConfigError, ExecutorConfig, Fleet};
use serde_json::{Map, json};
use std::path::Path;

/// Entry of a fleet file that has an endpoint and credentials.
struct FleetEntry {
    /// Key of the entry, such as `executors.build-farm`.
    key: String,
    config: ExecutorConfig,
}

/// Prints the findings about the file.
pub async fn run(check: &FileCheckArgs) -> Result<u8, CommandFailure> {
    let findings = check_fleet_file(&check.file).await?;
    check.print_findings(&findings)
}

async fn check_fleet_file(file: &Path) -> Result<FileFindings, CommandFailure> {
    let fleet = match Fleet::from_file(file).await {
        Ok(fleet) => fleet,
        Err(errors) => return Ok(FileFindings::from_errors(errors.iter())),
    };

    let mut entries = Vec::new();
    for id in fleet.environment_ids() {
        let found = fleet.find_executor(&id).await;
        entries.push(FleetEntry {
            key: format!("executors.{id}"),
            config: found.or_exit(exit::INTERNAL)?,
        });
    }
    let executors = entries.len();
    entries.extend(pattern_entry(&fleet).await);

    let warnings = entries.iter().filter_map(cleartext_warning).collect();
    let checked = run_for_each(entries, async |FleetEntry { key, config }: FleetEntry| {
        let checked = config.credentials.check(&config.endpoint).await;
        let error = ConfigError::file(file, checked.err()?);
        Some(ConfigError { key, ..error })
    });
    Ok(FileFindings {
        errors: checked.await.into_iter().flatten().collect(),
        warnings,
        summary: count_with_noun(executors, "executor"),
        counts: Map::from_iter([("executors".to_owned(), json!(executors))]),
    })
}

/// Returns the pattern of a fleet file, filled in for an environment without an entry.
async fn pattern_entry(fleet: &Fleet) -> Option<FleetEntry> {
    let ids = fleet.environment_ids();
    // The range has one id more than the file, so that one of them is free.
    let unlisted = (0..=ids.len())
        .map(|n| format!("a{n}"))
        .find(|id| !ids.contains(id))?;
    // Without a pattern, the fleet has no executor for the environment.
    let config = fleet.find_executor(&unlisted).await.ok()?;
    let key = "pattern".to_owned();
    Some(FleetEntry { key, config })
}

/// Returns the warning if an attacker on the network can read the connection to the executor.
fn cleartext_warning(entry: &FleetEntry) -> Option<String> {
    let FleetEntry { key, config } = entry;
    let endpoint = &config.endpoint;
    endpoint.is_cleartext().then(|| {
        format!(
            "{key}.endpoint: {endpoint} is not encrypted: an attacker on the network can read and \
             change everything; use tls:HOST:PORT"
        )
    })
}
