//! Results: rows of the table and lines of the plots, also as JSON.

use crate::context::Outcome;
use crate::machine::Machine;
use crate::options::Options;
use crate::stats::Figure;
use serde::Serialize;

/// Results of one pass.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) machine: Machine,
    pub(crate) quick: bool,
    pub(crate) rows: Vec<Row>,
    pub(crate) lines: Vec<Line>,
}

/// Results of one measurement.
#[derive(Debug, Default)]
pub(crate) struct MeasurementResult {
    pub(crate) rows: Vec<Row>,
    pub(crate) lines: Vec<Line>,
}

/// Row of the table.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) what: String,
    pub(crate) beside: String,
    pub(crate) ours: Figure,
    /// `None` if the row has no comparison.
    pub(crate) theirs: Option<Figure>,
    pub(crate) unit: &'static str,
    /// Value that the target applies to.
    pub(crate) measured: Figure,
    pub(crate) measured_unit: &'static str,
    pub(crate) target: Target,
}

/// Target of a value.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Target {
    AtMost(f64),
    AtLeast(f64),
    /// The value has no target.
    None,
}

/// Line of a plot.
#[derive(Debug, Serialize)]
pub(crate) struct Line {
    pub(crate) plot: Plot,
    pub(crate) label: String,
    pub(crate) unit: &'static str,
    pub(crate) points: Vec<(f64, f64)>,
}

/// Plot that a line belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Plot {
    /// Growth with the number of skills, with a panel for each line.
    Skills,
    /// Growth with the number of roots, with a panel for each line.
    Roots,
    /// Percentage of changes within a time.
    Changes,
}

impl Row {
    /// Row with the ratio of both sides, from pairs of rounds.
    pub(crate) fn ratio(
        what: impl Into<String>,
        beside: impl Into<String>,
        unit: &'static str,
        pairs: &[(f64, f64)],
        target: Target,
    ) -> Self {
        let ours = Figure::from_rounds(pairs.iter().map(|pair| pair.0));
        let theirs = Figure::from_rounds(pairs.iter().map(|pair| pair.1));
        let spread = Figure::from_rounds(pairs.iter().map(|pair| pair.0 / pair.1));
        let measured = Figure {
            median: ours.median / theirs.median,
            ..spread
        };
        Self {
            what: what.into(),
            beside: beside.into(),
            ours,
            theirs: Some(theirs),
            unit,
            measured,
            measured_unit: "×",
            target,
        }
    }

    /// Row with the difference of both sides, divided by the number of things.
    pub(crate) fn difference(
        what: impl Into<String>,
        beside: impl Into<String>,
        (unit, measured_unit): (&'static str, &'static str),
        pairs: &[(f64, f64)],
        things: f64,
        target: Target,
    ) -> Self {
        let ratio = Self::ratio(what, beside, unit, pairs, target);
        let measured = Figure::from_rounds(pairs.iter().map(|pair| (pair.0 - pair.1) / things));
        Self {
            measured,
            measured_unit,
            ..ratio
        }
    }

    /// Row with an amount that has no other side, divided by the number of units in `measured_unit`.
    pub(crate) fn amount(
        what: impl Into<String>,
        (unit, measured_unit): (&'static str, &'static str),
        rounds: &[f64],
        divisor: f64,
        target: Target,
    ) -> Self {
        Self {
            what: what.into(),
            beside: "no other side".to_owned(),
            ours: Figure::from_rounds(rounds.iter().copied()),
            theirs: None,
            unit,
            measured: Figure::from_rounds(rounds.iter().map(|amount| amount / divisor)),
            measured_unit,
            target,
        }
    }

    /// Whether the target is met. `None` if there is no target.
    pub(crate) fn is_met(&self) -> Option<bool> {
        match self.target {
            Target::AtMost(most) => Some(self.measured.median <= most),
            Target::AtLeast(least) => Some(self.measured.median >= least),
            Target::None => None,
        }
    }
}

impl Report {
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            machine: Machine::detect(),
            quick: options.quick,
            rows: Vec::new(),
            lines: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, found: MeasurementResult) {
        self.rows.extend(found.rows);
        self.lines.extend(found.lines);
    }

    pub(crate) fn json(&self) -> Outcome<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }
}

impl From<Vec<Row>> for MeasurementResult {
    fn from(rows: Vec<Row>) -> Self {
        Self {
            rows,
            lines: Vec::new(),
        }
    }
}
