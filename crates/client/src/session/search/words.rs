//! Words and terms of a text: lower case, without hidden characters and stop words, and stemmed.

use super::stop_words::is_stop_word;
use caproot_core::text::is_ignorable_char;
use frostem::{Algorithm, Stemmer};
use std::borrow::Cow;

/// Maximum number of words of one field of a skill. A description of 1,024 ideographs has as many pairs.
const MAX_FIELD_WORDS: usize = 2_048;
/// Characters of a word that count.
const MAX_WORD_CHARS: usize = 48;

/// Class of a character in the splitting of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

/// Returns the words of a text in order, without stop words. A camelCase word gives itself and its
/// parts. Chinese, Japanese and Korean text gives pairs of characters.
pub fn split_words(text: &str) -> Vec<String> {
    let visible = visible_text(text);
    let mut words = Vec::new();
    for run in CharRuns(&visible) {
        match CharClass::of_text(run) {
            CharClass::Cjk => words.extend(char_pairs(run)),
            _ => add_words_of_run(run, &mut words),
        }
        if words.len() >= MAX_FIELD_WORDS {
            break;
        }
    }

    words.retain(|word| !is_stop_word(word));
    words.truncate(MAX_FIELD_WORDS);
    words
}

/// Returns how many words separators delimit, stop words included.
pub fn count_words(text: &str) -> usize {
    CharRuns(&visible_text(text)).count()
}

/// Returns the letters and digits of a text in lower case.
pub fn fold_name(text: &str) -> String {
    let visible = text.chars().filter(|c| !is_ignorable_char(*c));
    let kept = visible.filter(|c| CharClass::of_char(*c) != CharClass::Separator);
    kept.flat_map(char::to_lowercase).collect()
}

/// Returns a text without hidden characters.
fn visible_text(text: &str) -> Cow<'_, str> {
    if text.chars().any(is_ignorable_char) {
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

/// Returns each two adjacent characters, or the only character.
fn char_pairs(run: &str) -> Vec<String> {
    let chars: Vec<char> = run.chars().collect();
    let pairs = chars.windows(chars.len().min(2));
    pairs.map(|pair| pair.iter().collect()).collect()
}

/// Adds a word, and its parts if it is a camelCase word.
fn add_words_of_run(run: &str, words: &mut Vec<String>) {
    words.push(lower_case(run.chars()));
    // Few words have an upper-case character after the first one.
    if !run.chars().skip(1).any(char::is_uppercase) {
        return;
    }

    let run: Vec<char> = run.chars().collect();
    let mut start = 0;
    for at in 1..run.len() {
        if begins_part(&run, at) {
            words.push(lower_case(run[start..at].iter().copied()));
            start = at;
        }
    }
    if start > 0 {
        words.push(lower_case(run[start..].iter().copied()));
    }
}

/// Returns whether a part of a camelCase word begins: `B` in `aB`, and `S` in `HTTPServer`.
fn begins_part(run: &[char], at: usize) -> bool {
    let is_after_lower = run[at - 1].is_lowercase() || run[at - 1].is_numeric();
    let is_before_lower = run.get(at + 1).is_some_and(|next| next.is_lowercase());
    run[at].is_uppercase() && (is_after_lower || (run[at - 1].is_uppercase() && is_before_lower))
}

fn lower_case(word: impl Iterator<Item = char>) -> String {
    let kept = word.take(MAX_WORD_CHARS);
    kept.flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::{MAX_WORD_CHARS, count_words, fold_name, split_words, stem_word};
    use proptest::prelude::*;

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
