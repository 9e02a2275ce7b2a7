//! Log of `caproot call` and `caproot mcp` on stderr. stdout has the protocol only.

use serde_json::{Value, json};

use crate::harness::Daemon;
use crate::harness::fixture::Fixture;
use crate::harness::process::{Output, Process, client_command};
use crate::orchestrator::serve_tree;

const TOOLS: &str =
    r#"[{"name": "count", "description": "Counts.", "inputSchema": {"type": "object"}}]"#;

/// Asserts that each line of stdout is a JSON object, and returns the lines.
fn json_lines(output: &Output) -> Vec<Value> {
    let lines = output.text().lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}")))
        .collect()
}

/// Calls a tool of the program that has a bug, and returns the output after the call.
async fn call_with_bug(daemon: &Daemon, fixture: &Fixture, variable: Option<&str>) -> Output {
    fixture.write("tools.json", TOOLS);
    let mut command = client_command(daemon, "call --tools");
    command.arg(fixture.path("tools.json"));
    if let Some(filter) = variable {
        command.env("CAPROOT_LOG", filter);
    }
    let mut process = Process::spawn(command);
    process.send_line(br#"{"id":1,"method":"call","tool":"count","arguments":{}}"#);
    let event: Value = serde_json::from_str(&process.line().await).expect("JSON");
    assert_eq!(event["event"], "tool");
    process.send_line(br#"{"id":2,"method":"tool_result","call":1,"bug":"KeyError: 'text'"}"#);
    process.exit().await.succeeded()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_internal_error_of_an_own_tool_is_logged_with_its_text() {
    let (fixture, daemon) = serve_tree("local", "skill r/pdf").await;
    let output = call_with_bug(&daemon, &fixture, None).await;
    let line = output.stderr.lines().collect::<Vec<_>>();
    let [line] = line[..] else {
        panic!("one line: {}", output.stderr)
    };
    assert!(line.contains("ERROR"), "{line}");
    assert!(
        line.contains("internal error of a tool: KeyError: 'text'"),
        "{line}"
    );
    let answers = json_lines(&output);
    assert_eq!(answers.len(), 2, "{answers:?}");
    assert!(!output.text().contains("KeyError"), "{}", output.text());

    let output = call_with_bug(&daemon, &fixture, Some("off")).await;
    assert_eq!(output.stderr, "");
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lines_of_mcp_servers_are_on_stderr() {
    let (fixture, daemon) = serve_tree("local", "skill r/pdf").await;
    let script = r#"echo "from the server" >&2; exec "$0" mcp"#;
    let servers = json!({"mcpServers": {
        "lost": {"command": "/nonexistent"},
        "own": {"command": "sh", "args": ["-c", script, env!("CARGO_BIN_EXE_caproot")],
            "env": {"CAPROOT_ENDPOINT": format!("tcp:{}", daemon.address)}},
    }});
    fixture.write("mcp.json", servers.to_string());

    for (words, shows_connected) in [("call", false), ("call --log info", true)] {
        let words = format!("{words} --connect-timeout 1m --mcp-servers");
        let mut command = client_command(&daemon, &words);
        command.arg(fixture.path("mcp.json"));
        let mut process = Process::spawn(command);
        process.send_line(br#"{"id":1,"method":"state"}"#);
        let output = process.exit().await.succeeded();
        assert_eq!(json_lines(&output).len(), 1);
        let log = &output.stderr;
        assert!(log.contains("from the server\n"), "{log}");
        let lost = log.lines().find(|line| line.contains("is unavailable"));
        let lost = lost.unwrap_or_else(|| panic!("no line: {log}"));
        assert!(
            lost.contains("WARN") && lost.contains("server=\"lost\""),
            "{lost}"
        );
        let connected = "MCP server is connected server=\"own\"";
        assert_eq!(log.contains(connected), shows_connected, "{log}");
    }
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_of_an_mcp_server_is_not_part_of_the_protocol() {
    let (_fixture, daemon) = serve_tree("local", "skill r/pdf").await;
    let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"}}});
    for (words, is_quiet) in [("mcp", true), ("mcp --log trace", false)] {
        let mut process = Process::spawn(client_command(&daemon, words));
        process.send_line(initialize.to_string().as_bytes());
        let first: Value = serde_json::from_str(&process.line().await).expect("JSON");
        assert_eq!(first["id"], 1);
        let output = process.exit().await.succeeded();
        json_lines(&output);
        assert_eq!(output.stderr.is_empty(), is_quiet, "{}", output.stderr);
    }
    let mut process = Process::spawn(client_command(&daemon, "mcp --log inof"));
    assert_eq!(process.next_line().await, None);
    process.exit().await.exited_with(2, "--log");
    daemon.stop().await;
}
