//! Escaping of untrusted text for output.

use crate::model::escape::is_misleading;
pub(super) use crate::model::escape::{EscapedText, escape_text};

/// Escapes misleading characters in JSON text. The JSON value stays the same.
pub fn escape_json(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    for c in json.chars() {
        // A line feed in the text is layout. In a string it is already escaped.
        if c == '\n' || !is_misleading(c) {
            shown.push(c);
        } else {
            let mut units = [0; 2];
            shown.extend(c.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")));
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::escape_json;

    #[test]
    fn escaped_json_has_the_same_value() {
        let value = serde_json::json!({ "a\u{202e}": "\u{9b}\u{e0041}\n漢", "b": [1, 2] });
        let plain = serde_json::to_string_pretty(&value).expect("JSON");
        let safe = escape_json(&plain);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&safe).expect("JSON"), value);
        assert!(safe.contains(r"a\u202e") && safe.contains(r"\u009b\udb40\udc41\n漢"), "{safe}");
    }
}
