//! Rules that differ by the product of a manifest, the lists of marketplaces, and the names of skills.

use super::{codes, resolve, resolve_tree};
use crate::harness::fixture::Fixture;
use crate::harness::process::{caproot, run_client, run_command};
use crate::harness::watch_harness::fresh_list;
use crate::harness::{Daemon, Setup, list_request, selected};
use caproot_core::proto::caproot::v1::{
    DiagnosticCode, ListSkillsRequest, ListSkillsResponse, NotOffered, Skill, SkillView,
};
use serde_json::json;

/// Hooks and servers in the default files and in those that the manifest names.
fn tree(product: &str) -> String {
    format!(
        r#"
file r/{product}/plugin.json
| {{"name": "p", "hooks": ["./hooks/extra.json"], "mcpServers": {{"both": {{"command": "new"}}}},
|  "commands": "./more"}}
file r/hooks/hooks.json
| {{"hooks": {{"SessionStart": [{{"hooks": [{{"type": "command", "command": "./start.sh"}}]}}]}}}}
file r/hooks/extra.json
| {{"hooks": {{"Stop": [{{"hooks": [{{"type": "command", "command": "./stop.sh"}}]}}]}}}}
file r/.mcp.json
| {{"both": {{"command": "old"}}, "own": {{"command": "x"}}}}
file r/commands/one.md
| One.
file r/more/two.md
| Two.
"#
    )
}

#[tokio::test]
async fn a_key_adds_to_the_default_or_replaces_it_as_in_its_product() {
    for (product, components, servers) in [
        (
            ".claude-plugin",
            vec!["SessionStart", "Stop", "two"],
            vec!["own x", "both new"],
        ),
        (
            ".codex-plugin",
            vec!["Stop", "one", "two"],
            vec!["both new"],
        ),
    ] {
        let (_fixture, daemon, plugins, diagnostics) = resolve_tree(&tree(product)).await;
        let [plugin] = &plugins[..] else {
            panic!("{plugins:?}")
        };
        let found = plugin.components.iter().map(|component| &*component.name);
        assert_eq!(found.collect::<Vec<_>>(), components, "{product}");
        let found = plugin.mcp_servers.iter();
        let found: Vec<_> = found
            .map(|server| format!("{} {}", server.name, server.command))
            .collect();
        assert_eq!(found, servers, "{product}");
        assert_eq!(diagnostics, [], "{product}");
        daemon.stop().await;
    }
}

#[tokio::test]
async fn a_hooks_key_that_names_the_standard_file_is_a_warning() {
    for (product, count) in [(".claude-plugin", 1), (".codex-plugin", 0)] {
        let (_fixture, daemon, plugins, diagnostics) = resolve_tree(&format!(
            "file r/{product}/plugin.json\n| {{\"name\": \"p\", \"hooks\": \"./hooks/link.json\"}}\n\
             link r/hooks/link.json -> hooks.json\nfile r/hooks/hooks.json\n\
             | {{\"hooks\": {{\"Stop\": [{{\"hooks\": [{{\"type\": \"command\", \"command\": \"./x\"}}]}}]}}}}\n"
        ))
        .await;
        assert_eq!(
            codes(&diagnostics),
            vec![DiagnosticCode::FieldInvalid; count]
        );
        assert!(
            diagnostics
                .iter()
                .all(|found| found.message.contains("rejects the plugin"))
        );
        assert!(!plugins[0].components.is_empty());
        daemon.stop().await;
    }
}

/// Plugin of which a host must be able to do something, with a nested plugin, and a skill without a plugin.
const NEEDS: &str = r#"
file r/p/.claude-plugin/plugin.json
| {"name": "p", "requires": {"hostCapabilities": ["local.exec@1", "tray\u{202e}"], "node": "22"}}
skill r/p/skills/a
file r/p/inner/.codex-plugin/plugin.json
| {"name": "inner"}
skill r/p/inner/skills/b
skill r/plain
"#;

#[tokio::test]
async fn lists_have_the_capabilities_that_a_plugin_requires_of_a_host() {
    let (fixture, daemon) = Daemon::publishing("r", NEEDS).await;
    let root = [selected("r", fixture.path("r"))];
    let needs = ["local.exec@1", "tray\u{202e}"];
    let plugins = resolve(&daemon, &root).await.roots.remove(0).plugins;
    let of_plugin = plugins.iter().find(|plugin| plugin.name == "p");
    let of_plugin = of_plugin.expect("a plugin");
    assert_eq!(of_plugin.host_capabilities, needs);
    let more = of_plugin.more.as_ref().expect("other keys");
    assert!(more.fields.contains_key("requires"), "the key is passed on");

    let of_skills = |list: &ListSkillsResponse| -> Vec<(String, Vec<String>, Option<u32>)> {
        let skills = list.skills.iter();
        skills
            .map(|skill| {
                let needs = skill.host_capabilities.clone();
                (skill.name.clone(), needs, skill.plugin_depth)
            })
            .collect()
    };
    let none = Vec::new();
    let expected = [
        ("inner:b".to_owned(), none.clone(), Some(2)),
        ("p:a".to_owned(), needs.map(str::to_owned).to_vec(), Some(2)),
        ("plain".to_owned(), none.clone(), None),
    ];
    for view in [SkillView::Basic, SkillView::Full] {
        let request = ListSkillsRequest {
            view: view.into(),
            ..list_request(&root)
        };
        let list = daemon.try_list(request).await.expect("a list");
        assert_eq!(of_skills(&list), expected, "{view:?}");
        let packages: Vec<_> = list.skills.iter().map(Skill::plugin_package).collect();
        assert_eq!(
            packages,
            [Some("skill://r/p/inner"), Some("skill://r/p"), None]
        );
    }

    let listed = run_client(&daemon, "list").await;
    assert!(listed.text().contains("HOST NEEDS"), "{}", listed.text());
    let line = r"local.exec@1, tray\u{202e}  Does a.";
    assert!(listed.text().contains(line), "{}", listed.text());
    let json = run_client(&daemon, "list --output json").await;
    let json = json.json();
    assert_eq!(json["skills"][1]["hostCapabilities"], json!(needs));

    let manifest = "{\"name\": \"p\", \"requires\": {\"hostCapabilities\": \"tray\"}}";
    fixture.write("r/p/.claude-plugin/plugin.json", manifest);
    let list = fresh_list(&daemon, &root).await;
    assert_eq!(list.skills[1].host_capabilities, ["tray"]);
    fixture.write("r/p/.claude-plugin/plugin.json", "{\"name\": \"p\"}");
    let list = fresh_list(&daemon, &root).await;
    assert_eq!(list.skills[1].host_capabilities, none);
    let listed = run_client(&daemon, "list").await;
    assert!(!listed.text().contains("HOST NEEDS"), "{}", listed.text());
    daemon.stop().await;
}

#[tokio::test]
async fn required_capabilities_of_a_host_are_bounded_texts() {
    use DiagnosticCode::{FieldInvalid, FieldTooLong, SecretRedacted};
    let numbered = |count: usize| -> Vec<String> { (0..count).map(|n| format!("c{n}")).collect() };
    let token = "ghp_0123456789abcdefghijABCDEFGHIJ456789";
    let cases = [
        (json!(["only", "a", "list"]), vec![], vec![]),
        (json!({"node": "22"}), vec![], vec![]),
        (json!({"hostCapabilities": null}), vec![], vec![]),
        (
            json!({"hostCapabilities": "one"}),
            vec!["one".to_owned()],
            vec![],
        ),
        (
            json!({"hostCapabilities": {"a": 1}}),
            vec![],
            vec![FieldInvalid],
        ),
        (
            json!({"hostCapabilities": ["", "a", {"id": "b"}, "word ".repeat(14)]}),
            vec!["a".to_owned()],
            vec![FieldInvalid],
        ),
        (
            json!({"hostCapabilities": numbered(17)}),
            numbered(16),
            vec![FieldTooLong],
        ),
        (
            json!({"hostCapabilities": [token]}),
            vec!["<redacted>".to_owned()],
            vec![SecretRedacted, SecretRedacted],
        ),
    ];
    for (requires, expected, expected_codes) in cases {
        let manifest = json!({"name": "p", "requires": requires});
        let tree = format!("file r/.codex-plugin/plugin.json\n| {manifest}\nskill r/skills/a");
        let (_fixture, daemon, plugins, diagnostics) = resolve_tree(&tree).await;
        assert_eq!(plugins[0].host_capabilities, expected, "{requires}");
        assert_eq!(codes(&diagnostics), expected_codes, "{requires}");
        daemon.stop().await;
    }
}

/// Skills that the plugin lists, directly below `skills`, and elsewhere.
const LISTED: &str = r#"
skill r/core/plan
skill r/core/deep/further
skill r/skills/direct
skill r/skills/old/gone
file r/skills/idle/SKILL.md
| ---
| name: idle
| description: Waits. Use when idle.
| default-enabled: "Off"
| ---
file r/skills/people/SKILL.md
| ---
| name: people
| description: Asks. Use when asked.
| disable-model-invocation: 1
| ---
"#;

async fn offers(manifest: &str) -> Vec<(String, NotOffered)> {
    let fixture = Fixture::new(&format!("{LISTED}file r/{manifest}"));
    let daemon = Daemon::start(Setup::allowing([fixture.top()])).await;
    let list = daemon.list(&[selected("r", fixture.path("r"))]).await;
    daemon.stop().await;
    let skills = list.skills.iter();
    skills
        .map(|skill| (skill.name.clone(), skill.not_offered()))
        .collect()
}

#[tokio::test]
async fn skills_that_a_manifest_does_not_list_are_not_offered() {
    use NotOffered::{PeopleOnly, SwitchedOff, Unlisted, Unspecified};
    for (manifest, further, plan, direct, gone, idle) in [
        (
            ".claude-plugin/plugin.json\n| {\"name\": \"p\", \"skills\": [\"./core\"]}",
            Unlisted,
            Unspecified,
            Unspecified,
            Unlisted,
            SwitchedOff,
        ),
        (
            ".codex-plugin/plugin.json\n| {\"name\": \"p\", \"skills\": \"./core/\"}",
            Unspecified,
            Unspecified,
            Unlisted,
            Unlisted,
            Unlisted,
        ),
        (
            ".claude-plugin/plugin.json\n| {\"name\": \"p\", \"defaultEnabled\": false}",
            SwitchedOff,
            SwitchedOff,
            SwitchedOff,
            SwitchedOff,
            SwitchedOff,
        ),
        (
            ".claude-plugin/plugin.json\n| {\"name\": \"p\", \"skills\": \".\"}",
            Unlisted,
            Unlisted,
            Unspecified,
            Unlisted,
            SwitchedOff,
        ),
    ] {
        let expected = [
            ("p:direct", direct),
            ("p:further", further),
            ("p:gone", gone),
            ("p:idle", idle),
            ("p:people", PeopleOnly),
            ("p:plan", plan),
        ];
        let expected = expected.map(|(name, reason)| (name.to_owned(), reason));
        assert_eq!(offers(manifest).await, expected, "{manifest}");
    }
}

#[tokio::test]
async fn list_shows_skills_that_are_not_offered_with_their_reason() {
    let manifest =
        "file r/.claude-plugin/plugin.json\n| {\"name\": \"p\", \"skills\": [\"./core\"]}";
    let (_fixture, daemon) = Daemon::publishing("r", &format!("{LISTED}{manifest}\n")).await;
    let offered = run_client(&daemon, "list").await;
    let names: Vec<_> = offered.text().lines().skip(1).collect();
    assert!(
        names.len() == 2 && names[1].starts_with("p:plan"),
        "{names:?}"
    );
    assert!(
        offered.stderr.contains("4 skills omitted") && offered.stderr.contains("--all"),
        "{}",
        offered.stderr
    );

    let all = run_client(&daemon, "list --all").await.text().to_owned();
    for (name, reason) in [
        ("p:further", "unlisted"),
        ("p:gone", "unlisted"),
        ("p:idle", "off"),
        ("p:people", "people"),
        ("p:plan", "all"),
    ] {
        let line = all.lines().find(|line| line.starts_with(name)).expect(name);
        assert_eq!(line.split_whitespace().nth(2), Some(reason), "{all}");
    }
    daemon.stop().await;
}

#[tokio::test]
async fn paths_of_a_marketplace_are_checked_and_its_skills_are_listed() {
    let fixture = Fixture::new(
        r#"
file r/.claude-plugin/marketplace.json
| {"name": "m", "renames": {"a": "b"}, "plugins": [
|  {"name": "one", "source": "./", "skills": ["./skills/a", "./skills/none", "./skills/a/SKILL.md"]},
|  {"name": "two", "source": ".", "strict": false, "skills": ["./skills/b", "./skills", "./empty", "../out"]},
|  {"name": "gone", "source": "./gone"}, {"name": "file", "source": "./skills/a/SKILL.md"}]}
skill r/skills/a
skill r/skills/b
dir r/empty
"#,
    );
    let daemon = Daemon::start(Setup::allowing([fixture.top()])).await;
    let answer = resolve(&daemon, &[selected("r", fixture.path("r"))]).await;
    let root = &answer.roots[0];
    let mut missing: Vec<_> = root
        .diagnostics
        .iter()
        .map(|found| (found.code(), &*found.message))
        .collect();
    missing.sort();
    let has = |code, words: &[&str]| {
        missing.iter().any(|(found, message)| {
            *found == code && words.iter().all(|word| message.contains(word))
        })
    };
    for words in [
        ["`one`", "`./skills/none`", "does not exist"],
        ["`one`", "`./skills/a/SKILL.md`", "is a file"],
        ["`two`", "`./empty`", "has no SKILL.md"],
        ["`gone`", "`./gone`", "does not exist"],
        ["`file`", "`./skills/a/SKILL.md`", "is a file"],
    ] {
        assert!(
            has(DiagnosticCode::PathMissing, &words),
            "{words:?} {missing:?}"
        );
    }
    assert!(
        has(DiagnosticCode::PathInvalid, &["`../out`"]),
        "{missing:?}"
    );
    assert_eq!(missing.len(), 6, "{missing:?}");

    let [one, two, ..] = &root.marketplaces[0].plugins[..] else {
        panic!("{:?}", root.marketplaces)
    };
    assert_eq!(one.package, two.package);
    assert_eq!(
        two.skills,
        ["skill://r/skills/b", "skill://r/skills", "skill://r/empty"]
    );
    assert!(
        two.more
            .as_ref()
            .is_some_and(|more| more.fields.contains_key("strict"))
    );
    let more = root.marketplaces[0].more.as_ref().expect("other keys");
    assert!(more.fields.contains_key("renames"));
    daemon.stop().await;
}

#[tokio::test]
async fn a_path_that_appears_is_no_longer_missing() {
    let (fixture, daemon) = Daemon::publishing(
        "r",
        "file r/.claude-plugin/marketplace.json\n| {\"plugins\": [{\"name\": \"a\", \"source\": \"./p\"}]}\n",
    )
    .await;
    let check = async || {
        run_client(&daemon, "resolve --root published:r --fresh")
            .await
            .stderr
    };
    let before = check().await;
    assert!(before.contains("PATH_MISSING"), "{before}");
    fixture.write("r/p/README.md", "new");
    let after = check().await;
    assert!(!after.contains("PATH_MISSING"), "{after}");
    daemon.stop().await;
}

#[tokio::test]
async fn a_marketplace_with_many_plugins_is_bounded() {
    let fixture = Fixture::new("dir r/.claude-plugin");
    let entries: Vec<_> = (0..10_000)
        .map(|n| format!(r#"{{"name":"p{n}","source":"./p{n}"}}"#))
        .collect();
    let text = format!("{{\"plugins\":[{}]}}", entries[..5_000].join(","));
    fixture.write("r/.claude-plugin/marketplace.json", text);
    let daemon = Daemon::start(Setup::allowing([fixture.top()])).await;
    let answer = resolve(&daemon, &[selected("r", fixture.path("r"))]).await;
    let root = &answer.roots[0];
    assert!(root.marketplaces[0].truncated);
    assert!(codes(&root.diagnostics).contains(&DiagnosticCode::LimitReached));
    daemon.stop().await;
}

#[tokio::test]
async fn a_name_with_the_plugin_in_it_is_not_doubled() {
    let fixture = Fixture::new(
        "file r/.claude-plugin/plugin.json\n| {\"name\": \"tempo\"}\nfile r/skills/keep/SKILL.md\n| ---\n\
         | name: tempo:keep\n| description: Keeps time. Use when time passes.\n| ---\n",
    );
    let daemon = Daemon::start(Setup::allowing([fixture.top()])).await;
    let list = daemon.list(&[selected("r", fixture.path("r"))]).await;
    assert_eq!(list.skills[0].name, "tempo:keep");
    daemon.stop().await;

    let done = run_command(caproot(["check"]).arg(fixture.path("r"))).await;
    let text = done.text();
    assert!(
        text.contains("write `name: keep`") && !text.contains("tempo-keep"),
        "{text}"
    );
    assert!(!text.contains("differs from the directory"), "{text}");
}
