//! The real binary with a config file, and its log while it runs.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use crate::fixture::Fixture;
use crate::harness::{Client, HANG, connect};

/// Daemon whose log is read while it runs.
pub(super) struct LoggedDaemon {
    child: Child,
    pub client: Client,
    lines: Receiver<String>,
}

impl LoggedDaemon {
    /// Starts the daemon with the given config file and flags.
    pub(super) async fn start(fixture: &Fixture, config: &str, flags: &[&str]) -> Self {
        let file = fixture.path("caproot.yaml");
        fixture.write("caproot.yaml", format!("{config}\nlisten: ['tcp:127.0.0.1:0']\n"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_caproot"));
        command.args(["serve", "--config"]).arg(file).args(flags).env_clear();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary runs");
        let (send, lines) = channel();
        let stderr = BufReader::new(child.stderr.take().expect("piped"));
        thread::spawn(move || {
            // Only line feeds end a line, and the whole log must be UTF-8.
            stderr.lines().try_for_each(|line| send.send(line.expect("text")))
        });
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        stdout.read_line(&mut line).expect("text");
        let address = line.trim().strip_prefix("listening tcp:");
        let address = address.unwrap_or_else(|| panic!("{:?}", lines.recv())).to_owned();
        Self { child, client: connect(&address).await, lines }
    }

    /// Returns the next line of the log, without the lines of the start.
    pub(super) fn line(&self) -> String {
        loop {
            let line = self.lines.recv_timeout(HANG).expect("a line");
            if !line.contains("caproot::cli::serve") {
                return line;
            }
        }
    }

    /// Kills the daemon, and returns the lines that were not read yet.
    pub(super) fn stop(mut self) -> Vec<String> {
        drop(self.child.kill());
        self.child.wait().expect("the process ends");
        self.lines.iter().collect()
    }
}

impl Drop for LoggedDaemon {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
