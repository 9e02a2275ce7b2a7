//! Bearer token of an HTTP server, from a file, a program or a function. A token that the server
//! rejects with 401 is requested again, once for each request.

use super::limits::{MAX_MESSAGE_BYTES, MAX_TOKEN_BYTES, TOKEN_TIMEOUT};
use super::messages::{HttpError, McpHttp, check_events};
use crate::network::authorization::Authorizer;
use crate::network::http_client::is_loopback_url;
use caproot_client::{bearer_header, read_token_file};
use caproot_core::text::SentenceResult as _;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue, StatusCode};
use rmcp::model::ClientJsonRpcMessage;
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpPostResponse,
};
use sse_stream::Sse;
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;
use tokio::sync::Mutex;
use tokio::time::timeout;

/// Function that returns a token, or the reason for no token, which is only logged.
pub type TokenCallback = Arc<dyn Fn() -> BoxFuture<'static, Result<String, String>> + Send + Sync>;

/// Origin of the bearer token of an HTTP server. The token is requested for the first request, and
/// again if the server rejects the token with 401. It is sent only over https or to a loopback
/// address, and never logged.
#[derive(Clone)]
pub enum McpToken {
    /// File with the token; white space around the token is ignored.
    File(PathBuf),
    /// Program that prints the token on stdout and exits with 0.
    Command {
        /// Path or name of the program.
        program: String,
        /// Arguments of the program.
        arguments: Vec<String>,
    },
    /// Function of this process.
    Callback(TokenCallback),
}

impl fmt::Debug for McpToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(file) => f.debug_tuple("File").field(file).finish(),
            Self::Command { program, .. } => f
                .debug_struct("Command")
                .field("program", program)
                .finish_non_exhaustive(),
            Self::Callback(_) => f.debug_tuple("Callback").finish_non_exhaustive(),
        }
    }
}

impl McpToken {
    /// Returns the token, without a time limit.
    async fn read_origin(&self) -> Result<HeaderValue, String> {
        match self {
            Self::File(file) => read_token_file(file).await,
            Self::Command { program, arguments } => run_program(program, arguments)
                .await
                .and_then(|output| bearer_header("it", output.trim_ascii()))
                .context(format_args!("program {program:?}")),
            Self::Callback(callback) => {
                // The text of an exception may have secrets, and the reason reaches the model.
                let token = callback().await.map_err(|reason| {
                    tracing::warn!("a token function failed: {reason}");
                    "the token function of the program failed; see its log".to_owned()
                })?;
                bearer_header("the text", token.as_bytes())
            }
        }
    }
}

/// Runs a program and returns its stdout.
async fn run_program(program: &str, arguments: &[String]) -> Result<Vec<u8>, String> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("it cannot be started")?;

    // The output comes before the wait: a program that fills the pipe does not end (pipe(7)).
    let mut output = Vec::new();
    child
        .stdout
        .take()
        .ok_or("its stdout cannot be opened")?
        .take(MAX_TOKEN_BYTES + 1)
        .read_to_end(&mut output)
        .await
        .context("its output cannot be read")?;
    if output.len() as u64 > MAX_TOKEN_BYTES {
        return Err("its output is over 8 KiB, too large for a token".to_owned());
    }

    let status = child.wait().await.context("it cannot be waited for")?;
    if !status.success() {
        return Err(format!("it ended with {status}"));
    }
    Ok(output)
}

/// Parts of the names of headers that are credentials, such as `authorization` and `x-api-key`.
const CREDENTIAL_PARTS: [&str; 6] = ["auth", "cookie", "credential", "key", "secret", "token"];

/// Checks that no credential is sent to a URL where an attacker on the network could read it. The
/// error is the end of a sentence.
pub fn check_credentials(
    url: &str,
    headers: &[(HeaderName, HeaderValue)],
    has_token: bool,
) -> Result<(), String> {
    if is_protected(url) {
        return Ok(());
    }

    let subject = match headers
        .iter()
        .find(|(name, _)| is_credential(name.as_str()))
    {
        Some((name, _)) => format!("header `{name}`"),
        None if has_token => "token".to_owned(),
        None => return Ok(()),
    };
    Err(format!(
        "its {subject} is sent only over https or to a loopback address; use an https URL"
    ))
}

/// Returns whether a header is a credential by its name, in lower case.
pub fn is_credential(name: &str) -> bool {
    CREDENTIAL_PARTS.iter().any(|part| name.contains(part))
}

/// Returns whether a credential may be sent to a URL.
pub fn is_protected(url: &str) -> bool {
    url.parse::<reqwest::Url>()
        .is_ok_and(|url| url.scheme() == "https")
        || is_loopback_url(url)
}

/// HTTP client that adds the token to each request.
#[derive(Clone)]
pub struct TokenClient {
    pub http: McpHttp,
    pub credential: HttpCredential,
}

/// `Authorization` of the requests to a server, next to its headers.
#[derive(Clone)]
pub enum HttpCredential {
    None,
    Token(Arc<CachedToken>),
    /// Value that the program gives after a 401.
    OnDemand(Arc<Authorizer>),
}

/// Latest token of an origin.
pub struct CachedToken {
    origin: McpToken,
    /// Latest token. The lock is held during a request, so that one request serves all.
    latest: Mutex<Option<HeaderValue>>,
}

type HttpHeaders = HashMap<HeaderName, HeaderValue>;

impl TokenClient {
    /// Sends a request with the latest credential. If the server answers 401, sends the request once more with
    /// a new credential, if there is one. Only a refused message makes the program be asked for a value:
    /// servers refuse streams for other reasons.
    async fn send<T, F>(
        &self,
        is_message: bool,
        headers: HttpHeaders,
        request: impl Fn(HttpHeaders) -> F + Send,
    ) -> Result<T, HttpError>
    where
        T: Send,
        F: Future<Output = Result<T, HttpError>> + Send,
    {
        let mut is_renewed = false;
        loop {
            let sent = match &self.credential {
                HttpCredential::None => None,
                HttpCredential::Token(token) => Some(token.current(None).await?),
                HttpCredential::OnDemand(authorizer) => authorizer.value(),
            };
            let mut headers = headers.clone();
            headers.extend(sent.clone().map(|value| (AUTHORIZATION, value)));

            let outcome = request(headers).await;
            let challenge = match &outcome {
                Err(HttpError::AuthRequired(error)) => error.www_authenticate_header.as_str(),
                Err(error) if is_unauthorized(error) => "",
                _ => {
                    if let HttpCredential::OnDemand(authorizer) = &self.credential
                        && is_renewed
                        && outcome.is_ok()
                    {
                        authorizer.accept_value();
                    }
                    return outcome;
                }
            };

            match &self.credential {
                HttpCredential::Token(token) if !is_renewed => {
                    if Some(token.current(sent.as_ref()).await?) == sent {
                        return outcome;
                    }
                }
                HttpCredential::OnDemand(authorizer) if is_message => {
                    let has_other = authorizer.replace_refused(sent.as_ref(), challenge).await;
                    if !has_other || is_renewed {
                        // The reason has no text of the server.
                        let reason = authorizer
                            .missing_reason()
                            .unwrap_or_else(|| "it answers 401".to_owned());
                        return Err(HttpError::Io(io::Error::other(reason)));
                    }
                }
                _ => return outcome,
            }
            is_renewed = true;
        }
    }
}

impl HttpCredential {
    /// Returns the credential of an endpoint whose token comes from an origin.
    pub fn from_token(token: Option<McpToken>) -> Self {
        token.map_or(Self::None, |origin| {
            Self::Token(Arc::new(CachedToken {
                origin,
                latest: Mutex::default(),
            }))
        })
    }
}

impl CachedToken {
    /// Returns the latest token. Requests a token if there is none, or only the rejected one.
    async fn current(&self, rejected: Option<&HeaderValue>) -> Result<HeaderValue, HttpError> {
        let mut latest = self.latest.lock().await;
        if let Some(value) = &*latest
            && Some(value) != rejected
        {
            return Ok(value.clone());
        }

        let value = timeout(TOKEN_TIMEOUT, self.origin.read_origin())
            .await
            .unwrap_or_else(|_| Err(format!("no token after {}s", TOKEN_TIMEOUT.as_secs())))
            .context("there is no token")
            .map_err(|reason| HttpError::Io(io::Error::other(reason)))?;
        *latest = Some(value.clone());
        Ok(value)
    }
}

/// Returns whether the server answered with 401.
fn is_unauthorized(error: &HttpError) -> bool {
    match error {
        HttpError::AuthRequired(_) => true,
        HttpError::Client(error) => error.status() == Some(StatusCode::UNAUTHORIZED),
        // A response without `WWW-Authenticate`.
        HttpError::UnexpectedServerResponse(text) => text.starts_with("HTTP 401"),
        _ => false,
    }
}

/// The SDK has no token of its own, so its argument for a token is `None`.
impl StreamableHttpClient for TokenClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        _: Option<String>,
        headers: HttpHeaders,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        self.send(true, headers, |headers| {
            self.http
                .post(&uri, &message, session_id.as_deref(), headers)
        })
        .await
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        _: Option<String>,
        headers: HttpHeaders,
    ) -> Result<(), HttpError> {
        self.send(false, headers, |headers| {
            self.http
                .client
                .delete_session(uri.clone(), session_id.clone(), None, headers)
        })
        .await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        _: Option<String>,
        headers: HttpHeaders,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, HttpError> {
        let events = self.send(false, headers, |headers| {
            self.http.client.get_stream_with_max_sse_event_size(
                uri.clone(),
                session_id.clone(),
                last_event_id.clone(),
                None,
                headers,
                // A large file comes as the answer of its request.
                MAX_MESSAGE_BYTES,
            )
        });
        Ok(check_events(events.await?, self.http.messages.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::{check_credentials, is_protected};
    use http::{HeaderName, HeaderValue};

    #[test]
    fn a_token_needs_tls_or_a_loopback_address() {
        for url in [
            "https://a.example/mcp",
            "http://localhost:1/",
            "http://127.0.0.2/mcp",
            "http://[::1]:7/",
        ] {
            assert!(is_protected(url), "{url}");
        }
        for url in [
            "http://a.example/mcp",
            "http://10.0.0.1/",
            "http://localhost.example/",
            "http://localhost@a.example/",
            "http://a.example\\@localhost/",
            "x",
            "",
        ] {
            assert!(!is_protected(url), "{url}");
        }
    }

    #[test]
    fn credentials_in_headers_need_tls_or_a_loopback_address() {
        let check = |url: &str, name: &'static str| {
            let header = HeaderName::from_static(name);
            check_credentials(url, &[(header, HeaderValue::from_static("x"))], false)
        };
        for name in [
            "authorization",
            "proxy-authorization",
            "cookie",
            "x-api-key",
            "x-my-token",
        ] {
            let error = check("http://a.example/mcp", name).expect_err(name);
            assert!(error.contains(name) && error.contains("https"), "{error}");
            assert_eq!(check("https://a.example/mcp", name), Ok(()), "{name}");
            assert_eq!(check("http://127.0.0.1:1/mcp", name), Ok(()), "{name}");
        }
        assert_eq!(check("http://a.example/mcp", "accept-language"), Ok(()));
        assert!(check_credentials("http://a.example/", &[], true).is_err());
    }
}
