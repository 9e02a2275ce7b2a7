//! Scripts: the server tells the model to run them by `caproot exec`, where its shell can.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::host::Host;
use crate::harness::Daemon;
use crate::harness::fixture::Fixture;
use crate::harness::process::{Output, Process, caproot, program, run_command};

/// Returns the instructions of the server.
async fn instructions(host: &mut Host) -> String {
    let found = host.call("server/discover", json!({})).await;
    let found = found.expect("a server");
    let text = found["instructions"].as_str();
    text.expect("instructions").to_owned()
}

/// Reads the SKILL.md of a skill by its handle.
async fn read_skill(host: &mut Host, package: &str) -> Value {
    let call = json!({"name": "skills_read", "arguments": {"package": package}});
    let result = host.call("tools/call", call).await.expect("a result");
    let text = result["content"][0]["text"].as_str().expect("text");
    serde_json::from_str(text).expect("JSON")
}

/// Runs a line in a shell whose PATH begins with the directory of the binary.
async fn run_in_shell(fixture: &Fixture, line: &str) -> Output {
    let binary = Path::new(env!("CARGO_BIN_EXE_caproot"));
    let dir = binary.parent().expect("a directory").display();
    let path = std::env::var("PATH").unwrap_or_default();
    let mut shell: Command = program("sh");
    shell
        .args(["-c", line])
        .env("PATH", format!("{dir}:{path}"))
        .env("HOME", fixture.path("home"));
    run_command(shell).await
}

/// The model follows the line of the instructions, and runs exactly the skill that it read.
#[tokio::test]
async fn the_line_for_the_model_runs_what_it_read() {
    let tree = "dir home\ndir run it\nmode 0700 run it\nskill r/kit\nfile r/kit/word.txt\n| one\n\
        file r/kit/scripts/run.sh\n| cat \"$(dirname \"$0\")/../word.txt\"; echo \"$1\"";
    let fixture = Fixture::new(tree);
    let endpoint = format!("unix:{}", fixture.path("run it/c.sock").display());
    let mut serve = caproot(["serve", "--listen", &endpoint]);
    serve.arg("--root").arg(fixture.path("r"));
    let daemon = Process::start(serve);
    let mut host = Host::start_command(caproot(["mcp", "--endpoint", &endpoint]));

    let text = instructions(&mut host).await;
    let mut parts = text.split('`');
    let line = parts.find(|part| part.starts_with("caproot exec"));
    let line = line.expect("a line for the model");
    let tools = host.call("tools/list", json!({})).await.expect("tools");
    let description = tools["tools"][1]["description"].as_str();
    assert!(
        description.is_some_and(|text| text.contains(line)),
        "{tools}"
    );

    let page = read_skill(&mut host, "skill://r/kit").await;
    let package = page["resource"].as_str().expect("a handle");
    let package = package.strip_suffix("/SKILL.md").expect("the SKILL.md");
    let digest = page["skill_digest"].as_str().expect("a digest");
    let line = line
        .replace(
            "PACKAGE/scripts/run.py",
            &format!("{package}/scripts/run.sh"),
        )
        .replace("SKILL_DIGEST", digest)
        .replace("ARGS", "two");
    let output = run_in_shell(&fixture, &line).await.succeeded();
    assert_eq!(output.text(), "one\ntwo\n");

    // Another file of the skill changed since.
    fixture.replace("r/kit/word.txt", "other\n");
    let output = run_in_shell(&fixture, &line).await;
    output.exited_with(126, "the skill changed");
    let again = read_skill(&mut host, "skill://r/kit").await;
    assert_ne!(again["skill_digest"], page["skill_digest"]);

    host.stop().await.succeeded();
    daemon.stop().await;
}

#[tokio::test]
async fn a_shell_on_another_machine_runs_no_script() {
    let (fixture, daemon) = Daemon::publishing("r", "skill r/kit").await;
    let root = format!("--root x={}", fixture.path("r").display());
    let unused = "--endpoint unix:/nonexistent/c.sock";
    for (flags, has_scripts) in [
        // A TCP endpoint may be on another machine.
        ("", false),
        ("--scripts", true),
        ("--scripts --no-scripts", false),
        (&format!("{unused} {root}"), false),
        (&format!("{unused} --no-scripts"), false),
        (unused, true),
    ] {
        let words = format!("mcp {flags}");
        let command = crate::harness::process::client_command(&daemon, &words);
        let mut host = Host::start_without_daemon(command);
        let text = instructions(&mut host).await;
        assert_eq!(
            text.contains("caproot exec"),
            has_scripts,
            "{flags}: {text}"
        );
        assert_eq!(
            text.contains("on another machine"),
            !has_scripts,
            "{flags}: {text}"
        );
        if !flags.contains("unix:") {
            let page = read_skill(&mut host, "skill://r/kit").await;
            assert_eq!(
                page.get("skill_digest").is_some(),
                has_scripts,
                "{flags}: {page}"
            );
        }
        host.stop().await;
    }
    daemon.stop().await;
}
