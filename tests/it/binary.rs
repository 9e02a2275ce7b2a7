//! Runs the real binary as a process and checks its output, its exit code and its socket.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead as _, BufReader, Read};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::runtime::Handle;

use crate::fixture::Fixture;
use crate::harness::HANG_TIMEOUT;

const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/trees/demo");

/// Command of the binary with an empty environment.
fn caproot<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_caproot"));
    command.args(args).env_clear().env("HOME", "/nonexistent").stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Reads a pipe to its end on another thread, so that a full pipe does not block the process.
fn collect(mut pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (send, receive) = channel();
    thread::spawn(move || {
        let mut text = String::new();
        pipe.read_to_string(&mut text).expect("text");
        drop(send.send(text));
    });
    receive
}

/// Exit code and output of a process.
pub(crate) struct ProcessOutput {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Waits for a process that exits by itself.
fn wait_for_output(mut child: Child) -> ProcessOutput {
    let stdout = collect(child.stdout.take().expect("piped"));
    let stderr = collect(child.stderr.take().expect("piped"));
    let Ok(stdout) = stdout.recv_timeout(HANG_TIMEOUT) else {
        child.kill().expect("kill");
        panic!("the process does not end");
    };
    let stderr = stderr.recv_timeout(HANG_TIMEOUT).expect("stderr closes with stdout");
    ProcessOutput { code: child.wait().expect("wait").code(), stdout, stderr }
}

/// Runs the binary to its end.
pub(crate) fn run<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> ProcessOutput {
    wait_for_output(caproot(args).spawn().expect("the binary runs"))
}

/// Asserts that the process fails at startup with one sentence and this exit code.
fn assert_startup_fails<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>, code: i32, says: &str) {
    let mut child = caproot(args).spawn().expect("the binary runs");
    let mut line = String::new();
    let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
    stdout.read_line(&mut line).expect("text");
    if !line.is_empty() {
        child.kill().expect("kill");
        panic!("started: {line}, expected an error with {says:?}");
    }
    let stderr = collect(child.stderr.take().expect("piped"));
    let stderr = stderr.recv_timeout(HANG_TIMEOUT).expect("the process exits");
    assert_eq!(child.wait().expect("wait").code(), Some(code), "{stderr}");
    assert_eq!(stderr.trim_end().lines().count(), 1, "one sentence: {stderr}");
    assert!(stderr.contains(says), "{says:?} in {stderr}");
}

/// Running `caproot serve`, ready to accept connections.
pub(crate) struct DaemonProcess {
    child: Child,
    endpoints: Vec<String>,
    stderr: Receiver<String>,
}

impl DaemonProcess {
    /// Starts the daemon with flags and waits for its `listening` line.
    pub(crate) fn start(flags: &[&OsStr]) -> Self {
        Self::launch(&mut Self::command(flags), 1)
    }

    /// Command that starts the daemon with flags.
    pub(crate) fn command(flags: &[&OsStr]) -> Command {
        caproot([&[OsStr::new("serve")], flags].concat())
    }

    /// Starts the daemon with a command of the caller and one listener.
    pub(crate) fn spawn(command: &mut Command) -> Self {
        Self::spawn_with_lines(command, 1)
    }

    /// Starts the daemon and waits for this many `listening` and `metrics` lines.
    pub(crate) fn spawn_with_lines(command: &mut Command, lines: usize) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self::launch(command, lines)
    }

    fn launch(command: &mut Command, listeners: usize) -> Self {
        let mut child = command.spawn().expect("the binary runs");
        let stderr = collect(child.stderr.take().expect("piped"));
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let endpoints = (0..listeners).map(|_| {
            let line = lines.next().map(|l| l.expect("text"));
            let line =
                line.unwrap_or_else(|| panic!("no listener: {}", stderr.recv().expect("end")));
            let endpoint = line.strip_prefix("listening ").or(line.strip_prefix("metrics "));
            endpoint.expect("a line `listening …`").to_owned()
        });
        let endpoints = endpoints.collect();
        thread::spawn(move || {
            assert_eq!(lines.count(), 0, "stdout is for `listening` lines only");
        });
        Self { child, endpoints, stderr }
    }

    /// Address of the first listener, as the daemon printed it.
    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoints[0]
    }

    /// Addresses of all listeners and of the metrics endpoint.
    pub(crate) fn endpoints(&self) -> &[String] {
        &self.endpoints
    }

    /// Sends SIGTERM, waits for the end, and returns the exit code and the log.
    ///
    /// If called within a runtime. The runtime would block, and the daemon would wait 10 s for
    /// clients that cannot close their connections. Use [`Self::terminate_async`] there.
    pub(crate) fn terminate(self) -> (Option<i32>, String) {
        assert!(Handle::try_current().is_err(), "await terminate_async() in a runtime");
        self.signal_and_wait(Signal::TERM)
    }

    /// Sends SIGTERM like [`Self::terminate`], but keeps the runtime running so that clients can
    /// close.
    pub(crate) async fn terminate_async(self) -> (Option<i32>, String) {
        let ended = tokio::task::spawn_blocking(move || self.signal_and_wait(Signal::TERM));
        ended.await.expect("the daemon exits")
    }

    /// Process id of the daemon.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal and does not wait.
    pub(crate) fn send_signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a pid");
        kill_process(pid, signal).expect("a signal");
    }

    fn signal_and_wait(self, signal: Signal) -> (Option<i32>, String) {
        self.send_signal(signal);
        self.wait_for_exit()
    }

    /// Waits until the daemon exits by itself. Returns the exit code and the log.
    pub(crate) fn wait_for_exit(mut self) -> (Option<i32>, String) {
        let log = self.stderr.recv_timeout(HANG_TIMEOUT).expect("the daemon exits");
        (self.child.wait().expect("wait").code(), log)
    }
}

impl Drop for DaemonProcess {
    /// Kills the daemon, so that a failed test leaves no process behind.
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Directory that only this user can write, and the path of a socket in it.
fn private_socket_dir() -> (Fixture, PathBuf, String) {
    let fixture = Fixture::new("dir run\nmode 0700 run");
    let socket = fixture.path("run/c.sock");
    let listen = format!("unix:{}", socket.display());
    (fixture, socket, listen)
}

#[test]
fn serves_the_demo_until_a_signal_stops_it() {
    for signal in [Signal::TERM, Signal::INT] {
        let (fixture, _, _) = private_socket_dir();
        let mut command = caproot(["serve", "--root", DEMO]);
        let serving = DaemonProcess::launch(command.env("XDG_RUNTIME_DIR", fixture.path("run")), 1);
        let socket = fixture.path("run/caproot.sock");
        assert_eq!(serving.endpoint(), format!("unix:{}", socket.display()));
        assert!(fs::metadata(&socket).expect("the socket").file_type().is_socket());
        let mode = fs::metadata(&socket).expect("the socket").permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "only the owner may connect");
        let (code, log) = serving.signal_and_wait(signal);
        assert_eq!(code, Some(0), "{log}");
        assert!(!socket.exists(), "the daemon removes its socket");
    }
}

#[test]
fn without_a_runtime_directory_the_daemon_creates_one() {
    let fixture = Fixture::new("dir tmp");
    let mut command = caproot(["serve", "--root", DEMO]);
    let serving = DaemonProcess::launch(command.env("TMPDIR", fixture.path("tmp")), 1);
    let uid = rustix::process::geteuid().as_raw();
    let dir = fixture.path("tmp").join(format!("caproot-{uid}"));
    assert_eq!(serving.endpoint(), format!("unix:{}/caproot.sock", dir.display()));
    let mode = fs::metadata(&dir).expect("its directory").permissions().mode() & 0o777;
    assert_eq!(mode, 0o700);
    assert_eq!(serving.terminate().0, Some(0));
}

#[test]
fn each_listener_is_printed_on_its_own_line() {
    let (_fixture, _, listen) = private_socket_dir();
    let flags = ["serve", "--root", DEMO, "--listen", &listen, "--listen", "tcp:127.0.0.1:0"];
    let serving = DaemonProcess::launch(&mut caproot(flags), 2);
    assert_eq!(serving.endpoints[0], listen);
    let port = serving.endpoints[1].strip_prefix("tcp:127.0.0.1:").expect("the real port");
    assert_ne!(port.parse::<u16>().expect("a port"), 0);
    assert_eq!(serving.terminate().0, Some(0));
}

#[test]
fn a_socket_in_use_is_reported() {
    let (_fixture, socket, listen) = private_socket_dir();
    let serving = DaemonProcess::start(&["--root", DEMO, "--listen", &listen].map(OsStr::new));
    assert_startup_fails(["serve", "--root", DEMO, "--listen", &listen], 73, "c.sock");
    assert!(socket.exists(), "the first daemon keeps its socket");
    assert_eq!(
        run(["status", "--endpoint", &listen]).code,
        Some(0),
        "the first daemon still serves"
    );
    assert_eq!(serving.terminate().0, Some(0));
}

#[test]
fn a_port_in_use_is_reported() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let listen = format!("tcp:{}", taken.local_addr().expect("an address"));
    assert_startup_fails(["serve", "--root", DEMO, "--listen", &listen], 73, &listen[4..]);
}

#[test]
fn a_stale_socket_is_replaced() {
    let (_fixture, socket, listen) = private_socket_dir();
    drop(UnixListener::bind(&socket).expect("bind"));
    assert!(socket.exists(), "the file remains without a listener");
    let serving = DaemonProcess::start(&["--root", DEMO, "--listen", &listen].map(OsStr::new));
    assert_eq!(run(["status", "--endpoint", &listen]).code, Some(0));
    assert_eq!(serving.terminate().0, Some(0));
}

#[test]
fn a_file_that_is_not_a_socket_is_not_replaced() {
    let (fixture, socket, listen) = private_socket_dir();
    fs::write(&socket, "precious").expect("write");
    assert_startup_fails(["serve", "--root", DEMO, "--listen", &listen], 73, "c.sock");
    assert_eq!(fs::read(&socket).expect("read"), b"precious");
    fs::remove_file(&socket).expect("remove");
    symlink(fixture.path("run/target"), &socket).expect("link");
    assert_startup_fails(["serve", "--root", DEMO, "--listen", &listen], 73, "c.sock");
    assert!(!fixture.path("run/target").exists(), "nothing was created through the link");
}

#[test]
fn a_socket_in_a_world_writable_directory_is_rejected() {
    let (fixture, _, listen) = private_socket_dir();
    fs::set_permissions(fixture.path("run"), fs::Permissions::from_mode(0o777)).expect("chmod");
    assert_startup_fails(["serve", "--root", DEMO, "--listen", &listen], 73, "run");
}

#[test]
fn a_missing_directory_of_a_socket_is_created_in_a_shared_directory() {
    let fixture = Fixture::new("dir volume\nmode 0777 volume");
    let socket = fixture.path("volume/run/c.sock");
    let listen = format!("unix:{}", socket.display());
    for _ in 0..2 {
        let serving = DaemonProcess::start(&["--root", DEMO, "--listen", &listen].map(OsStr::new));
        let dir = fs::metadata(fixture.path("volume/run")).expect("the directory");
        assert_eq!(dir.permissions().mode() & 0o777, 0o755);
        assert_eq!(run(["status", "--endpoint", &listen]).code, Some(0));
        assert_eq!(serving.terminate().0, Some(0));
        assert!(!socket.exists(), "the sandbox permits removing the socket");
    }
}

#[test]
fn a_socket_without_the_parent_of_its_directory_is_rejected() {
    let (fixture, _, _) = private_socket_dir();
    let listen = format!("unix:{}", fixture.path("run/none/run/c.sock").display());
    assert_startup_fails(["serve", "--root", DEMO, "--listen", &listen], 73, "none");
    assert!(!fixture.path("run/none").exists());
}

#[test]
fn bad_configuration_fails_with_exit_code_78() {
    let (_fixture, _, listen) = private_socket_dir();
    let listen = listen.as_str();
    for (flags, says) in [
        (["--root", "/etc/passwd", "--listen", listen], "/etc/passwd"),
        (["--root", DEMO, "--listen", "nonsense"], "nonsense"),
        (["--root", DEMO, "--listen", "tcp:0.0.0.0:0"], "0.0.0.0"),
        (["--root", DEMO, "--environment-id", ""], "environment-id"),
    ] {
        assert_startup_fails(std::iter::once("serve").chain(flags), 78, says);
    }
}

#[test]
fn version_flags_print_version_and_build() {
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(run(["-V"]).stdout, format!("caproot {version}\n"));
    let long = run(["--version"]).stdout;
    let build =
        long.strip_prefix(&format!("caproot {version} (")).and_then(|l| l.strip_suffix(")\n"));
    let build = build.unwrap_or_else(|| panic!("{long}"));
    assert_eq!(build, caproot::server::BUILD_INFO);
    let parts: Vec<_> = build.split(", ").collect();
    let [.., profile, target] = parts[..] else { panic!("{build}") };
    let expected = if cfg!(debug_assertions) { "debug" } else { "release" };
    assert_eq!(profile, expected);
    assert!(target.contains(std::env::consts::ARCH) && target.contains("linux"), "{target}");
}

#[test]
fn bad_usage_fails_with_exit_code_2() {
    for args in [&["serve", "--no-such-flag"][..], &["no-such-command"], &["serve", "--root"]] {
        let ended = run(args);
        assert_eq!(ended.code, Some(2), "{args:?}: {}", ended.stderr);
        assert!(ended.stdout.is_empty() && !ended.stderr.is_empty());
    }
}

#[test]
fn client_commands_work_against_the_demo() {
    let (_fixture, _, listen) = private_socket_dir();
    let serving = DaemonProcess::start(&["--root", DEMO, "--listen", &listen].map(OsStr::new));
    let status = run(["status", "--endpoint", &listen]);
    assert_eq!(status.code, Some(0), "{}", status.stderr);

    let list = run(["list", "--endpoint", &listen, "--output", "json"]);
    assert_eq!(list.code, Some(0), "{}", list.stderr);
    let list: Value = serde_json::from_str(&list.stdout).expect("JSON");
    let names: Vec<_> =
        list["skills"].as_array().expect("skills").iter().map(|s| s["name"].clone()).collect();
    assert_eq!(names, ["review-kit:review-diff", "triage-logs", "write-changelog"]);
    let severe: Vec<_> = list["diagnostics"].as_array().into_iter().flatten().collect();
    assert!(
        severe.iter().all(|d| d["severity"] == "SEVERITY_NOTE"),
        "the demo has no problems: {severe:?}"
    );

    let handle = "skill://demo/write-changelog";
    let read = run(["read", "--endpoint", &listen, handle]);
    assert_eq!(read.code, Some(0), "{}", read.stderr);
    let on_disk = fs::read_to_string(format!("{DEMO}/write-changelog/SKILL.md")).expect("on disk");
    assert_eq!(read.stdout, on_disk);

    let gone = run(["read", "--endpoint", &listen, "skill://demo/gone"]);
    assert_eq!(gone.code, Some(4), "{}", gone.stderr);
    assert_eq!(gone.stdout, "", "stdout is for results");
    assert_eq!(serving.terminate().0, Some(0));
    assert_eq!(run(["status", "--endpoint", &listen]).code, Some(3), "no daemon answers");
}
