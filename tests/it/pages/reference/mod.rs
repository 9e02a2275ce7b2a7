//! The pages of `docs/reference`: each is generated from the code and committed.

mod api;
mod commands;
mod config;
mod diagnostics;
mod environment;
mod errors;
mod exit_codes;
mod limits;
mod manual;
mod metrics;
mod protocol;
mod root_states;

use crate::harness::golden::check_file;

/// Checks the page `docs/reference/NAME.md`.
pub(crate) fn check_page(name: &str, generated: &str) {
    check_file(&format!("docs/reference/{name}.md"), generated);
}
