//! The daemon inside another program, for that program alone: no socket that anybody else could connect
//! to, no service manager that is told, no configuration that is read again. Finding, containment, bounds
//! and watches are those of every daemon.

use super::accept::ConnectionSource;
use super::{BoundDaemon, BoundListeners, StartError, build_daemon_on};
use crate::config::Config;
use crate::domain::SandboxStatus;
use std::io;
use tokio::net::UnixStream;
use tokio::sync::{Mutex, mpsc, watch};
use tokio_util::task::AbortOnDropHandle;

/// Connections that are made and not yet taken; further ones wait.
const MAX_PENDING_CONNECTIONS: usize = 8;

/// A daemon in this process. Dropped, it ends.
#[derive(Debug)]
pub struct EmbeddedDaemon {
    connector: EmbeddedConnector,
    /// Kept, or the daemon would take it for the word to stop.
    _shutdown: watch::Sender<bool>,
    _server_task: AbortOnDropHandle<()>,
}

/// The way to it. A clone is another way to the same.
#[derive(Debug, Clone)]
pub struct EmbeddedConnector(mpsc::Sender<UnixStream>);

impl EmbeddedDaemon {
    /// Starts a daemon under this configuration, whose listeners and callers count for nothing: only
    /// this process can reach it. Needs a tokio runtime.
    ///
    /// # Errors
    ///
    /// A defect, or no randomness.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        let config = Config { listeners: Vec::new(), callers: None, tls: None, ..config };
        let nowhere = BoundListeners { grpc: Vec::new(), metrics: None };
        let app = build_daemon_on(nowhere, config, SandboxStatus::default()).await?;
        let BoundDaemon { server, connection_limiter: gate, shutdown: stopping, .. } = app;
        let (way, handed) = mpsc::channel(MAX_PENDING_CONNECTIONS);
        let listener = ConnectionSource::InProcess(Mutex::new(handed));
        let serving = tokio::spawn(gate.serve_connections(listener, server, stopping.subscribe()));
        let serving = AbortOnDropHandle::new(serving);
        Ok(Self { connector: EmbeddedConnector(way), _shutdown: stopping, _server_task: serving })
    }

    /// The way to it.
    #[must_use]
    pub fn connector(&self) -> EmbeddedConnector {
        self.connector.clone()
    }
}

impl EmbeddedConnector {
    /// A connection of which the daemon has the other end.
    ///
    /// # Errors
    ///
    /// The daemon ended, or the process has no descriptor left.
    pub async fn connect(&self) -> io::Result<UnixStream> {
        let (ours, its) = UnixStream::pair()?;
        let gone = |_| io::Error::new(io::ErrorKind::ConnectionRefused, "the daemon ended");
        self.0.send(its).await.map_err(gone)?;
        Ok(ours)
    }
}
