//! Signals of a process: stop, abort and reload.

use std::io;
use std::pin::pin;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Notify, oneshot};

/// Signal handlers of the daemon. Once they exist, no signal ends the process by itself.
#[derive(Debug)]
pub struct DaemonSignals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

/// Returns a future that ends at the first SIGTERM or SIGINT from now on.
pub fn stop_signal() -> io::Result<impl Future<Output = ()> + Send> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

impl DaemonSignals {
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Runs `run`, and sends `stop` at the first SIGTERM or SIGINT. At the second signal, drops
    /// `run` and returns `None`. Each SIGHUP notifies `hangups`; several signals at once may be one
    /// notification.
    pub async fn run_until_stopped<T>(
        mut self,
        run: impl Future<Output = T>,
        stop: oneshot::Sender<()>,
        hangups: &Notify,
    ) -> Option<T> {
        let mut run = pin!(run);
        let mut stop = Some(stop);
        loop {
            tokio::select! {
                outcome = &mut run => return Some(outcome),
                _ = self.hangup.recv() => {
                    hangups.notify_one();
                    continue;
                }
                _ = self.terminate.recv() => {}
                _ = self.interrupt.recv() => {}
            }
            match stop.take() {
                // Fails only if `run` is already ending.
                Some(stop) => drop(stop.send(())),
                None => return None,
            }
        }
    }
}
