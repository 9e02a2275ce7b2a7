//! `caproot fleet list`: the state of each executor of a fleet.

use super::progress::run_for_each;
use super::state::{ProbedState, find_state};
use super::target::{FleetTarget, FleetTargetArgs};
use crate::cli::ask::report::count_with_noun;
use crate::cli::exit;
use crate::cli::failure::CommandFailure;
use crate::cli::output::{OutputFormat, print_json, print_stderr, print_table};
use caproot_core::text::escape_text;
use clap::Args;
use serde_json::{Value, json};
use std::time::Duration;

/// List the executors of a fleet file: state, version, connect time, roots, age and catalogs
///
/// Prints the executors to stdout. `CONNECT` is the time until the connection was open, with TLS. The
/// age is the time since the start of the daemon, by the clock of this machine. `CATALOGS` has the
/// beginning of the catalog digest of each root: executors with equal digests serve equal skills and
/// plugins. Executors that cannot be used, roots that are not ready and a summary go to stderr. Asks up
/// to 64 executors at once. Exits with 1 if an executor does not serve, has another environment than the
/// file says, or has a published root that is not ready.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  caproot fleet list fleet.yaml
  caproot fleet list fleet.yaml build-farm --timeout 2s
  caproot fleet list fleet.yaml --output json | jq '.executors[].connectMs'")]
pub struct FleetListArgs {
    #[command(flatten)]
    target: FleetTargetArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,
}

/// Executor with its state.
struct ListedExecutor {
    target: FleetTarget,
    /// `None` if there was no connection to an executor that has the environment.
    connect_time: Option<Duration>,
    state: ProbedState,
}

/// Prints the state of each executor.
pub async fn run(args: FleetListArgs) -> Result<u8, CommandFailure> {
    let fleet = args.target.open_fleet().await?;
    let targets = args.target.find_targets(&fleet).await?;
    let listed = run_for_each(targets, list_executor).await;

    match args.output {
        OutputFormat::Text => print_text(&listed)?,
        OutputFormat::Json => {
            let executors: Vec<_> = listed.iter().map(ListedExecutor::to_json).collect();
            print_json(&json!({ "executors": executors }))?;
        }
    }

    let is_well = listed.iter().all(|executor| executor.state.is_well());
    Ok(exit::code_for_result(is_well))
}

async fn list_executor(target: FleetTarget) -> ListedExecutor {
    let probed = find_state(&target).await;
    ListedExecutor {
        target,
        connect_time: probed.connection.map(|open| open.connect_time),
        state: probed.state,
    }
}

fn print_text(listed: &[ListedExecutor]) -> Result<(), CommandFailure> {
    let head = [
        "ENVIRONMENT",
        "STATE",
        "VERSION",
        "CONNECT",
        "ROOTS",
        "AGE",
        "CATALOGS",
    ];
    let rows: Vec<_> = listed.iter().map(ListedExecutor::to_row).collect();
    print_table(&head, &rows)?;

    let mut lines = Vec::new();
    let mut serving = 0;
    for ListedExecutor { target, state, .. } in listed {
        match state {
            ProbedState::Serving(executor) => {
                serving += 1;
                lines.extend(executor.problem_lines(&target.environment_id));
            }
            ProbedState::NotServing(_) => {}
            ProbedState::Failed(failure) => lines.push(failure.to_line(&target.environment_id)),
        }
    }
    let total = count_with_noun(listed.len(), "executor");
    lines.push(format!("{serving} of {total} serving"));
    print_stderr(&lines);
    Ok(())
}

impl ListedExecutor {
    fn to_row(&self) -> [String; 7] {
        let connect = self.connect_time.map(milliseconds);
        let connect = connect.map(|time| format!("{time:.1} ms"));
        let [version, roots, age, catalogs] = match &self.state {
            ProbedState::Serving(serving) => [
                Some(escape_text(&serving.description.version)),
                Some(serving.root_count()),
                serving.age(),
                Some(serving.short_digests()),
            ],
            ProbedState::NotServing(_) | ProbedState::Failed(_) => [None, None, None, None],
        };

        let id = escape_text(&self.target.environment_id);
        let state = self.state.name().to_owned();
        let cells = [
            Some(id),
            Some(state),
            version,
            connect,
            roots,
            age,
            catalogs,
        ];
        cells.map(|cell| cell.unwrap_or_else(|| "-".to_owned()))
    }

    fn to_json(&self) -> Value {
        let mut json = self.state.to_json(&self.target.environment_id);
        json["endpoint"] = self.target.config.endpoint.to_string().into();
        if let Some(connect_time) = self.connect_time {
            json["connectMs"] = milliseconds(connect_time).into();
        }
        json
    }
}

/// Returns a time in milliseconds with one decimal.
fn milliseconds(span: Duration) -> f64 {
    (span.as_secs_f64() * 10_000.0).round() / 10.0
}
