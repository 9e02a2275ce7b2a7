//! Tokens of a JSON text, each with the place where the token starts.

use super::LockError;
use crate::document::TextPosition;
use crate::text::{escape_text, position};
use json_event_parser::{JsonEvent, LowLevelJsonParser, LowLevelJsonParserResult};

/// Maximum nesting. A lock has five levels.
const MAX_NESTING: usize = 16;

/// Token and its place.
#[derive(Debug)]
pub struct JsonToken<'a> {
    /// Offset of its first byte.
    pub start: usize,
    /// Content.
    pub event: JsonEvent<'a>,
}

/// Reader of the tokens of one text.
pub struct JsonTokens<'a> {
    text: &'a [u8],
    parser: LowLevelJsonParser,
    /// Offset of the first byte after the last token.
    offset: usize,
}

impl<'a> JsonTokens<'a> {
    pub fn new(text: &'a [u8]) -> Self {
        Self {
            text,
            parser: LowLevelJsonParser::new().with_max_stack_size(MAX_NESTING),
            offset: 0,
        }
    }

    /// Returns the next token.
    pub fn next(&mut self) -> Result<JsonToken<'a>, LockError> {
        let rest = &self.text[self.offset..];
        let skipped = rest.iter().take_while(|byte| is_between_tokens(**byte));
        let skipped = skipped.count();
        let start = self.offset + skipped;

        let LowLevelJsonParserResult {
            consumed_bytes,
            event,
        } = self.parser.parse_next(rest, true);
        self.offset += consumed_bytes;

        match event {
            Some(Ok(event)) => Ok(JsonToken { start, event }),
            Some(Err(error)) => {
                let at = usize::try_from(error.location().start.offset).unwrap_or(usize::MAX);
                let reason = format!("JSON: {}", escape_text(error.message()));
                Err(LockError::at(self.position_of(at), reason))
            }
            None => Err(LockError::at(
                self.position_of(self.text.len()),
                "JSON: the text ends early",
            )),
        }
    }

    /// Returns the line and column of a byte.
    pub fn position_of(&self, offset: usize) -> TextPosition {
        let (line, column) = position::position_of_byte(self.text, offset);
        TextPosition { line, column }
    }
}

/// Whether a byte is between two tokens. A comma or a colon is no token of its own.
fn is_between_tokens(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | b',' | b':')
}

/// Returns the type of a value, for messages.
pub fn type_name(event: &JsonEvent<'_>) -> &'static str {
    match event {
        JsonEvent::String(_) | JsonEvent::ObjectKey(_) => "text",
        JsonEvent::Number(_) => "a number",
        JsonEvent::Boolean(_) => "true or false",
        JsonEvent::Null => "null",
        JsonEvent::StartArray | JsonEvent::EndArray => "a list",
        JsonEvent::StartObject | JsonEvent::EndObject => "an object",
        JsonEvent::Eof => "the end of the text",
    }
}
