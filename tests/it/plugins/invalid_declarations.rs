//! Invalid, hostile or huge declarations: limits, diagnostics, and no secret in any response or
//! log.

use super::{codes, resolve, resolve_tree};
use crate::harness::fixture::Fixture;
use crate::harness::process::{caproot, client_command_with, run_command};
use crate::harness::{Daemon, Setup, selected};
use caproot_core::proto::caproot::v1::{DiagnosticCode, Severity};

/// Secret that no output may contain.
const SECRET: &str = "ghp_16C7e42F292c6912E7710c838347Ae178B4a";

const MANIFEST: &str = "file r/.codex-plugin/plugin.json\n| {\"name\": \"p\"}\n";

#[tokio::test]
async fn invalid_files_give_a_diagnostic_each() {
    for (name, content, code) in [
        (
            ".mcp.json",
            "{\"a\": {\"command\": \"x\"}, \"a\": {\"command\": \"y\"}}",
            DiagnosticCode::PluginFileInvalid,
        ),
        (
            ".mcp.json",
            "{\n  // a comment\n  \"a\": {\"command\": \"x\"}\n}",
            DiagnosticCode::PluginFileInvalid,
        ),
        (".mcp.json", "{\"a\": {}}", DiagnosticCode::ComponentInvalid),
        (
            ".mcp.json",
            "{\"a\": {\"command\": \"x\", \"odd\": 1}}",
            DiagnosticCode::FieldUnknown,
        ),
        (".app.json", "[]", DiagnosticCode::PluginFileInvalid),
        (
            "hooks/hooks.json",
            "{\"hooks\": {\"Stop\": 1}}",
            DiagnosticCode::ComponentInvalid,
        ),
        (
            ".lsp.json",
            "{\"a\": {\"args\": []}}",
            DiagnosticCode::ComponentInvalid,
        ),
        (
            ".claude-plugin/marketplace.json",
            "{}",
            DiagnosticCode::PluginFileInvalid,
        ),
    ] {
        let fixture = Fixture::new(&format!("{MANIFEST}skill r/skills/one\n"));
        fixture.write(&format!("r/{name}"), content);
        let daemon = Daemon::start(Setup::allowing([fixture.top()])).await;
        let answer = resolve(&daemon, &[selected("r", fixture.path("r"))]).await;
        let root = &answer.roots[0];
        assert_eq!(
            codes(&root.diagnostics),
            [code],
            "{name} {:?}",
            root.diagnostics
        );
        assert_eq!(root.diagnostics[0].resource, format!("skill://r/{name}"));
        assert_eq!(
            (root.plugins.len(), root.counts.expect("ready").skills),
            (1, 1)
        );
        daemon.stop().await;
    }
}

#[tokio::test]
async fn huge_declarations_are_limited() {
    let fixture = Fixture::new("dir r/big\ndir r/many");
    fixture.write(
        "r/big/.codex-plugin/plugin.json",
        format!("{{\"name\":\"{}\"}}", "a".repeat(10 << 20)),
    );
    fixture.write("r/many/.codex-plugin/plugin.json", "{\"name\":\"many\"}");
    let servers: Vec<_> = (0..10_000)
        .map(|n| format!("\"{n}\":{{\"command\":\"x\"}}"))
        .collect();
    fixture.write("r/many/.mcp.json", format!("{{{}}}", servers.join(",")));
    let daemon = Daemon::start(Setup::allowing([fixture.top()])).await;
    let answer = resolve(&daemon, &[selected("r", fixture.path("r"))]).await;
    let root = &answer.roots[0];
    let mut found = codes(&root.diagnostics);
    found.dedup();
    assert_eq!(
        found,
        [
            DiagnosticCode::ManifestInvalid,
            DiagnosticCode::LimitReached
        ]
    );
    let [many] = &root.plugins[..] else {
        panic!("{:?}", root.plugins)
    };
    let kept = many.mcp_servers.len();
    assert!((500..=1_000).contains(&kept), "{kept}");
    daemon.stop().await;
}

/// A value takes a few bytes on the wire and up to 1 KiB in a client.
#[tokio::test]
async fn costly_declarations_fit_into_the_memory_of_a_client() {
    let nested = format!("{}1{}", r#"{"a":"#.repeat(28), "}".repeat(28));
    let values = vec![nested; 170].join(",");
    let servers: Vec<_> = (0..4)
        .map(|n| format!(r#""s{n}":{{"command":"x","a":[{values}]}}"#))
        .collect();
    let tree = format!("{MANIFEST}file r/.lsp.json\n| {{{}}}\n", servers.join(","));
    let (_fixture, daemon) = Daemon::publishing("r", &tree).await;
    for words in ["resolve --output text", "resolve --output json"] {
        let done = run_command(client_command_with(&daemon, words.split(' '))).await;
        let text = done.text();
        assert_eq!(done.code, Some(0), "{}", done.stderr);
        assert!(text.contains("s0") && text.contains("truncated"), "{words}");
    }
    daemon.stop().await;
}

#[tokio::test]
async fn paths_out_of_the_plugin_are_not_followed() {
    let (_fixture, daemon, plugins, diagnostics) = resolve_tree(r#"
file r/p/.codex-plugin/plugin.json
| {"name": "p", "mcpServers": ["../shared.json", "/etc/passwd", "./link.json", "./node_modules/x.json"],
|  "agents": "./gone.md", "apps": "./.env.json", "interface": {"logo": "./logo.svg"}}
file r/shared.json
| {"a": {"command": "hunter2"}}
link r/p/link.json -> ../shared.json
link r/p/logo.svg -> ../shared.json
link r/p/agents -> ../others
file r/others/x.md
| ---
| description: hunter2
| ---
file r/p/node_modules/x.json
| {"a": {"command": "hunter2"}}
file r/p/.env.json
| {"a": {"id": "hunter2"}}
fifo r/p/hooks/hooks.json
"#)
    .await;
    let text = format!("{plugins:?}{diagnostics:?}");
    assert!(!text.contains("hunter2"), "{text}");
    assert!(!text.contains("/etc"), "no absolute path: {text}");
    let count = |code| {
        codes(&diagnostics)
            .into_iter()
            .filter(|c| *c == code)
            .count()
    };
    assert_eq!(count(DiagnosticCode::PathInvalid), 7, "{diagnostics:?}");
    assert_eq!(count(DiagnosticCode::PathMissing), 1, "{diagnostics:?}");
    assert_eq!(count(DiagnosticCode::NotRegular), 1, "{diagnostics:?}");
    daemon.stop().await;
}

#[tokio::test]
async fn no_output_contains_a_secret() {
    let tree = format!(
        r#"
file r/.claude-plugin/plugin.json
| {{"name": "p", "description": "key {SECRET}", "homepage": "https://me:{SECRET}@example.com/?t={SECRET}",
|  "keywords": ["{SECRET}"], "author": "{SECRET}", "x-{SECRET}": 1, "interface": {{"displayName": "{SECRET}"}},
|  "hooks": {{"Stop": [{{"matcher": "{SECRET}", "hooks": [{{"type": "command", "command": "curl -H 'X-Key: {SECRET}' x"}},
|     {{"type": "http", "url": "https://example.com/{SECRET}", "headers": {{"A": "{SECRET}"}}}}]}}], "{SECRET}": 1}}}}
file r/.mcp.json
| {{"{SECRET}": {{"command": "run {SECRET}", "args": ["--token", "{SECRET}", "--x={SECRET}", "-e", "A={SECRET}"],
|    "env": {{"A": "{SECRET}", "{SECRET}": "b"}}, "cwd": "/{SECRET}", "{SECRET}": 1, "enabled_tools": ["{SECRET}"]}},
|   "b": {{"url": "https://example.com/?api_key={SECRET}", "headers": {{"Authorization": "Bearer {SECRET}"}},
|    "type": "{SECRET}"}}, "c": {{"url": "https://{SECRET}@example.com/"}}}}
file r/.app.json
| {{"apps": {{"{SECRET}": {{"id": "{SECRET}", "category": "{SECRET}"}}}}}}
file r/.lsp.json
| {{"{SECRET}": {{"command": "x", "args": ["{SECRET}"], "env": {{"A": "{SECRET}", "{SECRET}": "b"}},
|    "settings": {{"{SECRET}": 1, "a": [{{"b": "x={SECRET}"}}, "{SECRET}"]}}}}}}
file r/agents/a.md
| ---
| name: "{SECRET}"
| description: "{SECRET}"
| tools: [a, "{SECRET}"]
| {SECRET}: 1
| ---
file r/.claude-plugin/marketplace.json
| {{"name": "{SECRET}", "plugins": [{{"name": "{SECRET}", "source": "./{SECRET}/../x"}},
|   {{"name": "b", "source": {{"source": "url", "url": "https://x:{SECRET}@example.com/"}}}}]}}
"#
    );
    let fixture = Fixture::new(&tree);
    let daemon = Daemon::start(Setup::allowing([fixture.top()])).await;
    let answer = resolve(&daemon, &[selected("r", fixture.path("r"))]).await;
    let text = format!("{answer:?}");
    let leak = text
        .find(SECRET)
        .map(|at| &text[at.saturating_sub(200)..at + 60]);
    assert_eq!(leak, None);
    assert_eq!(answer.roots[0].plugins.len(), 1);
    let redacted = answer.roots[0].diagnostics.iter();
    assert!(
        redacted
            .filter(|d| d.code() == DiagnosticCode::SecretRedacted)
            .count()
            >= 3
    );
    daemon.stop().await;
    // The linter does not quote the line with the secret.
    fixture.write(
        "r/.mcp.json",
        format!("{{\"a\": {{\"env\": {{\"A\": \"{SECRET}\"}}}},}}"),
    );
    let done = run_command(caproot(["check", "--notes"]).arg(fixture.path("r"))).await;
    let text = format!("{}{}", done.text(), done.stderr);
    assert!(
        text.contains("PLUGIN_FILE_INVALID") && !text.contains(SECRET),
        "{text}"
    );
}

#[tokio::test]
async fn severities_follow_the_kind_of_problem() {
    let (_fixture, daemon, plugins, diagnostics) = resolve_tree(&format!(
        "{MANIFEST}file r/.mcp.json\n| {{\"a\": {{}}, \"b\": {{\"command\": \"x\", \"args\": [\"--token=abc\"]}}}}\n"
    ))
    .await;
    let found: Vec<_> = diagnostics
        .iter()
        .map(|d| (d.code(), d.severity()))
        .collect();
    let expected = [
        (DiagnosticCode::ComponentInvalid, Severity::Error),
        (DiagnosticCode::SecretRedacted, Severity::Warning),
    ];
    assert_eq!(found, expected);
    assert_eq!(plugins[0].mcp_servers.len(), 1);
    daemon.stop().await;
}
