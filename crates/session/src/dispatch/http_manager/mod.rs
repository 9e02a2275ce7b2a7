//! Manager over HTTP: pending calls, answers and turns as JSON requests.

mod listener;

pub use listener::{CallListener, ListenError};

use super::call::{CallKind, PendingCall, RequestId};
use super::drain::MAX_PAGE_CALLS;
use super::manager::{AgentThread, CallManager, PendingPage, SubmitOutcome};
use super::record::DispatchRecord;
use crate::ToolResult;
use crate::network::http_client::{build_client, http_client_builder, read_body, send_request};
use caproot_client::{BearerToken, ClientToken};
use caproot_core::json::{
    BoundedJsonError, ListEntries, MAX_TREE_MEMORY, estimate_tree_memory, parse_message,
};
use caproot_core::net::endpoint::is_loopback_host;
use caproot_core::text::SentenceResult as _;
use futures_util::future::BoxFuture;
use http::StatusCode;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{RequestBuilder, Response};
use serde::Deserialize;
use serde_json::Value;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Limit of the body of a response, in bytes.
const MAX_BODY_BYTES: usize = 8 << 20;
/// Interval of the TCP keepalive probes, which detect a manager that is gone.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// Bytes of a response that an error repeats.
const MAX_SHOWN_BYTES: usize = 200;

/// Paths of a manager. `{session}` stands for the session id and `{request_id}` for the id of a
/// call, both percent-encoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManagerPaths {
    /// `GET` returns the pending calls.
    pub pending_calls: String,
    /// `GET` with `Accept: text/event-stream` streams the pending calls.
    pub call_events: String,
    /// `POST` submits the answer of a call.
    pub call_response: String,
    /// `POST` sends a turn.
    pub turns: String,
    /// `GET` returns the status of the session.
    pub session: String,
}

impl Default for ManagerPaths {
    fn default() -> Self {
        Self {
            pending_calls: "/api/sessions/{session}/tool-calls".to_owned(),
            call_events: "/api/sessions/{session}/tool-calls".to_owned(),
            call_response: "/api/tool-calls/{request_id}/response".to_owned(),
            turns: "/api/sessions/{session}/turns".to_owned(),
            session: "/api/sessions/{session}".to_owned(),
        }
    }
}

/// Address and credentials of an [`HttpManager`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpManagerConfig {
    /// URL before the paths, such as `https://platform.example`.
    pub base_url: String,
    /// Id that the manager has for the session.
    pub session_id: String,
    /// Token that is sent with each request; only over TLS or to a loopback address.
    pub token: Option<ClientToken>,
    /// Paths below the base URL.
    pub paths: ManagerPaths,
}

impl HttpManagerConfig {
    /// Returns a configuration with the default paths and without a token.
    #[must_use]
    pub fn new(base_url: impl Into<String>, session_id: impl Into<String>) -> Self {
        Self {
            base_url: base_url.into(),
            session_id: session_id.into(),
            token: None,
            paths: ManagerPaths::default(),
        }
    }
}

/// Error of [`HttpManager::new`]. Displays as a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HttpManagerError {
    /// The base URL is not an `http:` or `https:` URL with a host.
    #[error("invalid base URL {0:?} of the manager: expected http://HOST or https://HOST")]
    InvalidUrl(String),
    /// A path does not begin with `/`, or has no placeholder for the id.
    #[error("invalid path {path:?} of the manager: expected a path that begins with `/`{needs}")]
    InvalidPath {
        /// Path of the configuration.
        path: String,
        /// Missing placeholder, as the end of the sentence.
        needs: &'static str,
    },
    /// The token would be sent over a connection that others can read.
    #[error("the token is not sent to {0}: an attacker on the network could read it")]
    TokenInCleartext(String),
    /// The token or the HTTP client cannot be used.
    #[error("{0}")]
    Client(String),
}

/// Function that receives the record of each dispatch.
type DispatchObserver = Arc<dyn Fn(&DispatchRecord) + Send + Sync>;

/// Manager over HTTP, for the calls of one session.
///
/// | request | response |
/// | --- | --- |
/// | `GET /api/sessions/{session}/tool-calls` | `{"tool_calls":[{"request_id":…,"tool_name":…,"arguments":…}]}`, or the array alone |
/// | `POST /api/tool-calls/{request_id}/response` | 2xx; 404 if the call is gone; 409 if the call has an answer already |
/// | `POST /api/sessions/{session}/turns` | 2xx |
/// | `GET /api/sessions/{session}` | `{"status":…}` |
///
/// The body of an answer is [`ToolResult::to_dynamic_tool_response`]. Any other status, such as
/// 503, is a failure: the dispatcher submits the answer again. The names of the fields may also be
/// in camel case. [`CallListener`] takes calls from an event stream instead.
///
/// ```no_run
/// use caproot_session::Session;
/// use caproot_session::dispatch::{CallDispatcher, DispatchOptions, HttpManager, HttpManagerConfig};
/// use std::error::Error;
/// use std::sync::Arc;
///
/// async fn answer_pending_calls(session: Arc<Session>) -> Result<(), Box<dyn Error>> {
///     let config = HttpManagerConfig::new("https://platform.example", "thread-1");
///     let manager = Arc::new(HttpManager::new(config).await?);
///     let dispatcher =
///         CallDispatcher::new("thread-1", manager, session, DispatchOptions::default());
///     let drained = dispatcher.drain().await?;
///     println!("{} answers", drained.accepted);
///     Ok(())
/// }
/// ```
pub struct HttpManager {
    client: reqwest::Client,
    token: BearerToken,
    session_id: String,
    base_url: String,
    paths: ManagerPaths,
    observer: Option<DispatchObserver>,
}

/// Pending call in a response or an event.
#[derive(Deserialize)]
struct CallMessage {
    #[serde(alias = "requestId")]
    request_id: String,
    #[serde(alias = "toolName")]
    tool_name: String,
    #[serde(default)]
    arguments: Value,
}

/// Status of a session in a response.
#[derive(Deserialize)]
struct StatusMessage {
    status: String,
}

impl HttpManager {
    /// Returns a manager. Connects with the first request.
    pub async fn new(config: HttpManagerConfig) -> Result<Self, HttpManagerError> {
        let HttpManagerConfig {
            base_url,
            session_id,
            token,
            paths,
        } = config;
        let Some(url) = parse_base_url(&base_url) else {
            return Err(HttpManagerError::InvalidUrl(base_url));
        };
        check_paths(&paths)?;
        let is_local = url.host_str().is_some_and(is_loopback_host);
        if token.is_some() && url.scheme() == "http" && !is_local {
            return Err(HttpManagerError::TokenInCleartext(base_url));
        }

        let connection = async {
            Ok(Self {
                token: BearerToken::read(token).await?,
                client: build_client(
                    http_client_builder(&base_url)
                        .await?
                        .tcp_keepalive(KEEPALIVE),
                )?,
                session_id,
                base_url: base_url.trim_end_matches('/').to_owned(),
                paths,
                observer: None,
            })
        };
        connection.await.map_err(HttpManagerError::Client)
    }

    /// Sets a function that receives the record of each dispatch, such as for metrics.
    #[must_use]
    pub fn with_observer(self, observer: impl Fn(&DispatchRecord) + Send + Sync + 'static) -> Self {
        Self {
            observer: Some(Arc::new(observer)),
            ..self
        }
    }

    /// Returns the URL of a path.
    fn url(&self, path: &str, request_id: &str) -> String {
        let encode = |text| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let path = path
            .replace("{session}", &encode(&self.session_id))
            .replace("{request_id}", &encode(request_id));
        format!("{}{path}", self.base_url)
    }

    /// Sends a request. If the manager rejects the token and the token's file has changed, sends
    /// the request again.
    async fn send(&self, request: RequestBuilder) -> Result<Response, String> {
        let again = request.try_clone();
        let response = self.send_once(request).await?;
        if response.status() == StatusCode::UNAUTHORIZED
            && let Some(again) = again
            && self.token.reload().await
        {
            return self.send_once(again).await;
        }
        Ok(response)
    }

    /// Sends a request with the token.
    async fn send_once(&self, mut request: RequestBuilder) -> Result<Response, String> {
        if let Some(token) = self.token.header() {
            request = request.header(AUTHORIZATION, token);
        }
        send_request(request).await
    }

    /// Returns the body of a successful `GET`.
    async fn get(&self, url: &str) -> Result<Vec<u8>, String> {
        let request = self.client.get(url).header(ACCEPT, "application/json");
        let response = check_success(self.send(request).await?).await?;
        read_body(response, MAX_BODY_BYTES).await
    }

    /// Reads the pending calls of a response, as many as may be in memory at a time. The others are in the
    /// response after the answers of these.
    fn read_page(&self, body: &[u8]) -> Result<PendingPage, String> {
        let list = ListEntries::split(body, &["tool_calls", "toolCalls"], MAX_PAGE_CALLS)
            .or_else(|error| ListEntries::split_list(body, MAX_PAGE_CALLS).map_err(|_| error))
            .context("invalid response")?;

        let mut page = PendingPage {
            unread: usize::from(list.is_cut),
            ..PendingPage::default()
        };
        let mut memory = 0;
        for entry in list.entries {
            memory += estimate_tree_memory(entry.text().as_bytes());
            if memory > MAX_TREE_MEMORY {
                page.unread += 1;
                continue;
            }
            match self.read_call(entry.parse()) {
                Some(call) => page.calls.push(call),
                None => page.unread += 1,
            }
        }
        Ok(page)
    }

    async fn post(&self, url: &str, body: &Value) -> Result<Response, String> {
        let request = self
            .client
            .post(url)
            .header(CONTENT_TYPE, "application/json");
        self.send(request.body(body.to_string())).await
    }

    /// Returns the call of a message, or `None` with a log line if the message is invalid.
    fn read_call(&self, message: Result<Value, BoundedJsonError>) -> Option<PendingCall> {
        let call = self.parse_call(message).inspect_err(|error| {
            tracing::warn!(session = self.session_id, "invalid pending call: {error}");
        });
        call.ok()
    }

    fn parse_call(
        &self,
        message: Result<Value, BoundedJsonError>,
    ) -> Result<PendingCall, Box<dyn Error + Send + Sync>> {
        let call: CallMessage = serde_json::from_value(message?)?;
        Ok(PendingCall {
            request_id: RequestId::try_from(call.request_id.as_str())?,
            session_id: self.session_id.clone(),
            kind: CallKind::Tool {
                name: call.tool_name,
                arguments: call.arguments,
            },
        })
    }
}

impl CallManager for HttpManager {
    fn list_pending<'a>(
        &'a self,
        _token: Option<&'a str>,
        _limit: usize,
    ) -> BoxFuture<'a, Result<PendingPage, String>> {
        Box::pin(async move {
            let url = self.url(&self.paths.pending_calls, "");
            let body = self.get(&url).await?;
            self.read_page(&body)
        })
    }

    fn submit_result<'a>(
        &'a self,
        request_id: &'a RequestId,
        result: &'a ToolResult,
    ) -> BoxFuture<'a, SubmitOutcome> {
        Box::pin(async move {
            let url = self.url(&self.paths.call_response, request_id.as_str());
            let response = match self.post(&url, &result.to_dynamic_tool_response()).await {
                Ok(response) => response,
                Err(reason) => return SubmitOutcome::Failed(reason),
            };

            match response.status() {
                status if status.is_success() => SubmitOutcome::Accepted,
                StatusCode::NOT_FOUND => SubmitOutcome::NotFound,
                StatusCode::CONFLICT => SubmitOutcome::AlreadyAnswered,
                _ => SubmitOutcome::Failed(failure(response).await),
            }
        })
    }

    fn on_dispatch_ended(&self, record: &DispatchRecord) {
        if let Some(observer) = &self.observer {
            observer(record);
        }
    }
}

impl AgentThread for HttpManager {
    fn send_turn<'a>(&'a self, turn: &'a Value) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move {
            let response = self.post(&self.url(&self.paths.turns, ""), turn).await?;
            check_success(response).await.map(drop)
        })
    }

    fn status(&self) -> BoxFuture<'_, Result<String, String>> {
        Box::pin(async move {
            let body = self.get(&self.url(&self.paths.session, "")).await?;
            let session: StatusMessage = parse_message(&body).await.context("invalid response")?;
            Ok(session.status)
        })
    }
}

impl fmt::Debug for HttpManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpManager")
            .field("base_url", &self.base_url)
            .field("session_id", &self.session_id)
            .finish_non_exhaustive()
    }
}

/// Returns the URL of a manager, if it has a host, and paths can be appended to it.
fn parse_base_url(text: &str) -> Option<reqwest::Url> {
    let url = reqwest::Url::parse(text).ok()?;
    let is_base = ["http", "https"].contains(&url.scheme())
        && url.has_host()
        && url.query().is_none()
        && url.fragment().is_none();
    is_base.then_some(url)
}

fn check_paths(paths: &ManagerPaths) -> Result<(), HttpManagerError> {
    let ManagerPaths {
        pending_calls,
        call_events,
        call_response,
        turns,
        session,
    } = paths;

    for path in [pending_calls, call_events, call_response, turns, session] {
        let needs = if path == call_response && !path.contains("{request_id}") {
            " and contains `{request_id}`"
        } else if path.starts_with('/') {
            continue;
        } else {
            ""
        };
        let path = path.clone();
        return Err(HttpManagerError::InvalidPath { path, needs });
    }
    Ok(())
}

/// Returns a response that is a success, or the failure of another response.
async fn check_success(response: Response) -> Result<Response, String> {
    if response.status().is_success() {
        Ok(response)
    } else {
        Err(failure(response).await)
    }
}

/// Returns the status and the first bytes of a response that is not a success.
async fn failure(response: Response) -> String {
    let status = response.status();
    let body = read_body(response, MAX_BODY_BYTES)
        .await
        .unwrap_or_default();
    let text = String::from_utf8_lossy(&body[..body.len().min(MAX_SHOWN_BYTES)])
        .trim()
        .to_owned();
    let separator = if text.is_empty() { "" } else { ": " };
    format!("the manager responds {status}{separator}{text}")
}
