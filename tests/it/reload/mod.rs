//! SIGHUP: the real binary reloads a changed config file while clients stay connected.

mod applied;
mod callers;
mod rejected;
mod service_manager;
mod watch_config;

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread;

use caproot::proto::caproot::v1::{ConfigStatus, GetExecutorRequest, GetExecutorResponse};
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::fixture::Fixture;
use crate::harness::{Daemon, in_time};

/// Log messages of an applied and of a rejected reload.
const APPLIED: &str = "the configuration was reloaded";
const REJECTED: &str = "keeping the previous configuration";

/// `caproot serve` with a config file, its log lines, and a client of its TCP port.
struct DaemonProcess {
    fixture: Fixture,
    child: Child,
    daemon: Daemon,
    log: UnboundedReceiver<String>,
}

/// Adds a listener on a free port to a config.
fn add_listener(config: &str) -> String {
    let listen = if config.contains("listen:") { "" } else { "listen: ['tcp:127.0.0.1:0']\n" };
    format!("{listen}{config}\n")
}

impl DaemonProcess {
    async fn start(tree: &str, config: &str) -> Self {
        let fixture = Fixture::new(tree);
        fixture.write("caproot.yaml", add_listener(config));
        let file = fixture.path("caproot.yaml");
        Self::start_with(fixture, |command| command.arg("--config").arg(file)).await
    }

    async fn start_with(
        fixture: Fixture,
        words: impl FnOnce(&mut Command) -> &mut Command,
    ) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_caproot"));
        command.arg("serve").env_clear().env("HOME", "/nonexistent").current_dir("/");
        words(&mut command).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary runs");
        let (log_sender, mut log) = unbounded_channel();
        let stderr = BufReader::new(child.stderr.take().expect("piped"));
        thread::spawn(move || {
            // The receiver may be gone.
            stderr.lines().try_for_each(|line| log_sender.send(line.expect("text")))
        });
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let line = tokio::task::spawn_blocking(move || {
            let mut lines = lines.map_while(Result::ok);
            lines.find_map(|line| line.strip_prefix("listening tcp:").map(str::to_owned))
        });
        let Some(address) = in_time(line).await.expect("no panic") else {
            panic!("the daemon does not start: {:?}", log.recv().await)
        };
        let daemon = Daemon::connect_to(&address).await;
        Self { fixture, child, daemon, log }
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a pid");
        kill_process(pid, signal).expect("a signal");
    }

    /// Waits for a log line that contains one of these texts.
    async fn wait_for_log(&mut self, parts: &[&str]) -> String {
        loop {
            let line = in_time(self.log.recv()).await;
            let line = line.unwrap_or_else(|| panic!("the daemon ended without logging {parts:?}"));
            if parts.iter().any(|part| line.contains(part)) {
                return line;
            }
        }
    }

    /// Writes another config and waits until it is applied.
    async fn reload(&mut self, config: &str) {
        let before = self.config().await;
        let line = self.try_reload(config).await;
        assert!(line.contains(APPLIED), "{line}");
        // The status is updated just after the log line.
        while self.config().await == before {
            tokio::task::yield_now().await;
        }
    }

    /// Writes another config, sends SIGHUP, and returns the log line with the outcome.
    async fn try_reload(&mut self, config: &str) -> String {
        self.fixture.replace("caproot.yaml", add_listener(config));
        self.signal(Signal::HUP);
        self.wait_for_log(&[APPLIED, REJECTED]).await
    }

    async fn executor(&self) -> GetExecutorResponse {
        let mut client = self.daemon.client.clone();
        in_time(client.get_executor(GetExecutorRequest {})).await.expect("an answer").into_inner()
    }

    async fn config(&self) -> ConfigStatus {
        self.executor().await.config.expect("a config status")
    }

    /// Stops the daemon and returns the remaining log.
    async fn stop(mut self) -> String {
        self.signal(Signal::TERM);
        let mut rest = String::new();
        while let Some(line) = in_time(self.log.recv()).await {
            rest.push_str(&line);
            rest.push('\n');
        }
        let code = self.child.wait().expect("wait").code();
        assert_eq!(code, Some(0), "{rest}");
        rest
    }
}

impl Drop for DaemonProcess {
    /// Kills the daemon if a test failed before stopping it.
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
