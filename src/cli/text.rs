//! Makes text from strangers safe to show: one line, and no way to command a terminal, to turn the
//! reading order round or to hide.

use std::fmt;

/// A text that prints with whatever could mislead escaped as `\u{…}`.
pub(super) struct Shown<'a>(pub(super) &'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write as _;
        for c in self.0.chars() {
            if misleads(c) {
                write!(f, "{}", c.escape_unicode())?;
            } else {
                f.write_char(c)?;
            }
        }
        Ok(())
    }
}

/// [`Shown`], as a string.
pub(super) fn shown(text: &str) -> String {
    Shown(text).to_string()
}

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

fn misleads(c: char) -> bool {
    c.is_control()
        || matches!(c,
            // Soft hyphen; bidi marks, embeddings, overrides and isolates (Unicode annex 9).
            '\u{ad}' | '\u{61c}' | '\u{200e}' | '\u{200f}'
            | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
            // Invisible: zero width (the joiners are needed by scripts and emoji), line and
            // paragraph separators, word joiner and invisible operators, byte order mark.
            | '\u{200b}' | '\u{2028}' | '\u{2029}' | '\u{2060}'..='\u{2065}'
            | '\u{206a}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            // Tags: whole sentences that no reader sees.
            | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::{json_shown, shown};

    #[test]
    fn what_misleads_is_escaped() {
        for (text, safe) in [
            ("plain é 漢字 👩\u{200d}🚀", "plain é 漢字 👩\u{200d}🚀"),
            ("a\u{202e}b", r"a\u{202e}b"),
            ("\x1b[31mred", r"\u{1b}[31mred"),
            ("two\nlines\r\t", r"two\u{a}lines\u{d}\u{9}"),
            ("\u{9b}c1", r"\u{9b}c1"),
            ("\u{2066}x\u{2069}", r"\u{2066}x\u{2069}"),
            ("\u{e0041}\u{feff}\u{200b}", r"\u{e0041}\u{feff}\u{200b}"),
        ] {
            assert_eq!(shown(text), safe);
        }
    }

    #[test]
    fn json_keeps_its_value() {
        let value = serde_json::json!({ "a\u{202e}": "\u{9b}\u{e0041}\n漢", "b": [1, 2] });
        let plain = serde_json::to_string_pretty(&value).expect("JSON");
        let safe = json_shown(&plain);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&safe).expect("JSON"), value);
        assert!(safe.contains(r"a\u202e") && safe.contains(r"\u009b\udb40\udc41\n漢"), "{safe}");
    }
}
