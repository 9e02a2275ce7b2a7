//! Lists in pages: the joined pages have each item once, at every size.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::host::Host;
use crate::harness::Daemon;

fn uri_set(items: &[Value]) -> BTreeSet<String> {
    items
        .iter()
        .map(|item| item["uri"].as_str().expect("a URI").to_owned())
        .collect()
}

#[tokio::test]
async fn pages_of_many_skills_have_each_skill_once() {
    let (_fixture, daemon) = Daemon::publishing("r", "repeat 1201 skill r/s{}").await;
    let mut host = Host::start(&daemon, "");
    let expected: BTreeSet<_> = (0..1201)
        .map(|n| format!("skill://r/s{n:04}/SKILL.md"))
        .collect();
    for (method, items) in [("resources/list", "resources"), ("skills/list", "skills")] {
        let (all, pages) = host.list_all(method, items, json!({})).await;
        assert_eq!(
            (all.len(), uri_set(&all) == expected),
            (1201, true),
            "{method}"
        );
        assert!(pages >= 3, "{method}: {pages}");
    }
    host.stop_with(daemon).await;
}

/// Pages have a limit in bytes, too, and no skill is truncated.
#[tokio::test]
async fn pages_of_large_skills_have_each_skill_whole() {
    let text = "\\{30000*é}";
    let (_fixture, daemon) = Daemon::publishing("r", &format!(
        "repeat 40 file r/s{{}}/SKILL.md\n| ---\n| name: s{{}}\n| description: D.\n| metadata:\n|   x: {text}\n| ---\n"
    )).await;
    let mut host = Host::start(&daemon, "");
    let (all, pages) = host.list_all("skills/list", "skills", json!({})).await;
    assert_eq!((all.len(), uri_set(&all).len()), (40, 40));
    assert!(pages >= 4, "{pages}");
    assert!(
        all.iter()
            .all(|skill| skill["frontmatter"]["metadata"]["x"] == "é".repeat(30_000))
    );
    host.stop_with(daemon).await;
}

/// The standard limits the number and size of a skill's files. Larger skills are resources only.
#[tokio::test]
async fn skills_with_too_many_or_too_large_files_are_omitted() {
    let (_fixture, daemon) = Daemon::publishing(
        "r",
        "skill r/most\nrepeat 511 file r/most/f{}
        skill r/over\nrepeat 700 file r/over/d/f{}
        skill r/heavy\nrepeat 400 sparse 200000000 r/heavy/f{}
        skill r/wide\nrepeat 511 file r/wide/\\{200*x}/\\{200*y}/\\{200*z}/\\{200*w}/\\{200*v}/f{}",
    )
    .await;
    let mut host = Host::start(&daemon, "");
    let list = host.call("skills/list", json!({})).await.expect("a page");
    let skills = list["skills"].as_array().expect("skills");
    assert_eq!(
        uri_set(skills),
        BTreeSet::from(["skill://r/most/SKILL.md".to_owned()])
    );
    assert_eq!(skills[0]["resources"].as_array().map(Vec::len), Some(512));
    assert_eq!(
        list["_meta"]["caproot/omitted"],
        json!({"name": 0, "uriTaken": 0, "files": 3, "policy": 0})
    );
    let (resources, _) = host
        .list_all("resources/list", "resources", json!({}))
        .await;
    assert_eq!(resources.len(), 4);
    let (files, pages) = host
        .list_all(
            "resources/directory/read",
            "resources",
            json!({"uri": "skill://r/over/d"}),
        )
        .await;
    assert_eq!((files.len(), uri_set(&files).len(), pages), (700, 700, 2));
    host.stop_with(daemon).await;
}
