//! Signals of a daemon: stop, abort and reload.

use crate::cli::failure::CommandFailure;
use crate::cli::signals::receive;
use caproot_core::sync::run_blocking;
use std::io;
use std::pin::pin;
use tokio::signal::unix::{Signal, SignalKind};
use tokio::sync::{Notify, oneshot};

/// Signal handlers of the daemon. Once they exist, no signal ends the process by itself.
#[derive(Debug)]
pub struct DaemonSignals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    is_stopped_by_stdin: bool,
}

/// Waits for the end of stdin, and discards the input.
async fn stdin_ended() {
    let read = run_blocking(|| {
        // An error of stdin is its end, too.
        drop(io::copy(&mut io::stdin().lock(), &mut io::sink()));
    });
    if read.await.is_err() {
        // The thread could not be started: only a signal ends the process.
        std::future::pending::<()>().await;
    }
}

impl DaemonSignals {
    /// Creates the handlers. With `is_stopped_by_stdin`, the end of stdin stops the daemon as a signal does.
    pub fn new(is_stopped_by_stdin: bool) -> Result<Self, CommandFailure> {
        Ok(Self {
            terminate: receive(SignalKind::terminate())?,
            interrupt: receive(SignalKind::interrupt())?,
            hangup: receive(SignalKind::hangup())?,
            is_stopped_by_stdin,
        })
    }

    /// Runs `run`, and sends `stop` at the first SIGTERM or SIGINT, or at the end of stdin. At the
    /// second signal, drops `run` and returns `None`. Each SIGHUP notifies `hangups`; several signals at
    /// once may be one notification.
    pub async fn run_until_stopped<T>(
        mut self,
        run: impl Future<Output = T>,
        stop: oneshot::Sender<()>,
        hangups: &Notify,
    ) -> Option<T> {
        let mut run = pin!(run);
        let mut input_end = pin!(stdin_ended());
        let mut has_input_ended = !self.is_stopped_by_stdin;
        let mut has_signal = false;
        let mut stop = Some(stop);

        loop {
            tokio::select! {
                outcome = &mut run => return Some(outcome),
                // The end of stdin is no signal, so that the next signal does not abort the calls.
                () = &mut input_end, if !has_input_ended => has_input_ended = true,
                _ = self.hangup.recv() => {
                    hangups.notify_one();
                    continue;
                }
                _ = self.terminate.recv() => if std::mem::replace(&mut has_signal, true) {
                    return None;
                },
                _ = self.interrupt.recv() => if std::mem::replace(&mut has_signal, true) {
                    return None;
                },
            }

            if let Some(stop) = stop.take() {
                // Fails only if `run` is already ending.
                let _ = stop.send(());
            }
        }
    }
}
