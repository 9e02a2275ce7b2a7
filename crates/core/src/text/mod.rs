//! Text of third parties inside our texts: escaped, on one line, truncated and quoted.
//!
//! Output for people has misleading characters escaped, see [`EscapedText`]. Texts for models have
//! only hidden characters escaped, see [`escape_hidden_chars`].

pub mod fences;
mod hidden_chars;
pub mod position;
mod sentence;
pub mod similar;
pub mod variables;

pub use hidden_chars::{escape_hidden_chars, is_hidden_char, is_ignorable_char};
pub use sentence::SentenceResult;

use std::borrow::Cow;
use std::fmt::{self, Write as _};

/// Maximum characters of a quoted text in a message.
const MAX_QUOTED_CHARS: usize = 64;
/// Maximum number of quoted words in a message.
const MAX_QUOTED_WORDS: usize = 8;

/// Text that displays on one line, with misleading characters escaped as `\u{…}`.
#[derive(Debug, Clone, Copy)]
pub struct EscapedText<'a>(pub &'a str);

/// Bytes that display as [`EscapedText`]. Bytes that are not UTF-8 display as `\xff`.
#[derive(Debug, Clone, Copy)]
pub struct EscapedBytes<'a>(pub &'a [u8]);

impl fmt::Display for EscapedText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            if is_misleading(c) {
                c.escape_unicode().fmt(f)?;
            } else {
                f.write_char(c)?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for EscapedBytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            EscapedText(chunk.valid()).fmt(f)?;
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

/// Whether a character could mislead a reader: control characters, line separators and characters
/// that are always hidden.
#[must_use]
pub fn is_misleading(c: char) -> bool {
    // U+2028 and U+2029 break lines.
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') || hidden_chars::is_always_hidden(c)
}

/// Escapes misleading characters as [`EscapedText`] does.
#[must_use]
pub fn escape_text(text: &str) -> String {
    EscapedText(text).to_string()
}

/// Escapes misleading characters and truncates the result to at most `max_bytes` bytes, followed by
/// `…` if the text was longer. Never truncates within an escape.
#[must_use]
pub fn truncate_escaped(text: &str, max_bytes: usize) -> String {
    if text.len() <= max_bytes && text.bytes().all(|b| matches!(b, b' '..=b'~')) {
        return text.to_owned();
    }

    let mut escaped = String::new();
    for c in text.chars() {
        let before = escaped.len();
        if is_misleading(c) {
            escaped.extend(c.escape_unicode());
        } else {
            escaped.push(c);
        }
        if escaped.len() > max_bytes {
            escaped.truncate(before);
            escaped.push('…');
            break;
        }
    }
    escaped
}

/// Escapes misleading characters in JSON text. The JSON value stays the same.
#[must_use]
pub fn escape_json(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        // A line feed in the text is layout. In a string it is already escaped.
        if c == '\n' || !is_misleading(c) {
            escaped.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to a string cannot fail.
                let _ = write!(escaped, "\\u{unit:04x}");
            }
        }
    }
    escaped
}

/// Joins the words with one space, without white space around them.
#[must_use]
pub fn collapse_whitespace(text: &str) -> Box<str> {
    let has_outer_blank = text.starts_with(' ') || text.ends_with(' ');
    if is_printable_ascii(text.as_bytes()) && !has_outer_blank && !text.contains("  ") {
        return text.into();
    }
    join_words(text.split_whitespace()).into()
}

/// Whether the text consists of blanks and visible ASCII characters.
#[must_use]
pub fn is_printable_ascii(text: &[u8]) -> bool {
    // The compiler vectorizes the loop over a chunk, which has no early end.
    text.chunks(64).all(|chunk| {
        chunk
            .iter()
            .fold(true, |ok, b| ok & matches!(b, b' '..=b'~'))
    })
}

/// Returns the text on one line: each run of white space and control characters becomes one blank,
/// and hidden characters are escaped.
#[must_use]
pub fn single_line(text: &str) -> String {
    let line = join_words(text.split(|c: char| c.is_whitespace() || c.is_control()));
    match escape_hidden_chars(&line) {
        Cow::Borrowed(_) => line,
        Cow::Owned(escaped) => escaped,
    }
}

fn join_words<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
    words.join(" ")
}

/// Returns the truth of `true`, `yes`, `on` and `1`, or of `false`, `no`, `off` and `0`, in any letter
/// case. Source: "Frontmatter reference" of Claude Code.
#[must_use]
pub fn parse_flag(text: &str) -> Option<bool> {
    match &*text.trim().to_ascii_lowercase() {
        "true" | "yes" | "on" | "1" => Some(true),
        "false" | "no" | "off" | "0" => Some(false),
        _ => None,
    }
}

/// Whether the text has more than `max` characters.
#[must_use]
pub fn exceeds_chars(text: &str, max: usize) -> bool {
    text.len() > max && text.chars().nth(max).is_some()
}

/// Returns the first `max` characters.
#[must_use]
pub fn truncate_chars(text: &str, max: usize) -> &str {
    let cut = text.char_indices().nth(max);
    cut.map_or(text, |(end, _)| &text[..end])
}

/// Returns the text, or its longest prefix with a `…` in at most `bytes` bytes.
#[must_use]
pub fn truncate_with_ellipsis(text: &str, bytes: usize) -> String {
    if text.len() <= bytes {
        return text.to_owned();
    }
    let Some(room) = bytes.checked_sub('…'.len_utf8()) else {
        return String::new();
    };
    format!("{}…", text[..text.floor_char_boundary(room)].trim_end())
}

/// Wraps the words of a paragraph into lines of at most `max_columns` characters, each with a prefix
/// and a line feed. A longer word gets its own line.
#[must_use]
pub fn wrap_words(prefix: &str, paragraph: &str, max_columns: usize) -> String {
    let (mut lines, mut line) = (String::new(), prefix.to_owned());
    for word in paragraph.split_whitespace() {
        let is_first = line.len() == prefix.len();
        if !is_first && line.chars().count() + 1 + word.chars().count() > max_columns {
            lines.push_str(&line);
            lines.push('\n');
            prefix.clone_into(&mut line);
        } else if !is_first {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines + &line + "\n"
}

/// Quotes an untrusted word with backticks. Truncates the word and escapes misleading characters,
/// so that the word cannot pose as a part of the message.
#[must_use]
pub fn quote_word(text: &str) -> String {
    let start = truncate_chars(text, MAX_QUOTED_CHARS);
    let ellipsis = if start == text { "" } else { "…" };
    format!("`{}{ellipsis}`", EscapedText(start))
}

/// Quotes at most eight untrusted words and appends the number of the others.
#[must_use]
pub fn quote_words<'a>(words: impl ExactSizeIterator<Item = &'a str>) -> String {
    let more = words.len().saturating_sub(MAX_QUOTED_WORDS);
    let quoted: Vec<_> = words.take(MAX_QUOTED_WORDS).map(quote_word).collect();
    let mut list = quoted.join(", ");
    if more > 0 {
        list = format!("{list} and {more} more");
    }
    list
}

/// Quotes an untrusted value with double quotes, as [`quote_word`] does.
#[must_use]
pub fn quote_value(text: &str) -> String {
    let start = truncate_chars(text, MAX_QUOTED_CHARS);
    let ellipsis = if start == text { "" } else { "…" };
    let start = start.replace('\\', r"\\").replace('"', r#"\""#);
    format!("\"{}\"{ellipsis}", EscapedText(&start))
}

#[cfg(test)]
mod tests;
