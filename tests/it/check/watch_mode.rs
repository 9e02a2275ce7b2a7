//! `caproot check --watch`: one result per change.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{run_caproot, unpack_output};
use crate::fixture::Fixture;
use crate::harness::HANG;
use crate::live::skill;
use crate::terminal::attached;

/// Running `caproot check --watch --output json`.
struct WatchingCheck {
    child: Child,
    lines: Receiver<String>,
}

impl WatchingCheck {
    fn start(fixture: &Fixture) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_caproot"));
        command.current_dir(fixture.top()).args(["check", "--watch", "--output", "json", "root"]);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the binary runs");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let (send, lines) = channel();
        thread::spawn(move || stdout.lines().try_for_each(|line| send.send(line.expect("text"))));
        Self { child, lines }
    }

    /// Waits for a run that finds the given numbers of skills and errors.
    fn wait_for_run(&self, skills: u64, errors: u64) {
        loop {
            let line = self.lines.recv_timeout(HANG).expect("another run");
            let run: Value = serde_json::from_str(&line).expect("one object per line");
            if run["summary"]["skills"] == skills && run["summary"]["errors"] == errors {
                return;
            }
        }
    }

    fn pid(&self) -> Pid {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a pid")
    }
}

impl Drop for WatchingCheck {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
fn each_change_is_one_run() {
    let fixture = Fixture::new("skill root/a");
    let mut watching = WatchingCheck::start(&fixture);
    watching.wait_for_run(1, 0);
    fixture.write("root/a/SKILL.md", "no frontmatter");
    watching.wait_for_run(0, 1);
    fixture.replace("root/a/SKILL.md", skill("a", "Mended."));
    watching.wait_for_run(1, 0);
    // A directory is watched before it is listed.
    fixture.write("root/deep/er/b/SKILL.md", skill("b", "New."));
    watching.wait_for_run(2, 0);
    fixture.write("root/deep/er/b/SKILL.md", "broken again");
    watching.wait_for_run(1, 1);
    // The whole directory is renamed and created again.
    fs::rename(fixture.path("root"), fixture.path("away")).expect("renamed");
    fixture.write("root/c/SKILL.md", skill("c", "Another."));
    watching.wait_for_run(1, 0);
    fixture.write("root/d/SKILL.md", skill("d", "One more."));
    watching.wait_for_run(2, 0);
    kill_process(watching.pid(), Signal::INT).expect("a signal");
    assert_eq!(watching.child.wait().expect("the command ends").code(), Some(0));
}

#[test]
fn an_empty_directory_waits_for_its_first_skill() {
    let fixture = Fixture::new("dir root");
    let watching = WatchingCheck::start(&fixture);
    watching.wait_for_run(0, 0);
    fixture.write("root/a/SKILL.md", skill("a", "First."));
    watching.wait_for_run(1, 0);
}

#[test]
fn a_missing_directory_fails_at_once() {
    let fixture = Fixture::new("dir other");
    let (exit, _, stderr) =
        unpack_output(&run_caproot(fixture.top(), ["check", "--watch", "root"]));
    assert_eq!(exit, 78);
    assert!(stderr.contains("cannot check root: no such directory"), "{stderr}");
}

#[test]
fn a_terminal_is_cleared_before_each_run() {
    let fixture = Fixture::new("skill root/a");
    // The shell prints its pid and executes the program, which keeps the pid.
    let mut command = Command::new("bash");
    command.args(["-c", "echo $$ >&2; exec \"$@\"", "bash", env!("CARGO_BIN_EXE_caproot")]);
    command.args(["check", "--watch"]).arg(fixture.path("root")).stdin(Stdio::null());
    let (reader, stderr) = std::io::pipe().expect("a pipe");
    let ends = thread::spawn(move || {
        let mut lines = BufReader::new(reader).lines().map_while(Result::ok);
        let number = lines.next().and_then(|number| number.parse().ok());
        let pid = number.and_then(Pid::from_raw).expect("a process");
        lines.find(|line| line.contains("waiting for changes")).expect("the first run is done");
        kill_process(pid, Signal::INT).expect("a signal");
    });
    let (printed, _) = attached(command, 80, |command, terminal| {
        command.stdout(terminal).stderr(stderr);
    });
    ends.join().expect("the signal was sent");
    assert!(printed.starts_with("\u{1b}[H\u{1b}[2J\u{1b}[3J1 skill, 0 errors"), "{printed:?}");
}
