//! `caproot fleet check`: the errors of a fleet file, without a connection.

use super::progress::run_for_each;
use crate::cli::ask::report::count_with_noun;
use crate::cli::exit;
use crate::cli::failure::{CommandFailure, CommandResult as _};
use crate::cli::file_check::{FileCheckArgs, FileFindings};
use caproot_client::{ConfigError, ExecutorConfig, Fleet};
use clap::Args;
use serde_json::json;
use std::path::Path;

/// Check a fleet file, without a connection
///
/// Prints every error with its file, line, column, key and reason, and exits with 78. Without errors,
/// prints warnings and a summary. The certificates, keys and tokens of the executors and of the pattern
/// are read, too.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  caproot fleet check fleet.yaml
  caproot fleet check fleet.yaml --output json | jq '.errors[].line'")]
pub struct FleetCheckArgs {
    #[command(flatten)]
    check: FileCheckArgs,
}

/// Entry of a fleet file that has an endpoint and credentials.
struct FleetEntry {
    /// Key of the entry, such as `executors.build-farm`.
    key: String,
    config: ExecutorConfig,
}

/// Prints the findings about the file.
pub async fn run(args: &FleetCheckArgs) -> Result<u8, CommandFailure> {
    let findings = check_fleet_file(&args.check.file).await?;
    args.check.print_findings(&findings)
}

async fn check_fleet_file(file: &Path) -> Result<FileFindings, CommandFailure> {
    let fleet = match Fleet::from_file(file).await {
        Ok(fleet) => fleet,
        Err(errors) => return Ok(FileFindings::from_errors(errors.iter())),
    };

    let mut entries = Vec::new();
    for id in fleet.environment_ids() {
        let found = fleet.find_executor(&id).await;
        let config = found.or_exit(exit::INTERNAL)?;
        let key = format!("executors.{id}");
        entries.push(FleetEntry { key, config });
    }
    let executors = entries.len();
    entries.extend(pattern_entry(&fleet).await);

    let warnings = entries
        .iter()
        .filter_map(FleetEntry::cleartext_warning)
        .collect();
    let checked = run_for_each(entries, async |entry: FleetEntry| {
        entry.check_credentials(file).await
    });
    Ok(FileFindings {
        errors: checked.await.into_iter().flatten().collect(),
        warnings,
        summary: count_with_noun(executors, "executor"),
        counts: [("executors".to_owned(), json!(executors))]
            .into_iter()
            .collect(),
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

impl FleetEntry {
    /// Returns the warning if an attacker on the network can read the connection to the executor.
    fn cleartext_warning(&self) -> Option<String> {
        let Self { key, config } = self;
        let endpoint = &config.endpoint;
        endpoint.is_cleartext().then(|| {
            format!(
                "{key}.endpoint: {endpoint} is not encrypted: an attacker on the network can \
                 read and change everything; use tls:HOST:PORT"
            )
        })
    }

    /// Reads the credentials. Returns why they cannot be used.
    async fn check_credentials(self, file: &Path) -> Option<ConfigError> {
        let checked = self.config.credentials.check(&self.config.endpoint).await;
        let reason = checked.err()?;
        Some(ConfigError {
            file: Some(file.to_owned()),
            position: None,
            key: self.key,
            value: None,
            reason,
        })
    }
}
