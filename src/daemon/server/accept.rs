//! Accepts connections within the limits, and serves each in its own task, so that a slow client
//! delays only itself.

use super::connection::AcceptedConnection;
use super::heap::HeapTrimmer;
use super::http::Http2Server;
use super::listen::ReplaceableListener;
use super::tls::ReloadableTls;
use crate::daemon::grpc::{ConnectionGuard, ConnectionQuota, ListenerCapacity, ListenerPermits};
use crate::daemon::model::QuotaKey;
use crate::daemon::telemetry::RateLimitedLog;
use caproot_core::backoff::Backoff;
use std::future::pending;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, UnixStream};
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// Pauses after accepting failed, such as without file descriptors. A single failure delays other
/// connections by a few milliseconds.
const ACCEPT_BACKOFF: Backoff = Backoff::new(Duration::from_millis(5), Duration::from_secs(1));

/// Limits of open connections of all listeners. Clones share their state.
#[derive(Debug, Clone)]
pub struct ConnectionLimiter {
    quota: ConnectionQuota,
    /// Connections of each listener, so that the clients of one listener take no permit of another.
    capacity: ListenerCapacity,
    heap_trimmer: HeapTrimmer,
    logs: Arc<AcceptLogs>,
}

/// Rate limits of log messages about connections.
#[derive(Debug, Default)]
struct AcceptLogs {
    displaced_connections: RateLimitedLog,
    accept_failures: RateLimitedLog,
}

/// Source of connections.
#[derive(Debug)]
pub enum ConnectionSource {
    Unix(ReplaceableListener),
    /// Uses TLS if a certificate is configured.
    Tcp(TcpListener, Option<Arc<ReloadableTls>>),
    /// Connections from this process.
    InProcess(Mutex<mpsc::Receiver<UnixStream>>),
}

/// Connection that is about to be served. A connection from this process has no limits.
struct LimitedConnection {
    accepted: AcceptedConnection,
    guard: Option<ConnectionGuard>,
}

impl ConnectionLimiter {
    pub fn new(quota: ConnectionQuota, capacity: ListenerCapacity) -> Self {
        Self {
            quota,
            capacity,
            heap_trimmer: HeapTrimmer::default(),
            logs: Arc::default(),
        }
    }

    /// Accepts the next connection. Closes another connection if too many have no accepted call.
    async fn accept_within_limits(
        &self,
        source: &ConnectionSource,
        permits: &Arc<ListenerPermits>,
    ) -> LimitedConnection {
        let mut backoff = ACCEPT_BACKOFF;
        loop {
            let accepted = match source.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    if let Ok(suppressed) = self.logs.accept_failures.record_event() {
                        tracing::warn!(%error, suppressed, "accepting a connection failed");
                    }
                    sleep(backoff.next_limit()).await;
                    continue;
                }
            };
            backoff.reset();

            if matches!(source, ConnectionSource::InProcess(_)) {
                return LimitedConnection {
                    accepted,
                    guard: None,
                };
            }
            let Ok(caller) = accepted.quota_key() else {
                continue;
            };
            let (guard, displaced) = permits.enter_pool(&caller, is_operator(&caller)).await;
            if let Some(caller) = displaced
                && let Ok(suppressed) = self.logs.displaced_connections.record_event()
            {
                let limit = permits.max_pending();
                tracing::warn!(
                    %caller,
                    suppressed,
                    "a connection was closed for a newer one: it had no accepted call, and {limit} such \
                     connections are open"
                );
            }
            return LimitedConnection {
                accepted,
                guard: Some(guard),
            };
        }
    }

    /// Logs a panic of a connection task, which ends no other connection.
    fn handle_connection_end(&self, ended: Result<(), tokio::task::JoinError>) {
        if let Err(panic) = ended {
            tracing::error!(%panic, "internal error: a connection task panicked");
        }
        self.heap_trimmer.schedule_trim();
    }

    /// Serves connections until shutdown, and then drains calls in flight. Dropping the future
    /// aborts the calls.
    pub async fn serve_connections(
        self,
        source: ConnectionSource,
        server: Http2Server,
        shutdown: CancellationToken,
    ) {
        let permits = ListenerPermits::new(self.quota.clone(), self.capacity);
        let mut connections = JoinSet::new();

        {
            // The future outlives a round: a connection that waits for a slot must not be dropped.
            let mut next = pin!(self.accept_within_limits(&source, &permits));
            let mut shutdown_begun = pin!(shutdown.cancelled());
            loop {
                tokio::select! {
                    () = &mut shutdown_begun => break,
                    Some(ended) = connections.join_next() => self.handle_connection_end(ended),
                    LimitedConnection { accepted, guard } = &mut next => {
                        next.set(self.accept_within_limits(&source, &permits));
                        let connection =
                            server.clone().serve_connection(accepted, guard, shutdown.clone());
                        connections.spawn(connection);
                    }
                }
            }
        }

        drop(source);
        while let Some(ended) = connections.join_next().await {
            self.handle_connection_end(ended);
        }
    }
}

/// Whether the caller is root or the daemon's own user, on a Unix socket.
fn is_operator(caller: &QuotaKey) -> bool {
    let own_uid = rustix::process::geteuid().as_raw();
    *caller == QuotaKey::User(0) || *caller == QuotaKey::User(own_uid)
}

impl ConnectionSource {
    async fn accept(&self) -> io::Result<AcceptedConnection> {
        Ok(AcceptedConnection::Unix(match self {
            Self::Unix(listener) => listener.accept().await?,
            Self::Tcp(listener, tls) => {
                let (stream, address) = listener.accept().await?;
                return Ok(AcceptedConnection::Tcp(stream, address, tls.clone()));
            }
            Self::InProcess(receiver) => match receiver.lock().await.recv().await {
                Some(stream) => stream,
                // All connectors were dropped. Existing connections continue.
                None => pending().await,
            },
        }))
    }
}
