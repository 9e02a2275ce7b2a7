//! `caproot call` as a process: its lines, whatever they hold, and how it ends.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use serde_json::{Value, json};

use super::{nobody, serving};
use crate::commands::{client_command, caproot, run_command};
use crate::fixture::Fixture;
use crate::harness::{Daemon, HANG_TIMEOUT};

/// A process that answers.
pub(crate) struct Calling {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<Value>,
    events: Vec<Value>,
}

impl Calling {
    pub(crate) fn of(command: &mut Command) -> Self {
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
        let stdin = self.stdin.as_mut().expect("open");
        stdin.write_all(&[line, b"\n"].concat()).expect("it reads");
    }

    pub(crate) fn next(&mut self) -> Value {
        self.lines.recv_timeout(HANG_TIMEOUT).expect("a line")
    }

    /// The answer to one request. What else comes meanwhile is kept.
    pub(crate) fn ask(&mut self, mut request: Value) -> Value {
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

    /// The result of a tool's call.
    pub(crate) fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        let answer = self.ask(json!({"method": "call", "tool": tool, "arguments": arguments}));
        assert_eq!(answer["externalContext"], true);
        assert_eq!(answer["success"], answer["result"].get("error").is_none());
        assert!(answer["result"].to_string().len() <= 8_192);
        answer["result"].clone()
    }

    /// Waits until it says that something changed, if it has not since this was asked last.
    pub(crate) fn wait_for_event(&mut self) {
        if self.events.pop().is_none() {
            let line = self.next();
            assert_eq!(line["event"], "changed", "{line}");
        }
        self.events.clear();
    }

    /// Closes stdin; the exit code.
    pub(crate) fn end(mut self) -> Option<i32> {
        drop(self.stdin.take());
        while self.lines.recv_timeout(HANG_TIMEOUT).is_ok() {}
        self.child.wait().expect("wait").code()
    }
}

impl Drop for Calling {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

async fn answering(daemon: &Daemon, words: &str) -> Calling {
    let mut command = client_command(daemon, words);
    let calling = tokio::task::spawn_blocking(move || Calling::of(&mut command));
    calling.await.expect("no panic")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_of_tools_by_flags() {
    let fixture = Fixture::new("skill r/pdf");
    let daemon = serving("local", fixture.path("r"), None).await;
    let mut calling = answering(&daemon, "call --tool-prefix team --tool-separator -").await;
    let tools = calling.ask(json!({"method": "tools"}));
    assert_eq!(tools["result"][0]["name"], "team-list");
    assert_eq!(calling.call("team-list", &json!({}))["skills"][0]["name"], "pdf");
    assert_eq!(calling.end(), Some(0));
    let refused = run_command(client_command(&daemon, "call --tool-prefix team --tool-separator .")).await;
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("\"team.list\" is not valid"), "{}", refused.stderr);
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_method() {
    let fixture = Fixture::new("skill r/pdf");
    let daemon = serving("local", fixture.path("r"), None).await;
    let mut calling = answering(&daemon, "call --events").await;
    let tools = calling.ask(json!({"method": "tools"}));
    assert_eq!(tools["result"][1]["name"], "read");
    let list = calling.call("skills.list", &json!({}));
    assert_eq!(list["skills"][0]["package"], "skill://local/pdf");
    let text = calling.ask(json!({"method": "instructions"}));
    assert_eq!((&text["result"]["listed"], &text["result"]["omitted"]), (&json!(1), &json!(0)));
    let text = calling.ask(json!({"method": "instructions", "budget": 100}));
    assert_eq!(text["result"]["omitted"], 1);
    let told = calling.ask(json!({"method": "inject", "text": "use $pdf"}));
    assert_eq!(told["result"]["fragments"][0]["name"], "pdf");
    let state = calling.ask(json!({"method": "state"}));
    assert_eq!(
        (&state["result"][0]["state"], &state["result"][0]["skills"]),
        (&json!("live"), &json!(1))
    );

    fixture.write("r/new/SKILL.md", "---\ndescription: New.\n---\n");
    loop {
        let event =
            if calling.events.is_empty() { calling.next() } else { calling.events.remove(0) };
        assert_eq!(event["event"], "changed");
        if event["executor"]["skills"] == 2 {
            break;
        }
    }
    assert_eq!(calling.end(), Some(0));
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_said() {
    let fixture = Fixture::new("skill r/pdf");
    let daemon = serving("local", fixture.path("r"), None).await;
    let mut calling = answering(&daemon, "call").await;
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
        calling.send(line);
        let answer = calling.next();
        assert_eq!(answer["error"]["code"], "BAD_REQUEST", "{answer}");
        assert!(!answer["error"]["message"].as_str().expect("why").is_empty());
    }
    calling.send(b"\n  \n");
    // What is asked at once is all answered, also when there is no more.
    for n in 0..1_000 {
        let request = json!({"id": n, "method": "call", "tool": "skills.list", "arguments": {}});
        calling.send(request.to_string().as_bytes());
    }
    drop(calling.stdin.take());
    let mut answered: Vec<_> =
        (0..1_000).map(|_| calling.next()["id"].as_u64().expect("its id")).collect();
    answered.sort_unstable();
    assert!(answered.into_iter().eq(0..1_000));
    assert_eq!(calling.end(), Some(0));
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_executor_that_is_silent() {
    let fixture = Fixture::new("skill r/pdf");
    let daemon = serving("r", fixture.path("r"), None).await;
    // The kernel takes the connection, and no daemon ever answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let silent = format!("tcp:{}", silent.local_addr().expect("an address"));
    let waiting = ["call", "--connect-timeout", "100ms"];
    let said = run_command(caproot(waiting.into_iter().chain(["--endpoint", &silent]))).await;
    assert_eq!(said.code, Some(3), "{}", said.stderr);
    assert!(said.stderr.contains("within 100ms") && said.stderr.contains("--connect-timeout"));

    let address = &daemon.address;
    fixture.write(
        "fleet.yaml",
        format!(
            "executors:\n  r: {{endpoint: 'tcp:{address}'}}\n  silent: {{endpoint: '{silent}'}}\n"
        ),
    );
    let mut fleet = caproot(waiting);
    fleet.arg("--fleet").arg(fixture.path("fleet.yaml"));
    let said = run_command(fleet).await;
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    let left_out = "the roots of silent are omitted: no response within 100ms; --connect-timeout";
    assert!(said.stderr.contains(left_out), "{}", said.stderr);
    daemon.stop().await;
}

#[tokio::test]
async fn what_it_cannot_begin_with() {
    let fixture = Fixture::new("skill r/pdf");
    let daemon = serving("local", fixture.path("r"), None).await;
    for (words, code) in [
        ("call --selected -", 2),
        ("call --fleet /nonexistent", 78),
        ("call --fleet f --root x", 2),
        ("call --root =", 2),
    ] {
        let said = run_command(client_command(&daemon, words)).await;
        assert_eq!((said.code, said.stdout.len()), (Some(code), 0), "{words}: {}", said.stderr);
    }
    let roots = json!([
        {"id": "a", "location": {"environmentId": "x", "path": "/a"}},
        {"id": "a", "location": {"environmentId": "y", "path": "/b"}},
    ]);
    fixture.write("two.json", roots.to_string());
    let mut command = client_command(&daemon, "call --selected");
    command.arg(fixture.path("two.json"));
    let said = run_command(command).await;
    assert_eq!(said.code, Some(78), "{}", said.stderr);
    daemon.stop().await;
    let said = run_command(caproot(["call", "--endpoint", &format!("tcp:{}", nobody())])).await;
    assert_eq!(said.code, Some(3), "{}", said.stderr);
}

/// A fleet's file for daemons at these addresses.
pub(crate) fn write_fleet(file: &Path, executors: &[(&str, &str)]) {
    let line = |(id, address): &(&str, &str)| format!("  {id}: {{endpoint: 'tcp:{address}'}}\n");
    let lines: String = executors.iter().map(line).collect();
    std::fs::write(file, format!("executors:\n{lines}")).expect("a file");
}
