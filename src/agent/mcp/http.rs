//! Server over streamable HTTP. Accepts a limited number of connections and passes requests for
//! `/mcp` to the SDK, which rejects other hosts and origins.

use super::backend::McpBackend;
use super::handler::McpHandler;
use super::limits::{MAX_CONNECTIONS, MAX_REQUEST_BYTES, REQUEST_BODY_TIMEOUT};
use super::response_turn::ResponseTurn;
use super::sessions::{IS_REFUSED, LimitedSessionManager};
use super::stdio::HostWriter;
use bytes::Bytes;
use http::header::CONNECTION;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::{Body, Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use std::cell::Cell;
use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

/// Path of the server.
const PATH: &str = "/mcp";
/// Names of this machine.
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "::1"];
/// Origins of pages on this machine.
const LOOPBACK_ORIGINS: [&str; 3] = ["http://localhost:*", "http://127.0.0.1:*", "http://[::1]:*"];
/// Connections in the kernel's queue. The kernel resets some of the connections beyond.
const BACKLOG: u32 = 1024;
/// How long the head of a request may take.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a request may take until its response begins.
const RESPONSE_TIMEOUT: Duration = Duration::from_mins(2);
/// Delay after a failed accept, for example without free descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(200);

/// Hosts and origins that may send requests.
#[derive(Debug, Clone, Default)]
pub struct HttpAllowlist {
    /// Allowed `Host` headers in addition to the address of the listener and the names of this machine:
    /// `HOST` or `HOST:PORT`.
    pub hosts: Vec<String>,
    /// Allowed `Origin` headers in addition to pages of this machine: `SCHEME://HOST:PORT`.
    pub origins: Vec<String>,
}

/// Bound listener.
#[derive(Debug)]
pub struct HttpListener(TcpListener);

impl HttpListener {
    /// Binds the address. Port 0 takes a free port. Must be called in a tokio runtime.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        // Allows binding while closed connections are in TIME_WAIT.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG).map(Self)
    }

    /// Returns the URL of the server.
    pub fn url(&self) -> io::Result<String> {
        Ok(format!("http://{}{PATH}", self.0.local_addr()?))
    }
}

type HttpResponse = Response<BoxBody<Bytes, Infallible>>;
type McpHttpService = StreamableHttpService<McpHandler, LimitedSessionManager>;

/// Serves until the future is dropped. The connections are dropped with it.
pub async fn serve_http(executor: Arc<McpBackend>, listener: HttpListener, allowed: HttpAllowlist) {
    let own_ip = listener.0.local_addr().map(|address| address.ip());
    // A client cannot connect to an unspecified address, so such a `Host` header is no name of the server.
    let own_ip = own_ip.ok().filter(|ip| !ip.is_unspecified());
    let mut hosts = allowed.hosts;
    hosts.extend(LOOPBACK.map(str::to_owned));
    hosts.extend(own_ip.map(|ip| ip.to_string()));
    let mut origins = allowed.origins;
    origins.extend(LOOPBACK_ORIGINS.map(str::to_owned));
    let config = StreamableHttpServerConfig::default()
        .with_allowed_hosts(hosts)
        .with_allowed_origins(origins)
        .enforce_origin_validation()
        .with_max_request_body_bytes(MAX_REQUEST_BYTES)
        // Clients limit the size of an event: the SDK of Python to 1 MiB.
        .with_json_response(true);

    let service = StreamableHttpService::new(
        move || Ok(McpHandler::new(executor.clone())),
        Arc::new(LimitedSessionManager::new()),
        config,
    );

    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        // A `JoinSet` keeps each ended task until the task is joined.
        while connections.try_join_next().is_some() {}
        // Connections over the limit wait in the kernel's queue.
        let Ok(permit) = permits.clone().acquire_owned().await else {
            return;
        };
        if let Ok((stream, _)) = listener.0.accept().await {
            connections.spawn(serve_connection(stream, service.clone(), permit));
        } else {
            tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
        }
    }
}

async fn serve_connection(
    stream: TcpStream,
    service: McpHttpService,
    _permit: OwnedSemaphorePermit,
) {
    let answer = service_fn(move |request| handle_request(service.clone(), request));
    let (stream, _) = HostWriter::new(stream);
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(TokioIo::new(stream), answer);
    // Errors of a connection concern only its client.
    let _ = served.await;
}

async fn handle_request(
    service: McpHttpService,
    request: Request<Incoming>,
) -> Result<HttpResponse, Infallible> {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    if request.uri().path() == "/" && is_read {
        return Ok(text_response(
            StatusCode::OK,
            "caproot serves MCP here: connect an MCP client to /mcp\n",
        ));
    }
    if request.uri().path() != PATH {
        return Ok(text_response(
            StatusCode::NOT_FOUND,
            "the server is at /mcp\n",
        ));
    }

    let ends_a_session = request.method() == Method::DELETE;
    let (head, body) = request.into_parts();
    let mut request = match read_body(body).await {
        Ok(body) => Request::from_parts(head, Full::new(body)),
        Err(response) => return Ok(response),
    };

    let turn = ResponseTurn::default();
    request.extensions_mut().insert(turn.clone());
    let handled = async {
        let answered = tokio::time::timeout(RESPONSE_TIMEOUT, service.handle(request)).await;
        (answered, IS_REFUSED.with(Cell::get))
    };
    let (answered, is_refused) = IS_REFUSED.scope(Cell::new(false), handled).await;
    if is_refused {
        return Ok(text_response(
            StatusCode::SERVICE_UNAVAILABLE,
            "all sessions are in use: end one, or try again in 10 minutes\n",
        ));
    }
    let Ok(mut answer) = answered else {
        return Ok(text_response(
            StatusCode::REQUEST_TIMEOUT,
            "the request took too long\n",
        ));
    };

    // The SDK responds to the end of a session with 202, which clients take for a failure.
    if ends_a_session && answer.status() == StatusCode::ACCEPTED {
        *answer.status_mut() = StatusCode::OK;
    }
    // hyper drops the bytes once they were written, or with the connection.
    Ok(answer.map(|body| {
        let hold_turn = move |frame: Frame<Bytes>| frame.map_data(|bytes| turn.hold_with(bytes));
        body.map_frame(hold_turn).boxed()
    }))
}

/// Reads the body of a request within the limits of bytes and time. Otherwise returns the response,
/// after which the connection ends.
async fn read_body<B>(body: B) -> Result<Bytes, HttpResponse>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let too_large = || closing_response(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large\n");
    if body.size_hint().lower() > MAX_REQUEST_BYTES as u64 {
        return Err(too_large());
    }

    let read = Limited::new(body, MAX_REQUEST_BYTES).collect();
    match tokio::time::timeout(REQUEST_BODY_TIMEOUT, read).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(_)) => Err(closing_response(
            StatusCode::BAD_REQUEST,
            "the body cannot be read\n",
        )),
        Err(_) => Err(closing_response(
            StatusCode::REQUEST_TIMEOUT,
            "the body did not arrive in time\n",
        )),
    }
}

fn text_response(status: StatusCode, text: &'static str) -> HttpResponse {
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())).boxed());
    *response.status_mut() = status;
    response
}

/// Returns a response to a request that was not read to its end.
fn closing_response(status: StatusCode, text: &'static str) -> HttpResponse {
    let mut response = text_response(status, text);
    response
        .headers_mut()
        .insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

#[cfg(test)]
mod tests {
    use super::{MAX_REQUEST_BYTES, REQUEST_BODY_TIMEOUT, read_body};
    use bytes::Bytes;
    use futures_util::StreamExt as _;
    use futures_util::stream::{iter, unfold};
    use http::StatusCode;
    use http_body_util::{Full, StreamBody};
    use hyper::body::Frame;
    use std::convert::Infallible;
    use std::time::Duration;
    use tokio::time::{Instant, sleep};

    type TestFrame = Result<Frame<Bytes>, Infallible>;

    fn frame(bytes: &'static [u8]) -> Frame<Bytes> {
        Frame::data(Bytes::from_static(bytes))
    }

    #[tokio::test(start_paused = true)]
    async fn half_a_body_and_a_slow_body_time_out() {
        let half = iter([TestFrame::Ok(frame(b"{"))]).chain(futures_util::stream::pending());
        let slow = unfold((), |()| async {
            sleep(Duration::from_secs(1)).await;
            Some((TestFrame::Ok(frame(b" ")), ()))
        });
        for body in [half.boxed(), slow.boxed()] {
            let begun = Instant::now();
            let response = read_body(StreamBody::new(body))
                .await
                .expect_err("too slow");
            assert_eq!(begun.elapsed(), REQUEST_BODY_TIMEOUT);
            assert_eq!(response.status(), StatusCode::REQUEST_TIMEOUT);
            assert_eq!(response.headers()["connection"], "close");
        }
    }

    #[tokio::test]
    async fn a_body_is_read_up_to_the_limit() {
        let full = |len| Full::new(Bytes::from(vec![b' '; len]));
        let whole = read_body(full(MAX_REQUEST_BYTES)).await.expect("a body");
        assert_eq!(whole.len(), MAX_REQUEST_BYTES);
        // The length of the second body is not known in advance.
        let known = read_body(full(MAX_REQUEST_BYTES + 1)).await;
        let pieces =
            iter((0..=MAX_REQUEST_BYTES / 16).map(|_| TestFrame::Ok(frame(b"0123456789abcdef"))));
        let unknown = read_body(StreamBody::new(pieces)).await;
        for response in [known, unknown] {
            let response = response.expect_err("too large");
            assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
        }
    }
}
