//! Works off the calls that wait at a manager for a session's answers: takes them as they are handed in,
//! or asks for them; has each answered once; and sends each answer until the manager has it. Leaves
//! answering to whoever implements [`Answers`], such as a session, and the wire to [`Manager`].
//!
//! Everything is bounded: calls at once, time, answers that are kept, ids that are remembered.

mod call;
mod drain;
mod manager;
mod memory;
mod record;
#[cfg(test)]
mod tests;
mod turn;
mod work;

pub use call::{Asked, BadRequestId, Call, MAX_REQUEST_ID_BYTES, RequestId};
pub use drain::{DrainError, MAX_PAGE_CALLS, MAX_PAGES};
pub use manager::{Answers, MAX_PAGE_TOKEN_BYTES, Manager, Page, Submitted, Thread};
pub use memory::Mode;
pub use record::{Answered, DispatchRecord, Drained, MAX_FAILURES};
pub use turn::{Finished, Terminal, TurnError};

use crate::session::lock;
use memory::{Known, Memory};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::JoinSet;
use work::{Shared, Work};

/// How often an answer is sent, or a page asked for.
pub const ATTEMPTS: usize = 3;
/// How long is waited between these attempts.
pub const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(50);
/// The most bytes of a tool's name in a record.
const MAX_TOOL_NAME_BYTES: usize = 256;

/// The bounds of a dispatcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DispatchOptions {
    /// How many calls are worked on at once; 16 by default.
    pub at_once: usize,
    /// How many done ids are remembered; 10,000 by default.
    pub remembered: usize,
    /// How many answers are kept that the manager did not take, with the calls under way; 1,000 by
    /// default, at least `at_once`.
    pub unsent: usize,
    /// How many calls a page is to have; 256 by default.
    pub page: usize,
    /// How long a tool may take; 2 min by default. Code that blocks its thread cannot be stopped.
    pub answer_within: Duration,
    /// How long each attempt may take that asks something of the manager; 10 s by default.
    pub manager_within: Duration,
    /// How long a turn may take; 10 min by default.
    pub turn_within: Duration,
}

/// What came of a call that was handed in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Response {
    /// It is another session's, or asks for no tool.
    Ignored,
    /// It is under way, or done.
    Known,
    /// It was answered.
    Ended(DispatchRecord),
}

/// Why calls are not worked off. Displays as a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DispatchError {
    /// Calls come the other way.
    #[error("calls are {0} here; they can come in another way only after `reset`")]
    Mode(Mode),
    /// As many answers are kept as may be.
    #[error(
        "the manager did not take {kept} answers, and as many are kept at most; at last: {why}"
    )]
    NotTaken {
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
    Pages(&'static str),
}

/// Works off the pending calls of one session. Every method takes `&self`. Needs a tokio runtime, and
/// stops what is under way when it is dropped; the manager has these calls still.
pub struct Dispatcher {
    session: String,
    shared: Arc<Shared>,
    /// As many as calls may be worked on at once; who works on one has one.
    permits: Arc<Semaphore>,
    tasks: Mutex<JoinSet<()>>,
}

/// What is to come of a call that was offered.
enum Offered {
    Known(Known),
    Begun(oneshot::Receiver<DispatchRecord>),
}

/// Somebody who waits for a turn with a call; until this is dropped, its id is not forgotten.
struct Waiting<'a> {
    shared: &'a Shared,
    request: RequestId,
}

impl<'a> Waiting<'a> {
    fn with(shared: &'a Shared, request: &RequestId) -> Self {
        shared.memory().wait_with(request);
        Self { shared, request: request.clone() }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.shared.memory().waits_no_longer(&self.request);
    }
}

impl Default for DispatchOptions {
    fn default() -> Self {
        Self {
            at_once: 16,
            remembered: 10_000,
            unsent: 1_000,
            page: 256,
            answer_within: Duration::from_mins(2),
            manager_within: Duration::from_secs(10),
            turn_within: Duration::from_mins(10),
        }
    }
}

impl Dispatcher {
    /// Has the calls that are this session's, by the id that the manager has for it, answered.
    #[must_use]
    pub fn new(
        session: impl Into<String>,
        manager: Arc<dyn Manager>,
        answers: Arc<dyn Answers>,
        options: DispatchOptions,
    ) -> Self {
        let at_once = options.at_once.clamp(1, Semaphore::MAX_PERMITS.min(u32::MAX as usize));
        let options = DispatchOptions { at_once, page: options.page.max(1), ..options };
        let remembered = NonZeroUsize::new(options.remembered).unwrap_or(NonZeroUsize::MIN);
        let memory = Mutex::new(Memory::new(remembered, options.unsent.max(at_once)));
        let shared = Shared { manager, answers, options, memory, ended: Notify::new() };
        Self {
            session: session.into(),
            shared: Arc::new(shared),
            permits: Arc::new(Semaphore::new(at_once)),
            tasks: Mutex::default(),
        }
    }

    /// Whether a call is this session's, and asks for a tool. Locks and remembers nothing.
    #[must_use]
    pub fn matches(&self, call: &Call) -> bool {
        call.session == self.session && matches!(call.asked, Asked::Tool { .. })
    }

    /// Has a call answered that is handed in, and waits for the end. From then on calls are pushed. Whoever
    /// stops waiting before it is begun must hand it in again; once begun, it goes on by itself. An id that
    /// is known is not answered again; where the manager did not take the answer, that is sent again.
    pub async fn respond(&self, call: Call) -> Result<Response, DispatchError> {
        let Some((request, work)) = self.work(call) else { return Ok(Response::Ignored) };
        self.shared.memory().fix(Mode::Pushed).map_err(DispatchError::Mode)?;
        match self.offer(Mode::Pushed, request, work).await? {
            Offered::Known(_) => Ok(Response::Known),
            // The task ends without a word only where the runtime does.
            Offered::Begun(ended) => Ok(ended.await.map_or(Response::Known, Response::Ended)),
        }
    }

    /// Lets calls come either way again. Forgets nothing else, and what is under way goes on.
    pub fn reset(&self) {
        self.shared.memory().reset();
    }

    /// How calls come in, once one did.
    #[must_use]
    pub fn mode(&self) -> Option<Mode> {
        self.shared.memory().mode()
    }

    /// How many ids are remembered: under way, with an unsent answer, or done.
    #[must_use]
    pub fn remembered(&self) -> usize {
        self.shared.memory().len()
    }

    /// Waits until nothing is under way.
    pub async fn idle(&self) {
        let all = u32::try_from(self.shared.options.at_once).unwrap_or(u32::MAX);
        // The semaphore is never closed.
        drop(self.permits.acquire_many(all).await);
    }

    /// What a call asks of this session, if it does.
    fn work(&self, call: Call) -> Option<(RequestId, Work)> {
        if !self.matches(&call) {
            return None;
        }
        match call.asked {
            Asked::Tool { name, arguments } => {
                Some((call.request, Work::Answer { tool: name, arguments }))
            }
            Asked::Other(_) => None,
        }
    }

    /// Begins a call, if it is new, or sends its unsent answer again where calls are pushed. Waits for its
    /// turn before it claims anything, so that dropping this loses nothing.
    async fn offer(
        &self,
        mode: Mode,
        request: RequestId,
        work: Work,
    ) -> Result<Offered, DispatchError> {
        let _waiting = Waiting::with(&self.shared, &request);
        match self.shared.memory().see(&request) {
            Known::Unsent if mode == Mode::Pushed => {}
            Known::No => {}
            known => return Ok(Offered::Known(known)),
        }
        loop {
            let Some(permit) = self.permit().await else {
                return Ok(Offered::Known(Known::Underway));
            };
            let oldest = {
                let mut memory = self.shared.memory();
                memory.fix(mode).map_err(DispatchError::Mode)?;
                let oldest = memory.is_full().then(|| memory.oldest_unsent()).flatten();
                match (memory.see(&request), oldest) {
                    (Known::No, Some(oldest)) => oldest,
                    (Known::No, None) => {
                        memory.begin(&request);
                        drop(memory);
                        return Ok(Offered::Begun(self.begin(permit, request, work)));
                    }
                    (Known::Unsent, _) if mode == Mode::Pushed => request.clone(),
                    (known, _) => return Ok(Offered::Known(known)),
                }
            };
            let is_this = oldest == request;
            let Some(again) = self.send_again(permit, oldest) else { continue };
            if is_this {
                return Ok(Offered::Begun(again));
            }
            // No room to keep one more answer: the oldest must go first.
            if let Ok(DispatchRecord { outcome: Submitted::Failed(why), .. }) = again.await {
                let kept = self.shared.memory().unsent().len();
                return Err(DispatchError::NotTaken { kept, why });
            }
        }
    }

    async fn permit(&self) -> Option<OwnedSemaphorePermit> {
        // The semaphore is never closed.
        self.permits.clone().acquire_owned().await.ok()
    }

    /// Sends an answer again that is kept, unless it is no more.
    fn send_again(
        &self,
        permit: OwnedSemaphorePermit,
        request: RequestId,
    ) -> Option<oneshot::Receiver<DispatchRecord>> {
        let unsent = self.shared.memory().begin_again(&request)?;
        Some(self.begin(permit, request, Work::SendAgain(unsent)))
    }

    /// Lets a call that is marked as under way go its way.
    fn begin(
        &self,
        permit: OwnedSemaphorePermit,
        request: RequestId,
        work: Work,
    ) -> oneshot::Receiver<DispatchRecord> {
        let (ended, end) = oneshot::channel();
        let shared = self.shared.clone();
        let mut tasks = lock(&self.tasks);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            let record = shared.dispatch(request, work).await;
            // Whoever waited may have gone.
            drop(ended.send(record));
            drop(permit);
        });
        end
    }
}
