//! Lists and files that current and older hosts get, end to end.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::host::Host;
use crate::harness::content_digest;
use crate::harness::fixture::Fixture;
use crate::harness::{Daemon, Setup};

fn uris(items: &[Value]) -> Vec<&str> {
    items
        .iter()
        .map(|item| item["uri"].as_str().expect("a URI"))
        .collect()
}

#[tokio::test]
async fn discover_returns_versions_capabilities_and_instructions() {
    let (_fixture, daemon) = Daemon::publishing("r", "skill r/a").await;
    let mut host = Host::start(&daemon, "");
    let discovered = host
        .call("server/discover", json!({}))
        .await
        .expect("an answer");
    let versions = discovered["supportedVersions"]
        .as_array()
        .expect("versions");
    assert!(versions.contains(&json!("2026-07-28")) && versions.contains(&json!("2025-11-25")));
    assert_eq!(
        discovered["capabilities"],
        json!({"tools": {"listChanged": true}, "prompts": {"listChanged": true}, "resources": {"subscribe": true, "listChanged": true},
            "extensions": {"io.modelcontextprotocol/skills": {"directoryRead": true}}})
    );
    let text = discovered["instructions"].as_str().expect("text");
    assert!(text.starts_with("1 skill by third parties."), "{text}");
    let ended = host.stop().await;
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    daemon.stop().await;
}

#[tokio::test]
async fn skills_and_their_files_are_listed_and_read() {
    let tree = "file r/kit/pdf/SKILL.md\n| ---\n| name: pdf\n| description: |\n|   Fills  forms.\n|   Twice.\n| license: MIT
        | metadata:\n|   version: 2\n|   deep: [1.5, true, null]\n| ---\n| Body.
        file r/kit/pdf/scripts/fill.py\n| #!
        file r/kit/pdf/a b.bin\n| \\xff\\x00";
    let (fixture, daemon) = Daemon::publishing("r", tree).await;
    let mut host = Host::start(&daemon, "");
    let mut list = host.call("skills/list", json!({})).await.expect("a list");
    assert_eq!(list.get("nextCursor"), None);
    assert_eq!(list["_meta"].get("caproot/omitted"), None);
    let base = "skill://r/kit/pdf";
    let file = |name: &str, path: &str| {
        let bytes = std::fs::read(fixture.path(path)).expect("a file");
        json!({"uri": format!("{base}/{name}"), "digest": content_digest(&bytes), "size": bytes.len()})
    };
    let skill = json!({
        "uri": format!("{base}/SKILL.md"),
        "frontmatter": {"name": "pdf", "description": "Fills  forms.\nTwice.\n", "license": "MIT",
            "metadata": {"version": 2, "deep": [1.5, true, null]}},
        "resources": [
            file("SKILL.md", "r/kit/pdf/SKILL.md"),
            file("a%20b.bin", "r/kit/pdf/a b.bin"),
            file("scripts/fill.py", "r/kit/pdf/scripts/fill.py"),
        ],
    });
    assert_eq!(list["skills"].take(), json!([skill]));
    let got = host
        .call("skills/get", json!({"uri": skill["uri"]}))
        .await
        .expect("the skill");
    assert_eq!(got["skill"], skill);

    let resources = host
        .call("resources/list", json!({}))
        .await
        .expect("a list");
    assert_eq!(
        resources["resources"],
        json!([{"uri": skill["uri"], "name": "pdf", "description": "Fills  forms.\nTwice.\n",
            "mimeType": "text/markdown", "size": skill["resources"][0]["size"]}])
    );
    for (name, kind, mime) in [
        ("SKILL.md", "text", "text/markdown"),
        ("a%20b.bin", "blob", "application/octet-stream"),
        ("scripts/fill.py", "text", "text/plain"),
    ] {
        let uri = format!("{base}/{name}");
        let read = host
            .call("resources/read", json!({"uri": uri}))
            .await
            .expect("a file");
        let [content] = read["contents"].as_array().expect("contents").as_slice() else {
            panic!()
        };
        assert_eq!(
            (&content["uri"], &content["mimeType"]),
            (&json!(uri), &json!(mime))
        );
        let text = content[kind].as_str().expect(kind);
        let bytes = if kind == "blob" {
            STANDARD.decode(text).expect("base64")
        } else {
            text.into()
        };
        let entry = skill["resources"]
            .as_array()
            .expect("files")
            .iter()
            .find(|f| f["uri"] == uri);
        assert_eq!(entry.expect("listed")["digest"], content_digest(&bytes));
    }
    let (top, _) = host
        .list_all(
            "resources/directory/read",
            "resources",
            json!({"uri": base}),
        )
        .await;
    assert_eq!(
        json!(top),
        json!([
            {"uri": format!("{base}/SKILL.md"), "name": "SKILL.md", "mimeType": "text/markdown",
                "size": skill["resources"][0]["size"]},
            {"uri": format!("{base}/a%20b.bin"), "name": "a b.bin",
                "mimeType": "application/octet-stream", "size": skill["resources"][1]["size"]},
            {"uri": format!("{base}/scripts"), "name": "scripts", "mimeType": "inode/directory"},
        ])
    );
    let below = json!({"uri": format!("{base}/scripts")});
    let (below, _) = host
        .list_all("resources/directory/read", "resources", below)
        .await;
    assert_eq!(uris(&below), [format!("{base}/scripts/fill.py")]);
    let templates = host
        .call("resources/templates/list", json!({}))
        .await
        .expect("templates");
    assert_eq!(
        templates["resourceTemplates"][0]["uriTemplate"],
        "skill://{+path}"
    );
    host.stop_with(daemon).await;
}

/// Every skill is a resource. Skills with names that the standard allows are listed as skills, too.
#[tokio::test]
async fn a_skill_is_served_at_the_uri_of_its_name() {
    let named = |path: &str, name: &str| {
        format!("file r/{path}/SKILL.md\n| ---\n| name: {name}\n| description: Of {path}.\n| ---\n")
    };
    let tree = [
        named("good", "good"),
        named("dir", "moved"),
        named("second", "moved"),
        named("shout", "SHOUT"),
        named("good/inner", "inner"),
        named("blocked", "good"),
        "file r/bare/SKILL.md\n| ---\n| description: No name.\n| ---\n".to_owned(),
        "file r/dir/notes.md\n| n".to_owned(),
    ];
    let (_fixture, daemon) = Daemon::publishing("r", &tree.concat()).await;
    let mut host = Host::start(&daemon, "");
    let list = host.call("skills/list", json!({})).await.expect("a list");
    let skills = list["skills"].as_array().expect("skills");
    let mut listed = uris(skills);
    listed.sort_unstable();
    let uri = |path: &str| format!("skill://r/{path}/SKILL.md");
    assert_eq!(listed, ["good", "good/inner", "moved"].map(uri));
    assert_eq!(
        list["_meta"]["caproot/omitted"],
        json!({"name": 2, "uriTaken": 2, "files": 0, "policy": 0})
    );

    let (resources, _) = host
        .list_all("resources/list", "resources", json!({}))
        .await;
    let mut all = uris(&resources);
    all.sort_unstable();
    let every = [
        "bare",
        "blocked",
        "good",
        "good/inner",
        "moved",
        "second",
        "shout",
    ]
    .map(uri);
    assert_eq!(all, every);
    for uri in &every {
        let read = host
            .call("resources/read", json!({"uri": uri}))
            .await
            .expect("a file");
        assert!(
            read["contents"][0]["text"]
                .as_str()
                .expect("text")
                .starts_with("---"),
            "{uri}"
        );
        let got = host.call("skills/get", json!({"uri": uri})).await;
        assert_eq!(got.is_ok(), listed.contains(&uri.as_str()), "{uri}");
    }
    let moved = host
        .call("resources/read", json!({"uri": "skill://r/moved/notes.md"}))
        .await;
    assert_eq!(moved.expect("a file")["contents"][0]["text"], "n\n");
    let before = host
        .call("resources/read", json!({"uri": uri("dir")}))
        .await;
    assert_eq!(
        before.expect_err("moved to the URI of its name")["code"],
        -32602
    );
    host.stop_with(daemon).await;
}

/// Names, descriptions and fields of skills have no invisible characters.
#[tokio::test]
async fn hidden_characters_are_escaped() {
    let tree = "file r/a/SKILL.md\n| ---\n| name: a\n| description: Fi\\u{202e}ne.\n| license: \\u{200b}MIT
        | metadata: {k: [\"\\u{e0041}\"]}\n| ---\n| Bo\\u{200b}dy.
        file r/B/SKILL.md\n| ---\n| name: b\\u{2066}\n| description: B.\n| ---
        file r/a/x\\u{202e}y.md\n| x";
    let (fixture, daemon) = Daemon::publishing("r", tree).await;
    let mut host = Host::start(&daemon, "");
    let mut answers = Vec::new();
    for (method, params) in [
        ("skills/list", json!({})),
        ("resources/list", json!({})),
        ("resources/directory/read", json!({"uri": "skill://r/a"})),
    ] {
        answers.push(host.call(method, params).await.expect(method));
    }
    let frontmatter = &answers[0]["skills"][0]["frontmatter"];
    assert_eq!(frontmatter["description"], r"Fi\u{202e}ne.");
    assert_eq!(frontmatter["license"], r"\u{200b}MIT");
    assert_eq!(frontmatter["metadata"]["k"][0], r"\u{e0041}");
    let resources = answers[1]["resources"].as_array().expect("resources");
    let names: Vec<_> = resources.iter().map(|resource| &resource["name"]).collect();
    assert_eq!(names, ["a", r"b\u{2066}"]);
    assert_eq!(answers[2]["resources"][1]["name"], r"x\u{202e}y.md");
    for answer in answers {
        let text = answer.to_string();
        assert!(
            !text.contains(['\u{200b}', '\u{202e}', '\u{2066}', '\u{e0041}']),
            "{text}"
        );
    }
    let read = host
        .call("resources/read", json!({"uri": "skill://r/a/SKILL.md"}))
        .await;
    let whole = std::fs::read_to_string(fixture.path("r/a/SKILL.md")).expect("text");
    assert_eq!(
        read.expect("a file")["contents"][0]["text"],
        whole,
        "a file is never changed"
    );
    host.stop_with(daemon).await;
}

#[tokio::test]
async fn a_root_can_be_a_skill() {
    let tree = "file r/SKILL.md\n| ---\n| name: whole\n| description: All of it.\n| ---
        file r/x.md\n| x\nskill r/part";
    let (_fixture, daemon) = Daemon::publishing("r", tree).await;
    let mut host = Host::start(&daemon, "");
    let (skills, _) = host.list_all("skills/list", "skills", json!({})).await;
    assert_eq!(
        uris(&skills),
        ["skill://r/part/SKILL.md", "skill://r/whole/SKILL.md"]
    );
    let files = skills[1]["resources"].as_array().expect("files");
    let whole = ["SKILL.md", "part/SKILL.md", "x.md"].map(|path| format!("skill://r/whole/{path}"));
    assert_eq!(uris(files), whole);
    for uri in whole {
        assert!(
            host.call("resources/read", json!({"uri": uri}))
                .await
                .is_ok()
        );
    }
    host.stop_with(daemon).await;
}

#[tokio::test]
async fn an_older_host_sees_resources() {
    let (_fixture, daemon) = Daemon::publishing("r", "skill r/a\nfile r/a/x.md\n| x").await;
    let (mut host, initialized) = Host::start_older(&daemon).await;
    assert_eq!(initialized["protocolVersion"], "2025-11-25");
    assert_eq!(initialized["serverInfo"]["name"], "caproot");
    let list = host
        .call("resources/list", json!({}))
        .await
        .expect("a list");
    assert_eq!(list["resources"][0]["uri"], "skill://r/a/SKILL.md");
    assert_eq!(list.get("ttlMs"), None, "its version lacks this field");
    let read = host
        .call("resources/read", json!({"uri": "skill://r/a/x.md"}))
        .await;
    assert_eq!(read.expect("a file")["contents"][0]["text"], "x\n");
    let none = host
        .call("resources/read", json!({"uri": "skill://r/b"}))
        .await;
    assert_eq!(none.expect_err("no such file")["code"], -32002);
    assert_eq!(host.call("ping", json!({})).await, Ok(json!({})));
    host.stop_with(daemon).await;
}

/// `--root`, `--selected` and `--product` select roots as in every other client.
#[tokio::test]
async fn flags_select_roots() {
    let fixture = Fixture::new("skill one/a\nskill two/b");
    let daemon = Daemon::start(Setup::allowing([fixture.top()])).await;
    let root = |dir| format!("--root x={}", fixture.path(dir).display());
    let mut host = Host::start(&daemon, &root("two"));
    let (listed, _) = host
        .list_all("resources/list", "resources", json!({}))
        .await;
    assert_eq!(uris(&listed), ["skill://x/b/SKILL.md"]);
    assert_eq!(host.stop().await.code, Some(0));

    let mut host = Host::start(
        &daemon,
        &format!("{} {}", root("none"), "--product nothing"),
    );
    let list = host
        .call("resources/list", json!({}))
        .await
        .expect("a list");
    assert_eq!(list["resources"], json!([]));
    let missing = json!([{"id": "x", "state": "UNAVAILABLE", "reason": "NOT_FOUND"}]);
    assert_eq!(list["_meta"]["caproot/omissions"]["rootsNotReady"], missing);
    host.stop_with(daemon).await;
}
