//! Formats the table for a terminal and as Markdown.

use crate::report::{Report, Row, Target};
use crate::stats::Figure;
use std::fmt::Write as _;

/// Table for a terminal, with several lines per row.
pub(crate) fn text(report: &Report) -> String {
    let mut text = String::new();
    for row in &report.rows {
        let verdict = match row.is_met() {
            Some(true) => "met",
            Some(false) => "NOT MET",
            None => "",
        };
        let [ours, theirs, measured, target] = cells(row);
        let _ = writeln!(text, "{}", row.what);
        let _ = writeln!(
            text,
            "    caproot {ours}  other side {theirs}: {}",
            row.beside
        );
        let _ = writeln!(text, "    {measured}  target {target}  {verdict}");
    }
    let _ = write!(text, "{}", origin(report));
    text
}

/// Table for a page of the documentation.
pub(crate) fn markdown(report: &Report) -> String {
    let mut text = String::from(
        "| measurement | compared with | caproot | other side | figure | target |\n\
         | --- | --- | --- | --- | --- | --- |\n",
    );
    for row in &report.rows {
        let [ours, theirs, measured, target] = cells(row);
        let missed = if row.is_met() == Some(false) {
            ", not met"
        } else {
            ""
        };
        let _ = writeln!(
            text,
            "| {} | {} | {ours} | {theirs} | {measured} | {target}{missed} |",
            row.what, row.beside
        );
    }
    let _ = write!(text, "\n{}", origin(report));
    text
}

/// Machine, date and command of the measurements.
fn origin(report: &Report) -> String {
    let machine = &report.machine;
    let quick = if report.quick {
        " A quick pass: read it as an example, not as a result."
    } else {
        ""
    };
    format!(
        "Measured with version {} on {}, {} cores, {} GiB, Linux {}, at {}, by `{}`.{quick}",
        machine.version,
        machine.cpu,
        machine.cores,
        machine.memory_gib,
        machine.kernel,
        machine.date,
        machine.command
    )
}

fn cells(row: &Row) -> [String; 4] {
    let side = |figure: Figure| format!("{} {}", number(figure.median), row.unit);
    let target = match row.target {
        Target::AtMost(most) => format!("≤ {} {}", number(most), row.measured_unit),
        Target::AtLeast(least) => format!("≥ {} {}", number(least), row.measured_unit),
        Target::None => "–".to_owned(),
    };
    [
        side(row.ours),
        row.theirs.map_or_else(|| "–".to_owned(), side),
        measured(row.measured, row.measured_unit),
        target,
    ]
}

/// Formats a median with its range.
pub(crate) fn measured(figure: Figure, unit: &str) -> String {
    format!(
        "{} {unit} ({}–{})",
        number(figure.median),
        number(figure.least),
        number(figure.most)
    )
}

/// Formats a number with three significant digits.
fn number(number: f64) -> String {
    match number.abs() {
        size if size >= 99.95 => format!("{number:.0}"),
        size if size >= 9.995 => format!("{number:.1}"),
        _ => format!("{number:.2}"),
    }
}
