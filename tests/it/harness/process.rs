//! Runs programs as processes: the real binary, alone or under another program.

use std::borrow::BorrowMut;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead as _, BufReader, Write as _};
use std::ops::Deref;
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::harness::fixture::Fixture;
use crate::harness::{Daemon, in_time};

/// Command of the binary with an empty environment, in which no user's skills are found.
pub(crate) fn caproot<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = program(env!("CARGO_BIN_EXE_caproot"));
    command.args(args).env_clear().env("HOME", "/nonexistent");
    command
}

/// Whether a program runs on this machine. If not, prints that a test is skipped.
pub(crate) fn has_program(name: &str, arguments: &[&str]) -> bool {
    let found = program(name).args(arguments).output().is_ok();
    if !found {
        println!("SKIPPED: {name} is not installed");
    }
    found
}

/// Command of a program without input. A test may redirect its stdout.
pub(crate) fn program(name: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(name);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// `caproot serve` on a free TCP port with more flags.
pub(crate) fn serve<S: AsRef<OsStr>>(flags: impl IntoIterator<Item = S>) -> Command {
    let mut command = caproot(["serve", "--listen", "tcp:127.0.0.1:0"]);
    command.args(flags);
    command
}

/// `caproot serve` with a config file, which is written into the fixture.
///
/// The working directory is another one, because relative paths in the file are resolved from the
/// file's directory.
pub(crate) fn serve_config(fixture: &Fixture, config: &str) -> Command {
    fixture.write("caproot.yaml", with_listener(config));
    let mut command = caproot(["serve", "--config"]);
    command.arg(fixture.path("caproot.yaml")).current_dir("/");
    command
}

/// Adds a listener on a free TCP port to a config without the key `listen`.
pub(crate) fn with_listener(config: &str) -> String {
    let has_listener = config.lines().any(|line| line.starts_with("listen:"));
    let listen = if has_listener {
        ""
    } else {
        "listen: ['tcp:127.0.0.1:0']\n"
    };
    format!("{listen}{config}\n")
}

/// Client command for a daemon. The words are split at spaces.
pub(crate) fn client_command(daemon: &Daemon, words: &str) -> Command {
    client_command_with(daemon, words.split_whitespace())
}

/// Client command for a daemon with arguments that may contain spaces.
pub(crate) fn client_command_with<S: AsRef<OsStr>>(
    daemon: &Daemon,
    args: impl IntoIterator<Item = S>,
) -> Command {
    let mut command = caproot(args);
    command.env("CAPROOT_ENDPOINT", format!("tcp:{}", daemon.address));
    command
}

/// Runs a command of the binary by another program, such as `unshare --user`. If that program
/// cannot run the binary here, prints why the test is skipped, and returns `None`.
pub(crate) fn wrap_command<S: AsRef<OsStr>>(
    wrapper: impl IntoIterator<Item = S>,
    command: impl BorrowMut<Command>,
    skipped: &str,
) -> Option<Command> {
    let words: Vec<OsString> = wrapper
        .into_iter()
        .map(|word| word.as_ref().to_owned())
        .collect();
    let command = command.borrow();
    let mut probe = Command::new(command.get_program());
    probe.arg("--version");
    if wrap(&words, &probe)
        .output()
        .is_ok_and(|output| output.status.success())
    {
        return Some(wrap(&words, command));
    }
    println!("SKIPPED: {skipped}");
    None
}

/// Runs a command by another program, which is known to work here. See [`wrap_command`].
pub(crate) fn wrap<S: AsRef<OsStr>>(words: &[S], inner: &Command) -> Command {
    let mut outer = program(&words[0]);
    outer
        .args(&words[1..])
        .arg(inner.get_program())
        .args(inner.get_args());
    outer
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default());
    outer.envs(
        inner
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    if let Some(dir) = inner.get_current_dir() {
        outer.current_dir(dir);
    }
    outer
}

/// Exit code and output of a process.
#[derive(Debug)]
pub(crate) struct Output {
    pub code: Option<i32>,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Output {
    /// Asserts that the process succeeded.
    #[track_caller]
    pub(crate) fn succeeded(self) -> Self {
        assert_eq!(self.code, Some(0), "{} {}", self.text(), self.stderr);
        self
    }

    /// Asserts that the process exited with this code, and that its stderr contains a text.
    #[track_caller]
    pub(crate) fn exited_with(self, code: i32, part: &str) -> Self {
        assert_eq!(
            self.code,
            Some(code),
            "{part}: {} {}",
            self.text(),
            self.stderr
        );
        assert!(self.stderr.contains(part), "{part}: {}", self.stderr);
        self
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).expect("text")
    }

    pub(crate) fn json(&self) -> Value {
        assert_eq!(
            self.text().lines().count(),
            1,
            "one object: {} {}",
            self.text(),
            self.stderr
        );
        serde_json::from_slice(&self.stdout).expect("JSON")
    }
}

/// Runs a command of [`program`] to its end. A daemon in this runtime continues meanwhile.
pub(crate) async fn run_command(mut command: impl BorrowMut<Command>) -> Output {
    let command = std::mem::replace(command.borrow_mut(), Command::new("true"));
    let mut command = tokio::process::Command::from(command);
    // `output` of tokio would replace a stdout that the test redirected.
    let child = command
        .kill_on_drop(true)
        .spawn()
        .expect("the program runs");
    assert!(
        child.stderr.is_some(),
        "the output of the program is not lost"
    );
    let output = in_time(child.wait_with_output())
        .await
        .expect("the program runs");
    let stderr = String::from_utf8(output.stderr).expect("text");
    assert!(!stderr.contains("panicked"), "{stderr}");
    Output {
        code: output.status.code(),
        stdout: output.stdout,
        stderr,
    }
}

/// Runs a client command for a daemon to its end. The words are split at spaces.
pub(crate) async fn run_client(daemon: &Daemon, words: &str) -> Output {
    run_command(client_command(daemon, words)).await
}

/// Runs a command to its end. A daemon in this runtime does not continue meanwhile.
pub(crate) fn run_blocking(mut command: impl BorrowMut<Command>) -> Output {
    let command = std::mem::replace(command.borrow_mut(), Command::new("true"));
    block_on(run_command(command))
}

/// Runs a future to its end in a test without a runtime, or in a test that needs no client of its
/// own meanwhile.
pub(crate) fn block_on<T: Send>(future: impl Future<Output = T> + Send) -> T {
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.expect("a runtime").block_on(future)
    };
    // In another thread, because the calling thread may have a runtime.
    let ended = thread::scope(|scope| scope.spawn(run).join());
    ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Lines of a pipe. Another thread reads them, so that a full pipe does not block the process.
struct PipeLines(UnboundedReceiver<String>);

impl PipeLines {
    fn new(mut lines: impl Iterator<Item = std::io::Result<String>> + Send + 'static) -> Self {
        let (sender, receiver) = unbounded_channel();
        thread::spawn(move || {
            // The receiver may be gone.
            lines.try_for_each(|line| sender.send(line.expect("text")))
        });
        Self(receiver)
    }

    async fn next(&mut self) -> Option<String> {
        in_time(self.0.recv()).await
    }

    /// Reads to the end of the pipe.
    async fn rest(&mut self) -> String {
        let mut rest = String::new();
        while let Some(line) = self.next().await {
            rest += &line;
            rest.push('\n');
        }
        rest
    }
}

/// Returns the address in a line that a daemon prints on stdout.
fn parse_endpoint(line: &str) -> Option<&str> {
    line.strip_prefix("listening ")
        .or(line.strip_prefix("metrics "))
}

/// Running process with pipes. Drop kills the process, so that a failed test leaves none behind.
pub(crate) struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: PipeLines,
    stderr: PipeLines,
    endpoints: Vec<String>,
}

impl Process {
    /// Starts a program.
    pub(crate) fn spawn(command: impl BorrowMut<Command>) -> Self {
        Self::start_until(command, |_| true)
    }

    /// Starts a daemon and waits for its `listening` line.
    pub(crate) fn start(command: impl BorrowMut<Command>) -> Self {
        Self::start_until(command, |endpoints| !endpoints.is_empty())
    }

    /// Starts a daemon and waits until it has printed the addresses that the test needs, in lines
    /// that begin with `listening` or `metrics`.
    pub(crate) fn start_until(
        command: impl BorrowMut<Command>,
        is_ready: impl Fn(&[String]) -> bool,
    ) -> Self {
        let (mut process, stdout) = Self::spawn_unread(command);
        let mut lines = stdout.lines();
        while !is_ready(&process.endpoints) {
            let Some(line) = lines.next() else {
                panic!("no listener: {}", block_on(process.stderr.rest()))
            };
            let endpoint = parse_endpoint(&line.expect("text")).map(str::to_owned);
            process
                .endpoints
                .push(endpoint.expect("a line `listening …`"));
        }
        process.stdout = PipeLines::new(lines);
        process
    }

    /// Starts a daemon, and waits for its `listening` line. The caller reads stderr, or does not.
    pub(crate) fn start_with_unread_log(command: impl BorrowMut<Command>) -> (Self, ChildStderr) {
        let (mut process, stdout, stderr) = Self::spawn_pipes(command);
        let mut lines = stdout.lines();
        let line = lines.next().expect("a line").expect("text");
        let endpoint = parse_endpoint(&line).expect("a line `listening …`");
        process.endpoints.push(endpoint.to_owned());
        process.stdout = PipeLines::new(lines);
        (process, stderr)
    }

    /// Reads stderr from now on.
    pub(crate) fn read_log(&mut self, stderr: ChildStderr) {
        self.stderr = PipeLines::new(BufReader::new(stderr).lines());
    }

    /// Starts a program whose stdout the caller reads.
    pub(crate) fn spawn_unread(command: impl BorrowMut<Command>) -> (Self, BufReader<ChildStdout>) {
        let (mut process, stdout, stderr) = Self::spawn_pipes(command);
        process.read_log(stderr);
        (process, stdout)
    }

    fn spawn_pipes(
        mut command: impl BorrowMut<Command>,
    ) -> (Self, BufReader<ChildStdout>, ChildStderr) {
        let command = command.borrow_mut();
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program runs");
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let stderr = child.stderr.take().expect("piped");
        (
            Self {
                child,
                stdin,
                stdout: PipeLines::new(std::iter::empty()),
                stderr: PipeLines::new(std::iter::empty()),
                endpoints: Vec::new(),
            },
            stdout,
            stderr,
        )
    }

    /// Address of the first listener, as the daemon printed it.
    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoints[0]
    }

    /// Addresses of all listeners and of the metrics endpoint.
    pub(crate) fn endpoints(&self) -> &[String] {
        &self.endpoints
    }

    /// Address of the first TCP listener, as `127.0.0.1:PORT`.
    pub(crate) fn address(&self) -> &str {
        let address = self
            .endpoints
            .iter()
            .find_map(|endpoint| endpoint.strip_prefix("tcp:"));
        address.expect("a TCP listener")
    }

    /// Starts `caproot serve` with an allowed directory, and connects a client.
    pub(crate) async fn allowing(dir: &Path) -> (Self, Daemon) {
        let serving = Self::start(serve(["--allow"]).arg(dir));
        let daemon = serving.connect().await;
        (serving, daemon)
    }

    /// Connects a client to the TCP listener.
    pub(crate) async fn connect(&self) -> Daemon {
        Daemon::connect_to(self.address()).await
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("wait").is_none()
    }

    /// Sends a signal and does not wait.
    pub(crate) fn send_signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("a signal");
    }

    /// Writes a line to stdin.
    pub(crate) fn send_line(&mut self, line: &[u8]) {
        let stdin = self.stdin.as_mut().expect("stdin is open");
        stdin
            .write_all(&[line, b"\n"].concat())
            .expect("the process reads");
    }

    /// Takes stdin, and closes it if the result is dropped.
    pub(crate) fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.stdin.take()
    }

    /// Returns the next line of stdout, or `None` at its end.
    pub(crate) async fn next_line(&mut self) -> Option<String> {
        self.stdout.next().await
    }

    /// Returns the next line of stdout.
    pub(crate) async fn line(&mut self) -> String {
        match self.stdout.next().await {
            Some(line) => line,
            None => panic!("the process ended: {}", self.stderr.rest().await),
        }
    }

    /// Returns the next line of stderr, which is the log of a daemon.
    pub(crate) async fn log_line(&mut self) -> String {
        self.stderr.next().await.expect("a line on stderr")
    }

    /// Waits for a line of stderr that contains a text.
    pub(crate) async fn wait_for_log(&mut self, part: &str) -> String {
        loop {
            let line = self.stderr.next().await;
            let line = line.unwrap_or_else(|| panic!("the process ended without logging {part:?}"));
            if line.contains(part) {
                return line;
            }
        }
    }

    /// Asserts that a daemon does not start. Returns its output, and kills it if it listens.
    pub(crate) async fn start_failure(command: impl BorrowMut<Command>) -> Output {
        let mut process = Self::spawn(command);
        let line = process.next_line().await;
        assert_eq!(line, None, "the daemon starts");
        process.exit().await
    }

    /// Closes stdin and waits until the process exits. Returns the output that was not read yet.
    pub(crate) async fn exit(mut self) -> Output {
        drop(self.take_stdin());
        let (stdout, stderr) = tokio::join!(self.stdout.rest(), self.stderr.rest());
        assert!(!stderr.contains("panicked"), "{stderr}");
        let code = self.child.wait().expect("wait").code();
        Output {
            code,
            stdout: stdout.into_bytes(),
            stderr,
        }
    }

    /// Sends a signal and waits until the process exits.
    pub(crate) async fn exit_on(self, signal: Signal) -> Output {
        self.send_signal(signal);
        self.exit().await
    }

    /// Stops a daemon with SIGTERM. Asserts that it exits with 0 and that stdout has addresses only.
    /// Returns the log that was not read yet.
    pub(crate) async fn stop(self) -> String {
        let output = self.exit_on(Signal::TERM).await;
        assert_eq!(output.code, Some(0), "{}", output.stderr);
        assert!(
            output
                .text()
                .lines()
                .all(|line| parse_endpoint(line).is_some()),
            "{output:?}"
        );
        output.stderr
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// `caproot serve` with a config file, and a client of its TCP listener.
pub(crate) struct ConfiguredDaemon {
    pub process: Process,
    pub daemon: Daemon,
}

impl ConfiguredDaemon {
    /// Writes the config into the fixture, with a listener if it has none, and starts the daemon.
    pub(crate) async fn start(fixture: &Fixture, config: &str) -> Self {
        Self::start_command(serve_config(fixture, config)).await
    }

    /// Starts the daemon with flags in addition to the config.
    pub(crate) async fn start_with(fixture: &Fixture, config: &str, flags: &[&str]) -> Self {
        Self::start_command(serve_config(fixture, config).args(flags)).await
    }

    /// Starts a daemon with a command, and waits for its first TCP listener.
    pub(crate) async fn start_command(command: impl BorrowMut<Command>) -> Self {
        let has_address = |endpoints: &[String]| endpoints.iter().any(|e| e.starts_with("tcp:"));
        let process = Process::start_until(command, has_address);
        let daemon = process.connect().await;
        Self { process, daemon }
    }

    /// Stops the daemon, and returns the log that was not read yet.
    pub(crate) async fn stop(self) -> String {
        drop(self.daemon);
        self.process.stop().await
    }
}

impl Deref for ConfiguredDaemon {
    type Target = Daemon;

    fn deref(&self) -> &Daemon {
        &self.daemon
    }
}
