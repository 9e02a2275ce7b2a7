//! YAML parser with limits on time and memory. Wraps `serde_yaml`; no other file names this library.

mod bracket_depth;
mod fast_path;

use super::value_seed::DocumentBudget;
use crate::daemon::model::limits::{MAX_ALIAS_BYTES, MAX_NESTING};
use crate::daemon::model::value::DynamicValue;
use caproot_core::text;
use caproot_core::text::position;
use regex::Regex;
use serde::de::DeserializeSeed as _;
use std::sync::LazyLock;

/// Upper limit of the estimated number of open `[` and `{`. The library visits each open bracket
/// for each token, and reads the whole text before it can reject anything. Without this limit, the
/// time grows with the square of the text. The limit is far above the brackets that prose leaves
/// open.
const MAX_OPEN_BRACKETS: usize = 4 * MAX_NESTING;

/// Maximum number of `%TAG` directives. The library searches all of them for each directive and
/// tag.
const MAX_TAG_HANDLES: usize = 64;

/// Maximum number of characters that can begin a value. The library has all values of a text in memory at
/// once, with over 100 bytes each. Prose has a comma or colon in 50 characters, so that even the longest text
/// stays far below this limit.
const MAX_VALUES: usize = 24_000;

/// Positions in a message of the library.
static POSITIONS: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(" at position [0-9]+| at line [0-9]* column [0-9]*").expect("a constant pattern")
});

/// Error of [`parse`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct YamlError {
    /// Line from 1; 0 for the whole document.
    pub line: u32,
    /// Column in characters from 1; 0 for the whole document.
    pub column: u32,
    /// Message without the position.
    pub message: String,
    /// Kind of the error.
    pub kind: YamlErrorKind,
}

/// Kind of a [`YamlError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum YamlErrorKind {
    /// The text is not valid YAML.
    Syntax,
    /// The text is valid YAML, but exceeds a limit, or has a duplicate key, an unknown anchor or a
    /// second document. Such a text must not be repaired, because quotes would hide the error.
    Rejected,
}

/// Parses one document. An empty document is `Null`. The expansion of aliases may add
/// `MAX_ALIAS_BYTES` to the size of the text. Texts up to that size exceed the limit only with
/// mappings as keys of mappings.
pub fn parse(text: &str) -> Result<DynamicValue, YamlError> {
    if let Some(value) = fast_path::parse(text) {
        return Ok(value);
    }
    if let Some((index, message)) = find_costly_construct(text) {
        let (line, column) = position::position_of_byte(text.as_bytes(), index);
        return Err(YamlError {
            line,
            column,
            message,
            kind: YamlErrorKind::Rejected,
        });
    }
    parse_with_library(text)
}

fn parse_with_library(text: &str) -> Result<DynamicValue, YamlError> {
    let budget = DocumentBudget::new(text.len() + MAX_ALIAS_BYTES);
    let deserializer = serde_yaml::Deserializer::from_str(text);
    let error = match budget.seed().deserialize(deserializer) {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };

    let message = error.to_string();
    // The library has no position for a character that YAML does not allow.
    let noticed_at = if message.starts_with("control characters") {
        text.find(|c: char| !is_yaml_char(c))
    } else {
        error.location().map(|at| at.index())
    };
    let started_at = start_of_fault(&message).map(|at| byte_index_of(text, at));
    let index = started_at.or(noticed_at);
    let (line, column) = index.map_or((0, 0), |at| position::position_of_byte(text.as_bytes(), at));

    // A rejection of the budget has its own message. The library prepends a path, which can be long.
    let rejection = budget.into_rejection();
    let kind = if rejection.is_some() || is_rejection_message(&message) {
        YamlErrorKind::Rejected
    } else {
        YamlErrorKind::Syntax
    };
    Err(YamlError {
        line,
        column,
        // The positions in the message are relative to the document, and the caller reports those in the file.
        message: rejection
            .unwrap_or_else(|| text::escape_text(&POSITIONS.replace_all(&message, ""))),
        kind,
    })
}

/// Finds a construct that takes the library more than linear time, or much memory. Returns its offset and a
/// message.
fn find_costly_construct(text: &str) -> Option<(usize, String)> {
    let nested = bracket_depth::find_bracket_deeper_than(MAX_OPEN_BRACKETS, text)
        .map(|index| (index, format!("nested over {MAX_NESTING} levels deep")));
    let tagged = || {
        let (index, _) = text.match_indices("%TAG").nth(MAX_TAG_HANDLES)?;
        Some((index, format!("over {MAX_TAG_HANDLES} `%TAG` lines")))
    };
    let crowded = || {
        let index = value_starts(text).nth(MAX_VALUES)?;
        Some((index, format!("over {MAX_VALUES} values")))
    };
    nested.or_else(tagged).or_else(crowded)
}

/// Returns the offsets of characters that can begin a value.
fn value_starts(text: &str) -> impl Iterator<Item = usize> {
    let bytes = text.as_bytes();
    (0..bytes.len()).filter(|at| match bytes[*at] {
        b'[' | b'{' | b',' => true,
        b':' | b'-' | b'?' => bytes.get(at + 1).is_none_or(u8::is_ascii_whitespace),
        _ => false,
    })
}

/// Whether a message of the library means that the text is well-formed but has no value.
fn is_rejection_message(message: &str) -> bool {
    [
        "unknown anchor",
        "more than one document",
        "repetition limit",
        "recursion limit",
    ]
    .iter()
    .any(|phrase| message.contains(phrase))
}

fn is_yaml_char(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | '\u{20}'..='\u{7e}' | '\u{85}' | '\u{a0}'..='\u{fffd}' | '\u{10000}'..)
}

/// Returns the line and column of a quote that is not closed, or of a text that is no key. Both help an
/// author more than the place where the library noticed the fault. The library has these positions
/// only in its message.
fn start_of_fault(message: &str) -> Option<(usize, usize)> {
    const FAULTS: [(&str, &str); 2] = [
        ("found unexpected end of stream", "a quoted scalar"),
        ("could not find expected ':'", "a simple key"),
    ];
    FAULTS.into_iter().find_map(|(problem, token)| {
        let rest = message.strip_prefix(problem)?;
        let (_, place) = rest.rsplit_once(&format!(", while scanning {token} at line "))?;
        let (line, column) = place.split_once(" column ")?;
        Some((line.parse().ok()?, column.parse().ok()?))
    })
}

/// Converts a line and column of the library into an offset. The library has more line breaks than
/// editors do.
fn byte_index_of(text: &str, (line, column): (usize, usize)) -> usize {
    let ends = ['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}'];
    let ends = text
        .match_indices(ends)
        .filter(|(at, _)| !text[*at..].starts_with("\r\n"));
    let mut starts = std::iter::once(0).chain(ends.map(|(at, end)| at + end.len()));
    let start = starts.nth(line.saturating_sub(1)).unwrap_or(text.len());
    let mut characters = text[start..].char_indices().map(|(at, _)| start + at);
    characters
        .nth(column.saturating_sub(1))
        .unwrap_or(text.len())
}

#[cfg(test)]
mod tests;
