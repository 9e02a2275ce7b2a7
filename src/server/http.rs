//! HTTP/2 on one connection: its settings, and the service that its requests go to. Leaves accepting
//! connections to `accept`, and what a request may do to `rpc`.

use super::coalescing_io::CoalescingIo;
use super::connection::PeerConnection;
use super::unread::split_unread;
use crate::config::KeepaliveConfig;
use crate::domain::PeerIdentity;
use crate::grpc::{LoadLimit, LoadLimitLayer};
use crate::telemetry::{CallMetricsLayer, CallMetricsService};
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::any::Any;
use std::pin::pin;
use tonic::Status;
use tonic::body::Body;
use tonic::service::Routes;
use tower::{Layer as _, ServiceExt as _};
use tower_http::catch_panic::{CatchPanic, CatchPanicLayer, ResponseForPanic};

/// Calls at once on one connection: a mirror of hundreds of roots, with all the reads that the daemon
/// does at once, needs no second one.
const MAX_CALLS: u32 = 1_024;
/// Bytes of a request's headers, names and values together: a stock client sends under 1 KiB.
const MAX_HEADER_BYTES: u32 = 16 << 10;
/// Calls that the client took back before the daemon looked at them, and calls that the daemon ended
/// for breaking the protocol; one more is an attack, and ends the connection.
const MAX_PENDING_RESETS: usize = 20;
const MAX_PROTOCOL_ERRORS: usize = 64;
/// What a client may send before it is read, of one call and of all: most requests are far smaller.
const CALL_WINDOW: u32 = 64 << 10;
const CONNECTION_WINDOW: u32 = 256 << 10;
/// The least that HTTP/2 knows: no part of a call holds up the other calls for longer than this.
const MAX_FRAME_BYTES: u32 = 16 << 10;
/// What is kept of an answer that the client does not take, before no more of it is made.
const MAX_SEND_BUFFER_BYTES: usize = 32 << 10;

/// Begins the paths of the reflection services. Their clients end a request only after its response.
const REFLECTION: &str = "/grpc.reflection.";

/// What serves every connection alike.
#[derive(Debug, Clone)]
pub(super) struct Http2Server {
    http: http2::Builder<TokioExecutor>,
    service: CallMetricsService<CatchPanic<LoadLimit<Routes>, PanicResponder>>,
}

impl Http2Server {
    pub(super) fn new(
        routes: Routes,
        door: &LoadLimitLayer,
        calls: &CallMetricsLayer,
        keepalive: KeepaliveConfig,
    ) -> Self {
        let mut http = http2::Builder::new(TokioExecutor::new());
        http.timer(TokioTimer::new())
            .keep_alive_interval(keepalive.interval)
            .keep_alive_timeout(keepalive.timeout)
            .max_concurrent_streams(MAX_CALLS)
            .max_header_list_size(MAX_HEADER_BYTES)
            .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
            .max_local_error_reset_streams(MAX_PROTOCOL_ERRORS)
            .initial_stream_window_size(CALL_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_frame_size(MAX_FRAME_BYTES)
            .max_send_buf_size(MAX_SEND_BUFFER_BYTES);
        let service = CatchPanicLayer::custom(PanicResponder).layer(door.layer(routes.prepare()));
        let service = calls.layer(service);
        Self { http, service }
    }

    /// Serves one connection until either side ends it; once `stopped`, until the calls under way have
    /// ended.
    pub(super) async fn serve_connection(
        &self,
        connection: PeerConnection,
        stopped: impl Future<Output = ()>,
    ) {
        let peer: PeerIdentity = connection.peer();
        let answer = service_fn(|request: Request<Incoming>| {
            let (head, body) = request.into_parts();
            let (body, unread) = split_unread(body);
            let is_reflection = head.uri.path().starts_with(REFLECTION);
            let mut request = Request::from_parts(head, body);
            request.extensions_mut().insert(peer.clone());
            let answer = self.service.clone().oneshot(request);
            // Apart from the task that sends the answer, which for a stream lives on when this is over.
            Box::pin(async move {
                let answer = answer.await;
                if is_reflection {
                    // Ends after a second at the latest.
                    tokio::spawn(unread.drain());
                } else {
                    unread.drain().await;
                }
                answer
            })
        });
        let io = CoalescingIo::new(connection);
        let mut served = pin!(self.http.serve_connection(TokioIo::new(io.clone()), answer));
        let ended = tokio::select! {
            ended = io.drive_connection(served.as_mut()) => ended,
            () = stopped => {
                served.as_mut().graceful_shutdown();
                io.drive_connection(served).await
            }
        };
        match ended {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "a connection ended"),
            Err(error) => tracing::debug!(%error, "a connection ended while something was sent"),
        }
    }
}

/// What a caller is told of a panic: nothing of it but that the call is over.
#[derive(Debug, Clone, Copy)]
struct PanicResponder;

impl ResponseForPanic for PanicResponder {
    type ResponseBody = Body;

    fn response_for_panic(&mut self, panic: Box<dyn Any + Send>) -> http::Response<Body> {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        tracing::error!(panic = text.unwrap_or("of another type"), "a call ended by a defect");
        Status::internal("a defect in the daemon; its log says more").into_http()
    }
}
