//! Files with several hard links. A write through one name causes no event in the directories of
//! the other names. The daemon's audit runs every ten minutes, so no test here waits for it.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;

use caproot_core::proto::caproot::v1::{ListSkillsResponse, Skill};

use crate::harness::rng::Rng;
use crate::harness::watch_harness::{WatchHarness, skill_text, watch_status};

/// The second names exist before the first scan, outside the root.
const TREE: &str = r#"
skill r/kit/a
file r/kit/a/agents/openai.yaml
| interface:
|   display_name: First
file r/kit/.claude-plugin/plugin.json
| {"name": "first"}
file r/kit/.mcp.json
| {"a": {"command": "first"}}
hardlink out/SKILL.md -> r/kit/a/SKILL.md
hardlink out/openai.yaml -> r/kit/a/agents/openai.yaml
hardlink out/plugin.json -> r/kit/.claude-plugin/plugin.json
hardlink out/mcp.json -> r/kit/.mcp.json
"#;

fn descriptions(list: &ListSkillsResponse) -> BTreeMap<&str, &str> {
    list.skills
        .iter()
        .map(|s| (s.package.as_str(), s.description.as_str()))
        .collect()
}

fn display_name(skill: &Skill) -> &str {
    skill
        .interface
        .as_ref()
        .map_or("", |interface| &interface.display_name)
}

#[tokio::test]
async fn a_write_through_another_name_reaches_a_stream() {
    let mut live = WatchHarness::new(TREE).await;
    let current = |live: &WatchHarness| live.replica.skills["skill://r/kit/a"].clone();
    for round in 0..3 {
        let says = format!("Round {round}.");
        live.fixture.write("out/SKILL.md", skill_text("a", &says));
        live.wait_while(|live| current(live).description != says)
            .await;
        live.fixture.write(
            "out/openai.yaml",
            format!("interface:\n  display_name: {says}\n"),
        );
        live.wait_while(|live| display_name(&current(live)) != says)
            .await;
        live.fixture
            .write("out/plugin.json", format!(r#"{{"name": "kit{round}"}}"#));
        live.wait_while(|live| current(live).name != format!("kit{round}:a"))
            .await;
        live.fixture.write(
            "out/mcp.json",
            format!(r#"{{"a": {{"command": "no-{round}"}}}}"#),
        );
        let command = |live: &WatchHarness| {
            let plugin = &live.replica.plugins["skill://r/kit"];
            plugin.mcp_servers[0].command.clone()
        };
        live.wait_while(|live| command(live) != format!("no-{round}"))
            .await;
    }
    assert_eq!(watch_status(&live.daemon).await.missed_changes, 0);
    live.finish().await;
}

#[tokio::test]
async fn a_write_to_a_manifest_above_the_root_is_seen() {
    let tree = "skill up/r/a\nfile up/.codex-plugin/plugin.json\n| {\"name\": \"first\"}
        hardlink out/plugin.json -> up/.codex-plugin/plugin.json";
    let fixture = crate::harness::fixture::Fixture::new(tree);
    let root = crate::harness::selected("r", fixture.path("up/r"));
    let mut live = WatchHarness::with_roots(
        fixture,
        vec![root],
        caproot::daemon::catalog::WatchTiming::default(),
    )
    .await;
    assert_eq!(live.replica.skills["skill://r/a"].name, "first:a");
    live.fixture
        .write("out/plugin.json", "{\"name\": \"second\"}");
    live.wait_while(|live| live.replica.skills["skill://r/a"].name != "second:a")
        .await;
    live.finish().await;
}

#[tokio::test]
async fn a_hard_link_made_later_below_the_root_is_watched() {
    let mut live = WatchHarness::new("skill r/a\ndir r/b").await;
    fs::hard_link(
        live.fixture.path("r/a/SKILL.md"),
        live.fixture.path("r/b/SKILL.md"),
    )
    .expect("another name");
    live.wait_while(|live| live.replica.skills.len() < 2).await;
    // No event reports to the directory `a` that its file has another name or that the file
    // changed.
    for (name, says) in [
        ("b", "Through b."),
        ("a", "Through a."),
        ("b", "Through b again."),
    ] {
        live.fixture
            .write(&format!("r/{name}/SKILL.md"), skill_text("x", says));
        live.wait_while(|live| {
            live.replica
                .skills
                .values()
                .any(|skill| skill.description != says)
        })
        .await;
    }
    live.finish().await;
}

#[tokio::test]
async fn a_fresh_list_has_a_write_through_an_unwatched_name() {
    let mut live = WatchHarness::new(TREE).await;
    live.fixture.add("skill r/lone");
    for round in 0..50 {
        let says = format!("Round {round}.");
        let other = live.fixture.path("out/other");
        fs::hard_link(live.fixture.path("r/lone/SKILL.md"), &other).expect("another name");
        fs::write(&other, skill_text("lone", &says)).expect("write");
        if round % 2 == 0 {
            fs::remove_file(&other).expect("remove");
        }
        let list = live.fresh_list().await;
        assert_eq!(descriptions(&list)["skill://r/lone"], says);
        drop(fs::remove_file(&other));
    }
    fs::remove_file(live.fixture.path("out/openai.yaml")).expect("remove");
    fs::hard_link(
        live.fixture.path("r/kit/a/agents/openai.yaml"),
        live.fixture.path("out/again"),
    )
    .expect("another name");
    live.fixture
        .write("out/again", "interface:\n  display_name: Again\n");
    live.fixture
        .write("out/plugin.json", "{\"name\": \"again\"}");
    let list = live.fresh_list().await;
    let kit = list
        .skills
        .iter()
        .find(|s| s.package == "skill://r/kit/a")
        .expect("listed");
    assert_eq!((display_name(kit), &*kit.name), ("Again", "again:a"));
    live.finish().await;
}

/// Names that the file of a skill may have: two skills, files with other names in watched
/// directories, and files outside the root.
const NAMES: [&str; 6] = [
    "r/a/SKILL.md",
    "r/b/SKILL.md",
    "r/c/deep/SKILL.md",
    "r/c/notes.md",
    "out/x",
    "out/y",
];
const ROUNDS: u64 = 1_500;

/// Applies one random change to one of the names.
fn change(names: &[PathBuf], rng: &mut Rng, round: u64) -> io::Result<()> {
    let (one, other) = (rng.pick(names).clone(), rng.pick(names).clone());
    let text = skill_text("x", &format!("Round {round}."));
    match rng.below(10) {
        // In place, through each name that the file has now.
        0..=4 => fs::metadata(&one).and_then(|_| fs::write(&one, text)),
        5 => {
            let new = one.with_extension("new");
            fs::write(&new, text)?;
            fs::rename(new, one)
        }
        6 => fs::remove_file(one),
        _ => {
            drop(fs::remove_file(&other));
            fs::hard_link(one, other)
        }
    }
}

#[tokio::test]
async fn fresh_lists_have_all_edits_through_any_name_in_any_order() {
    for seed in 0..4 {
        let mut rng = Rng::new(seed);
        let mut live = WatchHarness::new("skill r/a\nskill r/b\nskill r/c/deep\ndir out").await;
        let names = NAMES.map(|name| live.fixture.path(name));
        for round in 0..ROUNDS / 4 {
            // A change that cannot be made, such as to a removed file, is skipped.
            drop(change(&names, &mut rng, round));
            if rng.one_in(3) {
                continue;
            }
            let list = live.fresh_list().await;
            let listed = descriptions(&list);
            for (name, path) in NAMES.iter().zip(&names).take(3) {
                let package = format!("skill://{}", name.trim_end_matches("/SKILL.md"));
                let text = fs::read_to_string(path).ok();
                let says = text.as_ref().and_then(|text| text.lines().nth(2));
                let says = says.and_then(|line| line.strip_prefix("description: "));
                assert_eq!(
                    listed.get(&*package),
                    says.as_ref(),
                    "seed {seed}, round {round}"
                );
            }
        }
        live.replica.catch_up(&live.daemon).await;
        assert_eq!(watch_status(&live.daemon).await.missed_changes, 0);
        live.finish().await;
    }
}
