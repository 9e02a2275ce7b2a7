//! Checks how `.ci/runner` counts steps that pass, fail, hang, skip and are lost.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// Steps with every end. The step that hangs writes the process ID of its child.
const STEPS: &str = r#"
. .ci/runner
define good 60 'a step that passes'
good() { echo "output of good"; }
define beside_good 60 'a step beside'
beside_good() { echo "output of beside_good"; }
define bad 60 'a step that fails'
bad() { return 3; }
define hanging 1 'a step that hangs'
hanging() { sleep 600 & echo "$!" >"$STEPS_DIR/child"; wait; }
define skipped 60 'a step that skips'
skipped() { skip "there is no such tool"; }
define unfit 60 'a step without its tool'
unfit() { missing "frob: install the package frob"; }
define lost 60 'a step without a result'
if [[ ${BASH_SOURCE[0]} == "$0" ]]; then "$1"; fi
"#;

/// Runs lines of a script that sources [`STEPS`], as `.ci/run` does.
fn run_script(dir: &Path, lines: &str) -> Output {
    let steps = dir.join("steps");
    fs::write(&steps, STEPS).expect("the file of the steps");
    let script = format!(
        "set -uo pipefail\nexec </dev/null\nsteps_file={}\n. \"$steps_file\"\nbegin\n{lines}\nfinish\n",
        steps.display()
    );

    let mut bash = Command::new("bash");
    bash.args(["-c", &script])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("STEPS_DIR", dir);
    bash.output().expect("bash")
}

#[test]
fn each_end_of_a_step_is_counted_and_printed() {
    let dir = tempfile::tempdir().expect("a directory");
    let output = run_script(
        dir.path(),
        "beside idle_group beside_good\nstep good bad hanging skipped unfit\ncollect idle_group\necho lost >>\"$results/planned\"",
    );
    let stdout = String::from_utf8(output.stdout).expect("UTF-8");

    let mut rows: Vec<(&str, &str)> = vec![];
    for line in stdout.lines() {
        if let Some((result, name)) = line.split_once("  a step ") {
            rows.push((result.split(' ').next().unwrap_or_default(), name));
        }
    }
    rows.sort_unstable();
    let lost = "without a result: no result, perhaps because the disk is full";
    let expected = [
        ("FAILED", "that fails"),
        ("FAILED", "without its tool"),
        ("LOST", lost),
        ("SKIPPED", "that skips"),
        ("TIMEOUT", "that hangs"),
        ("ok", "beside"),
        ("ok", "that passes"),
    ];
    assert_eq!(rows, expected, "{stdout}");
    assert!(stdout.contains("output of beside_good"), "{stdout}");
    assert!(
        stdout.contains("SKIPPED: there is no such tool"),
        "{stdout}"
    );
    assert!(
        stdout.ends_with("\n2 passed, 4 failed, 1 skipped\n"),
        "{stdout}"
    );
    assert_eq!(output.status.code(), Some(1));

    let stderr = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(
        stderr.contains("MISSING: frob: install the package frob"),
        "{stderr}"
    );

    // All that a step started ends at the limit. The first process of the machine may collect it later.
    let child = fs::read_to_string(dir.path().join("child")).expect("the process ID");
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.trim()));
    assert!(
        stat.as_ref().map_or(true, |stat| stat.contains(") Z ")),
        "the child of the step still runs: {stat:?}"
    );
}

#[test]
fn a_run_without_failed_steps_passes() {
    let dir = tempfile::tempdir().expect("a directory");
    let output = run_script(dir.path(), "step good skipped");
    let stdout = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(
        stdout.ends_with("\n1 passed, 0 failed, 1 skipped\n"),
        "{stdout}"
    );
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_run_of_only_skipped_steps_fails() {
    let dir = tempfile::tempdir().expect("a directory");
    let output = run_script(dir.path(), "step skipped");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn an_unknown_step_of_the_full_checks_is_refused() {
    let output = Command::new(".ci/full")
        .arg("fuz")
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("the script");
    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(stderr.contains("no step \"fuz\""), "{stderr}");
}
