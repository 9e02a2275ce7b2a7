//! `caproot check` and `caproot explain`: their output, its agreement with the daemon, and trees
//! that are broken on purpose.

// Tests report on stderr why they are skipped.
#![allow(clippy::print_stderr)]

mod bodies;
mod broken_trees;
mod codes;
mod daemon_agreement;
mod explain;
mod fix;
mod new;
mod output_formats;
mod skill_format;
mod strict;
mod watch_mode;

use serde_json::Value;
use std::ffi::OsStr;
use std::path::Path;

use crate::harness::process::{caproot, run_blocking};

/// Runs the binary in a directory. Returns the exit code, stdout and stderr.
fn run_caproot<S: AsRef<OsStr>>(
    dir: &Path,
    args: impl IntoIterator<Item = S>,
) -> (i32, String, String) {
    let output = run_blocking(caproot(args).current_dir(dir));
    let stdout = output.text().to_owned();
    (output.code.expect("an exit code"), stdout, output.stderr)
}

/// Runs `check --output json`, and parses its output.
fn check_json(dir: &Path, checked: &str) -> Value {
    let (_, stdout, stderr) = run_caproot(dir, ["check", "--output", "json", checked]);
    serde_json::from_str(&stdout).unwrap_or_else(|e| panic!("{e}: {stdout}{stderr}"))
}
