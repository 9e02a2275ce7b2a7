//! MCP host by hand: runs `caproot mcp` as a child, and exchanges lines of JSON-RPC.

use std::collections::VecDeque;
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::Daemon;
use crate::harness::process::{Output, Process, client_command};

/// Returns the `_meta` field that each request of the current protocol version needs.
pub(super) fn request_meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "a host", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    })
}

/// MCP host and its server process.
pub(crate) struct Host {
    process: Process,
    /// Notifications that no test has taken yet.
    notifications: VecDeque<Value>,
    /// Id of the last request.
    last_id: u64,
    /// Whether the host negotiated the protocol version with `initialize`, as older versions do.
    is_older: bool,
    /// Whether the next call waits until the server has the first list of the daemon.
    waits_for_daemon: bool,
}

impl Host {
    /// Starts a host of the current protocol version, with the daemon's roots or the roots of the
    /// flags.
    pub(crate) fn start(daemon: &Daemon, flags: &str) -> Self {
        Self::start_command(client_command(daemon, &format!("mcp {flags}")))
    }

    /// Starts a host with the given server command, whose daemon is running.
    pub(crate) fn start_command(command: Command) -> Self {
        Self {
            waits_for_daemon: true,
            ..Self::start_without_daemon(command)
        }
    }

    /// Starts a host with the given server command, which may have no daemon.
    pub(super) fn start_without_daemon(command: Command) -> Self {
        let process = Process::spawn(command);
        Self {
            process,
            notifications: VecDeque::new(),
            last_id: 0,
            is_older: false,
            waits_for_daemon: false,
        }
    }

    /// Starts a host of an older protocol version. Returns the result of `initialize`.
    pub(super) async fn start_older(daemon: &Daemon) -> (Self, Value) {
        let mut host = Self::start(daemon, "");
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "an older host", "version": "1"}});
        let result = host.initialize(params).await;
        (host, result)
    }

    /// Begins a session of an older protocol version. Returns the result of `initialize`.
    pub(super) async fn initialize(&mut self, params: Value) -> Value {
        self.is_older = true;
        let id = self.send_request("initialize", params);
        let result = self.wait_for_response(id).await.expect("a result");
        self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        result
    }

    /// Waits until the server has the first list of the daemon: a list is answered before, a read is not.
    async fn wait_for_daemon(&mut self) {
        let id = self.send_request("resources/read", json!({"uri": "skill://none"}));
        self.wait_for_response(id).await.expect_err("no resource");
    }

    /// Returns the notifications that came before the response to a request.
    pub(super) async fn notifications_until_now(&mut self) -> Vec<Value> {
        let templates = self.call("resources/templates/list", json!({})).await;
        templates.expect("a list");
        self.notifications.drain(..).collect()
    }

    /// Sends a JSON-RPC message.
    pub(super) fn send(&mut self, message: &Value) {
        self.send_line(&message.to_string());
    }

    /// Sends any text as a line.
    pub(super) fn send_line(&mut self, line: &str) {
        self.process.send_line(line.as_bytes());
    }

    /// Sends a request, and returns its id.
    pub(crate) fn send_request(&mut self, method: &str, mut params: Value) -> u64 {
        if !self.is_older {
            params["_meta"] = request_meta();
        }
        self.last_id += 1;
        let id = self.last_id;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    /// Sends a request, and returns its result or error.
    pub(crate) async fn call(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        if std::mem::take(&mut self.waits_for_daemon) {
            self.wait_for_daemon().await;
        }
        let id = self.send_request(method, params);
        self.wait_for_response(id).await
    }

    /// Waits for the response to a request. Keeps the notifications that come before.
    pub(super) async fn wait_for_response(&mut self, id: u64) -> Result<Value, Value> {
        loop {
            let mut message = self.next_message().await;
            if message.get("id").is_none() {
                self.notifications.push_back(message);
            } else if message["id"] == id {
                let result = message.get_mut("result").map(Value::take);
                return result.ok_or_else(|| message["error"].take());
            } else {
                panic!("response without a request: {message}");
            }
        }
    }

    /// Returns the next message of the server.
    pub(super) async fn next_message(&mut self) -> Value {
        serde_json::from_str(&self.process.line().await).expect("stdout is for JSON-RPC only")
    }

    /// Returns the next notification.
    pub(crate) async fn next_notification(&mut self) -> Value {
        if let Some(notification) = self.notifications.pop_front() {
            return notification;
        }
        let message = self.next_message().await;
        assert!(message.get("id").is_none(), "no notification: {message}");
        message
    }

    /// Lists all items page by page. Returns the items and the number of pages.
    pub(crate) async fn list_all(
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
            let mut page = self.call(method, params).await.expect("a page");
            assert!(page.to_string().len() < 1 << 20, "a page of under 1 MiB");
            pages += 1;
            let Value::Array(more) = page[items].take() else {
                panic!("{items} in {page}")
            };
            all.extend(more);
            match page.get("nextCursor") {
                Some(next) => cursor = Some(next.clone()),
                None => return (all, pages),
            }
        }
    }

    /// Stops the server and then its daemon, and asserts that both end without an error.
    pub(super) async fn stop_with(self, daemon: Daemon) {
        self.stop().await.succeeded();
        daemon.stop().await;
    }

    /// Closes stdin, and waits until the server exits.
    pub(crate) async fn stop(self) -> Output {
        let output = self.process.exit().await;
        for line in output.text().lines() {
            serde_json::from_str::<Value>(line).expect("stdout is for JSON-RPC only");
        }
        output
    }
}
