//! `caproot status`: health and description of the daemon.

use crate::cli::args::ConnectionArgs;
use crate::cli::ask::report::count_with_noun;
use crate::cli::color::{paint, state_style};
use crate::cli::exit;
use crate::cli::failure::CommandFailure;
use crate::cli::output::{OutputFormat, print_json, supports_color, write_stdout};
use caproot_client::json;
use caproot_core::net::endpoint::ProcessEnv;
use caproot_core::proto::caproot::v1::{
    CatalogStats, ConfigRejection, ConfigStatus, GetExecutorResponse, RootStateCounts,
    SandboxStatus, TrustMode, TrustStatus, WatchStatus,
};
use caproot_core::text::{EscapedText, escape_text};
use clap::Args;
use prost_reflect::{DynamicMessage, ReflectMessage as _};
use serde_json::json;
use std::fmt::Write as _;
use std::io;
use tonic_health::pb::health_check_response::ServingStatus;

/// Key of the line with the health.
const HEALTH: &str = "health";

/// Show the state of the running daemon
///
/// Exits with 0 only if the daemon is serving.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  caproot status                                # the daemon on this machine
  caproot status --limits                       # with the limits
  caproot status --endpoint tcp:127.0.0.1:5000 --timeout 2s
  caproot status --output json | jq .executor.limits")]
pub struct StatusArgs {
    /// Also show the limits; json always has them
    #[arg(long)]
    limits: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    output: OutputFormat,
    #[command(flatten, next_help_heading = "Connection options")]
    connection: ConnectionArgs,
}

/// Line of the output.
struct StatusRow {
    key: String,
    value: String,
}

/// Prints health and description.
pub async fn run(args: StatusArgs, env: &ProcessEnv) -> Result<u8, CommandFailure> {
    let mut connected = args.connection.connect_unchecked(env).await?;
    let health = connected.client.check_health().await?;
    let is_serving = health == ServingStatus::Serving;

    let executor = match connected.client.get_executor().await {
        Ok(executor) => Some(executor),
        Err(error) if is_serving => return Err(error.into()),
        // A daemon that is not serving may reject the call. Its health is enough.
        Err(_) => None,
    };
    let mut dynamic = None;
    if let Some(executor) = &executor {
        connected.check_description(executor)?;
        dynamic = Some(json::to_dynamic(executor)?);
    }

    match args.output {
        OutputFormat::Text => {
            let endpoint = escape_text(&connected.config.endpoint.to_string());
            let mut rows = vec![
                status_row(HEALTH, health.as_str_name()),
                status_row("endpoint", endpoint),
            ];
            rows.extend(executor.iter().flat_map(executor_rows));
            if args.limits {
                rows.extend(dynamic.iter().flat_map(limit_rows));
            }
            print_rows(&rows)?;
        }
        OutputFormat::Json => {
            let mut answer = json!({ "health": health.as_str_name() });
            if let Some(executor) = dynamic {
                answer["executor"] = serde_json::to_value(executor)?;
            }
            print_json(&answer)?;
        }
    }
    Ok(exit::code_for_result(is_serving))
}

fn status_row(key: &str, value: impl Into<String>) -> StatusRow {
    StatusRow {
        key: key.to_owned(),
        value: value.into(),
    }
}

fn print_rows(rows: &[StatusRow]) -> Result<(), CommandFailure> {
    let widest = rows.iter().map(|row| row.key.len()).max().unwrap_or(0);
    let is_colored = supports_color(&io::stdout());
    write_stdout(|stdout| {
        for StatusRow { key, value } in rows {
            let value = if is_colored && key == HEALTH {
                paint(value, state_style(value))
            } else {
                value.clone()
            };
            writeln!(stdout, "{key:widest$}  {value}")?;
        }
        Ok(())
    })
}

fn executor_rows(executor: &GetExecutorResponse) -> Vec<StatusRow> {
    let mut version = executor.version.clone();
    if !executor.build.is_empty() {
        let _ = write!(version, " ({})", executor.build);
    }
    let mut rows = vec![
        status_row("version", escape_text(&version)),
        status_row(
            "environments",
            escape_text(&executor.environment_ids.join(", ")),
        ),
    ];

    if let Some(time) = executor.start_time {
        rows.push(status_row("started", time.to_string()));
    }
    let epoch = EscapedText(&executor.epoch);
    let revision = format!("{} of epoch {epoch}", executor.revision);
    rows.push(status_row("revision", revision));
    if let Some(stats) = &executor.catalog_stats {
        rows.push(status_row("catalog", catalog_text(stats)));
    }
    if let Some(watch) = &executor.watch {
        rows.push(status_row("watches", watch_text(watch)));
    }
    for line in executor.config.iter().flat_map(config_lines) {
        rows.push(status_row("config", line));
    }

    for line in executor.trust.iter().flat_map(trust_lines) {
        rows.push(status_row("trust", line));
    }

    let features = executor.features.join(", ");
    rows.push(status_row("features", escape_text(&features)));
    if let Some(sandbox) = &executor.sandbox {
        rows.push(status_row("sandbox", sandbox_text(sandbox)));
    }
    // Older daemons do not set the field.
    if !executor.resolver.is_empty() {
        rows.push(status_row("resolver", escape_text(&executor.resolver)));
    }
    rows
}

/// Reads the limits by the descriptor, so that new limits are printed, too.
fn limit_rows(dynamic: &DynamicMessage) -> Vec<StatusRow> {
    let mut rows = Vec::new();
    let limits = dynamic.get_field_by_name("limits");
    if let Some(limits) = limits.as_deref().and_then(|value| value.as_message()) {
        for field in limits.descriptor().fields() {
            let value = limits.get_field(&field);
            let number = value.as_u64().or_else(|| value.as_u32().map(u64::from));
            rows.extend(number.map(|number| status_row(field.name(), number.to_string())));
        }
    }
    rows
}

fn catalog_text(stats: &CatalogStats) -> String {
    let published = stats.published_roots.unwrap_or_default();
    let selected = stats.selected_roots.unwrap_or_default();
    let mut parts = vec![roots_text(
        &published,
        stats.unrequested_roots,
        "published root",
    )];
    if selected != RootStateCounts::default() {
        parts.push(roots_text(&selected, 0, "selected root"));
    }

    let counts = [
        (stats.skills, "skill"),
        (stats.errors, "error"),
        (stats.warnings, "warning"),
    ];
    parts.extend(counts.map(|(count, noun)| count_with_noun(count as usize, noun)));
    parts.join(", ")
}

/// Describes roots, such as `2 published roots (1 unavailable)`.
fn roots_text(counts: &RootStateCounts, unrequested: u32, noun: &str) -> String {
    let RootStateCounts {
        ready,
        pending,
        unavailable,
    } = *counts;
    let mut states = Vec::new();
    states.extend((pending > 0).then(|| format!("{pending} pending")));
    states.extend((unavailable > 0).then(|| format!("{unavailable} unavailable")));
    states.extend((unrequested > 0).then(|| format!("{unrequested} not requested yet")));

    let total = ready + pending + unavailable + unrequested;
    let roots = count_with_noun(total as usize, noun);
    if states.is_empty() {
        roots
    } else {
        format!("{roots} ({})", states.join(", "))
    }
}

/// Describes the watches, and the fix if they are nearly used up.
fn watch_text(watch: &WatchStatus) -> String {
    if watch.roots == 0 {
        return "none; no root was requested yet".to_owned();
    }

    let WatchStatus {
        backend,
        watches_used: used,
        watches_limit: allowed,
        ..
    } = watch;

    let mut line = format!("{used} by {}", EscapedText(backend));
    if *allowed > 0 {
        let _ = write!(line, ", {allowed} allowed");
    }
    if watch.polling_roots > 0 {
        let polled = count_with_noun(watch.polling_roots as usize, "root");
        let _ = write!(line, ", {polled} polled");
    }

    if *allowed > 0 && *used > allowed / 5 * 4 {
        line.push_str("; raise fs.inotify.max_user_watches before the watches are used up");
    }
    line
}

/// Describes the applied configuration, keys that wait for a restart, and the last rejection.
fn config_lines(status: &ConfigStatus) -> Vec<String> {
    let mut lines = vec![
        status
            .load_time
            .map(|time| format!("read {time}"))
            .unwrap_or_default(),
    ];

    if !status.restart_required.is_empty() {
        let keys = status.restart_required.join(", ");
        lines.push(escape_text(&format!("needs a restart: {keys}")));
    }

    let rejection = status.last_rejection.as_ref();
    lines.extend(rejection.map(|rejection| rejection_line("file", rejection)));
    lines
}

/// Describes the lock in force, and the last new lock if it was rejected.
fn trust_lines(status: &TrustStatus) -> Vec<String> {
    let TrustStatus {
        approved,
        changed,
        unknown,
        lock_skills,
        lock_plugins,
        approved_plugins,
        changed_plugins,
        unknown_plugins,
        ..
    } = status;
    let mode = match status.mode() {
        TrustMode::Hide => "hide",
        TrustMode::Warn | TrustMode::Unspecified => "warn",
    };
    let entries = count_with_noun(*lock_skills as usize, "approved version");
    let mut line = format!("{mode}: {approved} approved, {changed} changed, {unknown} unknown; ");
    if lock_plugins + changed_plugins + unknown_plugins > 0 {
        let _ = write!(
            line,
            "plugins: {approved_plugins} approved, {changed_plugins} changed, {unknown_plugins} \
             unknown; lock with {entries} and {lock_plugins} of plugins"
        );
    } else {
        let _ = write!(line, "lock with {entries}");
    }
    if let Some(time) = status.load_time {
        let _ = write!(line, ", read {time}");
    }
    if !status.signer.is_empty() {
        let _ = write!(line, ", signed by {}", status.signer);
    }
    let mut lines = vec![escape_text(&line)];

    if *approved == 0 && *lock_skills > 0 {
        lines.push(format!("0 of {lock_skills} approved skills exist"));
    }
    let rejection = status.last_rejection.as_ref();
    lines.extend(rejection.map(|rejection| rejection_line("lock", rejection)));
    lines
}

/// Describes a rejected config file or lock.
fn rejection_line(subject: &str, rejection: &ConfigRejection) -> String {
    let mut line = format!("a newer {subject} was REJECTED ");
    if let Some(time) = rejection.time {
        let _ = write!(line, "{time}");
    }
    if !rejection.errors.is_empty() {
        let _ = write!(line, ", errors at {}", rejection.errors.join(", "));
    }
    line.push_str("; see the daemon's log");
    escape_text(&line)
}

fn sandbox_text(status: &SandboxStatus) -> String {
    let state = status
        .landlock()
        .as_str_name()
        .trim_start_matches("LANDLOCK_STATE_");
    let mut parts = vec![format!("landlock {}", state.to_lowercase())];
    if status.landlock_abi > 0 {
        let dirs = if status.readable_dirs == 1 {
            "directory"
        } else {
            "directories"
        };
        parts.push(format!("ABI {}", status.landlock_abi));
        parts.push(format!("reads below {} {dirs}", status.readable_dirs));
    }
    parts.extend(status.no_new_privs.then(|| "no_new_privs".to_owned()));
    parts.join(", ")
}
