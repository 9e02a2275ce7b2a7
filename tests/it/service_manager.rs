//! Messages of the real binary to a service manager: ready, status, watchdog and stopping.

use std::os::unix::net::UnixDatagram;
use std::process::Command;

use rustix::process::Signal;

use crate::binary::DaemonProcess;
use crate::fixture::Fixture;
use crate::harness::HANG_TIMEOUT;

/// Service manager with its notification socket.
struct Manager {
    fixture: Fixture,
    socket: UnixDatagram,
}

impl Manager {
    fn new() -> Self {
        let fixture =
            Fixture::new("dir run\nmode 0700 run\nskill root/a\nfile root/b/SKILL.md\n| no");
        let socket = UnixDatagram::bind(fixture.path("run/notify")).expect("a socket");
        socket.set_read_timeout(Some(HANG_TIMEOUT)).expect("a time-out");
        Self { fixture, socket }
    }

    /// Starts a daemon, optionally through another program.
    fn start(&self, wrapper: &[&str], watchdog_usec: &str) -> DaemonProcess {
        let binary = env!("CARGO_BIN_EXE_caproot");
        let mut words = wrapper.iter().copied().chain([binary, "serve"]);
        let mut command = Command::new(words.next().expect("a program"));
        command.args(words).env_clear().env("HOME", "/nonexistent");
        command.arg("--root").arg(self.fixture.path("root"));
        command.arg("--listen").arg(format!("unix:{}", self.fixture.path("run/c.sock").display()));
        command.env("NOTIFY_SOCKET", self.fixture.path("run/notify"));
        command.env("WATCHDOG_USEC", watchdog_usec).env("PATH", "/usr/bin:/bin");
        DaemonProcess::spawn(&mut command)
    }

    /// Returns the next message with a line that starts with `prefix`.
    fn next_message(&self, prefix: &str) -> String {
        let mut buffer = [0; 4_096];
        loop {
            let bytes = self.socket.recv(&mut buffer).unwrap_or_else(|e| panic!("{prefix}: {e}"));
            let text = String::from_utf8_lossy(&buffer[..bytes]);
            if text.lines().any(|line| line.starts_with(prefix)) {
                return text.into_owned();
            }
        }
    }
}

#[test]
fn the_service_manager_gets_ready_status_watchdog_and_stopping() {
    let manager = Manager::new();
    let serving = manager.start(&[], "3000000");
    let ready = manager.next_message("READY=1");
    assert!(
        ready.contains("STATUS=1 roots (0 unavailable, 0 pending, 0 polled), 1 skills"),
        "{ready}"
    );
    manager.next_message("WATCHDOG=1");
    manager.fixture.write("root/c/SKILL.md", "---\nname: c\ndescription: C.\n---\n");
    // No client uses the root. The daemon watches it for the status anyway.
    while !manager.next_message("STATUS=").contains("2 skills") {}
    manager.next_message("WATCHDOG=1");
    serving.send_signal(Signal::TERM);
    manager.next_message("STOPPING=1");
    assert_eq!(serving.terminate().0, Some(0));
}

#[test]
fn no_watchdog_ping_is_sent_if_inotify_does_not_respond() {
    let manager = Manager::new();
    // Fails the read calls of inotify and no others.
    let wrapper = [
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
        println!("SKIPPED: strace is not installed");
        return;
    }
    let serving = manager.start(&wrapper, "600000");
    manager.next_message("READY=1");
    let log = {
        // Long enough for several watchdog intervals. No ping may arrive meanwhile.
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
