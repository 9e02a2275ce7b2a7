//! Job of one call: runs the tool and submits the answer. A job runs on a task of its own, so a
//! caller that stops waiting does not cancel it. A job ends in time even if the tool or the manager
//! panics or hangs.

use super::call::RequestId;
use super::manager::{CallHandler, CallManager, PendingPage, SubmitOutcome};
use super::record::{AnswerOrigin, DispatchRecord};
use super::tracker::{CallAnswer, CallTracker, DeliveryMode};
use super::{DispatchError, DispatchOptions, MAX_ATTEMPTS, MAX_TOOL_NAME_BYTES, RETRY_DELAY};
use crate::ToolResult;
use crate::skills::result::{ResultForm, ToolError, ToolErrorCode};
use caproot_core::backoff::Backoff;
use caproot_core::sync::Mutex;
use caproot_core::text::truncate_with_ellipsis;
use futures_util::FutureExt as _;
use serde_json::Value;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

/// State that all jobs of a dispatcher share.
pub struct DispatchContext {
    pub manager: Arc<dyn CallManager>,
    pub handler: Arc<dyn CallHandler>,
    pub options: DispatchOptions,
    pub tracker: Mutex<CallTracker>,
    /// Notified at the end of each job.
    pub call_ended: Notify,
}

/// Work for a call in flight.
pub enum DispatchJob {
    Answer { tool: String, arguments: Value },
    Resend(CallAnswer),
}

impl DispatchContext {
    pub fn tracker(&self) -> MutexGuard<'_, CallTracker> {
        self.tracker.lock()
    }

    /// Checks that the delivery mode allows polling.
    pub fn check_polling(&self) -> Result<(), DispatchError> {
        self.tracker().check_mode(DeliveryMode::Polled)
    }

    /// Runs a job and reports its record.
    pub async fn run_job(&self, request_id: RequestId, job: DispatchJob) -> DispatchRecord {
        let answer = match job {
            DispatchJob::Answer { tool, arguments } => self.run_tool(&tool, &arguments).await,
            DispatchJob::Resend(answer) => answer,
        };

        let started_at = Instant::now();
        let attempts = AtomicUsize::new(0);
        let attempt = || {
            attempts.fetch_add(1, Ordering::Relaxed);
            let submit = async {
                match self
                    .manager
                    .submit_result(&request_id, &answer.result)
                    .await
                {
                    SubmitOutcome::Failed(reason) => Err(reason),
                    outcome => Ok(outcome),
                }
            };
            run_fallible(self.options.manager_timeout, submit)
        };
        let submitted = repeat_failed(attempt).await;

        let record = DispatchRecord {
            request_id,
            tool: answer.tool,
            origin: answer.origin,
            success: answer.result.success,
            outcome: submitted.unwrap_or_else(SubmitOutcome::Failed),
            attempts: attempts.into_inner(),
            answer_duration: answer.duration,
            submit_duration: started_at.elapsed(),
            bytes: answer.result.json.len(),
        };

        let unsent = (!record.is_done()).then(|| CallAnswer {
            tool: record.tool.clone(),
            origin: AnswerOrigin::Resent,
            result: answer.result,
            duration: Duration::ZERO,
        });
        self.tracker()
            .finish_call(record.request_id.clone(), unsent);
        self.report_record(&record);
        self.call_ended.notify_waiters();
        record
    }

    async fn run_tool(&self, tool: &str, arguments: &Value) -> CallAnswer {
        let started_at = Instant::now();
        // The block calls the handler, so that a panic before the handler's future is caught, too.
        let answer = async { self.handler.answer_call(tool, arguments).await };
        let limit = self.options.answer_timeout;
        let (origin, result) = match timeout(limit, AssertUnwindSafe(answer).catch_unwind()).await {
            Ok(Ok(result)) if result.json.len() <= self.handler.max_result_bytes() => {
                (AnswerOrigin::Fresh, result)
            }
            Ok(Ok(_)) => (
                AnswerOrigin::TooLarge,
                no_result("its result is over the size limit"),
            ),
            Ok(Err(_)) => (AnswerOrigin::Panicked, no_result("it panicked")),
            Err(_) => (AnswerOrigin::TimedOut, no_result(&timeout_reason(limit))),
        };

        CallAnswer {
            tool: truncate_with_ellipsis(tool, MAX_TOOL_NAME_BYTES),
            origin,
            result,
            duration: started_at.elapsed(),
        }
    }

    /// Fetches a page of pending calls.
    pub async fn fetch_page(&self, token: Option<&str>) -> Result<PendingPage, String> {
        let page_size = self.options.page_size;
        repeat_failed(|| {
            let list = async { self.manager.list_pending(token, page_size).await };
            run_fallible(self.options.manager_timeout, list)
        })
        .await
    }

    fn report_record(&self, record: &DispatchRecord) {
        tracing::debug!(
            request_id = %record.request_id,
            tool = record.tool,
            origin = ?record.origin,
            outcome = ?record.outcome,
            attempts = record.attempts,
            bytes = record.bytes,
            "call dispatched"
        );
        if catch_unwind(AssertUnwindSafe(|| self.manager.on_dispatch_ended(record))).is_err() {
            tracing::error!(
                request_id = %record.request_id,
                "the manager panicked in on_dispatch_ended"
            );
        }
    }
}

/// Calls `attempt` until it succeeds, at most [`MAX_ATTEMPTS`] times.
async fn repeat_failed<T, F: Future<Output = Result<T, String>>>(
    attempt: impl Fn() -> F,
) -> Result<T, String> {
    let mut backoff = Backoff::new(2 * RETRY_DELAY, 4 * RETRY_DELAY);
    for _ in 1..MAX_ATTEMPTS {
        if let Ok(answer) = attempt().await {
            return Ok(answer);
        }
        sleep(backoff.next_delay()).await;
    }
    attempt().await
}

/// Runs code of the embedding program with a time limit. A time-out and a panic are errors like those
/// of the code.
pub async fn run_fallible<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, String>>,
) -> Result<T, String> {
    match timeout(limit, AssertUnwindSafe(work).catch_unwind()).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(_)) => Err("a panic".to_owned()),
        Err(_) => Err(timeout_reason(limit)),
    }
}

fn timeout_reason(limit: Duration) -> String {
    format!("no answer within {}", humantime::format_duration(limit))
}

/// Returns the result for a model if the tool gave none.
fn no_result(reason: &str) -> ToolResult {
    let message = format!("the tool gave no result: {reason}");
    let error = ToolError::from_code(ToolErrorCode::NoResult, &message);
    ToolResult::from_outcome(Err::<&(), _>(&error), ResultForm::default())
}
