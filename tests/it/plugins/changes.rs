//! Changes of plugin declarations in open watches.

use crate::harness::replica::Replica;
use crate::harness::watch_harness::{WatchHarness, watch_request};
use crate::harness::{content_digest, selected};
use caproot_core::proto::caproot::v1::{
    ComponentKind, DiagnosticCode, Plugin, SkillView, WatchSkillsRequest,
};
use std::fs;

const TREE: &str = r#"
file r/p/.codex-plugin/plugin.json
| {"name": "p"}
file r/p/.mcp.json
| {"a": {"command": "x"}}
file r/p/agents/one.md
| ---
| description: One.
| ---
skill r/p/skills/one
skill r/p/skills/two
"#;

fn plugin(live: &WatchHarness) -> &Plugin {
    live.replica.plugins.get("skill://r/p").expect("a plugin")
}

/// Returns the names of the plugin's components of a kind.
fn names(live: &WatchHarness, kind: ComponentKind) -> Vec<&str> {
    let components = plugin(live).components.iter();
    let components = components.filter(|component| component.kind() == kind);
    components.map(|component| &*component.name).collect()
}

#[tokio::test]
async fn an_edit_of_a_declaration_is_one_delta() {
    let mut live = WatchHarness::new(TREE).await;
    assert_eq!(plugin(&live).mcp_servers[0].command, "x");
    live.fixture.write(
        "r/p/.mcp.json",
        "{\"a\": {\"command\": \"y\"}, \"b\": {\"url\": \"https://b\"}}",
    );
    let step = live.next_change().await;
    assert_eq!(
        (step.deltas, step.upserted_plugins, step.upserted),
        (1, vec!["skill://r/p".to_owned()], vec![])
    );
    assert_eq!(plugin(&live).mcp_servers[0].command, "y");
    assert_eq!(plugin(&live).mcp_servers.len(), 2);
    live.fixture
        .write("r/p/agents/two.md", "---\ndescription: Two.\n---\n");
    let step = live.next_change().await;
    assert_eq!((step.deltas, step.upserted_plugins.len()), (1, 1));
    assert_eq!(names(&live, ComponentKind::Agent), ["one", "two"]);
    fs::create_dir(live.fixture.path("r/p/hooks")).expect("a directory");
    live.fixture.write(
        "r/p/hooks/hooks.json",
        "{\"hooks\": {\"Stop\": [{\"hooks\": [{\"type\": \"command\", \"command\": \"x\"}]}]}}",
    );
    live.wait_while(|live| names(live, ComponentKind::Hook).is_empty())
        .await;
    fs::remove_file(live.fixture.path("r/p/.mcp.json")).expect("removed");
    live.wait_while(|live| !plugin(live).mcp_servers.is_empty())
        .await;
    live.finish().await;
}

#[tokio::test]
async fn a_renamed_plugin_renames_its_skills_in_the_same_revision() {
    let mut live = WatchHarness::new(TREE).await;
    live.fixture.replace(
        "r/p/.codex-plugin/plugin.json",
        "{\"name\": \"q\", \"version\": \"2\"}",
    );
    let step = live.next_change().await;
    assert_eq!(
        (
            step.deltas,
            step.upserted.len(),
            step.upserted_plugins.len()
        ),
        (1, 2, 1)
    );
    assert_eq!((&*plugin(&live).name, &*plugin(&live).version), ("q", "2"));
    assert!(
        live.replica
            .skills
            .values()
            .all(|skill| skill.name.starts_with("q:"))
    );
    live.finish().await;
}

#[tokio::test]
async fn plugins_come_and_go() {
    let mut live = WatchHarness::new(TREE).await;
    live.fixture
        .write("r/new/.claude-plugin/plugin.json", "{\"name\": \"new\"}");
    live.wait_while(|live| !live.replica.plugins.contains_key("skill://r/new"))
        .await;
    live.fixture.write(
        "r/.claude-plugin/marketplace.json",
        "{\"name\": \"m\", \"plugins\": []}",
    );
    live.wait_while(|live| live.replica.marketplaces.get("r").is_none_or(Vec::is_empty))
        .await;
    fs::remove_dir_all(live.fixture.path("r/new")).expect("removed");
    live.wait_while(|live| live.replica.plugins.contains_key("skill://r/new"))
        .await;
    fs::rename(live.fixture.path("r"), live.fixture.path("away")).expect("renamed");
    live.wait_while(|live| !live.replica.plugins.is_empty())
        .await;
    fs::rename(live.fixture.path("away"), live.fixture.path("r")).expect("renamed back");
    live.wait_while(|live| live.replica.plugins.is_empty())
        .await;
    live.finish().await;
}

#[tokio::test]
async fn a_half_written_declaration_keeps_its_last_valid_content() {
    let mut live = WatchHarness::new(TREE).await;
    live.fixture
        .write("r/p/.mcp.json", "{\"a\": {\"command\": \"y");
    live.next_change().await;
    assert_eq!(plugin(&live).mcp_servers[0].command, "x");
    assert!(plugin(&live).stale);
    let diagnostics = &live.replica.diagnostics["r"];
    assert!(
        diagnostics
            .iter()
            .any(|d| d.code() == DiagnosticCode::PluginFileInvalid),
        "{diagnostics:?}"
    );
    live.fixture
        .write("r/p/.mcp.json", "{\"a\": {\"command\": \"z\"}}");
    live.next_change().await;
    assert_eq!(plugin(&live).mcp_servers[0].command, "z");
    assert!(!plugin(&live).stale && live.replica.diagnostics["r"].is_empty());
    live.finish().await;
}

#[tokio::test]
async fn an_edit_without_a_change_of_meaning_makes_no_revision() {
    let mut live = WatchHarness::new(TREE).await;
    live.replica.catch_up(&live.daemon).await;
    let before = live.fresh_list().await.revision;
    live.fixture
        .replace("r/p/.codex-plugin/plugin.json", "{ \"name\": \"p\" }");
    live.fixture.write("r/p/README.md", "nothing");
    live.fixture.write("r/p/config.json", "{}");
    assert_eq!(live.fresh_list().await.revision, before);

    // A component has the digest of its file.
    let text = "{\"a\":   {\"command\": \"x\"}}";
    live.fixture.replace("r/p/.mcp.json", text);
    live.next_change().await;
    let server = &plugin(&live).mcp_servers[0];
    assert_eq!(server.digest, content_digest(text.as_bytes()));
    live.finish().await;
}

#[tokio::test]
async fn a_stream_is_resumed_with_its_plugins() {
    let mut live = WatchHarness::new(TREE).await;
    let mut resumed = live.replica.fork();
    live.fixture
        .write("r/p/.mcp.json", "{\"a\": {\"command\": \"y\"}}");
    live.next_change().await;
    resumed.resume(&live.daemon).await;
    let step = resumed.next_batch().await;
    assert_eq!(
        (step.reset, step.upserted_plugins.len(), step.upserted.len()),
        (None, 1, 0)
    );
    assert_eq!(resumed.plugins, live.replica.plugins);
    // A stream with the basic view gets no plugins.
    let roots = vec![selected("r", live.fixture.path("r"))];
    let request = WatchSkillsRequest {
        view: SkillView::Basic.into(),
        ..watch_request(roots)
    };
    let basic = Replica::synced(&live.daemon, request).await;
    assert_eq!((basic.plugins.len(), basic.skills.len()), (0, 2));
    live.finish().await;
}

#[tokio::test]
async fn after_random_edits_a_client_agrees_with_resolve() {
    let mut live = WatchHarness::new(TREE).await;
    // A fixed seed makes each run the same.
    let mut seed = 7_u64;
    let mut random_below = |limit: u64| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % limit
    };
    for _ in 0..60 {
        let p = format!("r/p{}", random_below(3));
        let n = random_below(4);
        match random_below(6) {
            0 => live.fixture.write(
                &format!("{p}/.codex-plugin/plugin.json"),
                format!("{{\"name\":\"n{n}\"}}"),
            ),
            1 => live.fixture.write(
                &format!("{p}/.mcp.json"),
                format!("{{\"s{n}\":{{\"command\":\"x\"}}}}"),
            ),
            2 => live.fixture.write(
                &format!("{p}/agents/a{n}.md"),
                format!("---\ndescription: D{}.\n---\n", random_below(9)),
            ),
            3 => live.fixture.write(&format!("{p}/.mcp.json"), "{"),
            4 => drop(fs::remove_dir_all(live.fixture.path(&p))),
            _ => drop(fs::remove_file(
                live.fixture.path(&format!("{p}/agents/a{n}.md")),
            )),
        }
        if random_below(3) == 0 {
            live.replica.catch_up(&live.daemon).await;
        }
    }
    live.finish().await;
}
