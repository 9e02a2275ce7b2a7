//! What the log of the real binary tells an operator of the published roots, without being asked.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use crate::binary::run;
use crate::fixture::Fixture;
use crate::harness::HANG;

/// A daemon whose log is read as it comes.
struct Logging {
    child: Child,
    lines: Receiver<String>,
}

impl Logging {
    fn start(fixture: &Fixture, before: &[&str]) -> Self {
        let words = before.iter().copied().chain([env!("CARGO_BIN_EXE_caproot"), "serve"]);
        let words: Vec<_> = words.collect();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).env_clear().env("PATH", "/usr/bin:/bin").env("HOME", "/none");
        command.arg("--root").arg(fixture.path("demo"));
        command.args(["--listen", &endpoint(fixture)]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary runs");
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        let stderr = BufReader::new(child.stderr.take().expect("piped"));
        let (send, lines) = channel();
        thread::spawn(move || stderr.lines().map_while(Result::ok).try_for_each(|l| send.send(l)));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("text");
        assert!(line.starts_with("listening "), "{line}");
        Self { child, lines }
    }

    /// The next line with this in it.
    fn line(&self, part: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(HANG).unwrap_or_else(|e| panic!("{part}: {e}"));
            if line.contains(part) {
                return line;
            }
        }
    }
}

impl Drop for Logging {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn endpoint(fixture: &Fixture) -> String {
    format!("unix:{}", fixture.path("run/c.sock").display())
}

fn fixture() -> Fixture {
    Fixture::new("dir run\nmode 0700 run\nrepeat 9 skill demo/s{}")
}

#[test]
fn a_root_that_vanishes_and_comes_back() {
    let fixture = fixture();
    let daemon = Logging::start(&fixture, &["env"]);
    assert_eq!(run(["list", "--endpoint", &endpoint(&fixture)]).code, Some(0));
    for _ in 0..2 {
        fs::rename(fixture.path("demo"), fixture.path("away")).expect("rename");
        let line = daemon.line("published root unavailable");
        assert!(
            line.contains("WARN") && line.contains(r#"root="demo" reason="NOT_FOUND""#),
            "{line}"
        );
        fs::rename(fixture.path("away"), fixture.path("demo")).expect("rename");
        let line = daemon.line("published root recovered");
        assert!(line.contains("INFO") && line.contains(r#"root="demo""#), "{line}");
    }
}

#[test]
fn a_root_that_is_polled() {
    let script = "echo 5 > /proc/sys/user/max_inotify_watches && exec \"$@\"";
    let before = ["unshare", "--user", "--map-root-user", "sh", "-c", script, "sh"];
    let possible = Command::new(before[0]).args(&before[1..]).arg("true").status();
    if !possible.is_ok_and(|status| status.success()) {
        println!("SKIPPED: no user namespaces here, so the limit of watches cannot be set");
        return;
    }
    let fixture = fixture();
    let daemon = Logging::start(&fixture, &before);
    assert_eq!(run(["list", "--endpoint", &endpoint(&fixture)]).code, Some(0));
    let line = daemon.line("published root is polled");
    assert!(line.contains("inotify watch limit reached"), "{line}");
}
