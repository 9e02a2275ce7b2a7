//! Start without a daemon: the server answers the host, and serves once a daemon runs.

use std::os::unix::net::UnixListener;

use serde_json::{Value, json};

use super::host::Host;
use crate::harness::fixture::Fixture;
use crate::harness::process::{Process, caproot, run_command};

/// Directory in which only this user can have a socket, and a root.
const TREE: &str = "dir run\nmode 0700 run\nskill one/a";

/// Starts the server of a host before the daemon at this endpoint.
fn start_host(endpoint: &str) -> Host {
    Host::start_without_daemon(caproot(["mcp", "--endpoint", endpoint]))
}

fn endpoint_in(fixture: &Fixture) -> String {
    format!("unix:{}", fixture.path("run/c.sock").display())
}

/// Asserts that each list is answered, and that nothing is listed.
async fn expect_empty_lists(host: &mut Host) {
    let tools = host.call("tools/list", json!({})).await.expect("the tools");
    assert_eq!(tools["tools"][1]["name"], "skills_read");
    assert_eq!(tools["tools"][2]["name"], "skills_search");
    assert!(!tools.to_string().contains("began"), "{tools}");
    for (method, items) in [
        ("resources/list", "resources"),
        ("prompts/list", "prompts"),
        ("skills/list", "skills"),
    ] {
        let list = host.call(method, json!({})).await.expect("a list");
        assert_eq!(list[items], json!([]), "{method}");
    }
}

/// Waits until a call of a tool succeeds, and returns its text.
async fn call_until_served(host: &mut Host) -> String {
    let call = json!({"name": "skills_list", "arguments": {}});
    loop {
        let result = host.call("tools/call", call.clone()).await;
        let result = result.expect("a result");
        let text = result["content"][0]["text"].as_str().expect("text");
        if result["isError"] == json!(false) {
            return text.to_owned();
        }
        assert!(text.contains("no daemon answers at unix:"), "{text}");
        assert!(text.contains("`caproot serve`"), "{text}");
    }
}

#[tokio::test]
async fn the_host_may_start_before_the_daemon() {
    let fixture = Fixture::new(TREE);
    let endpoint = endpoint_in(&fixture);
    let mut host = start_host(&endpoint);
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": {"name": "an older host", "version": "1"}});
    let answer = host.initialize(params).await;
    let text = answer["instructions"].as_str().expect("instructions");
    assert!(text.starts_with("Skills of an executor"), "{text}");
    expect_empty_lists(&mut host).await;
    let list = host.call("resources/list", json!({})).await;
    let omissions = &list.expect("a list")["_meta"]["caproot/omissions"];
    let cause = omissions["executor"].as_str().expect("a cause");
    assert!(cause.contains("no daemon answers"), "{cause}");
    // The failed attempts to connect change no list.
    assert_eq!(host.notifications_until_now().await, Vec::<Value>::new());

    let mut serve = caproot(["serve", "--listen", &endpoint]);
    serve.arg("--root").arg(fixture.path("one"));
    let daemon = Process::start(serve);
    // The host is told of the lists that it was given empty, and of no other.
    let changed = [
        host.next_notification().await["method"].clone(),
        host.next_notification().await["method"].clone(),
    ];
    let expected = ["tools", "resources"].map(|list| format!("notifications/{list}/list_changed"));
    assert_eq!(changed, expected);
    let text = call_until_served(&mut host).await;
    assert!(text.contains("skill://one/a"), "{text}");
    let resources = host.call("resources/list", json!({})).await;
    let resources = resources.expect("a list");
    assert_eq!(resources["resources"][0]["uri"], "skill://one/a/SKILL.md");
    assert_eq!(host.notifications_until_now().await, Vec::<Value>::new());

    let ended = host.stop().await.succeeded();
    let stderr = ended.stderr;
    assert!(
        stderr.contains("; reconnecting") && stderr.contains("reconnected"),
        "{stderr}"
    );
    daemon.stop().await;
}

#[tokio::test]
async fn a_call_waits_for_the_daemon() {
    let fixture = Fixture::new(TREE);
    let endpoint = endpoint_in(&fixture);
    let mut host = start_host(&endpoint);
    let call = json!({"name": "skills_list", "arguments": {}});
    let call = host.send_request("tools/call", call);
    // The lists are answered before the call.
    expect_empty_lists(&mut host).await;

    let mut serve = caproot(["serve", "--listen", &endpoint]);
    serve.arg("--root").arg(fixture.path("one"));
    let daemon = Process::start(serve);
    let result = host.wait_for_response(call).await.expect("a result");
    if result["isError"] == json!(true) {
        // The daemon needed more than 10 s.
        call_until_served(&mut host).await;
    }
    host.stop().await.succeeded();
    daemon.stop().await;
}

/// A daemon that accepts the connection delays each answer by at most half a second, and a call by 10 s.
#[tokio::test]
async fn a_daemon_that_never_answers_delays_no_list() {
    let fixture = Fixture::new(TREE);
    let endpoint = endpoint_in(&fixture);
    let silent = UnixListener::bind(fixture.path("run/c.sock")).expect("a socket");
    let mut host = start_host(&endpoint);
    let call = json!({"name": "skills_list", "arguments": {}});
    host.send_request("tools/call", call);

    let found = host.call("server/discover", json!({})).await;
    let found = found.expect("an answer before the call's");
    let text = found["instructions"].as_str().expect("instructions");
    assert!(text.starts_with("Skills of an executor"), "{text}");
    expect_empty_lists(&mut host).await;
    host.stop().await;
    drop(silent);
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
