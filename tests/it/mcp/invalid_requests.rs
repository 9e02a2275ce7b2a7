//! Invalid input on stdio: each request gets its own error, and the session goes on.

use serde_json::{Value, json};

use super::host::{Host, request_meta};
use crate::harness::Daemon;
use crate::harness::process::{client_command, run_command};

#[tokio::test]
async fn missing_resources_are_not_found() {
    let (_fixture, daemon) = Daemon::publishing(
        "r",
        "skill r/a\nfile r/a/.env\n| secret\nfile r/a/dir/x\nfile outside/x",
    )
    .await;
    let mut host = Host::start(&daemon, "");
    let long = format!("skill://r/a/{}", "x".repeat(5_000));
    for uri in [
        "",
        "x",
        "skill://",
        "skill://r",
        "skill://r/a",
        "skill://r/a/",
        "skill://r/a/dir",
        "skill://r/a/none",
        "skill://r/a/.env",
        "skill://r/a/../../outside/x",
        "skill://r/a/%2e%2e/x",
        "skill://r/a/SKILL.md?x",
        "skill://r/a//SKILL.md",
        "skill://other/a/SKILL.md",
        "file:///etc/passwd",
        long.as_str(),
    ] {
        let error = host
            .call("resources/read", json!({"uri": uri}))
            .await
            .expect_err(uri);
        assert_eq!(
            (&error["code"], &error["data"]["uri"]),
            (&json!(-32602), &json!(uri))
        );
        let error = host
            .call("skills/get", json!({"uri": uri}))
            .await
            .expect_err(uri);
        assert_eq!(error["code"], -32602, "{uri}");
        if !["skill://r/a", "skill://r/a/dir"].contains(&uri) {
            let error = host
                .call("resources/directory/read", json!({"uri": uri}))
                .await;
            assert_eq!(error.expect_err(uri)["code"], -32602, "{uri}");
        }
    }
    let file = json!({"uri": "skill://r/a/SKILL.md"});
    let error = host
        .call("resources/directory/read", file)
        .await
        .expect_err("a file");
    assert_eq!(
        (&error["code"], &error["data"]["reason"]),
        (&json!(-32602), &json!("NOT_A_DIRECTORY"))
    );
    host.stop_with(daemon).await;
}

#[tokio::test]
async fn invalid_cursors_are_rejected() {
    let (_fixture, daemon) = Daemon::publishing("r", "repeat 501 skill r/s{}").await;
    let mut host = Host::start(&daemon, "");
    let first = host
        .call("resources/list", json!({}))
        .await
        .expect("a page");
    let foreign_cursor = first["nextCursor"].as_str().expect("more than a page");
    for method in ["skills/list", "resources/directory/read"] {
        for cursor in ["", "x", "!!", foreign_cursor] {
            let params = json!({"cursor": cursor, "uri": "skill://r/s000"});
            let error = host.call(method, params).await.expect_err(cursor);
            assert_eq!(error["code"], -32602, "{method} {cursor}");
            assert_eq!(error["data"]["reason"], "BAD_CURSOR");
        }
    }
    host.stop_with(daemon).await;
}

#[tokio::test]
async fn invalid_messages_are_rejected_and_the_session_goes_on() {
    let (_fixture, daemon) = Daemon::publishing("r", "skill r/a").await;
    let mut host = Host::start(&daemon, "--no-tools");
    host.call("server/discover", json!({}))
        .await
        .expect("an answer");
    for method in ["no/such", "tools/call", "initialize2", "ping"] {
        let error = host
            .call(method, json!({"name": "x"}))
            .await
            .expect_err(method);
        assert_eq!(error["code"], -32601, "{method}");
    }
    // Lines that are not JSON get no response. A line that is too long is skipped.
    host.send_line("{");
    host.send_line("");
    host.send_line("\u{7f}\u{0}");
    let long = json!({"jsonrpc": "2.0", "id": "long", "method": "resources/read",
        "params": {"uri": "x".repeat(300_000), "_meta": request_meta()}});
    host.send(&long);
    host.send(&json!([1, 2]));
    assert_eq!(host.next_message().await["error"]["code"], -32600);
    for (method, params) in [
        ("resources/read", json!({})),
        ("resources/read", json!({"uri": 7})),
        ("skills/get", json!({"uri": {}})),
        (
            "subscriptions/listen",
            json!({"notifications": {"resourcesListChanged": "yes"}}),
        ),
    ] {
        let error = host.call(method, params).await.expect_err(method);
        assert!(
            [-32600, -32601, -32602]
                .map(Value::from)
                .contains(&error["code"]),
            "{error}"
        );
    }
    // A request without the `_meta` field that this protocol version needs.
    host.send(&json!({"jsonrpc": "2.0", "id": 1000, "method": "resources/list", "params": {}}));
    assert_eq!(
        host.wait_for_response(1000).await.expect_err("no version")["code"],
        -32602
    );
    let list = host
        .call("resources/list", json!({}))
        .await
        .expect("the session goes on");
    assert_eq!(list["resources"].as_array().map(Vec::len), Some(1));
    host.stop_with(daemon).await;
}

#[tokio::test]
async fn invalid_command_lines_are_rejected() {
    let (_fixture, daemon) = Daemon::publishing("r", "skill r/a").await;
    for (flags, code, message) in [
        ("--selected -", 2, "stdin"),
        ("--http 127.0.0.1", 2, "--http"),
        ("--allow-host x", 2, "--http"),
        ("--allow-origin https://x", 2, "--http"),
        ("--insecure-http", 2, "--http"),
        ("--http 127.0.0.1:0 --allow-host *", 2, "HOST"),
        ("--http 127.0.0.1:0 --allow-origin x", 2, "SCHEME"),
        ("--http 0.0.0.0:0", 78, "loopback"),
        ("--http [::]:0", 78, "loopback"),
        ("--http 192.0.2.1:0 --insecure-http", 73, "192.0.2.1"),
        ("--names-budget 2001", 2, "at most 2000"),
        ("--names-budget x", 2, "number of bytes"),
        ("--no-tools --descriptions", 2, "--no-tools"),
    ] {
        let done = run_command(client_command(&daemon, &format!("mcp {flags}"))).await;
        assert_eq!(done.code, Some(code), "{flags}: {}", done.stderr);
        assert!(done.stderr.contains(message), "{flags}: {}", done.stderr);
        assert!(done.stdout.is_empty(), "{flags}: {}", done.stderr);
    }
    daemon.stop().await;
}
