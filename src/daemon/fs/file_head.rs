//! Read of a Markdown file for its frontmatter: the start of the file is kept, and the whole file is
//! digested and checked for hidden characters.

use super::content::read_start;
use crate::daemon::model::limits::MAX_FRONTMATTER_BYTES;
use crate::daemon::model::{DiagnosticCode, FileProblem};
use caproot_core::text::is_hidden_char;
use caproot_core::wire::ContentDigest;
use sha2::{Digest as _, Sha256};
use std::fs::File;
use std::io::{self, Read as _};

/// Part of a SKILL.md that is kept in memory: the frontmatter, its fences, and one more line.
const HEAD_BYTES: usize = MAX_FRONTMATTER_BYTES + 4_096;
/// Size of the buffer for the rest of the file.
const CHUNK_BYTES: usize = 64 << 10;

/// Result of reading the start of a file.
pub struct FileHead {
    /// Whether the start is the whole file.
    pub is_complete: bool,
    /// Digest of the whole file; `None` if the file exceeds the limit.
    pub digest: Option<ContentDigest>,
    /// Problem with hidden characters: in the whole file, or in its start if the file exceeds the
    /// limit.
    pub hidden: Option<FileProblem>,
}

/// Replaces `bytes` by the start of a file. Unless the file exceeds `max_bytes`, digests the whole
/// file and checks it for hidden characters.
pub fn read_head(
    mut file: &File,
    size: u64,
    max_bytes: u64,
    bytes: &mut Vec<u8>,
) -> io::Result<FileHead> {
    read_start(file, size, HEAD_BYTES + 1, bytes)?;
    let is_complete = bytes.len() <= HEAD_BYTES;
    let mut hidden = HiddenTextScanner::default();

    // ASCII characters are never hidden, and most files have no others.
    if !(is_complete && bytes.is_ascii()) {
        hidden.push(bytes);
    }

    let digest = if size > max_bytes {
        None
    } else {
        let mut hasher = Sha256::new();
        hasher.update(&*bytes);
        let mut rest = if is_complete {
            Vec::new()
        } else {
            vec![0; CHUNK_BYTES]
        };

        let mut seen = bytes.len() as u64;
        while !is_complete && seen <= max_bytes {
            let count = file.read(&mut rest)?;
            if count == 0 {
                break;
            }
            seen += count as u64;
            hasher.update(&rest[..count]);
            hidden.push(&rest[..count]);
        }
        (seen <= max_bytes).then(|| ContentDigest(hasher.finalize().into()))
    };

    bytes.truncate(HEAD_BYTES);
    Ok(FileHead {
        is_complete,
        digest,
        hidden: hidden.finish(),
    })
}

/// Scanner for hidden characters. Ignores bytes that are not UTF-8.
#[derive(Debug, Default)]
struct HiddenTextScanner {
    /// First bytes of a character that ends in the next chunk.
    partial_char: Vec<u8>,
    /// Whether a character was read.
    has_started: bool,
    /// Character before `current`. `None` at the start and after a hidden character.
    previous: Option<char>,
    /// Last character. The next character decides whether it is hidden.
    current: Option<char>,
    /// Number of lines before `current`.
    line: u32,
    /// Column of `current`, from 1.
    column: u32,
    /// First hidden character, with the values of `line` and `column`.
    first_hidden: Option<(char, u32, u32)>,
    hidden_count: u64,
}

impl HiddenTextScanner {
    /// Scans the next chunk.
    fn push(&mut self, chunk: &[u8]) {
        if self.partial_char.is_empty() {
            return self.push_bytes(chunk);
        }
        let joined = [&self.partial_char, chunk].concat();
        self.partial_char.clear();
        self.push_bytes(&joined);
    }

    fn push_bytes(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        loop {
            match std::str::from_utf8(rest) {
                Ok(text) => return self.push_text(text),
                Err(error) => {
                    let (valid, behind) = rest.split_at(error.valid_up_to());
                    self.push_text(std::str::from_utf8(valid).unwrap_or_default());
                    let Some(broken) = error.error_len() else {
                        return self.partial_char.extend_from_slice(behind);
                    };
                    self.push_char(char::REPLACEMENT_CHARACTER);
                    rest = &behind[broken..];
                }
            }
        }
    }

    fn push_text(&mut self, text: &str) {
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            self.push_char(c);
            rest = &rest[c.len_utf8()..];

            if c.is_ascii() {
                // ASCII characters are never hidden, and most of a text is ASCII.
                let bytes = rest.as_bytes();
                let chunks = bytes.chunks(64).take_while(|chunk| chunk.is_ascii());
                let whole: usize = chunks.map(<[u8]>::len).sum();
                let run = whole
                    + bytes[whole..]
                        .iter()
                        .take_while(|byte| byte.is_ascii())
                        .count();
                self.skip_ascii_run(&rest[..run]);
                rest = &rest[run..];
            }
        }
    }

    /// Skips ASCII text after an ASCII character.
    fn skip_ascii_run(&mut self, run: &str) {
        let Some(end) = run.len().checked_sub(1) else {
            return;
        };
        let (before, last) = run.split_at(end);
        // The current character is ASCII, so it needs no check.
        self.advance_position();
        if let Some(end) = before.rfind('\n') {
            // The compiler vectorizes this loop, unlike the search for a pattern.
            let lines = before.bytes().filter(|byte| *byte == b'\n').count();
            self.line = self.line.saturating_add(saturating_u32(lines));
            self.column = saturating_u32(before.len() - end);
        } else {
            self.column = self.column.saturating_add(saturating_u32(before.len()));
        }
        self.previous = before.chars().next_back().or(self.current);
        self.current = last.chars().next();
    }

    fn push_char(&mut self, next: char) {
        // Some editors begin a file with a byte order mark, which takes no column.
        if !std::mem::replace(&mut self.has_started, true) && next == '\u{feff}' {
            return;
        }
        self.check_current_char(Some(next));
        self.advance_position();
        self.current = Some(next);
    }

    /// Counts the current character if it is hidden.
    fn check_current_char(&mut self, next: Option<char>) {
        let Some(c) = self.current else { return };
        let is_hidden = is_hidden_char(self.previous, c, next);
        if is_hidden {
            self.hidden_count += 1;
            self.first_hidden.get_or_insert((c, self.line, self.column));
        }
        self.previous = Some(c).filter(|_| !is_hidden);
    }

    /// Moves the position past the current character.
    fn advance_position(&mut self) {
        if self.current == Some('\n') {
            self.line = self.line.saturating_add(1);
            self.column = 0;
        }
        self.column = self.column.saturating_add(1);
    }

    /// Returns a problem if the file has hidden characters.
    fn finish(mut self) -> Option<FileProblem> {
        self.check_current_char(None);
        let (c, line, column) = self.first_hidden?;
        let code = u32::from(c);
        let message = match self.hidden_count {
            1 => format!("U+{code:04X} is hidden from readers but not from models; remove it"),
            count => format!(
                "{count} characters are hidden from readers but not from models, the first is \
                 U+{code:04X}; remove them"
            ),
        };
        let problem = FileProblem::warning(DiagnosticCode::HiddenText, message);
        Some(problem.with_position(line.saturating_add(1), column))
    }
}

fn saturating_u32(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::HiddenTextScanner;
    use caproot_core::text::escape_hidden_chars;
    use proptest::prelude::*;

    /// Returns the line, column and message of the problem.
    fn scan_in_pieces(bytes: &[u8], chunk: usize) -> Option<(u32, u32, String)> {
        let mut scan = HiddenTextScanner::default();
        bytes.chunks(chunk).for_each(|chunk| scan.push(chunk));
        scan.finish()
            .map(|problem| (problem.line, problem.column, problem.message.into()))
    }

    #[test]
    fn the_first_hidden_character_is_located() {
        for (text, position) in [
            ("plain\ntext, é 👩\u{200d}🚀 ⚠\u{fe0f}\n", None),
            ("", None),
            ("\u{feff}---\nname: a\n", None),
            ("\u{feff}\u{feff}", Some((1, 1, "U+FEFF is hidden"))),
            ("a\u{202e}b", Some((1, 2, "U+202E is hidden"))),
            (
                "ab\ncd\u{200b}\u{200b}\n",
                Some((2, 3, "2 characters are hidden")),
            ),
            (
                "é\r\nlong line\n  é x\u{e0041}",
                Some((3, 6, "U+E0041 is hidden")),
            ),
            ("end\u{200d}", Some((1, 4, "U+200D is hidden"))),
        ] {
            for chunk in 1..9 {
                let found = scan_in_pieces(text.as_bytes(), chunk);
                match (&found, position) {
                    (None, None) => {}
                    (Some((line, column, message)), Some((at, in_line, words))) => {
                        assert_eq!((*line, *column), (at, in_line), "{text:?}");
                        assert!(message.contains(words), "{message}");
                    }
                    _ => panic!("{text:?} {chunk}: {found:?}"),
                }
            }
        }
        assert_eq!(scan_in_pieces(b"\xff\xfe\xe2\x80", 1), None);
        assert_eq!(
            scan_in_pieces(b"\xff\n\xe2\x80\xae", 2).map(|found| (found.0, found.1)),
            Some((2, 1))
        );
    }

    proptest! {
        #[test]
        fn chunks_are_scanned_like_the_whole_text(
            text in "(plain text|a|\n|é|1|👩|\\p{Cf}|[\u{200b}-\u{200f}]|[\u{fe00}-\u{fe0f}]){0,30}",
            chunk in 1_usize..9,
        ) {
            let whole = scan_in_pieces(text.as_bytes(), usize::MAX);
            prop_assert_eq!(&scan_in_pieces(text.as_bytes(), chunk), &whole);
            let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
            let escaped = escape_hidden_chars(text);
            if let Some((line, column, _)) = whole {
                // The escaped text differs from the text at this position.
                let same = text.chars().zip(escaped.chars()).take_while(|(a, b)| a == b).count();
                let before: String = text.chars().take(same).collect();
                prop_assert_eq!(line as usize, before.matches('\n').count() + 1);
                let in_line = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
                prop_assert_eq!(column as usize, in_line);
            } else {
                prop_assert_eq!(escaped, text);
            }
        }
    }
}
