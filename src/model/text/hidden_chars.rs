//! Hidden characters: visible to models but not to readers, such as bidirectional controls,
//! zero-width characters and tags. Texts for models have them escaped as `\u{…}`.

use std::borrow::Cow;

/// Visibility of a character.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CharVisibility {
    Visible,
    /// Hidden between any neighbors.
    Hidden,
    /// Joins or separates its neighbors, which some scripts and emoji need.
    Joiner,
    /// Selects a variant of the preceding character, which ideographs and emoji need.
    Selector,
}

impl CharVisibility {
    fn of_char(c: char) -> Self {
        match c {
            // Nearly all characters.
            '\0'..='\u{ac}' => Self::Visible,
            '\u{200c}' | '\u{200d}' => Self::Joiner,
            '\u{180b}'..='\u{180d}'
            | '\u{180f}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{e0100}'..='\u{e01ef}' => Self::Selector,
            c if is_ignorable_char(c) => Self::Hidden,
            _ => Self::Visible,
        }
    }
}

/// Whether renderers without support for the character display nothing: Unicode's
/// `Default_Ignorable_Code_Point` (`DerivedCoreProperties.txt`), and interlinear annotation marks.
#[must_use]
pub fn is_ignorable_char(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}'
        // Zero-width characters and bidirectional marks, embeddings, overrides and isolates.
        | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
        // Tags, which can encode whole sentences, and variation selectors.
        | '\u{e0000}'..='\u{e0fff}')
}

/// Whether the character is hidden between any neighbors.
pub(super) fn is_always_hidden(c: char) -> bool {
    CharVisibility::of_char(c) == CharVisibility::Hidden
}

/// Whether a character is hidden between its neighbors. `before` is `None` if the preceding
/// character is hidden. A joiner is visible between two characters that may need it. A selector is
/// visible after a character that may have variants.
#[must_use]
pub fn is_hidden_char(before: Option<char>, c: char, after: Option<char>) -> bool {
    match CharVisibility::of_char(c) {
        CharVisibility::Visible => false,
        CharVisibility::Hidden => true,
        CharVisibility::Joiner => {
            let joins = |c: char, or: CharVisibility| {
                let visibility = CharVisibility::of_char(c);
                let is_drawn = !c.is_ascii() && !c.is_whitespace() && !c.is_control();
                is_drawn && (visibility == CharVisibility::Visible || visibility == or)
            };
            // A heart on fire has a selector before its joiner.
            let begins = before.is_some_and(|c| joins(c, CharVisibility::Selector));
            !begins || !after.is_some_and(|c| joins(c, CharVisibility::Visible))
        }
        CharVisibility::Selector => !before.is_some_and(|c| {
            let is_keycap = c.is_ascii_digit() || matches!(c, '#' | '*');
            is_keycap || (!c.is_ascii() && CharVisibility::of_char(c) == CharVisibility::Visible)
        }),
    }
}

/// Escapes each hidden character as `\u{…}`.
#[must_use]
pub fn escape_hidden_chars(text: &str) -> Cow<'_, str> {
    if text.is_ascii() {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::new();
    // Offset of the text that is not in `escaped` yet.
    let mut done = 0;
    let mut before = None;
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let is_hidden = is_hidden_char(before, c, chars.peek().map(|(_, next)| *next));
        if is_hidden {
            escaped.push_str(&text[done..at]);
            escaped.extend(c.escape_unicode());
            done = at + c.len_utf8();
        }
        before = Some(c).filter(|_| !is_hidden);
    }
    if done == 0 {
        return Cow::Borrowed(text);
    }
    escaped.push_str(&text[done..]);
    Cow::Owned(escaped)
}

#[cfg(test)]
mod tests {
    use super::{escape_hidden_chars, is_hidden_char};
    use proptest::prelude::*;

    #[test]
    fn hidden_characters_are_escaped() {
        for (text, escaped) in [
            ("plain é 漢字\n", "plain é 漢字\n"),
            ("a\u{202e}b\u{2066}c", r"a\u{202e}b\u{2066}c"),
            ("ig\u{200b}no\u{200d}re", r"ig\u{200b}no\u{200d}re"),
            ("x\u{e0041}\u{e007f}", r"x\u{e0041}\u{e007f}"),
            ("\u{feff}a\u{ad}\u{3164}", r"\u{feff}a\u{ad}\u{3164}"),
            // Required by scripts and emoji.
            (
                "👩\u{200d}🚀 ❤\u{fe0f}\u{200d}🔥 ⚠\u{fe0f} 1\u{fe0f}\u{20e3}",
                "👩\u{200d}🚀 ❤\u{fe0f}\u{200d}🔥 ⚠\u{fe0f} 1\u{fe0f}\u{20e3}",
            ),
            ("می\u{200c}خواهم", "می\u{200c}خواهم"),
            // The same characters in other places.
            (
                "👩\u{200d}\u{200c}\u{200d}🚀",
                r"👩\u{200d}\u{200c}\u{200d}🚀",
            ),
            (
                "😀\u{fe01}\u{fe02}\u{e0101}",
                "😀\u{fe01}\\u{fe02}\\u{e0101}",
            ),
            ("a\u{fe01}b\u{fe02}", r"a\u{fe01}b\u{fe02}"),
            ("a\u{fe01}\u{200d}é", r"a\u{fe01}\u{200d}é"),
        ] {
            assert_eq!(escape_hidden_chars(text), escaped);
        }
    }

    proptest! {
        #[test]
        fn escaped_text_has_no_hidden_characters(text in "(a|é|1|👩|\\p{Cf}|\\p{Mn}|[\u{200b}-\u{200f}]|[\u{fe00}-\u{fe0f}]){0,20}") {
            let escaped = escape_hidden_chars(&text);
            let chars: Vec<char> = escaped.chars().collect();
            for (at, c) in chars.iter().enumerate() {
                let before = at.checked_sub(1).map(|at| chars[at]);
                prop_assert!(!is_hidden_char(before, *c, chars.get(at + 1).copied()), "{escaped:?}");
            }
            prop_assert_eq!(escape_hidden_chars(&escaped), escaped.as_ref());
        }
    }
}
