//! `caproot check --watch`: one result per change.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::run_caproot;
use crate::commands::terminal::run_on_terminal;
use crate::harness::fixture::Fixture;
use crate::harness::process::{Process, caproot};
use crate::harness::watch_harness::skill_text;

/// Starts `caproot check --watch --output json`.
fn start_check_watch(fixture: &Fixture) -> Process {
    let mut command = caproot(["check", "--watch", "--output", "json", "root"]);
    Process::spawn(command.current_dir(fixture.top()))
}

/// Waits for a run that finds the given numbers of skills and errors.
async fn wait_for_run(watching: &mut Process, skills: u64, errors: u64) {
    loop {
        let line = watching.line().await;
        let run: Value = serde_json::from_str(&line).expect("one object per line");
        if run["summary"]["skills"] == skills && run["summary"]["errors"] == errors {
            return;
        }
    }
}

#[tokio::test]
async fn each_change_is_one_run() {
    let fixture = Fixture::new("skill root/a");
    let mut watching = start_check_watch(&fixture);
    wait_for_run(&mut watching, 1, 0).await;
    fixture.write("root/a/SKILL.md", "no frontmatter");
    wait_for_run(&mut watching, 0, 1).await;
    fixture.replace("root/a/SKILL.md", skill_text("a", "Mended."));
    wait_for_run(&mut watching, 1, 0).await;
    // A directory is watched before it is listed.
    fixture.write("root/deep/er/b/SKILL.md", skill_text("b", "New."));
    wait_for_run(&mut watching, 2, 0).await;
    fixture.write("root/deep/er/b/SKILL.md", "broken again");
    wait_for_run(&mut watching, 1, 1).await;
    // The whole directory is renamed and created again.
    fs::rename(fixture.path("root"), fixture.path("away")).expect("renamed");
    fixture.write("root/c/SKILL.md", skill_text("c", "Another."));
    wait_for_run(&mut watching, 1, 0).await;
    fixture.write("root/d/SKILL.md", skill_text("d", "One more."));
    wait_for_run(&mut watching, 2, 0).await;
    assert_eq!(watching.exit_on(Signal::INT).await.code, Some(0));
}

#[tokio::test]
async fn an_empty_directory_waits_for_its_first_skill() {
    let fixture = Fixture::new("dir root");
    let mut watching = start_check_watch(&fixture);
    wait_for_run(&mut watching, 0, 0).await;
    fixture.write("root/a/SKILL.md", skill_text("a", "First."));
    wait_for_run(&mut watching, 1, 0).await;
}

#[test]
fn a_missing_directory_fails_at_once() {
    let fixture = Fixture::new("dir other");
    let (exit, _, stderr) = run_caproot(fixture.top(), ["check", "--watch", "root"]);
    assert_eq!(exit, 78);
    assert!(
        stderr.contains("cannot check root: no such directory"),
        "{stderr}"
    );
}

#[test]
fn a_terminal_is_cleared_before_each_run() {
    let fixture = Fixture::new("skill root/a");
    // The shell prints its pid and executes the program, which keeps the pid.
    let mut command = Command::new("bash");
    command.args([
        "-c",
        "echo $$ >&2; exec \"$@\"",
        "bash",
        env!("CARGO_BIN_EXE_caproot"),
    ]);
    command
        .args(["check", "--watch"])
        .arg(fixture.path("root"))
        .stdin(Stdio::null());
    let (reader, stderr) = std::io::pipe().expect("a pipe");
    let ends = thread::spawn(move || {
        let mut lines = BufReader::new(reader).lines().map_while(Result::ok);
        let number = lines.next().and_then(|number| number.parse().ok());
        let pid = number.and_then(Pid::from_raw).expect("a process");
        lines
            .find(|line| line.contains("waiting for changes"))
            .expect("the first run is done");
        kill_process(pid, Signal::INT).expect("a signal");
    });
    let (printed, _) = run_on_terminal(command, 80, |command, terminal| {
        command.stdout(terminal).stderr(stderr);
    });
    ends.join().expect("the signal was sent");
    assert!(
        printed.starts_with("\u{1b}[H\u{1b}[2J\u{1b}[3J1 skill, 0 errors"),
        "{printed:?}"
    );
}
