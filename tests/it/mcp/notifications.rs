//! What hosts are told of edits, and what they are not.

use serde_json::{Value, json};

use super::host::Host;
use crate::fixture::Fixture;
use crate::harness::{Daemon, Setup};

const URI: &str = "skill://r/a/SKILL.md";

fn text(description: &str, body: &str) -> String {
    format!("---\nname: a\ndescription: {description}\n---\n{body}\n")
}

fn listen(lists: bool, uris: &[&str]) -> Value {
    json!({"notifications": {"resourcesListChanged": lists, "resourceSubscriptions": uris}})
}

/// The method of a notification, and the URI that it is about.
fn said(notice: &Value) -> (&str, Option<&str>) {
    (notice["method"].as_str().expect("a method"), notice["params"]["uri"].as_str())
}

const LISTS: (&str, Option<&str>) = ("notifications/resources/list_changed", None);
const UPDATED: (&str, Option<&str>) = ("notifications/resources/updated", Some(URI));

#[tokio::test]
async fn a_listening_host() {
    let fixture = Fixture::new("dir r");
    fixture.write("r/a/SKILL.md", text("One.", "One."));
    let daemon = Daemon::start(Setup::publishing("r", fixture.path("r"))).await;
    let mut host = Host::start(&daemon, "");
    host.ask("resources/list", json!({})).await.expect("a list");
    let both = host.request("subscriptions/listen", listen(true, &[URI, "skill://r/new/SKILL.md"]));
    let acknowledged = host.notice().await;
    assert_eq!(acknowledged["method"], "notifications/subscriptions/acknowledged");

    // The body alone: the lists stay as they are.
    fixture.replace("r/a/SKILL.md", text("One.", "Two."));
    let notice = host.notice().await;
    assert_eq!(said(&notice), UPDATED);
    assert_eq!(notice["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], both);
    // The description: both.
    fixture.replace("r/a/SKILL.md", text("Three.", "Two."));
    assert_eq!(said(&host.notice().await), LISTS);
    assert_eq!(said(&host.notice().await), UPDATED);
    let got = host.ask("skills/get", json!({"uri": URI})).await.expect("the skill");
    assert_eq!(got["skill"]["frontmatter"]["description"], "Three.");
    // One that nobody listed, but was asked for.
    fixture.write("r/new/SKILL.md", text("New.", "").replace("name: a", "name: new"));
    assert_eq!(said(&host.notice().await), LISTS);
    assert_eq!(said(&host.notice().await).1, Some("skill://r/new/SKILL.md"));
    std::fs::remove_dir_all(fixture.path("r/new")).expect("removed");
    assert_eq!(said(&host.notice().await), LISTS);
    assert_eq!(said(&host.notice().await).1, Some("skill://r/new/SKILL.md"));

    // Another listener hears what it asked for, and the first nothing more once it is cancelled.
    host.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": {"requestId": both}}));
    let lists = host.request("subscriptions/listen", listen(true, &[]));
    assert_eq!(
        host.notice().await["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"],
        lists
    );
    fixture.replace("r/a/SKILL.md", text("Four.", "Four."));
    let notice = host.notice().await;
    assert_eq!(said(&notice), LISTS);
    assert_eq!(notice["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], lists);
    let list = host.ask("resources/list", json!({})).await.expect("nothing came between");
    assert_eq!(list["resources"][0]["description"], "Four.");
    assert_eq!(host.end().await.code, Some(0));
    daemon.stop().await;
}

#[tokio::test]
async fn an_older_host() {
    let fixture = Fixture::new("dir r");
    fixture.write("r/a/SKILL.md", text("One.", "One."));
    let daemon = Daemon::start(Setup::publishing("r", fixture.path("r"))).await;
    let (mut host, _) = Host::older(&daemon).await;
    host.ask("resources/list", json!({})).await.expect("a list");
    assert_eq!(host.ask("resources/subscribe", json!({"uri": URI})).await, Ok(json!({})));
    fixture.replace("r/a/SKILL.md", text("One.", "Two."));
    assert_eq!(said(&host.notice().await), UPDATED);
    assert_eq!(host.ask("resources/unsubscribe", json!({"uri": URI})).await, Ok(json!({})));
    fixture.replace("r/a/SKILL.md", text("One.", "Three."));
    fixture.write("r/b/SKILL.md", text("B.", "").replace("name: a", "name: b"));
    assert_eq!(said(&host.notice().await), LISTS, "of the body nobody hears any more");
    let list = host.ask("resources/list", json!({})).await.expect("a list");
    assert_eq!(list["resources"].as_array().map(Vec::len), Some(2));
    assert_eq!(host.end().await.code, Some(0));
    daemon.stop().await;
}

/// A file beside the SKILL.md is no change of any list; the next manifest has its new digest.
#[tokio::test]
async fn a_file_beside_it() {
    let fixture = Fixture::new("skill r/a\nfile r/a/x.md\n| one");
    let daemon = Daemon::start(Setup::publishing("r", fixture.path("r"))).await;
    let mut host = Host::start(&daemon, "");
    for content in ["two\n", "three\n"] {
        fixture.write("r/a/x.md", content);
        let got = host.ask("skills/get", json!({"uri": URI})).await.expect("the skill");
        let digest = &got["skill"]["resources"][1]["digest"];
        assert_eq!(*digest, crate::reads::digest(content.as_bytes()));
    }
    assert_eq!(host.end().await.code, Some(0));
    daemon.stop().await;
}
