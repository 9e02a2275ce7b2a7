//! Files of a plugin next to its skills: `${CLAUDE_PLUGIN_ROOT}` in fragments, and reads by the handles that
//! the fragments name.

use std::fs;
use std::sync::Arc;

use caproot_client::{Fleet, Trust};
use caproot_core::lock::Lock;
use caproot_session::{Session, SessionOptions, SkillChoice, UserPrompt};
use serde_json::json;

use super::call_command::CallProcess;
use super::session::{call, error_code, list_all, read_all, session};
use super::{executor, published, serve_tree};
use crate::harness::process::{caproot, client_command, run_command};
use crate::harness::{HANG_TIMEOUT, in_time};

const TREE: &str = r#"
file r/kit/.claude-plugin/plugin.json
| {"name": "kit"}
file r/kit/.mcp.json
| {"a": {"command": "x", "env": {"API_KEY": "hunter2"}}}
file r/kit/.env
| API_KEY=hunter2
file r/kit/scripts/run.sh
| echo run
file r/kit/scripts/long.txt
| \{3000*line of text }
link r/kit/scripts/out -> ../../plain/SKILL.md
file r/kit/skills/a/SKILL.md
| ---
| description: Uses the files of its plugin.
| ---
| Run `${CLAUDE_PLUGIN_ROOT}/scripts/run.sh`, then read ${PLUGIN_ROOT}/skills/b/more.md
| or ${CODEX_PLUGIN_ROOT:-.}/x.
skill r/kit/skills/b
file r/kit/skills/b/more.md
| More.
file r/plain/SKILL.md
| ---
| description: Is of no plugin.
| ---
| Run ${CLAUDE_PLUGIN_ROOT}/scripts/run.sh.
"#;

const A: &str = "skill://r/kit/skills/a";
const SCRIPT: &str = "skill://r/kit/scripts/run.sh";

async fn start_session(address: &str, options: SessionOptions) -> Session {
    let fleet = Fleet::from_executors([("r".to_owned(), executor(address))]);
    let options = SessionOptions {
        start_timeout: HANG_TIMEOUT,
        ..options
    };
    let session = Session::start(&fleet, vec![published("r")], &options).await;
    session.expect("a selection")
}

async fn fragment_of(session: &Session, prompt: &str) -> String {
    let mut injected = in_time(session.inject(&UserPrompt::from(prompt))).await;
    assert_eq!(injected.fragments.len(), 1, "{injected:?}");
    injected.fragments.remove(0).text
}

#[tokio::test]
async fn the_directory_of_a_plugin_becomes_its_handle_and_can_be_read() {
    let (fixture, daemon) = serve_tree("r", TREE).await;
    let session = session(&[("r", &daemon.address)]).await;

    let text = fragment_of(&session, "$kit:a").await;
    for filled in [
        "Run `skill://r/kit/scripts/run.sh`, then read skill://r/kit/skills/b/more.md\n",
        "or ${CODEX_PLUGIN_ROOT:-.}/x.",
    ] {
        assert!(text.contains(filled), "{text}");
    }
    let text = fragment_of(&session, "$plain").await;
    assert!(text.contains("${CLAUDE_PLUGIN_ROOT}/scripts"), "{text}");
    let read = read_all(&session, json!({"package": A})).await;
    let file = fs::read_to_string(fixture.path("r/kit/skills/a/SKILL.md"));
    assert_eq!(read, file.expect("text"), "a read is the file");

    let more = "skill://r/kit/skills/b/more.md";
    for (arguments, resource, contents) in [
        (json!({"package": SCRIPT}), SCRIPT, "echo run\n"),
        (json!({"resource": SCRIPT}), SCRIPT, "echo run\n"),
        (
            json!({"package": A, "resource": SCRIPT}),
            SCRIPT,
            "echo run\n",
        ),
        (
            json!({"package": "kit:a", "resource": SCRIPT}),
            SCRIPT,
            "echo run\n",
        ),
        (
            json!({"package": "skill://r/kit", "resource": "scripts/run.sh"}),
            SCRIPT,
            "echo run\n",
        ),
        (json!({"package": A, "resource": more}), more, "More.\n"),
        (json!({"package": more}), more, "More.\n"),
    ] {
        let page = call(&session, "skills.read", arguments.clone()).await;
        assert_eq!(page["contents"], contents, "{arguments}");
        assert_eq!(page["resource"], resource, "{arguments}");
    }
    let long = read_all(
        &session,
        json!({"resource": "skill://r/kit/scripts/long.txt"}),
    )
    .await;
    assert_eq!(long, "line of text ".repeat(3_000) + "\n");
    daemon.stop().await;
}

#[tokio::test]
async fn only_named_files_of_the_own_plugin_are_read() {
    let (_fixture, daemon) = serve_tree("r", TREE).await;
    let session = session(&[("r", &daemon.address)]).await;
    for (arguments, code) in [
        (json!({"package": "skill://r/kit"}), "PACKAGE_NOT_FOUND"),
        (
            json!({"package": "skill://r/kit", "resource": "scripts"}),
            "RESOURCE_NOT_FOUND",
        ),
        (
            json!({"package": "skill://r/kit/scripts"}),
            "RESOURCE_NOT_FOUND",
        ),
        (
            json!({"package": "skill://r/kit", "resource": "./"}),
            "PACKAGE_NOT_FOUND",
        ),
        (
            json!({"package": "skill://r/kit", "resource": "scripts/"}),
            "PACKAGE_NOT_FOUND",
        ),
        (
            json!({"package": A, "resource": "skill://r/kit/scripts/"}),
            "RESOURCE_NOT_FOUND",
        ),
        (
            json!({"resource": "skill://r/kit/.env"}),
            "RESOURCE_NOT_FOUND",
        ),
        (
            json!({"resource": "skill://r/kit/.mcp.json"}),
            "RESOURCE_NOT_FOUND",
        ),
        (
            json!({"resource": "skill://r/kit/scripts/out"}),
            "NOT_ALLOWED",
        ),
        (
            json!({"resource": "skill://r/kit/skills/./b/more.md"}),
            "INVALID_ARGUMENTS",
        ),
        (
            json!({"resource": "skill://r/kit/../plain/SKILL.md"}),
            "INVALID_ARGUMENTS",
        ),
        (
            json!({"package": A, "resource": "skill://r/plain/SKILL.md"}),
            "RESOURCE_NOT_FOUND",
        ),
        (
            json!({"package": "skill://r/plain", "resource": SCRIPT}),
            "RESOURCE_NOT_FOUND",
        ),
        (json!({"package": "skill://r/none/x"}), "PACKAGE_NOT_FOUND"),
    ] {
        let found = error_code(&session, "skills.read", arguments.clone()).await;
        assert_eq!(found, code, "{arguments}");
    }
    daemon.stop().await;
}

/// The rules of a session apply to a plugin as to a skill, and to the skills in the plugin.
#[tokio::test]
async fn rules_of_a_session_apply_to_files_of_plugins() {
    let (_fixture, daemon) = serve_tree("r", TREE).await;
    let more = "skill://r/kit/skills/b/more.md";
    for (rule, reads_script, reads_more) in [
        ("name:kit:b", true, false),
        ("name:kit", false, true),
        ("name:none", true, true),
    ] {
        let choice = SkillChoice {
            exclude: vec![rule.parse().expect("a rule")],
            ..SkillChoice::default()
        };
        let options = SessionOptions {
            choice,
            ..SessionOptions::default()
        };
        let session = start_session(&daemon.address, options).await;
        let text = fragment_of(&session, "$kit:a").await;
        assert_eq!(text.contains(SCRIPT), reads_script, "{rule}: {text}");
        for (resource, reads) in [(SCRIPT, reads_script), (more, reads_more)] {
            let arguments = json!({"resource": resource});
            let result = in_time(session.call("skills.read", &arguments)).await;
            assert_eq!(result.success, reads, "{rule} {resource}: {}", result.json);
        }
    }
    daemon.stop().await;
}

/// The entry of a skill approves no other file of its plugin, also if the lock has the plugin.
#[tokio::test]
async fn a_session_with_a_lock_reads_no_file_of_a_plugin() {
    // A plugin with these files cannot be approved.
    let lines = TREE.lines();
    let unapproved = [".env", "API_KEY=", "scripts/out"];
    let lines = lines.filter(|line| !unapproved.iter().any(|part| line.contains(part)));
    let tree: Vec<_> = lines.collect();
    let (fixture, daemon) = serve_tree("r", &tree.join("\n")).await;
    let file = fixture.path("lock.json");
    let dir = fixture.path("r");
    let words = [
        "lock".as_ref(),
        dir.as_os_str(),
        "--out".as_ref(),
        file.as_os_str(),
    ];
    let made = run_command(caproot(words)).await;
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let lock = Lock::read(&file).expect("a lock");
    let options = SessionOptions {
        trust: Trust::Lock(Arc::new(lock)),
        ..SessionOptions::default()
    };
    let session = start_session(&daemon.address, options).await;
    assert_eq!(list_all(&session).await.0.len(), 3);
    let text = fragment_of(&session, "$kit:a").await;
    assert!(text.contains("${CLAUDE_PLUGIN_ROOT}/scripts"), "{text}");
    for package in ["skill://r/kit", SCRIPT] {
        let arguments = json!({"package": package, "resource": SCRIPT});
        let code = error_code(&session, "skills.read", arguments).await;
        assert_eq!(code, "PACKAGE_NOT_FOUND", "{package}");
    }
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_have_the_same_fragments_and_reads() {
    let (_fixture, daemon) =
        serve_tree("local", &TREE.replace("skill://r/", "skill://local/")).await;
    let mut process = CallProcess::start(client_command(&daemon, "call --scripts"));
    let injected = process
        .request(json!({"method": "inject", "text": "use $kit:a"}))
        .await;
    let text = injected["result"]["fragments"][0]["text"].as_str();
    let script = "skill://local/kit/scripts/run.sh";
    assert!(text.is_some_and(|text| text.contains(script)), "{injected}");
    let page = process
        .call("skills_read", &json!({"resource": script}))
        .await;
    assert_eq!(page["contents"], "echo run\n", "{page}");
    // The digest of a skill is for its scripts.
    assert!(page["skill_digest"].is_null(), "{page}");
    assert_eq!(process.end().await, Some(0));
    daemon.stop().await;
}
