//! Text of third parties inside our texts: on one line, and of limited length.

use crate::model::hidden_chars::escape_hidden_chars;
use std::borrow::Cow;

/// Returns the text on one line: each run of white space and control characters becomes one blank,
/// and hidden characters are escaped.
pub fn single_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    let breaks =
        |c: char| c.is_whitespace() || c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    for word in text.split(breaks).filter(|word| !word.is_empty()) {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    match escape_hidden_chars(&line) {
        Cow::Borrowed(_) => line,
        Cow::Owned(escaped) => escaped,
    }
}

/// Returns the text, or its longest prefix with a `…` in at most `bytes` bytes.
pub fn truncate_with_ellipsis(text: &str, bytes: usize) -> String {
    if text.len() <= bytes {
        return text.to_owned();
    }
    let Some(room) = bytes.checked_sub('…'.len_utf8()) else { return String::new() };
    format!("{}…", text[..text.floor_char_boundary(room)].trim_end())
}

#[cfg(test)]
mod tests {
    use super::{single_line, truncate_with_ellipsis};

    #[test]
    fn texts_are_collapsed_and_truncated() {
        assert_eq!(single_line(" a\n\u{b}b\u{2028}\0c\t"), "a b c");
        assert_eq!(single_line("\r\n"), "");
        assert_eq!(single_line("a\u{202e}\nb\u{200b}"), r"a\u{202e} b\u{200b}");
        assert_eq!(truncate_with_ellipsis("äbc", 4), "äbc");
        assert_eq!(truncate_with_ellipsis("äbcd", 4), "…");
        assert_eq!(truncate_with_ellipsis("äbcd", 5), "äbcd");
        assert_eq!(truncate_with_ellipsis("äbcde", 5), "ä…");
        assert_eq!(truncate_with_ellipsis("abc", 2), "");
    }
}
