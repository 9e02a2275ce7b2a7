//! Dispatcher of a platform's pending calls, with the platform in Python.

use crate::callback::CallbackTarget;
use crate::failure::Failure;
use crate::mailbox::MailboxShared;
use crate::origin::CallOrigin;
use crate::process_bound::ProcessBound;
use crate::reply::{Reply, to_object};
use crate::selection::check_seconds;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use caproot_client::session::dispatch::{
    AgentThread, CallDispatcher, CallHandler, CallKind, CallManager, DispatchOptions,
    DispatchOutcome, DispatchRecord, DrainSummary, PendingCall, PendingPage, RequestId,
    SubmitOutcome,
};
use caproot_client::session::{Session, ToolResult};
use futures_util::future::BoxFuture;
use pyo3::prelude::*;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use tracing::Instrument as _;

/// Dispatcher of the pending calls of one thread.
#[pyclass(frozen)]
pub struct Dispatcher {
    inner: ProcessBound<DispatcherState>,
}

#[derive(Clone)]
struct DispatcherState {
    dispatcher: Arc<CallDispatcher>,
    platform: Arc<CallbackPlatform>,
    mailbox: Arc<MailboxShared>,
}

/// Manager and thread of a platform, whose methods are Python functions.
struct CallbackPlatform(CallbackTarget);

/// Session that answers calls, with the event loop of its tools.
struct SessionHandler {
    session: Arc<Session>,
    mailbox: Arc<MailboxShared>,
}

/// Limits of a dispatcher.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitsSpec {
    max_in_flight: usize,
    max_unsent: usize,
    /// Seconds.
    answer_timeout: f64,
    manager_timeout: f64,
    turn_timeout: f64,
}

/// Page of pending calls.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PageSpec {
    calls: Vec<CallSpec>,
    #[serde(default)]
    next_token: Option<String>,
}

/// Pending call.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CallSpec {
    request_id: String,
    session_id: String,
    tool: String,
    arguments: Value,
}

impl Dispatcher {
    /// Creates the dispatcher of a thread, whose calls a session answers.
    pub fn new(
        session: Arc<Session>,
        mailbox: Arc<MailboxShared>,
        thread_id: &str,
        handler: u64,
        limits: &str,
    ) -> Result<Self, Failure> {
        let limits: LimitsSpec = serde_json::from_str(limits)
            .map_err(|error| Failure::config(vec![format!("invalid limits: {error}")]))?;
        let options = limits.to_options()?;

        let target = CallbackTarget {
            mailbox: mailbox.clone(),
            handler,
        };
        let platform = Arc::new(CallbackPlatform(target));
        let handler = Arc::new(SessionHandler {
            session,
            mailbox: mailbox.clone(),
        });
        let dispatcher = CallDispatcher::new(thread_id, platform.clone(), handler, options);
        Ok(Self {
            inner: ProcessBound::new(DispatcherState {
                dispatcher: Arc::new(dispatcher),
                platform,
                mailbox,
            }),
        })
    }
}

#[pymethods]
impl Dispatcher {
    /// Answers all pending calls, and returns the summary as a JSON text.
    fn drain<'py>(&self, py: Python<'py>, operation: u64) -> PyResult<Option<Bound<'py, PyAny>>> {
        let state = self.inner.get()?.clone();
        let mailbox = state.mailbox.clone();
        let drained = mailbox.operate(operation, async move {
            let drained = state.dispatcher.drain().await?;
            Ok(Reply::Text(Some(drain_json(&drained).to_string())))
        });
        to_object(py, drained)
    }

    /// Answers a call that the platform pushed, a JSON text. Returns its outcome as a JSON text.
    fn dispatch<'py>(
        &self,
        py: Python<'py>,
        operation: u64,
        call: &str,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let call = serde_json::from_str::<CallSpec>(call).map_err(|error| error.to_string());
        let call = call
            .and_then(CallSpec::into_call)
            .map_err(|reason| Failure::value(format!("invalid call: {reason}")))?;

        let state = self.inner.get()?.clone();
        let mailbox = state.mailbox.clone();
        let dispatched = mailbox.operate(operation, async move {
            let text = match state.dispatcher.dispatch_call(call).await? {
                DispatchOutcome::Ignored => json!({ "outcome": "ignored" }),
                DispatchOutcome::AlreadyKnown => json!({ "outcome": "alreadyKnown" }),
                DispatchOutcome::Ended(record) => record_json(&record),
            };
            Ok(Reply::Text(Some(text.to_string())))
        });
        to_object(py, dispatched)
    }

    /// Sends a turn, a JSON text, and answers calls until the thread has one of the statuses. Without
    /// a turn, answers the calls of a turn that was sent.
    fn run_turn<'py>(
        &self,
        py: Python<'py>,
        operation: u64,
        turn: Option<&str>,
        until: Vec<String>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let turn: Option<Value> = turn
            .map(serde_json::from_str)
            .transpose()
            .map_err(|error| Failure::value(format!("invalid turn: {error}")))?;
        let state = self.inner.get()?.clone();
        let mailbox = state.mailbox.clone();
        let ended = mailbox.operate(operation, async move {
            let dispatcher = &state.dispatcher;
            let thread = &*state.platform;
            let ended = match turn {
                Some(turn) => dispatcher.send_and_handle(thread, &turn, until).await?,
                None => dispatcher.handle_until(thread, until).await?,
            };

            let drained = drain_json(&ended.drained);
            let text = json!({ "status": ended.status, "drained": drained }).to_string();
            Ok(Reply::Text(Some(text)))
        });
        to_object(py, ended)
    }
}

impl LimitsSpec {
    fn to_options(&self) -> Result<DispatchOptions, Failure> {
        let mut mistakes = Vec::new();
        let options = DispatchOptions {
            max_in_flight: self.max_in_flight,
            max_unsent: self.max_unsent,
            answer_timeout: check_seconds("answer_timeout", self.answer_timeout, &mut mistakes),
            manager_timeout: check_seconds("manager_timeout", self.manager_timeout, &mut mistakes),
            turn_timeout: check_seconds("turn_timeout", self.turn_timeout, &mut mistakes),
            ..DispatchOptions::default()
        };
        if mistakes.is_empty() {
            Ok(options)
        } else {
            Err(Failure::config(mistakes))
        }
    }
}

impl CallSpec {
    fn into_call(self) -> Result<PendingCall, String> {
        let request_id = RequestId::try_from(self.request_id.as_str());
        Ok(PendingCall {
            request_id: request_id.map_err(|error| error.to_string())?,
            session_id: self.session_id,
            kind: CallKind::Tool {
                name: self.tool,
                arguments: self.arguments,
            },
        })
    }
}

impl CallbackPlatform {
    async fn call(&self, request: Value) -> Result<Value, String> {
        let answer = self.0.call(0, request.to_string()).await?;
        serde_json::from_str(&answer).map_err(|error| error.to_string())
    }
}

impl CallManager for CallbackPlatform {
    fn list_pending<'a>(
        &'a self,
        token: Option<&'a str>,
        limit: usize,
    ) -> BoxFuture<'a, Result<PendingPage, String>> {
        Box::pin(async move {
            let request = json!({ "method": "list_pending", "token": token, "limit": limit });
            let page = self.call(request).await?;
            let page: PageSpec = serde_json::from_value(page)
                .map_err(|error| format!("the page cannot be read: {error}"))?;
            let calls = page.calls.into_iter().map(CallSpec::into_call);
            Ok(PendingPage {
                calls: calls.collect::<Result<_, _>>()?,
                next_token: page.next_token,
            })
        })
    }

    fn submit_result<'a>(
        &'a self,
        request_id: &'a RequestId,
        result: &'a ToolResult,
    ) -> BoxFuture<'a, SubmitOutcome> {
        Box::pin(async move {
            let images = result.images.iter().map(|image| {
                json!({"mime_type": image.mime_type, "data": STANDARD.encode(&image.bytes)})
            });
            let request = json!({
                "method": "submit_result", "request_id": request_id.as_str(),
                "ok": result.success, "external": result.external_context, "text": result.json,
                "images": images.collect::<Vec<_>>(),
            });

            match self.call(request).await {
                Ok(Value::Null) => SubmitOutcome::Accepted,
                Ok(Value::String(outcome)) if outcome == "not_found" => SubmitOutcome::NotFound,
                Ok(Value::String(outcome)) if outcome == "already_answered" => {
                    SubmitOutcome::AlreadyAnswered
                }
                Ok(other) => SubmitOutcome::Failed(format!(
                    "submit_result returned {other}: expected None, \"not_found\" or \"already_answered\""
                )),
                Err(reason) => SubmitOutcome::Failed(reason),
            }
        })
    }
}

impl AgentThread for CallbackPlatform {
    fn send_turn<'a>(&'a self, turn: &'a Value) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move {
            let request = json!({ "method": "send_turn", "turn": turn });
            self.call(request).await.map(drop)
        })
    }

    fn status(&self) -> BoxFuture<'_, Result<String, String>> {
        Box::pin(async move {
            let status = self.call(json!({ "method": "status" })).await?;
            serde_json::from_value(status).map_err(|error| error.to_string())
        })
    }
}

impl CallHandler for SessionHandler {
    fn answer_call<'a>(&'a self, tool: &'a str, arguments: &'a Value) -> BoxFuture<'a, ToolResult> {
        let mailbox = self.mailbox.clone();
        let origin = CallOrigin {
            mailbox,
            context: 0,
        };
        Box::pin(
            self.session
                .call(tool, arguments)
                .instrument(origin.to_span()),
        )
    }
}

fn record_json(record: &DispatchRecord) -> Value {
    let (outcome, reason) = match &record.outcome {
        SubmitOutcome::Accepted => ("accepted", None),
        SubmitOutcome::NotFound => ("notFound", None),
        SubmitOutcome::AlreadyAnswered => ("alreadyAnswered", None),
        SubmitOutcome::Failed(reason) => ("failed", Some(reason)),
    };
    json!({
        "requestId": record.request_id.as_str(),
        "tool": record.tool,
        "success": record.success,
        "outcome": outcome,
        "reason": reason,
        "attempts": record.attempts,
    })
}

fn drain_json(drained: &DrainSummary) -> Value {
    let failures: Vec<_> = drained.failures.iter().map(record_json).collect();
    json!({
        "accepted": drained.accepted,
        "notFound": drained.not_found,
        "alreadyAnswered": drained.already_answered,
        "failed": drained.failed,
        "failures": failures,
        "complete": drained.complete,
    })
}
