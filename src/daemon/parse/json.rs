//! Parser of JSON to a [`DynamicValue`], with the same limits as for YAML.

use serde::de::DeserializeSeed;

use super::secret_filter;
use super::value_seed::DocumentBudget;
use crate::daemon::model::{DiagnosticCode, DynamicValue, FileProblem};
use caproot_core::text;
use caproot_core::text::fences::{self, BYTE_ORDER_MARK};
use caproot_core::text::position;

/// Parses one document of UTF-8. Skips a byte order mark before the document. The code of the problem is
/// `NotUtf8`, or `PluginFileInvalid` for a file in UTF-8.
pub fn parse(bytes: &[u8]) -> Result<DynamicValue, FileProblem> {
    let text = decode_text(bytes).map_err(|error| {
        let fault = if error.is_utf16 {
            "in UTF-16"
        } else {
            "not UTF-8"
        };
        error.into_problem(format!("the file is {fault}; save the file as UTF-8"))
    })?;

    let budget = DocumentBudget::new(text.len());
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = budget.seed().deserialize(&mut deserializer);
    value
        .and_then(|value| deserializer.end().map(|()| value))
        .map_err(|error| syntax_problem(text, &error))
}

/// Converts an error of `serde_json`, which counts columns in bytes up to and including the byte at
/// which it stopped.
fn syntax_problem(text: &str, error: &serde_json::Error) -> FileProblem {
    let lines_before = text
        .split_inclusive('\n')
        .take(error.line().saturating_sub(1));
    let line_start = lines_before.map(str::len).sum::<usize>();
    let at = line_start + error.column().saturating_sub(1);
    let (line, column) = position::position_of_byte(text.as_bytes(), at);

    let message = error.to_string();
    let suffix = format!(" at line {} column {}", error.line(), error.column());
    let message = text::escape_text(message.strip_suffix(&suffix).unwrap_or(&message));
    let why = secret_filter::redact_in_text(&message);
    FileProblem::error(DiagnosticCode::PluginFileInvalid, why).with_position(line, column)
}

/// Text that is not UTF-8, with the position of the first byte that is not.
pub(super) struct EncodingError {
    pub(super) is_utf16: bool,
    position: (u32, u32),
}

impl EncodingError {
    pub(super) fn into_problem(self, why: String) -> FileProblem {
        let (line, column) = self.position;
        FileProblem::error(DiagnosticCode::NotUtf8, why).with_position(line, column)
    }
}

/// Returns the text of a file without its byte order mark.
pub(super) fn decode_text(bytes: &[u8]) -> Result<&str, EncodingError> {
    // UTF-16 without a byte order mark may be valid UTF-8, so this check comes first.
    if fences::is_utf16(bytes) {
        return Err(EncodingError {
            is_utf16: true,
            position: (1, 1),
        });
    }
    let bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
    std::str::from_utf8(bytes).map_err(|error| EncodingError {
        is_utf16: false,
        position: position::position_of_byte(bytes, error.valid_up_to()),
    })
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
