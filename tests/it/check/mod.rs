//! `caproot check` and `caproot explain`: their output, its agreement with the daemon, and trees
//! that are broken on purpose.

// Tests report on stderr why they are skipped.
#![allow(clippy::print_stderr)]

mod broken_trees;
mod codes;
mod daemon_agreement;
mod explain;
mod output_formats;
mod skill_format;
mod watch_mode;

use serde_json::Value;
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output};

/// Runs the binary in a directory.
fn run_caproot<S: AsRef<OsStr>>(dir: &Path, args: impl IntoIterator<Item = S>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_caproot"));
    command.current_dir(dir).args(args).output().expect("the binary runs")
}

/// Returns the exit code, stdout and stderr. Checks that both are UTF-8 and that nothing panicked.
fn unpack_output(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(!stderr.contains("panicked"), "{stderr}");
    (output.status.code().expect("an exit code"), stdout, stderr)
}

/// Runs `check --output json`, and parses its output.
fn check_json(dir: &Path, checked: &str) -> Value {
    let (_, stdout, stderr) =
        unpack_output(&run_caproot(dir, ["check", "--output", "json", checked]));
    serde_json::from_str(&stdout).unwrap_or_else(|e| panic!("{e}: {stdout}{stderr}"))
}
