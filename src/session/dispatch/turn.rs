//! A turn of a thread: sends it, and works off the calls that it makes until the thread has a status that
//! ends it.

use super::manager::Thread;
use super::record::Drained;
use super::work::{Shared, within};
use super::{BETWEEN_ATTEMPTS, DispatchError, Dispatcher, drain::Run};
use crate::session::lock;
use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use serde_json::Value;
use std::fmt;
use std::sync::Mutex;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// The longest wait between two polls.
const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// How many polls in a row may fail, each with all its attempts.
const MAX_FAILED_POLLS: usize = 10;
/// How long is waited at the end for calls that are under way, which nobody needs any more.
const SETTLE: Duration = Duration::from_secs(1);

/// The names of statuses that end a turn: one name, or several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terminal(Vec<String>);

/// A turn that came to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// The status that ended it.
    pub status: String,
    /// What came of its calls. A call that is under way a second after the end is not counted.
    pub drained: Drained,
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
        expected: Terminal,
        /// How long was waited.
        after: Duration,
        /// The last status that was seen.
        status: Option<String>,
    },
}

impl Terminal {
    /// Whether this is one of the names, letter by letter.
    #[must_use]
    pub fn has(&self, status: &str) -> bool {
        self.0.iter().any(|name| name == status)
    }
}

impl From<&str> for Terminal {
    fn from(name: &str) -> Self {
        Self(vec![name.to_owned()])
    }
}

impl From<String> for Terminal {
    fn from(name: String) -> Self {
        Self(vec![name])
    }
}

impl<N: Into<String>, const COUNT: usize> From<[N; COUNT]> for Terminal {
    fn from(names: [N; COUNT]) -> Self {
        Self(names.into_iter().map(Into::into).collect())
    }
}

impl<N: Into<String>> From<Vec<N>> for Terminal {
    fn from(names: Vec<N>) -> Self {
        Self(names.into_iter().map(Into::into).collect())
    }
}

impl fmt::Display for Terminal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.0.iter().map(|name| format!("{name:?}")).collect();
        f.write_str(&names.join(" or "))
    }
}

impl Dispatcher {
    /// Sends a turn, and works off calls from that moment on until the thread has one of these statuses.
    /// A status counts once `send` returned, so that the end of an earlier turn is not taken for this
    /// one's. The turn is sent once, whatever happens.
    pub async fn send_and_handle(
        &self,
        thread: &dyn Thread,
        turn: &Value,
        until: impl Into<Terminal>,
    ) -> Result<Finished, TurnError> {
        let send = async {
            let sent = within(self.shared.options.turn_within, async { thread.send(turn).await });
            sent.await
                .unwrap_or_else(|strayed| Err(strayed.to_string()))
                .map_err(TurnError::NotSent)
        };
        self.turn(thread, send, until.into()).await
    }

    /// Works off calls until the thread has one of these statuses; for a turn that was sent already.
    pub async fn handle_until(
        &self,
        thread: &dyn Thread,
        until: impl Into<Terminal>,
    ) -> Result<Finished, TurnError> {
        self.turn(thread, std::future::ready(Ok(())), until.into()).await
    }

    async fn turn(
        &self,
        thread: &dyn Thread,
        send: impl Future<Output = Result<(), TurnError>>,
        until: Terminal,
    ) -> Result<Finished, TurnError> {
        if until.0.is_empty() {
            return Err(TurnError::NoTerminal);
        }
        self.may_poll().map_err(TurnError::Dispatch)?;
        let (mut run, last) = (Run::default(), Mutex::new(None));
        let after = self.shared.options.turn_within;
        let watch = async {
            send.await?;
            ended(&self.shared, thread, &until, &last).await
        };
        let both = async {
            tokio::select! {
                status = watch => status,
                why = self.work_off(&mut run) => Err(TurnError::Dispatch(why)),
            }
        };
        let Ok(status) = timeout(after, both).await else {
            let status = lock(&last).take();
            return Err(TurnError::TimedOut { expected: until, after, status });
        };
        let status = status?;
        // Those that take longer go on by themselves.
        drop(timeout(SETTLE, run.all_ended()).await);
        Ok(Finished { status, drained: run.drained })
    }

    /// Works off what comes, until that cannot be done.
    async fn work_off(&self, run: &mut Run) -> DispatchError {
        let (mut waits, mut failed) = (waits(), 0);
        loop {
            run.failed.clear();
            self.send_kept(run).await;
            match self.look(run).await {
                Ok(look) => {
                    failed = 0;
                    if look.begun > 0 {
                        waits = self::waits();
                    }
                }
                Err(DispatchError::Pending(_) | DispatchError::NotTaken { .. })
                    if failed + 1 < MAX_FAILED_POLLS =>
                {
                    failed += 1;
                }
                Err(why) => return why,
            }
            // An answer often brings the next call.
            if run.done_within(waits.next().unwrap_or(LONGEST_WAIT)).await {
                waits = self::waits();
            }
        }
    }
}

/// Waits until the thread has one of these statuses; leaves the last one that was seen.
async fn ended(
    shared: &Shared,
    thread: &dyn Thread,
    until: &Terminal,
    last: &Mutex<Option<String>>,
) -> Result<String, TurnError> {
    let (mut waits, mut failed) = (waits(), 0);
    loop {
        let status = within(shared.options.manager_within, async { thread.status().await });
        match status.await.unwrap_or_else(|strayed| Err(strayed.to_string())) {
            Ok(status) if until.has(&status) => return Ok(status),
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
            () = sleep(waits.next().unwrap_or(LONGEST_WAIT)) => {}
            () = shared.ended.notified() => {
                waits = self::waits();
                sleep(BETWEEN_ATTEMPTS).await;
            }
        }
    }
}

/// The waits between polls, each twice as long as the one before.
fn waits() -> ExponentialBackoff {
    ExponentialBuilder::new()
        .with_min_delay(BETWEEN_ATTEMPTS)
        .with_max_delay(LONGEST_WAIT)
        .without_max_times()
        .build()
}
