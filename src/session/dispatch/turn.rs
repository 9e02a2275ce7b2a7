//! A turn of a thread: sends it, and works off the calls that it makes until the thread has a status that
//! ends it.

use super::job::{DispatchContext, run_guarded};
use super::manager::AgentThread;
use super::record::DrainSummary;
use super::{CallDispatcher, DispatchError, RETRY_DELAY, drain::PollRun};
use crate::session::lock;
use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use serde_json::Value;
use std::fmt;
use std::sync::Mutex;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// The longest wait between two polls.
const MAX_POLL_DELAY: Duration = Duration::from_secs(2);
/// How many polls in a row may fail, each with all its attempts.
const MAX_FAILED_POLLS: usize = 10;
/// How long is waited at the end for calls that are under way, which nobody needs any more.
const FINAL_WAIT: Duration = Duration::from_secs(1);

/// The names of statuses that end a turn: one name, or several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TerminalStatuses(Vec<String>);

/// A turn that came to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinishedTurn {
    /// The status that ended it.
    pub status: String,
    /// What came of its calls. A call that is under way a second after the end is not counted.
    pub drained: DrainSummary,
}

/// Why a turn's end was not seen. Calls that are under way go on, and
/// [`handle_until`](Dispatcher::handle_until) takes the turn up again. Displays as a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TurnError {
    /// No status is named that would end it. Nothing was sent.
    #[error("no status is named that ends a turn")]
    NoTerminal,
    /// The turn could not be sent, or nobody knows whether it was.
    #[error("the turn was not sent: {0}")]
    NotSent(String),
    /// The thread's status cannot be had.
    #[error("the thread's status cannot be had: {0}")]
    Status(String),
    /// Calls are not worked off.
    #[error(transparent)]
    Dispatch(DispatchError),
    /// Too long.
    #[error(
        "no status {expected} within {}; {}",
        humantime::format_duration(*after),
        status.as_ref().map_or("no status was had".to_owned(), |s| format!("the last is {s:?}"))
    )]
    TimedOut {
        /// Which would have ended it.
        expected: TerminalStatuses,
        /// How long was waited.
        after: Duration,
        /// The last status that was seen.
        status: Option<String>,
    },
}

impl TerminalStatuses {
    /// Whether this is one of the names, letter by letter.
    #[must_use]
    pub fn contains(&self, status: &str) -> bool {
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

impl CallDispatcher {
    /// Sends a turn, and works off calls from that moment on until the thread has one of these statuses.
    /// A status counts once `send` returned, so that the end of an earlier turn is not taken for this
    /// one's. The turn is sent once, whatever happens.
    pub async fn send_and_handle(
        &self,
        thread: &dyn AgentThread,
        turn: &Value,
        until: impl Into<TerminalStatuses>,
    ) -> Result<FinishedTurn, TurnError> {
        let send = async {
            let sent = run_guarded(self.context.options.turn_timeout, async {
                thread.send_turn(turn).await
            });
            sent.await
                .unwrap_or_else(|strayed| Err(strayed.to_string()))
                .map_err(TurnError::NotSent)
        };
        self.run_turn(thread, send, until.into()).await
    }

    /// Works off calls until the thread has one of these statuses; for a turn that was sent already.
    pub async fn handle_until(
        &self,
        thread: &dyn AgentThread,
        until: impl Into<TerminalStatuses>,
    ) -> Result<FinishedTurn, TurnError> {
        self.run_turn(thread, std::future::ready(Ok(())), until.into()).await
    }

    async fn run_turn(
        &self,
        thread: &dyn AgentThread,
        send: impl Future<Output = Result<(), TurnError>>,
        until: TerminalStatuses,
    ) -> Result<FinishedTurn, TurnError> {
        if until.0.is_empty() {
            return Err(TurnError::NoTerminal);
        }
        self.check_polling().map_err(TurnError::Dispatch)?;
        let (mut run, last) = (PollRun::default(), Mutex::new(None));
        let after = self.context.options.turn_timeout;
        let watch = async {
            send.await?;
            wait_for_terminal_status(&self.context, thread, &until, &last).await
        };
        let both = async {
            tokio::select! {
                status = watch => status,
                why = self.poll_calls(&mut run) => Err(TurnError::Dispatch(why)),
            }
        };
        let Ok(status) = timeout(after, both).await else {
            let status = lock(&last).take();
            return Err(TurnError::TimedOut { expected: until, after, status });
        };
        let status = status?;
        // Those that take longer go on by themselves.
        drop(timeout(FINAL_WAIT, run.wait_for_all()).await);
        Ok(FinishedTurn { status, drained: run.drained })
    }

    /// Works off what comes, until that cannot be done.
    async fn poll_calls(&self, run: &mut PollRun) -> DispatchError {
        let (mut waits, mut failed) = (poll_backoff(), 0);
        loop {
            run.failed.clear();
            self.resend_unsent(run).await;
            match self.poll_pending(run).await {
                Ok(look) => {
                    failed = 0;
                    if look.started > 0 {
                        waits = poll_backoff();
                    }
                }
                Err(DispatchError::Pending(_) | DispatchError::TooManyUnsent { .. })
                    if failed + 1 < MAX_FAILED_POLLS =>
                {
                    failed += 1;
                }
                Err(why) => return why,
            }
            // An answer often brings the next call.
            if run.wait_for_done(waits.next().unwrap_or(MAX_POLL_DELAY)).await {
                waits = poll_backoff();
            }
        }
    }
}

/// Waits until the thread has one of these statuses; leaves the last one that was seen.
async fn wait_for_terminal_status(
    shared: &DispatchContext,
    thread: &dyn AgentThread,
    until: &TerminalStatuses,
    last: &Mutex<Option<String>>,
) -> Result<String, TurnError> {
    let (mut waits, mut failed) = (poll_backoff(), 0);
    loop {
        let status = run_guarded(shared.options.manager_timeout, async { thread.status().await });
        match status.await.unwrap_or_else(|strayed| Err(strayed.to_string())) {
            Ok(status) if until.contains(&status) => return Ok(status),
            Ok(status) => {
                failed = 0;
                *lock(last) = Some(status);
            }
            Err(why) => {
                failed += 1;
                if failed == MAX_FAILED_POLLS {
                    return Err(TurnError::Status(why));
                }
            }
        }
        tokio::select! {
            () = sleep(waits.next().unwrap_or(MAX_POLL_DELAY)) => {}
            () = shared.call_ended.notified() => {
                waits = poll_backoff();
                sleep(RETRY_DELAY).await;
            }
        }
    }
}

/// The waits between polls, each twice as long as the one before.
fn poll_backoff() -> ExponentialBackoff {
    ExponentialBuilder::new()
        .with_min_delay(RETRY_DELAY)
        .with_max_delay(MAX_POLL_DELAY)
        .without_max_times()
        .build()
}
