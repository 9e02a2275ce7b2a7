//! The server over streamable HTTP: accepts connections, at most so many, and hands requests for its
//! one path to the SDK, which refuses hosts and origins that are not allowed. Leaves when to stop to
//! whoever runs it.

use super::backend::McpBackend;
use super::handler::McpHandler;
use super::limits::{MAX_CONNECTIONS, MAX_REQUEST_BYTES};
use super::sessions::LimitedSessionManager;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

/// The path of the server.
const PATH: &str = "/mcp";
/// Names of this machine for itself.
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "::1"];
/// Origins of pages that this machine serves itself.
const LOOPBACK_ORIGINS: [&str; 3] = ["http://localhost:*", "http://127.0.0.1:*", "http://[::1]:*"];
/// Connections that wait for a place; of those beyond, the kernel resets some.
const BACKLOG: u32 = 1024;
/// How long the head of a request may take.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a request may take until its answer begins, body and all.
const RESPONSE_TIMEOUT: Duration = Duration::from_mins(2);
/// How long to wait where a connection cannot be accepted, as for want of descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(200);

/// Who may ask.
#[derive(Debug, Clone, Default)]
pub struct HttpAllowlist {
    /// What the `Host` header may be beside names of this machine: `HOST` or `HOST:PORT`.
    pub hosts: Vec<String>,
    /// What the `Origin` header may be beside pages of this machine: `SCHEME://HOST:PORT`.
    pub origins: Vec<String>,
}

/// A bound listener.
#[derive(Debug)]
pub struct HttpListener(TcpListener);

impl HttpListener {
    /// Binds the address; port 0 takes a free one. Must be called in a runtime.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        // What was closed a moment ago is no reason not to begin again.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG).map(Self)
    }

    /// Where clients find it.
    pub fn url(&self) -> io::Result<String> {
        Ok(format!("http://{}{PATH}", self.0.local_addr()?))
    }
}

type McpHttpService = StreamableHttpService<McpHandler, LimitedSessionManager>;

/// Serves until it is dropped, and all connections with it.
pub(super) async fn serve_http(
    executor: Arc<McpBackend>,
    listener: HttpListener,
    allowed: HttpAllowlist,
) {
    let hosts = LOOPBACK.map(str::to_owned).into_iter().chain(allowed.hosts);
    let origins = LOOPBACK_ORIGINS.map(str::to_owned).into_iter().chain(allowed.origins);
    let config = StreamableHttpServerConfig::default()
        .with_allowed_hosts(hosts)
        .with_allowed_origins(origins)
        .enforce_origin_validation()
        .with_max_request_body_bytes(MAX_REQUEST_BYTES);
    let handler = move || Ok(McpHandler::new(executor.clone()));
    let service =
        StreamableHttpService::new(handler, Arc::new(LimitedSessionManager::new()), config);
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        // Those beyond wait in the kernel's queue.
        let Ok(place) = places.clone().acquire_owned().await else { return };
        match listener.0.accept().await {
            Ok((stream, _)) => {
                connections.spawn(serve_connection(stream, service.clone(), place));
            }
            Err(_) => tokio::time::sleep(ACCEPT_RETRY_DELAY).await,
        }
    }
}

async fn serve_connection(
    stream: TcpStream,
    service: McpHttpService,
    _place: OwnedSemaphorePermit,
) {
    let answer = service_fn(move |request| handle_request(service.clone(), request));
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(TokioIo::new(stream), answer);
    // Whoever breaks their own connection knows.
    let _ = served.await;
}

async fn handle_request(
    service: McpHttpService,
    request: Request<Incoming>,
) -> Result<Response<BoxBody<Bytes, Infallible>>, Infallible> {
    if request.uri().path() != PATH {
        return Ok(text_response(StatusCode::NOT_FOUND, "the server is at /mcp\n"));
    }
    let ends_a_session = request.method() == Method::DELETE;
    let answered = tokio::time::timeout(RESPONSE_TIMEOUT, service.handle(request)).await;
    let Ok(mut answer) = answered else {
        return Ok(text_response(StatusCode::REQUEST_TIMEOUT, "this took too long\n"));
    };
    // The SDK says 202 when the session has ended, which clients take for a failure.
    if ends_a_session && answer.status() == StatusCode::ACCEPTED {
        *answer.status_mut() = StatusCode::OK;
    }
    Ok(answer)
}

fn text_response(status: StatusCode, text: &'static str) -> Response<BoxBody<Bytes, Infallible>> {
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())).boxed());
    *response.status_mut() = status;
    response
}
