//! HTTP client of the example service, as an orchestrator would write one for its platform: a
//! [`CallManager`] and an [`AgentThread`].

use std::sync::{Mutex, PoisonError};

use caproot::session::ToolResult;
use caproot::session::dispatch::{
    AgentThread, CallKind, CallManager, DispatchRecord, PendingCall, PendingPage, RequestId,
    SubmitOutcome,
};
use futures_util::future::BoxFuture;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

/// Size limit of a response body, in bytes.
const MAX_BODY_BYTES: usize = 8 << 20;

/// HTTP client of the service.
#[derive(Debug)]
pub struct HttpManager {
    client: Client<HttpConnector, Full<Bytes>>,
    base: String,
    records: Mutex<Vec<DispatchRecord>>,
}

/// Thread of the service.
#[derive(Debug)]
pub struct HttpThread<'a> {
    /// Client of the service.
    pub manager: &'a HttpManager,
    /// Id of the thread.
    pub id: &'a str,
}

impl HttpManager {
    /// Creates a client for the service at an address.
    pub fn new(address: &str) -> Self {
        Self {
            client: Client::builder(TokioExecutor::new()).build_http(),
            base: format!("http://{address}"),
            records: Mutex::default(),
        }
    }

    /// Returns the records of ended dispatches.
    pub fn records(&self) -> Vec<DispatchRecord> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn request(
        &self,
        method: Method,
        path: String,
        body: Option<Value>,
    ) -> Result<(StatusCode, Value), String> {
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        let request = request.body(Full::new(Bytes::from(body))).map_err(|e| e.to_string())?;
        let answer = self.client.request(request).await.map_err(|e| e.to_string())?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), MAX_BODY_BYTES).collect().await;
        let body = body.map_err(|e| e.to_string())?.to_bytes();
        Ok((status, serde_json::from_slice(&body).unwrap_or_default()))
    }
}

fn percent_encode(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

/// Returns the body if the status is `expected`, else an error.
fn require_status(
    expected: StatusCode,
    (status, body): (StatusCode, Value),
) -> Result<Value, String> {
    if status == expected { Ok(body) } else { Err(format!("the service says {status}")) }
}

/// Parses a pending call. Returns `None` if its id is invalid.
fn parse_call(call: &Value) -> Option<PendingCall> {
    let text = |key: &str| call[key].as_str().unwrap_or_default().to_owned();
    let kind = match call["kind"].as_str() {
        Some("tool") => CallKind::Tool { name: text("tool"), arguments: call["arguments"].clone() },
        other => CallKind::Other(other.unwrap_or_default().to_owned()),
    };
    let request = RequestId::try_from(call["id"].as_str()?).ok()?;
    Some(PendingCall { request_id: request, session_id: text("session"), kind })
}

impl CallManager for HttpManager {
    fn list_pending<'a>(
        &'a self,
        after: Option<&'a str>,
        most: usize,
    ) -> BoxFuture<'a, Result<PendingPage, String>> {
        Box::pin(async move {
            let after =
                after.map(|after| format!("&after={}", percent_encode(after))).unwrap_or_default();
            let answer = self.request(Method::GET, format!("/calls?most={most}{after}"), None);
            let page = require_status(StatusCode::OK, answer.await?)?;
            let calls = page["calls"].as_array().ok_or("the page has no calls")?;
            let calls = calls.iter().filter_map(parse_call).collect();
            Ok(PendingPage { calls, next_token: page["next"].as_str().map(str::to_owned) })
        })
    }

    fn submit_result<'a>(
        &'a self,
        request: &'a RequestId,
        result: &'a ToolResult,
    ) -> BoxFuture<'a, SubmitOutcome> {
        Box::pin(async move {
            let path = format!("/calls/{}/answer", percent_encode(request.as_str()));
            let json: Value = serde_json::from_str(&result.json).unwrap_or_default();
            let body = json!({"success": result.success, "result": json,
                "externalContext": result.external_context});
            match self.request(Method::POST, path, Some(body)).await {
                Ok((StatusCode::OK, _)) => SubmitOutcome::Accepted,
                Ok((StatusCode::NOT_FOUND, _)) => SubmitOutcome::NotFound,
                Ok((StatusCode::CONFLICT, _)) => SubmitOutcome::InFlight,
                Ok((status, _)) => SubmitOutcome::Failed(format!("the service says {status}")),
                Err(why) => SubmitOutcome::Failed(why),
            }
        })
    }

    fn on_dispatch_ended(&self, record: &DispatchRecord) {
        self.records.lock().unwrap_or_else(PoisonError::into_inner).push(record.clone());
    }
}

impl AgentThread for HttpThread<'_> {
    fn send_turn<'a>(&'a self, turn: &'a Value) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move {
            let path = format!("/threads/{}/turns", percent_encode(self.id));
            let answer = self.manager.request(Method::POST, path, Some(turn.clone()));
            require_status(StatusCode::ACCEPTED, answer.await?).map(drop)
        })
    }

    fn status(&self) -> BoxFuture<'_, Result<String, String>> {
        Box::pin(async move {
            let path = format!("/threads/{}", percent_encode(self.id));
            let thread = require_status(
                StatusCode::OK,
                self.manager.request(Method::GET, path, None).await?,
            )?;
            thread["status"]
                .as_str()
                .map(str::to_owned)
                .ok_or("the thread has no status".to_owned())
        })
    }
}
