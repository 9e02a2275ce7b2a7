//! English words that tell nothing about a task: function words, and words of requests.

/// Sorted words. A part of a contraction, such as `don` of `don't`, is a word.
const STOP_WORDS: &[&str] = &[
    "a", "able", "about", "after", "again", "all", "also", "am", "an", "and", "any", "are", "aren",
    "as", "at", "be", "because", "been", "before", "being", "between", "both", "but", "by", "can",
    "cannot", "could", "couldn", "did", "didn", "do", "does", "doesn", "doing", "don", "done",
    "during", "each", "etc", "few", "for", "from", "further", "get", "give", "going", "had", "has",
    "have", "having", "he", "hello", "help", "helps", "her", "here", "hers", "him", "his", "how",
    "i", "if", "in", "into", "is", "isn", "it", "its", "itself", "just", "kindly", "let", "like",
    "ll", "may", "me", "might", "more", "most", "must", "my", "myself", "need", "needs", "no",
    "nor", "not", "now", "of", "off", "on", "once", "one", "only", "or", "other", "our", "ours",
    "out", "over", "own", "please", "re", "s", "same", "shall", "she", "should", "show", "so",
    "some", "such", "t", "tell", "than", "thanks", "that", "the", "their", "theirs", "them",
    "then", "there", "these", "they", "this", "those", "through", "to", "too", "under", "until",
    "up", "us", "use", "used", "uses", "using", "ve", "very", "via", "want", "wants", "was", "we",
    "were", "what", "when", "where", "which", "while", "who", "whom", "whose", "why", "will",
    "with", "within", "without", "won", "would", "you", "your", "yours",
];

/// Returns whether a word in lower case tells nothing about a task.
pub fn is_stop_word(word: &str) -> bool {
    STOP_WORDS.binary_search(&word).is_ok()
}

#[cfg(test)]
mod tests {
    use super::STOP_WORDS;

    #[test]
    fn the_words_are_sorted() {
        assert!(STOP_WORDS.is_sorted_by(|a, b| a < b));
    }
}
