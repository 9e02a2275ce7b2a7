//! A client of the service, as an orchestrator writes one for its platform: a [`Manager`], and a
//! [`Thread`].

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

/// The most bytes of an answer's body.
const MAX_BODY: usize = 8 << 20;

/// The client.
#[derive(Debug)]
pub struct HttpManager {
    client: Client<HttpConnector, Full<Bytes>>,
    base: String,
    records: Mutex<Vec<DispatchRecord>>,
}

/// A thread of the service.
#[derive(Debug)]
pub struct HttpThread<'a> {
    /// Where it is.
    pub manager: &'a HttpManager,
    /// Its id.
    pub id: &'a str,
}

impl HttpManager {
    /// Of the service at an address.
    pub fn new(address: &str) -> Self {
        Self {
            client: Client::builder(TokioExecutor::new()).build_http(),
            base: format!("http://{address}"),
            records: Mutex::default(),
        }
    }

    /// What it was told of dispatches.
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
        let body = Limited::new(answer.into_body(), MAX_BODY).collect().await;
        let body = body.map_err(|e| e.to_string())?.to_bytes();
        Ok((status, serde_json::from_slice(&body).unwrap_or_default()))
    }
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

/// Every answer but this is a failure.
fn expect(wanted: StatusCode, (status, body): (StatusCode, Value)) -> Result<Value, String> {
    if status == wanted { Ok(body) } else { Err(format!("the service says {status}")) }
}

/// A call in the words of the service; `None` where its id cannot be one.
fn call(call: &Value) -> Option<PendingCall> {
    let text = |key: &str| call[key].as_str().unwrap_or_default().to_owned();
    let asked = match call["kind"].as_str() {
        Some("tool") => CallKind::Tool { name: text("tool"), arguments: call["arguments"].clone() },
        other => CallKind::Other(other.unwrap_or_default().to_owned()),
    };
    let request = RequestId::try_from(call["id"].as_str()?).ok()?;
    Some(PendingCall { request_id: request, session_id: text("session"), kind: asked })
}

impl CallManager for HttpManager {
    fn list_pending<'a>(
        &'a self,
        after: Option<&'a str>,
        most: usize,
    ) -> BoxFuture<'a, Result<PendingPage, String>> {
        Box::pin(async move {
            let after = after.map(|after| format!("&after={}", encoded(after))).unwrap_or_default();
            let answer = self.request(Method::GET, format!("/calls?most={most}{after}"), None);
            let page = expect(StatusCode::OK, answer.await?)?;
            let calls = page["calls"].as_array().ok_or("a page has calls")?;
            let calls = calls.iter().filter_map(call).collect();
            Ok(PendingPage { calls, next_token: page["next"].as_str().map(str::to_owned) })
        })
    }

    fn submit_result<'a>(
        &'a self,
        request: &'a RequestId,
        result: &'a ToolResult,
    ) -> BoxFuture<'a, SubmitOutcome> {
        Box::pin(async move {
            let path = format!("/calls/{}/answer", encoded(request.as_str()));
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
            let path = format!("/threads/{}/turns", encoded(self.id));
            let answer = self.manager.request(Method::POST, path, Some(turn.clone()));
            expect(StatusCode::ACCEPTED, answer.await?).map(drop)
        })
    }

    fn status(&self) -> BoxFuture<'_, Result<String, String>> {
        Box::pin(async move {
            let path = format!("/threads/{}", encoded(self.id));
            let thread =
                expect(StatusCode::OK, self.manager.request(Method::GET, path, None).await?)?;
            thread["status"].as_str().map(str::to_owned).ok_or("a thread has a status".to_owned())
        })
    }
}
