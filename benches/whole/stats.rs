//! Statistics over several rounds: the median and the range.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Median and range of several rounds.
#[derive(Debug, Clone, Copy, Deserialize, Serialize)]
pub(crate) struct Figure {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Figure {
    /// Computes a figure. Requires at least one round.
    pub(crate) fn from_rounds(rounds: impl IntoIterator<Item = f64>) -> Self {
        let mut rounds: Vec<_> = rounds.into_iter().collect();
        let median = quantile(&mut rounds, 0.5);
        let ends = (rounds.first().copied(), rounds.last().copied());
        Self {
            median,
            least: ends.0.unwrap_or(f64::NAN),
            most: ends.1.unwrap_or(f64::NAN),
        }
    }
}

/// Returns the quantile `part` of the values. Sorts the values.
pub(crate) fn quantile(all: &mut [f64], part: f64) -> f64 {
    all.sort_by(f64::total_cmp);
    let Some(last) = all.len().checked_sub(1) else {
        return f64::NAN;
    };
    // The index is never negative and far below 2^53.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let at = (float(last) * part).round() as usize;
    all[at]
}

/// Returns the quantile `part` of both sides of each round.
pub(crate) fn quantile_pairs(rounds: &[(Vec<f64>, Vec<f64>)], part: f64) -> Vec<(f64, f64)> {
    let pair = |(ours, theirs): &(Vec<f64>, Vec<f64>)| {
        (
            quantile(&mut ours.clone(), part),
            quantile(&mut theirs.clone(), part),
        )
    };
    rounds.iter().map(pair).collect()
}

pub(crate) fn ms(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}

/// Converts a count, which is far below 2^53.
#[allow(clippy::cast_precision_loss)]
pub(crate) fn float(count: usize) -> f64 {
    count as f64
}
