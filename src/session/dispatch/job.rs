//! One call, from its tool to what the manager says to the answer. Runs as a task, so that nobody who
//! stops waiting stops it. Whatever tools and managers do, panic or hang, it ends in time.

use super::call::RequestId;
use super::manager::{CallHandler, CallManager, PendingPage, SubmitOutcome};
use super::record::{AnswerOrigin, DispatchRecord};
use super::tracker::{CallTracker, UnsentAnswer};
use super::{DispatchOptions, MAX_ATTEMPTS, MAX_TOOL_NAME_BYTES, RETRY_DELAY};
use crate::session::result::{ToolError, ToolErrorCode};
use crate::session::text::truncate_with_ellipsis;
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
pub(super) struct DispatchContext {
    pub(super) manager: Arc<dyn CallManager>,
    pub(super) handler: Arc<dyn CallHandler>,
    pub(super) options: DispatchOptions,
    pub(super) tracker: Mutex<CallTracker>,
    /// Rings when a dispatch ended.
    pub(super) call_ended: Notify,
}

/// What is to be done about a call that is under way.
pub(super) enum DispatchJob {
    Answer { tool: String, arguments: Value },
    Resend(UnsentAnswer),
}

/// An answer with how it came about.
struct CallAnswer {
    tool: String,
    origin: AnswerOrigin,
    result: ToolResult,
    duration: Duration,
}

/// What somebody else's code did instead of coming to an end.
#[derive(Debug, Clone, Copy, thiserror::Error)]
pub(super) enum GuardedRunError {
    #[error("no answer within {}", humantime::format_duration(*.0))]
    TimedOut(Duration),
    #[error("a panic")]
    Panicked,
}

impl DispatchContext {
    pub(super) fn tracker(&self) -> MutexGuard<'_, CallTracker> {
        lock(&self.tracker)
    }

    /// Does it, and writes down what came of it.
    pub(super) async fn run_job(&self, request: RequestId, work: DispatchJob) -> DispatchRecord {
        let made = match work {
            DispatchJob::Answer { tool, arguments } => self.run_tool(&tool, &arguments).await,
            DispatchJob::Resend(UnsentAnswer { tool, result }) => {
                CallAnswer { tool, origin: AnswerOrigin::Resent, result, duration: Duration::ZERO }
            }
        };
        let begun = Instant::now();
        let (outcome, attempts) = self.submit_with_retries(&request, &made.result).await;
        let record = DispatchRecord {
            request_id: request,
            tool: made.tool,
            origin: made.origin,
            success: made.result.success,
            outcome,
            attempts,
            answer_duration: made.duration,
            submit_duration: begun.elapsed(),
            bytes: made.result.json.len(),
        };
        let unsent = UnsentAnswer { tool: record.tool.clone(), result: made.result };
        self.tracker()
            .finish_call(record.request_id.clone(), (!record.is_done()).then_some(unsent));
        self.report_record(&record);
        self.call_ended.notify_waiters();
        record
    }

    async fn run_tool(&self, tool: &str, arguments: &Value) -> CallAnswer {
        let begun = Instant::now();
        let answer = async { self.handler.answer_call(tool, arguments).await };
        let (answered, result) = match run_guarded(self.options.answer_timeout, answer).await {
            Ok(result) if result.json.len() <= MAX_RESULT_BYTES => (AnswerOrigin::Fresh, result),
            Ok(_) => {
                (AnswerOrigin::TooLarge, no_result("its answer is larger than an answer may be"))
            }
            Err(strayed @ GuardedRunError::TimedOut(_)) => {
                (AnswerOrigin::TimedOut, no_result(&strayed.to_string()))
            }
            Err(GuardedRunError::Panicked) => (AnswerOrigin::Panicked, no_result("it failed")),
        };
        let tool = truncate_with_ellipsis(tool, MAX_TOOL_NAME_BYTES);
        CallAnswer { tool, origin: answered, result, duration: begun.elapsed() }
    }

    /// Sends an answer until the manager says something to it, and how often.
    async fn submit_with_retries(
        &self,
        request: &RequestId,
        result: &ToolResult,
    ) -> (SubmitOutcome, usize) {
        let attempts = AtomicUsize::new(0);
        let attempt = || async {
            attempts.fetch_add(1, Ordering::Relaxed);
            let submit = async { self.manager.submit_result(request, result).await };
            match run_guarded(self.options.manager_timeout, submit).await {
                Ok(SubmitOutcome::Failed(why)) => Err(why),
                Ok(outcome) => Ok(outcome),
                Err(strayed) => Err(strayed.to_string()),
            }
        };
        let outcome = attempt.retry(retry_policy()).await.unwrap_or_else(SubmitOutcome::Failed);
        (outcome, attempts.into_inner())
    }

    /// A page of what is pending.
    pub(super) async fn fetch_page(&self, after: Option<&str>) -> Result<PendingPage, String> {
        let attempt = || async {
            let page = async { self.manager.list_pending(after, self.options.page_size).await };
            run_guarded(self.options.manager_timeout, page)
                .await
                .unwrap_or_else(|s| Err(s.to_string()))
        };
        attempt.retry(retry_policy()).await
    }

    fn report_record(&self, record: &DispatchRecord) {
        tracing::debug!(
            request = %record.request_id,
            tool = record.tool,
            answered = ?record.origin,
            outcome = ?record.outcome,
            attempts = record.attempts,
            bytes = record.bytes,
            "a call was dispatched"
        );
        if catch_unwind(AssertUnwindSafe(|| self.manager.on_dispatch_ended(record))).is_err() {
            tracing::error!(request = %record.request_id, "a manager panicked that was told of a dispatch");
        }
    }
}

/// Between attempts.
fn retry_policy() -> ConstantBuilder {
    ConstantBuilder::new().with_delay(RETRY_DELAY).with_max_times(MAX_ATTEMPTS - 1)
}

/// Somebody else's code.
pub(super) async fn run_guarded<T>(
    limit: Duration,
    work: impl Future<Output = T>,
) -> Result<T, GuardedRunError> {
    match timeout(limit, AssertUnwindSafe(work).catch_unwind()).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(_)) => Err(GuardedRunError::Panicked),
        Err(_) => Err(GuardedRunError::TimedOut(limit)),
    }
}

/// What a model gets where there is no answer.
fn no_result(why: &str) -> ToolResult {
    let refusal =
        ToolError::from_code(ToolErrorCode::NoResult, &format!("the tool gave no answer: {why}"));
    ToolResult::from_outcome(Err::<&(), _>(&refusal), &ToolNames::default())
}
