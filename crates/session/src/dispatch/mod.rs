//! Dispatch of the tool calls that a manager has pending for a session. Calls are pushed by the
//! program or polled from the manager. A handler, such as a session, answers each call once, and
//! the answer is submitted until the manager has it.
//!
//! Concurrent calls, times, unsent answers and remembered ids are limited by [`DispatchOptions`].
//!
//! With the feature `manager`, `HttpManager` is a manager over HTTP. This program has a manager
//! whose calls are in memory:
//!
//! ```
//! use caproot_session::dispatch::{CallDispatcher, CallKind, CallManager, DispatchOptions, PendingCall, PendingPage, RequestId, SubmitOutcome};
//! use caproot_session::{SessionOptions, ToolResult};
//! use futures_util::future::BoxFuture;
//! use serde_json::json;
//! use std::sync::{Arc, Mutex};
//! # mod demo { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/support/demo_session.rs")); }
//!
//! #[derive(Default)]
//! struct Platform {
//!     pending: Mutex<Vec<PendingCall>>,
//!     answers: Mutex<Vec<String>>,
//! }
//!
//! impl CallManager for Platform {
//!     fn list_pending<'a>(
//!         &'a self,
//!         _token: Option<&'a str>,
//!         limit: usize,
//!     ) -> BoxFuture<'a, Result<PendingPage, String>> {
//!         let calls = self.pending.lock().unwrap().iter().take(limit).cloned().collect();
//!         Box::pin(async { Ok(PendingPage { calls, ..PendingPage::default() }) })
//!     }
//!
//!     fn submit_result<'a>(
//!         &'a self,
//!         request_id: &'a RequestId,
//!         result: &'a ToolResult,
//!     ) -> BoxFuture<'a, SubmitOutcome> {
//!         self.pending.lock().unwrap().retain(|call| call.request_id != *request_id);
//!         self.answers.lock().unwrap().push(result.json.clone());
//!         Box::pin(async { SubmitOutcome::Accepted })
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let session = demo::start_demo_session(&SessionOptions::default()).await;
//! let platform = Arc::new(Platform::default());
//! let tool = CallKind::Tool { name: "skills.list".to_owned(), arguments: json!({}) };
//! let request_id = "call-1".try_into()?;
//! let call = PendingCall { request_id, session_id: "thread-1".to_owned(), kind: tool };
//! platform.pending.lock().unwrap().push(call);
//!
//! let options = DispatchOptions::default();
//! let dispatcher = CallDispatcher::new("thread-1", platform.clone(), Arc::new(session), options);
//! assert_eq!(dispatcher.drain().await?.accepted, 1);
//! assert!(platform.answers.lock().unwrap()[0].contains("triage-logs"));
//! # Ok(())
//! # }
//! ```
//!
//! # Delivery
//!
//! A tool runs once for a request id, although the platform repeats the call or loses the answer. If a
//! call comes again, the next [`CallDispatcher::drain`] or [`CallDispatcher::dispatch_call`] submits
//! only the answer again.
//!
//! The dispatcher forgets the done id that was longest not seen, if it remembers more than
//! [`DispatchOptions::max_remembered`]. It never forgets an id that is in flight, has an unsent answer
//! or has a waiting caller. An id that comes again after it was forgotten is a new call: its tool runs
//! again, and the manager accepts or rejects the answer.
//!
//! If a tool panics, exceeds its time limit or returns more than 8,192 bytes, the model gets the error
//! [`ToolErrorCode::NoResult`](super::ToolErrorCode::NoResult). Between polls a turn waits 50 ms, and
//! then twice as long each time, up to 2 s, until something happens. Ten failed polls in a row end the
//! turn.

mod call;
mod drain;
#[cfg(feature = "manager")]
mod http_manager;
mod job;
mod manager;
mod record;
mod session_thread;
#[cfg(test)]
mod tests;
mod tracker;
mod turn;

pub use call::{CallKind, PendingCall, RequestId, RequestIdError};
pub use drain::DrainError;
#[cfg(feature = "manager")]
pub use http_manager::{
    CallListener, HttpManager, HttpManagerConfig, HttpManagerError, ListenError, ManagerPaths,
};
pub use manager::{AgentThread, CallHandler, CallManager, PendingPage, SubmitOutcome};
pub use record::{AnswerOrigin, DispatchRecord, DrainSummary};
pub use session_thread::{SentPrompt, SessionThread};
pub use tracker::DeliveryMode;
pub use turn::{FinishedTurn, TerminalStatuses, TurnError};

use caproot_core::sync::Mutex;
use drain::PollRun;
use job::{DispatchContext, DispatchJob, run_fallible};
use serde_json::Value;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::JoinSet;
use tracker::{CallStatus, CallTracker};

/// Attempts to submit an answer or to fetch a page.
const MAX_ATTEMPTS: usize = 3;
/// First delay between two polls. The random delay before the second attempt is at most twice as
/// long, and the delay before the third attempt at most four times.
const RETRY_DELAY: Duration = Duration::from_millis(50);
/// Limit of a tool's name in a record, in bytes.
const MAX_TOOL_NAME_BYTES: usize = 256;

/// Limits of a [`CallDispatcher`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DispatchOptions {
    /// Calls in flight; 16 by default.
    pub max_in_flight: usize,
    /// Ids of done calls that are remembered; 10,000 by default.
    pub max_remembered: usize,
    /// Unsent answers and calls in flight; 1,000 by default, and at least `max_in_flight`.
    pub max_unsent: usize,
    /// Requested calls of a page; 256 by default.
    pub page_size: usize,
    /// Time limit of a tool; 2 min by default. Code that blocks its thread cannot be stopped.
    pub answer_timeout: Duration,
    /// Time limit of each call of the manager; 10 s by default.
    pub manager_timeout: Duration,
    /// Time limit of a turn; 10 min by default.
    pub turn_timeout: Duration,
}

/// Outcome of [`CallDispatcher::dispatch_call`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DispatchOutcome {
    /// The call belongs to another session, or is not a tool call.
    Ignored,
    /// The call is in flight or done.
    AlreadyKnown,
    /// The call was answered.
    Ended(DispatchRecord),
}

/// Error of a dispatch. Displays as a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DispatchError {
    /// The dispatcher is in the other delivery mode.
    #[error("calls are {0} here; call `reset_mode` to change that")]
    Mode(DeliveryMode),
    /// The limit of unsent answers is reached.
    #[error("the manager did not take {kept} answers, which is the limit; last error: {reason}")]
    TooManyUnsent {
        /// Number of unsent answers.
        kept: usize,
        /// Error of the manager for the oldest answer.
        reason: String,
    },
    /// The manager does not list the pending calls.
    #[error("the manager does not list the pending calls: {0}")]
    Pending(String),
    /// The pages of the manager exceed a limit or do not end.
    #[error("invalid pages of the manager: {0}")]
    InvalidPages(&'static str),
}

/// Dispatcher of the pending calls of one session. Every method takes `&self`. Needs a tokio
/// runtime. Dropping the dispatcher cancels the calls in flight; they stay pending at the manager.
pub struct CallDispatcher {
    session_id: String,
    context: Arc<DispatchContext>,
    /// Each call in flight holds a permit.
    permits: Arc<Semaphore>,
    tasks: Mutex<JoinSet<()>>,
}

/// Outcome of [`CallDispatcher::start_call`].
enum StartOutcome {
    Known(CallStatus),
    Started(oneshot::Receiver<DispatchRecord>),
}

/// Waiter for a permit with a call. The tracker does not forget the id before the guard is dropped.
struct WaiterGuard<'a> {
    context: &'a DispatchContext,
    request_id: RequestId,
}

impl Drop for WaiterGuard<'_> {
    fn drop(&mut self) {
        self.context.tracker().remove_waiter(&self.request_id);
    }
}

impl Default for DispatchOptions {
    fn default() -> Self {
        Self {
            max_in_flight: 16,
            max_remembered: 10_000,
            max_unsent: 1_000,
            page_size: 256,
            answer_timeout: Duration::from_mins(2),
            manager_timeout: Duration::from_secs(10),
            turn_timeout: Duration::from_mins(10),
        }
    }
}

impl CallDispatcher {
    /// Returns a dispatcher for the calls of a session, by the id that the manager has for the
    /// session.
    #[must_use]
    pub fn new(
        session_id: impl Into<String>,
        manager: Arc<dyn CallManager>,
        handler: Arc<dyn CallHandler>,
        options: DispatchOptions,
    ) -> Self {
        let max_in_flight = options
            .max_in_flight
            .clamp(1, Semaphore::MAX_PERMITS.min(u32::MAX as usize));
        let page_size = options.page_size.max(1);
        let options = DispatchOptions {
            max_in_flight,
            page_size,
            ..options
        };

        let remembered = NonZeroUsize::new(options.max_remembered).unwrap_or(NonZeroUsize::MIN);
        let tracker = CallTracker::new(remembered, options.max_unsent.max(max_in_flight));

        Self {
            session_id: session_id.into(),
            context: Arc::new(DispatchContext {
                manager,
                handler,
                options,
                tracker: Mutex::new(tracker),
                call_ended: Notify::new(),
            }),
            permits: Arc::new(Semaphore::new(max_in_flight)),
            tasks: Mutex::default(),
        }
    }

    /// Returns whether a call is a tool call of this session. Takes no lock.
    #[must_use]
    pub fn matches(&self, call: &PendingCall) -> bool {
        call.session_id == self.session_id && matches!(call.kind, CallKind::Tool { .. })
    }

    /// Answers a pushed call and waits for the end. From then on the delivery mode is
    /// [`DeliveryMode::Pushed`]. If the future is dropped before the call has a permit, push the
    /// call again; a started call continues on a task. A known call is not answered again, but an
    /// unsent answer is submitted again.
    pub async fn dispatch_call(&self, call: PendingCall) -> Result<DispatchOutcome, DispatchError> {
        let Some((request_id, job)) = self.job_for_call(call) else {
            return Ok(DispatchOutcome::Ignored);
        };
        let mode = DeliveryMode::Pushed;
        self.context.tracker().set_mode(mode)?;

        match self.start_call(mode, request_id, job).await? {
            StartOutcome::Known(_) => Ok(DispatchOutcome::AlreadyKnown),
            // A task ends without a record only if the runtime shuts down.
            StartOutcome::Started(ended) => Ok(ended
                .await
                .map_or(DispatchOutcome::AlreadyKnown, DispatchOutcome::Ended)),
        }
    }

    /// Answers everything that is pending: polls until a poll finds no new call, and waits for the
    /// end of all calls. Unsent answers are submitted first. An answer that the manager does not
    /// take is kept and reported, and delays no other call; neither does a call that hangs. If the
    /// future is dropped, calls in flight continue, and the next drain does the rest.
    pub async fn drain(&self) -> Result<DrainSummary, DrainError> {
        PollRun::new(self).drain().await
    }

    /// Submits the unsent answers again, in both delivery modes, and waits for the outcomes.
    pub async fn resend_unsent(&self) -> DrainSummary {
        PollRun::new(self).resend().await
    }

    /// Sends a turn, once.
    async fn send_turn(&self, thread: &dyn AgentThread, turn: &Value) -> Result<(), TurnError> {
        let send = async { thread.send_turn(turn).await };
        run_fallible(self.context.options.turn_timeout, send)
            .await
            .map_err(TurnError::NotSent)
    }

    /// Sends a turn, and answers calls until the thread has one of the terminal statuses. A status
    /// counts once `send_turn` has returned, so the end of an earlier turn is not taken for the end
    /// of this turn. The turn is sent once.
    pub async fn send_and_handle(
        &self,
        thread: &dyn AgentThread,
        turn: &Value,
        until: impl Into<TerminalStatuses>,
    ) -> Result<FinishedTurn, TurnError> {
        turn::run_turn(self, thread, self.send_turn(thread, turn), until.into()).await
    }

    /// Answers calls until the thread has one of the terminal statuses, for a turn that was sent
    /// before.
    pub async fn handle_until(
        &self,
        thread: &dyn AgentThread,
        until: impl Into<TerminalStatuses>,
    ) -> Result<FinishedTurn, TurnError> {
        turn::run_turn(self, thread, std::future::ready(Ok(())), until.into()).await
    }

    /// Resets the delivery mode, so that calls can be pushed or polled. Calls in flight continue,
    /// and remembered ids stay.
    pub fn reset_mode(&self) {
        self.context.tracker().mode = None;
    }

    /// Returns the delivery mode, once a call was delivered.
    #[must_use]
    pub fn mode(&self) -> Option<DeliveryMode> {
        self.context.tracker().mode
    }

    /// Returns how many ids are remembered: in flight, with an unsent answer, or done.
    #[must_use]
    pub fn remembered_count(&self) -> usize {
        self.context.tracker().len()
    }

    /// Waits until no call is in flight.
    pub async fn wait_idle(&self) {
        let all = u32::try_from(self.context.options.max_in_flight).unwrap_or(u32::MAX);
        // The semaphore is never closed.
        drop(self.permits.acquire_many(all).await);
    }

    /// Returns the job of a tool call of this session.
    fn job_for_call(&self, call: PendingCall) -> Option<(RequestId, DispatchJob)> {
        match call.kind {
            CallKind::Tool {
                name: tool,
                arguments,
            } if call.session_id == self.session_id => {
                let job = DispatchJob::Answer { tool, arguments };
                Some((call.request_id, job))
            }
            _ => None,
        }
    }

    /// Starts a new call. If calls are pushed, submits the unsent answer of a known call again.
    /// Waits for a permit before the tracker changes, so that dropping the future loses nothing.
    async fn start_call(
        &self,
        mode: DeliveryMode,
        request_id: RequestId,
        job: DispatchJob,
    ) -> Result<StartOutcome, DispatchError> {
        self.context.tracker().add_waiter(&request_id);
        let _waiter = WaiterGuard {
            context: &self.context,
            request_id: request_id.clone(),
        };

        // A known call ends here, and does not wait for a permit.
        match self.context.tracker().look_up(&request_id) {
            CallStatus::Unsent if mode == DeliveryMode::Pushed => {}
            CallStatus::New => {}
            status => return Ok(StartOutcome::Known(status)),
        }

        // Each step looks the call up again: it may have ended during the wait for a permit.
        loop {
            let Some(permit) = self.acquire_permit().await else {
                return Ok(StartOutcome::Known(CallStatus::InFlight));
            };
            let resent = {
                let mut tracker = self.context.tracker();
                tracker.set_mode(mode)?;
                match tracker.look_up(&request_id) {
                    CallStatus::New => {
                        // At the limit of unsent answers, the oldest one must be submitted first.
                        let oldest = tracker.is_full().then(|| tracker.oldest_unsent());
                        let Some(oldest) = oldest.flatten() else {
                            tracker.start_call(&request_id);
                            drop(tracker);
                            let ended = self.spawn_job(permit, request_id, job);
                            return Ok(StartOutcome::Started(ended));
                        };
                        oldest
                    }
                    CallStatus::Unsent if mode == DeliveryMode::Pushed => request_id.clone(),
                    status => return Ok(StartOutcome::Known(status)),
                }
            };

            let is_own = resent == request_id;
            let Some(ended) = self.start_resend(permit, resent) else {
                continue;
            };
            if is_own {
                return Ok(StartOutcome::Started(ended));
            }
            self.check_room(ended).await?;
        }
    }

    /// Waits for the submission of an unsent answer. Returns an error if the answer stays unsent.
    async fn check_room(
        &self,
        ended: oneshot::Receiver<DispatchRecord>,
    ) -> Result<(), DispatchError> {
        match ended.await {
            Ok(DispatchRecord {
                outcome: SubmitOutcome::Failed(reason),
                ..
            }) => {
                let kept = self.context.tracker().unsent().len();
                Err(DispatchError::TooManyUnsent { kept, reason })
            }
            _ => Ok(()),
        }
    }

    async fn acquire_permit(&self) -> Option<OwnedSemaphorePermit> {
        // The semaphore is never closed.
        self.permits.clone().acquire_owned().await.ok()
    }

    /// Submits an unsent answer again. Returns `None` if the answer is not kept any more.
    fn start_resend(
        &self,
        permit: OwnedSemaphorePermit,
        request_id: RequestId,
    ) -> Option<oneshot::Receiver<DispatchRecord>> {
        let unsent = self.context.tracker().start_resend(&request_id)?;
        Some(self.spawn_job(permit, request_id, DispatchJob::Resend(unsent)))
    }

    /// Spawns the job of a call that the tracker has as in flight.
    fn spawn_job(
        &self,
        permit: OwnedSemaphorePermit,
        request_id: RequestId,
        job: DispatchJob,
    ) -> oneshot::Receiver<DispatchRecord> {
        let (sender, ended) = oneshot::channel();
        let context = self.context.clone();

        let mut tasks = self.tasks.lock();
        // The set keeps the result of each ended task until the task is joined.
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            let record = context.run_job(request_id, job).await;
            // The receiver may have been dropped.
            drop(sender.send(record));
            drop(permit);
        });
        ended
    }
}
