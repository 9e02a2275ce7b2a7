//! Notifications about edits: hosts get the notifications they asked for, and no others.

use serde_json::{Value, json};

use super::host::Host;
use crate::harness::fixture::Fixture;
use crate::harness::{Daemon, Setup};

const URI: &str = "skill://r/a/SKILL.md";

fn text(description: &str, body: &str) -> String {
    format!("---\nname: a\ndescription: {description}\n---\n{body}\n")
}

fn listen(lists: bool, uris: &[&str]) -> Value {
    json!({"notifications": {"resourcesListChanged": lists, "resourceSubscriptions": uris}})
}

/// Returns the method and the URI of a notification.
fn method_and_uri(notification: &Value) -> (&str, Option<&str>) {
    (
        notification["method"].as_str().expect("a method"),
        notification["params"]["uri"].as_str(),
    )
}

const LISTS: (&str, Option<&str>) = ("notifications/resources/list_changed", None);
const UPDATED: (&str, Option<&str>) = ("notifications/resources/updated", Some(URI));

#[tokio::test]
async fn a_listening_host_gets_the_notifications_it_asked_for() {
    let fixture = Fixture::new("dir r");
    fixture.write("r/a/SKILL.md", text("One.", "One."));
    let daemon = Daemon::start(Setup::publishing("r", fixture.path("r"))).await;
    let mut host = Host::start(&daemon, "");
    host.call("resources/list", json!({}))
        .await
        .expect("a list");
    let both = host.send_request(
        "subscriptions/listen",
        listen(true, &[URI, "skill://r/new/SKILL.md"]),
    );
    let acknowledged = host.next_notification().await;
    assert_eq!(
        acknowledged["method"],
        "notifications/subscriptions/acknowledged"
    );

    // If only the body changes, the lists stay the same.
    fixture.replace("r/a/SKILL.md", text("One.", "Two."));
    let notification = host.next_notification().await;
    assert_eq!(method_and_uri(&notification), UPDATED);
    assert_eq!(
        notification["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"],
        both
    );
    // A new description changes the list and the file.
    fixture.replace("r/a/SKILL.md", text("Three.", "Two."));
    assert_eq!(method_and_uri(&host.next_notification().await), LISTS);
    assert_eq!(method_and_uri(&host.next_notification().await), UPDATED);
    let got = host
        .call("skills/get", json!({"uri": URI}))
        .await
        .expect("the skill");
    assert_eq!(got["skill"]["frontmatter"]["description"], "Three.");
    // A new skill that was not listed, but that the host subscribed to.
    fixture.write(
        "r/new/SKILL.md",
        text("New.", "").replace("name: a", "name: new"),
    );
    assert_eq!(method_and_uri(&host.next_notification().await), LISTS);
    assert_eq!(
        method_and_uri(&host.next_notification().await).1,
        Some("skill://r/new/SKILL.md")
    );
    std::fs::remove_dir_all(fixture.path("r/new")).expect("removed");
    assert_eq!(method_and_uri(&host.next_notification().await), LISTS);
    assert_eq!(
        method_and_uri(&host.next_notification().await).1,
        Some("skill://r/new/SKILL.md")
    );

    host.call("resources/list", json!({}))
        .await
        .expect("a list");
    // A second listener gets its own notifications. The cancelled first listener gets none.
    host.send(
        &json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": {"requestId": both}}),
    );
    let lists = host.send_request("subscriptions/listen", listen(true, &[]));
    assert_eq!(
        host.next_notification().await["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"],
        lists
    );
    fixture.replace("r/a/SKILL.md", text("Four.", "Four."));
    let notification = host.next_notification().await;
    assert_eq!(method_and_uri(&notification), LISTS);
    assert_eq!(
        notification["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"],
        lists
    );
    let list = host
        .call("resources/list", json!({}))
        .await
        .expect("no notification in between");
    assert_eq!(list["resources"][0]["description"], "Four.");
    host.stop_with(daemon).await;
}

#[tokio::test]
async fn an_older_host_gets_list_changes_and_subscribed_files() {
    let fixture = Fixture::new("dir r");
    fixture.write("r/a/SKILL.md", text("One.", "One."));
    let daemon = Daemon::start(Setup::publishing("r", fixture.path("r"))).await;
    let (mut host, _) = Host::start_older(&daemon).await;
    host.call("resources/list", json!({}))
        .await
        .expect("a list");
    assert_eq!(
        host.call("resources/subscribe", json!({"uri": URI})).await,
        Ok(json!({}))
    );
    fixture.replace("r/a/SKILL.md", text("One.", "Two."));
    assert_eq!(method_and_uri(&host.next_notification().await), UPDATED);
    assert_eq!(
        host.call("resources/unsubscribe", json!({"uri": URI}))
            .await,
        Ok(json!({}))
    );
    fixture.replace("r/a/SKILL.md", text("One.", "Three."));
    fixture.write("r/b/SKILL.md", text("B.", "").replace("name: a", "name: b"));
    assert_eq!(
        method_and_uri(&host.next_notification().await),
        LISTS,
        "the host has unsubscribed from the body"
    );
    let list = host
        .call("resources/list", json!({}))
        .await
        .expect("a list");
    assert_eq!(list["resources"].as_array().map(Vec::len), Some(2));
    host.stop_with(daemon).await;
}

/// A file next to SKILL.md changes no list. The next manifest has the new digest.
#[tokio::test]
async fn a_changed_file_has_a_new_digest_in_the_manifest() {
    let (fixture, daemon) = Daemon::publishing("r", "skill r/a\nfile r/a/x.md\n| one").await;
    let mut host = Host::start(&daemon, "");
    for content in ["two\n", "three\n"] {
        fixture.write("r/a/x.md", content);
        let got = host
            .call("skills/get", json!({"uri": URI}))
            .await
            .expect("the skill");
        let digest = &got["skill"]["resources"][1]["digest"];
        assert_eq!(*digest, crate::harness::content_digest(content.as_bytes()));
    }
    host.stop_with(daemon).await;
}
