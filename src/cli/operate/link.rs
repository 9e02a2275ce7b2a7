//! `caproot link`: connects the daemon of this machine to a NATS broker.

#[cfg(feature = "link")]
mod link_file;
#[cfg(feature = "link")]
mod link_metrics;
#[cfg(not(feature = "link"))]
mod no_link;
#[cfg(feature = "link")]
mod run_link;

use crate::cli::exit;
use crate::cli::failure::CommandFailure;
use crate::cli::file_check::FileCheckArgs;
use clap::{Args, Subcommand};
#[cfg(not(feature = "link"))]
use no_link::{check_link_file, run_link};
#[cfg(feature = "link")]
use run_link::{check_link_file, run_link};
use std::path::PathBuf;

/// A config file with every key of a link.
pub(in crate::cli) const LINK_EXAMPLE: &str = include_str!("link/link_example.yaml");

/// Connect the daemon of this machine to a NATS broker
///
/// Orchestrators then reach the daemon through the broker, so the machine needs no address and no open
/// port. The link opens no file of a skill, and cannot read the bytes of a tunnel: TLS between
/// orchestrator and daemon runs inside.
///
/// Prints `linked ID` for each environment once the broker passes its dials on and the daemon took a
/// connection. Logs go to stderr. SIGTERM and SIGINT release the environments and stop the link. If
/// another link with the same environment id starts later, this link serves the environment no longer,
/// and claims the environment again once the other link has ended.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_help = "\
Examples:
  caproot link --config /etc/caproot-link/link.yaml
  caproot link check link.yaml    # errors of the file")]
pub struct LinkArgs {
    #[command(subcommand)]
    command: Option<LinkCommand>,
    /// Config file of the link
    #[arg(long, value_name = "FILE", required = true)]
    config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum LinkCommand {
    /// Check the config file of a link, without a connection
    ///
    /// Prints every error with its file, line, column, key and reason, and exits with 78. Without errors,
    /// prints a summary.
    #[command(after_help = "\
Examples:
  caproot link check /etc/caproot-link/link.yaml
  caproot link check link.yaml --output json | jq '.errors[].line'
  caproot config example --link | caproot link check /dev/stdin")]
    Check(FileCheckArgs),
}

/// Checks a file, or runs the link until a signal stops it.
pub async fn run(args: LinkArgs) -> Result<u8, CommandFailure> {
    match (args.command, args.config) {
        (Some(LinkCommand::Check(check)), _) => check_link_file(&check),
        (None, Some(config)) => run_link(&config).await,
        // clap requires one of them.
        (None, None) => Err(CommandFailure::new(exit::USAGE, "--config is missing")),
    }
}
