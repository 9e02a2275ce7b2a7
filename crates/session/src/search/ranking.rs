//! Order of the skills of a view for a query: skills with the name of the query, then skills with a
//! similar name, then skills by BM25F over names and descriptions. See Robertson and Zaragoza, "The
//! Probabilistic Relevance Framework: BM25 and Beyond", section 3.6.
//!
//! The crate `bm25` 2.3.2 ranks equally well, but it needs `fxhash` (RUSTSEC-2025-0057), and skills with
//! one score come in a random order, so that pages would not join.

use super::listing_terms::SkillTerms;
use super::misspelled_text::MisspelledText;
use super::query::{SearchQuery, max_term_edits};
use super::view_index::{TermMatch, ViewIndex};
use super::words::fold_name;
use crate::view::session_view::SessionView;
use std::collections::HashSet;

/// Saturation of repeated terms, and the weight of the length of a field: the usual values.
const K1: f64 = 1.2;
const B: f64 = 0.75;
/// Weight of the name; the description has 1.
const NAME_WEIGHT: f64 = 2.0;
/// Part of the best score that a result must have.
const MIN_SCORE_PART: f64 = 0.4;
/// Maximum number of results.
const MAX_RESULTS: usize = 100;
/// Number of distinct names before the second skill of a name.
const DISTINCT_NAMES: usize = 20;
/// Maximum number of terms in place of a misspelled term, and their weights with one and two edits.
const MAX_SIMILAR_TERMS: usize = 5;
const SIMILAR_WEIGHTS: [f64; 2] = [0.7, 0.4];

/// Term that skills are scored by.
struct WeightedTerm<'a> {
    text: &'a str,
    weight: f64,
}

/// Term in place of a misspelled term.
struct SimilarTerm<'a> {
    text: &'a str,
    edits: usize,
    skill_count: usize,
}

/// Returns the positions of the found skills in a view, the best first.
pub fn rank_skills(view: &SessionView, index: &ViewIndex, query: &SearchQuery) -> Vec<u32> {
    let mut ranked = index.find_name(view, &query.folded);
    let searched: Vec<&str> = query.terms.iter().map(String::as_str).collect();
    let mut matches = index.find_terms(&searched);
    let counts = count_skills(&matches, searched.len());

    let (mut terms, mut unknown) = (Vec::new(), Vec::new());
    for (text, skill_count) in searched.into_iter().zip(counts) {
        if skill_count == 0 {
            unknown.push(text);
        }
        terms.push(WeightedTerm { text, weight: 1.0 });
    }

    // Only a query with an unknown term may be misspelled, and similar texts take long to find.
    if !unknown.is_empty() {
        let max_edits = query.max_name_edits();
        if max_edits > 0 {
            let misspelled = MisspelledText::new(&query.folded, max_edits);
            ranked.extend(index.similar_names(view, &misspelled));
        }
        for similar in similar_terms(index, &unknown) {
            if terms.iter().all(|term| term.text != similar.text) {
                terms.push(WeightedTerm {
                    text: similar.text,
                    weight: SIMILAR_WEIGHTS[similar.edits - 1],
                });
            }
        }
        let searched: Vec<&str> = terms.iter().map(|term| term.text).collect();
        matches = index.find_terms(&searched);
    }
    ranked.extend(rank_by_score(index, &terms, &matches));

    let mut seen = HashSet::new();
    ranked.retain(|position| seen.insert(*position));
    spread_names(view, &ranked)
}

/// Returns terms in place of misspelled terms: the most similar and most frequent ones.
fn similar_terms<'a>(index: &'a ViewIndex, unknown: &[&str]) -> Vec<SimilarTerm<'a>> {
    let candidates: Vec<_> = unknown
        .iter()
        .filter(|term| max_term_edits(term) > 0)
        .map(|term| index.similar_terms(&MisspelledText::new(term, max_term_edits(term))))
        .collect();
    // The skills of all candidates are counted at once.
    let searched: Vec<&str> = candidates
        .iter()
        .flat_map(|terms| terms.keys().copied())
        .collect();
    let matches = index.find_terms(&searched);
    let mut counts = count_skills(&matches, searched.len()).into_iter();

    let mut found = Vec::new();
    for terms in candidates {
        let mut similar: Vec<_> = terms
            .into_iter()
            .zip(counts.by_ref())
            .filter(|(_, skill_count)| *skill_count > 0)
            .map(|((text, edits), skill_count)| SimilarTerm {
                text,
                edits,
                skill_count,
            })
            .collect();

        // The sort is stable: equal terms stay in the order of their bytes.
        similar.sort_by_key(|similar| (similar.edits, usize::MAX - similar.skill_count));
        similar.truncate(MAX_SIMILAR_TERMS);
        found.extend(similar);
    }
    found
}

/// Returns how many skills have each of the searched terms.
fn count_skills(matches: &[TermMatch], terms: usize) -> Vec<usize> {
    let mut counts = vec![0; terms];
    for found in matches {
        counts[found.term as usize] += 1;
    }
    counts
}

/// Returns the positions of the skills with a good score, the best first. Equal scores keep the order
/// of the view.
fn rank_by_score(index: &ViewIndex, terms: &[WeightedTerm<'_>], matches: &[TermMatch]) -> Vec<u32> {
    let counts = count_skills(matches, terms.len());
    let all = index.skills.len();
    let weights: Vec<f64> = terms
        .iter()
        .zip(counts)
        .map(|(term, having)| term.weight * inverse_frequency(all, having))
        .collect();

    let mut scores = vec![0.0; all];
    for found in matches {
        let frequency = saturated_frequency(found, index);
        scores[found.skill] += weights[found.term as usize] * frequency;
    }

    let best = scores.iter().copied().fold(0.0, f64::max);
    let mut ranked: Vec<usize> = (0..all)
        .filter(|skill| scores[*skill] > 0.0 && scores[*skill] >= MIN_SCORE_PART * best)
        .collect();
    ranked.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
    ranked
        .into_iter()
        .map(|skill| index.skills[skill].position)
        .collect()
}

/// Returns the weight of a term: the fewer skills have the term, the more.
#[allow(clippy::cast_precision_loss)] // a number of skills is far below 2^52
fn inverse_frequency(all: usize, having: usize) -> f64 {
    let rest = (all - having) as f64;
    ((rest + 0.5) / (having as f64 + 0.5)).ln_1p()
}

/// Returns the frequency of a term in the fields of a skill, by their weights and lengths.
fn saturated_frequency(found: &TermMatch, index: &ViewIndex) -> f64 {
    let SkillTerms { name, description } = index.terms_of(found.skill);
    let means = &index.mean_lengths;
    let in_name = f64::from(found.in_name) / length_factor(name.len(), means.name);
    let in_description =
        f64::from(found.in_description) / length_factor(description.len(), means.description);

    let frequency = NAME_WEIGHT * in_name + in_description;
    frequency * (K1 + 1.0) / (K1 + frequency)
}

/// Returns by how much a longer field counts less.
#[allow(clippy::cast_precision_loss)] // a number of words is far below 2^52
fn length_factor(length: usize, mean: f64) -> f64 {
    if mean == 0.0 {
        return 1.0;
    }
    1.0 - B + B * length as f64 / mean
}

/// Moves a skill whose name came before behind the first [`DISTINCT_NAMES`], so that equal names do not
/// fill a page, and returns at most [`MAX_RESULTS`].
fn spread_names(view: &SessionView, ranked: &[u32]) -> Vec<u32> {
    let mut names = HashSet::new();
    let mut spread = Vec::new();
    let mut copies = Vec::new();

    let mut rest = ranked.iter().copied();
    while names.len() < DISTINCT_NAMES
        && let Some(position) = rest.next()
    {
        if names.insert(fold_name(&view.skills[position as usize].name)) {
            spread.push(position);
        } else if copies.len() < MAX_RESULTS {
            copies.push(position);
        }
    }

    spread.extend(copies.into_iter().chain(rest));
    spread.truncate(MAX_RESULTS);
    spread
}
