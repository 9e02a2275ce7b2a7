//! Files that are not taken, or not wholly: what stays, and who is told.

use std::process::Command;

use caproot::proto::caproot::v1::{LandlockState, RootReason};
use rustix::process::Signal;
use serde_json::Value;

use super::{DONE, Served};
use crate::fixture::Fixture;
use crate::harness::{located, selected};
use crate::watch_harness::watch_request;
use crate::replica::Replica;

const PLAIN: &str = "roots: [{id: r, path: r}]";

/// What `caproot status` prints.
fn status(served: &Served, more: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_caproot"));
    command.args(["status", "--endpoint", &format!("tcp:{}", served.daemon.address)]).args(more);
    let output = command.env_clear().output().expect("the binary runs");
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[tokio::test]
async fn a_bad_file_changes_nothing_and_says_everything() {
    let mut served = Served::start("skill r/a\nskill s/b", PLAIN).await;
    let roots = vec![located("r", "published:r")];
    let mut replica = Replica::open(&served.daemon, watch_request(roots.clone())).await;
    replica.next_batch().await;
    let before = served.config().await;
    assert_eq!(
        (before.applied_reloads, before.rejected_reloads, before.last_rejection.as_ref()),
        (0, 0, None)
    );
    let bad = "roots: [{id: s, path: s}]\nlimits: {max_roots: 0}\nlimts: 1\n/etc/secret: 2";
    served.fixture.replace("caproot.yaml", super::listening(bad));
    served.signal(Signal::HUP);
    for says in [
        "3:21: limits.max_roots: invalid value 0",
        "4:1: limts: unknown key",
        "5:1: \"/etc/secret\"",
    ] {
        let line = served.says(&["new configuration rejected"]).await;
        assert!(line.contains(says) && line.contains("ERROR"), "{says}: {line}");
    }
    let line = served.says(&[super::REFUSED]).await;
    assert!(line.contains("errors=3"), "{line}");
    while served.config().await.last_rejection.is_none() {
        tokio::task::yield_now().await;
    }
    let config = served.config().await;
    let refusal = config.last_rejection.clone().expect("a refusal");
    // Where, and never what: a caller need not know what the operator wrote.
    assert_eq!(refusal.errors, ["3:21 limits.max_roots", "4:1 limts", "5:1"]);
    assert_eq!((config.applied_reloads, config.rejected_reloads), (0, 1));
    assert_eq!(config.load_time, before.load_time);
    let text = status(&served, &[]);
    assert!(text.contains("REFUSED") && text.contains("3:21 limits.max_roots"), "{text}");
    let json: Value = serde_json::from_str(&status(&served, &["--output", "json"])).expect("JSON");
    let told = &json["executor"]["config"]["lastRejection"]["errors"];
    assert_eq!(told[1], "4:1 limts", "{json}");
    assert_eq!(served.daemon.list(&roots).await.skills.len(), 1, "all is as it was");
    replica.catch_up(&served.daemon).await;
    // A file that is not there is no other case.
    std::fs::remove_file(served.fixture.path("caproot.yaml")).expect("removed");
    served.signal(Signal::HUP);
    served.says(&["no such file"]).await;
    served.says(&[super::REFUSED]).await;
    while served.config().await.rejected_reloads < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(served.config().await.last_rejection.expect("a refusal").errors, [""; 0]);
    served.reload(&format!("{PLAIN}\ndisabled_skills: [{{name: a}}]")).await;
    assert_eq!(served.config().await.last_rejection, None);
    assert!(!status(&served, &[]).contains("REFUSED"));
    assert_eq!(replica.next_change().await.removed.len(), 1, "and the next good one counts");
    served.stop().await;
}

#[tokio::test]
async fn what_needs_a_restart_is_named_and_stays() {
    let mut served = Served::start("skill r/a\ndir run\nmode 0700 run", PLAIN).await;
    let other = "listen: ['tcp:127.0.0.1:0', 'unix:run/c.sock']\nlog: {format: json}\n\
                 limits: {max_connections: 5}\nsandbox: {landlock: off}\n\
                 metrics: {listen: 'unix:run/m.sock'}\ntraces: {otlp: 'http://127.0.0.1:1'}\n\
                 socket: {mode: '0660'}\nenvironment_ids: [x]";
    let keys =
        "listen, socket, limits.max_connections, sandbox.landlock, log.format, metrics, traces";
    served.fixture.replace("caproot.yaml", format!("{PLAIN}\n{other}"));
    served.signal(Signal::HUP);
    let line = served.says(&["needs a restart"]).await;
    assert!(line.contains("WARN") && line.ends_with(&format!("needs a restart: {keys}")), "{line}");
    served.says(&[DONE]).await;
    while served.config().await.restart_required.is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(served.config().await.restart_required.join(", "), keys);
    assert!(status(&served, &[]).contains(&format!("needs a restart: {keys}")));
    let executor = served.executor().await;
    assert_eq!(executor.environment_ids, ["x"], "the rest is taken over");
    assert_eq!(executor.limits.expect("limits").max_connections, 1_024);
    for socket in ["run/c.sock", "run/m.sock"] {
        assert!(!served.fixture.path(socket).exists(), "{socket}");
    }
    // Nothing waits any more once the file says what is in force.
    served.reload(PLAIN).await;
    assert_eq!(served.config().await.restart_required, [""; 0]);
    served.stop().await;
}

#[tokio::test]
async fn a_directory_outside_the_sandbox_needs_a_restart() {
    let config = "allow: [in/open]\nroots: [{id: r, path: in/open/r}]";
    let tree = "dir etc\nskill in/open/r/a\nskill in/open/s/b\nskill out/c\nskill out/d/e";
    let fixture = Fixture::new(tree);
    let config_in = |config: &str| config.replace("in/", "../in/").replace("out/", "../out/");
    // Beside nothing else: the daemon may read its directory.
    fixture.write("etc/caproot.yaml", super::listening(&config_in(config)));
    let file = fixture.path("etc/caproot.yaml");
    let mut served = Served::begin(fixture, |command| command.arg("--config").arg(file)).await;
    if served.executor().await.sandbox.expect("a sandbox").landlock() != LandlockState::Enforced {
        println!("SKIPPED: this kernel has not enough of Landlock to close a directory");
        return;
    }
    let wider = "allow: [in/open, out/c]\n\
                 roots: [{id: r, path: in/open/r}, {id: s, path: in/open/s}, {id: d, path: out/d}]";
    served.fixture.replace("etc/caproot.yaml", super::listening(&config_in(wider)));
    served.signal(Signal::HUP);
    for dir in ["out/c", "out/d"] {
        let line = served
            .says(&["is outside the daemon's sandbox; restart the daemon to allow access"])
            .await;
        assert!(line.contains(dir), "{line}");
    }
    let line = served.says(&["needs a restart: "]).await;
    assert!(line.ends_with("needs a restart: allow, roots"), "{line}");
    served.says(&[DONE]).await;
    let roots = ["r", "s", "d"].map(|id| located(id, &format!("published:{id}")));
    let list = served.daemon.list(&roots).await;
    let packages: Vec<_> = list.skills.iter().map(|skill| &*skill.package).collect();
    assert_eq!(packages, ["skill://r/a", "skill://s/b"], "what may be read is taken over");
    assert_eq!(list.roots[2].reason(), RootReason::InvalidPath, "it is not published");
    let c = [selected("c", served.fixture.path("out/c"))];
    assert_eq!(served.daemon.list(&c).await.roots[0].reason(), RootReason::NotAllowed);
    served.stop().await;
}

#[tokio::test]
async fn names_of_users_keep_their_numbers_in_a_sandbox() {
    let rules = |more: &str| format!("{PLAIN}\ncallers: [{{name: a, uids: [root, {more}]}}]");
    let mut served = Served::start("skill r/a", &rules("1")).await;
    for (users, says) in [("2", DONE), ("nobody-of-that-name", super::REFUSED), ("3", DONE)] {
        let said = served.hangup(&rules(users)).await;
        assert!(said.contains(says), "{users}: {said}");
    }
    served.stop().await;
}

#[tokio::test]
async fn without_a_file_there_is_nothing_to_reload() {
    let fixture = Fixture::new("skill r/a");
    let root = fixture.path("r");
    let listen = ["--listen", "tcp:127.0.0.1:0"];
    let start = Served::begin(fixture, |command| command.args(listen).arg("--root").arg(root));
    let mut served = start.await;
    for _ in 0..2 {
        served.signal(Signal::HUP);
        let line = served.says(&["there is nothing to reload"]).await;
        assert!(line.contains("WARN"), "{line}");
    }
    let config = served.config().await;
    assert_eq!((config.applied_reloads, config.rejected_reloads), (0, 0));
    assert_eq!(served.daemon.list(&[located("r", "published:r")]).await.skills.len(), 1);
    served.stop().await;
}

#[tokio::test]
async fn flags_still_replace_what_they_replace() {
    let fixture = Fixture::new("skill r/a\nskill s/b");
    fixture.write("caproot.yaml", "listen: ['unix:/nowhere/at/all']\nroots: [{id: s, path: s}]");
    let (file, root) = (fixture.path("caproot.yaml"), fixture.path("r"));
    let mut served = Served::begin(fixture, |command| {
        command.arg("--config").arg(file).arg("--root").arg(root);
        command.args(["--listen", "tcp:127.0.0.1:0"])
    })
    .await;
    let ids = ["r", "s"].map(|id| located(id, &format!("published:{id}")));
    served
        .reload("roots: [{id: s, path: s}, {id: r, path: s}]\ndisabled_skills: [{name: b}]")
        .await;
    let list = served.daemon.list(&ids).await;
    assert_eq!(list.skills.iter().map(|s| &*s.package).collect::<Vec<_>>(), ["skill://r/a"]);
    assert_eq!(list.roots[1].reason(), RootReason::InvalidPath);
    assert_eq!(served.config().await.restart_required, [""; 0]);
    served.stop().await;
}

#[tokio::test]
async fn a_flood_of_hangups() {
    let mut served = Served::start("skill r/a\nskill r/b", PLAIN).await;
    let roots = vec![located("r", "published:r")];
    let mut replica = Replica::open(&served.daemon, watch_request(roots)).await;
    replica.next_batch().await;
    for n in 0..100 {
        let off = if n % 2 == 0 { "a" } else { "b" };
        let config = format!("{PLAIN}\ndisabled_skills: [{{name: {off}}}]");
        served.fixture.replace("caproot.yaml", super::listening(&config));
        served.signal(Signal::HUP);
    }
    // The last one counts, whatever became of those before.
    while !replica.skills.keys().eq(["skill://r/a"]) {
        replica.next_change().await;
    }
    served.reload(&format!("{PLAIN}\ndisabled_skills: [{{name: a}}, {{name: b}}]")).await;
    while !replica.skills.is_empty() {
        replica.next_change().await;
    }
    replica.catch_up(&served.daemon).await;
    let config = served.config().await;
    assert!(
        (1..=101).contains(&config.applied_reloads) && config.rejected_reloads == 0,
        "{config:?}"
    );
    served.stop().await;
}
