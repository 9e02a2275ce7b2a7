//! Accepts connections, so many in all and so many of one caller, and has each served by a task of its
//! own, so that a slow beginning of one holds up nobody. Leaves what they say to `http`.

use super::connection::PeerConnection;
use super::handshake;
use super::heap::HeapTrimmer;
use super::http::Http2Server;
use super::rate_limited_log::RateLimitedLog;
use super::tls::ReloadableTls;
use crate::domain::{Limits, PeerIdentity, QuotaKey};
use crate::grpc::{Quota, QuotaExceeded, QuotaPermit};
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// How long a connection may take before HTTP/2 has begun on it.
const CONNECTION_SETUP_TIMEOUT: Duration = Duration::from_secs(10);
/// How long is waited after accepting failed once more, at first and at most: whatever was exhausted
/// may come back.
const MIN_ACCEPT_BACKOFF: Duration = Duration::from_millis(50);
const MAX_ACCEPT_BACKOFF: Duration = Duration::from_secs(1);

/// What may be connected at once, to all listeners together. Cheap to clone; all clones are one.
#[derive(Debug, Clone)]
pub(super) struct ConnectionLimiter {
    /// Whoever waits here has been accepted; the kernel keeps those behind it.
    connection_permits: Arc<Semaphore>,
    max_connections: usize,
    caller_quota: Quota,
    heap_trimmer: HeapTrimmer,
    logs: Arc<AcceptLogs>,
}

/// What the log says of them.
#[derive(Debug, Default)]
struct AcceptLogs {
    waiting_connections: RateLimitedLog,
    closed_connections: RateLimitedLog,
    accept_failures: RateLimitedLog,
}

/// Where connections come from.
#[derive(Debug)]
pub(super) enum ConnectionSource {
    Unix(UnixListener),
    /// With TLS, where there is a certificate.
    Tcp(TcpListener, Option<Arc<ReloadableTls>>),
    /// From this process alone.
    InProcess(Mutex<mpsc::Receiver<UnixStream>>),
}

/// A connection of which nothing was read.
enum AcceptedConnection {
    Unix(UnixStream),
    Tcp(TcpStream, SocketAddr, Option<Arc<ReloadableTls>>),
}

/// Its right to be open. Dropped, it makes room for another.
struct ConnectionPermit {
    _open: OwnedSemaphorePermit,
    _caller: QuotaPermit,
}

impl ConnectionLimiter {
    pub(super) fn new(limits: &Limits) -> Self {
        let each = ("max_connections_per_caller", limits.max_connections_per_caller);
        Self {
            connection_permits: Arc::new(Semaphore::new(limits.max_connections)),
            max_connections: limits.max_connections,
            // All are counted by `open`, which can be waited for.
            caller_quota: Quota::new(("max_connections", usize::MAX), each),
            heap_trimmer: HeapTrimmer::default(),
            logs: Arc::default(),
        }
    }

    /// Lets one caller have so many from now on; how many there are in all stays.
    pub(super) fn set_limits(&self, limits: &Limits) {
        self.caller_quota.set_limits(usize::MAX, limits.max_connections_per_caller);
    }

    /// The next connection that may be open, and its ticket. Waits for as long as all places are
    /// taken.
    async fn accept_with_permit(
        &self,
        listener: &ConnectionSource,
    ) -> (AcceptedConnection, ConnectionPermit) {
        let mut pause = Duration::ZERO;
        loop {
            match listener.accept().await {
                Ok(accepted) => {
                    pause = Duration::ZERO;
                    let Some(caller) = self.acquire_caller_permit(&accepted) else { continue };
                    self.warn_if_limit_reached();
                    // Closed never: the semaphore lives as long as this gate.
                    let Ok(open) = self.connection_permits.clone().acquire_owned().await else {
                        continue;
                    };
                    return (accepted, ConnectionPermit { _open: open, _caller: caller });
                }
                Err(error) => {
                    if let Some(times) = self.logs.accept_failures.record_event() {
                        tracing::warn!(%error, times, "a connection could not be accepted");
                    }
                    sleep(pause).await;
                    pause = (pause * 2).clamp(MIN_ACCEPT_BACKOFF, MAX_ACCEPT_BACKOFF);
                }
            }
        }
    }

    fn warn_if_limit_reached(&self) {
        if self.connection_permits.available_permits() == 0
            && let Some(times) = self.logs.waiting_connections.record_event()
        {
            let limit = self.max_connections;
            tracing::warn!(
                times,
                "a connection waits: max_connections is {limit}, and so many are open"
            );
        }
    }

    /// A place among its caller's connections; `None` where it must be closed.
    fn acquire_caller_permit(&self, accepted: &AcceptedConnection) -> Option<QuotaPermit> {
        let caller = accepted.quota_key().ok()?;
        match self.caller_quota.acquire(&caller, 1) {
            Ok(place) => Some(place),
            Err(QuotaExceeded { limit_name: name, limit }) => {
                if let Some(times) = self.logs.closed_connections.record_event() {
                    tracing::warn!(
                        %caller,
                        times,
                        "connections were closed: {name} is {limit}, and so many are open"
                    );
                }
                None
            }
        }
    }

    /// One connection that ends by a defect ends alone.
    fn handle_connection_end(&self, ended: Result<(), tokio::task::JoinError>) {
        if let Err(panic) = ended {
            tracing::error!(%panic, "a connection ended by a defect");
        }
        self.heap_trimmer.schedule_trim();
    }

    /// Serves what connects until the daemon stops, then lets calls under way end. Dropped, it cuts
    /// them off.
    pub(super) async fn serve_connections(
        self,
        listener: ConnectionSource,
        server: Http2Server,
        stopping: watch::Receiver<bool>,
    ) {
        let mut connections = JoinSet::new();
        {
            let mut next = pin!(self.accept_with_permit(&listener));
            let mut stopped = pin!(wait_for_shutdown(stopping.clone()));
            loop {
                tokio::select! {
                    () = &mut stopped => break,
                    Some(ended) = connections.join_next() => self.handle_connection_end(ended),
                    (accepted, ticket) = &mut next => {
                        next.set(self.accept_with_permit(&listener));
                        let (server, stopped) = (server.clone(), wait_for_shutdown(stopping.clone()));
                        connections.spawn(async move {
                            let _ticket = ticket;
                            run_connection(accepted, server, stopped).await;
                        });
                    }
                }
            }
        }
        drop(listener);
        while let Some(ended) = connections.join_next().await {
            self.handle_connection_end(ended);
        }
    }
}

/// One connection from its beginning to its end.
async fn run_connection(
    accepted: AcceptedConnection,
    server: Http2Server,
    stopped: impl Future<Output = ()>,
) {
    let mut stopped = pin!(stopped);
    let begun = tokio::select! {
        begun = timeout(CONNECTION_SETUP_TIMEOUT, accepted.establish_http2()) => begun,
        // Nothing was asked yet.
        () = &mut stopped => return,
    };
    match begun {
        Ok(Ok(connection)) => server.serve_connection(connection, stopped).await,
        Ok(Err(error)) => tracing::debug!(%error, "a connection ended before it began"),
        Err(_) => tracing::debug!("a connection was closed: it did not begin in time"),
    }
}

async fn wait_for_shutdown(mut stopping: watch::Receiver<bool>) {
    // An error means that the daemon is gone already.
    drop(stopping.wait_for(|stop| *stop).await);
}

impl ConnectionSource {
    async fn accept(&self) -> io::Result<AcceptedConnection> {
        match self {
            Self::Unix(listener) => {
                listener.accept().await.map(|(s, _)| AcceptedConnection::Unix(s))
            }
            Self::Tcp(listener, tls) => {
                listener.accept().await.map(|(s, a)| AcceptedConnection::Tcp(s, a, tls.clone()))
            }
            Self::InProcess(handed) => match handed.lock().await.recv().await {
                Some(stream) => Ok(AcceptedConnection::Unix(stream)),
                // Nobody can connect any more; those who did go on.
                None => pending().await,
            },
        }
    }
}

impl AcceptedConnection {
    /// Whom it counts for, before anything was read.
    fn quota_key(&self) -> io::Result<QuotaKey> {
        Ok(match self {
            Self::Unix(stream) => {
                QuotaKey::User(rustix::net::sockopt::socket_peercred(stream)?.uid.as_raw())
            }
            Self::Tcp(_, address, _) => {
                PeerIdentity::Remote { address: *address, names: Arc::default() }.quota_key()
            }
        })
    }

    /// All that comes before HTTP/2, in the task of the connection and within [`BEGINNING`]: a slow one
    /// holds up nobody else.
    async fn establish_http2(self) -> io::Result<PeerConnection> {
        let connection = match self {
            Self::Unix(stream) => PeerConnection::unix(stream)?,
            Self::Tcp(stream, address, None) => PeerConnection::tcp(stream, address)?,
            Self::Tcp(stream, _, Some(tls)) => handshake::accept_tls(&tls, stream).await?,
        };
        connection.read_preface().await
    }
}
