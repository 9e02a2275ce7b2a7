//! Hostile text in everything that the client's commands print: names of directories, files,
//! skills, plugins and roots, descriptions, quotes in diagnostics, and arguments. No text breaks a
//! line or controls the terminal. See [`super::audit`] for hostile text in logs.

use std::process::Command;

use caproot_core::text::is_misleading;
use serde_json::Value;

use crate::harness::fixture::Fixture;
use crate::harness::process::{Process, client_command_with, run_command};
use crate::harness::{Daemon, Setup, located};

/// Hostile text in the fixture's escapes: a line feed, ANSI and C1 sequences, a terminal title,
/// bidi overrides, invisible characters and a tag.
const NASTY: &str =
    "n\\n\\x1b[2J\\x1b]0;t\\x07\\r\\u{9b}31m\\u{202e}\\u{2066}\\u{200b}\\u{2028}\\u{e0041}y";
/// Hostile text without control characters, for places that reject control characters.
const SLY: &str = "s\\u{202e}\\u{2066}\\u{200b}\\u{e0041}y";
/// Hostile id of a root.
const ID: &str = "r\u{202e}\u{2066}\u{200b}\u{e0041}";

fn hostile_tree() -> Fixture {
    // YAML and JSON write control characters as escapes.
    let yaml = r"\\n\\e[2J\\a\\u009b31m\\u202e\\u2066\\u2028";
    let json = r"\\n\\u001b[2J\\u009b31m\\u202e\\u2066\\u2028";
    Fixture::new(&format!(
        "file skills/{NASTY}/SKILL.md\n\
         | ---\n| name: \"{SLY}\"\n| description: \"Does {yaml} this.\"\n\
         | \"odd{yaml}\": \"{yaml}\"\n| license: \"{yaml}\"\n| metadata: {{\"a{yaml}\": \"{yaml}\"}}\n| ---\n\
         file skills/{NASTY}/{NASTY}.md\n| text\n\
         file skills/bad{NASTY}/SKILL.md\n| ---\n| description: {{{NASTY}: [\n| ---\n\
         file skills/none{NASTY}/SKILL.md\n| {NASTY}\n\
         file skills/named/SKILL.md\n| ---\n| name: \"{yaml}\"\n| description: d\n| ---\n\
         link skills/link{NASTY} -> $TMP/out{NASTY}\n\
         file skills/.codex-plugin/plugin.json\n\
         | {{\"name\":\"{SLY}\",\"version\":\"1{json}\",\"description\":\"{json}\"}}\n\
         file skills/other/.codex-plugin/plugin.json\n| {{\"name\":\"{json}\n"
    ))
}

/// Checks that a command's output has no misleading character other than line feeds.
fn assert_plain(text: &str, args: &[&str]) {
    let bad: Vec<_> = text
        .chars()
        .filter(|c| *c != '\n' && is_misleading(*c))
        .collect();
    assert!(bad.is_empty(), "{args:?} prints {bad:?}: {text:?}");
}

#[tokio::test]
async fn commands_print_hostile_text_escaped() {
    let fixture = hostile_tree();
    let setup = Setup::publishing(ID, fixture.path("skills"));
    let daemon = Daemon::start(setup).await;
    let root = located(ID, &format!("published:{ID}"));
    let list = daemon.list(&[root]).await;
    let [skill] = &*list.skills else {
        panic!("one skill: {list:?}")
    };
    assert!(
        skill.name.contains('\u{202e}') && skill.description.contains('\u{1b}'),
        "{skill:?}"
    );
    assert!(
        list.diagnostics.len() >= 6,
        "many diagnostics: {:?}",
        list.diagnostics
    );
    assert!(
        list.diagnostics
            .iter()
            .any(|d| d.message.contains(r"\u{202e}"))
    );
    let package = skill.package.as_str();
    let (gone, nasty) = (format!("{package}/none"), "skill://r/\n\u{1b}[2J\u{202e}");
    let elsewhere = format!("{ID}={}", fixture.path("none").display());
    for (args, lines) in [
        (&["status"][..], 8..15),
        (&["status", "--limits"], 20..60),
        (&["resolve", "--published"], 2..3),
        (&["resolve"], 5..6),
        (&["resolve", "--root", &elsewhere], 2..3),
        (&["list"], 2..3),
        (&["list", "--root", "\u{1b}[2J\n=/\u{202e}"], 0..1),
        (&["resources", package], 3..4),
        (&["resources", "--digests", package], 3..4),
        (&["resources", nasty], 0..1),
        (&["read", &gone], 0..1),
        (&["read", nasty], 0..1),
        (&["exec", "--print", nasty], 0..1),
        (&["watch", "--root", nasty], 0..1),
        (&["list", "--endpoint", nasty], 0..1),
        (&["explain", nasty], 0..1),
    ] {
        let done = run_command(client_command_with(&daemon, args)).await;
        let stdout = done.text();
        assert_plain(stdout, args);
        assert_plain(&done.stderr, args);
        assert!(
            lines.contains(&stdout.lines().count()),
            "{args:?}: {stdout}"
        );
        if matches!(args[0], "read" | "exec") || args.contains(&"--endpoint") {
            continue;
        }
        let args = [args, &["--output", "json"]].concat();
        let done = run_command(client_command_with(&daemon, &args)).await;
        let stdout = done.text();
        assert_plain(stdout, &args);
        assert_plain(&done.stderr, &args);
        for line in stdout.lines() {
            serde_json::from_str::<Value>(line).expect("JSON, one object a line");
        }
        assert_eq!(stdout.is_empty(), lines.contains(&0), "{args:?}: {stdout}");
    }
    for args in [&["watch"][..], &["watch", "--output", "json"]] {
        let printed = watch_until_synced(client_command_with(&daemon, args)).await;
        let count = printed
            .lines()
            .filter(|line| line.contains("this."))
            .count();
        assert_eq!(count, 1, "{printed}");
        assert_plain(&printed, args);
    }
    daemon.stop().await;
}

/// Runs a watch command, and returns its output up to the first complete state.
async fn watch_until_synced(command: Command) -> String {
    let mut process = Process::spawn(command);
    let mut text = String::new();
    while !text.contains("= synced") && !text.contains("\"synced\"") {
        text += &process.line().await;
        text.push('\n');
    }
    text
}
