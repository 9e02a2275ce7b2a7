//! The orchestrator example, with `caproot mcp` as its MCP server.

use std::path::Path;

use super::{example_orchestrator, start_daemon};

#[tokio::test(flavor = "multi_thread")]
async fn a_thread_continues_while_one_source_of_each_kind_fails() {
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/trees/demo");
    let daemon = start_daemon("web", demo, None).await;
    let endpoint = format!("tcp:{}", daemon.address);
    let command = [
        env!("CARGO_BIN_EXE_caproot"),
        "mcp",
        "--endpoint",
        &endpoint,
        "--http",
        "127.0.0.1:0",
    ];
    let lines = example_orchestrator::run(&command.map(str::to_owned))
        .await
        .expect("the example succeeds");
    for line in [
        "listed: \"mcp\" \"triage-logs\"",
        "own tool: {\"words\":3}",
        "own tool: INVALID_ARGUMENTS",
        "own tool: TOOL_TIMED_OUT",
        "own tool: TOOL_INTERNAL_ERROR",
        "read: All about style.",
        "read while two are gone: All about deploy.",
        "read while two are gone: EXECUTOR_UNAVAILABLE",
        "read while two are gone: SOURCE_UNAVAILABLE",
        "deleted: false",
        "since then in build: [\"skill://build/release\"], gone []",
        "since then in docs: [], gone []",
        "read again: All about style.",
        "the fork has: [String(\"deploy\"), String(\"release\")]",
        "deleted: true",
        "answered twice: []",
        "still pending: []",
    ] {
        assert!(lines.iter().any(|s| s == line), "{line}\n{lines:#?}");
    }
    let read = |line: &&String| line.starts_with("read while") && line.ends_with("_UNAVAILABLE");
    // The cached file of the MCP server is the third, once the source has noticed the loss.
    assert!(
        (2..=3).contains(&lines.iter().filter(read).count()),
        "{lines:#?}"
    );
    daemon.stop().await;
}
