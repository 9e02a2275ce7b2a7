//! Small HTTP service that keeps pending calls like a platform, with configurable faults.
//!
//! | request | answer |
//! | --- | --- |
//! | `GET /calls?after=ID&most=N` | `{"calls":[{"id","session","kind","tool","arguments"}],"next":ID or null}` |
//! | `POST /calls/ID/answer` | 200 taken, 404 not known, 409 answered already, 500 failed |
//! | `POST /threads/ID/turns` with `{"calls":[{"tool","arguments"}]}` | 202; these are then what its model calls |
//! | `GET /threads/ID` | `{"status"}`: `running` while a call of it waits, else `completed` |

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::io;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use tokio::net::TcpListener;
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

#[derive(Debug, Default)]
struct ServiceState {
    calls: BTreeMap<String, Value>,
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
        Self { address, state, task }
    }

    /// Adds a pending tool call.
    pub fn call(&self, id: &str, session: &str, tool: &str, arguments: &Value) {
        self.ask(
            id,
            json!({"session": session, "kind": "tool", "tool": tool, "arguments": arguments}),
        );
    }

    /// Adds a pending request of any `kind`.
    pub fn ask(&self, id: &str, call: Value) {
        lock(&self.state).calls.insert(id.to_owned(), call);
    }

    /// Adds faults for the next answers to a call.
    pub fn fail(&self, id: &str, faults: impl IntoIterator<Item = Fault>) {
        lock(&self.state).faults.entry(id.to_owned()).or_default().extend(faults);
    }

    /// Returns the ids of the pending calls.
    pub fn pending(&self) -> Vec<String> {
        lock(&self.state).calls.keys().cloned().collect()
    }

    /// Returns the answers, by call id.
    pub fn answers(&self) -> BTreeMap<String, Value> {
        lock(&self.state).answers.clone()
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
    fn page(&self, query: &str) -> Value {
        let mut query: HashMap<&str, &str> =
            query.split('&').filter_map(|pair| pair.split_once('=')).collect();
        let most = query.remove("most").and_then(|most| most.parse().ok()).unwrap_or(100);
        let after = query.get("after").map(|after| percent_decode(after));
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut rest = self.calls.range((from, Bound::Unbounded));
        let calls: Vec<Value> = rest
            .by_ref()
            .take(most)
            .map(|(id, call)| {
                let mut call = call.clone();
                call["id"] = json!(id);
                call
            })
            .collect();
        let next = rest.next().and_then(|_| calls.last()).map(|call| call["id"].clone());
        json!({ "calls": calls, "next": next })
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
                self.answers.insert(id.to_owned(), json!("another client's answer"));
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
    fn turn(&mut self, thread: &str, turn: &Value) {
        for call in turn["calls"].as_array().into_iter().flatten() {
            let mut call = call.clone();
            call["session"] = json!(thread);
            call["kind"] = json!("tool");
            self.calls.insert(format!("{thread}/{}", self.call_count), call);
            self.call_count += 1;
        }
    }

    fn status(&self, thread: &str) -> Value {
        let is_waiting = self.calls.values().any(|call| call["session"] == thread);
        json!({ "status": if is_waiting { "running" } else { "completed" } })
    }
}

async fn answer(
    state: Arc<Mutex<ServiceState>>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, io::Error> {
    let (head, body) = request.into_parts();
    let body =
        Limited::new(body, MAX_BODY_BYTES).collect().await.map_err(io::Error::other)?.to_bytes();
    let body_json = || serde_json::from_slice::<Value>(&body).unwrap_or_default();
    let path: Vec<String> = head.uri.path().split('/').skip(1).map(percent_decode).collect();
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let mut state = lock(&state);
    let (status, answer) = match (&head.method, &path[..]) {
        (&Method::GET, ["calls"]) => {
            (StatusCode::OK, state.page(head.uri.query().unwrap_or_default()))
        }
        (&Method::POST, ["calls", id, "answer"]) => (state.answer(id, body_json())?, Value::Null),
        (&Method::POST, ["threads", thread, "turns"]) => {
            state.turn(thread, &body_json());
            (StatusCode::ACCEPTED, Value::Null)
        }
        (&Method::GET, ["threads", thread]) => (StatusCode::OK, state.status(thread)),
        _ => (StatusCode::NOT_FOUND, Value::Null),
    };
    let mut response = Response::new(Full::new(Bytes::from(answer.to_string())));
    *response.status_mut() = status;
    Ok(response)
}

fn percent_decode(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}
