//! `caproot roots`: the published roots.

use super::report;
use crate::cli::args::ConnectionArgs;
use crate::cli::exit;
use crate::cli::failure::CommandFailure;
use crate::cli::output::{OutputFormat, print_message, print_stderr, print_table};
use caproot_core::net::endpoint::ProcessEnv;
use caproot_core::proto::caproot::v1::{ListRootsResponse, RootState, Scope};
use caproot_core::text::escape_text;
use clap::Args;

/// List the published roots of the daemon
///
/// Prints the roots to stdout. Problems and a summary go to stderr. Exits with 1 if a root is not
/// ready.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  caproot roots
  caproot roots --output json | jq '.roots[].selectedCapabilityRoot'")]
pub struct RootsArgs {
    /// Output format
    #[arg(long, value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,
    #[command(flatten, next_help_heading = "Connection options")]
    connection: ConnectionArgs,
}

/// Prints the roots.
pub async fn run(args: RootsArgs, env: &ProcessEnv) -> Result<u8, CommandFailure> {
    let mut executor = args.connection.connect(env).await?;
    let answer = executor.client.list_roots().await?;

    match args.output {
        OutputFormat::Text => {
            print_table(&["ID", "SCOPE", "STATE"], &published_root_rows(&answer))?;
            let mut lines = report::roots_report(&answer);
            if answer.roots.is_empty() {
                lines.push(report::NOTHING_PUBLISHED.to_owned());
            }
            print_stderr(&lines);
        }
        OutputFormat::Json => print_message(&answer)?,
    }

    let mut roots = answer.roots.iter();
    let is_ready = roots.all(|root| root.state() == RootState::Ready);
    Ok(exit::code_for_result(is_ready))
}

fn published_root_rows(answer: &ListRootsResponse) -> Vec<[String; 3]> {
    let rows = answer.roots.iter().map(|root| {
        // A newer daemon may have scopes that this client does not know.
        let scope = Scope::try_from(root.scope).map_or_else(
            |number| number.0.to_string(),
            |scope| report::strip_enum_prefix(scope.as_str_name(), "SCOPE_").to_owned(),
        );
        [
            escape_text(&root.id),
            scope,
            report::root_state_text(root.state(), root.reason),
        ]
    });
    rows.collect()
}
