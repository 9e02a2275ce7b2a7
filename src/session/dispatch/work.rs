//! One call, from its tool to what the manager says to the answer. Runs as a task, so that nobody who
//! stops waiting stops it. Whatever tools and managers do, panic or hang, it ends in time.

use super::call::RequestId;
use super::manager::{Answers, Manager, Page, Submitted};
use super::memory::{Memory, Unsent};
use super::record::{Answered, DispatchRecord};
use super::{ATTEMPTS, BETWEEN_ATTEMPTS, DispatchOptions, MAX_TOOL_NAME_BYTES};
use crate::session::one_line::cut;
use crate::session::result::{Code, Refusal};
use crate::session::{MAX_RESULT_BYTES, ToolNames, ToolResult, lock};
use backon::{ConstantBuilder, Retryable as _};
use futures_util::FutureExt as _;
use serde_json::Value;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

/// What tasks share.
pub(super) struct Shared {
    pub(super) manager: Arc<dyn Manager>,
    pub(super) answers: Arc<dyn Answers>,
    pub(super) options: DispatchOptions,
    pub(super) memory: Mutex<Memory>,
    /// Rings when a dispatch ended.
    pub(super) ended: Notify,
}

/// What is to be done about a call that is under way.
pub(super) enum Work {
    Answer { tool: String, arguments: Value },
    SendAgain(Unsent),
}

/// An answer with how it came about.
struct Made {
    tool: String,
    answered: Answered,
    result: ToolResult,
    answering: Duration,
}

/// What somebody else's code did instead of coming to an end.
#[derive(Debug, Clone, Copy, thiserror::Error)]
pub(super) enum Strayed {
    #[error("no answer within {}", humantime::format_duration(*.0))]
    TimedOut(Duration),
    #[error("a panic")]
    Panicked,
}

impl Shared {
    pub(super) fn memory(&self) -> MutexGuard<'_, Memory> {
        lock(&self.memory)
    }

    /// Does it, and writes down what came of it.
    pub(super) async fn dispatch(&self, request: RequestId, work: Work) -> DispatchRecord {
        let made = match work {
            Work::Answer { tool, arguments } => self.answer(&tool, &arguments).await,
            Work::SendAgain(Unsent { tool, result }) => {
                Made { tool, answered: Answered::Before, result, answering: Duration::ZERO }
            }
        };
        let begun = Instant::now();
        let (outcome, attempts) = self.submit(&request, &made.result).await;
        let record = DispatchRecord {
            request,
            tool: made.tool,
            answered: made.answered,
            success: made.result.success,
            outcome,
            attempts,
            answering: made.answering,
            submitting: begun.elapsed(),
            bytes: made.result.json.len(),
        };
        let unsent = Unsent { tool: record.tool.clone(), result: made.result };
        self.memory().end(record.request.clone(), (!record.is_done()).then_some(unsent));
        self.tell(&record);
        self.ended.notify_waiters();
        record
    }

    async fn answer(&self, tool: &str, arguments: &Value) -> Made {
        let begun = Instant::now();
        let answer = async { self.answers.answer(tool, arguments).await };
        let (answered, result) = match within(self.options.answer_within, answer).await {
            Ok(result) if result.json.len() <= MAX_RESULT_BYTES => (Answered::Now, result),
            Ok(_) => (Answered::TooLarge, none("its answer is larger than an answer may be")),
            Err(strayed @ Strayed::TimedOut(_)) => (Answered::TimedOut, none(&strayed.to_string())),
            Err(Strayed::Panicked) => (Answered::Panicked, none("it failed")),
        };
        let tool = cut(tool, MAX_TOOL_NAME_BYTES);
        Made { tool, answered, result, answering: begun.elapsed() }
    }

    /// Sends an answer until the manager says something to it, and how often.
    async fn submit(&self, request: &RequestId, result: &ToolResult) -> (Submitted, usize) {
        let attempts = AtomicUsize::new(0);
        let attempt = || async {
            attempts.fetch_add(1, Ordering::Relaxed);
            let submit = async { self.manager.submit(request, result).await };
            match within(self.options.manager_within, submit).await {
                Ok(Submitted::Failed(why)) => Err(why),
                Ok(outcome) => Ok(outcome),
                Err(strayed) => Err(strayed.to_string()),
            }
        };
        let outcome = attempt.retry(waits()).await.unwrap_or_else(Submitted::Failed);
        (outcome, attempts.into_inner())
    }

    /// A page of what is pending.
    pub(super) async fn page(&self, after: Option<&str>) -> Result<Page, String> {
        let attempt = || async {
            let page = async { self.manager.pending(after, self.options.page).await };
            within(self.options.manager_within, page).await.unwrap_or_else(|s| Err(s.to_string()))
        };
        attempt.retry(waits()).await
    }

    fn tell(&self, record: &DispatchRecord) {
        tracing::debug!(
            request = %record.request,
            tool = record.tool,
            answered = ?record.answered,
            outcome = ?record.outcome,
            attempts = record.attempts,
            bytes = record.bytes,
            "a call was dispatched"
        );
        if catch_unwind(AssertUnwindSafe(|| self.manager.ended(record))).is_err() {
            tracing::error!(request = %record.request, "a manager panicked that was told of a dispatch");
        }
    }
}

/// Between attempts.
fn waits() -> ConstantBuilder {
    ConstantBuilder::new().with_delay(BETWEEN_ATTEMPTS).with_max_times(ATTEMPTS - 1)
}

/// Somebody else's code.
pub(super) async fn within<T>(
    limit: Duration,
    work: impl Future<Output = T>,
) -> Result<T, Strayed> {
    match timeout(limit, AssertUnwindSafe(work).catch_unwind()).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(_)) => Err(Strayed::Panicked),
        Err(_) => Err(Strayed::TimedOut(limit)),
    }
}

/// What a model gets where there is no answer.
fn none(why: &str) -> ToolResult {
    let refusal = Refusal::said(Code::NoAnswer, &format!("the tool gave no answer: {why}"));
    ToolResult::of(Err::<&(), _>(&refusal), &ToolNames::default())
}
