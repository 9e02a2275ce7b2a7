//! Small rules about text: white space, lengths, and how a foreign word is shown in a message.

use super::escape::is_misleading;

/// The most characters of a foreign word in a message.
const MAX_QUOTED_CHARS: usize = 64;

/// The words with one space between them, none around them.
pub(super) fn collapse_whitespace(text: &str) -> Box<str> {
    if is_whitespace_collapsed(text.as_bytes()) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len());
    for word in text.split_whitespace() {
        if !out.is_empty() {
            out.push(' ');
        }
        out.push_str(word);
    }
    out.into()
}

/// Whether this is so already, as far as can be said of ASCII alone: nearly every text.
fn is_whitespace_collapsed(text: &[u8]) -> bool {
    let is_between = |(at, byte): (usize, &u8)| match byte {
        b' ' => at > 0 && text.get(at + 1).is_some_and(|next| *next != b' '),
        _ => byte.is_ascii_graphic(),
    };
    text.iter().enumerate().all(is_between)
}

/// Whether `text` has more than `max` characters.
pub(super) fn exceeds_chars(text: &str, max: usize) -> bool {
    text.len() > max && text.chars().nth(max).is_some()
}

/// The first `max` characters.
pub(super) fn truncate_chars(text: &str, max: usize) -> &str {
    text.char_indices().nth(max).map_or(text, |(end, _)| &text[..end])
}

/// A foreign word in back quotes: cut, control characters and hidden ones escaped, so that it cannot pose as more
/// than a word of the message.
pub(super) fn quote_word(text: &str) -> String {
    let mut out = String::from("`");
    out.push_str(&escape_misleading(truncate_chars(text, MAX_QUOTED_CHARS)));
    out.push_str(if exceeds_chars(text, MAX_QUOTED_CHARS) { "…`" } else { "`" });
    out
}

/// `text` with its control characters and hidden characters escaped.
pub(super) fn escape_misleading(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_misleading(c) { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

/// Foreign words for a message: at most eight of them, then how many more.
pub(super) fn quote_words<'a>(words: impl ExactSizeIterator<Item = &'a str>) -> String {
    const MAX: usize = 8;
    let more = words.len().saturating_sub(MAX);
    let shown = words.take(MAX).map(quote_word).collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}

#[cfg(test)]
mod tests {
    use super::{collapse_whitespace, exceeds_chars, quote_word, quote_words, truncate_chars};

    #[test]
    fn collapses_cuts_and_shows() {
        assert_eq!(&*collapse_whitespace(" a \r\n\tb\u{a0}c "), "a b c");
        for text in ["a b c", " a", "a ", "a  b", "a\tb", "a\u{b}b", "ä  b", "ä b", "", " "] {
            let words: Vec<_> = text.split_whitespace().collect();
            assert_eq!(*collapse_whitespace(text), words.join(" "), "{text:?}");
        }
        assert_eq!(truncate_chars("äöü", 2), "äö");
        assert_eq!(truncate_chars("äö", 2), "äö");
        assert!(exceeds_chars("äöü", 2) && !exceeds_chars("äöü", 3));
        assert_eq!(quote_word("a\u{1b}[2J"), "`a\\u{1b}[2J`");
        assert_eq!(quote_word("a\u{202e}b"), "`a\\u{202e}b`");
        assert_eq!(quote_words(["a"; 10].into_iter()).matches("`a`").count(), 8);
        assert!(quote_words(["a"; 10].into_iter()).ends_with(" and 2 more"));
    }
}
