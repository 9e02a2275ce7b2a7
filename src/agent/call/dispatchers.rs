//! Dispatchers of pending calls, with the platform in the program.

use super::answer::{
    AnswerImage, DispatchAnswer, DispatcherNumber, DrainCounts, RequestError, TurnAnswer,
};
use super::event::CallEvent;
use super::request::{DispatchRequest, DispatcherRequest, TurnRequest};
use super::server::OpenSession;
use super::tools::ToolCallbacks;
use crate::cli::args::parse_timeout;
use caproot_core::sync::Mutex;
use caproot_session::ToolResult;
use caproot_session::dispatch::{
    AgentThread, CallDispatcher, CallKind, CallManager, DispatchOptions, PendingCall, PendingPage,
    RequestId, SubmitOutcome,
};
use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum number of dispatchers of a process.
const MAX_DISPATCHERS: usize = 1024;

/// Dispatchers of the process by their numbers.
pub struct ProgramDispatchers {
    callbacks: Arc<ToolCallbacks>,
    state: Mutex<DispatcherTable>,
}

#[derive(Default)]
struct DispatcherTable {
    last_number: u64,
    by_number: BTreeMap<u64, Arc<SessionDispatcher>>,
}

/// Dispatcher whose calls a session answers.
struct SessionDispatcher {
    session_id: String,
    dispatcher: CallDispatcher,
    platform: Arc<ProgramPlatform>,
}

/// Manager and thread of a platform, whose methods the program runs.
struct ProgramPlatform {
    callbacks: Arc<ToolCallbacks>,
    dispatcher: u64,
}

/// Page of pending calls: the result of the event `listPending`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ProgramCallPage {
    /// Calls of the page.
    calls: Vec<ProgramCall>,
    /// Token of the next page. Missing at the end.
    #[serde(default)]
    next_token: Option<String>,
}

/// Call that waits for its answer.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ProgramCall {
    /// Id of at most 512 bytes, which the platform never gives another call.
    request_id: String,
    /// Id of the thread, as the platform has it.
    session_id: String,
    /// Name of the tool.
    tool: String,
    /// Arguments as the model wrote them. The default is `null`.
    #[serde(default)]
    arguments: Value,
}

/// Reason for which the platform needs no answer: a result of the event `submitResult`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum UnneededAnswer {
    /// The platform does not know the call any more.
    NotFound,
    /// The call has an answer already.
    AlreadyAnswered,
}

impl ProgramDispatchers {
    /// Returns a table without dispatchers.
    pub fn new(callbacks: Arc<ToolCallbacks>) -> Self {
        Self {
            callbacks,
            state: Mutex::default(),
        }
    }

    /// Adds the dispatcher of a thread, whose calls a session answers.
    pub fn add(
        &self,
        open: &OpenSession,
        request: &DispatcherRequest,
    ) -> Result<DispatcherNumber, RequestError> {
        let options = dispatch_options(request)?;

        let mut state = self.state.lock();
        if state.by_number.len() >= MAX_DISPATCHERS {
            let message = format!("there are {MAX_DISPATCHERS} dispatchers already; close one");
            return Err(RequestError::failed(&message));
        }
        state.last_number += 1;
        let number = state.last_number;
        let platform = Arc::new(ProgramPlatform {
            callbacks: self.callbacks.clone(),
            dispatcher: number,
        });

        let session = open.session.clone();
        let dispatcher =
            CallDispatcher::new(&request.thread, platform.clone(), session.clone(), options);
        let entry = SessionDispatcher {
            session_id: session.id().to_owned(),
            dispatcher,
            platform,
        };
        state.by_number.insert(number, Arc::new(entry));
        Ok(DispatcherNumber { dispatcher: number })
    }

    /// Removes a dispatcher. Its calls in flight continue.
    pub fn remove(&self, number: u64) -> Result<DispatcherNumber, RequestError> {
        self.find(number)?;
        self.state.lock().by_number.remove(&number);
        Ok(DispatcherNumber { dispatcher: number })
    }

    /// Removes the dispatchers of a session that was closed.
    pub fn remove_session(&self, session_id: &str) {
        let mut state = self.state.lock();
        state
            .by_number
            .retain(|_, entry| entry.session_id != session_id);
    }

    /// Answers all pending calls.
    pub async fn drain(&self, number: u64) -> Result<DrainCounts, RequestError> {
        Ok(DrainCounts::from(
            &self.find(number)?.dispatcher.drain().await?,
        ))
    }

    /// Answers a call that the platform pushed.
    pub async fn dispatch(&self, request: DispatchRequest) -> Result<DispatchAnswer, RequestError> {
        let entry = self.find(request.dispatcher)?;
        let call = request.call.into_call();
        let call = call.map_err(|reason| RequestError::invalid(format!("call: {reason}")))?;
        let outcome = entry.dispatcher.dispatch_call(call).await?;
        Ok(DispatchAnswer::from(&outcome))
    }

    /// Sends a turn, and answers calls until the thread has one of the statuses.
    pub async fn run_turn(&self, request: TurnRequest) -> Result<TurnAnswer, RequestError> {
        let entry = self.find(request.dispatcher)?;
        let SessionDispatcher {
            dispatcher,
            platform,
            ..
        } = &*entry;
        let thread = &**platform;
        let until = request.until;
        let ended = match &request.turn {
            Some(turn) => dispatcher.send_and_handle(thread, turn, until).await?,
            None => dispatcher.handle_until(thread, until).await?,
        };

        Ok(TurnAnswer {
            drained: DrainCounts::from(&ended.drained),
            status: ended.status,
        })
    }

    fn find(&self, number: u64) -> Result<Arc<SessionDispatcher>, RequestError> {
        let found = self.state.lock().by_number.get(&number).cloned();
        found.ok_or_else(|| RequestError::invalid(format!("there is no dispatcher {number}")))
    }
}

/// Returns the limits of a dispatcher, or all mistakes.
fn dispatch_options(request: &DispatcherRequest) -> Result<DispatchOptions, RequestError> {
    let mut mistakes = Vec::new();
    let mut options = DispatchOptions::default();
    for (name, text, limit) in [
        (
            "answer_timeout",
            &request.answer_timeout,
            &mut options.answer_timeout,
        ),
        (
            "manager_timeout",
            &request.manager_timeout,
            &mut options.manager_timeout,
        ),
        (
            "turn_timeout",
            &request.turn_timeout,
            &mut options.turn_timeout,
        ),
    ] {
        match text.as_deref().map(parse_timeout) {
            Some(Ok(span)) => *limit = span,
            Some(Err(reason)) => mistakes.push(format!("{name}: {reason}")),
            None => {}
        }
    }
    for (name, count, limit) in [
        (
            "max_in_flight",
            request.max_in_flight,
            &mut options.max_in_flight,
        ),
        ("max_unsent", request.max_unsent, &mut options.max_unsent),
    ] {
        match count {
            Some(0) => mistakes.push(format!("{name}: must be at least 1")),
            Some(count) => *limit = count,
            None => {}
        }
    }

    RequestError::refuse(mistakes)?;
    Ok(options)
}

impl ProgramCall {
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

impl CallManager for ProgramPlatform {
    fn list_pending<'a>(
        &'a self,
        token: Option<&'a str>,
        limit: usize,
    ) -> BoxFuture<'a, Result<PendingPage, String>> {
        Box::pin(async move {
            let page: ProgramCallPage = self
                .callbacks
                .ask_value(|call| CallEvent::ListPending {
                    call,
                    dispatcher: self.dispatcher,
                    token: token.map(str::to_owned),
                    limit,
                })
                .await?;
            let calls = page.calls.into_iter().map(ProgramCall::into_call);
            Ok(PendingPage {
                calls: calls.collect::<Result<_, _>>()?,
                next_token: page.next_token,
                unread: 0,
            })
        })
    }

    fn submit_result<'a>(
        &'a self,
        request_id: &'a RequestId,
        result: &'a ToolResult,
    ) -> BoxFuture<'a, SubmitOutcome> {
        Box::pin(async move {
            let submitted = self
                .callbacks
                .ask_value(|call| CallEvent::SubmitResult {
                    call,
                    dispatcher: self.dispatcher,
                    request_id: request_id.as_str().to_owned(),
                    success: result.success,
                    external_context: result.external_context,
                    result: result.json.clone(),
                    images: AnswerImage::encode_all(&result.images),
                })
                .await;
            match submitted {
                Ok(None) => SubmitOutcome::Accepted,
                Ok(Some(UnneededAnswer::NotFound)) => SubmitOutcome::NotFound,
                Ok(Some(UnneededAnswer::AlreadyAnswered)) => SubmitOutcome::AlreadyAnswered,
                Err(reason) => SubmitOutcome::Failed(reason),
            }
        })
    }
}

impl AgentThread for ProgramPlatform {
    fn send_turn<'a>(&'a self, turn: &'a Value) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move {
            self.callbacks
                .ask_value::<Value>(|call| CallEvent::SendTurn {
                    call,
                    dispatcher: self.dispatcher,
                    turn: turn.clone(),
                })
                .await
                .map(drop)
        })
    }

    fn status(&self) -> BoxFuture<'_, Result<String, String>> {
        Box::pin(self.callbacks.ask_value(|call| CallEvent::ThreadStatus {
            call,
            dispatcher: self.dispatcher,
        }))
    }
}
