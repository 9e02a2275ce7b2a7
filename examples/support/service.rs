//! Small HTTP service that keeps pending calls like a platform, with configurable faults.
//!
//! | request | response |
//! | --- | --- |
//! | `GET /api/sessions/ID/tool-calls` | `{"tool_calls":[{"request_id","tool_name","arguments"}]}` |
//! | the same with `Accept: text/event-stream` | an event for each call after `Last-Event-ID` |
//! | `POST /api/tool-calls/ID/response` | 200 taken, 404 not known, 409 answered already, 500 failed |
//! | `POST /api/sessions/ID/turns` with `{"calls":[{"tool","arguments"}]}` | 202; the calls are then pending |
//! | `GET /api/sessions/ID` | `{"status"}`: `running` while a call is pending, else `completed` |

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::stream;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, Limited, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// Size limit of a request body, in bytes.
const MAX_BODY_BYTES: usize = 8 << 20;

/// Fault of the service for one answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The service does not store the answer and returns 500.
    Error,
    /// The service stores the answer and closes the connection without a response.
    Lost,
    /// The service returns 409, as if another client had answered.
    Conflict,
    /// The service returns 404, as if the call had been withdrawn.
    Gone,
}

/// Body of a response.
type ServiceBody = UnsyncBoxBody<Bytes, io::Error>;

#[derive(Debug, Default)]
struct ServiceState {
    /// Pending calls, each with its session.
    calls: BTreeMap<String, (String, Value)>,
    /// All calls with their sessions. The id of an event is its position, from 1.
    events: Vec<(String, Value)>,
    /// Number of events after which each of the next streams ends.
    stream_ends: VecDeque<usize>,
    /// `Last-Event-ID` of each stream.
    last_event_ids: Vec<Option<String>>,
    /// Notified when a call was added.
    added: watch::Sender<()>,
    /// Headers of the last request.
    last_headers: HeaderMap,
    /// Turns as they were sent.
    turns: Vec<Value>,
    /// Number of calls that turns have made.
    call_count: usize,
    faults: HashMap<String, VecDeque<Fault>>,
    answers: BTreeMap<String, Value>,
    /// Ids of the calls whose answer was confirmed with 200.
    accepted: HashSet<String>,
    /// Ids of the calls that were answered again after a 200.
    repeated: Vec<String>,
}

/// HTTP service on a free port of this machine. Stops when it is dropped.
#[derive(Debug)]
pub struct Service {
    /// Address, as `127.0.0.1:PORT`.
    pub address: String,
    state: Arc<Mutex<ServiceState>>,
    task: JoinHandle<()>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Service {
    /// Starts the service.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address").to_string();
        let state = Arc::new(Mutex::<ServiceState>::default());
        let shared = state.clone();
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                while connections.try_join_next().is_some() {}
                let state = shared.clone();
                let answer = service_fn(move |request| answer(state.clone(), request));
                let serving = http1::Builder::new().serve_connection(TokioIo::new(stream), answer);
                // The connection ends with an error if an answer is to be lost.
                connections.spawn(async move { drop(serving.await) });
            }
        });
        Self {
            address,
            state,
            task,
        }
    }

    /// Returns the base URL of the service.
    pub fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Adds a pending tool call.
    pub fn call(&self, id: &str, session: &str, tool: &str, arguments: &Value) {
        self.ask(
            session,
            json!({"request_id": id, "tool_name": tool, "arguments": arguments}),
        );
    }

    /// Adds a pending request with a `request_id`.
    pub fn ask(&self, session: &str, request: Value) {
        lock(&self.state).add(session, request);
    }

    /// Sends an event again.
    pub fn repeat_event(&self, id: &str) {
        let mut state = lock(&self.state);
        let event = state
            .events
            .iter()
            .find(|(_, call)| call["request_id"] == id)
            .cloned();
        state.events.extend(event);
        state.added.send_replace(());
    }

    /// Ends each of the next event streams after a number of events.
    pub fn end_streams(&self, after: impl IntoIterator<Item = usize>) {
        lock(&self.state).stream_ends.extend(after);
    }

    /// Returns the `Last-Event-ID` of each event stream.
    pub fn last_event_ids(&self) -> Vec<Option<String>> {
        lock(&self.state).last_event_ids.clone()
    }

    /// Returns a header of the last request.
    pub fn last_header(&self, name: &str) -> Option<String> {
        let state = lock(&self.state);
        Some(state.last_headers.get(name)?.to_str().ok()?.to_owned())
    }

    /// Adds faults for the next answers to a call.
    pub fn fail(&self, id: &str, faults: impl IntoIterator<Item = Fault>) {
        lock(&self.state)
            .faults
            .entry(id.to_owned())
            .or_default()
            .extend(faults);
    }

    /// Returns the ids of the pending calls.
    pub fn pending(&self) -> Vec<String> {
        lock(&self.state).calls.keys().cloned().collect()
    }

    /// Returns the answers, by call id.
    pub fn answers(&self) -> BTreeMap<String, Value> {
        lock(&self.state).answers.clone()
    }

    /// Returns the JSON in the text of an answer.
    pub fn result(&self, id: &str) -> Value {
        let answers = self.answers();
        let text = answers[id]["contentItems"][0]["text"]
            .as_str()
            .unwrap_or_default();
        serde_json::from_str(text).unwrap_or_default()
    }

    /// Returns the turns as they were sent.
    pub fn turns(&self) -> Vec<Value> {
        lock(&self.state).turns.clone()
    }

    /// Returns the ids of the calls that were answered again after a 200.
    pub fn repeated(&self) -> Vec<String> {
        lock(&self.state).repeated.clone()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ServiceState {
    fn add(&mut self, session: &str, request: Value) {
        let id = request["request_id"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        self.events.push((session.to_owned(), request.clone()));
        self.calls.insert(id, (session.to_owned(), request));
        self.added.send_replace(());
    }

    fn pending_of(&self, session: &str) -> Vec<Value> {
        let calls = self.calls.values().filter(|(of, _)| of == session);
        calls.map(|(_, call)| call.clone()).collect()
    }

    /// Returns the first event of a session from a position on, and the next position.
    fn next_event(&self, session: &str, from: usize) -> Option<(String, usize)> {
        let mut rest = self.events.iter().enumerate().skip(from);
        let (position, (_, call)) = rest.find(|(_, (of, _))| of == session)?;
        Some((
            format!("id: {}\ndata: {call}\n\n", position + 1),
            position + 1,
        ))
    }

    /// Stores an answer, or applies the next fault.
    fn answer(&mut self, id: &str, answer: Value) -> Result<StatusCode, io::Error> {
        if self.accepted.contains(id) {
            self.repeated.push(id.to_owned());
        }
        let fault = self.faults.get_mut(id).and_then(VecDeque::pop_front);
        match fault {
            Some(Fault::Error) => return Ok(StatusCode::INTERNAL_SERVER_ERROR),
            Some(Fault::Gone) => drop(self.calls.remove(id)),
            Some(Fault::Conflict) => {
                self.calls.remove(id);
                self.answers
                    .insert(id.to_owned(), json!("another client's answer"));
            }
            Some(Fault::Lost) | None => {}
        }
        if self.answers.contains_key(id) {
            return Ok(StatusCode::CONFLICT);
        }
        if self.calls.remove(id).is_none() {
            return Ok(StatusCode::NOT_FOUND);
        }
        self.answers.insert(id.to_owned(), answer);
        if fault == Some(Fault::Lost) {
            return Err(io::Error::other("hung up"));
        }
        self.accepted.insert(id.to_owned());
        Ok(StatusCode::OK)
    }

    /// Adds the calls of a turn.
    fn turn(&mut self, session: &str, turn: &Value) {
        for call in turn["calls"].as_array().into_iter().flatten() {
            let id = format!("{session}/{}", self.call_count);
            let (tool, arguments) = (&call["tool"], &call["arguments"]);
            let call = json!({"request_id": id, "tool_name": tool, "arguments": arguments});
            self.add(session, call);
            self.call_count += 1;
        }
        self.turns.push(turn.clone());
    }

    fn status(&self, session: &str) -> Value {
        let is_waiting = self.calls.values().any(|(of, _)| of == session);
        json!({ "status": if is_waiting { "running" } else { "completed" } })
    }
}

async fn answer(
    state: Arc<Mutex<ServiceState>>,
    request: Request<Incoming>,
) -> Result<Response<ServiceBody>, io::Error> {
    let (head, body) = request.into_parts();
    let body = Limited::new(body, MAX_BODY_BYTES)
        .collect()
        .await
        .map_err(io::Error::other)?
        .to_bytes();
    let body_json = || serde_json::from_slice::<Value>(&body).unwrap_or_default();
    let path: Vec<String> = head
        .uri
        .path()
        .split('/')
        .skip(1)
        .map(percent_decode)
        .collect();
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    lock(&state).last_headers = head.headers.clone();
    if let (&Method::GET, ["api", "sessions", session, "tool-calls"]) = (&head.method, &path[..])
        && head
            .headers
            .get("accept")
            .is_some_and(|accept| accept == "text/event-stream")
    {
        return Ok(stream_events(&state, session, &head.headers));
    }
    let mut state = lock(&state);
    let (status, answer) = match (&head.method, &path[..]) {
        (&Method::GET, ["api", "sessions", session, "tool-calls"]) => (
            StatusCode::OK,
            json!({ "tool_calls": state.pending_of(session) }),
        ),
        (&Method::POST, ["api", "tool-calls", id, "response"]) => {
            (state.answer(id, body_json())?, Value::Null)
        }
        (&Method::POST, ["api", "sessions", session, "turns"]) => {
            state.turn(session, &body_json());
            (StatusCode::ACCEPTED, Value::Null)
        }
        (&Method::GET, ["api", "sessions", session]) => (StatusCode::OK, state.status(session)),
        _ => (StatusCode::NOT_FOUND, Value::Null),
    };
    let body = Full::new(Bytes::from(answer.to_string()));
    let mut response = Response::new(body.map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = status;
    Ok(response)
}

/// Streams the calls of a session after the last event of the client.
fn stream_events(
    state: &Arc<Mutex<ServiceState>>,
    session: &str,
    headers: &HeaderMap,
) -> Response<ServiceBody> {
    let last = headers
        .get("last-event-id")
        .and_then(|id| id.to_str().ok())
        .map(str::to_owned);
    let from: usize = last.as_deref().and_then(|id| id.parse().ok()).unwrap_or(0);
    let (added, left) = {
        let mut state = lock(state);
        state.last_event_ids.push(last);
        (
            state.added.subscribe(),
            state.stream_ends.pop_front().unwrap_or(usize::MAX),
        )
    };
    let (state, session) = (state.clone(), session.to_owned());
    let events = stream::unfold((from, left, added), move |(from, left, mut added)| {
        let (state, session) = (state.clone(), session.clone());
        async move {
            let left = left.checked_sub(1)?;
            loop {
                added.mark_unchanged();
                let next = lock(&state).next_event(&session, from);
                if let Some((event, position)) = next {
                    let frame = Ok(Frame::data(Bytes::from(event)));
                    return Some((frame, (position, left, added)));
                }
                added.changed().await.ok()?;
            }
        }
    });
    let mut response = Response::new(StreamBody::new(events).boxed_unsync());
    response.headers_mut().insert(
        "content-type",
        http::HeaderValue::from_static("text/event-stream"),
    );
    response
}

fn percent_decode(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}
