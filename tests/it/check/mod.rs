//! `caproot check` and `caproot explain`: what they say, that the daemon says the same, and what they
//! do with trees that are broken on purpose.

// A test that cannot run here says so.
#![allow(clippy::print_stderr)]

mod agrees;
mod codes;
mod explain;
mod forms;
mod hostile;
mod rules;
mod watched;

use serde_json::Value;
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output};

/// Runs the binary in a directory.
fn caproot<S: AsRef<OsStr>>(dir: &Path, args: impl IntoIterator<Item = S>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_caproot"));
    command.current_dir(dir).args(args).output().expect("the binary runs")
}

/// The exit code, stdout and stderr; the last two in UTF-8 and of no panic.
fn said(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(!stderr.contains("panicked"), "{stderr}");
    (output.status.code().expect("an exit code"), stdout, stderr)
}

/// What `check --output json` says.
fn json(dir: &Path, checked: &str) -> Value {
    let (_, stdout, stderr) = said(&caproot(dir, ["check", "--output", "json", checked]));
    serde_json::from_str(&stdout).unwrap_or_else(|e| panic!("{e}: {stdout}{stderr}"))
}
