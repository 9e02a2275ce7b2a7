//! Works off the calls that wait at a manager for a session's answers: takes them as they are handed in,
//! or asks for them; has each answered once; and sends each answer until the manager has it. Leaves
//! answering to whoever implements [`Answers`], such as a session, and the wire to [`Manager`].
//!
//! Everything is bounded: calls at once, time, answers that are kept, ids that are remembered.

mod call;
mod drain;
mod job;
mod manager;
mod record;
#[cfg(test)]
mod tests;
mod tracker;
mod turn;

pub use call::{CallKind, MAX_REQUEST_ID_BYTES, PendingCall, RequestId, RequestIdError};
pub use drain::{DrainError, MAX_PAGE_CALLS, MAX_PAGES};
pub use manager::{
    AgentThread, CallHandler, CallManager, MAX_PAGE_TOKEN_BYTES, PendingPage, SubmitOutcome,
};
pub use record::{AnswerOrigin, DispatchRecord, DrainSummary, MAX_FAILURES};
pub use tracker::DeliveryMode;
pub use turn::{FinishedTurn, TerminalStatuses, TurnError};

use crate::session::lock;
use job::{DispatchContext, DispatchJob};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::JoinSet;
use tracker::{CallStatus, CallTracker};

/// How often an answer is sent, or a page asked for.
pub const MAX_ATTEMPTS: usize = 3;
/// How long is waited between these attempts.
pub const RETRY_DELAY: Duration = Duration::from_millis(50);
/// The most bytes of a tool's name in a record.
const MAX_TOOL_NAME_BYTES: usize = 256;

/// The bounds of a dispatcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DispatchOptions {
    /// How many calls are worked on at once; 16 by default.
    pub max_in_flight: usize,
    /// How many done ids are remembered; 10,000 by default.
    pub max_remembered: usize,
    /// How many answers are kept that the manager did not take, with the calls under way; 1,000 by
    /// default, at least `at_once`.
    pub max_unsent: usize,
    /// How many calls a page is to have; 256 by default.
    pub page_size: usize,
    /// How long a tool may take; 2 min by default. Code that blocks its thread cannot be stopped.
    pub answer_timeout: Duration,
    /// How long each attempt may take that asks something of the manager; 10 s by default.
    pub manager_timeout: Duration,
    /// How long a turn may take; 10 min by default.
    pub turn_timeout: Duration,
}

/// What came of a call that was handed in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DispatchOutcome {
    /// It is another session's, or asks for no tool.
    Ignored,
    /// It is under way, or done.
    AlreadyKnown,
    /// It was answered.
    Ended(DispatchRecord),
}

/// Why calls are not worked off. Displays as a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DispatchError {
    /// Calls come the other way.
    #[error("calls are {0} here; they can come in another way only after `reset`")]
    Mode(DeliveryMode),
    /// As many answers are kept as may be.
    #[error(
        "the manager did not take {kept} answers, and as many are kept at most; at last: {why}"
    )]
    TooManyUnsent {
        /// How many are kept.
        kept: usize,
        /// What the manager said to the oldest.
        why: String,
    },
    /// The manager does not say what is pending.
    #[error("the manager does not say what is pending: {0}")]
    Pending(String),
    /// The manager's pages break their bounds.
    #[error("the manager's pages make no sense: {0}")]
    InvalidPages(&'static str),
}

/// Works off the pending calls of one session. Every method takes `&self`. Needs a tokio runtime, and
/// stops what is under way when it is dropped; the manager has these calls still.
pub struct CallDispatcher {
    session_id: String,
    context: Arc<DispatchContext>,
    /// As many as calls may be worked on at once; who works on one has one.
    permits: Arc<Semaphore>,
    tasks: Mutex<JoinSet<()>>,
}

/// What is to come of a call that was offered.
enum StartOutcome {
    Known(CallStatus),
    Started(oneshot::Receiver<DispatchRecord>),
}

/// Somebody who waits for a turn with a call; until this is dropped, its id is not forgotten.
struct WaiterGuard<'a> {
    shared: &'a DispatchContext,
    request: RequestId,
}

impl<'a> WaiterGuard<'a> {
    fn new(shared: &'a DispatchContext, request: &RequestId) -> Self {
        shared.tracker().add_waiter(request);
        Self { shared, request: request.clone() }
    }
}

impl Drop for WaiterGuard<'_> {
    fn drop(&mut self) {
        self.shared.tracker().remove_waiter(&self.request);
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
    /// Has the calls that are this session's, by the id that the manager has for it, answered.
    #[must_use]
    pub fn new(
        session: impl Into<String>,
        manager: Arc<dyn CallManager>,
        answers: Arc<dyn CallHandler>,
        options: DispatchOptions,
    ) -> Self {
        let at_once = options.max_in_flight.clamp(1, Semaphore::MAX_PERMITS.min(u32::MAX as usize));
        let options = DispatchOptions {
            max_in_flight: at_once,
            page_size: options.page_size.max(1),
            ..options
        };
        let remembered = NonZeroUsize::new(options.max_remembered).unwrap_or(NonZeroUsize::MIN);
        let memory = Mutex::new(CallTracker::new(remembered, options.max_unsent.max(at_once)));
        let shared = DispatchContext {
            manager,
            handler: answers,
            options,
            tracker: memory,
            call_ended: Notify::new(),
        };
        Self {
            session_id: session.into(),
            context: Arc::new(shared),
            permits: Arc::new(Semaphore::new(at_once)),
            tasks: Mutex::default(),
        }
    }

    /// Whether a call is this session's, and asks for a tool. Locks and remembers nothing.
    #[must_use]
    pub fn matches(&self, call: &PendingCall) -> bool {
        call.session_id == self.session_id && matches!(call.kind, CallKind::Tool { .. })
    }

    /// Has a call answered that is handed in, and waits for the end. From then on calls are pushed. Whoever
    /// stops waiting before it is begun must hand it in again; once begun, it goes on by itself. An id that
    /// is known is not answered again; where the manager did not take the answer, that is sent again.
    pub async fn dispatch_call(&self, call: PendingCall) -> Result<DispatchOutcome, DispatchError> {
        let Some((request, work)) = self.job_for_call(call) else {
            return Ok(DispatchOutcome::Ignored);
        };
        self.context.tracker().set_mode(DeliveryMode::Pushed).map_err(DispatchError::Mode)?;
        match self.start_call(DeliveryMode::Pushed, request, work).await? {
            StartOutcome::Known(_) => Ok(DispatchOutcome::AlreadyKnown),
            // The task ends without a word only where the runtime does.
            StartOutcome::Started(ended) => {
                Ok(ended.await.map_or(DispatchOutcome::AlreadyKnown, DispatchOutcome::Ended))
            }
        }
    }

    /// Lets calls come either way again. Forgets nothing else, and what is under way goes on.
    pub fn reset_mode(&self) {
        self.context.tracker().reset_mode();
    }

    /// How calls come in, once one did.
    #[must_use]
    pub fn mode(&self) -> Option<DeliveryMode> {
        self.context.tracker().mode()
    }

    /// How many ids are remembered: under way, with an unsent answer, or done.
    #[must_use]
    pub fn remembered_count(&self) -> usize {
        self.context.tracker().len()
    }

    /// Waits until nothing is under way.
    pub async fn wait_idle(&self) {
        let all = u32::try_from(self.context.options.max_in_flight).unwrap_or(u32::MAX);
        // The semaphore is never closed.
        drop(self.permits.acquire_many(all).await);
    }

    /// What a call asks of this session, if it does.
    fn job_for_call(&self, call: PendingCall) -> Option<(RequestId, DispatchJob)> {
        if !self.matches(&call) {
            return None;
        }
        match call.kind {
            CallKind::Tool { name, arguments } => {
                Some((call.request_id, DispatchJob::Answer { tool: name, arguments }))
            }
            CallKind::Other(_) => None,
        }
    }

    /// Begins a call, if it is new, or sends its unsent answer again where calls are pushed. Waits for its
    /// turn before it claims anything, so that dropping this loses nothing.
    async fn start_call(
        &self,
        mode: DeliveryMode,
        request: RequestId,
        work: DispatchJob,
    ) -> Result<StartOutcome, DispatchError> {
        let _waiting = WaiterGuard::new(&self.context, &request);
        match self.context.tracker().look_up(&request) {
            CallStatus::Unsent if mode == DeliveryMode::Pushed => {}
            CallStatus::New => {}
            known => return Ok(StartOutcome::Known(known)),
        }
        loop {
            let Some(permit) = self.acquire_permit().await else {
                return Ok(StartOutcome::Known(CallStatus::InFlight));
            };
            let oldest = {
                let mut memory = self.context.tracker();
                memory.set_mode(mode).map_err(DispatchError::Mode)?;
                let oldest = memory.is_full().then(|| memory.oldest_unsent()).flatten();
                match (memory.look_up(&request), oldest) {
                    (CallStatus::New, Some(oldest)) => oldest,
                    (CallStatus::New, None) => {
                        memory.start_call(&request);
                        drop(memory);
                        return Ok(StartOutcome::Started(self.spawn_job(permit, request, work)));
                    }
                    (CallStatus::Unsent, _) if mode == DeliveryMode::Pushed => request.clone(),
                    (known, _) => return Ok(StartOutcome::Known(known)),
                }
            };
            let is_this = oldest == request;
            let Some(again) = self.start_resend(permit, oldest) else { continue };
            if is_this {
                return Ok(StartOutcome::Started(again));
            }
            // No room to keep one more answer: the oldest must go first.
            if let Ok(DispatchRecord { outcome: SubmitOutcome::Failed(why), .. }) = again.await {
                let kept = self.context.tracker().unsent().len();
                return Err(DispatchError::TooManyUnsent { kept, why });
            }
        }
    }

    async fn acquire_permit(&self) -> Option<OwnedSemaphorePermit> {
        // The semaphore is never closed.
        self.permits.clone().acquire_owned().await.ok()
    }

    /// Sends an answer again that is kept, unless it is no more.
    fn start_resend(
        &self,
        permit: OwnedSemaphorePermit,
        request: RequestId,
    ) -> Option<oneshot::Receiver<DispatchRecord>> {
        let unsent = self.context.tracker().start_resend(&request)?;
        Some(self.spawn_job(permit, request, DispatchJob::Resend(unsent)))
    }

    /// Lets a call that is marked as under way go its way.
    fn spawn_job(
        &self,
        permit: OwnedSemaphorePermit,
        request: RequestId,
        work: DispatchJob,
    ) -> oneshot::Receiver<DispatchRecord> {
        let (ended, end) = oneshot::channel();
        let shared = self.context.clone();
        let mut tasks = lock(&self.tasks);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            let record = shared.run_job(request, work).await;
            // Whoever waited may have gone.
            drop(ended.send(record));
            drop(permit);
        });
        end
    }
}
