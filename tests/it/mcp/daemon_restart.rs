//! Restart of the daemon: calls fail meanwhile, and the MCP server reconnects by itself.

use serde_json::json;

use super::host::Host;
use crate::harness::fixture::Fixture;
use crate::harness::process::{Process, caproot};

#[tokio::test]
async fn the_server_reconnects_after_a_daemon_restart() {
    let fixture = Fixture::new("dir run\nmode 0700 run\nskill one/a\nskill two/b");
    let endpoint = format!("unix:{}", fixture.path("run/c.sock").display());
    let serve = |dirs: &[&str]| {
        let mut command = caproot(["serve", "--listen", &endpoint]);
        for dir in dirs {
            command.arg("--root").arg(fixture.path(dir));
        }
        Process::start(command)
    };
    let daemon = serve(&["one"]);
    let mut host = Host::start_command(caproot(["mcp", "--endpoint", &endpoint]));
    let list = host
        .call("resources/list", json!({}))
        .await
        .expect("a list");
    assert_eq!(list["resources"][0]["uri"], "skill://one/a/SKILL.md");
    let listen = json!({"notifications": {"resourcesListChanged": true}});
    host.send_request("subscriptions/listen", listen);
    host.next_notification().await;
    daemon.stop().await;

    let error = host
        .call("resources/read", json!({"uri": "skill://one/a/SKILL.md"}))
        .await;
    let error = error.expect_err("no daemon");
    assert_eq!(
        (&error["code"], &error["data"]["retry"]),
        (&json!(-32603), &json!(true)),
        "{error}"
    );

    // After the restart, the server offers the roots that the new daemon publishes.
    let daemon = serve(&["one", "two"]);
    let changed = host.next_notification().await;
    assert_eq!(changed["method"], "notifications/resources/list_changed");
    let (both, _) = host
        .list_all("resources/list", "resources", json!({}))
        .await;
    assert_eq!(both.len(), 2);
    assert!(
        host.call("resources/read", json!({"uri": "skill://two/b/SKILL.md"}))
            .await
            .is_ok()
    );
    let ended = host.stop().await.succeeded();
    assert!(ended.stderr.contains("reconnecting") && ended.stderr.contains("reconnected"));
    daemon.stop().await;
}
