//! `caproot watch --fleet`: the state of each executor of a fleet, and each change of a state.

use super::progress::MAX_CONCURRENT_TASKS;
use super::screen::StateScreen;
use super::state::{ProbedState, find_state, read_state};
use super::target::{FleetTarget, FleetTargetArgs};
use crate::cli::failure::CommandFailure;
use crate::cli::output::{OutputFormat, write_lines};
use caproot_client::{Client, Fleet, FleetError};
use caproot_core::text::{escape_json, escape_text};
use jiff::{Timestamp, Zoned};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::task::AbortOnDropHandle;

/// Maximum number of states that were not printed yet.
const MAX_QUEUED_STATES: usize = 256;
/// Width of the longest usual state, `WRONG_ENVIRONMENT`.
const STATE_WIDTH: usize = 17;

/// New state of an executor.
struct StateChange {
    environment_id: String,
    /// `None` if the fleet file no longer has the executor.
    state: Option<ProbedState>,
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

/// Prints the states of executors, and each change of a state. Follows changes of the fleet file. Ends
/// with a failure.
pub async fn print_states(
    args: FleetTargetArgs,
    interval: Duration,
    output: OutputFormat,
) -> Result<u8, CommandFailure> {
    let fleet = args.open_fleet().await?;
    let targets = args.find_targets(&fleet).await?;
    let (changes, mut receiver) = mpsc::channel(MAX_QUEUED_STATES);
    let context = Arc::new(WatchContext {
        args,
        interval,
        fleet,
        dials: Semaphore::new(MAX_CONCURRENT_TASKS),
        changes,
    });

    let mut tasks = ExecutorTasks::default();
    let mut screen = match output {
        OutputFormat::Text => StateScreen::open(),
        OutputFormat::Json => None,
    };
    let ids = targets.into_iter().map(|target| target.environment_id);
    let ids: Vec<_> = ids.collect();
    let widths = ids.iter().map(|id| shown_width(id));
    let mut id_width = widths.max().unwrap_or_default();
    start_tasks(&mut tasks, &context, ids);

    let mut reread = tokio::time::interval(interval);
    loop {
        let change = tokio::select! {
            // The context keeps a sender, so there is always another change.
            Some(change) = receiver.recv() => change,
            _ = reread.tick() => {
                // The task of a removed executor ends, unless the command line names the executor.
                tasks.retain(|_, task| !task.is_finished());
                if context.follows_file() {
                    start_tasks(&mut tasks, &context, context.fleet.environment_ids());
                }
                continue;
            }
        };

        id_width = id_width.max(shown_width(&change.environment_id));
        let line = match output {
            OutputFormat::Text => change_line(&change, id_width),
            OutputFormat::Json => change_json(&change)?,
        };
        match &mut screen {
            Some(screen) => {
                let is_forgotten = change.state.is_none() && context.follows_file();
                screen.show_line(change.environment_id, (!is_forgotten).then_some(line));
            }
            None => write_lines(vec![line]).await?,
        }
    }
}

/// Tasks of the watched executors by their environment ids. Dropping a task ends it.
type ExecutorTasks = BTreeMap<String, AbortOnDropHandle<()>>;

/// Starts the tasks of executors that have none.
fn start_tasks(
    tasks: &mut ExecutorTasks,
    context: &Arc<WatchContext>,
    ids: impl IntoIterator<Item = String>,
) {
    for id in ids {
        tasks.entry(id).or_insert_with_key(|id| {
            let task = watch_executor(context.clone(), id.clone());
            AbortOnDropHandle::new(tokio::spawn(task))
        });
    }
}

/// Open connection to an executor, at the address that the file had.
struct WatchedConnection {
    target: FleetTarget,
    client: Client,
}

impl WatchContext {
    /// Asks an executor for its state through the open connection, or through a new one. Returns
    /// `None` if the fleet file no longer has the executor.
    async fn next_state(
        &self,
        environment_id: &str,
        current: &mut Option<WatchedConnection>,
    ) -> Option<ProbedState> {
        let used = current.take();
        let target = match self.args.find_target(&self.fleet, environment_id).await {
            Ok(target) => target,
            Err(FleetError::UnknownEnvironment(_)) => return None,
            Err(error) => {
                let failure = self.args.failure(error, &self.fleet);
                return Some(ProbedState::Failed(failure.into()));
            }
        };

        // An executor that moved is asked at its new address.
        if let Some(mut used) = used
            && used.target.config == target.config
        {
            let state = read_state(&mut used.client, &target).await;
            if !matches!(state, ProbedState::Failed(_)) {
                *current = Some(used);
            }
            return Some(state);
        }

        // The semaphore is never closed.
        let _permit = self.dials.acquire().await;
        let probed = find_state(&target).await;
        *current = probed.connection.map(|open| WatchedConnection {
            target,
            client: open.client,
        });
        Some(probed.state)
    }

    /// Whether the watched executors are those that the fleet file has at each moment.
    fn follows_file(&self) -> bool {
        self.args.environment_ids().is_empty()
    }
}

/// Sends each new state of an executor, until the receiver is gone, or the executor is removed.
async fn watch_executor(context: Arc<WatchContext>, environment_id: String) {
    let mut current: Option<WatchedConnection> = None;
    let mut last: Option<Option<ProbedState>> = None;

    loop {
        let state = context.next_state(&environment_id, &mut current).await;
        let is_same = match (&last, &state) {
            (Some(Some(last)), Some(state)) => last.is_same_as(state),
            (last, state) => last.as_ref() == Some(state),
        };

        if !is_same {
            let notes = last.flatten().zip(state.as_ref());
            let change = StateChange {
                environment_id: environment_id.clone(),
                notes: notes.map_or_else(Vec::new, |(last, state)| change_notes(&last, state)),
                state: state.clone(),
            };
            if context.changes.send(change).await.is_err() {
                return;
            }
        }

        // An executor that the command line names may come back to the file.
        if state.is_none() && context.follows_file() {
            return;
        }
        last = Some(state);
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
        let mut old = before.roots.iter();
        if old.any(|old| {
            old.id == root.id
                && old.state == root.state
                && old.catalog_digest != root.catalog_digest
        }) {
            notes.push(format!("changed catalog of {}", escape_text(&root.id)));
        }
    }
    notes
}

fn state_name(change: &StateChange) -> &'static str {
    change.state.as_ref().map_or("REMOVED", ProbedState::name)
}

/// Returns the number of columns of an id on a terminal.
fn shown_width(environment_id: &str) -> usize {
    escape_text(environment_id).chars().count()
}

fn change_line(change: &StateChange, id_width: usize) -> String {
    let detail = match &change.state {
        Some(ProbedState::Serving(serving)) => {
            let version = escape_text(&serving.description.version);
            let parts = [&[version, serving.root_count()][..], &change.notes].concat();
            parts.join(", ")
        }
        Some(ProbedState::NotServing(_)) | None => String::new(),
        Some(ProbedState::Failed(failure)) => failure.sentence.clone(),
    };

    let time = Zoned::now().strftime("%H:%M:%S");
    let id = escape_text(&change.environment_id);
    let state = state_name(change);
    let line = format!("{time} {id:id_width$}  {state:STATE_WIDTH$}  {detail}");
    line.trim_end().to_owned()
}

fn change_json(change: &StateChange) -> Result<String, CommandFailure> {
    let id = &change.environment_id;
    let mut json = match &change.state {
        Some(state) => state.to_json(id),
        None => json!({ "environmentId": id, "state": state_name(change) }),
    };
    json["time"] = Timestamp::now().to_string().into();

    Ok(escape_json(&serde_json::to_string(&json)?))
}
