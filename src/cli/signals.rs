//! Signals that stop a command.

use super::exit;
use super::failure::{CommandFailure, CommandResult as _};
use super::output::stdout_closed;
use caproot_core::text::SentenceResult as _;
#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};
#[cfg(windows)]
use tokio::signal::windows::ctrl_c;

/// Start of the error of signals that cannot be received.
const NO_SIGNALS: &str = "cannot receive signals";

/// Runs a command until it ends. A SIGTERM or SIGINT, or Ctrl-C on
/// Windows, ends the command earlier, with success.
pub fn run_until_signal(
    command: impl Future<Output = Result<u8, CommandFailure>>,
) -> impl Future<Output = Result<u8, CommandFailure>> {
    let command = Box::pin(command);
    async {
        // Before the command starts, so that a reader of its first line can stop it properly.
        let stopped = stop_signal()?;
        tokio::select! {
            () = stopped => Ok(exit::OK),
            outcome = command => outcome,
        }
    }
}

/// Runs a command as [`run_until_signal`] does, and also ends it once the reader of stdout is gone.
pub fn run_until_signal_or_closed_stdout(
    command: impl Future<Output = Result<u8, CommandFailure>>,
) -> impl Future<Output = Result<u8, CommandFailure>> {
    let command = Box::pin(command);
    run_until_signal(async {
        tokio::select! {
            () = stdout_closed() => Ok(exit::OK),
            outcome = command => outcome,
        }
    })
}

/// Returns a future that ends at a signal that comes from now on.
#[cfg(unix)]
fn stop_signal() -> Result<impl Future<Output = ()>, CommandFailure> {
    let mut terminate = receive(SignalKind::terminate())?;
    let mut interrupt = receive(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// Returns a future that ends at a Ctrl-C that comes from now on.
#[cfg(windows)]
fn stop_signal() -> Result<impl Future<Output = ()>, CommandFailure> {
    let mut pressed = ctrl_c().context(NO_SIGNALS).or_exit(exit::INTERNAL)?;
    Ok(async move {
        let _ = pressed.recv().await;
    })
}

#[cfg(unix)]
pub fn receive(kind: SignalKind) -> Result<Signal, CommandFailure> {
    signal(kind).context(NO_SIGNALS).or_exit(exit::INTERNAL)
}
