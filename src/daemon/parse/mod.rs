//! Parsers: the text of files to the types of `model`. The parsers do no I/O; each has limits on time
//! and memory.

pub(crate) mod budget;
mod fields;
pub mod frontmatter;
pub mod json;
pub(crate) mod key_position;
pub mod manifest;
pub mod misread_text;
pub(crate) mod names;
pub mod plugin;
pub(crate) mod secret_filter;
pub mod sidecar;
mod value_seed;
pub mod yaml;
pub mod yaml_repair;

use crate::daemon::model::FileProblem;

/// Calls a reader, and adds its error to the problems.
fn collect_problems<T>(
    read: impl FnOnce(&mut Vec<FileProblem>) -> Result<T, FileProblem>,
) -> (Option<T>, Vec<FileProblem>) {
    let mut problems = Vec::new();
    let value = read(&mut problems).map_err(|problem| problems.push(problem));
    (value.ok(), problems)
}
