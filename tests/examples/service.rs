//! A small service over HTTP that keeps pending calls as a platform would, and fails where it is told to.
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

/// The most bytes of a request's body.
const MAX_BODY: usize = 8 << 20;

/// What the service does wrong with one answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It does not take the answer, and says 500.
    Error,
    /// It takes the answer, and hangs up before it says so.
    Lost,
    /// It says 409, since somebody else answered.
    Conflict,
    /// It says 404, since the call was withdrawn.
    Gone,
}

#[derive(Debug, Default)]
struct Kept {
    calls: BTreeMap<String, Value>,
    /// How many calls turns have made.
    made: usize,
    faults: HashMap<String, VecDeque<Fault>>,
    answers: BTreeMap<String, Value>,
    /// Those that were answered with 200.
    accepted: HashSet<String>,
    /// Those that were answered again after that.
    repeated: Vec<String>,
}

/// The service, on a free port of this machine. Ends when it is dropped.
#[derive(Debug)]
pub struct Service {
    /// `127.0.0.1:PORT`.
    pub address: String,
    kept: Arc<Mutex<Kept>>,
    task: JoinHandle<()>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Service {
    /// Starts it.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address").to_string();
        let kept = Arc::new(Mutex::<Kept>::default());
        let shared = kept.clone();
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                while connections.try_join_next().is_some() {}
                let kept = shared.clone();
                let answer = service_fn(move |request| answer(kept.clone(), request));
                let serving = http1::Builder::new().serve_connection(TokioIo::new(stream), answer);
                // Ends with an error where an answer is to be lost.
                connections.spawn(async move { drop(serving.await) });
            }
        });
        Self { address, kept, task }
    }

    /// A call of a tool waits from now on.
    pub fn call(&self, id: &str, session: &str, tool: &str, arguments: &Value) {
        self.ask(
            id,
            json!({"session": session, "kind": "tool", "tool": tool, "arguments": arguments}),
        );
    }

    /// Something waits from now on, of any `kind`.
    pub fn ask(&self, id: &str, call: Value) {
        locked(&self.kept).calls.insert(id.to_owned(), call);
    }

    /// What goes wrong with the next answers of a call.
    pub fn fail(&self, id: &str, faults: impl IntoIterator<Item = Fault>) {
        locked(&self.kept).faults.entry(id.to_owned()).or_default().extend(faults);
    }

    /// The ids of calls that wait.
    pub fn pending(&self) -> Vec<String> {
        locked(&self.kept).calls.keys().cloned().collect()
    }

    /// The answers that it has, by the ids of calls.
    pub fn answers(&self) -> BTreeMap<String, Value> {
        locked(&self.kept).answers.clone()
    }

    /// The ids of calls that were answered again after it had said 200.
    pub fn repeated(&self) -> Vec<String> {
        locked(&self.kept).repeated.clone()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Kept {
    fn page(&self, query: &str) -> Value {
        let mut query: HashMap<&str, &str> =
            query.split('&').filter_map(|pair| pair.split_once('=')).collect();
        let most = query.remove("most").and_then(|most| most.parse().ok()).unwrap_or(100);
        let after = query.get("after").map(|after| decoded(after));
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

    /// Takes an answer, or does what it is told to.
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
                self.answers.insert(id.to_owned(), json!("somebody else's"));
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

    /// A turn makes its calls.
    fn turn(&mut self, thread: &str, turn: &Value) {
        for call in turn["calls"].as_array().into_iter().flatten() {
            let mut call = call.clone();
            call["session"] = json!(thread);
            call["kind"] = json!("tool");
            self.calls.insert(format!("{thread}/{}", self.made), call);
            self.made += 1;
        }
    }

    fn status(&self, thread: &str) -> Value {
        let waits = self.calls.values().any(|call| call["session"] == thread);
        json!({ "status": if waits { "running" } else { "completed" } })
    }
}

async fn answer(
    kept: Arc<Mutex<Kept>>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, io::Error> {
    let (head, body) = request.into_parts();
    let body = Limited::new(body, MAX_BODY).collect().await.map_err(io::Error::other)?.to_bytes();
    let said = || serde_json::from_slice::<Value>(&body).unwrap_or_default();
    let path: Vec<String> = head.uri.path().split('/').skip(1).map(decoded).collect();
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let mut kept = locked(&kept);
    let (status, answer) = match (&head.method, &path[..]) {
        (&Method::GET, ["calls"]) => {
            (StatusCode::OK, kept.page(head.uri.query().unwrap_or_default()))
        }
        (&Method::POST, ["calls", id, "answer"]) => (kept.answer(id, said())?, Value::Null),
        (&Method::POST, ["threads", thread, "turns"]) => {
            kept.turn(thread, &said());
            (StatusCode::ACCEPTED, Value::Null)
        }
        (&Method::GET, ["threads", thread]) => (StatusCode::OK, kept.status(thread)),
        _ => (StatusCode::NOT_FOUND, Value::Null),
    };
    let mut response = Response::new(Full::new(Bytes::from(answer.to_string())));
    *response.status_mut() = status;
    Ok(response)
}

fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}
