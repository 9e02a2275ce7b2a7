//! `caproot watch` as a process: its lines, its JSON, how it gets over a restart, and how it ends.

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

use crate::binary::Serving;
use crate::fixture::Fixture;
use crate::harness::HANG;

/// `caproot watch`, its output line by line.
struct Watching {
    child: Child,
    stdout: Receiver<String>,
    stderr: Receiver<String>,
}

fn lines(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (send, receive) = channel();
    thread::spawn(move || {
        // Whoever listened may have gone.
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

impl Watching {
    fn start(endpoint: &str, flags: &[&str]) -> Self {
        let mut child = spawn(endpoint, flags);
        let stdout = lines(child.stdout.take().expect("piped"));
        let stderr = lines(child.stderr.take().expect("piped"));
        Self { child, stdout, stderr }
    }

    fn line(&self) -> String {
        self.stdout.recv_timeout(HANG).expect("a line on stdout")
    }

    /// A line without its time, which must be one.
    fn said(&self) -> String {
        let line = self.line();
        let (time, said) = line.split_once(' ').expect("a time and more");
        let numbers: Vec<u8> = time.split(':').map(|n| n.parse().expect("a number")).collect();
        assert!(matches!(numbers[..], [0..24, 0..60, 0..61]) && time.len() == 8, "{line}");
        said.to_owned()
    }

    fn complaint(&self) -> String {
        self.stderr.recv_timeout(HANG).expect("a line on stderr")
    }

    fn interrupt(mut self) -> Option<i32> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a pid");
        kill_process(pid, Signal::INT).expect("a signal");
        self.code()
    }

    fn code(&mut self) -> Option<i32> {
        while self.stdout.recv_timeout(HANG).is_ok() {}
        self.child.wait().expect("wait").code()
    }
}

impl Drop for Watching {
    /// A test that failed leaves nothing behind.
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn skill(name: &str, says: &str) -> String {
    format!("---\nname: {name}\ndescription: {says}\n---\n")
}

/// A daemon that publishes `r`, on a socket that it can be started on again.
fn serve(fixture: &Fixture) -> Serving {
    let listen = format!("unix:{}", fixture.path("run/c.sock").display());
    let root = format!("r={}", fixture.path("r").display());
    Serving::start(&["--root", &root, "--listen", &listen].map(OsStr::new))
}

fn tree() -> Fixture {
    Fixture::new("dir run\nmode 0700 run\nskill r/a")
}

#[test]
fn a_line_for_each_change_until_it_is_interrupted() {
    let fixture = tree();
    let serving = serve(&fixture);
    let watching = Watching::start(serving.endpoint(), &[]);
    assert_eq!(watching.said(), "+ a  skill://r/a  Does a.");
    assert!(watching.said().starts_with("= synced at revision "));

    fixture.write("new/SKILL.md", skill("b", "Sees\u{202e} you."));
    fs::rename(fixture.path("new"), fixture.path("r/b")).expect("rename");
    assert_eq!(watching.said(), r"+ b  skill://r/b  Sees\u{202e} you.");
    let hidden = watching.said();
    assert!(hidden.starts_with("! warning[HIDDEN_TEXT] skill://r/b/SKILL.md:3:18: "), "{hidden}");

    fixture.write("next", skill("b", "Another."));
    fs::rename(fixture.path("next"), fixture.path("r/b/SKILL.md")).expect("rename");
    assert_eq!(watching.said(), "~ b  skill://r/b  Another.");

    fixture.write("next", "---\nname: b\ndescription: \"open\n---\n");
    fs::rename(fixture.path("next"), fixture.path("r/b/SKILL.md")).expect("rename");
    let stale = watching.said();
    assert!(stale.starts_with("~ b  skill://r/b  stale: error[YAML_SYNTAX] line "), "{stale}");

    fixture.write("next", skill("b", "Whole again."));
    fs::rename(fixture.path("next"), fixture.path("r/b/SKILL.md")).expect("rename");
    assert_eq!(watching.said(), "~ b  skill://r/b  Whole again.");

    fs::rename(fixture.path("r/b"), fixture.path("gone")).expect("rename");
    assert_eq!(watching.said(), "- b  skill://r/b  DELETED");

    fs::rename(fixture.path("r"), fixture.path("elsewhere")).expect("rename");
    let root = watching.said();
    assert!(root.starts_with("! root r: UNAVAILABLE NOT_FOUND "), "{root}");
    assert_eq!(watching.said(), "- a  skill://r/a  ROOT_UNAVAILABLE");
    fs::rename(fixture.path("elsewhere"), fixture.path("r")).expect("rename");
    assert_eq!(watching.said(), "! root r: READY");
    assert_eq!(watching.said(), "+ a  skill://r/a  Does a.");

    assert_eq!(watching.interrupt(), Some(0));
    assert_eq!(serving.terminate().0, Some(0));
}

#[test]
fn json_lines_are_the_events_and_apply() {
    let fixture = tree();
    let serving = serve(&fixture);
    let watching = Watching::start(serving.endpoint(), &["--output", "json"]);
    let mut held = BTreeMap::new();
    let mut until = |whole: &[(&str, &str)]| {
        loop {
            let value = serde_json::from_str(&watching.line()).expect("JSON");
            let heard: WatchSkillsResponse = json::parse(value).expect("an event");
            match heard.event.expect("an event") {
                Event::Delta(delta) => {
                    for gone in delta.removed {
                        assert!(held.remove(&gone.package).is_some());
                    }
                    held.extend(delta.upserted.into_iter().map(|s| (s.package, s.description)));
                }
                Event::Synced(_) => {
                    let now: Vec<_> = held.iter().map(|(p, d)| (p.as_str(), d.as_str())).collect();
                    if now == whole {
                        return;
                    }
                }
                Event::Bookmark(_) => panic!("nobody asked for bookmarks"),
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
fn a_restart_of_the_daemon_is_got_over() {
    let fixture = tree();
    let serving = serve(&fixture);
    let mut watching = Watching::start(serving.endpoint(), &[]);
    assert_eq!(watching.said(), "+ a  skill://r/a  Does a.");
    assert!(watching.said().starts_with("= synced at revision "));
    let endpoint = serving.endpoint().to_owned();
    assert_eq!(serving.terminate().0, Some(0));
    let complaint = watching.complaint();
    assert!(complaint.starts_with("caproot: ") && complaint.contains("reconnecting"));

    fixture.write("r/b/SKILL.md", skill("b", "Came meanwhile."));
    let serving = serve(&fixture);
    assert_eq!(serving.endpoint(), endpoint);
    let resumed = loop {
        let complaint = watching.complaint();
        if complaint.contains("reconnected;") {
            break complaint;
        }
    };
    assert!(resumed.contains("EPOCH_CHANGED"), "a new start, told of the old one: {resumed}");
    assert_eq!(watching.said(), "+ b  skill://r/b  Came meanwhile.", "only what differs");
    assert!(watching.said().starts_with("= synced at revision "));
    fixture.write("r/b/SKILL.md", skill("b", "Goes on."));
    assert_eq!(watching.said(), "~ b  skill://r/b  Goes on.");
    assert_eq!(serving.terminate().0, Some(0));
    // The one who watches alone decides when it ends.
    assert!(watching.child.try_wait().expect("wait").is_none());
    assert_eq!(watching.interrupt(), Some(0));
}

#[test]
fn a_reader_that_leaves_ends_it_though_nothing_changes() {
    let fixture = tree();
    let serving = serve(&fixture);
    let mut child = spawn(serving.endpoint(), &[]);
    let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    stdout.read_line(&mut line).expect("text");
    assert!(line.contains(" + a "), "{line}");
    drop(stdout);
    let stderr = lines(child.stderr.take().expect("piped"));
    assert!(stderr.recv_timeout(HANG).is_err(), "it ends and says nothing");
    assert_eq!(child.wait().expect("wait").code(), Some(0));
    assert_eq!(serving.terminate().0, Some(0));
}

#[test]
fn what_will_never_go_well_is_not_tried_again() {
    let fixture = tree();
    let serving = serve(&fixture);
    fs::write(fixture.path("roots.json"), r#"[{"id":".."}]"#).expect("write");
    let file = fixture.path("roots.json");
    let flags = ["--selected", file.to_str().expect("UTF-8")];
    let mut refused = Watching::start(serving.endpoint(), &flags);
    assert!(refused.complaint().contains("INVALID_ARGUMENT"));
    assert_eq!(refused.code(), Some(4));
    let endpoint = serving.endpoint().to_owned();
    assert_eq!(serving.terminate().0, Some(0));
    assert_eq!(Watching::start(&endpoint, &[]).code(), Some(3), "no daemon to begin with");
}
