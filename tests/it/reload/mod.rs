//! SIGHUP: the real binary with a config file that changes under it, and clients that stay.

mod callers;
mod manager;
mod refused;
mod taken;
mod watched;

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread;

use caproot::proto::caproot::v1::{ConfigStatus, GetExecutorRequest, GetExecutorResponse};
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::fixture::Fixture;
use crate::harness::{Daemon, in_time};

/// What the log says of a reload that was applied, and of one that was not.
const DONE: &str = "the configuration was reloaded";
const REFUSED: &str = "keeping the previous configuration";

/// `caproot serve` with a config file, its log line by line, and a client of its TCP port.
struct Served {
    fixture: Fixture,
    child: Child,
    daemon: Daemon,
    log: UnboundedReceiver<String>,
}

/// A config file that listens on a free port.
fn listening(config: &str) -> String {
    let listen = if config.contains("listen:") { "" } else { "listen: ['tcp:127.0.0.1:0']\n" };
    format!("{listen}{config}\n")
}

impl Served {
    async fn start(tree: &str, config: &str) -> Self {
        let fixture = Fixture::new(tree);
        fixture.write("caproot.yaml", listening(config));
        let file = fixture.path("caproot.yaml");
        Self::begin(fixture, |command| command.arg("--config").arg(file)).await
    }

    async fn begin(fixture: Fixture, words: impl FnOnce(&mut Command) -> &mut Command) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_caproot"));
        command.arg("serve").env_clear().env("HOME", "/nonexistent").current_dir("/");
        words(&mut command).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary runs");
        let (tell, mut log) = unbounded_channel();
        let stderr = BufReader::new(child.stderr.take().expect("piped"));
        thread::spawn(move || {
            // Whoever listened may have gone.
            stderr.lines().try_for_each(|line| tell.send(line.expect("text")))
        });
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let line = tokio::task::spawn_blocking(move || {
            let mut lines = lines.map_while(Result::ok);
            lines.find_map(|line| line.strip_prefix("listening tcp:").map(str::to_owned))
        });
        let Some(address) = in_time(line).await.expect("no panic") else {
            panic!("it does not start: {:?}", log.recv().await)
        };
        let daemon = Daemon::connect_to(&address).await;
        Self { fixture, child, daemon, log }
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a pid");
        kill_process(pid, signal).expect("a signal");
    }

    /// Waits for a line of its log that holds one of these.
    async fn says(&mut self, parts: &[&str]) -> String {
        loop {
            let line = in_time(self.log.recv()).await;
            let line = line.unwrap_or_else(|| panic!("it ends without saying {parts:?}"));
            if parts.iter().any(|part| line.contains(part)) {
                return line;
            }
        }
    }

    /// Another file, which is taken.
    async fn reload(&mut self, config: &str) {
        let before = self.config().await;
        let said = self.hangup(config).await;
        assert!(said.contains(DONE), "{said}");
        // Counted right after it is said.
        while self.config().await == before {
            tokio::task::yield_now().await;
        }
    }

    /// Another file; what the log says in the end.
    async fn hangup(&mut self, config: &str) -> String {
        self.fixture.replace("caproot.yaml", listening(config));
        self.signal(Signal::HUP);
        self.says(&[DONE, REFUSED]).await
    }

    async fn executor(&self) -> GetExecutorResponse {
        let mut client = self.daemon.client.clone();
        in_time(client.get_executor(GetExecutorRequest {})).await.expect("an answer").into_inner()
    }

    async fn config(&self) -> ConfigStatus {
        self.executor().await.config.expect("what became of the configuration")
    }

    /// Ends it; the rest of its log.
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

impl Drop for Served {
    /// A test that failed leaves no daemon behind.
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
