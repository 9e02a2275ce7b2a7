//! `caproot fleet`: checks a fleet file, and shows the executors of the fleet. Also reads the file of
//! `--fleet` for the client commands.

mod check;
mod list;
mod probe;
mod progress;
mod screen;
mod state;
pub mod target;
pub mod watch;

use super::exit;
use super::failure::CommandFailure;
use super::file_check::FileCheckArgs;
use caproot_client::FleetError;
use caproot_client::fleet::{Fleet, OmittedExecutor};
use caproot_core::text::escape_text;
use caproot_core::text::similar::suggest_names;
use clap::{Args, Subcommand};
use std::path::Path;

/// Maximum number of environment ids in a message.
const MAX_KNOWN_IDS: usize = 5;

/// Check a fleet file, and show the state of its executors
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  caproot fleet check fleet.yaml    # errors of the file, without a connection
  caproot fleet list fleet.yaml     # state, version, connect time and roots
  caproot watch --fleet fleet.yaml  # each change of a state")]
pub struct FleetArgs {
    #[command(subcommand)]
    command: FleetCommand,
}

#[derive(Debug, Subcommand)]
enum FleetCommand {
    /// Check a fleet file, without a connection
    ///
    /// Prints every error with its file, line, column, key and reason, and exits with 78. Without errors,
    /// prints warnings and a summary. The certificates, keys and tokens of the executors and of the pattern
    /// are read, too.
    #[command(after_help = "\
Examples:
  caproot fleet check fleet.yaml
  caproot fleet check fleet.yaml --output json | jq '.errors[].line'")]
    Check(FileCheckArgs),
    List(list::FleetListArgs),
}

/// Runs the subcommand.
pub async fn run(args: FleetArgs) -> Result<u8, CommandFailure> {
    match args.command {
        FleetCommand::Check(check) => check::run(&check).await,
        FleetCommand::List(args) => list::run(args).await,
    }
}

/// Reads a fleet file. The failure has all errors of the file.
pub async fn read_fleet(file: &Path) -> Result<Fleet, CommandFailure> {
    Ok(Fleet::from_file(file).await?)
}

/// Converts the failure to find an executor in a fleet file. An unknown environment is an error of
/// the command line, and the failure has the ids that look alike.
pub fn fleet_failure(error: FleetError, fleet: &Fleet, file: &Path) -> CommandFailure {
    match error {
        FleetError::UnknownEnvironment(id) => {
            let known = suggest_ids(&id, &fleet.environment_ids());
            let file = file.display();
            let sentence = format!("{file} has no executor for the environment {id:?}; {known}");
            CommandFailure::new(exit::USAGE, sentence)
        }
        FleetError::Connect { cause, .. } => CommandFailure::from(cause).with_fleet_hint(),
        error @ FleetError::Registry { .. } => CommandFailure::new(exit::BAD_CONFIG, error),
    }
}

/// Names the known ids that look like an unknown id, or the first ids.
fn suggest_ids(id: &str, known: &[String]) -> String {
    if let Some(question) = suggest_names(id, known.iter().map(String::as_str), |id| id) {
        return question;
    }

    let (first, more) = known.split_at(known.len().min(MAX_KNOWN_IDS));
    if first.is_empty() {
        return "it has no executor".to_owned();
    }
    if more.is_empty() {
        return format!("it has {}", first.join(", "));
    }
    format!("it has {} and {} more", first.join(", "), more.len())
}

/// Returns a line about an executor whose published roots a session does not have.
pub fn omitted_line(executor: &OmittedExecutor) -> String {
    let id = escape_text(&executor.environment_id);
    let reason = escape_text(&executor.reason);
    let hint = if executor.timed_out {
        "; --connect-timeout sets how long to wait"
    } else {
        ""
    };
    format!("the roots of {id} are omitted: {reason}{hint}")
}
