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

    fn record(&self, name: String, reason: String) {
        let mut entries = self.omitted.lock();
        if entries.len() < MAX_NAMED {
            entries.push(OmittedEntry { name, reason });
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
    Ok(CheckedText {
        permit: reserve_tree(text.as_bytes()).await?,
        text: remove_malformed_entries(&text, messages).unwrap_or(text),
    })
}

type RawFields = BTreeMap<String, Box<RawValue>>;

/// Returns the message without malformed entries; `None` if there is none.
fn remove_malformed_entries(text: &str, messages: &ReceivedMessages) -> Option<String> {
    let mut message: RawFields = serde_json::from_str(text).ok()?;
    let mut fields: RawFields = serde_json::from_str(message.get("result")?.get()).ok()?;
    let replaced = [
        replace_entries::<Tool>(&mut fields, "tools", messages),
        replace_entries::<Skill>(&mut fields, "skills", messages),
        replace_entries::<Resource>(&mut fields, "resources", messages),
    ];
    replaced.iter().flatten().next()?;

    let result = serde_json::to_string(&fields).ok()?;
    message.insert("result".to_owned(), RawValue::from_string(result).ok()?);
    serde_json::to_string(&message).ok()
}

/// Replaces a list by the list without its malformed entries; `None` if there is none.
fn replace_entries<T: DeserializeOwned>(
    fields: &mut RawFields,
    field: &str,
    messages: &ReceivedMessages,
) -> Option<()> {
    let list = fields.get(field)?.get().as_bytes();
    let list = ListEntries::split_list(list, MAX_ENTRIES).ok()?;
    let mut valid = Vec::new();
    for entry in &list.entries {
        match entry.parse::<T>() {
            Ok(_) => valid.push(entry.text()),
            Err(error) => {
                let mut name = entry.text_field("name");
                if name.is_empty() {
                    name = entry.text_field("uri");
                }
                messages.record(name, error.to_string());
            }
        }
    }

    if !list.is_cut && valid.len() == list.entries.len() {
        return None;
    }
    let valid = RawValue::from_string(format!("[{}]", valid.join(","))).ok()?;
    fields.insert(field.to_owned(), valid);
    Some(())
}

/// Checks the messages of an event stream. The tree of a message counts until the next message is asked
/// for.
pub fn check_events(
    events: impl Stream<Item = Result<Sse, SseError>> + Send + 'static,
    messages: Arc<ReceivedMessages>,
) -> BoxStream<'static, Result<Sse, SseError>> {
    let source = (Box::pin(events), None::<TreePermit>, messages);
    stream::try_unfold(source, async |(mut events, last, messages)| {
        drop(last);
        let Some(mut event) = events.try_next().await? else {
            return Ok(None);
        };
        let mut permit = None;
        if let Some(text) = event.data.take() {
            let checked = check_text(text, &messages)
                .await
                .map_err(|error| SseError::Body(Box::new(error)))?;
            event.data = Some(checked.text);
            permit = Some(checked.permit);
        }
        Ok(Some((event, (events, permit, messages))))
    })
    .boxed()
}

/// HTTP client that bounds the messages of a server.
#[derive(Clone)]
pub struct McpHttp {
    pub client: reqwest::Client,
    pub messages: Arc<ReceivedMessages>,
}

impl McpHttp {
    /// Sends a message, and reads the response like rmcp's client, but with a bounded tree.
    pub async fn post(
        &self,
        uri: &str,
        message: &ClientJsonRpcMessage,
        session_id: Option<&str>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        let reserved = [ACCEPT.as_str(), SESSION_HEADER, "last-event-id"];
        if let Some(name) = headers.keys().find(|n| reserved.contains(&n.as_str())) {
            return Err(HttpError::ReservedHeaderConflict(name.to_string()));
        }

        let mut request = self
            .client
            .post(uri)
            .header(ACCEPT, format!("{EVENT_STREAM}, {JSON}"))
            .headers(HeaderMap::from_iter(headers));
        if let Some(id) = session_id {
            request = request.header(SESSION_HEADER, id);
        }
        let response = request.json(message).send().await?;

        let status = response.status();
        if let Some(error) = challenge_error(&response) {
            return Err(error);
        }
        if [StatusCode::ACCEPTED, StatusCode::NO_CONTENT].contains(&status) {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        if status == StatusCode::NOT_FOUND && session_id.is_some() {
            return Err(HttpError::SessionExpired);
        }
        if !status.is_success() {
            return failed_response(response, message, session_id.is_some()).await;
        }

        self.read_response(response, message).await
    }

    /// Reads the events or the reply of a request that succeeded.
    async fn read_response(
        &self,
        response: Response,
        message: &ClientJsonRpcMessage,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        let session_id = header_text(&response, SESSION_HEADER).map(str::to_owned);
        let content_type = content_type(&response);
        if content_type.starts_with(EVENT_STREAM) {
            let events = event_stream(response, self.messages.max_bytes());
            return Ok(StreamableHttpPostResponse::Sse(
                check_events(events, self.messages.clone()),
                session_id,
            ));
        }

        // A notification needs no reply, and some servers answer it with an empty body.
        let needs_reply = matches!(message, ClientJsonRpcMessage::Request(_));
        if !content_type.starts_with(JSON) {
            if !needs_reply && response.content_length() == Some(0) {
                return Ok(StreamableHttpPostResponse::Accepted);
            }
            return Err(HttpError::UnexpectedContentType(
                Some(content_type).filter(|text| !text.is_empty()),
            ));
        }
        match read_message(response, &self.messages).await {
            Ok(message) => Ok(StreamableHttpPostResponse::Json(message, session_id)),
            Err(_) if !needs_reply => Ok(StreamableHttpPostResponse::Accepted),
            Err(reason) => Err(HttpError::UnexpectedServerResponse(reason.into())),
        }
    }
}

async fn read_message(
    response: Response,
    messages: &ReceivedMessages,
) -> Result<ServerJsonRpcMessage, String> {
    let body = read_body(response, messages.max_bytes()).await?;
    let text = String::from_utf8(body).map_err(|error| error.to_string())?;
    let checked = check_text(text, messages)
        .await
        .map_err(|error| error.to_string())?;
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
    Ok(ServerJsonRpcMessage::response(
        ServerResult::ReadResourceResult(result),
        id,
    ))
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
    let challenges: Vec<_> = response
        .headers()
        .get_all(WWW_AUTHENTICATE)
        .iter()
        .map(|value| String::from_utf8_lossy(value.as_bytes()))
        .collect();
    let challenge = challenges.join(", ");
    match response.status() {
        _ if challenges.is_empty() => None,
        StatusCode::UNAUTHORIZED => {
            Some(HttpError::AuthRequired(AuthRequiredError::new(challenge)))
        }
        StatusCode::FORBIDDEN => Some(HttpError::InsufficientScope(InsufficientScopeError::new(
            challenge, None,
        ))),
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
        return Err(HttpStatusError::new(
            status.as_u16(),
            header_text(&response, RETRY_AFTER).map(str::to_owned),
        )
        .into());
    }

    let body = read_body(response, MAX_ERROR_BYTES).await;
    let body = String::from_utf8_lossy(&body.unwrap_or_default()).into_owned();
    let error = match serde_json::from_str(&body) {
        Ok(ServerJsonRpcMessage::Error(error)) => Some(error),
        _ => None,
    };
    let is_denied = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN].contains(&status);

    // A server of an earlier protocol version may reject the discovery without its id.
    let reply = if let ClientJsonRpcMessage::Request(request) = message
        && matches!(request.request, ClientRequest::DiscoverRequest(_))
        && status.is_client_error()
        && !is_denied
        && !has_session
    {
        let error = match error {
            Some(error) => error.error,
            None => ErrorData::invalid_request(
                format!("server/discover rejected with HTTP {status}: {body}"),
                None,
            ),
        };
        Some(ServerJsonRpcMessage::error(error, Some(request.id.clone())))
    } else {
        error
            .filter(|_| is_json && !is_denied)
            .map(ServerJsonRpcMessage::Error)
    };

    if let Some(reply) = reply {
        return Ok(StreamableHttpPostResponse::Json(reply, None));
    }
    if is_temporary {
        return Err(HttpStatusError::new(status.as_u16(), None).into());
    }
    Err(HttpError::UnexpectedServerResponse(
        format!("HTTP {status}: {body}").into(),
    ))
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
        let reader = tokio::spawn(read_lines(BufReader::new(stdout), sender, messages));
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
        if let Ok(message) = parse_message(&checked.text)
            && sender.send((message, checked.permit)).await.is_err()
        {
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
