//! `caproot call` as a process: requests, responses and exit codes.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use serde_json::{Value, json};

use super::{start_daemon, unused_address};
use crate::commands::{caproot, client_command, run_command};
use crate::fixture::Fixture;
use crate::harness::{Daemon, HANG_TIMEOUT};

/// Running `caproot call` process.
pub(crate) struct CallProcess {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<Value>,
    events: Vec<Value>,
}

impl CallProcess {
    pub(crate) fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().expect("the binary runs");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let (send, lines) = channel();
        thread::spawn(move || {
            for line in stdout.lines() {
                let line = line.expect("text");
                drop(send.send(serde_json::from_str(&line).expect("one JSON object a line")));
            }
        });
        let stdin = child.stdin.take();
        Self { child, stdin, lines, events: Vec::new() }
    }

    pub(crate) fn send(&mut self, line: &[u8]) {
        let stdin = self.stdin.as_mut().expect("stdin is open");
        stdin.write_all(&[line, b"\n"].concat()).expect("the process reads");
    }

    pub(crate) fn next(&mut self) -> Value {
        self.lines.recv_timeout(HANG_TIMEOUT).expect("a line")
    }

    /// Sends a request and returns its answer. Keeps events that arrive before the answer.
    pub(crate) fn request(&mut self, mut request: Value) -> Value {
        request["id"] = json!("one");
        self.send(request.to_string().as_bytes());
        loop {
            let line = self.next();
            if line.get("event").is_none() {
                assert_eq!(line["id"], "one");
                return line;
            }
            self.events.push(line);
        }
    }

    /// Calls a tool and returns the result.
    pub(crate) fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        let answer = self.request(json!({"method": "call", "tool": tool, "arguments": arguments}));
        assert_eq!(answer["externalContext"], true);
        assert_eq!(answer["success"], answer["result"].get("error").is_none());
        assert!(answer["result"].to_string().len() <= 8_192);
        answer["result"].clone()
    }

    /// Waits for a change event, unless one has arrived since the last wait.
    pub(crate) fn wait_for_event(&mut self) {
        if self.events.pop().is_none() {
            let line = self.next();
            assert_eq!(line["event"], "changed", "{line}");
        }
        self.events.clear();
    }

    /// Closes stdin and returns the exit code.
    pub(crate) fn end(mut self) -> Option<i32> {
        drop(self.stdin.take());
        while self.lines.recv_timeout(HANG_TIMEOUT).is_ok() {}
        self.child.wait().expect("wait").code()
    }
}

impl Drop for CallProcess {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

async fn start_call(daemon: &Daemon, words: &str) -> CallProcess {
    let mut command = client_command(daemon, words);
    let process = tokio::task::spawn_blocking(move || CallProcess::start(&mut command));
    process.await.expect("no panic")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flags_set_the_tool_names() {
    let fixture = Fixture::new("skill r/pdf");
    let daemon = start_daemon("local", fixture.path("r"), None).await;
    let mut process = start_call(&daemon, "call --tool-prefix team --tool-separator -").await;
    let tools = process.request(json!({"method": "tools"}));
    assert_eq!(tools["result"][0]["name"], "team-list");
    assert_eq!(process.call("team-list", &json!({}))["skills"][0]["name"], "pdf");
    assert_eq!(process.end(), Some(0));
    let output =
        run_command(client_command(&daemon, "call --tool-prefix team --tool-separator .")).await;
    assert_eq!(output.code, Some(2), "{}", output.stderr);
    assert!(output.stderr.contains("\"team.list\" is not valid"), "{}", output.stderr);
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_method_is_answered() {
    let fixture = Fixture::new("skill r/pdf");
    let daemon = start_daemon("local", fixture.path("r"), None).await;
    let mut process = start_call(&daemon, "call --events").await;
    let tools = process.request(json!({"method": "tools"}));
    assert_eq!(tools["result"][1]["name"], "read");
    let list = process.call("skills.list", &json!({}));
    assert_eq!(list["skills"][0]["package"], "skill://local/pdf");
    let text = process.request(json!({"method": "instructions"}));
    assert_eq!((&text["result"]["listed"], &text["result"]["omitted"]), (&json!(1), &json!(0)));
    let text = process.request(json!({"method": "instructions", "budget": 100}));
    assert_eq!(text["result"]["omitted"], 1);
    let injected = process.request(json!({"method": "inject", "text": "use $pdf"}));
    assert_eq!(injected["result"]["fragments"][0]["name"], "pdf");
    let state = process.request(json!({"method": "state"}));
    assert_eq!(
        (&state["result"][0]["state"], &state["result"][0]["skills"]),
        (&json!("live"), &json!(1))
    );

    fixture.write("r/new/SKILL.md", "---\ndescription: New.\n---\n");
    loop {
        let event =
            if process.events.is_empty() { process.next() } else { process.events.remove(0) };
        assert_eq!(event["event"], "changed");
        if event["executor"]["skills"] == 2 {
            break;
        }
    }
    assert_eq!(process.end(), Some(0));
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_lines_are_errors_and_all_requests_are_answered() {
    let fixture = Fixture::new("skill r/pdf");
    let daemon = start_daemon("local", fixture.path("r"), None).await;
    let mut process = start_call(&daemon, "call").await;
    let long = "x".repeat(2 << 20);
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
        process.send(line);
        let answer = process.next();
        assert_eq!(answer["error"]["code"], "BAD_REQUEST", "{answer}");
        assert!(!answer["error"]["message"].as_str().expect("why").is_empty());
    }
    process.send(b"\n  \n");
    // Requests that were sent before the end of stdin are all answered.
    for n in 0..1_000 {
        let request = json!({"id": n, "method": "call", "tool": "skills.list", "arguments": {}});
        process.send(request.to_string().as_bytes());
    }
    drop(process.stdin.take());
    let mut answered_ids: Vec<_> =
        (0..1_000).map(|_| process.next()["id"].as_u64().expect("an id")).collect();
    answered_ids.sort_unstable();
    assert!(answered_ids.into_iter().eq(0..1_000));
    assert_eq!(process.end(), Some(0));
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_executor_is_reported_after_the_connect_timeout() {
    let fixture = Fixture::new("skill r/pdf");
    let daemon = start_daemon("r", fixture.path("r"), None).await;
    // The kernel accepts the connection, but no daemon answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let silent = format!("tcp:{}", silent.local_addr().expect("an address"));
    let waiting = ["call", "--connect-timeout", "100ms"];
    let output = run_command(caproot(waiting.into_iter().chain(["--endpoint", &silent]))).await;
    assert_eq!(output.code, Some(3), "{}", output.stderr);
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
    let output = run_command(fleet).await;
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let omitted = "the roots of silent are omitted: no response within 100ms; --connect-timeout";
    assert!(output.stderr.contains(omitted), "{}", output.stderr);
    daemon.stop().await;
}

#[tokio::test]
async fn invalid_flags_and_selections_are_errors() {
    let fixture = Fixture::new("skill r/pdf");
    let daemon = start_daemon("local", fixture.path("r"), None).await;
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
    let output = run_command(command).await;
    assert_eq!(output.code, Some(78), "{}", output.stderr);
    daemon.stop().await;
    let output =
        run_command(caproot(["call", "--endpoint", &format!("tcp:{}", unused_address())])).await;
    assert_eq!(output.code, Some(3), "{}", output.stderr);
}

/// Writes a fleet file for daemons at these addresses.
pub(crate) fn write_fleet(file: &Path, executors: &[(&str, &str)]) {
    let line = |(id, address): &(&str, &str)| format!("  {id}: {{endpoint: 'tcp:{address}'}}\n");
    let lines: String = executors.iter().map(line).collect();
    std::fs::write(file, format!("executors:\n{lines}")).expect("a file");
}
