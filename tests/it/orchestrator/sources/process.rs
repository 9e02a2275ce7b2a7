//! `caproot mcp` as the MCP server of a session. The session has the daemon's skills and sees
//! changes.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use caproot_session::SkillSource;
use caproot_session::sources::mcp::{McpEndpoint, McpServerConfig, McpSource};

use super::super::session::{list_all, read_all};
use super::super::start_daemon;
use super::{arguments, start_session};
use crate::harness::fixture::Fixture;
use crate::harness::{HANG_TIMEOUT, in_time, poll_until};

#[tokio::test]
async fn a_session_uses_caproot_mcp_as_a_source() {
    let large = "ä\"x\n".repeat(10_000);
    let mut fixture =
        Fixture::new("dir scratch\nskill r/a\nskill r/b\nfile r/a/deep/x%20y.md\n| hello");
    fixture.write("r/a/large.md", &large);
    let daemon = start_daemon("r", fixture.path("r"), None).await;
    let endpoint = format!("tcp:{}", daemon.address);
    // The server is started by a shell that writes down its environment and directory.
    let script = r#"pwd > here.txt; env > env.txt; exec "$0" mcp --endpoint "$ENDPOINT""#;
    let endpoint_config = McpEndpoint::Process {
        program: "sh".to_owned(),
        arguments: ["-c", script, env!("CARGO_BIN_EXE_caproot")]
            .map(str::to_owned)
            .to_vec(),
        environment: [("ENDPOINT".to_owned(), endpoint)].into(),
        working_directory: Some(fixture.path("scratch")),
    };
    let server = McpServerConfig {
        start_timeout: HANG_TIMEOUT,
        ..McpServerConfig::new("own", endpoint_config)
    };
    let source = Arc::new(McpSource::start(server).await.expect("a name"));
    let session = start_session(vec![source.clone() as Arc<dyn SkillSource>]).await;
    let (packages, warnings) = list_all(&session).await;
    assert_eq!(
        packages,
        ["mcp+skill://own/r/a", "mcp+skill://own/r/b"],
        "{warnings:?}"
    );
    assert!(warnings.is_empty(), "{warnings:?}");
    for (file, text) in [("deep/x%2520y.md", "hello\n"), ("large.md", &large)] {
        let resource = format!("mcp+skill://own/r/a/{file}");
        let read = arguments("mcp", "own", "mcp+skill://own/r/a", &resource);
        assert_eq!(read_all(&session, read).await, text);
    }
    let read = |name: &str| std::fs::read_to_string(fixture.path(name)).expect("text");
    assert!(read("scratch/here.txt").trim_end().ends_with("/scratch"));
    // The test process has variables of cargo, and the server does not inherit them.
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
    let environment = read("scratch/env.txt");
    assert!(environment.contains("ENDPOINT=tcp:") && environment.contains("PATH="));
    assert!(!environment.contains("CARGO_"), "{environment}");

    let files: Vec<_> = source.files("mcp+skill://own/r/a");
    assert_eq!(files[0].resource, "mcp+skill://own/r/a/SKILL.md");
    assert_eq!(files.len(), 3);

    // The server reports a changed list, and the source follows.
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

#[tokio::test]
async fn the_children_of_a_server_end_with_it() {
    let fixture = Fixture::new("dir r");
    // The child keeps the stdout of the server open.
    let script = "sleep 1000 & echo $! > child.tmp; mv child.tmp child; cat > /dev/null";
    let endpoint = McpEndpoint::Process {
        program: "sh".to_owned(),
        arguments: ["-c", script].map(str::to_owned).to_vec(),
        environment: BTreeMap::new(),
        working_directory: Some(fixture.top().to_owned()),
    };
    let server = McpServerConfig {
        start_timeout: Duration::from_millis(10),
        ..McpServerConfig::new("own", endpoint)
    };
    let source = McpSource::start(server).await.expect("a name");
    let file = fixture.path("child");
    poll_until("the child starts", || file.exists()).await;
    let child = std::fs::read_to_string(&file).expect("an id");
    let stat = Path::new("/proc").join(child.trim()).join("stat");
    let is_running = || {
        let state = std::fs::read_to_string(&stat).unwrap_or_default();
        !state.is_empty() && !state.contains(") Z ")
    };
    assert!(is_running());
    drop(source);
    poll_until("the child ends", || !is_running()).await;
}
