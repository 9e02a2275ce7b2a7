//! Servers that do not declare the skills extension and publish `skill://index.json`, also hostile
//! servers, and skills of other URI schemes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use caproot_client::session::SkillSource;
use caproot_client::session::sources::mcp::{McpEndpoint, McpServerConfig, McpSource, limits};
use serde_json::{Value, json};

use super::super::invocations::LogLines;
use super::super::session::{list_all, read_all};
use super::{arguments, read_error, start_mcp_session, start_session};
use crate::harness::test_servers::free_port;
use crate::harness::test_servers::mcp_server::{
    MockOptions, MockServer, contents, entry, file, not_found, page, skill_text, start, start_with,
};
use crate::harness::{HANG_TIMEOUT, content_digest, in_time};

/// Returns an entry of an index.
fn indexed(name: &str, url: &str) -> Value {
    json!({"name": name, "type": "skill-md", "description": format!("Does {name}."), "url": url})
}

/// Starts a server with this index. Each SKILL.md is `skill_text` of its directory.
async fn start_indexed(index: impl Fn() -> String + Send + 'static) -> MockServer {
    start_with(
        &free_port(),
        MockOptions::without_extension(),
        move |method, params| {
            assert_eq!(
                method, "resources/read",
                "the server declares no other method"
            );
            let uri = params["uri"].as_str().expect("a URI");
            if uri == "skill://index.json" {
                return Some(contents(uri, &index()));
            }
            let Some(directory) = uri.strip_suffix("/SKILL.md") else {
                let is_file = uri.ends_with("/ref.md");
                return Some(if is_file {
                    contents(uri, "More.")
                } else {
                    not_found()
                });
            };
            let name = directory.rsplit('/').next().expect("a name");
            Some(contents(uri, &skill_text(name)))
        },
    )
    .await
}

fn mcp_arguments(package: &str, resource: &str) -> Value {
    arguments("mcp", "s", package, resource)
}

#[tokio::test]
async fn an_index_is_read() {
    let mut with_digest = indexed("b", "github://Org/repo/b/SKILL.md");
    with_digest["digest"] = json!(content_digest(skill_text("b").as_bytes()));
    let mut wrong_digest = indexed("c", "skill://c/SKILL.md");
    wrong_digest["digest"] = json!(content_digest(b"else"));
    let later_draft = json!({
        "uri": "skill://d/SKILL.md", "frontmatter": {"name": "d", "description": "Does d.", "license": "x"},
    });
    let mut other_description = indexed("e", "skill://e/SKILL.md");
    other_description["description"] = json!("Does nothing.");
    let entries = [
        indexed("a", "skill://a/SKILL.md"),
        with_digest,
        wrong_digest,
        later_draft,
        other_description,
    ];
    let index = json!({"$schema": "x", "skills": entries}).to_string();
    let mock = start_indexed(move || index.clone()).await;
    let session = start_mcp_session(&mock.url).await;
    let (packages, warnings) = list_all(&session).await;
    let expected = [
        "mcp+skill://s/a",
        "mcp+github://s/Org/repo/b",
        "mcp+skill://s/c",
        "mcp+skill://s/d",
        "mcp+skill://s/e",
    ];
    assert_eq!(packages, expected);
    assert_eq!(warnings.len(), 1, "skills without digests: {warnings:?}");

    assert_eq!(
        read_all(&session, mcp_arguments("mcp+skill://s/a", "")).await,
        skill_text("a")
    );
    let more = mcp_arguments("mcp+skill://s/a", "mcp+skill://s/a/ref.md");
    assert_eq!(read_all(&session, more).await, "More.");
    let github = "mcp+github://s/Org/repo/b";
    assert_eq!(
        read_all(&session, mcp_arguments(github, "")).await,
        skill_text("b")
    );
    assert_eq!(
        read_all(&session, mcp_arguments("mcp+skill://s/d", "")).await,
        skill_text("d")
    );
    let injected = in_time(session.inject(&format!("[$b]({github})").as_str().into())).await;
    assert_eq!(injected.fragments[0].package, github);
    for (package, resource, code) in [
        ("mcp+skill://s/c", "", "NOT_VERIFIED"),
        ("mcp+skill://s/e", "", "NOT_VERIFIED"),
        (
            "mcp+skill://s/a",
            "mcp+skill://s/a/none",
            "RESOURCE_NOT_FOUND",
        ),
        (
            "mcp+skill://s/a",
            "mcp+skill://s/b/ref.md",
            "RESOURCE_NOT_FOUND",
        ),
        ("mcp+skill://s/index.json", "", "PACKAGE_NOT_FOUND"),
        ("mcp+github://s/a", "", "PACKAGE_NOT_FOUND"),
    ] {
        assert_eq!(
            read_error(&session, mcp_arguments(package, resource))
                .await
                .0,
            code,
            "{package}"
        );
    }

    let metrics = session.metrics();
    let [source] = &metrics.sources[..] else {
        panic!("{metrics:?}")
    };
    assert_eq!((&*source.source_kind, &*source.source_id), ("mcp", "s"));
    assert!(source.available && source.skills == 5, "{source:?}");
    // One connection, one index and seven files. A failed verification causes another list.
    let requests = source.requests;
    assert!(
        requests.requests >= 9 && requests.requests == requests.buckets[8],
        "{source:?}"
    );
    assert_eq!(
        requests.failures, 3,
        "two files differ from the index, and one is missing"
    );
}

#[tokio::test]
async fn skills_of_other_schemes_are_listed() {
    let mock = start(|method, params| {
        if method == "skills/list" {
            let listed = |uri: &str| {
                let mut entry = entry("a", &[]);
                entry["uri"] = json!(uri);
                entry["resources"] = json!([file(uri, &skill_text("a"))]);
                entry
            };
            let uris = [
                "github://Org/repo/a/SKILL.md",
                "https://h/a/SKILL.md",
                "file://h/a/SKILL.md",
            ];
            return Some(page(&uris.map(listed), None));
        }
        Some(contents(params["uri"].as_str()?, &skill_text("a")))
    })
    .await;
    let session = start_mcp_session(&mock.url).await;
    let (packages, warnings) = list_all(&session).await;
    assert_eq!(packages, ["mcp+github://s/Org/repo/a"]);
    assert!(
        warnings[0].starts_with("2 skills of the MCP server \"s\" are omitted"),
        "{warnings:?}"
    );
    assert_eq!(
        read_all(&session, mcp_arguments("mcp+github://s/Org/repo/a", "")).await,
        skill_text("a")
    );
}

#[tokio::test]
async fn entries_that_are_no_skills_are_omitted() {
    let typed = |kind: &str, url: &str| {
        let mut entry = indexed("x", url);
        entry["type"] = json!(kind);
        entry
    };
    let mut bad_digest = indexed("x", "skill://digest/SKILL.md");
    bad_digest["digest"] = json!("md5:1");
    let bad = [
        indexed("x", "skill://index.json"),
        indexed("x", "skill://index.json/SKILL.md/index.json"),
        indexed("x", "file:///etc/passwd"),
        indexed("x", "https://elsewhere/x/SKILL.md"),
        indexed("x", "skill://a/../b/SKILL.md"),
        indexed("x", "skill://fine/SKILL.md"),
        indexed("", "skill://nameless/SKILL.md"),
        typed("mcp-resource-template", "skill://docs/{product}/SKILL.md"),
        typed("archive", "skill://x.zip"),
        bad_digest,
        json!({"url": "skill://no-name/SKILL.md"}),
        json!({"name": "no-url"}),
        json!(7),
        json!([["nested"]]),
    ];
    let count = bad.len();
    let mut entries = vec![indexed("fine", "skill://fine/SKILL.md")];
    entries.extend(bad);
    let index = json!({ "skills": entries }).to_string();
    let mock = start_indexed(move || index.clone()).await;
    let (packages, warnings) = list_all(&start_mcp_session(&mock.url).await).await;
    assert_eq!(packages, ["mcp+skill://s/fine"]);
    assert!(
        warnings[0].starts_with(&format!("{count} skills of ")),
        "{warnings:?}"
    );
    assert_eq!(
        mock.reads.load(Ordering::SeqCst),
        1,
        "no entry causes a request"
    );
}

#[tokio::test]
async fn an_unusable_index_makes_the_server_unavailable() {
    let deep = format!("{{\"skills\": [{}]}}", "[".repeat(10_000));
    let huge = format!("{{\"skills\": [], \"more\": \"{}\"}}", "x".repeat(5 << 20));
    for (index, part) in [
        (huge, "the limit is 4194304"),
        (deep, "is not an index of skills"),
        ("no JSON".to_owned(), "is not an index of skills"),
        ("[]".to_owned(), "is not an index of skills"),
        ("{\"skills\": 1}".to_owned(), "is not an index of skills"),
    ] {
        let mock = start_indexed(move || index.clone()).await;
        let session = start_mcp_session(&mock.url).await;
        let (packages, warnings) = list_all(&session).await;
        assert!(
            packages.is_empty() && warnings[0].contains("cannot be used"),
            "{warnings:?}"
        );
        let metrics = session.metrics();
        let reason = metrics.sources[0].reason.as_deref().unwrap_or_default();
        assert!(
            !metrics.sources[0].available && reason.contains(part),
            "{reason}"
        );
    }

    let many: Vec<Value> = (0..6_000)
        .map(|n| indexed("a", &format!("skill://a{n}/SKILL.md")))
        .collect();
    let index = json!({ "skills": many }).to_string();
    let mock = start_indexed(move || index.clone()).await;
    let listed = start_mcp_session(&mock.url).await.sources()[0]
        .snapshot()
        .listing;
    assert!(listed.truncated && listed.skills.len() == limits::MAX_SKILLS);
}

#[tokio::test]
async fn a_server_without_skills_stays_connected() {
    for capabilities in [json!({"tools": {}}), json!({"resources": {}})] {
        let options = MockOptions {
            capabilities,
            ..MockOptions::default()
        };
        let mock = start_with(&free_port(), options, |_, _| Some(not_found())).await;
        let session = start_mcp_session(&mock.url).await;
        let (packages, warnings) = list_all(&session).await;
        assert!(
            packages.is_empty() && warnings[0].contains("has no skills"),
            "{warnings:?}"
        );
        let source = &session.metrics().sources[0];
        assert!(
            source.available && source.requests.failures == 0,
            "{source:?}"
        );
    }
}

#[tokio::test]
async fn a_log_line_has_the_declarations_of_a_server() {
    let lines = LogLines::default();
    let subscriber = tracing_subscriber::fmt()
        .json()
        .with_writer(lines.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let with_extension = start(|_, _| Some(page(&[], None))).await;
    let without = start_indexed(|| json!({"skills": []}).to_string()).await;
    // tracing caches the interest of a callsite at its first use, which may be in another test.
    drop(start_mcp_session(&without.url).await);
    tracing::callsite::rebuild_interest_cache();
    lines.0.lock().expect("no panic").clear();
    for (mock, is_declared) in [(&with_extension, true), (&without, false)] {
        let session = start_mcp_session(&mock.url).await;
        let written = String::from_utf8(lines.0.lock().expect("no panic").split_off(0));
        let written = written.expect("text");
        let parsed = written
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        let line = parsed.map(|line| line["fields"].clone());
        let line = line
            .into_iter()
            .find(|line| line["message"] == "MCP server is connected");
        let line = line.unwrap_or_else(|| panic!("no line: {written}"));
        assert_eq!(line["skills_extension"], is_declared, "{line}");
        assert_eq!(
            (&line["server"], &line["implementation"]),
            (&json!("s"), &json!("mock 1"))
        );
        drop(session);
    }
}

#[tokio::test]
async fn a_changed_index_is_followed() {
    let version = Arc::new(AtomicUsize::new(0));
    let current = version.clone();
    let mock = start_indexed(move || {
        let version = current.load(Ordering::SeqCst);
        // Each version has another skill, and the URI of one skill comes to mean another name.
        let renamed = indexed(["a", "other"][version % 2], "skill://a/SKILL.md");
        let new = indexed("new", &format!("skill://{version}/new/SKILL.md"));
        json!({"skills": [renamed, new]}).to_string()
    })
    .await;
    let server = McpServerConfig {
        start_timeout: HANG_TIMEOUT,
        ..McpServerConfig::new("s", McpEndpoint::http(&mock.url))
    };
    let source = Arc::new(McpSource::start(server).await.expect("a name"));
    let session = start_session(vec![source.clone() as Arc<dyn SkillSource>]).await;
    assert_eq!(
        list_all(&session).await.0,
        ["mcp+skill://s/a", "mcp+skill://s/0/new"]
    );
    assert_eq!(
        read_all(&session, mcp_arguments("mcp+skill://s/a", "")).await,
        skill_text("a")
    );
    let mut changes = session.watch();
    version.store(1, Ordering::SeqCst);
    source.refresh();
    in_time(changes.next()).await;
    assert_eq!(
        list_all(&session).await.0,
        ["mcp+skill://s/1/new", "mcp+skill://s/a"]
    );
    // The name of the new index differs from the SKILL.md.
    assert_eq!(
        read_error(&session, mcp_arguments("mcp+skill://s/a", ""))
            .await
            .0,
        "NOT_VERIFIED"
    );
    assert_eq!(
        read_error(&session, mcp_arguments("mcp+skill://s/0/new", ""))
            .await
            .0,
        "PACKAGE_NOT_FOUND"
    );
    assert_eq!(
        read_all(&session, mcp_arguments("mcp+skill://s/1/new", "")).await,
        skill_text("new")
    );
}
