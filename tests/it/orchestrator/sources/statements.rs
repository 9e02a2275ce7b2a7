//! Statements of MCP servers about single skills: skills that no list has, statements that are too
//! old, manifests of resources, and directories of skills without declared files.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use caproot_session::SkillSource;
use caproot_session::sources::mcp::{McpEndpoint, McpServerConfig, McpSource};
use serde_json::{Value, json};

use super::super::session::{call, list_all, read_all};
use super::sites::TestSite;
use super::{arguments, arguments_of_a, read_error, start_mcp_session, start_session};
use crate::harness::test_servers::free_port;
use crate::harness::test_servers::mcp_server::{
    MockOptions, MockServer, contents, entry, not_found, one, page, resources, skill_text, start,
    start_with,
};
use crate::harness::{HANG_TIMEOUT, content_digest, in_time};

/// Starts a source that asks the server before each read.
async fn start_careful_source(url: &str) -> Arc<dyn SkillSource> {
    let server = McpServerConfig {
        start_timeout: HANG_TIMEOUT,
        max_age: Duration::ZERO,
        ..McpServerConfig::new("s", McpEndpoint::http(url))
    };
    Arc::new(McpSource::start(server).await.expect("a good name"))
}

#[tokio::test]
async fn a_skill_that_no_list_has_is_read_by_its_uri() {
    let mock = start(|method, params| {
        let uri = params["uri"].as_str().unwrap_or_default();
        let hidden = entry("hidden", &[("x", "More.")]);
        Some(match (method, uri) {
            ("skills/list", _) => page(&[entry("a", &[])], None),
            ("skills/get", "skill://hidden/SKILL.md" | "skill://other/SKILL.md") => one(&hidden),
            ("skills/get", "skill://misnamed/SKILL.md") => {
                let mut misnamed = entry("misnamed", &[]);
                misnamed["frontmatter"]["name"] = json!("a");
                one(&misnamed)
            }
            ("resources/read", "skill://hidden/SKILL.md") => contents(uri, &skill_text("hidden")),
            ("resources/read", "skill://hidden/x") => contents(uri, "More."),
            ("resources/read", "skill://hidden/unlisted") => contents(uri, "Stolen."),
            _ => not_found(),
        })
    })
    .await;
    let session = start_mcp_session(&mock.url).await;
    let read = |package: &str, resource: &str| arguments("mcp", "s", package, resource);
    let hidden = "mcp+skill://s/hidden";
    assert_eq!(
        read_all(&session, read(hidden, "")).await,
        skill_text("hidden")
    );
    assert_eq!(read_all(&session, read(hidden, "x")).await, "More.");
    let listed = call(&session, "skills.read", read(hidden, "./")).await;
    assert_eq!(listed["files"].as_array().expect("files").len(), 2);
    // The list stays as the server wrote it.
    assert_eq!(list_all(&session).await.0, ["mcp+skill://s/a"]);

    for (package, resource, code) in [
        (hidden, "unlisted", "RESOURCE_NOT_FOUND"),
        ("mcp+skill://s/none", "", "PACKAGE_NOT_FOUND"),
        ("mcp+file://s/etc", "", "PACKAGE_NOT_FOUND"),
        ("mcp+skill://s/other", "", "INVALID_RESPONSE"),
        ("mcp+skill://s/misnamed", "", "INVALID_RESPONSE"),
    ] {
        let error = read_error(&session, read(package, resource)).await;
        assert_eq!(error.0, code, "{package}: {}", error.1);
    }
}

#[tokio::test]
async fn a_read_follows_what_the_server_says_now() {
    let version = Arc::new(AtomicUsize::new(0));
    let current = version.clone();
    let mock = start(move |method, params| {
        let text = ["Old.", "New.", ""][current.load(Ordering::SeqCst)];
        let uri = params["uri"].as_str().unwrap_or_default();
        Some(match (method, uri) {
            // The list has the first version.
            ("skills/list", _) => page(&[entry("a", &[("x", "Old.")])], None),
            ("skills/get", "skill://a/SKILL.md") if !text.is_empty() => {
                one(&entry("a", &[("x", text)]))
            }
            ("resources/read", "skill://a/x") => contents(uri, text),
            ("resources/read", "skill://a/SKILL.md") => contents(uri, &skill_text("a")),
            _ => not_found(),
        })
    })
    .await;
    let session = start_session(vec![start_careful_source(&mock.url).await]).await;
    let mut changes = session.watch();
    let x = || arguments_of_a("mcp+skill://s/a/x");
    assert_eq!(read_all(&session, x()).await, "Old.");

    version.store(1, Ordering::SeqCst);
    assert_eq!(read_all(&session, x()).await, "New.");
    // The changed digest is a change of the source.
    in_time(changes.next()).await;

    version.store(2, Ordering::SeqCst);
    assert_eq!(read_error(&session, x()).await.0, "PACKAGE_NOT_FOUND");
    assert!(list_all(&session).await.0.is_empty());
}

/// A server that answers no longer is a state with a reason, and no other source takes its names.
#[tokio::test]
async fn a_lost_server_keeps_its_names() {
    let answers = |method: &str, params: &Value| {
        let uri = params["uri"].as_str().unwrap_or_default();
        Some(match method {
            "skills/list" => page(&[entry("a", &[])], None),
            "skills/get" => one(&entry("a", &[])),
            _ => contents(uri, &skill_text("a")),
        })
    };
    let mock = start(answers).await;
    let index = json!({"skills": [{"name": "a", "url": "/a/SKILL.md",
        "digest": content_digest(skill_text("a").as_bytes())}]});
    let site = TestSite::start(&index, &[]).await;
    let session = start_session(vec![
        start_careful_source(&mock.url).await,
        site.source().await,
    ])
    .await;
    assert_eq!(
        read_all(&session, arguments_of_a("")).await,
        skill_text("a")
    );
    assert_eq!(list_all(&session).await.0, ["mcp+skill://s/a"]);

    // The SKILL.md is cached, and is not returned without the server.
    drop(mock);
    let (code, error) = read_error(&session, arguments_of_a("")).await;
    assert_eq!(code, "SOURCE_UNAVAILABLE", "{error}");
    let mut changes = session.watch();
    in_time(async {
        while session.source_states()[0].reason.is_none() {
            changes.next().await;
        }
    })
    .await;
    let (packages, warnings) = list_all(&session).await;
    assert!(packages.is_empty(), "{packages:?}");
    assert!(
        warnings
            .iter()
            .any(|warning| warning.contains("cannot be used")),
        "{warnings:?}"
    );
}

/// Starts a server without the extension that serves skills as `FastMCP` does. `manifest` returns the
/// text of each manifest.
async fn start_with_manifests(
    directories: &'static [&'static str],
    manifest: impl Fn(&str) -> Option<String> + Send + 'static,
) -> MockServer {
    let options = MockOptions::without_extension();
    start_with(&free_port(), options, move |method, params| {
        if method == "resources/list" {
            let listed = directories.iter().flat_map(|directory| {
                let name = directory.rsplit('/').next().expect("a name");
                [
                    json!({"uri": format!("{directory}/SKILL.md"), "name": format!("{name}/SKILL.md"),
                        "description": format!("Does {name}.")}),
                    json!({"uri": format!("{directory}/_manifest"), "name": "x"}),
                ]
            });
            let plain = json!({"uri": "skill://plain/SKILL.md", "name": "plain"});
            return Some(resources(&listed.chain([plain]).collect::<Vec<_>>()));
        }
        let uri = params["uri"].as_str().expect("a URI");
        let (directory, file) = uri.rsplit_once('/').expect("a directory");
        let name = directory.rsplit('/').next().expect("a name");
        Some(match file {
            "SKILL.md" => contents(uri, &skill_text(name)),
            "_manifest" => manifest(name).map_or_else(not_found, |text| contents(uri, &text)),
            "b%20c.md" => contents(uri, "More."),
            "changed.md" => contents(uri, "Stolen."),
            _ => not_found(),
        })
    })
    .await
}

fn manifest_file(path: &str, text: &str) -> Value {
    json!({"path": path, "size": text.len(), "hash": content_digest(text.as_bytes())})
}

#[tokio::test]
async fn manifests_of_resources_are_read() {
    let directories = &[
        "skill://a",
        "skill://team/b",
        "skill://c",
        "skill://d",
        "skill://e",
    ];
    let mock = start_with_manifests(directories, |name| {
        let main = manifest_file("SKILL.md", &skill_text(name));
        let files = match name {
            "a" => json!([
                main,
                manifest_file("b c.md", "More."),
                manifest_file("changed.md", "Listed."),
            ]),
            "b" => json!([main]),
            "c" => json!([main, manifest_file("../a/SKILL.md", &skill_text("a"))]),
            "d" => return Some("no JSON".to_owned()),
            _ => return None,
        };
        Some(json!({"skill": name, "files": files}).to_string())
    })
    .await;
    let session = start_mcp_session(&mock.url).await;
    let (packages, warnings) = list_all(&session).await;
    assert_eq!(packages, ["mcp+skill://s/a", "mcp+skill://s/team/b"]);
    assert!(warnings[0].starts_with("3 skills of "), "{warnings:?}");
    for part in [
        "\"skill://c\": a file is not in its directory",
        "\"skill://d\": its manifest is invalid",
        "\"skill://e\": its manifest cannot be read",
    ] {
        assert!(warnings[0].contains(part), "{part}: {warnings:?}");
    }

    assert_eq!(
        read_all(&session, arguments_of_a("")).await,
        skill_text("a")
    );
    assert_eq!(
        read_all(&session, arguments_of_a("b%20c.md")).await,
        "More."
    );
    for (resource, code) in [
        ("changed.md", "NOT_VERIFIED"),
        ("_manifest", "RESOURCE_NOT_FOUND"),
        ("none.md", "RESOURCE_NOT_FOUND"),
    ] {
        let error = read_error(&session, arguments_of_a(resource)).await;
        assert_eq!(error.0, code, "{resource}: {}", error.1);
    }
    let plain = arguments("mcp", "s", "mcp+skill://s/plain", "");
    assert_eq!(read_error(&session, plain).await.0, "PACKAGE_NOT_FOUND");
}

#[tokio::test]
async fn directories_of_a_skill_without_declared_files_are_listed() {
    let mut options = MockOptions::default();
    options.capabilities["extensions"]["io.modelcontextprotocol/skills"] =
        json!({"directoryRead": true});
    let mock = start_with(&free_port(), options, |method, params| {
        let uri = params["uri"].as_str().unwrap_or_default();
        let child = |path: &str, kind: &str| {
            json!({"uri": format!("skill://{path}"), "name": path, "mimeType": kind})
        };
        let dynamic = |name: &str| {
            let mut entry = entry(name, &[]);
            entry["resources"] = json!("dynamic");
            entry
        };
        Some(match (method, uri) {
            ("skills/list", _) => page(&["a", "b", "c"].map(dynamic), None),
            ("resources/directory/read", "skill://a") => resources(&[
                child("a/SKILL.md", "text/markdown"),
                child("a/ref", "inode/directory"),
            ]),
            ("resources/directory/read", "skill://a/ref") => {
                resources(&[child("a/ref/x.md", "text/markdown")])
            }
            ("resources/directory/read", "skill://b") => {
                resources(&[child("a/SKILL.md", "text/markdown")])
            }
            // A directory without end.
            ("resources/directory/read", uri) if uri.starts_with("skill://c") => {
                let path = uri.strip_prefix("skill://").expect("a scheme");
                resources(&[
                    child(&format!("{path}/x"), "text/plain"),
                    child(&format!("{path}/d"), "inode/directory"),
                ])
            }
            ("resources/read", _) => contents(uri, "More."),
            _ => not_found(),
        })
    })
    .await;
    let session = start_mcp_session(&mock.url).await;
    let list = |name: &str| arguments("mcp", "s", &format!("mcp+skill://s/{name}"), "./");
    let listed = call(&session, "skills.read", list("a")).await;
    let paths: Vec<_> = listed["files"].as_array().expect("files").iter().collect();
    let paths: Vec<_> = paths.iter().map(|file| &file["path"]).collect();
    assert_eq!(paths, ["SKILL.md", "ref/x.md"]);
    assert_eq!(
        read_all(&session, arguments_of_a("ref/x.md")).await,
        "More."
    );
    assert_eq!(read_error(&session, list("b")).await.0, "INVALID_RESPONSE");
    let endless = call(&session, "skills.read", list("c")).await;
    assert_eq!(endless["truncated"], true, "{endless}");
}

/// The server of caproot does not list a skill that a model may not choose, and serves it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unlisted_skill_of_caproot_is_read() {
    let (_fixture, daemon) = super::serve_tree(
        "r",
        "skill r/open\nfile r/ship/SKILL.md\n| ---\n| name: ship\n| description: Ships.\n\
         | disable-model-invocation: true\n| ---\n| Ship it.\nfile r/ship/ref/x.md\n| More.",
    )
    .await;
    let mut endpoint = McpEndpoint::process(env!("CARGO_BIN_EXE_caproot"));
    if let McpEndpoint::Process { arguments, .. } = &mut endpoint {
        let address = format!("tcp:{}", daemon.address);
        *arguments = vec!["mcp".to_owned(), "--endpoint".to_owned(), address];
    }
    let server = McpServerConfig {
        start_timeout: HANG_TIMEOUT,
        max_age: Duration::ZERO,
        ..McpServerConfig::new("s", endpoint)
    };
    let source = McpSource::start(server).await.expect("a good name");
    let session = start_session(vec![Arc::new(source)]).await;
    assert_eq!(list_all(&session).await.0, ["mcp+skill://s/r/open"]);
    let ship = |resource: &str| arguments("mcp", "s", "mcp+skill://s/r/ship", resource);
    let text = read_all(&session, ship("")).await;
    assert!(text.ends_with("Ship it.\n"), "{text}");
    assert_eq!(read_all(&session, ship("ref/x.md")).await, "More.\n");
}
