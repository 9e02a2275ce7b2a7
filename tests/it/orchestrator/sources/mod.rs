//! Several sources in one session: one merge rule, and independent errors.

mod choice;
mod connected;
mod custom;
mod declarations;
#[allow(dead_code)]
#[path = "../../../../examples/sources.rs"]
mod example;
mod hostile;
mod process;
mod server_list;
mod sites;
mod statements;
mod token;

use std::sync::Arc;

use caproot::daemon::config::RootPreset;
use caproot::daemon::local_source::{LocalDirectories, LocalSource};
use caproot_client::Fleet;
use caproot_session::sources::mcp::{McpEndpoint, McpServerConfig, McpSource};
use caproot_session::{Session, SkillSource, UserPrompt};
use serde_json::{Value, json};

use super::session::{call, list_all, parse_result, read_all};
use super::{executor, impatient_options, published, serve_tree, start_daemon};
use crate::harness::fixture::Fixture;
use crate::harness::test_servers::{mcp_server, unused_address};
use crate::harness::{HANG_TIMEOUT, in_time};

async fn local_source(fixture: &Fixture, directories: &[&str]) -> Arc<dyn SkillSource> {
    let directories = directories
        .iter()
        .map(|dir| ((*dir).to_owned(), fixture.path(dir)))
        .collect::<Vec<_>>();
    let source = LocalSource::start("here", directories, &impatient_options()).await;
    Arc::new(source.expect("good directories"))
}

async fn mcp_source(name: &str, url: &str) -> Arc<dyn SkillSource> {
    let server = McpServerConfig {
        start_timeout: HANG_TIMEOUT,
        ..McpServerConfig::new(name, McpEndpoint::http(url))
    };
    Arc::new(McpSource::start(server).await.expect("a good name"))
}

/// Starts a session with the MCP server at a URL as the source `s`.
async fn start_mcp_session(url: &str) -> Session {
    start_session(vec![mcp_source("s", url).await]).await
}

/// Arguments of `skills.read` for a resource of the skill `a` of the MCP server `s`.
fn arguments_of_a(resource: &str) -> Value {
    arguments("mcp", "s", "mcp+skill://s/a", resource)
}

/// Starts a session without executors.
async fn start_session(others: Vec<Arc<dyn SkillSource>>) -> Session {
    let session = Session::start_with(
        &Fleet::from_executors([]),
        Vec::new(),
        others,
        &impatient_options(),
    )
    .await;
    session.expect("sources")
}

fn arguments(kind: &str, id: &str, package: &str, resource: &str) -> Value {
    json!({"authority": {"kind": kind, "id": id}, "package": package, "resource": resource})
}

/// Reads with an expected error. Returns its code and the result's JSON.
async fn read_error(session: &Session, arguments: Value) -> (String, String) {
    let result = in_time(session.call("skills.read", &arguments)).await;
    assert!(!result.success, "{arguments}: {}", result.json);
    (
        parse_result(&result)["error"]["code"]
            .as_str()
            .expect("a code")
            .to_owned(),
        result.json,
    )
}

#[tokio::test]
async fn sources_are_merged_by_kind() {
    let (fixture, daemon) = serve_tree(
        "r",
        "skill r/pdf\nskill r/mail\nskill mine/pdf\nskill mine/notes\nskill more/notes\n\
         file mine/notes/x.md\n| of mine",
    )
    .await;
    let mock = mcp_server::start_with_skills(&[("pdf", &[]), ("notes", &[]), ("draw", &[])]).await;
    let fleet = Fleet::from_executors([("r".to_owned(), executor(&daemon.address))]);
    // The order of the sources does not matter.
    let others = vec![
        mcp_source("docs", &mock.url).await,
        local_source(&fixture, &["mine", "more"]).await,
    ];
    let session =
        Session::start_with(&fleet, vec![published("r")], others, &impatient_options()).await;
    let session = session.expect("sources");

    let (packages, warnings) = list_all(&session).await;
    let expected = [
        "skill://r/mail",
        "skill://r/pdf",
        "skill://mine/notes",
        "skill://more/notes",
        "mcp+skill://docs/draw",
    ];
    assert_eq!(packages, expected);
    let [of_local, of_mcp] = &warnings[..] else {
        panic!("{warnings:?}")
    };
    assert!(
        of_local.contains("\"here\"") && of_local.ends_with(": pdf"),
        "{of_local}"
    );
    assert!(
        of_mcp.contains("\"docs\"") && of_mcp.ends_with(": notes, pdf"),
        "{of_mcp}"
    );
    let list = call(&session, "skills.list", json!({})).await;
    let kinds: Vec<_> = list["skills"].as_array().expect("a list").iter().collect();
    assert_eq!(
        kinds[2]["authority"],
        json!({"kind": "local", "id": "mine"})
    );
    assert_eq!(kinds[4]["authority"], json!({"kind": "mcp", "id": "docs"}));

    // Each skill is read from its own authority only, also if it is not listed.
    let read = |kind, id, package: &str| read_all(&session, arguments(kind, id, package, ""));
    assert!(
        read("executor", "r", "skill://r/pdf")
            .await
            .contains("Does pdf.")
    );
    assert!(
        read("local", "mine", "skill://mine/pdf")
            .await
            .contains("Does pdf.")
    );
    assert!(
        read("mcp", "docs", "mcp+skill://docs/pdf")
            .await
            .contains("Served pdf.")
    );
    let file = arguments(
        "local",
        "mine",
        "skill://mine/notes",
        "skill://mine/notes/x.md",
    );
    assert_eq!(read_all(&session, file).await, "of mine\n");
    for (kind, id, package, code) in [
        ("executor", "mine", "skill://mine/pdf", "UNKNOWN_AUTHORITY"),
        ("local", "r", "skill://r/pdf", "UNKNOWN_AUTHORITY"),
        ("mcp", "r", "skill://r/pdf", "UNKNOWN_AUTHORITY"),
        ("mcp", "docs", "skill://r/pdf", "WRONG_AUTHORITY"),
        ("mcp", "docs", "mcp+skill://other/pdf", "WRONG_AUTHORITY"),
        ("mcp", "docs", "mcp+skill://docs/none", "PACKAGE_NOT_FOUND"),
        ("local", "mine", "mcp+skill://docs/pdf", "WRONG_AUTHORITY"),
        ("local", "mine", "skill://more/notes", "WRONG_AUTHORITY"),
        ("executor", "r", "skill://r/notes", "PACKAGE_NOT_FOUND"),
    ] {
        let (actual_code, _) = read_error(&session, arguments(kind, id, package, "")).await;
        assert_eq!(actual_code, code, "{kind} {id} {package}");
    }

    // A name refers to a listed skill. Two listed skills of one kind are ambiguous.
    let prompt = UserPrompt::from("$pdf $draw $notes [$x](mcp+skill://docs/draw)");
    let injected = in_time(session.inject(&prompt)).await;
    let packages: Vec<_> = injected
        .fragments
        .iter()
        .map(|fragment| fragment.package.as_str())
        .collect();
    assert_eq!(packages, ["skill://r/pdf", "mcp+skill://docs/draw"]);
    let candidates = &injected.ambiguous[0].candidates;
    let roots: Vec<_> = candidates
        .iter()
        .map(|c| (c.kind.as_str(), c.root.as_str()))
        .collect();
    assert_eq!(roots, [("local", "mine"), ("local", "more")]);
    daemon.stop().await;
}

#[tokio::test]
async fn a_local_source_follows_its_directories() {
    let mut fixture =
        Fixture::new("skill mine/a\nskill elsewhere/b\nlink mine/out -> $TMP/elsewhere");
    let session = start_session(vec![local_source(&fixture, &["mine", "later"]).await]).await;
    let mut changes = session.watch();
    let (packages, warnings) = list_all(&session).await;
    // A link to the outside is not followed, and a missing directory is a warning.
    assert_eq!(packages, ["skill://mine/a"]);
    assert!(warnings[0].contains("\"later\""), "{warnings:?}");
    fixture.add("skill later/c\nskill mine/d");
    in_time(async {
        while list_all(&session).await.0.len() < 3 {
            assert_eq!(changes.next().await.id, "here");
        }
    })
    .await;
    let (packages, warnings) = list_all(&session).await;
    assert_eq!(
        packages,
        ["skill://mine/a", "skill://mine/d", "skill://later/c"]
    );
    assert!(warnings.is_empty(), "{warnings:?}");
    for bad in [Vec::new(), vec![("..".to_owned(), fixture.path("mine"))]] {
        assert!(
            LocalSource::start("x", bad, &impatient_options())
                .await
                .is_err()
        );
    }
}

/// A missing directory of a preset is no warning, and its skills appear once it exists.
#[tokio::test]
async fn presets_are_local_directories() {
    let mut fixture = Fixture::new("dir proj/.git\nskill proj/a/.codex/skills/inner\nskill mine/a");
    let directories = LocalDirectories {
        named: vec![("mine".to_owned(), fixture.path("mine"))],
        presets: vec![RootPreset::Codex],
        project: Some(fixture.path("proj/a")),
    };
    let source = LocalSource::start("here", directories, &impatient_options()).await;
    let session = start_session(vec![Arc::new(source.expect("good directories"))]).await;
    let mut changes = session.watch();
    let (packages, warnings) = list_all(&session).await;
    let inner = "skill://codex-repo/inner".to_owned();
    assert!(packages.contains(&inner), "{packages:?}");
    assert!(warnings.is_empty(), "{warnings:?}");

    fixture.add("skill proj/.codex/skills/outer");
    let outer = "skill://codex-repo-2/outer".to_owned();
    in_time(async {
        while !list_all(&session).await.0.contains(&outer) {
            changes.next().await;
        }
    })
    .await;

    let twice = LocalDirectories {
        presets: vec![RootPreset::Codex; 2],
        ..LocalDirectories::default()
    };
    let error = LocalSource::start("x", twice, &impatient_options()).await;
    let error = error.expect_err("a duplicate").to_string();
    assert!(error.contains("duplicate preset"), "{error}");
}

#[tokio::test]
async fn unusable_sources_are_warnings() {
    let fixture = Fixture::new("skill r/pdf\nskill mine/pdf\nskill mine/b");
    let r = start_daemon("r", fixture.path("r"), None).await;
    let fleet = Fleet::from_executors([("r".to_owned(), executor(&r.address))]);
    let nowhere = format!("http://{}/mcp", unused_address());
    let others = vec![
        local_source(&fixture, &["mine"]).await,
        mcp_source("gone", &nowhere).await,
    ];
    let session =
        Session::start_with(&fleet, vec![published("r")], others, &impatient_options()).await;
    let session = session.expect("sources");
    let (packages, warnings) = list_all(&session).await;
    assert_eq!(packages, ["skill://r/pdf", "skill://mine/b"]);
    assert!(
        warnings
            .iter()
            .any(|w| w.contains("the MCP server \"gone\" cannot be used"))
    );
    let gone = arguments("mcp", "gone", "mcp+skill://gone/pdf", "");
    assert_eq!(read_error(&session, gone).await.0, "SOURCE_UNAVAILABLE");

    // If the executor is lost, its name does not refer to the local skill.
    let mut changes = session.watch();
    r.stop().await;
    in_time(async {
        while list_all(&session).await.0 != ["skill://mine/b"] {
            changes.next().await;
        }
    })
    .await;
    let (_, warnings) = list_all(&session).await;
    assert!(
        warnings
            .iter()
            .any(|w| w.contains("environment \"r\" cannot be used"))
    );
    let read = arguments("executor", "r", "skill://r/pdf", "");
    assert_eq!(read_error(&session, read).await.0, "EXECUTOR_UNAVAILABLE");
    assert!(
        in_time(session.inject(&UserPrompt::from("$pdf")))
            .await
            .fragments
            .is_empty()
    );
}

#[tokio::test]
async fn two_sources_of_one_authority_are_an_error() {
    let fixture = Fixture::new("skill mine/a");
    let twice = vec![
        local_source(&fixture, &["mine"]).await,
        local_source(&fixture, &["mine"]).await,
    ];
    let session = Session::start_with(
        &Fleet::from_executors([]),
        Vec::new(),
        twice,
        &impatient_options(),
    )
    .await;
    let error = session.expect_err("one authority twice").to_string();
    assert!(error.contains("local authority \"mine\""), "{error}");
}

#[tokio::test]
async fn the_example_runs() {
    let fixture = Fixture::new("dir scratch");
    let mock = mcp_server::start_with_skills(&[("draw", &[])]).await;
    let text = in_time(example::run(&fixture.path("scratch"), Some(&mock.url))).await;
    let text = text.expect("the example succeeds");
    for part in [
        "- draw: Does draw.\n",
        "- notes: Keeps notes.\n",
        "- pdf: Fills forms, as the platform has it.\n",
        "the local source \"here\" are not listed",
        "All about pdf.",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("as a person has it"), "{text}");
}
