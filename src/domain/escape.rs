//! Makes text from strangers safe to show: one line, and no way to command a terminal, to turn the
//! reading order round or to hide.

use crate::hidden_chars::is_always_hidden;
use std::fmt;

/// A text that prints with whatever could mislead escaped as `\u{…}`.
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

/// [`Shown`], as a string.
#[must_use]
pub fn escape_text(text: &str) -> String {
    EscapedText(text).to_string()
}

/// [`Shown`], cut to at most so many bytes, and `…` where that is not all.
#[must_use]
pub fn truncate_escaped(text: &str, most: usize) -> String {
    if text.len() <= most && text.bytes().all(|b| matches!(b, b' '..=b'~')) {
        return text.to_owned();
    }
    let mut brief = String::new();
    for c in text.chars() {
        let before = brief.len();
        if is_misleading(c) {
            brief.extend(c.escape_unicode());
        } else {
            brief.push(c);
        }
        if brief.len() > most {
            brief.truncate(before);
            brief.push('…');
            break;
        }
    }
    brief
}

/// Whether a character could mislead a reader.
#[must_use]
pub fn is_misleading(c: char) -> bool {
    // The separators break lines.
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') || is_always_hidden(c)
}

#[cfg(test)]
mod tests {
    use super::{escape_text, is_misleading, truncate_escaped};
    use proptest::prelude::*;

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
            assert_eq!(escape_text(text), safe);
        }
    }

    #[test]
    fn what_is_long_is_cut() {
        assert_eq!(
            (&*truncate_escaped("äb\n", 8), &*truncate_escaped("äb\n", 7)),
            (r"äb\u{a}", "äb…")
        );
        assert_eq!(&*truncate_escaped("äb", 1), "…");
        assert_eq!((&*truncate_escaped("", 0), &*truncate_escaped("a", 0)), ("", "…"));
    }

    proptest! {
        #[test]
        fn nothing_that_is_shown_misleads(text: String, odd in "[a\\PC\\p{Cc}\\p{Cf}]{0,20}") {
            for text in [text, odd] {
                let safe = escape_text(&text);
                prop_assert!(!safe.chars().any(is_misleading));
                // The longest character that is escaped: `\u{e0041}` for four bytes.
                prop_assert!(safe.len() <= 9 * text.len());
            }
        }
    }
}
