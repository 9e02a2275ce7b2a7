//! The daemon goes and comes back: calls fail clearly meanwhile, and the server goes on by itself.

use std::ffi::OsStr;

use serde_json::json;

use super::host::Host;
use crate::binary::Serving;
use crate::commands::caproot;
use crate::fixture::Fixture;

#[tokio::test]
async fn a_daemon_that_is_restarted() {
    let fixture = Fixture::new("dir run\nmode 0700 run\nskill one/a\nskill two/b");
    let endpoint = format!("unix:{}", fixture.path("run/c.sock").display());
    let serve = |dirs: &[&str]| {
        let mut flags = vec!["--listen".to_owned(), endpoint.clone()];
        for dir in dirs {
            flags.extend(["--root".to_owned(), fixture.path(dir).display().to_string()]);
        }
        Serving::start(&flags.iter().map(OsStr::new).collect::<Vec<_>>())
    };
    let daemon = serve(&["one"]);
    let mut host = Host::of(caproot(["mcp", "--endpoint", &endpoint]));
    let list = host.ask("resources/list", json!({})).await.expect("a list");
    assert_eq!(list["resources"][0]["uri"], "skill://one/a/SKILL.md");
    let listen = json!({"notifications": {"resourcesListChanged": true}});
    host.request("subscriptions/listen", listen);
    host.notice().await;
    assert_eq!(daemon.terminated().await.0, Some(0));

    let error = host.ask("resources/read", json!({"uri": "skill://one/a/SKILL.md"})).await;
    let error = error.expect_err("nobody is there");
    assert_eq!(
        (&error["code"], &error["data"]["retry"]),
        (&json!(-32603), &json!(true)),
        "{error}"
    );

    // What is published is what is served.
    let daemon = serve(&["one", "two"]);
    let changed = host.notice().await;
    assert_eq!(changed["method"], "notifications/resources/list_changed");
    let (both, _) = host.all("resources/list", "resources", json!({})).await;
    assert_eq!(both.len(), 2);
    assert!(host.ask("resources/read", json!({"uri": "skill://two/b/SKILL.md"})).await.is_ok());
    let ended = host.end().await;
    assert_eq!(ended.code, Some(0));
    assert!(ended.stderr.contains("reconnecting") && ended.stderr.contains("reconnected"));
    assert_eq!(daemon.terminated().await.0, Some(0));
}
