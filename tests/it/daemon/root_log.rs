//! Log lines of the real binary about the state of published roots.

use std::fs;
use std::process::Command;

use crate::harness::fixture::Fixture;
use crate::harness::process::{Process, caproot, run_command, wrap_command};

/// Daemon that publishes `demo` on a socket.
fn serve_demo(fixture: &Fixture) -> Command {
    let mut command = caproot(["serve", "--listen", &endpoint(fixture), "--root"]);
    command.arg(fixture.path("demo"));
    command
}

async fn assert_lists(fixture: &Fixture) {
    run_command(caproot(["list", "--endpoint", &endpoint(fixture)]))
        .await
        .succeeded();
}

fn endpoint(fixture: &Fixture) -> String {
    format!("unix:{}", fixture.path("run/c.sock").display())
}

fn build_demo_tree() -> Fixture {
    Fixture::new("dir run\nmode 0700 run\nrepeat 9 skill demo/s{}")
}

#[tokio::test]
async fn a_root_that_disappears_and_returns_is_logged() {
    let fixture = build_demo_tree();
    let mut daemon = Process::start(serve_demo(&fixture));
    assert_lists(&fixture).await;
    for _ in 0..2 {
        fs::rename(fixture.path("demo"), fixture.path("away")).expect("rename");
        let line = daemon.wait_for_log("published root unavailable").await;
        assert!(
            line.contains("WARN") && line.contains(r#"root="demo" reason="NOT_FOUND""#),
            "{line}"
        );
        fs::rename(fixture.path("away"), fixture.path("demo")).expect("rename");
        let line = daemon.wait_for_log("published root recovered").await;
        assert!(
            line.contains("INFO") && line.contains(r#"root="demo""#),
            "{line}"
        );
    }
}

#[tokio::test]
async fn a_polled_root_is_logged_with_the_reason() {
    let script = "echo 5 > /proc/sys/user/max_inotify_watches && exec \"$@\"";
    let before = [
        "unshare",
        "--user",
        "--map-root-user",
        "sh",
        "-c",
        script,
        "sh",
    ];
    let fixture = build_demo_tree();
    let skipped = "no user namespaces, so the limit of watches cannot be set";
    let Some(command) = wrap_command(before, serve_demo(&fixture), skipped) else {
        return;
    };
    let mut daemon = Process::start(command);
    assert_lists(&fixture).await;
    let line = daemon.wait_for_log("published root is polled").await;
    assert!(
        line.contains("the limit of inotify watches is reached; raise fs.inotify.max_user_watches"),
        "{line}"
    );
}
