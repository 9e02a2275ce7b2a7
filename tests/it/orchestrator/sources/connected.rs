//! Connection of the program as a source: the program and the source use one server process.

use std::process::Stdio;
use std::sync::Arc;

use caproot_session::SkillSource;
use caproot_session::sources::mcp::rmcp::ServiceExt as _;
use caproot_session::sources::mcp::rmcp::model::PaginatedRequestParams;
use caproot_session::sources::mcp::rmcp::transport::async_rw::AsyncRwTransport;
use caproot_session::sources::mcp::{McpEndpoint, McpServerConfig, McpSource};
use tokio::process::Command;

use super::super::serve_tree;
use super::super::session::{list_all, read_all};
use super::{arguments, read_error, start_session};
use crate::harness::{HANG_TIMEOUT, in_time};

#[tokio::test]
async fn a_connection_of_the_program_is_used() {
    let (mut fixture, daemon) = serve_tree("r", "skill r/a").await;
    let mut command = Command::new(env!("CARGO_BIN_EXE_caproot"));
    command.args(["mcp", "--endpoint", &format!("tcp:{}", daemon.address)]);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    let mut child = command.spawn().expect("the binary runs");
    let (stdout, stdin) = (
        child.stdout.take().expect("piped"),
        child.stdin.take().expect("piped"),
    );
    let program = ().serve(AsyncRwTransport::new_client(stdout, stdin)).await.expect("a server");

    let endpoint = McpEndpoint::Connected(program.peer().clone());
    let server = McpServerConfig {
        start_timeout: HANG_TIMEOUT,
        ..McpServerConfig::new("own", endpoint)
    };
    let source = Arc::new(McpSource::start(server).await.expect("a name"));
    let session = start_session(vec![source.clone() as Arc<dyn SkillSource>]).await;
    assert_eq!(list_all(&session).await.0, ["mcp+skill://own/r/a"]);
    let read = arguments("mcp", "own", "mcp+skill://own/r/a", "");
    assert!(read_all(&session, read.clone()).await.contains("Does a."));
    // The program calls the same server.
    let listed = program
        .list_resources(Some(PaginatedRequestParams::default()))
        .await;
    assert!(
        listed
            .expect("a list")
            .resources
            .iter()
            .any(|r| r.uri == "skill://r/a/SKILL.md")
    );

    let mut changes = session.watch();
    fixture.add("skill r/b");
    in_time(async {
        while list_all(&session).await.0.len() < 2 {
            // The program learns of a change in any way, and tells the source.
            source.refresh();
            changes.next().await;
        }
    })
    .await;

    program.cancel().await.expect("the connection ends");
    in_time(async {
        while !list_all(&session).await.0.is_empty() {
            changes.next().await;
        }
    })
    .await;
    let (code, error) = read_error(&session, read).await;
    assert_eq!(code, "SOURCE_UNAVAILABLE", "{error}");
    daemon.stop().await;
}
