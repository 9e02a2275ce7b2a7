//! Declarations of servers: the skills extension or none, and URIs of other schemes than `skill`.

use serde_json::{Value, json};

use super::super::invocations::LogLines;
use super::super::session::{list_all, read_all};
use super::{arguments, start_mcp_session};
use crate::harness::test_servers::free_port;
use crate::harness::test_servers::mcp_server::{
    MockOptions, contents, entry, file, not_found, page, skill_text, start, start_with,
};

#[tokio::test]
async fn skills_of_other_schemes_are_listed() {
    let mock = start(|method, params| {
        if method == "skills/list" {
            let listed = |uri: &str| {
                let mut entry = entry("a", &[]);
                entry["uri"] = json!(uri);
                entry["resources"] = json!([file(uri, &skill_text("a"))]);
                entry
            };
            let uris = [
                "github://Org/repo/a/SKILL.md",
                "https://h/a/SKILL.md",
                "file://h/a/SKILL.md",
            ];
            return Some(page(&uris.map(listed), None));
        }
        Some(contents(params["uri"].as_str()?, &skill_text("a")))
    })
    .await;
    let session = start_mcp_session(&mock.url).await;
    let (packages, warnings) = list_all(&session).await;
    assert_eq!(packages, ["mcp+github://s/Org/repo/a"]);
    assert!(
        warnings[0].starts_with("2 skills of the MCP server \"s\" are omitted"),
        "{warnings:?}"
    );
    assert_eq!(
        read_all(
            &session,
            arguments("mcp", "s", "mcp+github://s/Org/repo/a", "")
        )
        .await,
        skill_text("a")
    );
}

#[tokio::test]
async fn a_server_without_skills_stays_connected() {
    for capabilities in [json!({"tools": {}}), json!({"resources": {}})] {
        let options = MockOptions {
            capabilities,
            ..MockOptions::default()
        };
        let mock = start_with(&free_port(), options, |_, _| Some(not_found())).await;
        let session = start_mcp_session(&mock.url).await;
        let (packages, warnings) = list_all(&session).await;
        assert!(
            packages.is_empty() && warnings[0].contains("has no skills"),
            "{warnings:?}"
        );
        let source = &session.source_states()[0];
        assert_eq!(source.reason, None, "{source:?}");
    }
}

#[tokio::test]
async fn a_log_line_has_the_declarations_of_a_server() {
    let lines = LogLines::default();
    let subscriber = tracing_subscriber::fmt()
        .json()
        .with_writer(lines.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let with_extension = start(|_, _| Some(page(&[], None))).await;
    let options = MockOptions::without_extension();
    let without = start_with(&free_port(), options, |_, _| Some(not_found())).await;
    // tracing caches the interest of a callsite at its first use, which may be in another test.
    drop(start_mcp_session(&without.url).await);
    tracing::callsite::rebuild_interest_cache();
    lines.0.lock().expect("no panic").clear();
    for (mock, is_declared) in [(&with_extension, true), (&without, false)] {
        let session = start_mcp_session(&mock.url).await;
        let written = String::from_utf8(lines.0.lock().expect("no panic").split_off(0));
        let written = written.expect("text");
        let parsed = written
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        let line = parsed.map(|line| line["fields"].clone());
        let line = line
            .into_iter()
            .find(|line| line["message"] == "MCP server is connected");
        let line = line.unwrap_or_else(|| panic!("no line: {written}"));
        assert_eq!(line["skills_extension"], is_declared, "{line}");
        assert_eq!(
            (&line["server"], &line["implementation"]),
            (&json!("s"), &json!("mock 1"))
        );
        drop(session);
    }
}
