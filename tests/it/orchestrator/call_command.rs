//! `caproot call` as a process: requests, responses and exit codes.

use std::borrow::BorrowMut;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::serve_tree;
use crate::harness::Daemon;
use crate::harness::process::{Process, caproot, client_command, run_command};
use crate::harness::test_servers::{silent_listener, unused_address};

/// Running `caproot call` process.
pub(crate) struct CallProcess {
    process: Process,
    events: Vec<Value>,
}

impl CallProcess {
    pub(crate) fn start(command: impl BorrowMut<Command>) -> Self {
        Self {
            process: Process::spawn(command),
            events: Vec::new(),
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Returns the next line.
    pub(crate) async fn next(&mut self) -> Value {
        let line = self.process.line().await;
        serde_json::from_str(&line).expect("one JSON object a line")
    }

    /// Sends a request and returns its answer. Keeps events that arrive before the answer.
    pub(crate) async fn request(&mut self, mut request: Value) -> Value {
        request["id"] = json!("one");
        self.send(&request);
        loop {
            let line = self.next().await;
            if line.get("event").is_none() {
                assert_eq!(line["id"], "one");
                return line;
            }
            self.events.push(line);
        }
    }

    /// Calls a tool and returns the result.
    pub(crate) async fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        let answer = self
            .request(json!({"method": "call", "tool": tool, "arguments": arguments}))
            .await;
        assert_eq!(answer["externalContext"], true);
        assert_eq!(answer["success"], answer["result"].get("error").is_none());
        assert!(answer["result"].to_string().len() <= 8_192);
        answer["result"].clone()
    }

    /// Waits for a change event, unless one has arrived since the last wait.
    pub(crate) async fn wait_for_event(&mut self) {
        if self.events.pop().is_none() {
            let line = self.next().await;
            assert_eq!(line["event"], "changed", "{line}");
        }
        self.events.clear();
    }

    /// Sends a request without waiting for its answer.
    pub(crate) fn send(&mut self, request: &Value) {
        self.process.send_line(request.to_string().as_bytes());
    }

    pub(crate) fn close_stdin(&mut self) {
        drop(self.process.take_stdin());
    }

    /// Closes stdin and returns the exit code.
    pub(crate) async fn end(self) -> Option<i32> {
        self.process.exit().await.code
    }
}

fn start_call(daemon: &Daemon, words: &str) -> CallProcess {
    CallProcess::start(client_command(daemon, words))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_method_is_answered() {
    let (fixture, daemon) = serve_tree("local", "skill r/pdf").await;
    let mut process = start_call(&daemon, "call --events");
    let tools = process.request(json!({"method": "tools"})).await;
    assert_eq!(tools["result"][1]["name"], "skills_read");
    let list = process.call("skills.list", &json!({})).await;
    assert_eq!(list["skills"][0]["package"], "skill://local/pdf");
    let text = process.request(json!({"method": "instructions"})).await;
    assert_eq!(
        (&text["result"]["listed"], &text["result"]["omitted"]),
        (&json!(1), &json!(0))
    );
    let text = process
        .request(json!({"method": "instructions", "budget": 100}))
        .await;
    assert_eq!(text["result"]["omitted"], 1);
    let injected = process
        .request(json!({"method": "inject", "text": "use $pdf"}))
        .await;
    assert_eq!(injected["result"]["fragments"][0]["name"], "pdf");
    let state = process.request(json!({"method": "state"})).await;
    assert_eq!(
        (&state["result"][0]["state"], &state["result"][0]["skills"]),
        (&json!("live"), &json!(1))
    );

    fixture.write("r/new/SKILL.md", "---\ndescription: New.\n---\n");
    loop {
        let event = if process.events.is_empty() {
            process.next().await
        } else {
            process.events.remove(0)
        };
        assert_eq!(event["event"], "changed");
        if event["executor"]["skills"] == 2 {
            break;
        }
    }
    assert_eq!(process.end().await, Some(0));
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_lines_are_errors_and_all_requests_are_answered() {
    let (_fixture, daemon) = serve_tree("local", "skill r/pdf").await;
    let mut process = start_call(&daemon, "call");
    let long = "x".repeat(6 << 20);
    let bad: [&[u8]; 10] = [
        b"garbage",
        b"[]",
        b"{\"id\":1}",
        b"{\"method\":7}",
        b"{\"method\":\"none\"}",
        b"{\"method\":\"tools\",\"more\":1}",
        b"{\"method\":\"call\"}",
        b"{\"method\":\"inject\",\"text\":1}",
        b"{\"method\":\"tools\"}\xff",
        long.as_bytes(),
    ];
    for line in bad {
        process.process.send_line(line);
        let answer = process.next().await;
        assert_eq!(answer["error"]["code"], "BAD_REQUEST", "{answer}");
        assert!(!answer["error"]["message"].as_str().expect("why").is_empty());
    }
    process.process.send_line(b"\n  \n");
    // Requests that were sent before the end of stdin are all answered.
    for n in 0..1_000 {
        let request = json!({"id": n, "method": "call", "tool": "skills.list", "arguments": {}});
        process.send(&request);
    }
    process.close_stdin();
    let mut answered_ids = Vec::new();
    for _ in 0..1_000 {
        answered_ids.push(process.next().await["id"].as_u64().expect("an id"));
    }
    answered_ids.sort_unstable();
    assert!(answered_ids.into_iter().eq(0..1_000));
    assert_eq!(process.end().await, Some(0));
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_executor_is_reported_after_the_connect_timeout() {
    let (fixture, daemon) = serve_tree("r", "skill r/pdf").await;
    let (_listener, address) = silent_listener();
    let silent = format!("tcp:{address}");
    let waiting = ["call", "--connect-timeout", "100ms"];
    let output = run_command(caproot(waiting.into_iter().chain(["--endpoint", &silent])))
        .await
        .exited_with(3, "");
    assert!(output.stderr.contains("within 100ms") && output.stderr.contains("--connect-timeout"));

    let address = &daemon.address;
    fixture.write(
        "fleet.yaml",
        format!(
            "executors:\n  r: {{endpoint: 'tcp:{address}'}}\n  silent: {{endpoint: '{silent}'}}\n"
        ),
    );
    let mut fleet = caproot(waiting);
    fleet.arg("--fleet").arg(fixture.path("fleet.yaml"));
    let output = run_command(fleet).await.succeeded();
    let omitted = "the roots of silent are omitted: no response within 100ms; --connect-timeout";
    assert!(output.stderr.contains(omitted), "{}", output.stderr);
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_state_of_each_executor_is_reported() {
    let (fixture, daemon) = serve_tree("r", "skill r/pdf").await;
    let (_listener, silent) = silent_listener();
    let refused = unused_address();
    let file = fixture.path("fleet.yaml");
    write_fleet(
        &file,
        &[
            ("r", &daemon.address),
            ("silent", &silent),
            ("refused", &refused),
        ],
    );
    let selected = ["r", "silent", "refused", "unknown"].map(|id| {
        let path = format!("published:{id}");
        json!({"id": id, "location": {"type": "environment", "environmentId": id, "path": path}})
    });
    fixture.write("selected.json", json!(selected).to_string());

    let mut command = caproot(["call", "--events", "--connect-timeout", "100ms"]);
    command.arg("--fleet").arg(file);
    command.arg("--selected").arg(fixture.path("selected.json"));
    let mut process = CallProcess::start(command);

    let expected = json!({
        "r": "live",
        "refused": "failed",
        "silent": "connecting",
        "unknown": "failed",
    });
    loop {
        let answer = process.request(json!({"method": "state"})).await;
        let states = answer["result"].as_array().expect("a list").iter();
        let states: Value = states
            .map(|state| {
                let id = state["environmentId"].as_str().expect("an id");
                (id, state["state"].clone())
            })
            .collect();
        if states == expected {
            break;
        }
        // A slow machine may report a state after the connect timeout.
        process.wait_for_event().await;
    }
    assert_eq!(process.end().await, Some(0));
    daemon.stop().await;
}

#[tokio::test]
async fn invalid_flags_and_selections_are_errors() {
    let (fixture, daemon) = serve_tree("local", "skill r/pdf").await;
    for (words, code) in [
        ("call --selected -", 2),
        ("call --fleet /nonexistent", 78),
        ("call --fleet f --root x", 2),
        ("call --root =", 2),
    ] {
        let output = run_command(client_command(&daemon, words)).await;
        assert_eq!(
            (output.code, output.stdout.len()),
            (Some(code), 0),
            "{words}: {}",
            output.stderr
        );
    }
    let roots = json!([
        {"id": "a", "location": {"environmentId": "x", "path": "/a"}},
        {"id": "a", "location": {"environmentId": "y", "path": "/b"}},
    ]);
    fixture.write("two.json", roots.to_string());
    let mut command = client_command(&daemon, "call --selected");
    command.arg(fixture.path("two.json"));
    run_command(command).await.exited_with(78, "");
    daemon.stop().await;
    run_command(caproot([
        "call",
        "--endpoint",
        &format!("tcp:{}", unused_address()),
    ]))
    .await
    .exited_with(3, "");
}

/// Writes a fleet file for daemons at these addresses.
pub(crate) fn write_fleet(file: &Path, executors: &[(&str, &str)]) {
    let line = |(id, address): &(&str, &str)| format!("  {id}: {{endpoint: 'tcp:{address}'}}\n");
    let lines: String = executors.iter().map(line).collect();
    std::fs::write(file, format!("executors:\n{lines}")).expect("a file");
}
