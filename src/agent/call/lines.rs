//! Lines of stdin, each of limited size, and the room of stdout for a line.

use std::io::{self, BufRead};
use std::thread;
use tokio::sync::mpsc::{Receiver, channel};

/// Maximum size of a line: a saved session of 4 MiB fits.
pub const MAX_LINE_BYTES: u64 = 5 << 20;
/// Maximum number of lines that were read but not yet handled.
const MAX_QUEUED_LINES: usize = 16;

/// One line, without its line feed.
#[derive(Debug, PartialEq, Eq)]
pub enum InputLine {
    Text(String),
    /// Over 5 MiB, and skipped.
    TooLong,
    NotUtf8,
}

/// Reads the lines of stdin in a thread. Empty lines are skipped. A read error counts as the end.
pub fn stdin_lines() -> Receiver<InputLine> {
    let (send, receive) = channel(MAX_QUEUED_LINES);
    thread::spawn(move || {
        let mut stdin = io::stdin().lock();
        while let Ok(Some(line)) = next_line(&mut stdin) {
            if send.blocking_send(line).is_err() {
                return;
            }
        }
    });
    receive
}

/// Whether stdout is an empty pipe that takes so many bytes without blocking. No other thread writes to it.
#[cfg(target_os = "linux")]
pub fn takes_at_once(bytes: usize) -> bool {
    let stdout = io::stdout();
    let capacity = rustix::pipe::fcntl_getpipe_size(&stdout);
    capacity.is_ok_and(|capacity| bytes <= capacity)
        && rustix::io::ioctl_fionread(&stdout).is_ok_and(|waiting| waiting == 0)
}

/// Whether stdout takes so many bytes without blocking, which only Linux says.
#[cfg(not(target_os = "linux"))]
pub fn takes_at_once(_: usize) -> bool {
    false
}

fn next_line(source: &mut impl BufRead) -> io::Result<Option<InputLine>> {
    loop {
        let mut bytes = Vec::new();
        let mut limited = io::Read::take(&mut *source, MAX_LINE_BYTES + 1);
        if limited.read_until(b'\n', &mut bytes)? == 0 {
            return Ok(None);
        }
        if bytes.len() as u64 > MAX_LINE_BYTES && !bytes.ends_with(b"\n") {
            source.skip_until(b'\n')?;
            return Ok(Some(InputLine::TooLong));
        }
        if !bytes.trim_ascii().is_empty() {
            return Ok(Some(
                String::from_utf8(bytes).map_or(InputLine::NotUtf8, InputLine::Text),
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{InputLine, next_line};

    #[test]
    fn invalid_and_long_lines_are_reported() {
        let long = "x".repeat((5 << 20) + 5);
        let mut source = b"a\n\n \nb\xff\n".to_vec();
        source.extend(long.as_bytes());
        source.extend(b"\n\nlast");
        let mut source = source.as_slice();
        let mut all = Vec::new();
        while let Some(line) = next_line(&mut source).expect("memory") {
            all.push(line);
        }
        let [
            InputLine::Text(first),
            InputLine::NotUtf8,
            InputLine::TooLong,
            InputLine::Text(last),
        ] = &all[..]
        else {
            panic!("four lines: {}", all.len())
        };
        assert_eq!((first.trim_end(), last.as_str()), ("a", "last"));
    }
}
