//! Turns of a thread: answers calls until the thread has a terminal status.

use super::drain::{MAX_FAILED_POLLS, POLL_INTERVALS, PollRun};
use super::job::{DispatchContext, run_fallible};
use super::manager::AgentThread;
use super::record::DrainSummary;
use super::{CallDispatcher, DispatchError, RETRY_DELAY};
use caproot_core::sync::Mutex;
use std::fmt;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// How long the end of a turn waits for calls in flight, whose answers the thread does not need any
/// more.
const FINAL_WAIT: Duration = Duration::from_secs(1);

/// Names of the statuses that end a turn: one or several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TerminalStatuses(Vec<String>);

/// Turn that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinishedTurn {
    /// Status that ended the turn.
    pub status: String,
    /// Calls of the turn, without calls that are in flight one second after the end.
    pub drained: DrainSummary,
}

/// Error of a turn. Calls in flight continue, and [`CallDispatcher::handle_until`] resumes the
/// turn. Displays as a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TurnError {
    /// No terminal status was given. Nothing was sent.
    #[error("no terminal status is given")]
    NoTerminal,
    /// The turn was not sent, or the outcome is unknown.
    #[error("the turn was not sent: {0}")]
    NotSent(String),
    /// The thread does not report its status.
    #[error("the thread does not report its status: {0}")]
    Status(String),
    /// Calls cannot be dispatched.
    #[error(transparent)]
    Dispatch(#[from] DispatchError),
    /// The turn did not end in time.
    #[error(
        "no status {expected} within {}; {}",
        humantime::format_duration(*after),
        status
            .as_ref()
            .map_or("no status was reported".to_owned(), |s| format!("the last is {s:?}"))
    )]
    TimedOut {
        /// Statuses that would have ended the turn.
        expected: TerminalStatuses,
        /// Time limit of the turn.
        after: Duration,
        /// Latest status.
        status: Option<String>,
    },
}

impl TerminalStatuses {
    /// Returns whether a status is one of the names. The comparison is exact.
    pub(super) fn contains(&self, status: &str) -> bool {
        self.0.iter().any(|name| name == status)
    }
}

impl From<&str> for TerminalStatuses {
    fn from(name: &str) -> Self {
        Self(vec![name.to_owned()])
    }
}

impl From<String> for TerminalStatuses {
    fn from(name: String) -> Self {
        Self(vec![name])
    }
}

impl<N: Into<String>, const COUNT: usize> From<[N; COUNT]> for TerminalStatuses {
    fn from(names: [N; COUNT]) -> Self {
        Self(names.into_iter().map(Into::into).collect())
    }
}

impl<N: Into<String>> From<Vec<N>> for TerminalStatuses {
    fn from(names: Vec<N>) -> Self {
        Self(names.into_iter().map(Into::into).collect())
    }
}

impl fmt::Display for TerminalStatuses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.0.iter().map(|name| format!("{name:?}")).collect();
        f.write_str(&names.join(" or "))
    }
}

/// Runs `send`, and answers calls until the thread has a terminal status.
pub async fn run_turn(
    dispatcher: &CallDispatcher,
    thread: &dyn AgentThread,
    send: impl Future<Output = Result<(), TurnError>>,
    until: TerminalStatuses,
) -> Result<FinishedTurn, TurnError> {
    if until.0.is_empty() {
        return Err(TurnError::NoTerminal);
    }
    let context = &dispatcher.context;
    context.check_polling()?;

    let mut run = PollRun::new(dispatcher);
    let latest = Mutex::new(None);

    // Calls are answered during the send: `send_turn` may return only at the end of the turn.
    let watch = async {
        send.await?;
        wait_for_terminal_status(context, thread, &until, &latest).await
    };
    let either = async {
        tokio::select! {
            status = watch => status,
            error = run.poll_until_error() => Err(error.into()),
        }
    };
    let after = context.options.turn_timeout;
    let Ok(outcome) = timeout(after, either).await else {
        return Err(TurnError::TimedOut {
            expected: until,
            after,
            status: latest.lock().take(),
        });
    };
    let status = outcome?;

    // Longer calls continue on their tasks.
    drop(timeout(FINAL_WAIT, run.wait_for_all()).await);
    Ok(FinishedTurn {
        status,
        drained: run.drained,
    })
}

/// Waits until the thread has a terminal status. Stores each other status in `latest`.
async fn wait_for_terminal_status(
    context: &DispatchContext,
    thread: &dyn AgentThread,
    until: &TerminalStatuses,
    latest: &Mutex<Option<String>>,
) -> Result<String, TurnError> {
    let mut intervals = POLL_INTERVALS;
    let mut failed = 0;
    loop {
        let status = async { thread.status().await };
        match run_fallible(context.options.manager_timeout, status).await {
            Ok(status) if until.contains(&status) => return Ok(status),
            Ok(status) => {
                failed = 0;
                *latest.lock() = Some(status);
            }
            Err(error) => {
                failed += 1;
                if failed == MAX_FAILED_POLLS {
                    return Err(TurnError::Status(error));
                }
            }
        }

        tokio::select! {
            () = sleep(intervals.next_limit()) => {}
            () = context.call_ended.notified() => {
                intervals.reset();
                sleep(RETRY_DELAY).await;
            }
        }
    }
}
