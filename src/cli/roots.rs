//! `caproot roots`: what the daemon publishes.

use super::args::ConnectionArgs;
use super::exit;
use super::failure::Failure;
use super::output::{Output, print_message, print_table, say};
use super::report;
use super::text::shown;
use crate::endpoint::Env;
use crate::proto::caproot::v1::{ListRootsResponse, RootState, Scope};
use clap::Args;

/// List the roots that the daemon publishes
///
/// The roots go to stdout; what is wrong with one, and a summary, go to stderr. Exits with 1 when a
/// root is not ready.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  caproot roots
  caproot roots --output json | jq '.roots[].selectedCapabilityRoot'   to select them elsewhere")]
pub(super) struct RootsArgs {
    #[command(flatten)]
    connection: ConnectionArgs,
    /// How to print the result
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// Prints the roots.
pub(super) async fn run(args: RootsArgs, env: &Env) -> Result<u8, Failure> {
    let (mut client, _) = args.connection.client(env).await?;
    let answer = client.roots().await?;
    match args.output {
        Output::Text => {
            print_table(["ID", "SCOPE", "STATE"], &rows(&answer))?;
            let mut lines = report::published(&answer);
            if answer.roots.is_empty() {
                lines.push(report::NOTHING_PUBLISHED.to_owned());
            }
            say(&lines);
        }
        Output::Json => print_message(&answer)?,
    }
    let ready = answer.roots.iter().all(|root| root.state() == RootState::Ready);
    Ok(if ready { exit::OK } else { exit::WRONG })
}

fn rows(answer: &ListRootsResponse) -> Vec<[String; 3]> {
    let rows = answer.roots.iter().map(|root| {
        // A newer daemon may know scopes that this client does not.
        let scope = Scope::try_from(root.scope).map_or_else(
            |number| number.0.to_string(),
            |scope| report::stem(scope.as_str_name(), "SCOPE_").to_owned(),
        );
        [shown(&root.id), scope, report::state(root.state(), root.reason)]
    });
    rows.collect()
}
