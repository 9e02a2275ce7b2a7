//! Suggests the name that an author may have meant.

/// Least Jaro-Winkler similarity of a name and a suggestion, from 0 to 1.
const MIN_SIMILARITY: f64 = 0.75;

/// Returns the most similar name, or `None` if no name is similar enough.
#[must_use]
pub fn most_similar<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    similar_names(word, known).into_iter().next()
}

/// Returns the names that are similar enough, with the most similar name first.
#[must_use]
pub fn similar_names<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let scored = known
        .into_iter()
        .map(|known| (strsim::jaro_winkler(word, known), known));
    let mut similar: Vec<_> = scored
        .filter(|(score, _)| *score >= MIN_SIMILARITY)
        .collect();
    similar.sort_by(|a, b| b.0.total_cmp(&a.0));
    similar.into_iter().map(|(_, name)| name).collect()
}
