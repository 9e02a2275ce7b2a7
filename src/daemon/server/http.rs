//! HTTP/2 settings, and the way of a connection from its first byte to its end.

use super::coalescing_io::CoalescingIo;
use super::connection::{AcceptedConnection, PeerConnection};
use super::layers::LayeredService;
use super::unread::split_unread;
use crate::daemon::config::ConnectionTiming;
use crate::daemon::grpc::{ConnectionGuard, REFLECTION_PREFIX};
use crate::daemon::model::PeerIdentity;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::convert::Infallible;
use std::future::pending;
use std::pin::pin;
use std::time::Duration;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::codegen::BoxFuture;
use tower::ServiceExt as _;

/// Longest time until the HTTP/2 preface of a connection arrived, with the TLS handshake.
const CONNECTION_SETUP_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for the last bytes of a connection that is closed because it had no accepted call.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Concurrent calls on one connection. Suffices for a mirror of hundreds of roots with all reads
/// that the daemon does concurrently.
const MAX_CALLS: u32 = 1_024;
/// Most bytes of the headers of a request, as HTTP/2 counts them. A request over this limit gets
/// HTTP status 431; the load limit rejects smaller requests with a gRPC status.
const MAX_HEADER_BYTES: u32 = 64 << 10;
/// Most calls that the client reset before the daemon accepted them, and most calls that the daemon
/// reset for protocol errors. More resets count as an attack and end the connection.
const MAX_PENDING_RESETS: usize = 20;
const MAX_PROTOCOL_ERRORS: usize = 64;
/// Flow-control windows of one call and of a connection. Most requests are far smaller. `h2` ends a
/// connection when the small frames of data in its buffers, at 256 bytes each, exceed half the
/// window. Each call may have one such frame.
const CALL_WINDOW: u32 = 64 << 10;
const CONNECTION_WINDOW: u32 = 2 * 256 * MAX_CALLS;
/// Smallest maximum that HTTP/2 allows, so that a frame of one call delays other calls little.
const MAX_FRAME_BYTES: u32 = 16 << 10;
/// Most buffered bytes of a response that the client does not read.
const MAX_SEND_BUFFER_BYTES: usize = 32 << 10;

/// HTTP/2 server that is shared by all connections.
#[derive(Debug, Clone)]
pub struct Http2Server {
    http: http2::Builder<TokioExecutor>,
    /// Time after which the kernel drops a TCP connection whose peer acknowledges nothing.
    tcp_user_timeout: Duration,
    service: LayeredService,
}

impl Http2Server {
    pub fn new(service: LayeredService, timing: ConnectionTiming) -> Self {
        let mut http = http2::Builder::new(TokioExecutor::new());
        http.timer(TokioTimer::new())
            .keep_alive_interval(timing.ping_interval)
            .keep_alive_timeout(timing.ping_timeout)
            .max_concurrent_streams(MAX_CALLS)
            .max_header_list_size(MAX_HEADER_BYTES)
            .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
            .max_local_error_reset_streams(MAX_PROTOCOL_ERRORS)
            .initial_stream_window_size(CALL_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_frame_size(MAX_FRAME_BYTES)
            .max_send_buf_size(MAX_SEND_BUFFER_BYTES);

        Self {
            http,
            tcp_user_timeout: timing.ping_interval + timing.ping_timeout,
            service,
        }
    }

    /// Sets up one connection and serves it until either side closes it. After `shutdown`, drains
    /// calls in flight. Closes the connection if `guard` requires it.
    pub async fn serve_connection(
        self,
        accepted: AcceptedConnection,
        guard: Option<ConnectionGuard>,
        shutdown: CancellationToken,
    ) {
        let guard = guard.as_ref();
        let setup = tokio::select! {
            setup = self.set_up_connection(accepted) => setup,
            // No call was received yet.
            () = shutdown.cancelled() => return,
            () = wait_until_displaced(guard) => return,
        };
        let Some(connection) = setup else { return };

        let peer = connection.peer.clone();
        let io = CoalescingIo::new(connection);
        let handler = service_fn(|request| self.start_call(request, &peer, guard));
        let mut served = pin!(
            self.http
                .serve_connection(TokioIo::new(io.clone()), handler)
        );

        let ended = tokio::select! {
            ended = io.drive_connection(served.as_mut()) => ended,
            () = shutdown.cancelled() => {
                served.as_mut().graceful_shutdown();
                io.drive_connection(served).await
            }
            () = wait_until_displaced(guard) => return,
            () = wait_until_overdue(guard, Duration::ZERO) => {
                tracing::debug!("a connection was closed: it had no accepted call in time");
                served.as_mut().graceful_shutdown();
                tokio::select! {
                    ended = io.drive_connection(served) => ended,
                    () = wait_until_displaced(guard) => return,
                    () = wait_until_overdue(guard, CLOSE_TIMEOUT) => return,
                }
            }
        };

        match ended {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "a connection failed"),
            Err(error) => tracing::debug!(%error, "sending to a connection failed"),
        }
    }

    /// Does the TLS handshake and reads the preface within [`CONNECTION_SETUP_TIMEOUT`]. Logs a
    /// failure.
    async fn set_up_connection(&self, accepted: AcceptedConnection) -> Option<PeerConnection> {
        let setup = accepted.establish_http2(self.tcp_user_timeout);
        match timeout(CONNECTION_SETUP_TIMEOUT, setup).await {
            Ok(Ok(connection)) => Some(connection),
            Ok(Err(error)) => {
                tracing::debug!(%error, "setting up a connection failed");
                None
            }
            Err(_) => {
                tracing::debug!(
                    "a connection was closed: no HTTP/2 preface within {CONNECTION_SETUP_TIMEOUT:?}"
                );
                None
            }
        }
    }

    /// Hands a request to the layers, with the peer and the admission of its connection. After the
    /// response, reads the rest of the request.
    fn start_call(
        &self,
        request: Request<Incoming>,
        peer: &PeerIdentity,
        guard: Option<&ConnectionGuard>,
    ) -> BoxFuture<Response<Body>, Infallible> {
        let (head, body) = request.into_parts();
        let (body, unread) = split_unread(body);
        let is_reflection = head.uri.path().starts_with(REFLECTION_PREFIX);

        let mut request = Request::from_parts(head, body);
        request.extensions_mut().insert(peer.clone());
        if let Some(guard) = guard {
            request.extensions_mut().insert(guard.admission().clone());
        }

        let response = self.service.clone().oneshot(request);
        // Boxed, because the task that sends the response of a stream lives on, and would keep the
        // memory of this future.
        Box::pin(async move {
            let answer = response.await;
            if is_reflection {
                // Ends within a second.
                tokio::spawn(unread.drain());
            } else {
                unread.drain().await;
            }
            answer
        })
    }
}

async fn wait_until_displaced(guard: Option<&ConnectionGuard>) {
    match guard {
        Some(guard) => guard.wait_until_displaced().await,
        None => pending().await,
    }
}

async fn wait_until_overdue(guard: Option<&ConnectionGuard>, grace: Duration) {
    match guard {
        Some(guard) => guard.wait_until_overdue(grace).await,
        None => pending().await,
    }
}
