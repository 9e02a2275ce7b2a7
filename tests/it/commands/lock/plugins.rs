//! Plugins in a lock: the real binary on directories, daemons and fleets.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::json;

use super::{create_lock, lines, lock_text, run};
use crate::harness::Daemon;
use crate::harness::fixture::Fixture;
use crate::harness::process::{client_command, run_command};
use crate::harness::watch_harness::skill_text;

/// Plugin with a server, a hook, a skill, and a declaration with a secret.
const TREE: &str = r#"
file r/kit/.claude-plugin/plugin.json
| {"name": "kit", "version": "1.0.0"}
file r/kit/.mcp.json
| {"mcpServers": {"db": {"command": "./run", "env": {"PASSWORD": "hunter2"}}}}
file r/kit/hooks/hooks.json
| {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "./run"}]}]}}
file r/kit/run
| #!/bin/sh
mode 0755 r/kit/run
skill r/kit/skills/deploy
skill r/mail
"#;

const MANIFEST: &str = "r/kit/.claude-plugin/plugin.json";

fn lock_json(fixture: &Fixture) -> serde_json::Value {
    serde_json::from_str(&lock_text(fixture)).expect("JSON")
}

#[tokio::test]
async fn a_lock_has_the_version_and_all_files_of_a_plugin() {
    let fixture = Fixture::new(TREE);
    let created = run(&fixture, "lock r --out caproot.lock").await.succeeded();
    assert_eq!(
        lines(&created),
        [
            "+ kit:deploy  1 file, 63 bytes",
            "+ mail        1 file, 57 bytes",
            "+ plugin kit  5 files, 262 bytes",
            "caproot.lock: 2 skills and 1 plugin approved",
        ]
    );
    let lock = lock_json(&fixture);
    let plugin = &lock["plugins"][0];
    assert_eq!(
        (&plugin["name"], &plugin["version"]),
        (&json!("kit"), &json!("1.0.0"))
    );
    assert_eq!(plugin["withheld"], json!([".mcp.json"]));
    let files = plugin["files"].as_object().expect("files");
    let names: Vec<_> = files.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            ".claude-plugin/plugin.json",
            ".mcp.json",
            "hooks/hooks.json",
            "run",
            "skills/deploy/SKILL.md"
        ]
    );
    assert_eq!(files["run"]["executable"], true);
    // The executor digests the declaration that no client may read.
    assert!(!lock_text(&fixture).contains("hunter2"));
    let secret = fs::read(fixture.path("r/kit/.mcp.json")).expect("the declaration");
    let digest = caproot_core::wire::ContentDigest::of(secret).to_string();
    assert_eq!(files[".mcp.json"]["digest"], digest);

    let check = run(&fixture, "lock r --check caproot.lock")
        .await
        .succeeded();
    assert_eq!(
        lines(&check),
        ["caproot.lock: 2 skills and 1 plugin approved, no difference"]
    );
}

#[tokio::test]
async fn a_check_names_the_files_and_the_version_of_a_changed_plugin() {
    let fixture = create_lock(TREE).await;
    let secret = fs::read_to_string(fixture.path("r/kit/.mcp.json")).expect("the declaration");
    fixture.write("r/kit/.mcp.json", secret.replace("hunter2", "hunter3"));
    fixture.write("r/kit/agents/helper.md", "Helps.");
    let check = run(&fixture, "lock r --check caproot.lock").await;
    let check = check.exited_with(1, "caproot: 1 changed");
    assert_eq!(
        lines(&check),
        [
            "changed  plugin kit",
            "         ~ .mcp.json         77 bytes, other content",
            "         + agents/helper.md  6 bytes",
        ]
    );
    let hint = "then run: caproot lock r --update kit --out caproot.lock";
    assert!(check.stderr.contains(hint), "{}", check.stderr);

    // The skills of the plugin are approved with the plugin.
    fixture.write(
        "r/kit/skills/deploy/SKILL.md",
        skill_text("deploy", "Other."),
    );
    fixture.write(MANIFEST, r#"{"name": "kit", "version": "1.1.0"}"#);
    let json = run(&fixture, "lock r --check caproot.lock --output json").await;
    let report = json.json();
    let plugin = &report["differences"][0];
    assert_eq!(
        (&plugin["name"], &plugin["type"]),
        (&json!("kit"), &json!("plugin"))
    );
    assert_eq!(
        plugin["version"],
        json!({"approved": "1.0.0", "current": "1.1.0"})
    );
    assert_eq!(report["differences"][1]["name"], "kit:deploy");
    let update = run(&fixture, "lock r --update kit --out caproot.lock")
        .await
        .succeeded();
    let text = update.text();
    assert!(
        text.contains("         ~ version  1.0.0 -> 1.1.0\n"),
        "{text}"
    );
    assert!(text.contains("changed  kit:deploy\n"), "{text}");
    run(&fixture, "lock r --check caproot.lock")
        .await
        .succeeded();

    // Another version in the lock alone is a difference, too.
    fixture.write(
        "caproot.lock",
        lock_text(&fixture).replace("\"1.1.0\"", "\"2.0.0\""),
    );
    let check = run(&fixture, "lock r --check caproot.lock").await;
    let check = check.exited_with(1, "caproot: 1 changed");
    assert_eq!(
        lines(&check),
        ["changed  plugin kit", "         ~ version  2.0.0 -> 1.1.0"]
    );
}

#[tokio::test]
async fn added_and_removed_plugins_are_named() {
    let fixture = create_lock(TREE).await;
    fixture.write("r/more/.codex-plugin/plugin.json", r#"{"name": "more"}"#);
    let check = run(&fixture, "lock r --check caproot.lock").await;
    let check = check.exited_with(1, "caproot: 1 new");
    assert_eq!(lines(&check), ["new      plugin more"]);
    run(&fixture, "lock r --add more --out caproot.lock")
        .await
        .succeeded();
    assert_eq!(
        lock_json(&fixture)["plugins"].as_array().map(Vec::len),
        Some(2)
    );

    run(&fixture, "lock --remove kit --out caproot.lock")
        .await
        .succeeded();
    let lock = lock_json(&fixture);
    assert_eq!(lock["plugins"][0]["name"], "more");
    // A skill of the plugin has its own entry.
    assert_eq!(lock["skills"][0]["name"], "kit:deploy");
    fs::remove_dir_all(fixture.path("r/more")).expect("removed");
    let prune = run(&fixture, "lock r --prune --out caproot.lock")
        .await
        .succeeded();
    assert_eq!(
        lines(&prune),
        ["gone     plugin more", "caproot.lock: 2 skills approved"]
    );
}

#[tokio::test]
async fn one_name_of_several_packages_needs_a_choice() {
    let fixture = create_lock(TREE).await;
    // An equal copy is the same approval.
    fixture.add_copy("r/kit", "r/copy");
    run(&fixture, "lock r --check caproot.lock")
        .await
        .succeeded();

    fixture.write("r/copy/run", "#!/bin/evil\n");
    let check = run(&fixture, "lock r --check caproot.lock").await;
    let check = check.exited_with(1, "caproot: 1 twin");
    assert_eq!(
        lines(&check),
        [
            "twin     plugin kit",
            "         skill://1/copy",
            "         skill://1/kit"
        ]
    );
    let update = run(&fixture, "lock r --update kit --out caproot.lock").await;
    update.exited_with(4, "2 packages with different files are named `kit`");
    let words = "lock r --update kit --package skill://1/copy --out caproot.lock";
    run(&fixture, words).await.succeeded();
    let digest = caproot_core::wire::ContentDigest::of("#!/bin/evil\n").to_string();
    assert_eq!(
        lock_json(&fixture)["plugins"][0]["files"]["run"]["digest"],
        digest
    );
    assert_eq!(
        lock_json(&fixture)["plugins"].as_array().map(Vec::len),
        Some(1)
    );

    // A name of a skill and of a plugin means both only if both are chosen.
    fs::remove_dir_all(fixture.path("r/copy")).expect("removed");
    fixture.write("r/kit2/SKILL.md", skill_text("kit", "Evil."));
    let update = run(&fixture, "lock r --update kit --out caproot.lock").await;
    update.exited_with(4, "a skill and a plugin are named `kit`");
    let words = "lock r --update kit --package skill://1/kit --out caproot.lock";
    run(&fixture, words).await.succeeded();
    let lock = lock_json(&fixture);
    let names = lock["skills"].as_array().expect("skills").iter();
    let names: Vec<_> = names.map(|skill| &skill["name"]).collect();
    assert_eq!(names, ["kit:deploy", "mail"]);
}

#[tokio::test]
async fn a_plugin_that_no_lock_can_cover_is_reported() {
    let fixture = Fixture::new(TREE);
    let check = async |part: &str| {
        let created = run(&fixture, "lock r --out new.lock").await;
        created.exited_with(1, part);
        fs::remove_file(fixture.path("new.lock")).expect("a lock of the rest");
    };
    symlink("/etc/hostname", fixture.path("r/kit/link")).expect("a link");
    check("caproot: plugin kit cannot be approved: the daemon does not read link,").await;
    fs::remove_file(fixture.path("r/kit/link")).expect("removed");

    fixture.write("r/kit/.env", "TOKEN=1");
    check("plugin kit cannot be approved: the daemon does not read .env, which may hold keys")
        .await;
    fs::remove_file(fixture.path("r/kit/.env")).expect("removed");

    let key = "-----BEGIN PRIVATE KEY-----\nMC4C\n-----END PRIVATE KEY-----\n";
    fixture.write("r/kit/server.pem", key);
    check("the daemon does not read server.pem,").await;
    fs::remove_file(fixture.path("r/kit/server.pem")).expect("removed");

    fixture.write("r/kit/hooks/hooks.json", "{");
    // The list has the broken file as withheld, with its digest.
    let created = run(&fixture, "lock r --out new.lock").await;
    created.succeeded();
}

#[tokio::test]
async fn a_plugin_has_at_most_10_000_files() {
    let mut fixture = Fixture::new("file r/kit/.claude-plugin/plugin.json\n| {\"name\": \"kit\"}");
    fixture.add("repeat 9999 file r/kit/data/{}");
    let created = run(&fixture, "lock r --out caproot.lock").await.succeeded();
    assert!(
        created.text().starts_with("+ plugin kit  10000 files,"),
        "{}",
        created.text()
    );
    fixture.write("r/kit/data/one-more", "");
    let check = run(&fixture, "lock r --check caproot.lock").await;
    check.exited_with(
        1,
        "caproot: plugin kit cannot be approved: it has over 10000 files, the limit of a lock",
    );
}

#[tokio::test]
async fn a_lock_of_a_daemon_has_the_same_plugins() {
    let (fixture, daemon) = Daemon::publishing("r", TREE).await;
    let mut command = client_command(&daemon, "lock --out daemon.lock");
    command.current_dir(fixture.top());
    run_command(command).await.succeeded();
    run(&fixture, "lock r --out caproot.lock").await.succeeded();
    let of_daemon = fs::read_to_string(fixture.path("daemon.lock")).expect("a lock");
    assert_eq!(of_daemon, lock_text(&fixture));

    // The fleet has one executor with the plugin.
    let address = &daemon.address;
    fixture.write(
        "fleet.yaml",
        format!("executors: {{local: {{endpoint: 'tcp:{address}'}}}}\n"),
    );
    let check = run(&fixture, "lock --fleet fleet.yaml --check caproot.lock").await;
    assert!(check.succeeded().text().contains("no difference"));
    daemon.stop().await;
}

#[tokio::test]
async fn a_pull_with_a_lock_writes_only_approved_plugins() {
    let (fixture, daemon) = Daemon::publishing("r", &format!("{TREE}\ndir out")).await;
    fixture.write("r/kit/.mcp.json", r#"{"db": {"command": "./run"}}"#);
    run(&fixture, "lock r --out caproot.lock").await.succeeded();
    let pull = async |words: &str| {
        let mut command = client_command(&daemon, words);
        command.current_dir(fixture.top());
        run_command(command).await
    };
    let words = "pull skill://r/kit --into out/kit --lock caproot.lock";
    pull(words).await.succeeded();
    assert!(fixture.path("out/kit/hooks/hooks.json").exists());

    fixture.write("r/kit/run", "#!/bin/evil\n");
    let refused = pull(words).await;
    refused.exited_with(1, "the lock does not approve the package: run differ from");
    run(&fixture, "lock --remove kit --out caproot.lock")
        .await
        .succeeded();
    let refused = pull(words).await;
    refused.exited_with(
        1,
        "the lock does not approve the package: the lock has no entry of its name",
    );
    daemon.stop().await;
}
