//! Plugins of a session: components of executors and of local directories, and their changes.

use std::sync::Arc;

use caproot::daemon::local_source::LocalSource;
use caproot_client::Fleet;
use caproot_session::{
    ComponentChangeKind, ForkScope, Session, SessionOptions, SkillChoice, SkillSource, SourceKind,
};
use serde_json::json;

use super::call_command::CallProcess;
use super::session::list_all;
use super::{executor, published, serve_tree};
use crate::harness::fixture::Fixture;
use crate::harness::process::client_command;
use crate::harness::{HANG_TIMEOUT, in_time};

/// Two plugins of one executor, and one of a local directory.
const TREE: &str = r#"
file r/deploy/.codex-plugin/plugin.json
| {"name": "deploy", "version": "1", "requires": {"hostCapabilities": ["tray"]}, "mcpServers": {"web": {"url": "https://example.com/mcp"}}}
file r/deploy/commands/go.md
| Go on.
skill r/deploy/skills/roll
file r/review/.claude-plugin/plugin.json
| {"name": "review"}
file mine/kit/.codex-plugin/plugin.json
| {"name": "kit", "lspServers": {"go": {"command": "gopls"}}}
skill mine/kit/skills/notes
"#;

fn plugin_options() -> SessionOptions {
    SessionOptions {
        plugins: true,
        start_timeout: HANG_TIMEOUT,
        ..SessionOptions::default()
    }
}

async fn start_session_with_local_skills(
    fixture: &Fixture,
    address: &str,
    options: &SessionOptions,
) -> Session {
    let directories = vec![("mine".to_owned(), fixture.path("mine"))];
    let local = LocalSource::start("here", directories, options)
        .await
        .expect("a directory");
    let fleet = Fleet::from_executors([("r".to_owned(), executor(address))]);
    let others: Vec<Arc<dyn SkillSource>> = vec![Arc::new(local)];
    Session::start_with(&fleet, vec![published("r")], others, options)
        .await
        .expect("sources")
}

fn plugin_packages(session: &Session) -> Vec<String> {
    session
        .plugins()
        .iter()
        .map(|plugin| plugin.plugin.package.clone())
        .collect()
}

#[tokio::test]
async fn plugins_of_all_sources_have_components() {
    let (fixture, daemon) = serve_tree("r", TREE).await;
    let session =
        start_session_with_local_skills(&fixture, &daemon.address, &plugin_options()).await;
    let plugins = session.plugins();
    assert_eq!(
        plugin_packages(&session),
        ["skill://r/deploy", "skill://r/review", "skill://mine/kit"]
    );
    let kinds: Vec<_> = plugins
        .iter()
        .map(|p| (p.source_kind, &*p.source_id))
        .collect();
    let (executor, local) = ((SourceKind::Executor, "r"), (SourceKind::Local, "here"));
    assert_eq!(kinds, [executor, executor, local]);
    let json = serde_json::to_value(&plugins).expect("JSON");
    assert_eq!(json[0]["plugin"]["mcpServers"][0]["name"], "web");
    assert_eq!(json[0]["plugin"]["hostCapabilities"], json!(["tray"]));
    let command = &json[0]["plugin"]["components"][0];
    assert_eq!(command["kind"], "COMPONENT_KIND_COMMAND");
    assert_eq!(command["name"], "go");
    assert_eq!(json[2]["sourceKind"], "local");
    assert_eq!(
        json[2]["plugin"]["authority"],
        json!({"kind": "local", "id": "mine"})
    );
    let declaration = &json[2]["plugin"]["components"][0]["declaration"];
    assert_eq!(*declaration, json!({"command": "gopls"}));
    // The skills of the plugins are listed as in a session without plugins.
    let without = SessionOptions {
        plugins: false,
        ..plugin_options()
    };
    let bare = start_session_with_local_skills(&fixture, &daemon.address, &without).await;
    assert!(bare.plugins().is_empty());
    assert_eq!(list_all(&bare).await, list_all(&session).await);
    assert_eq!(
        bare.instruction_text(8_000),
        session.instruction_text(8_000)
    );

    // A choice applies to plugins, and forks have a part of them.
    let include = vec!["source:local/here".parse().expect("a rule")];
    let exclude = vec!["name:review".parse().expect("a rule")];
    for (include, exclude, expected) in [
        (include, vec![], &["skill://mine/kit"][..]),
        (vec![], exclude, &["skill://r/deploy", "skill://mine/kit"]),
    ] {
        let options = SessionOptions {
            choice: SkillChoice {
                include,
                exclude,
                ..SkillChoice::default()
            },
            ..plugin_options()
        };
        let session = start_session_with_local_skills(&fixture, &daemon.address, &options).await;
        assert_eq!(plugin_packages(&session), expected);
    }
    let fork = session.fork(ForkScope::Only(&["mine"])).expect("a fork");
    assert_eq!(plugin_packages(&fork), ["skill://mine/kit"]);
    let _ = session.close(false).await;
    assert!(session.plugins().is_empty());
    daemon.stop().await;
}

#[tokio::test]
async fn changes_of_plugins_name_the_components() {
    let (fixture, daemon) = serve_tree("r", TREE).await;
    let session =
        start_session_with_local_skills(&fixture, &daemon.address, &plugin_options()).await;
    let mut changes = session.watch_plugins();

    // The rename of one file changes three components at once.
    let manifest = json!({"name": "deploy", "version": "2", "mcpServers": {
        "web": {"url": "https://example.com/v2"}, "more": {"command": "more-mcp"}}});
    fixture.replace("r/deploy/.codex-plugin/plugin.json", manifest.to_string());
    let change = in_time(changes.next()).await;
    assert!(
        change.added.is_empty() && change.removed.is_empty(),
        "{change:?}"
    );
    let [deploy] = &change.changed[..] else {
        panic!("{change:?}")
    };
    assert_eq!(deploy.plugin.plugin.version, "2");
    let components = deploy.components.iter();
    let components: Vec<_> = components.map(|c| (&*c.kind, &*c.name, c.change)).collect();
    let expected = [
        ("mcp_server", "more", ComponentChangeKind::Added),
        ("mcp_server", "web", ComponentChangeKind::Changed),
    ];
    assert_eq!(components, expected);
    let json = serde_json::to_value(&change).expect("JSON");
    assert_eq!(json["changed"][0]["plugin"]["name"], "deploy");
    assert_eq!(json["changed"][0]["components"][0]["change"], "added");

    std::fs::remove_file(fixture.path("r/deploy/commands/go.md")).expect("a file");
    let change = in_time(changes.next()).await;
    let [component] = &change.changed[0].components[..] else {
        panic!("{change:?}")
    };
    assert_eq!(
        (&*component.kind, component.change),
        ("command", ComponentChangeKind::Removed)
    );

    std::fs::remove_dir_all(fixture.path("mine/kit")).expect("a directory");
    let change = in_time(changes.next()).await;
    assert_eq!(change.removed[0].plugin.package, "skill://mine/kit");
    fixture.write("r/new/.codex-plugin/plugin.json", r#"{"name": "new"}"#);
    let change = in_time(async {
        loop {
            let change = changes.next().await;
            if !change.added.is_empty() {
                return change;
            }
        }
    })
    .await;
    assert_eq!(change.added[0].plugin.name, "new");
    daemon.stop().await;
}

#[tokio::test]
async fn caproot_call_has_plugins_and_their_changes() {
    let (fixture, daemon) = serve_tree("local", TREE).await;
    let flags = "call --plugins --events --exclude name:review";
    let mut process = CallProcess::start(client_command(&daemon, flags));
    let plugins = process.request(json!({"method": "plugins"})).await["result"].clone();
    assert_eq!(plugins.as_array().map(Vec::len), Some(1), "{plugins}");
    assert_eq!(plugins[0]["sourceId"], "local");
    assert_eq!(plugins[0]["plugin"]["mcpServers"][0]["name"], "web");
    fixture.replace(
        "r/deploy/.codex-plugin/plugin.json",
        r#"{"name": "deploy"}"#,
    );
    let change = loop {
        let line = process.next().await;
        if line["event"] == "plugins" {
            break line;
        }
    };
    let component = json!({"kind": "mcp_server", "name": "web", "change": "removed"});
    assert_eq!(
        change["changed"][0]["components"],
        json!([component]),
        "{change}"
    );
    assert_eq!(process.end().await, Some(0));

    let mut process = CallProcess::start(client_command(&daemon, "call"));
    assert_eq!(
        process.request(json!({"method": "plugins"})).await["result"],
        json!([])
    );
    assert_eq!(process.end().await, Some(0));
    daemon.stop().await;
}
