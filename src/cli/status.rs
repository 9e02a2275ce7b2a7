//! `caproot status`: whether the daemon serves, and what it says of itself.

use super::args::ConnectionArgs;
use super::exit;
use super::failure::Failure;
use super::output::{Output, print, print_json};
use super::text::{Shown, shown};
use crate::client::json;
use crate::endpoint::Env;
use crate::proto::caproot::v1::{GetExecutorResponse, SandboxStatus};
use clap::Args;
use prost_reflect::{DynamicMessage, ReflectMessage as _};
use serde_json::json;
use tonic_health::pb::health_check_response::ServingStatus;

/// Ask the running daemon how it is
///
/// Exits with 0 only when the daemon is serving.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  caproot status                                        the daemon on this machine
  caproot status --endpoint tcp:127.0.0.1:5000 --timeout 2s
  caproot status --output json | jq .executor.limits")]
pub(super) struct StatusArgs {
    #[command(flatten)]
    connection: ConnectionArgs,
    /// How to print the result
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// Prints health and executor.
pub(super) async fn run(args: StatusArgs, env: &Env) -> Result<u8, Failure> {
    let (mut client, endpoint) = args.connection.client(env).await?;
    let health = client.health().await?;
    let serving = health == ServingStatus::Serving;
    let executor = match client.executor().await {
        Ok(executor) => Some(executor),
        Err(error) if serving => return Err(error.into()),
        // What does not serve need not answer; its health says enough.
        Err(_) => None,
    };
    let dynamic = executor.as_ref().map(json::dynamic).transpose();
    let dynamic = dynamic.map_err(|error| Failure::nonsense(&error))?;
    match args.output {
        Output::Text => {
            let mut rows = vec![
                ("health".to_owned(), health.as_str_name().to_owned()),
                ("endpoint".to_owned(), shown(&endpoint.to_string())),
            ];
            if let (Some(executor), Some(dynamic)) = (&executor, &dynamic) {
                rows.extend(executor_rows(executor, dynamic));
            }
            let widest = rows.iter().map(|(key, _)| key.len()).max().unwrap_or(0);
            print(|stdout| {
                rows.iter().try_for_each(|(key, value)| writeln!(stdout, "{key:widest$}  {value}"))
            })?;
        }
        Output::Json => {
            let mut answer = json!({ "health": health.as_str_name() });
            if let Some(executor) = dynamic {
                let executor = serde_json::to_value(executor);
                answer["executor"] = executor.map_err(|error| Failure::nonsense(&error))?;
            }
            print_json(&answer)?;
        }
    }
    Ok(if serving { exit::OK } else { exit::WRONG })
}

fn executor_rows(
    executor: &GetExecutorResponse,
    dynamic: &DynamicMessage,
) -> Vec<(String, String)> {
    let mut rows = vec![
        ("version".to_owned(), shown(&executor.version)),
        ("environments".to_owned(), shown(&executor.environment_ids.join(", "))),
    ];
    rows.extend(executor.start_time.map(|time| ("started".to_owned(), time.to_string())));
    rows.push((
        "revision".to_owned(),
        format!("{} of epoch {}", executor.revision, Shown(&executor.epoch)),
    ));
    rows.push(("features".to_owned(), shown(&executor.features.join(", "))));
    rows.extend(executor.sandbox.as_ref().map(|s| ("sandbox".to_owned(), sandbox(s))));
    // A daemon of an earlier version does not say.
    if !executor.resolver.is_empty() {
        rows.push(("resolver".to_owned(), shown(&executor.resolver)));
    }
    // By the descriptor, so that a new limit shows up by itself.
    let limits = dynamic.get_field_by_name("limits");
    if let Some(limits) = limits.as_deref().and_then(|value| value.as_message()) {
        for field in limits.descriptor().fields() {
            let value = limits.get_field(&field);
            let number = value.as_u64().or_else(|| value.as_u32().map(u64::from));
            rows.extend(number.map(|number| (field.name().to_owned(), number.to_string())));
        }
    }
    rows
}

fn sandbox(status: &SandboxStatus) -> String {
    let state = status.landlock().as_str_name().trim_start_matches("LANDLOCK_STATE_");
    let mut parts = vec![format!("landlock {}", state.to_lowercase())];
    if status.landlock_abi > 0 {
        let prefixes = if status.prefixes == 1 { "prefix" } else { "prefixes" };
        parts.push(format!("ABI {}", status.landlock_abi));
        parts.push(format!("reads below {} {prefixes}", status.prefixes));
    }
    parts.extend(status.no_new_privs.then(|| "no_new_privs".to_owned()));
    parts.join(", ")
}
