//! What a service manager is told by the real binary: ready, status, alive, stopping.

use std::os::unix::net::UnixDatagram;
use std::process::Command;

use rustix::process::Signal;

use crate::binary::Serving;
use crate::fixture::Fixture;
use crate::harness::HANG;

/// The manager's end.
struct Manager {
    fixture: Fixture,
    socket: UnixDatagram,
}

impl Manager {
    fn new() -> Self {
        let fixture =
            Fixture::new("dir run\nmode 0700 run\nskill root/a\nfile root/b/SKILL.md\n| no");
        let socket = UnixDatagram::bind(fixture.path("run/notify")).expect("a socket");
        socket.set_read_timeout(Some(HANG)).expect("a time-out");
        Self { fixture, socket }
    }

    /// A daemon that it starts, by a program in front or by itself.
    fn start(&self, before: &[&str], watchdog_usec: &str) -> Serving {
        let binary = env!("CARGO_BIN_EXE_caproot");
        let mut words = before.iter().copied().chain([binary, "serve"]);
        let mut command = Command::new(words.next().expect("a program"));
        command.args(words).env_clear().env("HOME", "/nonexistent");
        command.arg("--root").arg(self.fixture.path("root"));
        command.arg("--listen").arg(format!("unix:{}", self.fixture.path("run/c.sock").display()));
        command.env("NOTIFY_SOCKET", self.fixture.path("run/notify"));
        command.env("WATCHDOG_USEC", watchdog_usec).env("PATH", "/usr/bin:/bin");
        Serving::of(&mut command)
    }

    /// The next message that is about this.
    fn told(&self, about: &str) -> String {
        let mut buffer = [0; 4_096];
        loop {
            let bytes = self.socket.recv(&mut buffer).unwrap_or_else(|e| panic!("{about}: {e}"));
            let text = String::from_utf8_lossy(&buffer[..bytes]);
            if text.lines().any(|line| line.starts_with(about)) {
                return text.into_owned();
            }
        }
    }
}

#[test]
fn a_manager_hears_of_its_whole_life() {
    let manager = Manager::new();
    let serving = manager.start(&[], "3000000");
    let ready = manager.told("READY=1");
    assert!(
        ready.contains("STATUS=1 roots (0 unavailable, 0 pending, 0 polled), 1 skills"),
        "{ready}"
    );
    manager.told("WATCHDOG=1");
    manager.fixture.write("root/c/SKILL.md", "---\nname: c\ndescription: C.\n---\n");
    // Nobody but the manager wants the root: it is looked after all the same.
    while !manager.told("STATUS=").contains("2 skills") {}
    manager.told("WATCHDOG=1");
    serving.send(Signal::TERM);
    manager.told("STOPPING=1");
    assert_eq!(serving.terminate().0, Some(0));
}

#[test]
fn a_watcher_that_tells_nothing_starves_the_watchdog() {
    let manager = Manager::new();
    // The reads of inotify, and no others.
    let before = [
        "strace",
        "-D",
        "-f",
        "-qq",
        "-o",
        "/dev/null",
        "-P",
        "anon_inode:inotify",
        "-e",
        "trace=read",
        "-e",
        "inject=read:error=EAGAIN",
    ];
    if Command::new("strace").arg("-V").output().is_err() {
        println!("SKIPPED: there is no strace to stop the watcher with");
        return;
    }
    let serving = manager.start(&before, "600000");
    manager.told("READY=1");
    let log = {
        // Long enough for several pauses; what counts is that nothing is fed meanwhile.
        manager
            .socket
            .set_read_timeout(Some(std::time::Duration::from_secs(2)))
            .expect("a time-out");
        let mut buffer = [0; 4_096];
        while let Ok(bytes) = manager.socket.recv(&mut buffer) {
            let text = String::from_utf8_lossy(&buffer[..bytes]);
            assert!(!text.contains("WATCHDOG=1"), "{text}");
        }
        serving.terminate().1
    };
    assert!(log.contains("watchdog ping suppressed"), "{log}");
}
