//! Words and terms of a text: lower case, without hidden characters, and stemmed.

use caproot_core::text::is_ignorable_char;
use frostem::{Algorithm, Stemmer};
use std::borrow::Cow;

/// Maximum number of runs of letters of one field of a skill.
const MAX_FIELD_RUNS: usize = 2_048;
/// Characters of a word that count.
const MAX_WORD_CHARS: usize = 48;

/// Class of a character in the splitting of a text.
#[derive(PartialEq, Eq)]
enum CharClass {
    /// Letter or digit of a script with words.
    Word,
    /// Character of Chinese, Japanese or Korean text, which has no blanks between words.
    Cjk,
    Separator,
}

impl CharClass {
    fn of_char(c: char) -> Self {
        match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' => Self::Word,
            '\u{3041}'..='\u{30ff}'
            | '\u{3400}'..='\u{4dbf}'
            | '\u{4e00}'..='\u{9fff}'
            | '\u{ac00}'..='\u{d7a3}'
            | '\u{f900}'..='\u{faff}'
            | '\u{20000}'..='\u{3fffd}' => Self::Cjk,
            c if c.is_alphanumeric() => Self::Word,
            _ => Self::Separator,
        }
    }

    /// Returns the class of the first character.
    fn of_text(text: &str) -> Self {
        text.chars().next().map_or(Self::Separator, Self::of_char)
    }
}

/// Returns the term of a word in lower case: its stem, if the word is English.
pub fn stem_word(word: &str) -> Cow<'_, str> {
    Stemmer::new(Algorithm::English).stem(word)
}

/// Calls a function with each word of a text in order, in lower case and with stop words. A camelCase
/// word gives itself and its parts. Chinese, Japanese and Korean text gives pairs of characters.
pub fn for_each_word(text: &str, mut visit: impl FnMut(&str)) {
    let visible = visible_text(text);
    // One buffer for all words: the first search reads every word of a catalog.
    let mut lower = String::new();
    let mut visit_lower = |word: &str| {
        lower.clear();
        if word.is_ascii() {
            lower.push_str(&word[..word.len().min(MAX_WORD_CHARS)]);
            lower.make_ascii_lowercase();
        } else {
            let chars = word.chars().take(MAX_WORD_CHARS);
            lower.extend(chars.flat_map(char::to_lowercase));
        }
        visit(&lower);
    };

    for run in CharRuns(&visible).take(MAX_FIELD_RUNS) {
        if CharClass::of_text(run) == CharClass::Cjk {
            visit_char_pairs(run, &mut visit_lower);
        } else {
            visit_lower(run);
            visit_camel_case_parts(run, &mut visit_lower);
        }
    }
}

/// Returns how many words separators delimit, stop words included.
pub fn count_words(text: &str) -> usize {
    CharRuns(&visible_text(text)).count()
}

/// Returns the letters and digits of a text in lower case.
pub fn fold_name(text: &str) -> String {
    folded_chars(text).collect()
}

/// Returns the characters of a folded name.
pub fn folded_chars(text: &str) -> impl Iterator<Item = char> {
    let visible = text.chars().filter(|c| !is_ignorable_char(*c));
    let kept = visible.filter(|c| CharClass::of_char(*c) != CharClass::Separator);
    kept.flat_map(char::to_lowercase)
}

/// Returns a text without hidden characters.
fn visible_text(text: &str) -> Cow<'_, str> {
    if !text.is_ascii() && text.chars().any(is_ignorable_char) {
        text.chars().filter(|c| !is_ignorable_char(*c)).collect()
    } else {
        Cow::Borrowed(text)
    }
}

/// Iterator over the runs of characters of one class, without separators.
struct CharRuns<'a>(&'a str);

impl<'a> Iterator for CharRuns<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let rest = self
            .0
            .trim_start_matches(|c| CharClass::of_char(c) == CharClass::Separator);
        let class = CharClass::of_text(rest);
        let end = rest.find(|c| CharClass::of_char(c) != class);
        let end = end.unwrap_or(rest.len());

        self.0 = &rest[end..];
        Some(&rest[..end]).filter(|run| !run.is_empty())
    }
}

/// Visits each two adjacent characters, or the only character.
fn visit_char_pairs(run: &str, visit: &mut impl FnMut(&str)) {
    let starts = run.char_indices().map(|(start, _)| start);
    let bounds: Vec<usize> = starts.chain([run.len()]).collect();
    for pair in bounds.windows(bounds.len().min(3)) {
        visit(&run[pair[0]..pair[pair.len() - 1]]);
    }
}

/// Visits the parts of a word, if it is a camelCase word.
fn visit_camel_case_parts(run: &str, visit: &mut impl FnMut(&str)) {
    // Few words have an upper-case character after the first one.
    if !run.chars().skip(1).any(char::is_uppercase) {
        return;
    }

    let chars: Vec<char> = run.chars().collect();
    let mut start = 0;
    for (at, (offset, _)) in run.char_indices().enumerate().skip(1) {
        if begins_part(&chars, at) {
            visit(&run[start..offset]);
            start = offset;
        }
    }
    if start > 0 {
        visit(&run[start..]);
    }
}

/// Returns whether a part of a camelCase word begins: `B` in `aB`, and `S` in `HTTPServer`.
fn begins_part(run: &[char], at: usize) -> bool {
    let is_after_lower = run[at - 1].is_lowercase() || run[at - 1].is_numeric();
    let is_before_lower = run.get(at + 1).is_some_and(|next| next.is_lowercase());
    run[at].is_uppercase() && (is_after_lower || (run[at - 1].is_uppercase() && is_before_lower))
}

#[cfg(test)]
mod tests {
    use super::{MAX_WORD_CHARS, count_words, fold_name, for_each_word, stem_word};
    use crate::search::stop_words::is_stop_word;
    use proptest::prelude::*;

    fn split_words(text: &str) -> Vec<String> {
        let mut words = Vec::new();
        for_each_word(text, |word| words.push(word.to_owned()));
        words.retain(|word| !is_stop_word(word));
        words
    }

    #[test]
    fn words_are_split_at_separators_and_within_camel_case() {
        for (text, words) in [
            ("", &[][..]),
            (
                "Fill-in PDF_forms, v2.1!",
                &["fill", "pdf", "forms", "v2", "1"],
            ),
            ("TickTick", &["ticktick", "tick", "tick"]),
            ("HTTPServer", &["httpserver", "http", "server"]),
            ("please help me to use the pdf", &["pdf"]),
            ("p\u{200b}d\u{ad}f \u{202e}x", &["pdf", "x"]),
            ("处理表格 pdf文件", &["处理", "理表", "表格", "pdf", "文件"]),
            ("表 🦀 é", &["表", "é"]),
            ("C++ and R", &["c", "r"]),
        ] {
            assert_eq!(split_words(text), words, "{text}");
        }
        assert_eq!(count_words("a-b c_d TickTick 表格"), 6);
        assert_eq!(fold_name("Kit: Fill-Forms\u{200b} 2"), "kitfillforms2");
    }

    #[test]
    fn words_of_one_stem_are_one_term() {
        for word in ["extract", "extracts", "extracting", "extracted"] {
            assert_eq!(stem_word(word), "extract");
        }
        assert_eq!(stem_word("处理"), "处理");
    }

    proptest! {
        #[test]
        fn any_text_has_bounded_words(text in "(?s).{0,300}") {
            for word in split_words(&text.repeat(20)) {
                prop_assert!(!word.is_empty() && word.chars().count() <= 3 * MAX_WORD_CHARS);
                stem_word(&word);
            }
        }
    }
}
