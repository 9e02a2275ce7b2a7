//! The example of an orchestrator that has everything, with `caproot mcp` as its MCP server.

use std::path::Path;

use super::{example_orchestrator, serving};

#[tokio::test(flavor = "multi_thread")]
async fn a_thread_goes_on_while_one_of_each_fails() {
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/trees/demo");
    let daemon = serving("web", demo, None).await;
    let endpoint = format!("tcp:{}", daemon.address);
    let command =
        [env!("CARGO_BIN_EXE_caproot"), "mcp", "--endpoint", &endpoint, "--http", "127.0.0.1:0"];
    let said = example_orchestrator::run(&command.map(str::to_owned)).await.expect("it goes on");
    for line in [
        "listed: \"mcp\" \"triage-logs\"",
        "own tool: {\"words\":3}",
        "own tool: INVALID_ARGUMENTS",
        "own tool: TOOL_TIMED_OUT",
        "own tool: TOOL_PANICKED",
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
        assert!(said.iter().any(|s| s == line), "{line}\n{said:#?}");
    }
    let read = |line: &&String| line.starts_with("read while") && line.ends_with("_UNAVAILABLE");
    assert_eq!(said.iter().filter(read).count(), 2, "{said:#?}");
    daemon.stop().await;
}
