//! Hidden characters: visible to models but not to readers, such as bidirectional controls,
//! zero-width characters and tags. Texts for models have them escaped as `\u{…}`.

use icu_properties::CodePointSetData;
use icu_properties::props::{DefaultIgnorableCodePoint, Emoji, VariationSelector};
use std::borrow::Cow;

/// Visibility of a character.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CharVisibility {
    Visible,
    /// Hidden between any neighbors.
    Hidden,
    /// Joins or separates its neighbors, which some scripts and emoji need.
    Joiner,
    /// Selects a variant of the preceding character, which emoji, ideographs and Mongolian letters
    /// need.
    Selector,
}

impl CharVisibility {
    fn of_char(c: char) -> Self {
        match c {
            c if !is_ignorable_char(c) => Self::Visible,
            '\u{200c}' | '\u{200d}' => Self::Joiner,
            c if CodePointSetData::new::<VariationSelector>().contains(c) => Self::Selector,
            _ => Self::Hidden,
        }
    }
}

/// Whether renderers without support for the character display nothing: Unicode's
/// `Default_Ignorable_Code_Point` (`DerivedCoreProperties.txt`), and interlinear annotation marks.
#[must_use]
pub fn is_ignorable_char(c: char) -> bool {
    // Nearly all characters come before the first ignorable one, the soft hyphen.
    c >= '\u{ad}'
        && (CodePointSetData::new::<DefaultIgnorableCodePoint>().contains(c)
            || matches!(c, '\u{fff9}'..='\u{fffb}'))
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
        CharVisibility::Selector => !before.is_some_and(|base| has_variant(base, c, after)),
    }
}

/// Whether a character has the variant of a selector. Any other pair is displayed without the
/// selector, and each selector could carry a value of a hidden text.
fn has_variant(base: char, selector: char, after: Option<char>) -> bool {
    match selector {
        '\u{fe0e}' | '\u{fe0f}' => {
            let is_keycap = base.is_ascii_digit() || matches!(base, '#' | '*');
            is_emoji(base) || (is_keycap && after == Some('\u{20e3}'))
        }
        '\u{e0100}'..='\u{e01ef}' => is_ideograph(base),
        // Mongolian letters, whose selectors choose a form within a word.
        '\u{180b}'..='\u{180d}' | '\u{180f}' => matches!(base, '\u{1820}'..='\u{18aa}'),
        _ => false,
    }
}

/// Whether the character is an emoji other than the base of a keycap: Unicode's `Emoji`
/// (`emoji-data.txt`), and the other characters of the emoji blocks.
fn is_emoji(c: char) -> bool {
    matches!(c,
        '\u{1f300}'..='\u{1f64f}' | '\u{1f680}'..='\u{1f6ff}' | '\u{1f90c}'..='\u{1f9ff}'
        | '\u{1fa70}'..='\u{1faff}')
        || (!c.is_ascii() && CodePointSetData::new::<Emoji>().contains(c))
}

/// Whether the character is an ideograph of Chinese, Japanese or Korean. Source: blocks of the
/// Ideographic Variation Database (UTS 37).
fn is_ideograph(c: char) -> bool {
    matches!(c,
        '\u{3006}' | '\u{3007}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}'
        | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3fffd}')
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
            ("a\u{fe01}\u{200d}é", r"a\u{fe01}\u{200d}é"),
        ] {
            assert_eq!(escape_hidden_chars(text), escaped);
        }
    }

    #[test]
    fn selectors_are_hidden_unless_the_character_has_the_variant() {
        let rest = ["", "\u{20e3}"];
        for (base, selector, rest, is_visible) in [
            ('⚠', '\u{fe0e}', rest[0], true),
            ('⚠', '\u{fe0f}', rest[0], true),
            ('😀', '\u{fe0f}', rest[0], true),
            ('©', '\u{fe0e}', rest[0], true),
            ('1', '\u{fe0f}', rest[1], true),
            ('#', '\u{fe0e}', rest[1], true),
            ('漢', '\u{e0100}', rest[0], true),
            ('\u{2000b}', '\u{e01ef}', rest[0], true),
            ('\u{1820}', '\u{180b}', rest[0], true),
            ('1', '\u{fe0f}', rest[0], false),
            ('a', '\u{fe0f}', rest[0], false),
            ('a', '\u{fe0f}', rest[1], false),
            ('é', '\u{fe0f}', rest[0], false),
            ('漢', '\u{fe0f}', rest[0], false),
            ('😀', '\u{fe00}', rest[0], false),
            ('😀', '\u{fe0d}', rest[0], false),
            ('漢', '\u{fe00}', rest[0], false),
            ('😀', '\u{e0100}', rest[0], false),
            ('é', '\u{e0100}', rest[0], false),
            ('한', '\u{e0100}', rest[0], false),
            ('é', '\u{180b}', rest[0], false),
            ('漢', '\u{180f}', rest[0], false),
        ] {
            let text = format!("{base}{selector}{rest}");
            let escaped = escape_hidden_chars(&text);
            assert_eq!(
                escaped == text,
                is_visible,
                "{base:?} {selector:?} {rest:?}"
            );
            // A second selector selects nothing.
            let twice = format!("{base}{selector}{selector}");
            assert_ne!(escape_hidden_chars(&twice), twice);
        }
    }

    proptest! {
        #[test]
        fn every_emoji_has_variants(emoji in "\\p{Emoji}", selector in "[\u{fe0e}\u{fe0f}]") {
            let rest = if emoji.is_ascii() { "\u{20e3}" } else { "" };
            let text = format!("{emoji}{selector}{rest}");
            prop_assert_eq!(escape_hidden_chars(&text), text.as_str());
        }

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
