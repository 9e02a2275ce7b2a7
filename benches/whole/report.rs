//! What was measured: rows of the table and lines of the plots, and all of it as JSON.

use crate::context::Outcome;
use crate::machine::Machine;
use crate::options::Options;
use crate::stats::Figure;
use serde::Serialize;

/// All that one pass found.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) machine: Machine,
    pub(crate) quick: bool,
    pub(crate) rows: Vec<Row>,
    pub(crate) lines: Vec<Line>,
}

/// What one measurement found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) rows: Vec<Row>,
    pub(crate) lines: Vec<Line>,
}

/// One row of the table.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) what: String,
    pub(crate) beside: String,
    pub(crate) ours: Figure,
    /// `None` where the row has one side.
    pub(crate) theirs: Option<Figure>,
    pub(crate) unit: &'static str,
    /// What the target is about.
    pub(crate) measured: Figure,
    pub(crate) measured_unit: &'static str,
    pub(crate) target: Target,
}

/// What a figure should be.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Target {
    AtMost(f64),
    AtLeast(f64),
    /// Told, and no more.
    None,
}

/// One line of a plot.
#[derive(Debug, Serialize)]
pub(crate) struct Line {
    pub(crate) plot: Plot,
    pub(crate) label: String,
    pub(crate) unit: &'static str,
    pub(crate) points: Vec<(f64, f64)>,
}

/// Where a line is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Plot {
    /// By the number of skills; a panel for each line.
    Skills,
    /// By the number of roots; a panel for each line.
    Roots,
    /// The part of all changes that took at most so long.
    Changes,
}

impl Row {
    /// Ours by theirs, from pairs of rounds.
    pub(crate) fn ratio(
        what: impl Into<String>,
        beside: impl Into<String>,
        unit: &'static str,
        pairs: &[(f64, f64)],
        target: Target,
    ) -> Self {
        let ours = Figure::of(pairs.iter().map(|pair| pair.0));
        let theirs = Figure::of(pairs.iter().map(|pair| pair.1));
        let apart = Figure::of(pairs.iter().map(|pair| pair.0 / pair.1));
        let measured = Figure { median: ours.median / theirs.median, ..apart };
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

    /// What ours is above theirs, for each of so many things.
    pub(crate) fn above(
        what: impl Into<String>,
        beside: impl Into<String>,
        (unit, measured_unit): (&'static str, &'static str),
        pairs: &[(f64, f64)],
        things: f64,
        target: Target,
    ) -> Self {
        let ratio = Self::ratio(what, beside, unit, pairs, target);
        let measured = Figure::of(pairs.iter().map(|pair| (pair.0 - pair.1) / things));
        Self { measured, measured_unit, ..ratio }
    }

    /// Whether the target is met; `None` where there is none.
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
        Self { machine: Machine::here(), quick: options.quick, rows: Vec::new(), lines: Vec::new() }
    }

    pub(crate) fn add(&mut self, found: Found) {
        self.rows.extend(found.rows);
        self.lines.extend(found.lines);
    }

    pub(crate) fn json(&self) -> Outcome<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }
}

impl From<Vec<Row>> for Found {
    fn from(rows: Vec<Row>) -> Self {
        Self { rows, lines: Vec::new() }
    }
}
