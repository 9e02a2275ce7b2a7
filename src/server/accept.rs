//! Accepts connections within the limits, and serves each in its own task, so that a slow client
//! delays only itself.

use super::connection::AcceptedConnection;
use super::heap::HeapTrimmer;
use super::http::Http2Server;
use super::listen::ReplaceableListener;
use super::tls::ReloadableTls;
use crate::grpc::{Quota, QuotaExceeded, QuotaPermit};
use crate::model::Limits;
use crate::telemetry::RateLimitedLog;
use std::future::pending;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, UnixStream};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// Shortest and longest pause after accepting failed, such as without file descriptors.
const MIN_ACCEPT_BACKOFF: Duration = Duration::from_millis(50);
const MAX_ACCEPT_BACKOFF: Duration = Duration::from_secs(1);

/// Limit of open connections of all listeners. Clones share their state.
#[derive(Debug, Clone)]
pub struct ConnectionLimiter {
    /// Permits of all connections. One accepted connection per listener waits for a permit; further
    /// connections wait in the backlog of the kernel.
    connection_permits: Arc<Semaphore>,
    max_connections: usize,
    caller_quota: Quota,
    heap_trimmer: HeapTrimmer,
    logs: Arc<AcceptLogs>,
}

/// Rate limits of log messages about connections.
#[derive(Debug, Default)]
struct AcceptLogs {
    waiting_connections: RateLimitedLog,
    closed_connections: RateLimitedLog,
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

/// Permit of one open connection; released on drop.
struct ConnectionPermit {
    _total: OwnedSemaphorePermit,
    _caller: QuotaPermit,
}

impl ConnectionLimiter {
    pub fn new(limits: &Limits) -> Self {
        let each = (
            "max_connections_per_caller",
            limits.max_connections_per_caller,
        );
        Self {
            connection_permits: Arc::new(Semaphore::new(limits.max_connections)),
            max_connections: limits.max_connections,
            // `connection_permits` limits the total, because waiting for a semaphore is possible.
            caller_quota: Quota::new(("max_connections", usize::MAX), each),
            heap_trimmer: HeapTrimmer::default(),
            logs: Arc::default(),
        }
    }

    /// Changes the limit of connections of one caller. The total limit is fixed.
    pub fn set_limits(&self, limits: &Limits) {
        self.caller_quota
            .set_limits(usize::MAX, limits.max_connections_per_caller);
    }

    /// Accepts the next connection within the limit of its caller, and waits for a permit.
    async fn accept_with_permit(
        &self,
        source: &ConnectionSource,
    ) -> (AcceptedConnection, ConnectionPermit) {
        let mut pause = Duration::ZERO;
        loop {
            match source.accept().await {
                Ok(accepted) => {
                    pause = Duration::ZERO;
                    let Some(caller) = self.acquire_caller_permit(&accepted) else {
                        continue;
                    };
                    self.warn_if_limit_reached();
                    // The semaphore is never closed.
                    let Ok(total) = self.connection_permits.clone().acquire_owned().await else {
                        continue;
                    };
                    return (
                        accepted,
                        ConnectionPermit {
                            _total: total,
                            _caller: caller,
                        },
                    );
                }
                Err(error) => {
                    if let Ok(suppressed) = self.logs.accept_failures.record_event() {
                        tracing::warn!(%error, suppressed, "accepting a connection failed");
                    }
                    sleep(pause).await;
                    pause = (pause * 2).clamp(MIN_ACCEPT_BACKOFF, MAX_ACCEPT_BACKOFF);
                }
            }
        }
    }

    fn warn_if_limit_reached(&self) {
        if self.connection_permits.available_permits() == 0
            && let Ok(suppressed) = self.logs.waiting_connections.record_event()
        {
            let limit = self.max_connections;
            tracing::warn!(
                suppressed,
                "a connection waits: max_connections, {limit}, is reached"
            );
        }
    }

    /// Acquires a permit from the quota of the caller. Returns `None` if the connection must be
    /// closed.
    fn acquire_caller_permit(&self, accepted: &AcceptedConnection) -> Option<QuotaPermit> {
        let caller = accepted.quota_key().ok()?;
        match self.caller_quota.acquire(&caller, 1) {
            Ok(permit) => Some(permit),
            Err(QuotaExceeded { limit_name, limit }) => {
                if let Ok(suppressed) = self.logs.closed_connections.record_event() {
                    tracing::warn!(
                        %caller,
                        suppressed,
                        "a connection was closed: {limit_name}, {limit}, is reached"
                    );
                }
                None
            }
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
        let mut connections = JoinSet::new();
        {
            let mut next = pin!(self.accept_with_permit(&source));
            let mut shutdown_begun = pin!(shutdown.cancelled());
            loop {
                tokio::select! {
                    () = &mut shutdown_begun => break,
                    Some(ended) = connections.join_next() => self.handle_connection_end(ended),
                    (accepted, permit) = &mut next => {
                        next.set(self.accept_with_permit(&source));
                        let server = server.clone();
                        let shutdown = shutdown.clone();
                        connections.spawn(async move {
                            let _permit = permit;
                            server.serve_connection(accepted, &shutdown).await;
                        });
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

impl ConnectionSource {
    async fn accept(&self) -> io::Result<AcceptedConnection> {
        match self {
            Self::Unix(listener) => listener
                .accept()
                .await
                .map(|(s, _)| AcceptedConnection::Unix(s)),
            Self::Tcp(listener, tls) => listener
                .accept()
                .await
                .map(|(s, a)| AcceptedConnection::Tcp(s, a, tls.clone())),
            Self::InProcess(receiver) => match receiver.lock().await.recv().await {
                Some(stream) => Ok(AcceptedConnection::Unix(stream)),
                // All connectors were dropped. Existing connections continue.
                None => pending().await,
            },
        }
    }
}
