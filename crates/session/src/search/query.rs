//! Query of a search: its terms and the name that it may be.

use super::stop_words::is_stop_word;
use super::words::{count_words, fold_name, for_each_word, stem_word};
use crate::view::arguments::MAX_QUERY_CHARS;
use caproot_core::text::exceeds_chars;

/// Number of distinct terms that count.
const MAX_QUERY_TERMS: usize = 32;
/// Maximum number of words of a query that may be a misspelled name.
const MAX_NAME_WORDS: usize = 6;
/// Least characters of a query that may be a misspelled name, and of a name that may have two edits.
const MIN_NAME_CHARS: usize = 3;
const MIN_NAME_CHARS_OF_TWO_EDITS: usize = 10;
/// Least characters of a term that may be misspelled, and of a term that may have two edits.
const MIN_TERM_CHARS: usize = 4;
const MIN_TERM_CHARS_OF_TWO_EDITS: usize = 8;

/// Query without hidden characters and stop words.
pub struct SearchQuery {
    /// Letters and digits of the whole query in lower case.
    pub folded: String,
    /// Distinct terms in their order.
    pub terms: Vec<String>,
    words: usize,
}

impl SearchQuery {
    /// Returns the query of a text, or `None` if the text is too long.
    pub fn parse(text: &str) -> Option<Self> {
        if exceeds_chars(text, MAX_QUERY_CHARS) {
            return None;
        }

        let mut terms: Vec<String> = Vec::new();
        for_each_word(text, |word| {
            let term = stem_word(word);
            let is_new = !is_stop_word(word) && !terms.iter().any(|known| *known == term);
            if is_new && terms.len() < MAX_QUERY_TERMS {
                terms.push(term.into_owned());
            }
        });
        Some(Self {
            folded: fold_name(text),
            terms,
            words: count_words(text),
        })
    }

    /// Returns how many edits a name may have if the query is a misspelled name.
    pub fn max_name_edits(&self) -> usize {
        if self.words > MAX_NAME_WORDS {
            return 0;
        }
        let least = [MIN_NAME_CHARS, MIN_NAME_CHARS_OF_TWO_EDITS];
        count_reached(&self.folded, least)
    }
}

/// Returns how many edits a term may have if a term of the query is misspelled.
pub fn max_term_edits(term: &str) -> usize {
    count_reached(term, [MIN_TERM_CHARS, MIN_TERM_CHARS_OF_TWO_EDITS])
}

/// Returns how many of these numbers of characters a text has.
fn count_reached(text: &str, least: [usize; 2]) -> usize {
    let chars = text.chars().count();
    least.iter().filter(|least| chars >= **least).count()
}
