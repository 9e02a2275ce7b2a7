//! `caproot pull --check`: compares a directory of a pull with its digests.

use crate::cli::ask::report::count_with_noun;
use crate::cli::copy::print_lines;
use crate::cli::exit;
use crate::cli::failure::CommandFailure;
use crate::cli::output::{OutputFormat, print_json};
use caproot_client::pull::{DirDifference, DirVerification, verify_dir};
use caproot_core::text::escape_text;
use serde_json::{Value, json};
use std::path::Path;

/// Compares the directory and prints the differences.
pub fn check_dir(dir: &Path, output: OutputFormat) -> Result<u8, CommandFailure> {
    let DirVerification {
        package,
        files,
        bytes,
        differences,
    } = verify_dir(dir)?;

    match output {
        OutputFormat::Json => print_json(&json!({
            "package": package,
            "directory": dir.to_string_lossy(),
            "files": files,
            "bytes": bytes,
            "differences": differences_json(&differences),
        }))?,

        OutputFormat::Text => {
            let files = count_with_noun(files, "file");
            let package = escape_text(&package);
            let count = count_with_noun(differences.len(), "difference");
            let mut lines = difference_lines(&differences);
            lines.push(format!("{package}: {files}, {bytes} bytes, {count}"));
            print_lines(&lines)?;
        }
    }
    Ok(exit::code_for_result(differences.is_empty()))
}

/// Formats differences as lines of kind and name.
pub fn difference_lines(differences: &[DirDifference]) -> Vec<String> {
    let lines = differences.iter().map(|DirDifference { name, kind, .. }| {
        let kind = kind.name();
        format!("{kind:7}  {}", escape_text(name))
    });
    lines.collect()
}

/// Returns differences as JSON.
pub fn differences_json(differences: &[DirDifference]) -> Value {
    differences
        .iter()
        .map(|found| json!({ "name": found.name, "kind": found.kind.name() }))
        .collect()
}
