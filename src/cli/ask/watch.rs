//! `caproot watch`: every change of the skills below roots, until a signal comes, the reader of
//! stdout is gone or the daemon rejects the watch. `caproot watch --fleet`: every change of the state of an executor.

use crate::cli::args::{ProductArgs, TargetArgs, parse_timeout};
use crate::cli::ask::report::enum_value_name;
use crate::cli::changes::ChangeReporter;
use crate::cli::failure::{CommandFailure, CommandResult as _};
use crate::cli::fleet::target::FleetTargetArgs;
use crate::cli::fleet::watch::print_states;
use crate::cli::output::{OutputFormat, print_stderr, write_lines};
use crate::cli::signals::run_until_signal_or_closed_stdout;
use caproot_client::{CallError, MirrorSelection, MirrorStream, WatchMessage, json};
use caproot_core::net::endpoint::ProcessEnv;
use caproot_core::proto::caproot::v1::watch_skills_response::Event;
use caproot_core::proto::caproot::v1::{ResetReason, SkillView, WatchSkillsResponse};
use caproot_core::text::{escape_json, escape_text};
use clap::Args;
use jiff::Zoned;
use std::error::Error as _;
use std::time::Duration;

/// Show every change of skills and plugins, or of executors
///
/// Prints one line per change: the time, + for added, ~ for changed or - for removed, the name and
/// handle of the skill or plugin, and the change or the reason of the removal. A line for a root
/// with a new state, and for a new diagnostic, starts with !. A line with = means that all changes
/// so far are printed. A lost connection is reported on stderr, and the watch reconnects by itself.
/// SIGINT and SIGTERM end the watch with exit code 0.
///
/// With --fleet and without --environment-id, prints one line per executor of the fleet file, and one line
/// per change: the time, the environment id, the state, and the version and roots or the reason. On a
/// terminal, a change replaces the line of its executor. A restart of a daemon and a changed catalog are
/// changes, too. Asks each executor again after an interval, and follows changes of the file: an executor
/// that the file no longer has is REMOVED.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  caproot watch                                 # every published root
  caproot watch --root ./skills                 # a directory
  caproot watch --selected thread-start.json    # roots that a platform selected
  caproot watch --output json | jq -c .delta.removed
  caproot watch --fleet fleet.yaml              # executors of a fleet file
  caproot watch --fleet fleet.yaml build-farm --interval 1s")]
pub struct WatchArgs {
    /// With --fleet: executors to show, by their environment ids [default: every executor of the file]
    #[arg(
        value_name = "ENVIRONMENT_ID",
        requires = "fleet",
        conflicts_with = "environment_id"
    )]
    environment_ids: Vec<String>,
    /// With --fleet: time between two questions to an executor, such as 1s or 1m
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "5s",
        value_parser = parse_timeout,
        requires = "fleet",
        conflicts_with = "environment_id"
    )]
    interval: Duration,
    #[command(flatten)]
    product: ProductArgs,
    /// Show bookmarks, too: the daemon sends a bookmark if nothing changed for a while
    #[arg(long)]
    bookmarks: bool,
    /// Output format; json prints one object per line
    #[arg(long, value_enum, default_value_t)]
    output: OutputFormat,
    #[command(flatten)]
    target: TargetArgs,
}

/// Prints changes until a signal comes, stdout is closed or the watch fails.
pub async fn run(args: WatchArgs, env: &ProcessEnv) -> Result<u8, CommandFailure> {
    // Before the first line, so that a reader of the line can stop the command properly.
    run_until_signal_or_closed_stdout(print_changes(args, env)).await
}

async fn print_changes(args: WatchArgs, env: &ProcessEnv) -> Result<u8, CommandFailure> {
    if let Some(file) = args.target.connection.whole_fleet() {
        let target = FleetTargetArgs::new(file, args.environment_ids);
        return print_states(target, args.interval, args.output).await;
    }

    let (client, roots) = args.target.open(env).await?;
    let selection = MirrorSelection {
        product: args.product.product,
        // Only the full view has plugins.
        view: SkillView::Full,
        ..MirrorSelection::new(roots)
    };
    let mut stream = MirrorStream::start(&client, &selection);
    let mut reporter = ChangeReporter::new(args.bookmarks);
    let mut outage = OutageReporter::default();

    loop {
        let event = match stream.next().await? {
            WatchMessage::Lost { cause, .. } => {
                outage.report_lost(&cause);
                continue;
            }
            WatchMessage::Event(event) => *event,
        };
        outage.report_reconnected(&event);

        let is_bookmark = matches!(event.event, Some(Event::Bookmark(_)));
        let lines = match args.output {
            OutputFormat::Text => {
                let update = stream.apply_event(event).or_invalid_response()?;
                let changes = update
                    .iter()
                    .flat_map(|update| reporter.report_update(update));
                let now = Zoned::now().strftime("%H:%M:%S").to_string();
                changes.map(|change| format!("{now} {change}")).collect()
            }
            OutputFormat::Json if is_bookmark && !args.bookmarks => continue,
            OutputFormat::Json => {
                let line = serde_json::to_string(&json::to_limited_dynamic(&event)?)?;
                vec![escape_json(&line)]
            }
        };
        write_lines(lines).await?;
    }
}

/// State of a lost connection.
#[derive(Default)]
struct OutageReporter {
    last_message: Option<String>,
}

impl OutageReporter {
    /// Reports the cause of the loss, once for each cause.
    fn report_lost(&mut self, cause: &CallError) {
        let sentence = match cause {
            // A status without a source is from the daemon, and its text is the cause.
            CallError::Status(status) if status.source().is_some() => {
                "connection lost; reconnecting".to_owned()
            }
            cause => format!("{}; reconnecting", escape_text(&cause.to_string())),
        };
        if self.last_message.as_ref() != Some(&sentence) {
            print_stderr(&[format!("caproot: {sentence}")]);
            self.last_message = Some(sentence);
        }
    }

    /// Reports how the watch continues after a loss.
    fn report_reconnected(&mut self, event: &WatchSkillsResponse) {
        if self.last_message.take().is_none() {
            return;
        }

        let how = match &event.event {
            Some(Event::Reset(reset)) => {
                let reason =
                    enum_value_name(reset.reason, ResetReason::as_str_name, "RESET_REASON_");
                format!("the stream starts from the whole state ({reason})")
            }
            _ => "resumed without a gap".to_owned(),
        };

        print_stderr(&[format!("caproot: reconnected; {how}")]);
    }
}
