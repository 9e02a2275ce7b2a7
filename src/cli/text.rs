//! Text from strangers, made safe to show.

use crate::domain::shown::misleads;
pub(super) use crate::domain::shown::{Shown, shown};

/// The same JSON value, spelled so that no string in it misleads who looks at it on a terminal.
pub(super) fn json_shown(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    for c in json.chars() {
        // A bare line feed is layout; within a string it is escaped already.
        if c == '\n' || !misleads(c) {
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
    use super::json_shown;

    #[test]
    fn json_keeps_its_value() {
        let value = serde_json::json!({ "a\u{202e}": "\u{9b}\u{e0041}\n漢", "b": [1, 2] });
        let plain = serde_json::to_string_pretty(&value).expect("JSON");
        let safe = json_shown(&plain);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&safe).expect("JSON"), value);
        assert!(safe.contains(r"a\u202e") && safe.contains(r"\u009b\udb40\udc41\n漢"), "{safe}");
    }
}
