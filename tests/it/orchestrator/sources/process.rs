//! An MCP server that is a process of its own: `caproot mcp`, over a daemon's skills. What the two agree on
//! is what the daemon has; a change comes through both.

use std::sync::Arc;

use caproot::host::{McpEndpoint, McpServerConfig, McpSource};
use caproot::session::SkillSource;

use super::super::serving;
use super::super::session::{list_all, read_all};
use super::{arguments, of};
use crate::fixture::Fixture;
use crate::harness::{HANG_TIMEOUT, in_time};

#[tokio::test]
async fn caproot_is_its_own_host() {
    let large = "ä\"x\n".repeat(10_000);
    let mut fixture = Fixture::new("skill r/a\nskill r/b\nfile r/a/deep/x%20y.md\n| hello");
    fixture.write("r/a/large.md", &large);
    let daemon = serving("r", fixture.path("r"), None).await;
    let endpoint = format!("tcp:{}", daemon.address);
    let way = McpEndpoint::Process {
        program: env!("CARGO_BIN_EXE_caproot").to_owned(),
        arguments: ["mcp", "--endpoint", &endpoint].map(str::to_owned).to_vec(),
    };
    let server = McpServerConfig { start_timeout: HANG_TIMEOUT, ..McpServerConfig::new("own", way) };
    let source = Arc::new(McpSource::start(server).await.expect("a name"));
    let session = of(vec![source.clone() as Arc<dyn SkillSource>]).await;
    let (packages, warnings) = list_all(&session).await;
    assert_eq!(packages, ["mcp+skill://own/r/a", "mcp+skill://own/r/b"], "{warnings:?}");
    assert!(warnings.is_empty(), "{warnings:?}");
    for (file, text) in [("deep/x%2520y.md", "hello\n"), ("large.md", &large)] {
        let resource = format!("mcp+skill://own/r/a/{file}");
        let read = arguments("mcp", "own", "mcp+skill://own/r/a", &resource);
        assert_eq!(read_all(&session, read).await, text);
    }
    let files: Vec<_> = source.files("mcp+skill://own/r/a");
    assert_eq!(files[0].resource, "mcp+skill://own/r/a/SKILL.md");
    assert_eq!(files.len(), 3);

    // It says that a list changed, and the source is another.
    let mut changes = session.watch();
    fixture.add("skill r/c");
    in_time(async {
        while list_all(&session).await.0.len() < 3 {
            assert_eq!(changes.next().await.id, "own");
        }
    })
    .await;
    daemon.stop().await;
}
