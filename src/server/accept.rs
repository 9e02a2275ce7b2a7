//! Accepts connections, so many in all and so many of one caller, and has each served by a task of its
//! own, so that a slow beginning of one holds up nobody. Leaves what they say to `http`.

use super::connection::Connection;
use super::handshake;
use super::heap::Spare;
use super::http::Server;
use super::seldom::Seldom;
use super::tls::Tls;
use crate::domain::{Account, Limits, Peer};
use crate::grpc::{Full, Place, Places};
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
const BEGINNING: Duration = Duration::from_secs(10);
/// How long is waited after accepting failed once more, at first and at most: whatever was exhausted
/// may come back.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// What may be connected at once, to all listeners together. Cheap to clone; all clones are one.
#[derive(Debug, Clone)]
pub(super) struct Gate {
    /// Whoever waits here has been accepted; the kernel keeps those behind it.
    open: Arc<Semaphore>,
    max_open: usize,
    callers: Places,
    spare: Spare,
    seldom: Arc<Told>,
}

/// What the log says of them.
#[derive(Debug, Default)]
struct Told {
    waits: Seldom,
    refusals: Seldom,
    failures: Seldom,
}

/// Where connections come from.
#[derive(Debug)]
pub(super) enum Listener {
    Unix(UnixListener),
    /// With TLS, where there is a certificate.
    Tcp(TcpListener, Option<Arc<Tls>>),
    /// From this process alone.
    Handed(Mutex<mpsc::Receiver<UnixStream>>),
}

/// A connection of which nothing was read.
enum Accepted {
    Unix(UnixStream),
    Tcp(TcpStream, SocketAddr, Option<Arc<Tls>>),
}

/// Its right to be open. Dropped, it makes room for another.
struct Ticket {
    _open: OwnedSemaphorePermit,
    _caller: Place,
}

impl Gate {
    pub(super) fn new(limits: &Limits) -> Self {
        let each = ("max_connections_per_caller", limits.max_connections_per_caller);
        Self {
            open: Arc::new(Semaphore::new(limits.max_connections)),
            max_open: limits.max_connections,
            // All are counted by `open`, which can be waited for.
            callers: Places::new(("max_connections", usize::MAX), each),
            spare: Spare::default(),
            seldom: Arc::default(),
        }
    }

    /// Lets one caller have so many from now on; how many there are in all stays.
    pub(super) fn resize(&self, limits: &Limits) {
        self.callers.resize(usize::MAX, limits.max_connections_per_caller);
    }

    /// The next connection that may be open, and its ticket. Waits for as long as all places are
    /// taken.
    async fn next(&self, listener: &Listener) -> (Accepted, Ticket) {
        let mut pause = Duration::ZERO;
        loop {
            match listener.accept().await {
                Ok(accepted) => {
                    pause = Duration::ZERO;
                    let Some(caller) = self.admit(&accepted) else { continue };
                    self.tell_of_waits();
                    // Closed never: the semaphore lives as long as this gate.
                    let Ok(open) = self.open.clone().acquire_owned().await else { continue };
                    return (accepted, Ticket { _open: open, _caller: caller });
                }
                Err(error) => {
                    if let Some(times) = self.seldom.failures.tell() {
                        tracing::warn!(%error, times, "a connection could not be accepted");
                    }
                    sleep(pause).await;
                    pause = (pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
                }
            }
        }
    }

    fn tell_of_waits(&self) {
        if self.open.available_permits() == 0
            && let Some(times) = self.seldom.waits.tell()
        {
            let limit = self.max_open;
            tracing::warn!(
                times,
                "a connection waits: max_connections is {limit}, and so many are open"
            );
        }
    }

    /// A place among its caller's connections; `None` where it must be closed.
    fn admit(&self, accepted: &Accepted) -> Option<Place> {
        let caller = accepted.account().ok()?;
        match self.callers.take(&caller, 1) {
            Ok(place) => Some(place),
            Err(Full { name, limit }) => {
                if let Some(times) = self.seldom.refusals.tell() {
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
    fn ended(&self, ended: Result<(), tokio::task::JoinError>) {
        if let Err(panic) = ended {
            tracing::error!(%panic, "a connection ended by a defect");
        }
        self.spare.give_back();
    }

    /// Serves what connects until the daemon stops, then lets calls under way end. Dropped, it cuts
    /// them off.
    pub(super) async fn serve(
        self,
        listener: Listener,
        server: Server,
        stopping: watch::Receiver<bool>,
    ) {
        let mut connections = JoinSet::new();
        {
            let mut next = pin!(self.next(&listener));
            let mut stopped = pin!(stopped(stopping.clone()));
            loop {
                tokio::select! {
                    () = &mut stopped => break,
                    Some(ended) = connections.join_next() => self.ended(ended),
                    (accepted, ticket) = &mut next => {
                        next.set(self.next(&listener));
                        let (server, stopped) = (server.clone(), self::stopped(stopping.clone()));
                        connections.spawn(async move {
                            let _ticket = ticket;
                            connect(accepted, server, stopped).await;
                        });
                    }
                }
            }
        }
        drop(listener);
        while let Some(ended) = connections.join_next().await {
            self.ended(ended);
        }
    }
}

/// One connection from its beginning to its end.
async fn connect(accepted: Accepted, server: Server, stopped: impl Future<Output = ()>) {
    let mut stopped = pin!(stopped);
    let begun = tokio::select! {
        begun = timeout(BEGINNING, accepted.begin()) => begun,
        // Nothing was asked yet.
        () = &mut stopped => return,
    };
    match begun {
        Ok(Ok(connection)) => server.serve(connection, stopped).await,
        Ok(Err(error)) => tracing::debug!(%error, "a connection ended before it began"),
        Err(_) => tracing::debug!("a connection was closed: it did not begin in time"),
    }
}

async fn stopped(mut stopping: watch::Receiver<bool>) {
    // An error means that the daemon is gone already.
    drop(stopping.wait_for(|stop| *stop).await);
}

impl Listener {
    async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Self::Unix(listener) => listener.accept().await.map(|(s, _)| Accepted::Unix(s)),
            Self::Tcp(listener, tls) => {
                listener.accept().await.map(|(s, a)| Accepted::Tcp(s, a, tls.clone()))
            }
            Self::Handed(handed) => match handed.lock().await.recv().await {
                Some(stream) => Ok(Accepted::Unix(stream)),
                // Nobody can connect any more; those who did go on.
                None => pending().await,
            },
        }
    }
}

impl Accepted {
    /// Whom it counts for, before anything was read.
    fn account(&self) -> io::Result<Account> {
        Ok(match self {
            Self::Unix(stream) => {
                Account::User(rustix::net::sockopt::socket_peercred(stream)?.uid.as_raw())
            }
            Self::Tcp(_, address, _) => {
                Peer::Remote { address: *address, names: Arc::default() }.account()
            }
        })
    }

    /// All that comes before HTTP/2, in the task of the connection and within [`BEGINNING`]: a slow one
    /// holds up nobody else.
    async fn begin(self) -> io::Result<Connection> {
        let connection = match self {
            Self::Unix(stream) => Connection::unix(stream)?,
            Self::Tcp(stream, address, None) => Connection::tcp(stream, address)?,
            Self::Tcp(stream, _, Some(tls)) => handshake::secure(&tls, stream).await?,
        };
        connection.greeted().await
    }
}
