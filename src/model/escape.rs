//! Escapes untrusted text for display: on one line, and without characters that control a terminal,
//! change the reading order or are invisible.

use super::hidden_chars::is_always_hidden;
use std::fmt;

/// Text that displays with misleading characters escaped as `\u{…}`.
#[derive(Debug, Clone, Copy)]
pub struct EscapedText<'a>(pub &'a str);

impl fmt::Display for EscapedText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write as _;
        for c in self.0.chars() {
            if is_misleading(c) {
                write!(f, "{}", c.escape_unicode())?;
            } else {
                f.write_char(c)?;
            }
        }
        Ok(())
    }
}

/// Escapes misleading characters as [`EscapedText`] does.
#[must_use]
pub fn escape_text(text: &str) -> String {
    EscapedText(text).to_string()
}

/// Escapes misleading characters and truncates the result to at most `max_bytes` bytes, followed by
/// `…` if the text was longer.
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

/// Whether a character could mislead a reader: control characters, line separators and characters
/// that are always hidden.
#[must_use]
pub fn is_misleading(c: char) -> bool {
    // U+2028 and U+2029 break lines.
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') || is_always_hidden(c)
}

#[cfg(test)]
mod tests {
    use super::{escape_text, is_misleading, truncate_escaped};
    use proptest::prelude::*;

    #[test]
    fn misleading_characters_are_escaped() {
        for (text, safe) in [
            ("plain é 漢字 👩\u{200d}🚀", "plain é 漢字 👩\u{200d}🚀"),
            ("a\u{202e}b", r"a\u{202e}b"),
            ("\x1b[31mred", r"\u{1b}[31mred"),
            ("two\nlines\r\t", r"two\u{a}lines\u{d}\u{9}"),
            ("\u{9b}c1", r"\u{9b}c1"),
            ("\u{2066}x\u{2069}", r"\u{2066}x\u{2069}"),
            ("\u{e0041}\u{feff}\u{200b}", r"\u{e0041}\u{feff}\u{200b}"),
        ] {
            assert_eq!(escape_text(text), safe);
        }
    }

    #[test]
    fn long_text_is_truncated() {
        assert_eq!(
            (&*truncate_escaped("äb\n", 8), &*truncate_escaped("äb\n", 7)),
            (r"äb\u{a}", "äb…")
        );
        assert_eq!(&*truncate_escaped("äb", 1), "…");
        assert_eq!((&*truncate_escaped("", 0), &*truncate_escaped("a", 0)), ("", "…"));
    }

    proptest! {
        #[test]
        fn escaped_text_has_no_misleading_character(text: String, odd in "[a\\PC\\p{Cc}\\p{Cf}]{0,20}") {
            for text in [text, odd] {
                let safe = escape_text(&text);
                prop_assert!(!safe.chars().any(is_misleading));
                // The longest escape is `\u{e0041}` for four bytes.
                prop_assert!(safe.len() <= 9 * text.len());
            }
        }
    }
}
