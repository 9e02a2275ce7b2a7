//! Tests of the dispatch against a scripted manager, tool and thread, with the clock paused. The
//! script fails on demand and records violations.

mod calls;
mod properties;
mod turns;

use super::{
    AgentThread, CallDispatcher, CallHandler, CallKind, CallManager, DispatchError,
    DispatchOptions, DispatchOutcome, DispatchRecord, PendingCall, PendingPage, RequestId,
    SubmitOutcome,
};
use crate::ToolResult;
use caproot_core::sync::Mutex;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::future::pending;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;
use tokio::time::sleep;

/// Fault of a submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// The manager rejects the answer.
    Refused,
    /// The manager takes the answer, and its response is lost.
    Lost,
    Late(u64),
    Hangs,
    HangsTaken,
    Panics,
    /// The call was withdrawn before.
    Withdrawn,
    /// The call was answered before.
    Conflict,
}

/// Fault of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PageFault {
    None,
    Fails,
    Hangs,
    Panics,
    Twice,
    Backwards,
    /// The page has calls of other sessions and of another kind.
    Foreign,
    /// The page has finished calls.
    Stale,
}

/// Behavior of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tool {
    Quick,
    Slow(u64),
    Hangs,
    Panics,
    Huge,
}

#[derive(Debug, Default)]
struct State {
    /// Whether each call is pending.
    calls: BTreeMap<String, bool>,
    faults: VecDeque<Fault>,
    page_faults: VecDeque<PageFault>,
    tools: VecDeque<Tool>,
    /// Calls whose answer was accepted.
    accepted: BTreeSet<String>,
    /// Runs of each call's tool since the last crash.
    runs: HashMap<String, usize>,
    /// Calls that finished since the last crash, for `Stale`.
    finished: Vec<String>,
    at_once: usize,
    most_at_once: usize,
    submits: usize,
    violations: Vec<String>,
    records: Vec<DispatchRecord>,
    /// Statuses of the thread, one for each request; the last status stays.
    statuses: VecDeque<Result<String, String>>,
    sent: usize,
}

#[derive(Debug, Default)]
struct Model(Mutex<State>);

/// Run of a tool.
struct Running<'a>(&'a Model);

fn id(text: &str) -> RequestId {
    text.try_into().expect("a short id")
}

/// Returns a tool call of the session `mine`.
fn call(name: &str) -> PendingCall {
    let asked = CallKind::Tool {
        name: "own.tool".to_owned(),
        arguments: json!({ "id": name }),
    };
    PendingCall {
        request_id: id(name),
        session_id: "mine".to_owned(),
        kind: asked,
    }
}

/// Returns calls that the session `mine` must ignore.
fn foreign() -> [PendingCall; 2] {
    let other = PendingCall {
        session_id: "theirs".to_owned(),
        ..call("theirs")
    };
    [
        other,
        PendingCall {
            kind: CallKind::Other("approval".to_owned()),
            ..call("approval")
        },
    ]
}

fn dispatcher(model: &Arc<Model>, options: DispatchOptions) -> CallDispatcher {
    CallDispatcher::new("mine", model.clone(), model.clone(), options)
}

/// Returns a model with a number of calls, and its dispatcher.
fn model_and_dispatcher(calls: usize) -> (Arc<Model>, CallDispatcher) {
    let model = Arc::new(Model::with(calls));
    let dispatcher = dispatcher(&model, DispatchOptions::default());
    (model, dispatcher)
}

/// Returns how many pushed calls were answered.
fn count_ended(outcomes: &[Result<DispatchOutcome, DispatchError>]) -> usize {
    outcomes
        .iter()
        .filter(|outcome| matches!(outcome, Ok(DispatchOutcome::Ended(_))))
        .count()
}

impl Model {
    fn with(calls: usize) -> Self {
        let model = Self::default();
        model.add(calls);
        model
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }

    fn add(&self, calls: usize) {
        let mut state = self.state();
        let from = state.calls.len();
        state
            .calls
            .extend((from..from + calls).map(|n| (format!("{n:05}"), true)));
    }

    /// Returns the names of the pending calls.
    fn pending_names(&self) -> Vec<String> {
        let state = self.state();
        state
            .calls
            .iter()
            .filter(|(_, waits)| **waits)
            .map(|(name, _)| name.clone())
            .collect()
    }

    fn finish_call(&self, name: &str) {
        let mut state = self.state();
        state.calls.insert(name.to_owned(), false);
        state.finished.push(name.to_owned());
    }

    fn accept_answer(&self, name: &str) -> SubmitOutcome {
        let waits = self.state().calls.get(name).copied();
        match waits {
            Some(true) => {
                self.finish_call(name);
                self.state().accepted.insert(name.to_owned());
                SubmitOutcome::Accepted
            }
            Some(false) if self.state().submits.is_multiple_of(2) => SubmitOutcome::AlreadyAnswered,
            _ => SubmitOutcome::NotFound,
        }
    }
}

impl CallManager for Model {
    fn list_pending<'a>(
        &'a self,
        token: Option<&'a str>,
        most: usize,
    ) -> BoxFuture<'a, Result<PendingPage, String>> {
        let fault = self
            .state()
            .page_faults
            .pop_front()
            .unwrap_or(PageFault::None);
        let pending_calls = self.pending_names();
        let mut rest = pending_calls
            .iter()
            .filter(|name| token.is_none_or(|token| name.as_str() > token));
        let mut calls: Vec<PendingCall> = rest.by_ref().take(most).map(|name| call(name)).collect();
        let next = calls
            .last()
            .map(|call| call.request_id.to_string())
            .filter(|_| rest.next().is_some());
        match fault {
            PageFault::Twice => calls.extend(calls.clone()),
            PageFault::Backwards => calls.reverse(),
            PageFault::Foreign => calls.extend(foreign()),
            PageFault::Stale => calls.extend(self.state().finished.iter().map(|name| call(name))),
            _ => {}
        }
        Box::pin(async move {
            match fault {
                PageFault::Fails => Err("500".to_owned()),
                PageFault::Hangs => pending().await,
                PageFault::Panics => panic!("a page"),
                _ => Ok(PendingPage {
                    calls,
                    next_token: next,
                    unread: 0,
                }),
            }
        })
    }

    fn submit_result<'a>(
        &'a self,
        request: &'a RequestId,
        _: &'a ToolResult,
    ) -> BoxFuture<'a, SubmitOutcome> {
        let name = request.as_str();
        let mut state = self.state();
        state.submits += 1;
        if state.accepted.contains(name) {
            state
                .violations
                .push(format!("{name} was submitted after it was accepted"));
        }
        let fault = state.faults.pop_front().unwrap_or(Fault::None);
        drop(state);
        Box::pin(async move {
            match fault {
                Fault::None => self.accept_answer(name),
                Fault::Refused => SubmitOutcome::Failed("500".to_owned()),
                Fault::Late(wait) => {
                    sleep(Duration::from_millis(wait)).await;
                    self.accept_answer(name)
                }
                Fault::Lost => {
                    self.finish_call(name);
                    SubmitOutcome::Failed("closed".to_owned())
                }
                Fault::Hangs => pending().await,
                Fault::HangsTaken => {
                    self.finish_call(name);
                    pending().await
                }
                Fault::Panics => panic!("an answer"),
                Fault::Withdrawn => {
                    self.finish_call(name);
                    SubmitOutcome::NotFound
                }
                Fault::Conflict => {
                    self.finish_call(name);
                    SubmitOutcome::AlreadyAnswered
                }
            }
        })
    }

    fn on_dispatch_ended(&self, record: &DispatchRecord) {
        self.state().records.push(record.clone());
    }
}

impl CallHandler for Model {
    fn answer_call<'a>(&'a self, tool: &'a str, arguments: &'a Value) -> BoxFuture<'a, ToolResult> {
        assert_eq!(tool, "own.tool");
        let name = arguments["id"].as_str().expect("an id").to_owned();
        let mut state = self.state();
        *state.runs.entry(name).or_default() += 1;
        state.at_once += 1;
        state.most_at_once = state.most_at_once.max(state.at_once);
        let behavior = state.tools.pop_front().unwrap_or(Tool::Quick);
        drop(state);
        let running = Running(self);
        Box::pin(async move {
            let _running = running;
            let json = match behavior {
                Tool::Quick => "{}".to_owned(),
                Tool::Slow(wait) => {
                    sleep(Duration::from_millis(wait)).await;
                    "{}".to_owned()
                }
                Tool::Hangs => pending().await,
                Tool::Panics => panic!("a tool"),
                Tool::Huge => "x".repeat(9_000),
            };
            ToolResult {
                success: true,
                external_context: true,
                json,
                images: Vec::new(),
            }
        })
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.state().at_once -= 1;
    }
}

impl AgentThread for Model {
    fn send_turn<'a>(&'a self, turn: &'a Value) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move {
            self.state().sent += 1;
            if let Some(wait) = turn["wait"].as_u64() {
                sleep(Duration::from_millis(wait)).await;
            }
            self.add(usize::try_from(turn["calls"].as_u64().unwrap_or(0)).expect("few"));
            turn["fails"]
                .as_str()
                .map_or(Ok(()), |why| Err(why.to_owned()))
        })
    }

    fn status(&self) -> BoxFuture<'_, Result<String, String>> {
        let mut state = self.state();
        let status = match state.statuses.len() {
            0 if state.calls.values().any(|waits| *waits) => Ok("running".to_owned()),
            0 => Ok("completed".to_owned()),
            1 => state.statuses[0].clone(),
            _ => state.statuses.pop_front().expect("two"),
        };
        Box::pin(std::future::ready(status))
    }
}
