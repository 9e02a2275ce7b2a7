//! Lines of stdin, each of limited size.

use std::mem;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};

/// Maximum size of a line: a saved session of 4 MiB fits.
pub const MAX_LINE_BYTES: usize = 5 << 20;

/// Text of one line, without its line feed, or the problem of a line that was skipped.
pub type InputLine = Result<String, &'static str>;

/// Reader of lines. Empty lines are skipped. A read error counts as the end.
pub struct InputLines<R> {
    source: BufReader<R>,
    /// Start of the next line.
    line: Vec<u8>,
    /// Whether the next line is over 5 MiB. `line` then has its start.
    is_too_long: bool,
}

impl<R: AsyncRead + Unpin> InputLines<R> {
    pub fn new(source: R) -> Self {
        Self {
            source: BufReader::new(source),
            line: Vec::new(),
            is_too_long: false,
        }
    }

    /// Returns the next line, or `None` at the end. Cancel-safe.
    pub async fn next(&mut self) -> Option<InputLine> {
        loop {
            let bytes = self.source.fill_buf().await.unwrap_or_default();
            if bytes.is_empty() {
                return self.take_line();
            }

            let end = bytes.iter().position(|&byte| byte == b'\n');
            let part = &bytes[..end.unwrap_or(bytes.len())];
            if self.line.len() + part.len() <= MAX_LINE_BYTES {
                self.line.extend_from_slice(part);
            } else {
                self.is_too_long = true;
            }

            // Nothing awaits between the copy and `consume`, so that a dropped call loses no byte.
            let used = part.len() + usize::from(end.is_some());
            self.source.consume(used);

            if end.is_some()
                && let Some(line) = self.take_line()
            {
                return Some(line);
            }
        }
    }

    fn take_line(&mut self) -> Option<InputLine> {
        let bytes = mem::take(&mut self.line);
        if mem::take(&mut self.is_too_long) {
            return Some(Err("the line is over 5 MiB"));
        }
        let is_empty = bytes.trim_ascii().is_empty();
        (!is_empty).then(|| String::from_utf8(bytes).map_err(|_| "the line is not UTF-8"))
    }
}

#[cfg(test)]
mod tests {
    use super::InputLines;

    #[tokio::test]
    async fn invalid_and_long_lines_are_reported() {
        let long = "x".repeat((5 << 20) + 5);
        let mut source = b"a\n\n \nb\xff\n".to_vec();
        source.extend(long.as_bytes());
        source.extend(b"\n\nlast");
        let mut lines = InputLines::new(source.as_slice());
        let mut all = Vec::new();
        while let Some(line) = lines.next().await {
            all.push(line);
        }
        let [
            Ok(first),
            Err("the line is not UTF-8"),
            Err("the line is over 5 MiB"),
            Ok(last),
        ] = &all[..]
        else {
            panic!("four lines: {}", all.len())
        };
        assert_eq!((first.trim_end(), last.as_str()), ("a", "last"));
    }
}
