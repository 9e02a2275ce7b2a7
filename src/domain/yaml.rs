//! YAML text to a `Value`, in bounded time and memory. Names the YAML library, and nothing else does;
//! leaves what keys mean, and quoting what is broken, to others.

mod bracket_depth;
mod fast_path;

use serde::de::DeserializeSeed;

use super::limits::{MAX_ALIAS_BYTES, MAX_NESTING};
use super::value::{DocumentBudget, DynamicValue};
use super::{position, text};

/// How many `[` and `{` may be open at once, as far as can be told without reading the text. The
/// library looks at each one that is open at each token, and has read all of the text before anything
/// can be refused: without a bound here, time would grow with the square of the text. Far over what
/// prose leaves open.
const MAX_OPEN_BRACKETS: usize = 4 * MAX_NESTING;

/// How many `%TAG` there may be: the library looks at all of them for each one, and for each tag.
const MAX_TAG_HANDLES: usize = 64;

/// Why a text has no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct YamlError {
    /// From 1; 0 where the whole document is meant.
    pub line: u32,
    /// In characters from 1; 0 where the whole document is meant.
    pub column: u32,
    /// For a person, without the position.
    pub message: String,
    /// Whether it can be read at all.
    pub kind: YamlErrorKind,
}

/// What a `YamlError` is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum YamlErrorKind {
    /// It is no YAML.
    Syntax,
    /// It is YAML, over a bound or with a key, an anchor or a document that it cannot have: quoting
    /// would hide that.
    Rejected,
}

/// Reads one document; nothing, or comments alone, is `Null`. Aliases may add `MAX_ALIAS_BYTES` to
/// what the text itself holds; texts up to that size meet the bound by nothing else but mappings as
/// keys of mappings.
pub fn parse(text: &str) -> Result<DynamicValue, YamlError> {
    if let Some(value) = fast_path::parse(text) {
        return Ok(value);
    }
    if let Some((index, message)) = find_costly_construct(text) {
        let (line, column) = position::position_of_byte(text.as_bytes(), index);
        return Err(YamlError { line, column, message, kind: YamlErrorKind::Rejected });
    }
    parse_with_library(text)
}

fn parse_with_library(text: &str) -> Result<DynamicValue, YamlError> {
    let budget = DocumentBudget::new(text.len() + MAX_ALIAS_BYTES);
    let deserializer = serde_yaml::Deserializer::from_str(text);
    let value = budget.seed().deserialize(deserializer);
    value.map_err(|error| {
        let message = error.to_string();
        let unreadable = text.find(|c: char| !is_yaml_char(c));
        let index = match error.location() {
            // The library gives no place for a character that YAML does not allow.
            _ if message.starts_with("control characters") => unreadable,
            found => found.map(|at| at.index()),
        };
        let index = unclosed_quote_position(&message).map(|at| byte_index_of(text, at)).or(index);
        let (line, column) =
            index.map_or((0, 0), |at| position::position_of_byte(text.as_bytes(), at));
        if let Some(message) = budget.into_rejection() {
            // Without the way there that the library puts before it, which can be long.
            return YamlError { line, column, message, kind: YamlErrorKind::Rejected };
        }
        let kind = if is_rejection_message(&message) {
            YamlErrorKind::Rejected
        } else {
            YamlErrorKind::Syntax
        };
        YamlError {
            line,
            column,
            message: text::escape_misleading(&strip_positions(&message)),
            kind,
        }
    })
}

/// What would take the library more than time in proportion, where it is, and why it is refused.
fn find_costly_construct(text: &str) -> Option<(usize, String)> {
    let nested = bracket_depth::find_bracket_deeper_than(MAX_OPEN_BRACKETS, text)
        .map(|index| (index, format!("nested over {MAX_NESTING} levels deep")));
    let handles = || text.match_indices("%TAG").nth(MAX_TAG_HANDLES);
    nested.or_else(|| Some((handles()?.0, format!("over {MAX_TAG_HANDLES} `%TAG` lines"))))
}

/// The library's own words for what is well-formed and yet has no value.
fn is_rejection_message(message: &str) -> bool {
    ["unknown anchor", "more than one document", "repetition limit", "recursion limit"]
        .iter()
        .any(|words| message.contains(words))
}

fn is_yaml_char(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | '\u{20}'..='\u{7e}' | '\u{85}' | '\u{a0}'..='\u{fffd}' | '\u{10000}'..)
}

/// Where that begins which the end of the text cuts off: the end itself tells its author nothing. The
/// library says it only in its words.
fn unclosed_quote_position(message: &str) -> Option<(usize, usize)> {
    let rest = message.strip_prefix("found unexpected end of stream")?;
    let (_, place) = rest.rsplit_once(", while scanning a quoted scalar at line ")?;
    let (line, column) = place.split_once(" column ")?;
    Some((line.parse().ok()?, column.parse().ok()?))
}

/// The byte at a line and column of the library's, for which more ends a line than for an editor.
fn byte_index_of(text: &str, (line, column): (usize, usize)) -> usize {
    let ends = ['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}'];
    let ends = text.match_indices(ends).filter(|(at, _)| !text[*at..].starts_with("\r\n"));
    let mut starts = std::iter::once(0).chain(ends.map(|(at, end)| at + end.len()));
    let start = starts.nth(line.saturating_sub(1)).unwrap_or(text.len());
    let mut characters = text[start..].char_indices().map(|(at, _)| start + at);
    characters.nth(column.saturating_sub(1)).unwrap_or(text.len())
}

/// Drops the library's ` at line 2 column 3` and ` at position 4`: they count within the document,
/// and the caller says where in the file it is.
fn strip_positions(message: &str) -> String {
    let mut out = String::with_capacity(message.len());
    let mut rest = message;
    while let Some(at) = rest.find(" at ") {
        let (before, after) = rest.split_at(at);
        out.push_str(before);
        rest = strip_position_prefix(after).unwrap_or_else(|| {
            out.push_str(" at ");
            &after[4..]
        });
    }
    out.push_str(rest);
    out
}

fn strip_position_prefix(text: &str) -> Option<&str> {
    let digits =
        |text: &'_ str| text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    if let Some(rest) = text.strip_prefix(" at position ") {
        return (digits(rest) > 0).then(|| &rest[digits(rest)..]);
    }
    let rest = text.strip_prefix(" at line ")?;
    let rest = rest[digits(rest)..].strip_prefix(" column ")?;
    Some(&rest[digits(rest)..])
}

#[cfg(test)]
mod tests;
