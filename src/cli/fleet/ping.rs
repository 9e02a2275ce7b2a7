//! `caproot fleet ping`: connects to each executor of a fleet.

use super::probe::{ProbeFailure, ProbedExecutor, probe_executor};
use super::progress::run_for_each;
use super::target::{FleetTarget, FleetTargetArgs};
use crate::cli::exit;
use crate::cli::failure::CommandFailure;
use crate::cli::output::{OutputFormat, print_json, print_stderr, print_table};
use crate::cli::report::count_with_noun;
use caproot_core::text::escape_text;
use clap::Args;
use serde_json::{Value, json};
use std::time::Duration;

/// Connect to each executor of a fleet file
///
/// Prints each executor with the time of its connection and of one call. An executor that cannot be
/// used has the reason on stderr. Asks up to 64 executors at once. Exits with 1 if an executor does
/// not answer, or has another environment than the file says.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  caproot fleet ping fleet.yaml
  caproot fleet ping fleet.yaml build-farm --timeout 2s
  caproot fleet ping fleet.yaml --output json | jq '.executors[] | .error'")]
pub struct FleetPingArgs {
    #[command(flatten)]
    target: FleetTargetArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,
}

/// Result of one executor.
struct PingResult {
    target: FleetTarget,
    outcome: Result<ProbedExecutor, ProbeFailure>,
}

/// Prints the result of each executor.
pub async fn run(args: FleetPingArgs) -> Result<u8, CommandFailure> {
    let fleet = args.target.open_fleet().await?;
    let targets = args.target.find_targets(&fleet).await?;
    let ping = async |target: FleetTarget| {
        let outcome = probe_executor(&target).await;
        PingResult { target, outcome }
    };
    let results = run_for_each(targets, ping).await;
    let answered = results
        .iter()
        .filter(|result| result.outcome.is_ok())
        .count();
    match args.output {
        OutputFormat::Text => {
            let rows: Vec<_> = results.iter().map(ping_row).collect();
            print_table(
                ["ENVIRONMENT", "RESULT", "CONNECT", "CALL", "ENDPOINT"],
                &rows,
            )?;
            let failed = |result: &PingResult| {
                let failure = result.outcome.as_ref().err()?;
                Some(failure.to_line(&result.target.environment_id))
            };
            let mut lines: Vec<_> = results.iter().filter_map(failed).collect();
            let total = count_with_noun(results.len(), "executor");
            lines.push(format!("{answered} of {total} answered"));
            print_stderr(&lines);
        }
        OutputFormat::Json => {
            let executors: Vec<_> = results.iter().map(ping_json).collect();
            print_json(&json!({
                "executors": executors, "answered": answered, "total": results.len(),
            }))?;
        }
    }
    Ok(if answered == results.len() {
        exit::OK
    } else {
        exit::PROBLEMS_FOUND
    })
}

fn ping_row(result: &PingResult) -> [String; 5] {
    let id = escape_text(&result.target.environment_id);
    let endpoint = escape_text(&result.target.config.endpoint.to_string());
    match &result.outcome {
        Ok(probed) => {
            let [connect, call] = [probed.connect_time, probed.round_trip].map(milliseconds);
            [
                id,
                "OK".to_owned(),
                format!("{connect:.1} ms"),
                format!("{call:.1} ms"),
                endpoint,
            ]
        }
        Err(failure) => [
            id,
            failure.code.to_owned(),
            "-".to_owned(),
            "-".to_owned(),
            endpoint,
        ],
    }
}

fn ping_json(result: &PingResult) -> Value {
    let mut json = json!({
        "environmentId": result.target.environment_id,
        "endpoint": result.target.config.endpoint.to_string(),
        "ok": result.outcome.is_ok(),
    });
    match &result.outcome {
        Ok(probed) => {
            json["connectMs"] = milliseconds(probed.connect_time).into();
            json["callMs"] = milliseconds(probed.round_trip).into();
            json["version"] = probed.description.version.as_str().into();
        }
        Err(failure) => {
            json["error"] = json!({ "code": failure.code, "message": failure.sentence });
        }
    }
    json
}

/// Returns a time in milliseconds with one decimal.
fn milliseconds(span: Duration) -> f64 {
    (span.as_secs_f64() * 10_000.0).round() / 10.0
}
