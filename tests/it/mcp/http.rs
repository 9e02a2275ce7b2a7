//! Streamable HTTP by hand: which hosts and origins get in, paths, bounds, sessions, the end.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::host::meta;
use crate::commands::client_command;
use crate::fixture::Fixture;
use crate::harness::{Daemon, HANG_TIMEOUT, Setup, in_time};

/// `caproot mcp --http`, ready.
struct Server {
    child: Child,
    address: String,
    _stdout: BufReader<ChildStdout>,
}

impl Server {
    async fn start(daemon: &Daemon, flags: &str) -> Self {
        let mut command = client_command(daemon, &format!("mcp --http 127.0.0.1:0 {flags}"));
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the binary runs");
        let stdout = child.stdout.take().expect("piped");
        let ready = tokio::task::spawn_blocking(move || {
            let (mut stdout, mut line) = (BufReader::new(stdout), String::new());
            stdout.read_line(&mut line).expect("text");
            (stdout, line)
        });
        let (stdout, line) = in_time(ready).await.expect("no panic");
        let address = line.trim_end().strip_prefix("listening http://").expect("a line");
        let address = address.strip_suffix("/mcp").expect("its path").to_owned();
        Self { child, address, _stdout: stdout }
    }

    /// Sends a request's bytes, and reads until the server closes or the answer is whole.
    async fn send(&self, request: String) -> (u16, String) {
        let address = self.address.clone();
        let sent = tokio::task::spawn_blocking(move || {
            let mut stream = TcpStream::connect(address).expect("it listens");
            stream.set_read_timeout(Some(HANG_TIMEOUT)).expect("a time-out");
            // Who is refused early may be cut off while writing.
            drop(stream.write_all(request.as_bytes()));
            let mut answer = Vec::new();
            drop(stream.read_to_end(&mut answer));
            String::from_utf8_lossy(&answer).into_owned()
        });
        let answer = in_time(sent).await.expect("no panic");
        let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok());
        (status.unwrap_or_else(|| panic!("no answer: {answer:?}")), answer)
    }

    /// A request with these headers; `{address}` in them is the server's.
    async fn post(&self, path: &str, headers: &[&str], body: &str) -> (u16, String) {
        let mut request = format!("POST {path} HTTP/1.1\r\nConnection: close\r\n");
        for header in headers {
            request += &header.replace("{address}", &self.address);
            request += "\r\n";
        }
        request += "Content-Type: application/json\r\n";
        request += "Accept: application/json, text/event-stream\r\n";
        let length = body.len();
        self.send(format!("{request}Content-Length: {length}\r\n\r\n{body}")).await
    }

    /// Asks for the list of resources.
    async fn list(&self, headers: &[&str]) -> (u16, String) {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "resources/list",
            "params": {"_meta": meta()}});
        let version = ["MCP-Protocol-Version: 2026-07-28", "Mcp-Method: resources/list"];
        self.post("/mcp", &[&version, headers].concat(), &body.to_string()).await
    }

    /// Asks it to end, and waits.
    async fn stop(self) -> Option<i32> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a pid");
        kill_process(pid, Signal::TERM).expect("a signal");
        let ended = tokio::task::spawn_blocking(move || {
            let mut server = self;
            server.child.wait()
        });
        in_time(ended).await.expect("no panic").expect("wait").code()
    }
}

impl Drop for Server {
    /// A test that failed leaves no process behind.
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

async fn publishing() -> (Fixture, Daemon) {
    let fixture = Fixture::new("skill r/a");
    let daemon = Daemon::start(Setup::publishing("r", fixture.path("r"))).await;
    (fixture, daemon)
}

/// A page of another site reaches a port of this machine by a name of its own, or says who it is.
#[tokio::test]
async fn hosts_and_origins() {
    let (_fixture, daemon) = publishing().await;
    let flags = "--allow-host skills.example:8443 --allow-origin https://app.example";
    let plain = Server::start(&daemon, "").await;
    let open = Server::start(&daemon, flags).await;
    for (headers, of_plain, of_open) in [
        (&["Host: {address}"][..], 200, 200),
        (&["Host: localhost"], 200, 200),
        (&["Host: LOCALHOST:1"], 200, 200),
        (&["Host: [::1]:80"], 200, 200),
        (&["Host: {address}", "Origin: http://localhost:3000"], 200, 200),
        (&["Host: {address}", "Origin: http://127.0.0.1"], 200, 200),
        (&["Host: evil.example"], 403, 403),
        (&["Host: evil.example:80"], 403, 403),
        (&["Host: localhost.evil.example"], 403, 403),
        (&["Host: 127.0.0.1.evil.example"], 403, 403),
        (&["Host: 192.168.0.1"], 403, 403),
        (&["Host: skills.example:8443"], 403, 200),
        (&["Host: skills.example:1"], 403, 403),
        (&["Host: {address}", "Origin: http://evil.example"], 403, 403),
        (&["Host: {address}", "Origin: null"], 403, 403),
        (&["Host: {address}", "Origin: http://localhost.evil.example"], 403, 403),
        (&["Host: {address}", "Origin: https://app.example"], 403, 200),
        (&["Host: {address}", "Origin: https://app.example:444"], 403, 403),
        (&["Host: {address}", "Origin: http://app.example"], 403, 403),
        (&["Host: evil.example", "Origin: http://localhost"], 403, 403),
    ] {
        for (server, expected) in [(&plain, of_plain), (&open, of_open)] {
            let (status, answer) = server.list(headers).await;
            assert_eq!(status, expected, "{headers:?}: {answer}");
            assert_eq!(answer.contains("skill://r/a/SKILL.md"), expected == 200, "{answer}");
        }
    }
    assert_eq!((plain.stop().await, open.stop().await), (Some(0), Some(0)));
    daemon.stop().await;
}

#[tokio::test]
async fn what_is_no_request() {
    let (_fixture, daemon) = publishing().await;
    let server = Server::start(&daemon, "").await;
    let host = "Host: {address}";
    assert_eq!(server.post("/", &[host], "{}").await.0, 404);
    assert_eq!(server.post("/mcp/x", &[host], "{}").await.0, 404);
    assert!((400..500).contains(&server.post("/mcp", &[host], "{").await.0));
    let large = format!("{{\"x\":\"{}\"}}", "x".repeat(300_000));
    assert_eq!(server.post("/mcp", &[host], &large).await.0, 413);
    let (status, answer) = server.send("nonsense\r\n\r\n".into()).await;
    assert_eq!(status, 400, "{answer}");
    assert_eq!(server.list(&[host]).await.0, 200, "it goes on");
    assert_eq!(server.stop().await, Some(0));
    daemon.stop().await;
}

/// Older clients have sessions, which they may end; of too many, the oldest ends.
#[tokio::test]
async fn sessions() {
    let (_fixture, daemon) = publishing().await;
    let server = Server::start(&daemon, "").await;
    let mut open = Vec::new();
    for _ in 0..=caproot::mcp::limits::MAX_SESSIONS {
        open.push(begin(&server).await);
    }
    let (first, last) = (&open[0], &open[open.len() - 1]);
    assert_eq!(older_list(&server, first).await.0, 404, "it is told to begin anew");
    assert_eq!(older_list(&server, &open[1]).await.0, 200);
    assert_eq!(older_list(&server, last).await.0, 200);
    let delete = format!(
        "DELETE /mcp HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{last}\r\n\r\n",
        server.address
    );
    assert_eq!(server.send(delete).await.0, 200);
    assert_eq!(older_list(&server, last).await.0, 404);
    assert_eq!(server.stop().await, Some(0));
    daemon.stop().await;
}

/// Begins a session; gives the header that names it.
async fn begin(server: &Server) -> String {
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "older", "version": "1"}}});
    let (status, answer) = server.post("/mcp", &["Host: {address}"], &hello.to_string()).await;
    assert_eq!(status, 200, "{answer}");
    let id = answer.lines().find(|line| line.to_lowercase().starts_with("mcp-session-id:"));
    id.expect("a session").trim_end().to_owned()
}

async fn older_list(server: &Server, session: &str) -> (u16, String) {
    let list: Value = json!({"jsonrpc": "2.0", "id": 2, "method": "resources/list", "params": {}});
    let headers = ["Host: {address}", "MCP-Protocol-Version: 2025-11-25", session];
    server.post("/mcp", &headers, &list.to_string()).await
}
