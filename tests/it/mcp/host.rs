//! An MCP host by hand: `caproot mcp` as its child, spoken to in lines of JSON-RPC.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;

use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::commands::{CommandOutput, client_command};
use crate::harness::{Daemon, in_time};

/// What a request of the current protocol says of itself.
pub(super) fn meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "a host", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    })
}

/// A host and its server.
pub(super) struct Host {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: UnboundedReceiver<Value>,
    /// Notifications that nobody waited for yet.
    notices: VecDeque<Value>,
    asked: u64,
    /// Whether the version of the protocol was settled at the start, as it once was.
    is_older: bool,
}

impl Host {
    /// A host of today, with the daemon's published roots or those of the flags.
    pub(super) fn start(daemon: &Daemon, flags: &str) -> Self {
        Self::of(client_command(daemon, &format!("mcp {flags}")))
    }

    /// A host with a server of its own making.
    pub(super) fn of(command: Command) -> Self {
        let (mut host, stdout) = Self::deaf(command);
        let (send, lines) = unbounded_channel();
        host.lines = lines;
        thread::spawn(move || {
            for line in stdout.lines() {
                let line = line.expect("text");
                let message = serde_json::from_str(&line).expect("stdout is for JSON-RPC only");
                if send.send(message).is_err() {
                    return;
                }
            }
        });
        host
    }

    /// A host that does not read what its server says.
    pub(super) fn deaf(mut command: Command) -> (Self, BufReader<ChildStdout>) {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary runs");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let stdin = child.stdin.take();
        let lines = unbounded_channel().1;
        let notices = VecDeque::new();
        (Self { child, stdin, lines, notices, asked: 0, is_older: false }, stdout)
    }

    /// A host of last year, which shook hands.
    pub(super) async fn older(daemon: &Daemon) -> (Self, Value) {
        let mut host = Self::start(daemon, "");
        host.is_older = true;
        let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "an older host", "version": "1"}});
        let welcome = host.ask("initialize", hello).await.expect("a welcome");
        host.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        (host, welcome)
    }

    /// Sends a message as it is.
    pub(super) fn send(&mut self, message: &Value) {
        self.line(&message.to_string());
    }

    /// Sends a line, whatever it is.
    pub(super) fn line(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("not closed");
        writeln!(stdin, "{line}").expect("the server reads");
    }

    /// Takes over what it would write to.
    pub(super) fn stdin(&mut self) -> ChildStdin {
        self.stdin.take().expect("not closed")
    }

    /// Sends a request; gives its id.
    pub(super) fn request(&mut self, method: &str, mut params: Value) -> u64 {
        if !self.is_older {
            params["_meta"] = meta();
        }
        self.asked += 1;
        let id = self.asked;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    /// Asks, and waits for the result, or the error.
    pub(super) async fn ask(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        let id = self.request(method, params);
        self.answer(id).await
    }

    /// The answer to a request that was sent.
    pub(super) async fn answer(&mut self, id: u64) -> Result<Value, Value> {
        loop {
            let mut message = self.message().await;
            if message.get("id").is_none() {
                self.notices.push_back(message);
            } else if message["id"] == id {
                let result = message.get_mut("result").map(Value::take);
                return result.ok_or_else(|| message["error"].take());
            } else {
                panic!("nobody asked: {message}");
            }
        }
    }

    /// The next message of the server.
    pub(super) async fn message(&mut self) -> Value {
        in_time(self.lines.recv()).await.expect("the server lives")
    }

    /// The next notification.
    pub(super) async fn notice(&mut self) -> Value {
        if let Some(notice) = self.notices.pop_front() {
            return notice;
        }
        let message = self.message().await;
        assert!(message.get("id").is_none(), "no notification: {message}");
        message
    }

    /// All items of a list, page by page, and how many pages these were.
    pub(super) async fn all(
        &mut self,
        method: &str,
        items: &str,
        params: Value,
    ) -> (Vec<Value>, usize) {
        let (mut all, mut pages, mut cursor) = (Vec::new(), 0, None);
        loop {
            let mut params = params.clone();
            if let Some(cursor) = cursor {
                params["cursor"] = cursor;
            }
            let mut page = self.ask(method, params).await.expect("a page");
            assert!(page.to_string().len() < 1 << 20, "a page of under 1 MiB");
            pages += 1;
            let Value::Array(more) = page[items].take() else { panic!("{items} in {page}") };
            all.extend(more);
            match page.get("nextCursor") {
                Some(next) => cursor = Some(next.clone()),
                None => return (all, pages),
            }
        }
    }

    /// Closes stdin, and waits for the end.
    pub(super) async fn end(mut self) -> CommandOutput {
        drop(self.stdin.take());
        while in_time(self.lines.recv()).await.is_some() {}
        let mut stderr = String::new();
        let mut pipe = self.child.stderr.take().expect("piped");
        std::io::Read::read_to_string(&mut pipe, &mut stderr).expect("text");
        assert!(!stderr.contains("panicked"), "{stderr}");
        let code = self.child.wait().expect("wait").code();
        CommandOutput { code, stdout: Vec::new(), stderr }
    }
}

impl Drop for Host {
    /// A test that failed leaves no process behind.
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
