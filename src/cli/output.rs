//! Output on stdout and stderr, and the properties of the terminal.

use super::failure::CommandFailure;
use super::{exit, table};
use caproot_client::json;
use caproot_core::proto::NamedMessage;
use caproot_core::text::escape_json;
use clap::ValueEnum;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use serde::Serialize;
use std::ffi::OsString;
use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::time::Duration;

/// Longest wait for the reader of stdout before a daemon serves.
const READY_LINES_TIMEOUT: Duration = Duration::from_secs(1);

/// Output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// For people
    Text,
    /// For programs: JSON; for responses of a daemon, proto3 JSON
    Json,
}

/// Lets `write` print to stdout, and flushes it.
pub fn write_stdout(
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), CommandFailure> {
    let mut stdout = BufWriter::new(io::stdout().lock());
    write(&mut stdout)
        .and_then(|()| stdout.flush())
        .map_err(|error| CommandFailure::from_write_error(&error))
}

/// Returns the outcome of a write to stdout without the failure of a closed stdout.
pub fn ignore_closed_stdout(outcome: Result<(), CommandFailure>) -> Result<(), CommandFailure> {
    outcome.or_else(|failure| {
        if failure.is_silent() {
            Ok(())
        } else {
            Err(failure)
        }
    })
}

/// Writes lines on a blocking thread, so that a slow reader does not delay signals.
pub async fn write_lines(lines: Vec<String>) -> Result<(), CommandFailure> {
    if lines.is_empty() {
        return Ok(());
    }
    let written = tokio::task::spawn_blocking(move || {
        write_stdout(|stdout| lines.iter().try_for_each(|line| writeln!(stdout, "{line}")))
    });
    written
        .await
        .unwrap_or_else(|error| Err(CommandFailure::new(exit::INTERNAL, error)))
}

/// Prints the lines with which a daemon says that it is ready. A closed stdout is no failure. If stdout
/// is not read, the daemon goes on without the lines.
pub async fn print_ready_lines(lines: Vec<String>) -> Result<(), CommandFailure> {
    let printed = tokio::time::timeout(READY_LINES_TIMEOUT, write_lines(lines)).await;
    let Ok(outcome) = printed else {
        tracing::warn!("stdout is not read; the first lines wait for the reader");
        return Ok(());
    };
    ignore_closed_stdout(outcome)
}

/// Waits until the reader of stdout is gone. Never returns if that cannot be known, as for a file.
/// Without this, only the next write would fail.
pub async fn stdout_closed() {
    let polled = tokio::task::spawn_blocking(|| {
        let stdout = io::stdout();
        // No events are requested: poll(2) always reports ERR and HUP.
        let mut waits = [PollFd::new(&stdout, PollFlags::empty())];
        while poll(&mut waits, None) == Err(Errno::INTR) {}
        waits[0].revents()
    });
    match polled.await {
        Ok(events) if events.intersects(PollFlags::ERR | PollFlags::HUP) => {}
        _ => std::future::pending().await,
    }
}

/// Prints a value as JSON: on several lines on a terminal, otherwise on one line.
pub fn print_json(value: &impl Serialize) -> Result<(), CommandFailure> {
    // Serialized before printing, so that nothing is printed if the value has no JSON form.
    let text = if io::stdout().is_terminal() {
        serde_json::to_string_pretty(value)
    } else {
        serde_json::to_string(value)
    };
    let json = text.map_err(|error| CommandFailure::invalid_response(&error))?;
    write_stdout(|stdout| writeln!(stdout, "{}", escape_json(&json)))
}

/// Prints rows in aligned columns that fit the terminal, below a header. Without rows, prints
/// nothing.
pub fn print_table(head: &[&str], rows: &[impl AsRef<[String]>]) -> Result<(), CommandFailure> {
    print_lines(head, rows, terminal_width())
}

/// Prints the table without truncation, independent of the terminal's width.
pub fn print_full_table(
    head: &[&str],
    rows: &[impl AsRef<[String]>],
) -> Result<(), CommandFailure> {
    print_lines(head, rows, None)
}

fn print_lines(
    head: &[&str],
    rows: &[impl AsRef<[String]>],
    width: Option<usize>,
) -> Result<(), CommandFailure> {
    if rows.is_empty() {
        return Ok(());
    }
    let head: Vec<String> = head.iter().map(ToString::to_string).collect();
    let all: Vec<&[String]> = std::iter::once(&*head)
        .chain(rows.iter().map(AsRef::as_ref))
        .collect();
    let lines = table::table_lines(&all, width);
    write_stdout(|stdout| lines.iter().try_for_each(|line| writeln!(stdout, "{line}")))
}

/// Prints a response of the daemon as proto3 JSON.
pub fn print_message(message: &impl NamedMessage) -> Result<(), CommandFailure> {
    print_json(
        &json::to_dynamic(message).map_err(|error| CommandFailure::invalid_response(&error))?,
    )
}

/// Prints lines to stderr. Write errors are ignored.
pub fn print_stderr(lines: &[String]) {
    let mut stderr = BufWriter::new(io::stderr().lock());
    for line in lines {
        let _ = writeln!(stderr, "{line}");
    }
    let _ = stderr.flush();
}

/// Whether stdout supports color: a terminal with color, and `NO_COLOR` is not set.
pub fn stdout_supports_color() -> bool {
    let is_dumb = non_empty_variable("TERM").is_none_or(|term| term == "dumb");
    io::stdout().is_terminal() && non_empty_variable("NO_COLOR").is_none() && !is_dumb
}

fn non_empty_variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Returns the width of stdout's terminal: `COLUMNS` if set, otherwise the width that the terminal
/// reports, otherwise 80. `None` if stdout is not a terminal.
fn terminal_width() -> Option<usize> {
    let stdout = io::stdout();
    if !stdout.is_terminal() {
        return None;
    }
    let columns = std::env::var("COLUMNS")
        .ok()
        .and_then(|columns| columns.parse().ok());

    columns
        .or_else(|| {
            let size = rustix::termios::tcgetwinsize(&stdout).ok()?;
            Some(usize::from(size.ws_col))
        })
        .filter(|columns| *columns > 0)
        .or(Some(80))
}
