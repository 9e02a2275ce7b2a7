//! Runs the client commands as processes against a real daemon: text, JSON and exit codes.

use std::fs;
use std::io::pipe;

use serde_json::json;

use crate::harness::fixture::Fixture;
use crate::harness::process::{Output, caproot, client_command, run_client, run_command};
use crate::harness::{Daemon, Setup};

/// Daemon that publishes `skills`. The skill `pdf` has a script.
async fn publish_skills(more: &str) -> (Fixture, Daemon) {
    let (fixture, daemon) = Daemon::publishing("skills", &format!(
        "skill skills/pdf\nfile skills/pdf/scripts/fill.py\n| #!\nmode 0755 skills/pdf/scripts/fill.py
        {more}"
    )).await;
    (fixture, daemon)
}

#[tokio::test]
async fn resolve_published_shows_state_and_reason() {
    let fixture = Fixture::new("skill good/a");
    let root = |id: &str, dir| (Some(id.to_owned()), fixture.path(dir));
    let setup = Setup {
        roots: vec![root("good", "good"), root("new", "new")],
        ..Setup::default()
    };
    let daemon = Daemon::start(setup).await;
    let status = run_client(&daemon, "status").await.succeeded();
    let unrequested = "2 published roots (2 not requested yet), 0 skills";
    assert!(status.text().contains(unrequested), "{}", status.text());

    let output = run_client(&daemon, "resolve --published")
        .await
        .exited_with(1, "");
    let status = run_client(&daemon, "status").await.succeeded();
    let requested = "2 published roots (1 unavailable), 1 skill";
    assert!(status.text().contains(requested), "{}", status.text());
    let expected = [
        "ID    SCOPE  STATE",
        "good  USER   READY",
        "new   USER   UNAVAILABLE NOT_FOUND",
    ];
    assert_eq!(output.text().lines().collect::<Vec<_>>(), expected);
    let [problem, summary] = output.stderr.lines().collect::<Vec<_>>()[..] else {
        panic!()
    };
    assert!(
        problem.starts_with("error[NOT_FOUND] root new: "),
        "{problem}"
    );
    assert_eq!(summary, "published: 2 roots (1 not ready)");
    fs::create_dir(fixture.path("new")).expect("a directory");
    // No call waits for a change of published roots, so ask for a fresh list.
    assert_eq!(run_client(&daemon, "resolve --fresh").await.code, Some(0));
    let output = run_client(&daemon, "resolve --published --output json").await;
    assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""));
    let answer = output.json();
    assert_eq!(answer["roots"][1]["state"], "ROOT_STATE_READY");
    assert_eq!(
        answer["roots"][0]["selectedCapabilityRoot"]["location"],
        json!({"type": "environment", "environmentId": "local", "path": "published:good"})
    );
    daemon.stop().await;
}

#[tokio::test]
async fn resolve_shows_plugins_and_selected_roots() {
    let manifest =
        "file skills/.codex-plugin/plugin.json\n| {\"name\":\"kit\",\"version\":\"1.2\"}";
    let more = format!("{manifest}\nfile skills/bad/SKILL.md\n| no fence\nfile one/SKILL.md");
    let (fixture, daemon) = publish_skills(&more).await;
    let output = run_client(&daemon, "resolve").await.succeeded();
    let line = output.text().lines().nth(1).expect("a root");
    assert!(
        line.starts_with("skills  READY  PLUGIN kit 1.2: 1 skill, 1 omitted; "),
        "{line}"
    );
    assert!(
        output
            .stderr
            .contains("error[NO_FRONTMATTER] skill://skills/bad/SKILL.md")
    );
    assert!(
        output.stderr.ends_with("1 root, 1 error\n"),
        "{}",
        output.stderr
    );

    let selected = json!({"selectedCapabilityRoots": [
        {"id": "x", "location": {"environmentId": "local", "path": fixture.path("skills")}},
        {"id": "y", "location": {"environmentId": "elsewhere", "path": "/"}},
    ]});
    fixture.write("selected.json", selected.to_string());
    let file = fixture.path("selected.json");
    let mut from_file = client_command(&daemon, "resolve --fresh --output json");
    from_file.arg("--selected").arg(&file);
    let mut from_stdin = client_command(&daemon, "resolve --output json --selected -");
    from_stdin.stdin(fs::File::open(&file).expect("just written"));
    for command in [from_file, from_stdin] {
        let output = run_command(command).await;
        assert_eq!(
            (output.code, output.stderr.as_str()),
            (Some(1), ""),
            "y is not ready"
        );
        let roots = output.json()["roots"].clone();
        assert_eq!(
            (&roots[0]["id"], &roots[0]["kind"]),
            (&json!("x"), &json!("ROOT_KIND_PLUGIN"))
        );
        assert_eq!(roots[0]["plugin"], json!({"name": "kit", "version": "1.2"}));
        assert_eq!(
            roots[0]["diagnostics"][0]["code"],
            "DIAGNOSTIC_CODE_NO_FRONTMATTER"
        );
        assert_eq!(roots[1]["reason"], "ROOT_REASON_WRONG_ENVIRONMENT");
    }
    daemon.stop().await;
}

#[tokio::test]
async fn resources_lists_files_and_digests() {
    let (_fixture, daemon) =
        publish_skills("skill skills/many\nrepeat 1200 file skills/many/f{}").await;
    let output = run_client(&daemon, "resources skill://skills/pdf").await;
    assert_eq!(
        (output.code, output.stderr.as_str()),
        (Some(0), "2 files, 57 bytes\n")
    );
    let expected = [
        "BYTES  X  TYPE           RESOURCE",
        "54     -  text/markdown  skill://skills/pdf/SKILL.md",
        "3      x  text/plain     skill://skills/pdf/scripts/fill.py",
    ];
    assert_eq!(output.text().lines().collect::<Vec<_>>(), expected);

    let digest = crate::harness::content_digest(b"#!\n");
    let output = run_client(&daemon, "resources skill://skills/pdf --digests").await;
    let line = output.text().lines().nth(2).expect("two files").to_owned();
    assert!(
        line.contains(&format!("  {digest}  skill://skills/pdf/scripts/fill.py")),
        "{line}"
    );
    let output = run_client(
        &daemon,
        "resources skill://skills/pdf --digests --output json",
    )
    .await;
    assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""));
    assert_eq!(
        output.json()["resources"][1],
        json!({"resource": "skill://skills/pdf/scripts/fill.py", "sizeBytes": "3",
            "mediaType": "text/plain", "executable": true, "digest": digest})
    );

    let output = run_client(&daemon, "resources skill://skills/many --output json")
        .await
        .json();
    assert_eq!(
        output["resources"].as_array().map(Vec::len),
        Some(1_201),
        "pages are merged"
    );
    assert_eq!(output.get("nextPageToken"), None);
    daemon.stop().await;
}

#[tokio::test]
async fn status_shows_limits_only_with_the_limits_flag() {
    let (_fixture, daemon) = publish_skills("").await;
    let short = run_client(&daemon, "status").await;
    let long = run_client(&daemon, "status --limits").await;
    assert_eq!((short.code, long.code), (Some(0), Some(0)));
    assert!(
        (8..=12).contains(&short.text().lines().count()),
        "{}",
        short.text()
    );
    assert!(!short.text().contains("max_depth"), "{}", short.text());
    let keys = |output: &Output| -> Vec<String> {
        let keys = output
            .text()
            .lines()
            .filter_map(|line| line.split_whitespace().next());
        keys.map(str::to_owned).collect()
    };
    let (short, long) = (keys(&short), keys(&long));
    assert_eq!(long[..short.len()], short);
    assert!(
        long[short.len()..].contains(&"max_depth".to_owned()),
        "{long:?}"
    );
    daemon.stop().await;
}

#[tokio::test]
async fn all_commands_fail_with_the_same_exit_codes() {
    let (fixture, daemon) = publish_skills("").await;
    let commands = [
        "resolve --published",
        "resolve",
        "list",
        "resources skill://skills/pdf",
    ];
    for words in commands {
        let no_daemon = format!("{words} --endpoint unix:{}", fixture.path("none").display());
        let output = run_client(&daemon, &no_daemon).await;
        assert_eq!(
            (output.code, output.text()),
            (Some(3), ""),
            "{words}: {}",
            output.stderr
        );
        assert_eq!(
            output.stderr.lines().count(),
            2,
            "a sentence and a hint: {}",
            output.stderr
        );
        let output = run_client(&daemon, &format!("{words} --output yaml")).await;
        assert_eq!(
            (output.code, output.text()),
            (Some(2), ""),
            "{words}: {}",
            output.stderr
        );
    }
    for words in &commands[1..] {
        let output = run_client(&daemon, &format!("{words} --selected /nonexistent")).await;
        assert_eq!(
            (output.code, output.text()),
            (Some(78), ""),
            "{words}: {}",
            output.stderr
        );
    }
    for handle in ["skill://skills/none", "skill://skills/pdf/scripts/fill.py"] {
        run_client(&daemon, &format!("resources {handle}"))
            .await
            .exited_with(4, "PACKAGE_NOT_FOUND");
    }
    daemon.stop().await;
}

#[tokio::test]
async fn a_closed_stdout_is_no_failure() {
    let (_fixture, daemon) = publish_skills("").await;
    for words in [
        "resolve --published",
        "resolve --published --output json",
        "resolve",
        "list",
        "resources skill://skills/pdf",
        "resources skill://skills/pdf --output json",
        "completions bash",
        "man",
    ] {
        let mut command = client_command(&daemon, words);
        let (reader, writer) = pipe().expect("a pipe");
        drop(reader);
        command.stdout(writer);
        let output = run_command(command).await.succeeded();
        assert!(
            !output.stderr.contains("error"),
            "{words}: {}",
            output.stderr
        );
    }
    daemon.stop().await;
}

#[tokio::test]
async fn completions_name_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let output = run_command(caproot(["completions", shell])).await;
        assert_eq!(
            (output.code, output.stderr.as_str()),
            (Some(0), ""),
            "{shell}"
        );
        for command in caproot::cli::commands() {
            let word = command.name.rsplit(' ').next().expect("a word");
            assert!(output.text().contains(word), "{shell} does not name {word}");
        }
        assert!(
            output.text().contains("digests"),
            "{shell} does not name --digests"
        );
    }
    assert_eq!(
        run_command(caproot(["completions", "cmd.exe"])).await.code,
        Some(2)
    );
}

#[tokio::test]
async fn a_daemon_without_published_roots_prints_a_hint() {
    let daemon = Daemon::start(Setup::default()).await;
    for (words, says) in [
        ("list", true),
        ("resolve --published", true),
        ("list --root /nowhere", false),
    ] {
        let ended = run_client(&daemon, words).await;
        assert_eq!(
            ended.stderr.contains("hint: no root is published to you"),
            says,
            "{words}"
        );
    }
    daemon.stop().await;
}
