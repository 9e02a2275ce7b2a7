//! Rejected and partly applied config files: the previous configuration stays, and log and status
//! say so.

use caproot_core::proto::caproot::v1::{LandlockState, RootReason};
use rustix::process::Signal;
use serde_json::Value;

use super::{APPLIED, ReloadingDaemon};
use crate::harness::fixture::Fixture;
use crate::harness::process::{
    caproot, client_command, run_blocking, serve, serve_config, with_listener,
};
use crate::harness::replica::Replica;
use crate::harness::watch_harness::watch_request;
use crate::harness::{located, packages, selected};

const PLAIN: &str = "roots: [{id: r, path: r}]";

/// Returns the output of `caproot status`.
fn status_output(process: &ReloadingDaemon, more: &[&str]) -> String {
    let output = run_blocking(client_command(&process.daemon, "status").args(more)).succeeded();
    output.text().to_owned()
}

#[tokio::test]
async fn a_bad_file_is_rejected_with_all_its_errors() {
    let mut process = ReloadingDaemon::start("skill r/a\nskill s/b", PLAIN).await;
    let roots = vec![located("r", "published:r")];
    let mut replica = Replica::synced(&process.daemon, watch_request(roots.clone())).await;
    let before = process.config().await;
    assert_eq!(
        (
            before.applied_reloads,
            before.rejected_reloads,
            before.last_rejection.as_ref()
        ),
        (0, 0, None)
    );
    let bad = "roots: [{id: s, path: s}]\nlimits: {max_roots: 0}\nlimts: 1\n/etc/secret: 2";
    process.fixture.replace("caproot.yaml", with_listener(bad));
    process.process.send_signal(Signal::HUP);
    for expected in [
        "3:21: limits.max_roots: invalid value 0",
        "4:1: limts: unknown key",
        "5:1: \"/etc/secret\"",
    ] {
        let line = process
            .process
            .wait_for_log("new configuration rejected")
            .await;
        assert!(
            line.contains(expected) && line.contains("ERROR"),
            "{expected}: {line}"
        );
    }
    let line = process.process.wait_for_log(super::REJECTED).await;
    assert!(line.contains("errors=3"), "{line}");
    while process.config().await.last_rejection.is_none() {
        tokio::task::yield_now().await;
    }
    let config = process.config().await;
    let rejection = config.last_rejection.clone().expect("a rejection");
    // The status has positions and keys, not values: callers need not see the operator's config.
    assert_eq!(
        rejection.errors,
        ["3:21 limits.max_roots", "4:1 limts", "5:1"]
    );
    assert_eq!((config.applied_reloads, config.rejected_reloads), (0, 1));
    assert_eq!(config.load_time, before.load_time);
    let text = status_output(&process, &[]);
    assert!(
        text.contains("REJECTED") && text.contains("3:21 limits.max_roots"),
        "{text}"
    );
    let json: Value =
        serde_json::from_str(&status_output(&process, &["--output", "json"])).expect("JSON");
    let reported = &json["executor"]["config"]["lastRejection"]["errors"];
    assert_eq!(reported[1], "4:1 limts", "{json}");
    assert_eq!(
        process.daemon.list(&roots).await.skills.len(),
        1,
        "nothing changed"
    );
    replica.catch_up(&process.daemon).await;
    // A missing file is rejected, too. A single cause is a single line.
    std::fs::remove_file(process.fixture.path("caproot.yaml")).expect("removed");
    process.process.send_signal(Signal::HUP);
    let line = process
        .process
        .wait_for_log("new configuration rejected")
        .await;
    assert!(
        line.contains("caproot.yaml: does not exist") && line.contains(super::REJECTED),
        "{line}"
    );
    while process.config().await.rejected_reloads < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(
        process
            .config()
            .await
            .last_rejection
            .expect("a rejection")
            .errors,
        [""; 0]
    );
    process
        .reload(&format!("{PLAIN}\ndisabled_skills: [{{name: a}}]"))
        .await;
    assert_eq!(process.config().await.last_rejection, None);
    assert!(!status_output(&process, &[]).contains("REJECTED"));
    assert_eq!(
        replica.next_change().await.removed.len(),
        1,
        "the next valid file applies"
    );
    process.stop().await;
}

#[tokio::test]
async fn keys_that_need_a_restart_are_reported_and_not_applied() {
    let mut process = ReloadingDaemon::start("skill r/a\ndir run\nmode 0700 run", PLAIN).await;
    let other = "listen: ['tcp:127.0.0.1:0', 'unix:run/c.sock']\nlog: {format: json}\n\
                 limits: {max_connections: 5}\nsandbox: {landlock: off}\n\
                 metrics: {listen: 'unix:run/m.sock'}\ntraces: {otlp: 'http://127.0.0.1:1'}\n\
                 socket: {mode: '0660'}\nenvironment_ids: [x]";
    let keys = "listen, socket, limits, sandbox.landlock, log.format, metrics, traces";
    process
        .fixture
        .replace("caproot.yaml", format!("{PLAIN}\n{other}"));
    process.process.send_signal(Signal::HUP);
    let line = process.process.wait_for_log("needs a restart").await;
    assert!(
        line.contains("WARN") && line.ends_with(&format!("needs a restart: {keys}")),
        "{line}"
    );
    process.process.wait_for_log(APPLIED).await;
    while process.config().await.restart_required.is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(process.config().await.restart_required.join(", "), keys);
    assert!(status_output(&process, &[]).contains(&format!("needs a restart: {keys}")));
    let executor = process.daemon.executor().await;
    assert_eq!(executor.environment_ids, ["x"], "the other keys apply");
    assert_eq!(executor.limits.expect("limits").max_connections, 1_024);
    for socket in ["run/c.sock", "run/m.sock"] {
        assert!(!process.fixture.path(socket).exists(), "{socket}");
    }
    // No key is pending once the file matches the running configuration.
    process.reload(PLAIN).await;
    assert_eq!(process.config().await.restart_required, [""; 0]);
    process.stop().await;
}

#[tokio::test]
async fn a_directory_outside_the_sandbox_needs_a_restart() {
    let config = "allow: [in/open]\nroots: [{id: r, path: in/open/r}]";
    let tree = "dir etc\nskill in/open/r/a\nskill in/open/s/b\nskill out/c\nskill out/d/e";
    let fixture = Fixture::new(tree);
    let config_in = |config: &str| config.replace("in/", "../in/").replace("out/", "../out/");
    // The config directory has no other files, so the daemon may read it.
    fixture.write("etc/caproot.yaml", with_listener(&config_in(config)));
    let mut command = caproot(["serve", "--config"]);
    command.arg(fixture.path("etc/caproot.yaml"));
    let mut process = ReloadingDaemon::start_command(fixture, command).await;
    if process
        .daemon
        .executor()
        .await
        .sandbox
        .expect("a sandbox")
        .landlock()
        != LandlockState::Enforced
    {
        println!("SKIPPED: this kernel does not have the required Landlock version");
        return;
    }
    let wider = "allow: [in/open, out/c]\n\
                 roots: [{id: r, path: in/open/r}, {id: s, path: in/open/s}, {id: d, path: out/d}]";
    process
        .fixture
        .replace("etc/caproot.yaml", with_listener(&config_in(wider)));
    process.process.send_signal(Signal::HUP);
    for dir in ["out/c", "out/d"] {
        let line = process
            .process
            .wait_for_log("is outside the daemon's sandbox; restart the daemon to allow access")
            .await;
        assert!(line.contains(dir), "{line}");
    }
    let line = process.process.wait_for_log("needs a restart: ").await;
    assert!(line.ends_with("needs a restart: allow, roots"), "{line}");
    process.process.wait_for_log(APPLIED).await;
    let roots = ["r", "s", "d"].map(|id| located(id, &format!("published:{id}")));
    let list = process.daemon.list(&roots).await;
    assert_eq!(
        packages(&list),
        ["skill://r/a", "skill://s/b"],
        "readable directories apply"
    );
    assert_eq!(
        list.roots[2].reason(),
        RootReason::InvalidPath,
        "the directory is not published"
    );
    let c = [selected("c", process.fixture.path("out/c"))];
    assert_eq!(
        process.daemon.list(&c).await.roots[0].reason(),
        RootReason::NotAllowed
    );
    process.stop().await;
}

#[tokio::test]
async fn user_names_from_the_start_still_resolve_in_a_sandbox() {
    let rules = |more: &str| format!("{PLAIN}\ncallers: [{{name: a, uids: [root, {more}]}}]");
    let mut process = ReloadingDaemon::start("skill r/a", &rules("1")).await;
    for (users, expected) in [
        ("2", APPLIED),
        ("no-such-user", super::REJECTED),
        ("3", APPLIED),
    ] {
        let line = process.try_reload(&rules(users)).await;
        assert!(line.contains(expected), "{users}: {line}");
    }
    process.stop().await;
}

#[tokio::test]
async fn sighup_without_a_config_file_is_a_warning() {
    let fixture = Fixture::new("skill r/a");
    let mut command = serve(["--root"]);
    command.arg(fixture.path("r"));
    let mut process = ReloadingDaemon::start_command(fixture, command).await;
    for _ in 0..2 {
        process.process.send_signal(Signal::HUP);
        let line = process
            .process
            .wait_for_log("there is nothing to reload")
            .await;
        assert!(line.contains("WARN"), "{line}");
    }
    let config = process.config().await;
    assert_eq!((config.applied_reloads, config.rejected_reloads), (0, 0));
    assert_eq!(
        process
            .daemon
            .list(&[located("r", "published:r")])
            .await
            .skills
            .len(),
        1
    );
    process.stop().await;
}

#[tokio::test]
async fn flags_override_the_reloaded_file() {
    let fixture = Fixture::new("skill r/a\nskill s/b");
    let config = "listen: ['unix:/nowhere/at/all']\nroots: [{id: s, path: s}]";
    let mut command = serve_config(&fixture, config);
    command
        .arg("--root")
        .arg(fixture.path("r"))
        .args(["--listen", "tcp:127.0.0.1:0"]);
    let mut process = ReloadingDaemon::start_command(fixture, command).await;
    let ids = ["r", "s"].map(|id| located(id, &format!("published:{id}")));
    process
        .reload("roots: [{id: s, path: s}, {id: r, path: s}]\ndisabled_skills: [{name: b}]")
        .await;
    let list = process.daemon.list(&ids).await;
    assert_eq!(
        list.skills.iter().map(|s| &*s.package).collect::<Vec<_>>(),
        ["skill://r/a"]
    );
    assert_eq!(list.roots[1].reason(), RootReason::InvalidPath);
    assert_eq!(process.config().await.restart_required, [""; 0]);
    process.stop().await;
}

#[tokio::test]
async fn a_burst_of_sighups_applies_the_last_file() {
    let mut process = ReloadingDaemon::start("skill r/a\nskill r/b", PLAIN).await;
    let roots = vec![located("r", "published:r")];
    let mut replica = Replica::synced(&process.daemon, watch_request(roots)).await;
    for n in 0..100 {
        let off = if n % 2 == 0 { "a" } else { "b" };
        let config = format!("{PLAIN}\ndisabled_skills: [{{name: {off}}}]");
        process
            .fixture
            .replace("caproot.yaml", with_listener(&config));
        process.process.send_signal(Signal::HUP);
    }
    // The last SIGHUP counts.
    replica
        .wait_while(|replica| !replica.skills.keys().eq(["skill://r/a"]))
        .await;
    process
        .reload(&format!(
            "{PLAIN}\ndisabled_skills: [{{name: a}}, {{name: b}}]"
        ))
        .await;
    replica
        .wait_while(|replica| !replica.skills.is_empty())
        .await;
    replica.catch_up(&process.daemon).await;
    let config = process.config().await;
    assert!(
        (1..=101).contains(&config.applied_reloads) && config.rejected_reloads == 0,
        "{config:?}"
    );
    process.stop().await;
}
