//! `caproot call` with the MCP servers of a file that MCP hosts share.

use serde_json::{Value, json};

use super::super::call_command::CallProcess;
use super::super::{serve_tree, start_daemon};
use crate::harness::process::{client_command, run_command};
use crate::harness::test_servers::mcp_server;

#[tokio::test]
async fn servers_of_a_file_are_sources() {
    let (mut fixture, daemon) = serve_tree("local", "skill r/pdf\nskill other/notes").await;
    let other = start_daemon("other", fixture.path("other"), None).await;
    let mock = mcp_server::start_with_skills(&[("draw", &[])]).await;
    let servers = json!({"theme": "dark", "mcpServers": {
        "web": {"type": "http", "url": "${MOCK_URL}", "timeout": 5},
        "own": {"command": env!("CARGO_BIN_EXE_caproot"), "args": ["mcp"],
            "env": {"CAPROOT_ENDPOINT": format!("tcp:{}", other.address)}},
        "off": {"command": "/nonexistent", "disabled": true},
        "old": {"type": "sse", "url": "http://127.0.0.1:1/sse"},
    }});
    fixture.write("mcp.json", servers.to_string());
    let mut command = client_command(&daemon, "call --events --connect-timeout 1m --mcp-servers");
    command
        .arg(fixture.path("mcp.json"))
        .env("MOCK_URL", &mock.url);
    let mut process = CallProcess::start(command);
    let list = process.call("skills.list", &json!({})).await;
    let authority = json!({"kind": "mcp", "id": "own"});
    let package = "mcp+skill://own/other/notes";
    let read = json!({"authority": authority, "package": package, "resource": ""});
    let read = process.call("skills.read", &read).await;
    let packages: Vec<_> = list["skills"].as_array().expect("a list").iter().collect();
    let packages: Vec<_> = packages.iter().map(|skill| &skill["package"]).collect();
    let expected = [
        "skill://local/pdf",
        "mcp+skill://own/other/notes",
        "mcp+skill://web/draw",
    ];
    assert_eq!(packages, expected, "{list}");
    assert!(
        read["contents"]
            .as_str()
            .expect("text")
            .contains("Does notes.")
    );
    fixture.add("skill other/more");
    let changed = json!({"kind": "mcp", "id": "own"});
    while process.next().await["source"] != changed {}
    let count = |list: &Value| list["skills"].as_array().map_or(0, Vec::len);
    while count(&process.call("skills.list", &json!({})).await) < 4 {
        process.wait_for_event().await;
    }
    assert_eq!(process.end().await, Some(0));

    // All errors of a file are reported.
    let servers = json!({"mcpServers": {"a": {}, "b": {"url": "${CAPROOT_TEST_UNSET}"}}});
    fixture.write("bad.json", servers.to_string());
    let mut command = client_command(&daemon, "call --mcp-servers");
    command.arg(fixture.path("bad.json"));
    let output = run_command(command).await;
    assert_eq!(
        (output.code, output.stdout.len()),
        (Some(78), 0),
        "{}",
        output.stderr
    );
    for part in [
        "bad.json: mcpServers.a: has no",
        "mcpServers.b: the environment variable",
    ] {
        assert!(output.stderr.contains(part), "{}", output.stderr);
    }
    daemon.stop().await;
    other.stop().await;
}
