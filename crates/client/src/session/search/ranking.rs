//! Order of the skills of a view for a query: skills with the name of the query, then skills with a
//! similar name, then skills by BM25F over names and descriptions. See Robertson and Zaragoza, "The
//! Probabilistic Relevance Framework: BM25 and Beyond", section 3.6.
//!
//! The crate `bm25` 2.3.2 ranks equally well, but it needs `fxhash` (RUSTSEC-2025-0057), and skills with
//! one score come in a random order, so that pages would not join.

use super::query::{SearchQuery, max_term_edits};
use super::text_table::MisspelledText;
use super::view_index::{MeanLengths, TermMatch, ViewIndex};
use super::words::fold_name;
use crate::session::view::SessionView;
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
#[derive(Debug)]
struct WeightedTerm<'a> {
    text: &'a str,
    weight: f64,
    skill_count: usize,
}

/// Term in place of a misspelled term.
#[derive(Debug)]
struct SimilarTerm<'a> {
    text: &'a str,
    edits: usize,
    skill_count: usize,
}

/// Terms of a query for the skills of a view.
struct ScoredTerms<'a> {
    terms: Vec<WeightedTerm<'a>>,
    /// Whether no skill has one of the terms of the query.
    has_unknown: bool,
}

/// Returns the positions of the found skills in a view, the best first.
pub fn rank_skills(view: &SessionView, index: &ViewIndex, query: &SearchQuery) -> Vec<u32> {
    let scored = ScoredTerms::find(index, query);
    let mut ranked = index.find_name(&query.folded);
    if scored.has_unknown {
        ranked.extend(similar_names(index, query));
    }
    ranked.extend(rank_by_score(view, index, &scored.terms));

    let mut seen = HashSet::new();
    ranked.retain(|position| seen.insert(*position));
    spread_names(view, &ranked)
}

/// Returns the positions of the skills whose names are similar to the query.
fn similar_names<'a>(
    index: &'a ViewIndex,
    query: &SearchQuery,
) -> impl Iterator<Item = u32> + use<'a> {
    let max_edits = query.max_name_edits();
    let matches = if max_edits == 0 {
        Vec::new()
    } else {
        index.similar_names(&MisspelledText::new(&query.folded, max_edits))
    };
    matches.into_iter().map(|found| found.position)
}

impl<'a> ScoredTerms<'a> {
    fn find(index: &'a ViewIndex, query: &'a SearchQuery) -> Self {
        let mut scored = Self {
            terms: Vec::new(),
            has_unknown: false,
        };
        let mut unknown = Vec::new();
        for term in &query.terms {
            match index.find_term(term).count() {
                0 => unknown.push(term),
                skill_count => scored.add(term, 1.0, skill_count),
            }
        }

        scored.has_unknown = !unknown.is_empty();
        for term in unknown {
            for similar in similar_terms(index, term) {
                let weight = SIMILAR_WEIGHTS[similar.edits - 1];
                scored.add(similar.text, weight, similar.skill_count);
            }
        }
        scored
    }

    /// Adds a term, unless an earlier term is the same.
    fn add(&mut self, text: &'a str, weight: f64, skill_count: usize) {
        if self.terms.iter().all(|term| term.text != text) {
            self.terms.push(WeightedTerm {
                text,
                weight,
                skill_count,
            });
        }
    }
}

/// Returns terms in place of a misspelled term: the most similar and most frequent ones.
fn similar_terms<'a>(index: &'a ViewIndex, term: &str) -> Vec<SimilarTerm<'a>> {
    let max_edits = max_term_edits(term);
    if max_edits == 0 {
        return Vec::new();
    }

    let candidates = index.similar_terms(&MisspelledText::new(term, max_edits));
    let mut similar: Vec<_> = candidates
        .into_iter()
        .map(|(text, edits)| SimilarTerm {
            text,
            edits,
            skill_count: index.find_term(text).count(),
        })
        .filter(|similar| similar.skill_count > 0)
        .collect();

    // The sort is stable: equal terms stay in the order of their bytes.
    similar.sort_by_key(|similar| (similar.edits, usize::MAX - similar.skill_count));
    similar.truncate(MAX_SIMILAR_TERMS);
    similar
}

/// Returns the positions of the skills with a good score, the best first. Equal scores keep the order
/// of the view.
fn rank_by_score(view: &SessionView, index: &ViewIndex, terms: &[WeightedTerm<'_>]) -> Vec<u32> {
    let means = index.mean_lengths();
    let mut scores = vec![0.0; view.skills.len()];
    for term in terms {
        let weight = term.weight * inverse_frequency(index.skill_count, term.skill_count);
        for found in index.find_term(term.text) {
            scores[found.position as usize] += weight * saturated_frequency(&found, means);
        }
    }

    let best = scores.iter().copied().fold(0.0, f64::max);
    let mut ranked: Vec<u32> = (0..)
        .zip(&scores)
        .filter(|(_, score)| **score > 0.0 && **score >= MIN_SCORE_PART * best)
        .map(|(position, _)| position)
        .collect();
    ranked.sort_by(|a, b| scores[*b as usize].total_cmp(&scores[*a as usize]));
    ranked
}

/// Returns the weight of a term: the fewer skills have the term, the more.
#[allow(clippy::cast_precision_loss)] // a number of skills is far below 2^52
fn inverse_frequency(all: usize, having: usize) -> f64 {
    let rest = (all - having) as f64;
    ((rest + 0.5) / (having as f64 + 0.5)).ln_1p()
}

/// Returns the frequency of a term in the fields of a skill, by their weights and lengths.
fn saturated_frequency(found: &TermMatch, means: MeanLengths) -> f64 {
    let TermMatch {
        posting, lengths, ..
    } = found;
    let name = f64::from(posting.in_name) / length_factor(lengths.name, means.name);
    let description =
        f64::from(posting.in_description) / length_factor(lengths.description, means.description);

    let frequency = NAME_WEIGHT * name + description;
    frequency * (K1 + 1.0) / (K1 + frequency)
}

/// Returns by how much a longer field counts less.
fn length_factor(length: u16, mean: f64) -> f64 {
    if mean == 0.0 {
        return 1.0;
    }
    1.0 - B + B * f64::from(length) / mean
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
