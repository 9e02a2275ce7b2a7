//! Writes the table between two marks of a page, so that no number is copied by hand.

use crate::context::Outcome;
use crate::report::Report;
use crate::table;
use std::fs;
use std::path::Path;

const BEGIN: &str = "<!-- results: what follows is written by the bench -->\n";
const END: &str = "<!-- results end -->\n";

pub(crate) fn update_page(file: &Path, report: &Report) -> Outcome<()> {
    let page = fs::read_to_string(file)?;
    let marked = page
        .split_once(BEGIN)
        .and_then(|(before, rest)| rest.split_once(END).map(|(_, after)| (before, after)));
    let (before, after) = marked.ok_or("the page lacks the two marks of the results")?;
    let table = table::markdown(report);
    fs::write(file, format!("{before}{BEGIN}\n{table}\n\n{END}{after}"))?;
    Ok(())
}
