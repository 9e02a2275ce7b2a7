//! Rows that are worse than the committed results.

use crate::context::Outcome;
use crate::report::{Report, Row, Target};
use crate::stats::Figure;
use crate::table::measured;
use serde::Deserialize;
use std::fmt::Write as _;
use std::fs;

const RESULTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/results/results.json");

/// Results of the last whole pass that was committed.
#[derive(Deserialize)]
pub(crate) struct CommittedResults {
    machine: CommittedMachine,
    rows: Vec<CommittedRow>,
}

#[derive(Deserialize)]
struct CommittedMachine {
    date: String,
}

#[derive(Deserialize)]
struct CommittedRow {
    what: String,
    beside: String,
    measured: Figure,
    measured_unit: String,
}

impl CommittedResults {
    /// Reads the results, before a pass with `--plots` replaces them.
    pub(crate) fn read() -> Outcome<Self> {
        Ok(serde_json::from_str(&fs::read_to_string(RESULTS)?)?)
    }

    /// Returns a paragraph with each row of a pass whose median is worse than every committed round.
    pub(crate) fn describe_losses(&self, report: &Report) -> String {
        let date = &self.machine.date;
        let compared: Vec<_> = report
            .rows
            .iter()
            .filter_map(|row| Some((row, self.rows.iter().find(|old| old.is_of(row))?)))
            .collect();
        let losses: Vec<_> = compared
            .iter()
            .filter(|(row, old)| old.is_better_than(row))
            .collect();

        let (count, of) = (losses.len(), compared.len());
        let mut text = format!(
            "{count} of {of} rows are worse than the results of {date}, beyond their spread."
        );
        for (row, old) in losses {
            let now = measured(row.measured, row.measured_unit);
            let then = measured(old.measured, &old.measured_unit);
            let _ = write!(text, "\nLOSS  {}\n    {then} then, {now} now", row.what);
        }
        text
    }
}

impl CommittedRow {
    fn is_of(&self, row: &Row) -> bool {
        (&*self.what, &*self.beside, &*self.measured_unit)
            == (&*row.what, &*row.beside, row.measured_unit)
    }

    /// Whether every committed round is better than the median of a row.
    fn is_better_than(&self, row: &Row) -> bool {
        match row.target {
            Target::AtMost(_) => self.measured.most < row.measured.median,
            Target::AtLeast(_) => self.measured.least > row.measured.median,
            Target::None => false,
        }
    }
}
