//! What signals tell a process: to stop, to stop at once, and to read its configuration again. Leaves
//! doing so to those who are told.

use std::io;
use std::pin::pin;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Notify, oneshot};

/// Those that are listened to; from when this is made on, none of them ends the process by itself.
#[derive(Debug)]
pub(super) struct DaemonSignals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

/// Ends at the first SIGTERM or SIGINT from now on.
pub(super) fn stop_signal() -> io::Result<impl Future<Output = ()> + Send> {
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
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Runs what ends soon after `stop` is told to it, by the first SIGTERM or SIGINT. At the second it is
    /// dropped: `None`. Each SIGHUP rings; several that come at once may be one.
    pub(super) async fn run_until_stopped<T>(
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
                // Gone only where it ends by itself already.
                Some(stop) => drop(stop.send(())),
                None => return None,
            }
        }
    }
}
