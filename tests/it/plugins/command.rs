//! Plugins on the command line: output of `resolve`, `read`, `resources` and `watch`.

use super::TREE;
use crate::harness::Daemon;
use crate::harness::process::{Process, client_command_with, run_command};

#[tokio::test]
async fn resolve_prints_components_and_read_prints_their_files() {
    let (_fixture, daemon) = Daemon::publishing("r", TREE).await;
    let done = run_command(client_command_with(&daemon, ["resolve"])).await;
    let stdout = done.text();
    for line in [
        "  marketplace shop: 1 plugin",
        "  plugin demo 1.2  skill://r",
        "    mcp skill://r#local  stdio: npx serve (KEY)",
        "    mcp skill://r#remote  http: https://example.com/mcp (X-Api-Key)",
        "    app mail  connector_1",
        "    hook PreToolUse  Bash ${CLAUDE_PLUGIN_ROOT}/x",
        "    agent reviewer  Reviews.",
        "    command go",
        "    output style terse  Says little.",
        "    lsp server go  gopls",
        "  plugin inner  skill://r/nested/inner",
        "    host needs  local.exec@1, tray",
        "    mcp skill://r/nested/inner#a  sse: https://example.com/sse",
    ] {
        assert!(
            stdout.lines().any(|printed| printed.trim_end() == line),
            "{line}\n{stdout}"
        );
    }
    let done = run_command(client_command_with(
        &daemon,
        ["read", "skill://r/agents/reviewer.md"],
    ))
    .await;
    assert!(done.text().contains("Review it."));
    let done = run_command(client_command_with(
        &daemon,
        ["read", "skill://r/config/mcp.json"],
    ))
    .await;
    assert!(
        done.stdout.is_empty() && done.stderr.contains("RESOURCE_NOT_FOUND"),
        "{}",
        done.stderr
    );
    let done = run_command(client_command_with(&daemon, ["resources", "skill://r"])).await;
    assert_eq!(done.text().lines().count(), 16);
    daemon.stop().await;
}

#[tokio::test]
async fn watch_prints_changes_of_components() {
    let (fixture, daemon) = Daemon::publishing("r", TREE).await;
    let mut process = Process::spawn(client_command_with(&daemon, ["watch"]));
    let mut text = String::new();
    for part in ["= synced", "~ plugin"] {
        while !text.contains(part) {
            text += &process.line().await;
            text.push('\n');
        }
        fixture.write("r/nested/inner/.mcp.json", "{\"b\": {\"command\": \"x\"}}");
    }
    let summary = "mcp 2, app 1, hook 1, lsp server 1, agent 1, command 1, output style 1";
    assert!(
        text.contains(&format!("+ plugin demo  skill://r  {summary}")),
        "{text}"
    );
    assert!(
        text.contains("~ plugin inner  skill://r/nested/inner  -mcp a, +mcp b"),
        "{text}"
    );
    daemon.stop().await;
}
