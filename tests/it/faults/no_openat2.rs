//! The real binary with a failing openat2(2), as in some sandboxes and on old kernels. The daemon
//! reports the other method and answers in the same way.

use std::process::Command;

use serde_json::Value;

use crate::harness::fixture::Fixture;
use crate::harness::process::{Process, caproot, run_command, serve};
use crate::harness::strace;

/// Tree with all kinds of links, and with entries that are not files.
const TREE: &str = "skill root/a
    file root/a/references/x.md\n| Text.
    link root/a/inside.md -> ../b/y.md
    link root/a/absolute.md -> $TMP/root/b/y.md
    link root/a/other.md -> $TMP/other/z.md
    link root/a/outside.md -> ../../out/secret.md
    link root/a/gone.md -> nothing
    link root/a/round -> round
    skill root/b
    file root/b/y.md\n| Inside.
    file root/p/.claude-plugin/plugin.json\n| {\"name\": \"kit\"}
    skill root/p/skills/c
    fifo root/f/SKILL.md
    link root/l -> ../other/l
    link root/o -> ../out
    link root/m/SKILL.md -> $TMP/other/l/SKILL.md
    skill other/l
    file other/z.md\n| Allowed.
    skill out/never
    file out/secret.md";

/// Output of a client command as JSON, without fields that differ between daemons.
async fn client_output(serving: &Process, words: &str) -> Value {
    let mut command = caproot(words.split_whitespace());
    command.args(["--output", "json", "--endpoint", serving.endpoint()]);
    let output = run_command(command).await;
    let mut answer: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| output.stderr.into());
    if let Some(object) = answer.as_object_mut() {
        object.retain(|key, _| !["epoch", "revision", "resumeToken"].contains(&key.as_str()));
    }
    answer
}

/// Method to open files that `caproot status` prints.
async fn resolver(serving: &Process) -> String {
    let output = run_command(caproot(["status", "--endpoint", serving.endpoint()])).await;
    let row = output
        .text()
        .lines()
        .find_map(|line| line.strip_prefix("resolver "));
    row.unwrap_or_else(|| panic!("a row `resolver`: {output:?}"))
        .trim()
        .to_owned()
}

/// Starts the daemon, returns the resolver and the responses, and asserts a clean exit.
async fn run_session(mut command: Command, fixture: &Fixture) -> (String, Vec<Value>) {
    command
        .arg("--root")
        .arg(format!("r={}", fixture.path("root").display()));
    command.arg("--allow").arg(fixture.path("other"));
    let serving = Process::start(&mut command);
    let commands = [
        "list --fresh",
        "resolve",
        "resources skill://r/a --digests",
        "read skill://r/a",
        "read skill://r/a/references/x.md",
        "read skill://r/a/inside.md",
        "read skill://r/a/absolute.md",
        "read skill://r/a/other.md",
        "read skill://r/a/outside.md",
        "read skill://r/a/gone.md",
        "read skill://r/a/round",
        "read skill://r/l",
        "read skill://r/m",
        "read skill://r/p/skills/c",
        "list --root below=/ --root out=/nonexistent",
    ];
    let mut responses = Vec::new();
    for words in commands {
        responses.push(client_output(&serving, words).await);
    }
    let outcome = (resolver(&serving).await, responses);
    serving.stop().await;
    outcome
}

#[tokio::test]
async fn responses_are_the_same_if_openat2_fails() {
    let fixture = Fixture::new(TREE);
    let log = fixture.path("strace");
    let (default_resolver, expected) = run_session(serve([""; 0]), &fixture).await;
    println!("files are opened by `{default_resolver}` on this machine");
    let skills: Vec<_> = expected[0]["skills"]
        .as_array()
        .expect("skills")
        .iter()
        .collect();
    let names: Vec<_> = skills.iter().map(|skill| skill["name"].clone()).collect();
    assert_eq!(names, ["a", "b", "kit:c", "l"]);
    let text = format!("{expected:?}");
    assert!(text.contains("Inside.") && text.contains("Allowed.") && !text.contains("never"));
    for (injected, resolver) in [
        ("error=ENOSYS", "openat"),
        ("error=EPERM", "openat"),
        ("error=EACCES", "openat"),
        // In each thread the first calls fail. The daemon repeats them.
        ("error=EAGAIN:when=1..3", default_resolver.as_str()),
        ("error=EAGAIN:when=2+2", default_resolver.as_str()),
    ] {
        let injected = format!("inject=openat2:{injected}");
        let options = ["-e", "trace=openat2", "-e", &injected];
        let Some(command) = strace::trace_daemon(&log, &options) else {
            return;
        };
        let (used, responses) = run_session(command, &fixture).await;
        assert_eq!(used, resolver, "{injected}");
        assert_eq!(responses, expected, "{injected}");
        let log = std::fs::read_to_string(&log).expect("strace's log");
        assert!(log.contains("(INJECTED)"), "{injected}: {log}");
    }
}

#[tokio::test]
async fn an_openat2_that_always_fails_with_eagain_is_an_io_error() {
    let fixture = Fixture::new(TREE);
    let log = fixture.path("strace");
    let options = ["-e", "trace=openat2", "-e", "inject=openat2:error=EAGAIN"];
    let Some(mut command) = strace::trace_daemon(&log, &options) else {
        return;
    };
    command
        .arg("--root")
        .arg(format!("r={}", fixture.path("root").display()));
    let serving = Process::start(&mut command);
    assert_eq!(resolver(&serving).await, "openat2");
    for _ in 0..2 {
        let list = client_output(&serving, "list --fresh").await;
        assert_eq!(list["roots"][0]["reason"], "ROOT_REASON_IO_ERROR", "{list}");
        assert_eq!(list.get("skills"), None, "{list}");
    }
    serving.stop().await;
}
