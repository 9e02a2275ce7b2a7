//! Daemon inside another program. Only this process can connect: the daemon has no socket, notifies
//! no service manager, and does not reload its configuration. Scans, limits and watches are those
//! of every daemon.

use super::accept::ConnectionSource;
use super::{BoundDaemon, BoundListeners, StartError, build_daemon_on};
use crate::daemon::config::Config;
use crate::daemon::model::SandboxStatus;
use std::io;
use tokio::net::UnixStream;
use tokio::sync::{Mutex, mpsc};
use tokio_util::sync::DropGuard;
use tokio_util::task::AbortOnDropHandle;

/// Most connections that wait to be accepted.
const MAX_PENDING_CONNECTIONS: usize = 8;

/// Daemon in this process. Ends when dropped.
#[derive(Debug)]
pub struct EmbeddedDaemon {
    /// Connector to the daemon.
    pub connector: EmbeddedConnector,
    _shutdown: DropGuard,
    _server_task: AbortOnDropHandle<()>,
}

/// Connector to an [`EmbeddedDaemon`]. Clones connect to the same daemon.
#[derive(Debug, Clone)]
pub struct EmbeddedConnector(mpsc::Sender<UnixStream>);

impl EmbeddedDaemon {
    /// Starts a daemon. Ignores the listeners, callers and TLS files of the configuration. Needs a
    /// tokio runtime.
    ///
    /// # Errors
    ///
    /// Returns an internal error, such as no random bytes.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        // Only this process can connect, so that there is no caller to tell from another.
        let config = Config {
            listeners: Vec::new(),
            callers: None,
            tls: None,
            ..config
        };

        let no_listeners = BoundListeners::default();
        let BoundDaemon {
            server,
            connection_limiter,
            shutdown,
            ..
        } = build_daemon_on(no_listeners, config, SandboxStatus::default()).await?;

        let (sender, receiver) = mpsc::channel(MAX_PENDING_CONNECTIONS);
        let source = ConnectionSource::InProcess(Mutex::new(receiver));
        let serving = connection_limiter.serve_connections(source, server, shutdown.clone());

        Ok(Self {
            connector: EmbeddedConnector(sender),
            _shutdown: shutdown.drop_guard(),
            _server_task: AbortOnDropHandle::new(tokio::spawn(serving)),
        })
    }
}

impl EmbeddedConnector {
    /// Connects to the daemon.
    ///
    /// # Errors
    ///
    /// Returns an error if the daemon ended or the process has no free file descriptor.
    pub async fn connect(&self) -> io::Result<UnixStream> {
        let (ours, theirs) = UnixStream::pair()?;
        self.0
            .send(theirs)
            .await
            .map_err(|_| io::Error::new(io::ErrorKind::ConnectionRefused, "the daemon ended"))?;
        Ok(ours)
    }
}
