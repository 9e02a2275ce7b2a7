//! Parser of JSON to a [`DynamicValue`], with the same limits as for YAML.

use serde::de::DeserializeSeed;

use super::value_seed::DocumentBudget;
use crate::daemon::model::value::DynamicValue;
use caproot_core::text;
use caproot_core::text::fences::{self, BYTE_ORDER_MARK};
use caproot_core::text::position;

/// Error of parsing JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonError {
    /// Line from 1.
    pub line: u32,
    /// Column in characters from 1.
    pub column: u32,
    /// Message without the position.
    pub message: String,
    /// Whether the text is not UTF-8.
    pub is_not_utf8: bool,
}

/// Parses one document of UTF-8. Skips a byte order mark before the document.
pub fn parse(bytes: &[u8]) -> Result<DynamicValue, JsonError> {
    if fences::is_utf16(bytes) {
        return Err(JsonError {
            line: 1,
            column: 1,
            message: "the file is in UTF-16; save the file as UTF-8".into(),
            is_not_utf8: true,
        });
    }

    let bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let (line, column) = position::position_of_byte(bytes, error.valid_up_to());
        JsonError {
            line,
            column,
            message: "the file is not UTF-8; save the file as UTF-8".into(),
            is_not_utf8: true,
        }
    })?;

    let budget = DocumentBudget::new(text.len());
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = budget.seed().deserialize(&mut deserializer);
    value
        .and_then(|value| deserializer.end().map(|()| value))
        .map_err(|error| json_error(text, &error))
}

/// Converts an error of `serde_json`, which counts columns in bytes up to and including the byte at
/// which it stopped.
fn json_error(text: &str, error: &serde_json::Error) -> JsonError {
    let line_start = text
        .split_inclusive('\n')
        .take(error.line().saturating_sub(1))
        .map(str::len)
        .sum::<usize>();
    let (line, column) = position::position_of_byte(
        text.as_bytes(),
        line_start + error.column().saturating_sub(1),
    );
    let message = error.to_string();
    let suffix = format!(" at line {} column {}", error.line(), error.column());
    let message = text::escape_text(message.strip_suffix(&suffix).unwrap_or(&message));
    JsonError {
        line,
        column,
        message,
        is_not_utf8: false,
    }
}

#[cfg(test)]
mod tests {
    use super::{DynamicValue, parse};
    use proptest::prelude::*;

    #[test]
    fn json_parses_with_or_without_a_byte_order_mark() {
        for (json, printed) in [
            (
                "{\"b\":1,\"a\":[true,null,-1.5,18446744073709551615]}",
                "{\"b\":1,\"a\":[true,null,-1.5,18446744073709551615]}",
            ),
            ("\u{feff}{}", "{}"),
            ("1", "1"),
            (" \"\" ", ""),
            ("\"\\ud83d\\ude00\"", "😀"),
        ] {
            assert_eq!(&*parse(json.as_bytes()).expect(json).to_text(), printed);
        }
    }

    #[test]
    fn errors_have_a_position() {
        for (json, line, column, words) in [
            ("", 1, 1, "EOF"),
            ("{\n  \"ä\": x}", 2, 8, "expected value"),
            ("{\"a\":1,\n\"a\":2}", 2, 3, "duplicate key `a`"),
            ("[1] 2", 1, 5, "trailing"),
        ] {
            let error = parse(json.as_bytes()).expect_err(json);
            assert_eq!(
                (error.line, error.column),
                (line, column),
                "{json} {error:?}"
            );
            assert!(error.message.contains(words), "{json} {error:?}");
        }
        let error = parse(b"{\"a\":\n\"\xff\"}").expect_err("not UTF-8");
        assert_eq!((error.line, error.column), (2, 2));
        assert!(
            parse("[".repeat(65).as_bytes())
                .expect_err("deep")
                .message
                .contains("nested over 64")
        );
    }

    proptest! {
        #[test]
        fn never_panics(bytes: Vec<u8>, dense in "[\\[\\]{}:,\"a0-9.eE+\\\\u \n-]{0,60}") {
            let _ = (parse(&bytes), parse(dense.as_bytes()));
        }

        #[test]
        fn printed_values_parse_to_themselves(json in "(\\[|\\{\"a\":|1|,|\"b\\\\n\"|\\]|\\}|null){1,20}") {
            if let Ok(value) = parse(json.as_bytes()) {
                let list = DynamicValue::List([value].into());
                prop_assert_eq!(parse(list.to_text().as_bytes()), Ok(list));
            }
        }
    }
}
