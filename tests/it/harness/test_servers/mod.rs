//! Servers with scripted responses: daemons, managers and MCP servers that lie, and a proxy that
//! records. [`crate::harness`] and [`crate::harness::process`] start the real daemon.

mod hostile_daemon;
pub(crate) mod mcp_server;
mod raw_daemon;
mod recording_proxy;
mod scripted_server;
pub(crate) mod slim_executor;
mod unused_calls;

pub(crate) use hostile_daemon::{HostileDaemon, ReadResponder, hostile_skill, read_response};
pub(crate) use raw_daemon::RawDaemon;
pub(crate) use recording_proxy::RecordingProxy;
pub(crate) use scripted_server::{ScriptedServer, event_stream, response};
pub(crate) use slim_executor::{SlimCatalogs, SlimExecutor, slim_skill};

use std::io;
use std::sync::atomic::{AtomicU16, Ordering};

use http::{Request, Response};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_stream::Stream;
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::task::AbortOnDropHandle;
use tonic::service::Routes;
use tonic::transport::server::Connected;

/// Returns an address of this machine with port 0, for a server on a free port.
///
/// Each address is used once, and no client connects from it. The port of a server that has
/// stopped is therefore free for its next start, and nothing else answers there.
pub(crate) fn free_port() -> String {
    static COUNT: AtomicU16 = AtomicU16::new(1);
    let [high, low] = COUNT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    format!("127.77.{high}.{low}:0")
}

/// HTTP server that runs until it is dropped.
pub(crate) struct HttpServer {
    /// Address with its port.
    pub(crate) address: String,
    _task: AbortOnDropHandle<()>,
}

/// Starts an HTTP server at an address. An error of `answer` closes the connection.
pub(crate) async fn start_http<A>(
    address: &str,
    answer: impl Fn(Request<Incoming>) -> A + Clone + Send + 'static,
) -> HttpServer
where
    A: Future<Output = io::Result<Response<Full<Bytes>>>> + Send + 'static,
{
    let (listener, address) = bind(address).await;
    let task = tokio::spawn(async move {
        // The connections end with the server.
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let service = service_fn(answer.clone());
            connections
                .spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    HttpServer {
        address,
        _task: AbortOnDropHandle::new(task),
    }
}

/// Serves gRPC services at an address until the end of the test. Returns the address with its port.
pub(crate) async fn start_grpc(address: &str, services: Routes) -> String {
    let (listener, address) = bind(address).await;
    serve_grpc(TcpListenerStream::new(listener), services);
    address
}

/// Serves gRPC services on connections until the end of the test.
pub(crate) fn serve_grpc<C>(
    connections: impl Stream<Item = io::Result<C>> + Send + 'static,
    services: Routes,
) where
    C: tokio::io::AsyncRead + tokio::io::AsyncWrite + Connected + Unpin + Send + 'static,
{
    let server = tonic::transport::Server::builder().add_routes(services);
    tokio::spawn(server.serve_with_incoming(connections));
}

async fn bind(address: &str) -> (TcpListener, String) {
    let listener = TcpListener::bind(address).await.expect("a free port");
    let address = listener.local_addr().expect("an address").to_string();
    (listener, address)
}

/// Returns a listener and its address. The kernel accepts connections, and no server answers.
pub(crate) fn silent_listener() -> (std::net::TcpListener, String) {
    let listener = std::net::TcpListener::bind(free_port()).expect("a free port");
    let address = listener.local_addr().expect("an address").to_string();
    (listener, address)
}

/// Returns an address of this machine without a listener.
pub(crate) fn unused_address() -> String {
    silent_listener().1
}
