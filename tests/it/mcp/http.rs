//! Streamable HTTP by hand: allowed hosts and origins, paths, limits, sessions and shutdown.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};

use super::host::request_meta;
use crate::harness::process::{Process, client_command};
use crate::harness::{Daemon, HANG_TIMEOUT, in_time};

const LOCALHOST: &str = "Host: localhost";

/// Running `caproot mcp --http`.
pub(super) struct HttpServer {
    process: Process,
    pub(super) address: String,
}

impl HttpServer {
    pub(super) async fn start(daemon: &Daemon, flags: &str) -> Self {
        Self::start_at(daemon, "127.0.0.1", flags).await
    }

    /// Starts the server at an address of this machine, and waits until the server has the daemon's list.
    async fn start_at(daemon: &Daemon, host: &str, flags: &str) -> Self {
        let command = client_command(daemon, &format!("mcp --http {host}:0 {flags}"));
        let mut process = Process::spawn(command);
        let line = process.line().await;
        let address = line.strip_prefix("listening http://").expect("a line");
        let address = address.strip_suffix("/mcp").expect("its path").to_owned();
        let server = Self { process, address };

        let uri = "skill://none";
        let params = json!({"uri": uri, "_meta": request_meta()});
        let name = format!("Mcp-Name: {uri}");
        let (status, answer) = server
            .request("resources/read", params, &[&name, LOCALHOST])
            .await;
        assert!(status == 200 && answer.contains("-32602"), "{answer}");
        server
    }

    /// Sends the bytes of a request, and reads until the server closes the connection.
    async fn send(&self, request: String) -> (u16, String) {
        let address = self.address.clone();
        let sent = tokio::task::spawn_blocking(move || {
            let mut stream = TcpStream::connect(address).expect("the server listens");
            stream
                .set_read_timeout(Some(HANG_TIMEOUT))
                .expect("a timeout");
            // The server may reject the request and close before it has read everything.
            drop(stream.write_all(request.as_bytes()));
            let mut answer = Vec::new();
            drop(stream.read_to_end(&mut answer));
            String::from_utf8_lossy(&answer).into_owned()
        });
        let answer = in_time(sent).await.expect("no panic");
        let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok());
        (
            status.unwrap_or_else(|| panic!("no answer: {answer:?}")),
            answer,
        )
    }

    /// Posts a request with the given headers, in which `{address}` stands for the server's address.
    async fn post(&self, path: &str, headers: &[&str], body: &str) -> (u16, String) {
        let mut request = format!("POST {path} HTTP/1.1\r\nConnection: close\r\n");
        for header in headers {
            request += &header.replace("{address}", &self.address);
            request += "\r\n";
        }
        request += "Content-Type: application/json\r\n";
        request += "Accept: application/json, text/event-stream\r\n";
        let length = body.len();
        self.send(format!("{request}Content-Length: {length}\r\n\r\n{body}"))
            .await
    }

    /// Calls `resources/list`.
    async fn list_resources(&self, headers: &[&str]) -> (u16, String) {
        let params = json!({"_meta": request_meta()});
        self.request("resources/list", params, headers).await
    }

    /// Sends a request of the current protocol version.
    async fn request(&self, method: &str, params: Value, headers: &[&str]) -> (u16, String) {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let method = format!("Mcp-Method: {method}");
        let version = ["MCP-Protocol-Version: 2026-07-28", &method];
        self.post("/mcp", &[&version, headers].concat(), &body.to_string())
            .await
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Stops the server with SIGTERM.
    pub(super) async fn stop(self) {
        self.process.stop().await;
    }
}

/// A page of another site reaches a local port by its own host name (DNS rebinding), or sends its
/// origin.
#[tokio::test]
async fn only_allowed_hosts_and_origins_are_served() {
    let (_fixture, daemon) = Daemon::publishing("r", "skill r/a").await;
    let flags = "--allow-host skills.example:8443 --allow-origin https://app.example";
    let plain = HttpServer::start(&daemon, "").await;
    let open = HttpServer::start(&daemon, flags).await;
    for (headers, plain_status, open_status) in [
        (&["Host: {address}"][..], 200, 200),
        (&["Host: localhost"], 200, 200),
        (&["Host: LOCALHOST:1"], 200, 200),
        (&["Host: [::1]:80"], 200, 200),
        (
            &["Host: {address}", "Origin: http://localhost:3000"],
            200,
            200,
        ),
        (&["Host: {address}", "Origin: http://127.0.0.1"], 200, 200),
        (&["Host: evil.example"], 403, 403),
        (&["Host: evil.example:80"], 403, 403),
        (&["Host: localhost.evil.example"], 403, 403),
        (&["Host: 127.0.0.1.evil.example"], 403, 403),
        (&["Host: 192.168.0.1"], 403, 403),
        (&["Host: skills.example:8443"], 403, 200),
        (&["Host: skills.example:1"], 403, 403),
        (
            &["Host: {address}", "Origin: http://evil.example"],
            403,
            403,
        ),
        (&["Host: {address}", "Origin: null"], 403, 403),
        (
            &["Host: {address}", "Origin: http://localhost.evil.example"],
            403,
            403,
        ),
        (
            &["Host: {address}", "Origin: https://app.example"],
            403,
            200,
        ),
        (
            &["Host: {address}", "Origin: https://app.example:444"],
            403,
            403,
        ),
        (&["Host: {address}", "Origin: http://app.example"], 403, 403),
        (
            &["Host: evil.example", "Origin: http://localhost"],
            403,
            403,
        ),
    ] {
        for (server, expected) in [(&plain, plain_status), (&open, open_status)] {
            let (status, answer) = server.list_resources(headers).await;
            assert_eq!(status, expected, "{headers:?}: {answer}");
            assert_eq!(
                answer.contains("skill://r/a/SKILL.md"),
                expected == 200,
                "{answer}"
            );
        }
    }
    plain.stop().await;
    open.stop().await;
    daemon.stop().await;
}

/// Clients name the server by the address of `--http`, which is not always 127.0.0.1.
#[tokio::test]
async fn the_address_of_the_server_is_an_allowed_host() {
    let (_fixture, daemon) = Daemon::publishing("r", "skill r/a").await;
    let own = HttpServer::start_at(&daemon, "127.0.9.7", "").await;
    let every = HttpServer::start_at(&daemon, "0.0.0.0", "--insecure-http").await;
    for (header, own_status, every_status) in [
        ("Host: {address}", 200, 403),
        ("Host: 127.0.9.7", 200, 403),
        ("Host: 127.0.9.8", 403, 403),
        ("Host: 0.0.0.0", 403, 403),
        ("Host: 127.0.0.1", 200, 200),
    ] {
        for (server, expected) in [(&own, own_status), (&every, every_status)] {
            let (status, answer) = server.list_resources(&[header]).await;
            assert_eq!(status, expected, "{header}: {answer}");
        }
    }
    own.stop().await;
    every.stop().await;
    daemon.stop().await;
}

#[tokio::test]
async fn invalid_requests_are_rejected_and_the_server_goes_on() {
    let (_fixture, daemon) = Daemon::publishing("r", "skill r/a").await;
    let server = HttpServer::start(&daemon, "").await;
    let host = "Host: {address}";
    assert_eq!(server.post("/", &[host], "{}").await.0, 404);
    assert_eq!(server.post("/mcp/x", &[host], "{}").await.0, 404);
    let get = format!(
        "GET / HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
        server.address
    );
    let (status, front) = server.send(get).await;
    assert_eq!(status, 200);
    assert!(
        front.ends_with("caproot serves MCP here: connect an MCP client to /mcp\n"),
        "{front}"
    );
    assert!((400..500).contains(&server.post("/mcp", &[host], "{").await.0));
    let large = format!("{{\"x\":\"{}\"}}", "x".repeat(300_000));
    assert_eq!(server.post("/mcp", &[host], &large).await.0, 413);
    let (status, answer) = server.send("nonsense\r\n\r\n".into()).await;
    assert_eq!(status, 400, "{answer}");
    assert_eq!(
        server.list_resources(&[host]).await.0,
        200,
        "the server goes on"
    );
    server.stop().await;
    daemon.stop().await;
}

/// Older clients have sessions, and may end them. If all are in use, a new session is refused.
#[tokio::test]
async fn a_session_beyond_the_limit_is_refused_and_ends_no_other() {
    let (_fixture, daemon) = Daemon::publishing("r", "skill r/a").await;
    let server = HttpServer::start(&daemon, "").await;
    let mut open = Vec::new();
    for _ in 0..caproot::agent::mcp::limits::MAX_SESSIONS {
        open.push(begin_session(&server).await);
    }
    let (status, answer) = initialize(&server).await;
    assert_eq!(status, 503, "{answer}");
    let last = &open[open.len() - 1];
    assert_eq!(list_in_session(&server, &open[0]).await.0, 200);
    assert_eq!(list_in_session(&server, last).await.0, 200);
    let delete = format!(
        "DELETE /mcp HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{last}\r\n\r\n",
        server.address
    );
    assert_eq!(server.send(delete).await.0, 200);
    assert_eq!(list_in_session(&server, last).await.0, 404);
    begin_session(&server).await;
    server.stop().await;
    daemon.stop().await;
}

/// Calls `initialize` as an older client.
async fn initialize(server: &HttpServer) -> (u16, String) {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "older", "version": "1"}}});
    server
        .post("/mcp", &["Host: {address}"], &body.to_string())
        .await
}

/// Begins a session. Returns the header that names the session.
pub(super) async fn begin_session(server: &HttpServer) -> String {
    let (status, answer) = initialize(server).await;
    assert_eq!(status, 200, "{answer}");
    let id = answer
        .lines()
        .find(|line| line.to_lowercase().starts_with("mcp-session-id:"));
    id.expect("a session").trim_end().to_owned()
}

/// Calls `resources/list` in a session.
async fn list_in_session(server: &HttpServer, session: &str) -> (u16, String) {
    let list: Value = json!({"jsonrpc": "2.0", "id": 2, "method": "resources/list", "params": {}});
    let headers = [
        "Host: {address}",
        "MCP-Protocol-Version: 2025-11-25",
        session,
    ];
    server.post("/mcp", &headers, &list.to_string()).await
}
