//! `caproot fleet check`: the errors of a fleet file, without a connection.

use super::progress::run_for_each;
use crate::cli::config::config_error_json;
use crate::cli::exit;
use crate::cli::failure::CommandFailure;
use crate::cli::output::{OutputFormat, ignore_closed_stdout, print_json, write_stdout};
use crate::cli::report::count_with_noun;
use caproot_client::{ConfigError, ExecutorConfig, Fleet};
use caproot_core::text::{EscapedText, escape_text};
use clap::Args;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Check a fleet file, without a connection
///
/// Prints every error with its file, line, column, key and reason, and exits with 78. Without errors,
/// prints warnings and a summary. The certificates, keys and tokens of the executors and of the pattern are read, too.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  caproot fleet check fleet.yaml
  caproot fleet check fleet.yaml --output json | jq '.errors[].line'")]
pub struct FleetCheckArgs {
    /// The fleet file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Output format
    #[arg(long, value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,
}

/// Findings about a fleet file.
struct FleetCheck {
    executors: usize,
    warnings: Vec<String>,
    errors: Vec<ConfigError>,
}

/// Prints the findings about the file.
pub async fn run(args: &FleetCheckArgs) -> Result<u8, CommandFailure> {
    let checked = check_file(&args.file).await?;
    let is_valid = checked.errors.is_empty();
    let printed = match args.output {
        OutputFormat::Json => print_json(&check_json(&args.file, &checked)),
        OutputFormat::Text => write_stdout(|stdout| {
            for error in &checked.errors {
                writeln!(stdout, "{}", escape_text(&error.to_string()))?;
            }
            for warning in &checked.warnings {
                writeln!(stdout, "warning: {}", EscapedText(warning))?;
            }
            if is_valid {
                let file = args.file.to_string_lossy();
                let executors = count_with_noun(checked.executors, "executor");
                writeln!(stdout, "ok: {}: {executors}", EscapedText(&file))?;
            }
            Ok(())
        }),
    };
    // The exit code counts even if the reader of stdout is gone.
    ignore_closed_stdout(printed)?;
    Ok(if is_valid { exit::OK } else { exit::BAD_CONFIG })
}

async fn check_file(file: &Path) -> Result<FleetCheck, CommandFailure> {
    let fleet = match Fleet::from_file(file).await {
        Ok(fleet) => fleet,
        Err(errors) => {
            let errors = errors.to_vec();
            return Ok(FleetCheck {
                executors: 0,
                warnings: Vec::new(),
                errors,
            });
        }
    };
    let mut executors = Vec::new();
    for id in fleet.environment_ids() {
        let config = fleet.find_executor(&id).await;
        let config = config.map_err(|error| CommandFailure::new(exit::INTERNAL, error))?;
        executors.push((id, config));
    }
    let count = executors.len();
    let mut entries: Vec<_> = executors
        .into_iter()
        .map(|(id, config)| (format!("executors.{id}"), config))
        .collect();
    entries.extend(pattern_entry(&fleet).await);
    let warnings = entries
        .iter()
        .filter_map(|(key, config)| cleartext_warning(key, config));
    let warnings = warnings.collect();
    let check = async |(key, config): (String, ExecutorConfig)| {
        let outcome = config.credentials.check(&config.endpoint).await;
        outcome.err().map(|reason| ConfigError {
            file: Some(file.to_owned()),
            position: None,
            key,
            value: None,
            reason,
        })
    };
    let errors = run_for_each(entries, check).await;
    let errors = errors.into_iter().flatten().collect();
    Ok(FleetCheck {
        executors: count,
        warnings,
        errors,
    })
}

/// Returns the pattern of a fleet file, filled in for an environment without an entry.
async fn pattern_entry(fleet: &Fleet) -> Option<(String, ExecutorConfig)> {
    let ids = fleet.environment_ids();
    let unlisted = (0..=ids.len())
        .map(|n| format!("a{n}"))
        .find(|id| !ids.contains(id))?;
    // Without a pattern, the fleet has no executor for the environment.
    let config = fleet.find_executor(&unlisted).await.ok()?;
    Some(("pattern".to_owned(), config))
}

/// Returns the warning if an attacker on the network can read the connection to the executor of a
/// key.
fn cleartext_warning(key: &str, config: &ExecutorConfig) -> Option<String> {
    config.endpoint.is_cleartext().then(|| {
        let endpoint = &config.endpoint;
        format!(
            "{key}.endpoint: {endpoint} is not encrypted: an attacker on the network can \
             read and change everything; use tls:HOST:PORT"
        )
    })
}

fn check_json(file: &Path, checked: &FleetCheck) -> Value {
    let file = file.to_string_lossy();
    if checked.errors.is_empty() {
        let summary = json!({ "executors": checked.executors });
        return json!({ "file": file, "ok": true, "warnings": checked.warnings, "summary": summary });
    }
    let errors: Vec<_> = checked.errors.iter().map(config_error_json).collect();
    json!({ "file": file, "ok": false, "errors": errors, "warnings": checked.warnings })
}
