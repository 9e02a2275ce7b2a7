//! Start without a daemon: the server answers the host, and serves once a daemon runs.

use serde_json::{Value, json};

use super::host::Host;
use crate::harness::fixture::Fixture;
use crate::harness::process::{Process, caproot, run_command};

#[tokio::test]
async fn the_host_may_start_before_the_daemon() {
    let fixture = Fixture::new("dir run\nmode 0700 run\nskill one/a");
    let endpoint = format!("unix:{}", fixture.path("run/c.sock").display());
    let mut host = Host::start_command(caproot(["mcp", "--tools", "--endpoint", &endpoint]));
    let tools = host.call("tools/list", json!({})).await.expect("the tools");
    assert_eq!(tools["tools"][1]["name"], "skills_read");

    let list = json!({"name": "skills_list", "arguments": {}});
    let failed = host.call("tools/call", list.clone()).await;
    let failed = failed.expect("a result");
    assert_eq!(failed["isError"], json!(true));
    let text = failed["content"][0]["text"].as_str().expect("text");
    assert!(text.contains("no daemon answers at unix:"), "{text}");

    let mut serve = caproot(["serve", "--listen", &endpoint]);
    serve.arg("--root").arg(fixture.path("one"));
    let daemon = Process::start(serve);
    let mut result = Value::Null;
    while result["isError"] != json!(false) {
        result = host
            .call("tools/call", list.clone())
            .await
            .expect("a result");
    }
    let text = result["content"][0]["text"].as_str().expect("text");
    assert!(text.contains("skill://one/a"), "{text}");
    let resources = host
        .call("resources/list", json!({}))
        .await
        .expect("a list");
    assert_eq!(resources["resources"][0]["uri"], "skill://one/a/SKILL.md");

    let ended = host.stop().await.succeeded();
    let stderr = ended.stderr;
    assert!(
        stderr.contains("; reconnecting") && stderr.contains("reconnected"),
        "{stderr}"
    );
    daemon.stop().await;
}

#[tokio::test]
async fn the_failure_names_the_sockets_and_the_variable() {
    let fixture = Fixture::new("dir temp");
    let mut command = caproot(["list"]);
    command.env("TMPDIR", fixture.path("temp"));
    let failed = run_command(command)
        .await
        .exited_with(3, "no daemon answers");
    let uid = rustix::process::geteuid().as_raw();
    let tried = format!(
        "/run/caproot/caproot.sock, /run/user/{uid}/caproot.sock, {}/caproot-{uid}/caproot.sock; \
         XDG_RUNTIME_DIR is not set",
        fixture.path("temp").display()
    );
    assert!(failed.stderr.contains(&tried), "{}", failed.stderr);
}
