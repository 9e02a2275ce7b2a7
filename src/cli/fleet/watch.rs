//! `caproot fleet watch`: the state of each executor of a fleet, and each change of a state.

use super::progress::MAX_CONCURRENT_TASKS;
use super::state::{ProbedState, find_state, read_state};
use super::target::{FleetTarget, FleetTargetArgs};
use crate::cli::args::parse_timeout;
use crate::cli::exit;
use crate::cli::failure::CommandFailure;
use crate::cli::output::{OutputFormat, write_lines};
use crate::cli::signals::run_until_signal_or_closed_stdout;
use crate::client::{Client, Fleet};
use crate::model::text::{escape_json, escape_text};
use clap::Args;
use jiff::{Timestamp, Zoned};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

/// Maximum number of states that were not printed yet.
const MAX_QUEUED_STATES: usize = 256;
/// Width of the longest usual state, `WRONG_ENVIRONMENT`.
const STATE_WIDTH: usize = 17;

/// Show the state of each executor of a fleet file, and each change
///
/// Prints one line per executor, and one line per change: the time, the environment id, the state,
/// and the version and roots or the reason. A restart of a daemon and a changed catalog are changes, too. Asks each executor
/// again after an interval. SIGINT and SIGTERM end the command with exit code 0.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  caproot fleet watch fleet.yaml
  caproot fleet watch fleet.yaml build-farm --interval 1s
  caproot fleet watch fleet.yaml --output json | jq -c '.state'")]
pub struct FleetWatchArgs {
    #[command(flatten)]
    target: FleetTargetArgs,
    /// Time between two questions to an executor, such as 1s or 1m
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = parse_timeout)]
    interval: Duration,
    /// Output format; json prints one object per line
    #[arg(long, value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,
}

/// New state of an executor.
struct StateChange {
    environment_id: String,
    state: ProbedState,
    /// Changes that the state does not show, such as a restart of the daemon.
    notes: Vec<String>,
}

/// Data that the tasks of all executors share.
struct WatchContext {
    args: FleetTargetArgs,
    interval: Duration,
    fleet: Fleet,
    /// Permits to connect. Executors that do not answer keep a permit until their timeout, and delay
    /// only new connections.
    dials: Semaphore,
    changes: mpsc::Sender<StateChange>,
}

/// Prints changes until a signal comes or stdout is closed.
pub async fn run(args: FleetWatchArgs) -> Result<u8, CommandFailure> {
    run_until_signal_or_closed_stdout(print_changes(args)).await
}

async fn print_changes(args: FleetWatchArgs) -> Result<u8, CommandFailure> {
    let fleet = args.target.open_fleet().await?;
    let targets = args.target.find_targets(&fleet).await?;
    let ids = targets.iter().map(|target| escape_text(&target.environment_id).chars().count());
    let id_width = ids.max().unwrap_or(0);
    let (changes, mut receiver) = mpsc::channel(MAX_QUEUED_STATES);
    let context = Arc::new(WatchContext {
        args: args.target,
        interval: args.interval,
        fleet,
        dials: Semaphore::new(MAX_CONCURRENT_TASKS),
        changes,
    });
    // Dropping the set ends the tasks.
    let mut tasks = JoinSet::new();
    for target in targets {
        tasks.spawn(watch_executor(context.clone(), target));
    }
    drop(context);
    while let Some(change) = receiver.recv().await {
        let line = match args.output {
            OutputFormat::Text => change_line(&change, id_width),
            OutputFormat::Json => change_json(&change)?,
        };
        write_lines(vec![line]).await?;
    }
    Err(CommandFailure::new(exit::INTERNAL, "the tasks of all executors ended"))
}

impl WatchContext {
    /// Asks an executor for its state through the open connection, or through a new one.
    async fn next_state(
        &self,
        target: &mut FleetTarget,
        client: &mut Option<Client>,
    ) -> ProbedState {
        if let Some(mut open) = client.take() {
            let state = read_state(&mut open, target).await;
            *client = (!matches!(state, ProbedState::Failed(_))).then_some(open);
            return state;
        }
        // The semaphore is never closed.
        let _permit = self.dials.acquire().await;
        // The executor may have moved since the last connection.
        match self.args.find_target(&self.fleet, &target.environment_id).await {
            Ok(found) => *target = found,
            Err(failure) => return ProbedState::Failed(failure.into()),
        }
        let (opened, state) = find_state(target).await;
        *client = opened;
        state
    }
}

/// Sends each new state of an executor, until the receiver is gone.
async fn watch_executor(context: Arc<WatchContext>, mut target: FleetTarget) {
    let mut client: Option<Client> = None;
    let mut last: Option<ProbedState> = None;
    loop {
        let state = context.next_state(&mut target, &mut client).await;
        if !last.as_ref().is_some_and(|last| last.is_same_as(&state)) {
            let change = StateChange {
                environment_id: target.environment_id.clone(),
                notes: last.as_ref().map_or_else(Vec::new, |last| change_notes(last, &state)),
                state: state.clone(),
            };
            if context.changes.send(change).await.is_err() {
                return;
            }
            last = Some(state);
        }
        tokio::time::sleep(context.interval).await;
    }
}

/// Describes the differences of two serving states that their lines do not show.
fn change_notes(before: &ProbedState, after: &ProbedState) -> Vec<String> {
    let (ProbedState::Serving(before), ProbedState::Serving(after)) = (before, after) else {
        return Vec::new();
    };
    let mut notes = Vec::new();
    if before.description.epoch != after.description.epoch {
        notes.push("restarted".to_owned());
    }
    for root in &after.roots {
        let old = before.roots.iter().find(|old| old.id == root.id);
        if old
            .is_some_and(|old| old.state == root.state && old.catalog_digest != root.catalog_digest)
        {
            notes.push(format!("changed catalog of {}", escape_text(&root.id)));
        }
    }
    notes
}

fn change_line(change: &StateChange, id_width: usize) -> String {
    let detail = match &change.state {
        ProbedState::Serving(serving) => {
            let mut parts = vec![escape_text(&serving.description.version), serving.root_count()];
            parts.extend(change.notes.iter().cloned());
            parts.join(", ")
        }
        ProbedState::NotServing(_) => String::new(),
        ProbedState::Failed(failure) => failure.sentence.clone(),
    };
    let (time, id) = (Zoned::now().strftime("%H:%M:%S"), escape_text(&change.environment_id));
    let line = format!("{time} {id:id_width$}  {:STATE_WIDTH$}  {detail}", change.state.name());
    line.trim_end().to_owned()
}

fn change_json(change: &StateChange) -> Result<String, CommandFailure> {
    let mut json = change.state.to_json(&change.environment_id);
    json["time"] = Timestamp::now().to_string().into();
    let line =
        serde_json::to_string(&json).map_err(|error| CommandFailure::invalid_response(&error))?;
    Ok(escape_json(&line))
}
