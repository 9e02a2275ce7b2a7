//! Messages of an MCP server. The memory of each message is checked before its tree is built, and an entry
//! of a list that the protocol does not permit is omitted, so that the other entries stay.

use super::limits::{MAX_LARGE_MESSAGE_BYTES, MAX_MESSAGE_BYTES};
use crate::network::http_client::{event_stream, read_body};
use caproot_core::json::{
    BoundedJsonError, ListEntries, TreePermit, permit_large_text, reserve_tree,
};
use caproot_core::sync::Mutex;
use caproot_core::text::SentenceResult as _;
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt as _, TryStreamExt as _, stream};
use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, StatusCode};
use reqwest::Response;
use rmcp::RoleClient;
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorData, ReadResourceResult, RequestId, Resource,
    ServerJsonRpcMessage, ServerResult, Skill, Tool,
};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, HttpStatusError, InsufficientScopeError, SseError, StreamableHttpError,
    StreamableHttpPostResponse,
};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use sse_stream::Sse;
use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader,
};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

/// Maximum number of omitted entries that are named.
const MAX_NAMED: usize = 64;
/// Entries of one message. More entries than a list may have are not read.
const MAX_ENTRIES: usize = 50_000;
/// Bytes of the body of a failed request.
const MAX_ERROR_BYTES: usize = 64 << 10;

const SESSION_HEADER: &str = "mcp-session-id";
const EVENT_STREAM: &str = "text/event-stream";
const JSON: &str = "application/json";

pub type HttpError = StreamableHttpError<reqwest::Error>;

/// Entry that is no entry of its list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OmittedEntry {
    /// Name or URI of the entry; empty if it has none.
    pub name: String,
    pub reason: String,
}

/// Messages of a connection: the entries that were omitted since they were last taken, and the limit.
#[derive(Debug, Default)]
pub struct ReceivedMessages {
    omitted: Mutex<Vec<OmittedEntry>>,
    /// Number of large files that are requested now: with the process's turns, at most one.
    large_files: AtomicUsize,
}

/// Request for a large file. Until it is dropped, the server may send a large message.
pub struct LargeRequest<'a>(&'a ReceivedMessages);

impl Drop for LargeRequest<'_> {
    fn drop(&mut self) {
        self.0.large_files.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ReceivedMessages {
    pub fn take_omitted(&self) -> Vec<OmittedEntry> {
        std::mem::take(&mut self.omitted.lock())
    }

    /// Lets the server send a large message.
    pub fn expect_large(&self) -> LargeRequest<'_> {
        self.large_files.fetch_add(1, Ordering::Relaxed);
        LargeRequest(self)
    }

    /// Returns the limit of a message in bytes.
    fn max_bytes(&self) -> usize {
        if self.large_files.load(Ordering::Relaxed) > 0 {
            MAX_LARGE_MESSAGE_BYTES
        } else {
            MAX_MESSAGE_BYTES
        }
    }

    fn record(&self, entry: OmittedEntry) {
        let mut entries = self.omitted.lock();
        if entries.len() < MAX_NAMED {
            entries.push(entry);
        }
    }
}

/// Text of a message that may be parsed, with the part of the budget that its tree takes.
struct CheckedText {
    text: String,
    permit: TreePermit,
}

/// Checks a message, and removes malformed entries from its lists.
async fn check_text(
    text: String,
    messages: &ReceivedMessages,
) -> Result<CheckedText, BoundedJsonError> {
    if text.len() > MAX_MESSAGE_BYTES {
        let permit = permit_large_text(text.as_bytes())?;
        return Ok(CheckedText { text, permit });
    }
    let permit = reserve_tree(text.as_bytes()).await?;
    let text = remove_malformed_entries(&text, messages).unwrap_or(text);
    Ok(CheckedText { text, permit })
}

type RawFields = BTreeMap<String, Box<RawValue>>;

/// Returns the message without malformed entries; `None` if there is none.
fn remove_malformed_entries(text: &str, messages: &ReceivedMessages) -> Option<String> {
    let mut message: RawFields = serde_json::from_str(text).ok()?;
    let result = message.get("result")?;
    let mut fields: RawFields = serde_json::from_str(result.get()).ok()?;

    let mut has_changed = false;
    for (field, check) in [
        ("tools", check_entry::<Tool> as EntryCheck),
        ("skills", check_entry::<Skill>),
        ("resources", check_entry::<Resource>),
    ] {
        if let Some(list) = valid_entries(result.get(), field, check, messages) {
            fields.insert(field.to_owned(), list);
            has_changed = true;
        }
    }
    if !has_changed {
        return None;
    }

    let result = serde_json::to_string(&fields).ok()?;
    message.insert("result".to_owned(), RawValue::from_string(result).ok()?);
    serde_json::to_string(&message).ok()
}

type EntryCheck = fn(caproot_core::json::ListEntry<'_>) -> Result<(), BoundedJsonError>;

fn check_entry<T: DeserializeOwned>(
    entry: caproot_core::json::ListEntry<'_>,
) -> Result<(), BoundedJsonError> {
    entry.parse::<T>().map(drop)
}

/// Returns a list without its malformed entries; `None` if there is none.
fn valid_entries(
    result: &str,
    field: &str,
    check: EntryCheck,
    messages: &ReceivedMessages,
) -> Option<Box<RawValue>> {
    let list = ListEntries::split(result.as_bytes(), &[field], MAX_ENTRIES).ok()?;
    let mut valid = Vec::new();
    let mut has_malformed = list.is_cut;
    for entry in &list.entries {
        match check(*entry) {
            Ok(()) => valid.push(entry.text()),
            Err(error) => {
                has_malformed = true;
                let name = entry.text_field("name");
                messages.record(OmittedEntry {
                    name: if name.is_empty() {
                        entry.text_field("uri")
                    } else {
                        name
                    },
                    reason: error.to_string(),
                });
            }
        }
    }
    let list = format!("[{}]", valid.join(","));
    RawValue::from_string(list).ok().filter(|_| has_malformed)
}

/// Checks the messages of an event stream. The tree of a message counts until the next message is asked
/// for.
pub fn check_events(
    events: impl Stream<Item = Result<Sse, SseError>> + Send + 'static,
    messages: Arc<ReceivedMessages>,
) -> BoxStream<'static, Result<Sse, SseError>> {
    let source = (Box::pin(events), None::<TreePermit>, messages);
    let checked = stream::try_unfold(source, async |(mut events, last, messages)| {
        drop(last);
        let Some(mut event) = events.try_next().await? else {
            return Ok(None);
        };
        let mut permit = None;
        if let Some(text) = event.data.take() {
            let checked = check_text(text, &messages).await;
            let checked = checked.map_err(|error| SseError::Body(Box::new(error)))?;
            event.data = Some(checked.text);
            permit = Some(checked.permit);
        }
        Ok(Some((event, (events, permit, messages))))
    });
    checked.boxed()
}

/// Message to an HTTP server.
pub struct McpPost {
    pub uri: Arc<str>,
    pub message: ClientJsonRpcMessage,
    pub session_id: Option<Arc<str>>,
    pub auth_header: Option<String>,
    pub headers: HashMap<HeaderName, HeaderValue>,
}

impl McpPost {
    /// Sends the message, and reads the response like rmcp's client, but with a bounded tree.
    pub async fn send(
        self,
        client: &reqwest::Client,
        messages: &Arc<ReceivedMessages>,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        let reserved = [ACCEPT.as_str(), SESSION_HEADER, "last-event-id"];
        if let Some(name) = self.headers.keys().find(|n| reserved.contains(&n.as_str())) {
            return Err(HttpError::ReservedHeaderConflict(name.to_string()));
        }

        let mut request = client
            .post(&*self.uri)
            .header(ACCEPT, format!("{EVENT_STREAM}, {JSON}"))
            .headers(HeaderMap::from_iter(self.headers));
        if let Some(token) = self.auth_header {
            request = request.bearer_auth(token);
        }
        if let Some(id) = &self.session_id {
            request = request.header(SESSION_HEADER, &**id);
        }
        let response = request.json(&self.message).send().await?;

        let status = response.status();
        if let Some(error) = challenge_error(&response) {
            return Err(error);
        }
        if [StatusCode::ACCEPTED, StatusCode::NO_CONTENT].contains(&status) {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        if status == StatusCode::NOT_FOUND && self.session_id.is_some() {
            return Err(HttpError::SessionExpired);
        }
        if !status.is_success() {
            return failed_response(response, &self.message, self.session_id.is_some()).await;
        }

        let session_id = header_text(&response, SESSION_HEADER).map(str::to_owned);
        let content_type = content_type(&response);
        if content_type.starts_with(EVENT_STREAM) {
            let events = event_stream(response, messages.max_bytes());
            let events = check_events(events, messages.clone());
            return Ok(StreamableHttpPostResponse::Sse(events, session_id));
        }

        // A notification needs no reply, and some servers answer it with an empty body.
        let needs_reply = matches!(self.message, ClientJsonRpcMessage::Request(_));
        if !content_type.starts_with(JSON) {
            if !needs_reply && response.content_length() == Some(0) {
                return Ok(StreamableHttpPostResponse::Accepted);
            }
            let content_type = Some(content_type).filter(|text| !text.is_empty());
            return Err(HttpError::UnexpectedContentType(content_type));
        }
        let parsed = match read_body(response, messages.max_bytes()).await {
            Ok(body) => parse_body(body, messages).await,
            Err(reason) => Err(reason),
        };
        match parsed {
            Ok(message) => Ok(StreamableHttpPostResponse::Json(message, session_id)),
            Err(_) if !needs_reply => Ok(StreamableHttpPostResponse::Accepted),
            Err(reason) => Err(HttpError::UnexpectedServerResponse(reason.into())),
        }
    }
}

async fn parse_body(
    body: Vec<u8>,
    messages: &ReceivedMessages,
) -> Result<ServerJsonRpcMessage, String> {
    let text = String::from_utf8(body).map_err(|error| error.to_string())?;
    let checked = check_text(text, messages).await;
    let checked = checked.map_err(|error| error.to_string())?;
    parse_message(&checked.text).context("it is no message")
}

/// Answer with a file.
#[derive(serde::Deserialize)]
struct FileAnswer {
    id: RequestId,
    result: ReadResourceResult,
}

/// Parses a message. To try each type of result would copy a large file for each of them.
fn parse_message(text: &str) -> serde_json::Result<ServerJsonRpcMessage> {
    if text.len() <= MAX_MESSAGE_BYTES {
        return serde_json::from_str(text);
    }
    let FileAnswer { id, result } = serde_json::from_str(text)?;
    let result = ServerResult::ReadResourceResult(result);
    Ok(ServerJsonRpcMessage::response(result, id))
}

fn header_text(response: &Response, name: impl http::header::AsHeaderName) -> Option<&str> {
    response.headers().get(name)?.to_str().ok()
}

fn content_type(response: &Response) -> String {
    header_text(response, CONTENT_TYPE)
        .unwrap_or_default()
        .to_owned()
}

/// Returns the error of a response that asks for another token.
fn challenge_error(response: &Response) -> Option<HttpError> {
    // Each header can have several challenges. Characters that are no text are rejected later.
    let challenges = response.headers().get_all(WWW_AUTHENTICATE).iter();
    let challenges: Vec<_> = challenges
        .map(|value| String::from_utf8_lossy(value.as_bytes()))
        .collect();
    if challenges.is_empty() {
        return None;
    }
    let challenge = challenges.join(", ");
    match response.status() {
        StatusCode::UNAUTHORIZED => {
            Some(HttpError::AuthRequired(AuthRequiredError::new(challenge)))
        }
        StatusCode::FORBIDDEN => {
            let error = InsufficientScopeError::new(challenge, None);
            Some(HttpError::InsufficientScope(error))
        }
        _ => None,
    }
}

/// Returns the JSON-RPC error of a failed request, or the failure.
async fn failed_response(
    response: Response,
    message: &ClientJsonRpcMessage,
    has_session: bool,
) -> Result<StreamableHttpPostResponse, HttpError> {
    let status = response.status();
    let is_json = content_type(&response).starts_with(JSON);
    let is_temporary = status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error();
    if is_temporary && (!is_json || status == StatusCode::TOO_MANY_REQUESTS) {
        let retry_after = header_text(&response, RETRY_AFTER).map(str::to_owned);
        return Err(HttpStatusError::new(status.as_u16(), retry_after).into());
    }

    let body = read_body(response, MAX_ERROR_BYTES).await;
    let body = String::from_utf8_lossy(&body.unwrap_or_default()).into_owned();
    let error = match serde_json::from_str::<ServerJsonRpcMessage>(&body) {
        Ok(ServerJsonRpcMessage::Error(error)) => Some(error),
        _ => None,
    };
    let is_denied = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN].contains(&status);

    // A server of an earlier protocol version may reject the discovery without its id.
    if let ClientJsonRpcMessage::Request(request) = message
        && matches!(request.request, ClientRequest::DiscoverRequest(_))
        && status.is_client_error()
        && !is_denied
        && !has_session
    {
        let rejected = || {
            let text = format!("server/discover rejected with HTTP {status}: {body}");
            ErrorData::invalid_request(text, None)
        };
        let error = error.map_or_else(rejected, |error| error.error);
        let message = ServerJsonRpcMessage::error(error, Some(request.id.clone()));
        return Ok(StreamableHttpPostResponse::Json(message, None));
    }
    if let Some(error) = error.filter(|_| is_json && !is_denied) {
        let message = ServerJsonRpcMessage::Error(error);
        return Ok(StreamableHttpPostResponse::Json(message, None));
    }
    if is_temporary {
        return Err(HttpStatusError::new(status.as_u16(), None).into());
    }
    let text = format!("HTTP {status}: {body}");
    Err(HttpError::UnexpectedServerResponse(text.into()))
}

/// Message of a child process, with the part of the budget that its tree takes.
type ReceivedLine = (ServerJsonRpcMessage, TreePermit);

/// Connection to a child process: one message a line.
pub struct LineTransport {
    stdin: Arc<tokio::sync::Mutex<Option<ChildStdin>>>,
    received: mpsc::Receiver<ReceivedLine>,
    /// The tree of the last message is in use until the next one is received.
    last_permit: Option<TreePermit>,
    _reader: AbortOnDropHandle<()>,
}

impl LineTransport {
    pub fn new(stdin: ChildStdin, stdout: ChildStdout, messages: Arc<ReceivedMessages>) -> Self {
        let (sender, received) = mpsc::channel(1);
        let lines = BufReader::new(stdout);
        let reader = tokio::spawn(read_lines(lines, sender, messages));
        Self {
            stdin: Arc::new(tokio::sync::Mutex::new(Some(stdin))),
            received,
            last_permit: None,
            _reader: AbortOnDropHandle::new(reader),
        }
    }
}

/// Reads messages until the process closes its stdout, or sends a message over a limit.
async fn read_lines(
    mut lines: impl AsyncBufRead + Unpin,
    sender: mpsc::Sender<ReceivedLine>,
    messages: Arc<ReceivedMessages>,
) {
    let mut line = Vec::new();
    loop {
        line.clear();
        // A large file may be requested while the reader waits for a line.
        for limit in [MAX_MESSAGE_BYTES, MAX_LARGE_MESSAGE_BYTES] {
            let mut limited = (&mut lines).take((limit + 1 - line.len()) as u64);
            match limited.read_until(b'\n', &mut line).await {
                Ok(0) | Err(_) => return,
                Ok(_) if line.len() <= limit => break,
                Ok(_) if limit < messages.max_bytes() => {}
                Ok(_) => {
                    tracing::warn!("an MCP server sent a line over {limit} bytes");
                    return;
                }
            }
        }

        // Some servers log to stdout.
        let Ok(text) = String::from_utf8(std::mem::take(&mut line)) else {
            continue;
        };
        let checked = match check_text(text, &messages).await {
            Ok(checked) => checked,
            Err(error) => {
                tracing::warn!(%error, "an MCP server sent a message over a limit");
                return;
            }
        };
        let Ok(message) = parse_message(&checked.text) else {
            continue;
        };
        if sender.send((message, checked.permit)).await.is_err() {
            return;
        }
    }
}

impl Transport<RoleClient> for LineTransport {
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), io::Error>> + Send + 'static {
        let stdin = self.stdin.clone();
        async move {
            let mut line = serde_json::to_vec(&message)?;
            line.push(b'\n');
            let mut stdin = stdin.lock().await;
            let stdin = stdin.as_mut().ok_or(io::ErrorKind::NotConnected)?;
            stdin.write_all(&line).await?;
            stdin.flush().await
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        self.last_permit = None;
        let (message, permit) = self.received.recv().await?;
        self.last_permit = Some(permit);
        Some(message)
    }

    async fn close(&mut self) -> Result<(), io::Error> {
        self.stdin.lock().await.take();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{ReceivedMessages, remove_malformed_entries};

    #[test]
    fn malformed_entries_are_removed_and_named() {
        let messages = ReceivedMessages::default();
        let text = r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[
            {"name":"good","inputSchema":{"type":"object"}},{"name":"bad"},null],"nextCursor":"x"}}"#;
        let cleaned = remove_malformed_entries(text, &messages).expect("malformed entries");
        assert!(
            cleaned.contains("good") && !cleaned.contains("bad"),
            "{cleaned}"
        );
        assert!(cleaned.contains("nextCursor"), "{cleaned}");
        let names: Vec<_> = messages
            .take_omitted()
            .into_iter()
            .map(|entry| entry.name)
            .collect();
        assert_eq!(names, ["bad", ""]);
        assert_eq!(remove_malformed_entries(&cleaned, &messages), None);
    }
}
