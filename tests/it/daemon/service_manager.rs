//! Messages of the real binary to a service manager: ready, status, watchdog and stopping.

use std::os::unix::net::UnixDatagram;
use std::process::Command;

use rustix::process::Signal;

use crate::harness::HANG_TIMEOUT;
use crate::harness::fixture::Fixture;
use crate::harness::process::{Process, caproot, program, wrap_command};

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
        socket
            .set_read_timeout(Some(HANG_TIMEOUT))
            .expect("a time-out");
        Self { fixture, socket }
    }

    /// Command of a daemon that notifies this service manager.
    fn command(&self, watchdog_usec: &str) -> Command {
        let mut command = caproot(["serve", "--root"]);
        command.arg(self.fixture.path("root"));
        command.arg("--listen").arg(format!(
            "unix:{}",
            self.fixture.path("run/c.sock").display()
        ));
        command.env("NOTIFY_SOCKET", self.fixture.path("run/notify"));
        command.env("WATCHDOG_USEC", watchdog_usec);
        command
    }

    /// Returns the next message with a line that starts with `prefix`.
    fn next_message(&self, prefix: &str) -> String {
        let mut buffer = [0; 4_096];
        loop {
            let bytes = self
                .socket
                .recv(&mut buffer)
                .unwrap_or_else(|e| panic!("{prefix}: {e}"));
            let text = String::from_utf8_lossy(&buffer[..bytes]);
            if text.lines().any(|line| line.starts_with(prefix)) {
                return text.into_owned();
            }
        }
    }
}

#[tokio::test]
async fn the_service_manager_gets_ready_status_watchdog_and_stopping() {
    let manager = Manager::new();
    let serving = Process::start(manager.command("3000000"));
    let ready = manager.next_message("READY=1");
    assert!(
        ready.contains("STATUS=1 published roots (0 unavailable, 0 pending), 0 polled, 1 skills"),
        "{ready}"
    );
    manager.next_message("WATCHDOG=1");
    manager
        .fixture
        .write("root/c/SKILL.md", "---\nname: c\ndescription: C.\n---\n");
    // No client uses the root. The daemon watches it for the status anyway.
    while !manager.next_message("STATUS=").contains("2 skills") {}
    manager.next_message("WATCHDOG=1");
    serving.send_signal(Signal::TERM);
    manager.next_message("STOPPING=1");
    serving.stop().await;
}

#[tokio::test]
async fn no_watchdog_ping_is_sent_if_inotify_does_not_respond() {
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
    let command = manager.command("600000");
    let skipped = "strace is missing or may not trace";
    let Some(command) = wrap_command(wrapper, command, skipped) else {
        return;
    };
    let serving = Process::start(command);
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
        serving.stop().await
    };
    assert!(log.contains("watchdog ping suppressed"), "{log}");
}

#[tokio::test]
async fn lines_for_the_journal_have_a_priority_and_no_time() {
    let manager = Manager::new();
    manager.fixture.write("log", "");
    let log = manager.fixture.path("log");
    for (stream, start) in [
        ("$(stat -Lc %d:%i \"$0\")", "<5> INFO caproot"),
        // A variable that the daemon inherited with another stderr.
        ("1:1", "20"),
    ] {
        let daemon = manager.command("0");
        let mut shell = program("sh");
        let script = format!("JOURNAL_STREAM={stream} exec \"$@\" 2>\"$0\"");
        shell.args(["-c", &script]).arg(&log);
        shell.arg(daemon.get_program()).args(daemon.get_args());
        Process::start(shell).stop().await;
        let text = std::fs::read_to_string(&log).expect("the log");
        assert!(text.starts_with(start), "{text}");
        assert!(!text.contains("ERROR"), "{text}");
    }
}

#[tokio::test]
async fn a_default_root_that_is_created_at_home_starts_a_new_process() {
    let manager = Manager::new();
    let fixture = &manager.fixture;
    std::fs::create_dir_all(fixture.path("home")).expect("a home");
    let mut command = caproot(["serve", "--listen"]);
    command
        .arg(format!("unix:{}", fixture.path("run/c.sock").display()))
        .current_dir(fixture.path("run"))
        .env("HOME", fixture.path("home"))
        .env("NOTIFY_SOCKET", fixture.path("run/notify"));
    let create_root = || {
        fixture.write(
            "home/.agents/skills/a/SKILL.md",
            "---\nname: a\ndescription: Does a.\n---\n",
        );
    };

    let mut process = Process::start(&mut command);
    manager.next_message("READY=1");
    let log = process.log_line().await;
    if !log.contains("landlock=\"enforced\"") {
        println!("SKIPPED: this kernel does not have the required Landlock version: {log}");
        process.stop().await;
        return;
    }
    create_root();
    manager.next_message("STATUS=restarting for the new root user");
    let ended = process.exit().await;
    assert_eq!(ended.code, Some(75), "{}", ended.stderr);

    // The next process reads the root, and does not end again.
    let process = Process::start(&mut command);
    let ready = manager.next_message("READY=1");
    assert!(ready.contains(" 1 skills"), "{ready}");
    process.stop().await;

    // Without a service manager, the log says what to do.
    std::fs::remove_dir_all(fixture.path("home/.agents")).expect("removed");
    command.env_remove("NOTIFY_SOCKET");
    let mut process = Process::start(&mut command);
    create_root();
    process.wait_for_log("restart the daemon").await;
    process.stop().await;
}
