//! `caproot verify`: compares a directory of `caproot pull` with its digests.

use super::exit;
use super::failure::CommandFailure;
use super::output::{OutputFormat, print_json, write_stdout};
use super::report::count_with_noun;
use caproot_client::pull::{DirDifference, DirVerification, verify_dir};
use caproot_core::text::escape_text;
use clap::Args;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Compare a pulled directory with its digests
///
/// Prints each file that changed, is missing, or is not from the pull, and exits with 1 if there is
/// such a file. Needs no daemon.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  caproot verify ./pdf
  caproot verify /opt/skills/pdf --output json | jq '.differences[].name'")]
pub struct VerifyArgs {
    /// Directory that `caproot pull` wrote
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Output format
    #[arg(long, value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,
}

/// Compares the directory and prints the differences.
pub fn run(args: &VerifyArgs) -> Result<u8, CommandFailure> {
    let DirVerification {
        package,
        files,
        bytes,
        differences,
    } = verify_dir(&args.dir)?;

    match args.output {
        OutputFormat::Json => print_json(&json!({
            "package": package,
            "directory": args.dir.to_string_lossy(),
            "files": files,
            "bytes": bytes,
            "differences": differences_json(&differences),
        }))?,

        OutputFormat::Text => write_stdout(|stdout| {
            for line in difference_lines(&differences) {
                writeln!(stdout, "{line}")?;
            }
            let files = count_with_noun(files, "file");
            let package = escape_text(&package);
            let count = count_with_noun(differences.len(), "difference");
            writeln!(stdout, "{package}: {files}, {bytes} bytes, {count}")
        })?,
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
