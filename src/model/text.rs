//! Text helpers: white space, lengths, and quoting of untrusted words in messages.

use super::escape::is_misleading;

/// Maximum characters of an untrusted word in a message.
const MAX_QUOTED_CHARS: usize = 64;

/// Joins the words with one space, without white space around them.
#[must_use]
pub fn collapse_whitespace(text: &str) -> Box<str> {
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

/// Whether the text is surely collapsed already. Returns `false` for any text that is not ASCII.
fn is_whitespace_collapsed(text: &[u8]) -> bool {
    let is_between = |(at, byte): (usize, &u8)| match byte {
        b' ' => at > 0 && text.get(at + 1).is_some_and(|next| *next != b' '),
        _ => byte.is_ascii_graphic(),
    };
    text.iter().enumerate().all(is_between)
}

/// Whether the text has more than `max` characters.
#[must_use]
pub fn exceeds_chars(text: &str, max: usize) -> bool {
    text.len() > max && text.chars().nth(max).is_some()
}

/// Returns the first `max` characters.
#[must_use]
pub fn truncate_chars(text: &str, max: usize) -> &str {
    text.char_indices().nth(max).map_or(text, |(end, _)| &text[..end])
}

/// Quotes an untrusted word with backticks. Truncates the word and escapes misleading characters,
/// so that the word cannot pose as a part of the message.
#[must_use]
pub fn quote_word(text: &str) -> String {
    let mut out = String::from("`");
    out.push_str(&escape_misleading(truncate_chars(text, MAX_QUOTED_CHARS)));
    out.push_str(if exceeds_chars(text, MAX_QUOTED_CHARS) { "…`" } else { "`" });
    out
}

/// Escapes control characters and hidden characters.
#[must_use]
pub fn escape_misleading(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_misleading(c) { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

/// Quotes at most eight untrusted words and appends the number of the others.
pub fn quote_words<'a>(words: impl ExactSizeIterator<Item = &'a str>) -> String {
    const MAX: usize = 8;
    let more = words.len().saturating_sub(MAX);
    let quoted = words.take(MAX).map(quote_word).collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{quoted} and {more} more") } else { quoted }
}

#[cfg(test)]
mod tests {
    use super::{collapse_whitespace, exceeds_chars, quote_word, quote_words, truncate_chars};

    #[test]
    fn text_is_collapsed_truncated_and_quoted() {
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
