//! YAML documents with the position of each value, for configuration files. JSON is valid input.
//! Wraps `saphyr-parser`; time and memory are bounded.

mod error;
mod fields;

pub use error::{ConfigError, ConfigErrors, FileResult};
pub use fields::{DocumentField, DocumentReader, DocumentSection};
pub(crate) use fields::{show_key, suggest_key};

use crate::text::position::{position_of_byte, saturating_u32};
use saphyr_parser::{Event, Marker, Parser, ScalarStyle};
use std::path::Path;

/// Maximum nesting. The configuration needs 4 levels.
const MAX_NESTING: usize = 16;

/// Position in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TextPosition {
    /// Line from 1.
    pub line: u32,
    /// Column in characters from 1.
    pub column: u32,
}

/// A value and its position.
#[derive(Debug, Clone, PartialEq)]
pub struct DocumentNode {
    /// Start of the value.
    pub position: TextPosition,
    /// The value.
    pub value: DocumentValue,
}

/// A value of a document.
#[derive(Debug, Clone, PartialEq)]
pub enum DocumentValue {
    /// `null`, `~`, or no text.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number as written.
    Number(Box<str>),
    /// Text, without its quotes.
    Text(Box<str>),
    /// Values in the order of the file.
    List(Vec<DocumentNode>),
    /// Keys and values in the order of the file.
    Map(Vec<DocumentEntry>),
}

/// A key and its value. A mapping may have duplicate keys.
#[derive(Debug, Clone, PartialEq)]
pub struct DocumentEntry {
    /// Key as a text, without its quotes.
    pub key: Box<str>,
    /// Start of the key.
    pub key_position: TextPosition,
    /// Value of the key.
    pub node: DocumentNode,
}

/// Error of [`parse`].
#[derive(Debug, PartialEq)]
pub struct SyntaxError {
    /// Position of the first invalid character.
    pub position: TextPosition,
    /// Description of the error and its fix.
    pub reason: String,
}

impl TextPosition {
    fn new(line: usize, column: usize) -> Self {
        Self {
            line: saturating_u32(line),
            column: saturating_u32(column),
        }
    }
}

/// A list or mapping that is not closed yet.
struct OpenContainer {
    node: DocumentNode,
    /// Key of a mapping that has no value yet.
    key: Option<(TextPosition, Box<str>)>,
}

impl OpenContainer {
    fn new(position: TextPosition, value: DocumentValue) -> Self {
        Self {
            node: DocumentNode { position, value },
            key: None,
        }
    }
}

/// Decodes the bytes of the file at a path as UTF-8.
pub fn decode_file(path: &Path, bytes: Vec<u8>) -> Result<String, ConfigError> {
    let decoded = String::from_utf8(bytes).map_err(|error| {
        let end = error.utf8_error().valid_up_to();
        let (line, column) = position_of_byte(error.as_bytes(), end);
        let reason = "invalid UTF-8; save the file as UTF-8";
        ConfigError::at(TextPosition { line, column }, reason)
    });
    decoded.in_file(path)
}

/// Parses the text of the file at a path as one document.
pub fn parse_file(path: &Path, text: &str) -> Result<DocumentNode, ConfigError> {
    parse(text).in_file(path)
}

/// Parses one document. An empty document is `Null`.
pub fn parse(text: &str) -> Result<DocumentNode, SyntaxError> {
    // YAML 1.2, 5.2: a byte order mark is not part of the content.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    // If the text ends without a line break, the library reports its end on an additional line.
    let end = end_position(text);

    let mut parser = Parser::new_from_str(text);
    let mut open: Vec<OpenContainer> = Vec::new();
    let mut document = None;
    let mut has_begun = false;

    while let Some(event) = parser.next_event() {
        let (event, span) = event.map_err(|error| SyntaxError {
            position: marker_position(error.marker()).min(end),
            reason: format!("YAML: {}", error.info()),
        })?;
        let here = marker_position(&span.start).min(end);

        let reject = |reason: &str| {
            Err(SyntaxError {
                position: here,
                reason: reason.to_owned(),
            })
        };

        let done = match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => None,
            Event::DocumentStart(_) if has_begun => {
                return reject("a second document begins; only one document is supported");
            }
            Event::DocumentStart(_) => {
                has_begun = true;
                None
            }
            Event::Alias(_) => return reject("aliases are not supported; repeat the value"),
            Event::Scalar(_, _, anchor, _)
            | Event::SequenceStart(anchor, _)
            | Event::MappingStart(anchor, _)
                if anchor != 0 =>
            {
                return reject("anchors are not supported; repeat the value");
            }
            Event::Scalar(_, _, _, Some(_))
            | Event::SequenceStart(_, Some(_))
            | Event::MappingStart(_, Some(_)) => {
                return reject("tags are not supported; remove the tag");
            }
            Event::SequenceStart(..) | Event::MappingStart(..) if open.len() >= MAX_NESTING => {
                return reject(&format!(
                    "is nested too deep; at most {MAX_NESTING} levels are supported"
                ));
            }
            Event::SequenceStart(..) => {
                open.push(OpenContainer::new(here, DocumentValue::List(Vec::new())));
                None
            }
            Event::MappingStart(..) => {
                open.push(OpenContainer::new(here, DocumentValue::Map(Vec::new())));
                None
            }
            Event::Scalar(text, style, ..) => Some(DocumentNode {
                position: here,
                value: resolve_scalar(&text, style),
            }),
            Event::SequenceEnd | Event::MappingEnd => open.pop().map(|container| container.node),
        };

        let Some(node) = done else {
            continue;
        };
        let Some(OpenContainer { node: parent, key }) = open.last_mut() else {
            document = Some(node);
            continue;
        };
        match (&mut parent.value, key.take()) {
            (DocumentValue::Map(entries), Some((key_position, key))) => {
                entries.push(DocumentEntry {
                    key,
                    key_position,
                    node,
                });
            }
            (DocumentValue::Map(_), None) => *key = Some((node.position, key_text(node)?)),
            (DocumentValue::List(items), _) => items.push(node),
            // A scalar has no parts.
            _ => {}
        }
    }

    Ok(document.unwrap_or(DocumentNode {
        position: TextPosition { line: 1, column: 1 },
        value: DocumentValue::Null,
    }))
}

/// Converts a key to text.
fn key_text(key: DocumentNode) -> Result<Box<str>, SyntaxError> {
    match key.value {
        DocumentValue::Text(text) | DocumentValue::Number(text) => Ok(text),
        DocumentValue::Bool(value) => Ok(value.to_string().into()),
        DocumentValue::Null => Ok("null".into()),
        DocumentValue::List(_) | DocumentValue::Map(_) => Err(SyntaxError {
            position: key.position,
            reason: "a list or mapping cannot be a key".to_owned(),
        }),
    }
}

/// Resolves a scalar by the core schema of YAML 1.2, 10.3.2. Numbers keep their spelling.
fn resolve_scalar(text: &str, style: ScalarStyle) -> DocumentValue {
    match (style, text) {
        (ScalarStyle::Plain, "" | "~" | "null" | "Null" | "NULL") => DocumentValue::Null,
        (ScalarStyle::Plain, "true" | "True" | "TRUE") => DocumentValue::Bool(true),
        (ScalarStyle::Plain, "false" | "False" | "FALSE") => DocumentValue::Bool(false),
        (ScalarStyle::Plain, text) if is_number(text) => DocumentValue::Number(text.into()),
        (_, text) => DocumentValue::Text(text.into()),
    }
}

fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let begins = digits
        .strip_prefix('.')
        .unwrap_or(digits)
        .starts_with(|c: char| c.is_ascii_digit());
    let prefixed = text.strip_prefix("0x").or(text.strip_prefix("0o"));
    begins && text.parse::<f64>().is_ok()
        || prefixed.is_some_and(|d| !d.is_empty() && d.chars().all(|c| c.is_ascii_hexdigit()))
        || matches!(digits, ".inf" | ".Inf" | ".INF" | ".nan" | ".NaN" | ".NAN")
}

fn marker_position(mark: &Marker) -> TextPosition {
    TextPosition::new(mark.line(), mark.col() + 1)
}

/// Returns the position of the end of a text.
fn end_position(text: &str) -> TextPosition {
    let breaks = text.matches(['\n', '\r']).count() - text.matches("\r\n").count();
    let last = text.rsplit(['\n', '\r']).next().unwrap_or_default();
    TextPosition::new(breaks + 1, last.chars().count() + 1)
}

#[cfg(test)]
mod tests {
    use super::{DocumentValue, TextPosition, parse};
    use proptest::prelude::*;

    #[test]
    fn scalars_follow_the_core_schema() {
        for (text, value) in [
            ("", DocumentValue::Null),
            ("# nothing\n", DocumentValue::Null),
            ("~", DocumentValue::Null),
            ("true", DocumentValue::Bool(true)),
            ("yes", DocumentValue::Text("yes".into())),
            ("'1'", DocumentValue::Text("1".into())),
            ("1", DocumentValue::Number("1".into())),
            ("-1.5e3", DocumentValue::Number("-1.5e3".into())),
            ("0x1F", DocumentValue::Number("0x1F".into())),
            ("1MiB", DocumentValue::Text("1MiB".into())),
            ("infinity", DocumentValue::Text("infinity".into())),
            ("\u{feff}a\r\n", DocumentValue::Text("a".into())),
            ("|\n  a\n  b\n", DocumentValue::Text("a\nb\n".into())),
        ] {
            assert_eq!(parse(text).map(|node| node.value), Ok(value), "{text:?}");
        }
    }

    #[test]
    fn nodes_have_positions() {
        let Ok(node) = parse("# c\r\nä: x\r\nb:\r\n  - {c: 1}\r\n") else {
            panic!("good YAML")
        };
        let DocumentValue::Map(top) = node.value else {
            panic!("a mapping")
        };
        let at = |line, column| TextPosition { line, column };
        assert_eq!(
            (
                top[0].key_position,
                top[0].node.position,
                top[1].key_position
            ),
            (at(2, 1), at(2, 4), at(3, 1))
        );
        let DocumentValue::List(items) = &top[1].node.value else {
            panic!("a list")
        };
        let DocumentValue::Map(inner) = &items[0].value else {
            panic!("a mapping")
        };
        assert_eq!(
            (inner[0].key_position, inner[0].node.position),
            (at(4, 6), at(4, 9))
        );
        let Ok(node) = parse("?\n ") else {
            panic!("good YAML")
        };
        let DocumentValue::Map(top) = node.value else {
            panic!("a mapping")
        };
        assert_eq!(
            (top[0].key_position, top[0].node.position),
            (at(2, 2), at(2, 2))
        );
    }

    #[test]
    fn errors_have_positions() {
        for (text, line, column, reason) in [
            ("a: [1\nb: 2\n", 2, 2, "YAML: "),
            ("a:\n\t- b\n", 2, 2, "YAML: "),
            ("a: b: c\n", 1, 5, "YAML: "),
            ("a: &x 1\n", 1, 4, "anchors"),
            ("a: !!str 1\n", 1, 4, "tags"),
            ("a: 1\n---\nb: 1\n", 2, 1, "second document"),
            ("? [a]\n: b\n", 1, 3, "cannot be a key"),
            (&"[".repeat(17), 1, 17, "nested too deep"),
            ("a: 1\r\nb: {c", 2, 6, "YAML: "),
            ("a: 1\rb: {c\n", 3, 1, "YAML: "),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.reason.contains(reason), "{text:?}: {error:?}");
            assert_eq!(
                (error.position.line, error.position.column),
                (line, column),
                "{text:?}: {error:?}"
            );
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

        #[test]
        fn parse_never_panics_on_yaml_tokens(
            parts in prop::collection::vec(
                prop::sample::select(vec![
                    "a", "1", ":", ": ", "-", "- ", "?", "? ", "[", "]", "{", "}", ",", "\n", "  ",
                    "\t", "#", "&a", "*a", "!", "!!", "|", ">", "'", "\"", "%", "@", "`", "---",
                    "...", "\\", "\u{feff}", "\r", "\u{85}", "\u{2028}", "ä", "\0", "~", "<<", "|2",
                    "%YAML 1.2", "%TAG ! x", "\\x4", "\\u",
                ]),
                0..40,
            ),
        ) {
            let _ = parse(&parts.concat());
        }

        #[test]
        fn parse_never_panics_on_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&String::from_utf8_lossy(&bytes));
        }
    }
}
