//! Plugins on the command line: output of `resolve`, `read`, `resources` and `watch`.

use super::TREE;
use crate::commands::{caproot, ended};
use crate::fixture::Fixture;
use crate::harness::{Daemon, Setup, in_time};
use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

fn client_command(daemon: &Daemon, args: &[&str]) -> Command {
    let mut command = caproot(args.iter().map(OsStr::new));
    command.env("CAPROOT_ENDPOINT", format!("tcp:{}", daemon.address));
    command
}

#[tokio::test]
async fn resolve_prints_components_and_read_prints_their_files() {
    let fixture = Fixture::new(TREE);
    let daemon = Daemon::start(Setup::publishing("r", fixture.path("r"))).await;
    let done = ended(client_command(&daemon, &["resolve"])).await;
    let stdout = String::from_utf8(done.stdout).expect("text");
    for line in [
        "  marketplace shop: 1 plugin",
        "  plugin demo 1.2  skill://r",
        "    mcp local  stdio: npx serve (KEY)",
        "    mcp remote  http: https://example.com/mcp (X-Api-Key)",
        "    app mail  connector_1",
        "    hook PreToolUse  Bash command: ${CLAUDE_PLUGIN_ROOT}/x",
        "    agent reviewer  Reviews.",
        "    command go",
        "    output style terse  Says little.",
        "    lsp go  gopls",
        "  plugin inner  skill://r/nested/inner",
        "    mcp a  sse: https://example.com/sse",
    ] {
        assert!(stdout.lines().any(|printed| printed.trim_end() == line), "{line}\n{stdout}");
    }
    let done = ended(client_command(&daemon, &["read", "skill://r/agents/reviewer.md"])).await;
    assert!(String::from_utf8(done.stdout).expect("text").contains("Review it."));
    let done = ended(client_command(&daemon, &["read", "skill://r/config/mcp.json"])).await;
    assert!(
        done.stdout.is_empty() && done.stderr.contains("RESOURCE_NOT_FOUND"),
        "{}",
        done.stderr
    );
    let done = ended(client_command(&daemon, &["resources", "skill://r"])).await;
    assert_eq!(String::from_utf8(done.stdout).expect("text").lines().count(), 6);
    daemon.stop().await;
}

#[tokio::test]
async fn watch_prints_changes_of_components() {
    let fixture = Fixture::new(TREE);
    let daemon = Daemon::start(Setup::publishing("r", fixture.path("r"))).await;
    let mut command = client_command(&daemon, &["watch"]);
    let path = fixture.path("r/nested/inner/.mcp.json");
    let printed = tokio::task::spawn_blocking(move || {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the binary runs");
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        let mut text = String::new();
        while !text.contains("= synced") {
            assert_ne!(stdout.read_line(&mut text).expect("text"), 0, "the watch ended: {text}");
        }
        std::fs::write(path, "{\"b\": {\"command\": \"x\"}}").expect("a file");
        while !text.contains("~ plugin") {
            assert_ne!(stdout.read_line(&mut text).expect("text"), 0, "the watch ended: {text}");
        }
        child.kill().and_then(|()| child.wait()).expect("the watch ends");
        text
    });
    let text = in_time(printed).await.expect("no panic");
    let summary = "mcp 2, app 1, hook 1, agent 1, command 1, output style 1, lsp 1";
    assert!(text.contains(&format!("+ plugin demo  skill://r  {summary}")), "{text}");
    assert!(text.contains("~ plugin inner  skill://r/nested/inner  -mcp a, +mcp b"), "{text}");
    daemon.stop().await;
}
