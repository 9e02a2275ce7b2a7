//! Runs `caproot watch` as a process: lines, JSON, a restart of the daemon, and the exit.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead as _, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use caproot::client::json;
use caproot::proto::caproot::v1::WatchSkillsResponse;
use caproot::proto::caproot::v1::watch_skills_response::Event;
use rustix::process::{Pid, Signal, kill_process};

use crate::binary::DaemonProcess;
use crate::fixture::Fixture;
use crate::harness::HANG_TIMEOUT;

/// Running `caproot watch` with its output line by line.
struct WatchProcess {
    child: Child,
    stdout: Receiver<String>,
    stderr: Receiver<String>,
}

fn read_lines(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (send, receive) = channel();
    thread::spawn(move || {
        // The receiver may have gone.
        BufReader::new(pipe).lines().try_for_each(|line| send.send(line.expect("text")))
    });
    receive
}

fn spawn(endpoint: &str, flags: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_caproot"));
    command.args(["watch", "--endpoint", endpoint]).args(flags);
    command.env_clear().env("HOME", "/nonexistent").stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs")
}

impl WatchProcess {
    fn start(endpoint: &str, flags: &[&str]) -> Self {
        let mut child = spawn(endpoint, flags);
        let stdout = read_lines(child.stdout.take().expect("piped"));
        let stderr = read_lines(child.stderr.take().expect("piped"));
        Self { child, stdout, stderr }
    }

    fn line(&self) -> String {
        self.stdout.recv_timeout(HANG_TIMEOUT).expect("a line on stdout")
    }

    /// Returns the next line without its time, which must be valid.
    fn untimed_line(&self) -> String {
        let line = self.line();
        let (time, rest) = line.split_once(' ').expect("a time and more");
        let numbers: Vec<u8> = time.split(':').map(|n| n.parse().expect("a number")).collect();
        assert!(matches!(numbers[..], [0..24, 0..60, 0..61]) && time.len() == 8, "{line}");
        rest.to_owned()
    }

    fn stderr_line(&self) -> String {
        self.stderr.recv_timeout(HANG_TIMEOUT).expect("a line on stderr")
    }

    fn interrupt(mut self) -> Option<i32> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a pid");
        kill_process(pid, Signal::INT).expect("a signal");
        self.exit_code()
    }

    fn exit_code(&mut self) -> Option<i32> {
        while self.stdout.recv_timeout(HANG_TIMEOUT).is_ok() {}
        self.child.wait().expect("wait").code()
    }
}

impl Drop for WatchProcess {
    /// Kills the process, so that a failed test leaves nothing behind.
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn skill(name: &str, says: &str) -> String {
    format!("---\nname: {name}\ndescription: {says}\n---\n")
}

/// Daemon that publishes `r` on a socket at which it can be started again.
fn serve(fixture: &Fixture) -> DaemonProcess {
    let listen = format!("unix:{}", fixture.path("run/c.sock").display());
    let root = format!("r={}", fixture.path("r").display());
    DaemonProcess::start(&["--root", &root, "--listen", &listen].map(OsStr::new))
}

fn tree() -> Fixture {
    Fixture::new("dir run\nmode 0700 run\nskill r/a")
}

#[test]
fn each_change_is_printed_until_the_command_is_interrupted() {
    let fixture = tree();
    let serving = serve(&fixture);
    let watching = WatchProcess::start(serving.endpoint(), &[]);
    assert_eq!(watching.untimed_line(), "+ a  skill://r/a  Does a.");
    assert!(watching.untimed_line().starts_with("= synced at revision "));

    fixture.write("new/SKILL.md", skill("b", "Sees\u{202e} you."));
    fs::rename(fixture.path("new"), fixture.path("r/b")).expect("rename");
    assert_eq!(watching.untimed_line(), r"+ b  skill://r/b  Sees\u{202e} you.");
    let hidden = watching.untimed_line();
    assert!(hidden.starts_with("! warning[HIDDEN_TEXT] skill://r/b/SKILL.md:3:18: "), "{hidden}");

    fixture.write("next", skill("b", "Another."));
    fs::rename(fixture.path("next"), fixture.path("r/b/SKILL.md")).expect("rename");
    assert_eq!(watching.untimed_line(), "~ b  skill://r/b  Another.");

    fixture.write("next", "---\nname: b\ndescription: \"open\n---\n");
    fs::rename(fixture.path("next"), fixture.path("r/b/SKILL.md")).expect("rename");
    let stale = watching.untimed_line();
    assert!(stale.starts_with("~ b  skill://r/b  stale: error[YAML_SYNTAX] line "), "{stale}");

    fixture.write("next", skill("b", "Whole again."));
    fs::rename(fixture.path("next"), fixture.path("r/b/SKILL.md")).expect("rename");
    assert_eq!(watching.untimed_line(), "~ b  skill://r/b  Whole again.");

    fs::rename(fixture.path("r/b"), fixture.path("gone")).expect("rename");
    assert_eq!(watching.untimed_line(), "- b  skill://r/b  DELETED");

    fs::rename(fixture.path("r"), fixture.path("elsewhere")).expect("rename");
    let root = watching.untimed_line();
    assert!(root.starts_with("! root r: UNAVAILABLE NOT_FOUND "), "{root}");
    assert_eq!(watching.untimed_line(), "- a  skill://r/a  ROOT_UNAVAILABLE");
    fs::rename(fixture.path("elsewhere"), fixture.path("r")).expect("rename");
    assert_eq!(watching.untimed_line(), "! root r: READY");
    assert_eq!(watching.untimed_line(), "+ a  skill://r/a  Does a.");

    assert_eq!(watching.interrupt(), Some(0));
    assert_eq!(serving.terminate().0, Some(0));
}

#[test]
fn json_lines_are_the_events_of_the_stream() {
    let fixture = tree();
    let serving = serve(&fixture);
    let watching = WatchProcess::start(serving.endpoint(), &["--output", "json"]);
    let mut skills = BTreeMap::new();
    let mut until = |whole: &[(&str, &str)]| {
        loop {
            let value = serde_json::from_str(&watching.line()).expect("JSON");
            let response: WatchSkillsResponse = json::parse(value).expect("an event");
            match response.event.expect("an event") {
                Event::Delta(delta) => {
                    for gone in delta.removed {
                        assert!(skills.remove(&gone.package).is_some());
                    }
                    skills.extend(delta.upserted.into_iter().map(|s| (s.package, s.description)));
                }
                Event::Synced(_) => {
                    let now: Vec<_> =
                        skills.iter().map(|(p, d)| (p.as_str(), d.as_str())).collect();
                    if now == whole {
                        return;
                    }
                }
                Event::Bookmark(_) => panic!("no bookmarks were requested"),
                Event::Reset(_) | Event::RootStatus(_) | Event::Diagnostics(_) => {}
            }
        }
    };
    until(&[("skill://r/a", "Does a.")]);
    fixture.write("r/b/SKILL.md", skill("b", "Does b."));
    until(&[("skill://r/a", "Does a."), ("skill://r/b", "Does b.")]);
    fs::remove_dir_all(fixture.path("r/a")).expect("remove");
    until(&[("skill://r/b", "Does b.")]);
    assert_eq!(watching.interrupt(), Some(0));
    assert_eq!(serving.terminate().0, Some(0));
}

#[test]
fn the_command_survives_a_restart_of_the_daemon() {
    let fixture = tree();
    let serving = serve(&fixture);
    let mut watching = WatchProcess::start(serving.endpoint(), &[]);
    assert_eq!(watching.untimed_line(), "+ a  skill://r/a  Does a.");
    assert!(watching.untimed_line().starts_with("= synced at revision "));
    let endpoint = serving.endpoint().to_owned();
    assert_eq!(serving.terminate().0, Some(0));
    let stderr_line = watching.stderr_line();
    assert!(stderr_line.starts_with("caproot: ") && stderr_line.contains("reconnecting"));

    fixture.write("r/b/SKILL.md", skill("b", "Came meanwhile."));
    let serving = serve(&fixture);
    assert_eq!(serving.endpoint(), endpoint);
    let resumed = loop {
        let stderr_line = watching.stderr_line();
        if stderr_line.contains("reconnected;") {
            break stderr_line;
        }
    };
    assert!(resumed.contains("EPOCH_CHANGED"), "the stream resumes with the old token: {resumed}");
    assert_eq!(watching.untimed_line(), "+ b  skill://r/b  Came meanwhile.", "only what differs");
    assert!(watching.untimed_line().starts_with("= synced at revision "));
    fixture.write("r/b/SKILL.md", skill("b", "Goes on."));
    assert_eq!(watching.untimed_line(), "~ b  skill://r/b  Goes on.");
    assert_eq!(serving.terminate().0, Some(0));
    // The command runs until its user ends it.
    assert!(watching.child.try_wait().expect("wait").is_none());
    assert_eq!(watching.interrupt(), Some(0));
}

#[test]
fn a_closed_stdout_ends_the_command_without_a_change() {
    let fixture = tree();
    let serving = serve(&fixture);
    let mut child = spawn(serving.endpoint(), &[]);
    let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    stdout.read_line(&mut line).expect("text");
    assert!(line.contains(" + a "), "{line}");
    drop(stdout);
    let stderr = read_lines(child.stderr.take().expect("piped"));
    assert!(stderr.recv_timeout(HANG_TIMEOUT).is_err(), "the command exits without output");
    assert_eq!(child.wait().expect("wait").code(), Some(0));
    assert_eq!(serving.terminate().0, Some(0));
}

#[test]
fn permanent_errors_are_not_retried() {
    let fixture = tree();
    let serving = serve(&fixture);
    fs::write(fixture.path("roots.json"), r#"[{"id":".."}]"#).expect("write");
    let file = fixture.path("roots.json");
    let flags = ["--selected", file.to_str().expect("UTF-8")];
    let mut refused = WatchProcess::start(serving.endpoint(), &flags);
    assert!(refused.stderr_line().contains("INVALID_ARGUMENT"));
    assert_eq!(refused.exit_code(), Some(4));
    let endpoint = serving.endpoint().to_owned();
    assert_eq!(serving.terminate().0, Some(0));
    assert_eq!(WatchProcess::start(&endpoint, &[]).exit_code(), Some(3), "no daemon at the start");
}
