//! Output on stdout and stderr, and the properties of the terminal.

use super::color::{self, paint, state_style};
use super::failure::CommandFailure;
use super::{exit, table};
use anstyle::Style;
use caproot_client::json;
use caproot_core::proto::NamedMessage;
use caproot_core::text::escape_json;
use clap::ValueEnum;
#[cfg(unix)]
use rustix::event::{PollFd, PollFlags, poll};
#[cfg(unix)]
use rustix::io::Errno;
use serde::Serialize;
use std::ffi::OsString;
use std::io::{self, BufWriter, IsTerminal, Write};
#[cfg(unix)]
use std::os::fd::AsFd as AsTerminal;
#[cfg(windows)]
use std::os::windows::io::AsHandle as AsTerminal;
use std::time::Duration;
use terminal_size::{Height, Width, terminal_size_of};

/// Longest wait for the reader of stdout before a daemon serves.
const READY_LINES_TIMEOUT: Duration = Duration::from_secs(1);

/// Output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum OutputFormat {
    /// For people
    #[default]
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
    match outcome {
        Err(failure) if failure.is_silent() => Ok(()),
        outcome => outcome,
    }
}

/// Writes lines on a blocking thread, so that a slow reader does not delay signals.
pub async fn write_lines(lines: Vec<String>) -> Result<(), CommandFailure> {
    if lines.is_empty() {
        return Ok(());
    }
    tokio::task::spawn_blocking(move || {
        write_stdout(|stdout| lines.iter().try_for_each(|line| writeln!(stdout, "{line}")))
    })
    .await
    .unwrap_or_else(|error| Err(CommandFailure::new(exit::INTERNAL, error)))
}

/// Prints the lines with which a daemon says that it is ready. A closed stdout is no failure. If stdout
/// is not read, the daemon goes on without the lines.
pub async fn print_ready_lines(lines: Vec<String>) -> Result<(), CommandFailure> {
    let Ok(outcome) = tokio::time::timeout(READY_LINES_TIMEOUT, write_lines(lines)).await else {
        tracing::warn!("stdout is not read; the first lines wait for the reader");
        return Ok(());
    };
    ignore_closed_stdout(outcome)
}

/// Waits until the reader of stdout is gone. Never returns if that cannot be known, as for a file or on
/// Windows. Without this, only the next write would fail.
#[cfg(windows)]
pub fn stdout_closed() -> impl Future<Output = ()> {
    std::future::pending()
}

/// Waits until the reader of stdout is gone. Never returns if that cannot be known, as for a file.
/// Without this, only the next write would fail.
#[cfg(unix)]
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
    let json = escape_json(&text?);
    write_stdout(|stdout| writeln!(stdout, "{json}"))
}

/// Prints rows in aligned columns that fit the terminal, below a header. Without rows, prints
/// nothing.
pub fn print_table(head: &[&str], rows: &[impl AsRef<[String]>]) -> Result<(), CommandFailure> {
    print_lines(head, rows, terminal_width(&io::stdout()))
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
    let state_column = head.iter().position(|name| *name == "STATE");
    let is_colored = supports_color(&io::stdout());

    write_stdout(|stdout| {
        for (row, line) in lines.iter().enumerate() {
            match (is_colored, row, state_column) {
                (true, 0, _) => writeln!(stdout, "{}", paint(&line.text, color::HEAD))?,
                (true, _, Some(column)) => {
                    writeln!(stdout, "{}", line.paint_cell(column, state_style))?;
                }
                _ => writeln!(stdout, "{}", line.text)?,
            }
        }
        Ok(())
    })
}

/// Prints a response of the daemon as proto3 JSON.
pub fn print_message(message: &impl NamedMessage) -> Result<(), CommandFailure> {
    print_json(&json::to_dynamic(message)?)
}

/// Prints messages to stderr. On a terminal, they break between words and have colors. Write errors are
/// ignored.
pub fn print_stderr(lines: &[String]) {
    print_messages(lines, Style::new().bold());
}

/// Prints the messages of a failure to stderr, like [`print_stderr`].
pub fn print_failure(lines: &[String]) {
    print_messages(lines, color::FAILURE);
}

/// `program` is the style of the name of the program.
fn print_messages(lines: &[String], program: Style) {
    let stderr = io::stderr();
    let width = terminal_width(&stderr);
    let is_colored = supports_color(&stderr);

    let mut stderr = BufWriter::new(stderr.lock());
    for line in lines {
        let wrapped = match width {
            Some(width) => color::wrap_line(line, width, color::INDENT),
            None => vec![line.clone()],
        };
        for (at, part) in wrapped.iter().enumerate() {
            let _ = if is_colored && at == 0 {
                writeln!(stderr, "{}", color::paint_message(part, program))
            } else {
                writeln!(stderr, "{part}")
            };
        }
    }
    let _ = stderr.flush();
}

/// Whether a stream supports color: a terminal with color, and `NO_COLOR` is not set.
pub fn supports_color(stream: &impl IsTerminal) -> bool {
    supports_cursor(stream) && non_empty_variable("NO_COLOR").is_none()
}

fn non_empty_variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Whether the cursor of a stream can be moved: a terminal that is not dumb.
pub fn supports_cursor(stream: &impl IsTerminal) -> bool {
    let is_dumb = non_empty_variable("TERM").is_none_or(|term| term == "dumb");
    stream.is_terminal() && !is_dumb
}

/// Number of columns and rows of a terminal.
#[derive(Debug, Clone, Copy)]
pub struct TerminalSize {
    pub columns: usize,
    pub rows: usize,
}

/// Returns the size of a stream's terminal, or 80 columns and 24 rows if the size is not known.
pub fn terminal_size(stream: &(impl IsTerminal + AsTerminal)) -> TerminalSize {
    let rows = terminal_size_of(stream).map_or(0, |(_, Height(rows))| usize::from(rows));
    TerminalSize {
        columns: terminal_width(stream).unwrap_or(80),
        rows: if rows > 0 { rows } else { 24 },
    }
}

/// Returns the width of a stream's terminal: `COLUMNS` if set, otherwise the width that the terminal
/// reports, otherwise 80. `None` if the stream is not a terminal.
pub fn terminal_width(stream: &(impl IsTerminal + AsTerminal)) -> Option<usize> {
    if !stream.is_terminal() {
        return None;
    }
    let columns = std::env::var("COLUMNS").ok();
    columns
        .and_then(|columns| columns.parse().ok())
        .or_else(|| terminal_size_of(stream).map(|(Width(columns), _)| usize::from(columns)))
        .filter(|columns| *columns > 0)
        .or(Some(80))
}

/// Whether a shell reads the text as one word without a special meaning.
pub fn is_plain_word(text: &str) -> bool {
    let mut chars = text.chars();
    let is_word = chars.all(|c| c.is_ascii_alphanumeric() || "-_./:".contains(c));
    is_word && !text.is_empty() && !text.starts_with('-')
}
