//! Suggests the name that an author may have meant.

/// Least Jaro-Winkler similarity of a name and a suggestion, from 0 to 1.
const MIN_SIMILARITY: f64 = 0.75;
/// Maximum number of names in a question.
const MAX_SUGGESTIONS: usize = 5;

/// Returns the most similar name, or `None` if no name is similar enough.
#[must_use]
pub fn most_similar<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    similar_by(word, known, |name| name).into_iter().next()
}

/// Returns the question for the similar names, such as `did you mean a or b?`. `compared` returns the
/// part of a known name that is compared with the word.
#[must_use]
pub fn suggest_names<'a>(
    word: &str,
    known: impl IntoIterator<Item = &'a str>,
    compared: fn(&str) -> &str,
) -> Option<String> {
    let mut similar = similar_by(word, known, compared);
    similar.truncate(MAX_SUGGESTIONS);
    (!similar.is_empty()).then(|| format!("did you mean {}?", similar.join(" or ")))
}

/// Returns the question for the similar names of skills. A name without a plugin is compared with the
/// names of plugins' skills, too.
#[must_use]
pub fn suggest_skill_names<'a>(
    name: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<String> {
    let compared: fn(&str) -> &str = if name.contains(':') {
        |qualified| qualified
    } else {
        |qualified| qualified.rsplit(':').next().unwrap_or(qualified)
    };
    suggest_names(name, known, compared)
}

fn similar_by<'a>(
    word: &str,
    known: impl IntoIterator<Item = &'a str>,
    compared: fn(&str) -> &str,
) -> Vec<&'a str> {
    let scored = known
        .into_iter()
        .map(|known| (strsim::jaro_winkler(word, compared(known)), known));
    let mut similar: Vec<_> = scored
        .filter(|(score, _)| *score >= MIN_SIMILARITY)
        .collect();
    similar.sort_by(|a, b| b.0.total_cmp(&a.0));
    similar.into_iter().map(|(_, name)| name).collect()
}
