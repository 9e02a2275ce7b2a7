//! HTTP server that sends one scripted response to each `GET`.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response, header, request};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};

use super::{HttpServer, free_port, start_http};

/// Server that keeps the heads of the `GET` requests. An answer of a call is accepted.
pub(crate) struct ScriptedServer {
    pub(crate) base_url: String,
    state: Arc<Mutex<Script>>,
    _server: HttpServer,
}

/// Responses that were not sent yet, and the requests so far.
struct Script {
    responses: VecDeque<Response<Full<Bytes>>>,
    requests: Vec<request::Parts>,
}

impl ScriptedServer {
    /// Starts a server that closes the connection of each request after the last response.
    pub(crate) async fn start<const N: usize>(responses: [Response<Full<Bytes>>; N]) -> Self {
        let script = Script {
            responses: responses.into(),
            requests: Vec::new(),
        };
        let state = Arc::new(Mutex::new(script));
        let shared = state.clone();
        let server = start_http(&free_port(), move |request| {
            respond(shared.clone(), request)
        })
        .await;
        Self {
            base_url: format!("http://{}", server.address),
            state,
            _server: server,
        }
    }

    /// Returns the heads of the requests.
    pub(crate) fn requests(&self) -> Vec<request::Parts> {
        self.state.lock().expect("no panic").requests.clone()
    }
}

async fn respond(
    state: Arc<Mutex<Script>>,
    request: Request<Incoming>,
) -> io::Result<Response<Full<Bytes>>> {
    let (head, body) = request.into_parts();
    if head.method == Method::POST {
        body.collect().await.expect("a body");
        return Ok(response(200, "text/plain", ""));
    }
    let mut script = state.lock().expect("no panic");
    script.requests.push(head);
    script
        .responses
        .pop_front()
        .ok_or_else(|| io::Error::other("the script has ended"))
}

pub(crate) fn response(status: u16, content_type: &str, body: &str) -> Response<Full<Bytes>> {
    let response = Response::builder()
        .status(status)
        .header(header::CONTENT_TYPE, content_type);
    response
        .body(Full::from(body.to_owned()))
        .expect("a response")
}

pub(crate) fn event_stream(body: &str) -> Response<Full<Bytes>> {
    response(200, "text/event-stream; charset=utf-8", body)
}
