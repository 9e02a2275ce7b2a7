//! Queue between the daemon and the reader of the log. A reader that stops never blocks the daemon:
//! lines for which the queue has no room are dropped and counted.

use super::journal::JournalSocket;
use caproot_core::sync::Mutex;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use serde_json::json;
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Condvar, PoisonError};
use std::time::{Duration, Instant};
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// Most bytes of waiting lines at INFO and below.
const MAX_ROUTINE_BYTES: usize = 1 << 20;
/// Most bytes of waiting lines at WARN and ERROR, such as denied calls. Routine lines cannot take
/// these places.
const MAX_SEVERE_BYTES: usize = 256 << 10;
/// Memory of an entry next to its text.
const ENTRY_BYTES: usize = 64;
/// Longest delay of the line with the number of dropped lines, while further lines wait.
const NOTICE_DELAY: Duration = Duration::from_secs(10);

/// Queue of formatted lines. All clones share the same queue.
#[derive(Debug, Clone, Default)]
pub struct LogQueue(Arc<LogQueueInner>);

/// Destination of the lines of a queue.
#[derive(Debug)]
pub enum LogSink {
    /// Lines of text, to stderr.
    TextStderr,
    /// Lines of JSON, to stderr.
    JsonStderr,
    /// Lines of JSON, as entries of the journal.
    Journal(JournalSocket),
}

/// Writer of one line to a queue.
#[derive(Debug)]
pub struct LogQueueWriter<'a> {
    queue: &'a LogQueue,
    priority: LinePriority,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LinePriority {
    Routine,
    Severe,
}

#[derive(Debug, Default)]
struct LogQueueInner {
    state: Mutex<QueueState>,
    /// Notified when a line was added, and when the queue became idle.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    /// Waiting lines, oldest first.
    lines: VecDeque<QueuedLine>,
    routine_bytes: usize,
    severe_bytes: usize,
    /// Whether the thread of the log writes a line.
    is_writing: bool,
    dropped_total: u64,
    /// Dropped lines that no line of the log counts yet, and the time of the first of them.
    unreported: u64,
    unreported_since: Option<Instant>,
}

#[derive(Debug)]
struct QueuedLine {
    text: Box<[u8]>,
    priority: LinePriority,
}

impl LogQueue {
    /// Starts the thread that writes the lines. The thread ends with the process.
    pub fn start_writer(&self, sink: LogSink) -> io::Result<()> {
        let queue = self.clone();
        std::thread::Builder::new()
            .name("caproot-log".to_owned())
            .spawn(move || {
                loop {
                    queue.write_next_line(&sink);
                }
            })
            .map(drop)
    }

    /// Waits until all lines are written, for a limited time. Returns whether they are.
    pub fn flush(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        let mut state = self.0.state.lock();
        while !state.is_idle() {
            let rest = deadline.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                return false;
            }
            let waited = self.0.changed.wait_timeout(state, rest);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        true
    }

    /// Returns how many lines were dropped since the start.
    pub fn dropped_lines(&self) -> u64 {
        self.0.state.lock().dropped_total
    }

    fn add_line(&self, line: &[u8], priority: LinePriority) {
        let text = Box::from(line);

        let mut state = self.0.state.lock();
        let size = line.len() + ENTRY_BYTES;
        let (used, max) = state.usage(priority);
        if *used + size > max {
            state.record_dropped();
            return;
        }
        *used += size;
        state.lines.push_back(QueuedLine { text, priority });
        self.0.changed.notify_all();
    }

    /// Waits for a line and writes it. Blocks while the reader does not read.
    fn write_next_line(&self, sink: &LogSink) {
        let line = self.wait_for_line();
        if sink.write_line(&line).is_err() {
            self.0.state.lock().record_dropped();
        }

        let due = self.0.state.lock().take_due_notice();
        if let Some(dropped) = due
            && sink.write_line(&sink.notice(dropped)).is_err()
        {
            self.0.state.lock().restore_unreported(dropped);
        }

        let mut state = self.0.state.lock();
        state.is_writing = false;
        if state.is_idle() {
            self.0.changed.notify_all();
        }
    }

    fn wait_for_line(&self) -> Box<[u8]> {
        let mut state = self.0.state.lock();
        loop {
            if let Some(QueuedLine { text, priority }) = state.lines.pop_front() {
                *state.usage(priority).0 -= text.len() + ENTRY_BYTES;
                state.is_writing = true;
                return text;
            }
            let waited = self.0.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl QueueState {
    /// Returns the used bytes of lines of a priority, and their limit.
    fn usage(&mut self, priority: LinePriority) -> (&mut usize, usize) {
        match priority {
            LinePriority::Routine => (&mut self.routine_bytes, MAX_ROUTINE_BYTES),
            LinePriority::Severe => (&mut self.severe_bytes, MAX_SEVERE_BYTES),
        }
    }

    fn is_idle(&self) -> bool {
        self.lines.is_empty() && !self.is_writing
    }

    fn record_dropped(&mut self) {
        self.dropped_total += 1;
        self.restore_unreported(1);
    }

    fn restore_unreported(&mut self, lines: u64) {
        self.unreported += lines;
        self.unreported_since.get_or_insert_with(Instant::now);
    }

    /// Takes the number of dropped lines if the log is due to say it: after the waiting lines, or
    /// after a time.
    fn take_due_notice(&mut self) -> Option<u64> {
        let since = self.unreported_since?;
        if !self.lines.is_empty() && since.elapsed() < NOTICE_DELAY {
            return None;
        }
        self.unreported_since = None;
        Some(std::mem::take(&mut self.unreported))
    }
}

impl LogSink {
    fn write_line(&self, line: &[u8]) -> io::Result<()> {
        match self {
            Self::TextStderr | Self::JsonStderr => write_stderr(line),
            Self::Journal(socket) => socket.send_line(line),
        }
    }

    /// Returns the line about dropped lines. Formatted here, because no filter may suppress it.
    fn notice(&self, dropped: u64) -> Vec<u8> {
        const MESSAGE: &str = "lines of the log were dropped, because its reader was too slow";
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ");
        let target = module_path!();
        let line = match self {
            Self::TextStderr => format!("{now}  WARN {target}: {MESSAGE} dropped={dropped}\n"),
            Self::JsonStderr | Self::Journal(_) => {
                let fields = json!({ "message": MESSAGE, "dropped": dropped });
                let line = json!({
                    "timestamp": now.to_string(), "level": "WARN", "fields": fields, "target": target
                });
                format!("{line}\n")
            }
        };
        line.into_bytes()
    }
}

/// Writes to stderr without the lock of the standard library, which a panic of another thread may
/// need.
fn write_stderr(mut rest: &[u8]) -> io::Result<()> {
    let stderr = io::stderr();
    while !rest.is_empty() {
        match rustix::io::write(&stderr, rest) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => rest = &rest[written..],
            Err(Errno::INTR) => {}
            // Another process that has the same terminal or pipe made it non-blocking.
            Err(Errno::AGAIN) => drop(poll(&mut [PollFd::new(&stderr, PollFlags::OUT)], None)),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

impl io::Write for LogQueueWriter<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.queue.add_line(line, self.priority);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LogQueue {
    type Writer = LogQueueWriter<'a>;

    fn make_writer(&'a self) -> Self::Writer {
        LogQueueWriter {
            queue: self,
            priority: LinePriority::Routine,
        }
    }

    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> Self::Writer {
        let priority = if *metadata.level() <= Level::WARN {
            LinePriority::Severe
        } else {
            LinePriority::Routine
        };
        LogQueueWriter {
            queue: self,
            priority,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ENTRY_BYTES, LinePriority, LogQueue, MAX_ROUTINE_BYTES, MAX_SEVERE_BYTES};
    use std::time::Duration;

    fn queued_bytes(queue: &LogQueue, priority: LinePriority) -> usize {
        let state = queue.0.state.lock();
        let same = state.lines.iter().filter(|line| line.priority == priority);
        same.map(|line| line.text.len() + ENTRY_BYTES).sum()
    }

    #[test]
    fn routine_lines_do_not_take_the_places_of_severe_lines() {
        let queue = LogQueue::default();
        for _ in 0..20_000 {
            queue.add_line(&[b'x'; 100], LinePriority::Routine);
        }
        let dropped = queue.dropped_lines();
        assert!(dropped > 0);
        for _ in 0..1_000 {
            queue.add_line(&[b'!'; 100], LinePriority::Severe);
        }
        assert_eq!(queue.dropped_lines(), dropped);
        for _ in 0..10_000 {
            queue.add_line(&[b'!'; 100], LinePriority::Severe);
        }
        assert!(queue.dropped_lines() > dropped);
        assert!(queued_bytes(&queue, LinePriority::Routine) <= MAX_ROUTINE_BYTES);
        assert!(queued_bytes(&queue, LinePriority::Severe) <= MAX_SEVERE_BYTES);
        assert!(!queue.flush(Duration::ZERO));
    }

    #[test]
    fn a_written_line_makes_room() {
        let queue = LogQueue::default();
        let line = vec![b'x'; MAX_ROUTINE_BYTES / 2];
        for _ in 0..3 {
            queue.add_line(&line, LinePriority::Routine);
        }
        assert_eq!(queue.dropped_lines(), 2);
        assert_eq!(queue.wait_for_line().len(), line.len());
        queue.add_line(&line, LinePriority::Routine);
        assert_eq!(queue.dropped_lines(), 2);
        let due = queue.0.state.lock().take_due_notice();
        assert_eq!(due, None, "a line waits");
        queue.wait_for_line();
        let due = queue.0.state.lock().take_due_notice();
        assert_eq!(due, Some(2));
    }
}
