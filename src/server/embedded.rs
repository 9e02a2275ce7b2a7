//! The daemon inside another program, for that program alone: no socket that anybody else could connect
//! to, no service manager that is told, no configuration that is read again. Finding, containment, bounds
//! and watches are those of every daemon.

use super::accept::Listener;
use super::{App, Listeners, StartError, build_on};
use crate::config::Config;
use crate::domain::Sandbox;
use std::io;
use tokio::net::UnixStream;
use tokio::sync::{Mutex, mpsc, watch};
use tokio_util::task::AbortOnDropHandle;

/// Connections that are made and not yet taken; further ones wait.
const WAITING: usize = 8;

/// A daemon in this process. Dropped, it ends.
#[derive(Debug)]
pub struct Embedded {
    way: Way,
    /// Kept, or the daemon would take it for the word to stop.
    _stopping: watch::Sender<bool>,
    _serving: AbortOnDropHandle<()>,
}

/// The way to it. A clone is another way to the same.
#[derive(Debug, Clone)]
pub struct Way(mpsc::Sender<UnixStream>);

impl Embedded {
    /// Starts a daemon under this configuration, whose listeners and callers count for nothing: only
    /// this process can reach it. Needs a tokio runtime.
    ///
    /// # Errors
    ///
    /// A defect, or no randomness.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        let config = Config { listeners: Vec::new(), callers: None, tls: None, ..config };
        let nowhere = Listeners { served: Vec::new(), scraped: None };
        let app = build_on(nowhere, config, Sandbox::default()).await?;
        let App { server, gate, stopping, .. } = app;
        let (way, handed) = mpsc::channel(WAITING);
        let listener = Listener::Handed(Mutex::new(handed));
        let serving = tokio::spawn(gate.serve(listener, server, stopping.subscribe()));
        let serving = AbortOnDropHandle::new(serving);
        Ok(Self { way: Way(way), _stopping: stopping, _serving: serving })
    }

    /// The way to it.
    #[must_use]
    pub fn way(&self) -> Way {
        self.way.clone()
    }
}

impl Way {
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
