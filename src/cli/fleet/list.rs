//! `caproot fleet list`: the state of each executor of a fleet.

use super::progress::run_for_each;
use super::state::{ProbedState, find_state};
use super::target::{FleetTarget, FleetTargetArgs};
use crate::cli::exit;
use crate::cli::failure::CommandFailure;
use crate::cli::output::{OutputFormat, print_json, print_stderr, print_table};
use crate::cli::report::count_with_noun;
use caproot_core::text::escape_text;
use clap::Args;
use serde_json::json;

/// List the executors of a fleet file: state, version, roots, age and catalogs
///
/// Prints the executors to stdout. The age is the time since the start of the daemon, by the clock of
/// this machine. `CATALOGS` has the beginning of the catalog digest of each root: executors with equal
/// digests serve equal skills and plugins. Executors that cannot be used, roots that are not ready and a summary go to stderr.
/// Exits with 1 if an executor does not serve or a published root is not ready.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  caproot fleet list fleet.yaml
  caproot fleet list fleet.yaml build-farm
  caproot fleet list fleet.yaml --output json | jq '.executors[].version'")]
pub struct FleetListArgs {
    #[command(flatten)]
    target: FleetTargetArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,
}

/// Executor with its state.
type ListedExecutor = (FleetTarget, ProbedState);

/// Prints the state of each executor.
pub async fn run(args: FleetListArgs) -> Result<u8, CommandFailure> {
    let fleet = args.target.open_fleet().await?;
    let targets = args.target.find_targets(&fleet).await?;
    let find = async |target: FleetTarget| {
        let (_, state) = find_state(&target).await;
        (target, state)
    };
    let listed = run_for_each(targets, find).await;
    match args.output {
        OutputFormat::Text => print_text(&listed)?,
        OutputFormat::Json => {
            let executors = listed.iter().map(|(target, state)| {
                let mut json = state.to_json(&target.environment_id);
                json["endpoint"] = target.config.endpoint.to_string().into();
                json
            });
            print_json(&json!({ "executors": executors.collect::<Vec<_>>() }))?;
        }
    }
    let is_well = listed.iter().all(|(_, state)| state.is_well());
    Ok(if is_well {
        exit::OK
    } else {
        exit::PROBLEMS_FOUND
    })
}

fn print_text(listed: &[ListedExecutor]) -> Result<(), CommandFailure> {
    let rows: Vec<_> = listed.iter().map(list_row).collect();
    print_table(
        [
            "ENVIRONMENT",
            "STATE",
            "VERSION",
            "ROOTS",
            "AGE",
            "CATALOGS",
        ],
        &rows,
    )?;
    let mut lines = Vec::new();
    let mut serving = 0;
    for (target, state) in listed {
        match state {
            ProbedState::Serving(executor) => {
                serving += 1;
                lines.extend(executor.problem_lines(&target.environment_id));
            }
            ProbedState::NotServing(_) => {}
            ProbedState::Failed(failure) => lines.push(failure.to_line(&target.environment_id)),
        }
    }
    lines.push(format!(
        "{serving} of {} serving",
        count_with_noun(listed.len(), "executor")
    ));
    print_stderr(&lines);
    Ok(())
}

fn list_row((target, state): &ListedExecutor) -> [String; 6] {
    let missing = || "-".to_owned();
    let (version, roots, age, catalogs) = match state {
        ProbedState::Serving(serving) => (
            escape_text(&serving.description.version),
            serving.root_count(),
            serving.age().unwrap_or_else(missing),
            serving.short_digests(),
        ),
        _ => (missing(), missing(), missing(), missing()),
    };
    [
        escape_text(&target.environment_id),
        state.name().to_owned(),
        version,
        roots,
        age,
        catalogs,
    ]
}
