//! A root on a filesystem that does not answer: a FUSE mount whose other end nobody reads, in a
//! mount namespace of the daemon's own.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use caproot::proto::caproot::v1::{RootReason, RootState, SelectedCapabilityRoot};

use crate::binary::Serving;
use crate::fixture::Fixture;
use crate::harness::{Daemon, selected};
use crate::live::{fresh, skill, watching};
use crate::replica::Replica;

/// `caproot serve` where this directory hangs; `None` where that cannot be had. The process holds
/// the other end itself, so that the mount goes with it.
fn hanging(dir: &Path, fixture: &Fixture) -> Option<Serving> {
    let script = "exec 9<>/dev/fuse && \
        mount -i -t fuse -o fd=9,rootmode=40000,user_id=0,group_id=0 hung \"$0\" && exec \"$@\"";
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script]).arg(dir);
        command
    };
    if !unshare().arg("true").status().is_ok_and(|status| status.success()) {
        println!("SKIPPED: no FUSE in user namespaces here, so no filesystem can be made to hang");
        return None;
    }
    let mut command = unshare();
    command.args([env!("CARGO_BIN_EXE_caproot"), "serve", "--listen", "tcp:127.0.0.1:0"]);
    command.arg("--allow").arg(fixture.top());
    Some(Serving::of(&mut command))
}

async fn connect(serving: &Serving) -> Daemon {
    Daemon::elsewhere(serving.endpoint().strip_prefix("tcp:").expect("TCP")).await
}

/// Ends the mount, and with it every call that hangs in it.
fn give_up(serving: &Serving, dir: &Path) {
    let mut command = Command::new("nsenter");
    command.args(["--preserve-credentials", "--user", "--mount", "--target"]);
    command.arg(serving.pid().to_string()).args(["umount", "-f", "-l"].map(OsStr::new)).arg(dir);
    assert!(command.status().expect("nsenter").success(), "the mount can be ended");
}

fn roots(fixture: &Fixture) -> Vec<SelectedCapabilityRoot> {
    vec![selected("h", fixture.path("h")), selected("r", fixture.path("r"))]
}

fn assert_hangs(replica: &Replica) {
    let root = &replica.roots["h"];
    assert_eq!((root.state(), root.reason()), (RootState::Unavailable, RootReason::Timeout));
    assert!(!replica.skills.keys().any(|package| package.starts_with("skill://h/")));
}

#[tokio::test]
async fn a_root_that_hangs_holds_up_nobody_else_and_heals() {
    let fixture = Fixture::new("skill r/a\nskill h/under");
    let hung = fixture.path("h");
    let Some(serving) = hanging(&hung, &fixture) else { return };
    let daemon = connect(&serving).await;
    let alone = &roots(&fixture)[1..];
    let mut replica = Replica::open(&daemon, watching(roots(&fixture))).await;
    // Before the root is known to hang, who asks for the other one alone does not wait for it.
    let begun = Instant::now();
    let list = daemon.list(alone).await;
    assert_eq!(list.skills.len(), 1);
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    while replica.roots.get("h").is_none_or(|root| root.reason() != RootReason::Timeout) {
        replica.change().await;
    }
    assert_hangs(&replica);
    for n in 0..20 {
        let says = format!("Change {n}.");
        fixture.write("r/a/SKILL.md", skill("a", &says));
        while replica.skills["skill://r/a"].description != says {
            replica.change().await;
        }
        assert_eq!(fresh(&daemon, alone).await.skills[0].description, says);
    }
    // Many who ask for it are told at once, and take nothing from those who ask for others.
    let both = roots(&fixture);
    let asked = futures_util::future::join_all((0..600).map(|_| daemon.list(&both))).await;
    for list in asked {
        assert_eq!((list.skills.len(), list.roots[0].reason()), (1, RootReason::Timeout));
    }
    let list = fresh(&daemon, &both).await;
    assert_eq!((list.skills.len(), list.roots[0].reason()), (1, RootReason::Timeout));
    give_up(&serving, &hung);
    while !replica.skills.contains_key("skill://h/under") {
        replica.change().await;
    }
    replica.catch_up(&daemon).await;
    assert_eq!(replica.roots["h"].state(), RootState::Ready);
    drop(replica);
    assert_eq!(serving.terminate().0, Some(0));
}

#[tokio::test]
async fn a_directory_that_hangs_does_not_hold_up_the_end() {
    let fixture = Fixture::new("skill r/a\nskill h/a\ndir h/deep/down");
    let Some(serving) = hanging(&fixture.path("h/deep/down"), &fixture) else { return };
    let daemon = connect(&serving).await;
    let mut replica = Replica::open(&daemon, watching(roots(&fixture))).await;
    while replica.roots.get("h").is_none_or(|root| root.reason() != RootReason::Timeout) {
        replica.change().await;
    }
    assert_hangs(&replica);
    assert!(replica.skills.contains_key("skill://r/a"));
    drop((replica, daemon));
    let begun = Instant::now();
    assert_eq!(serving.terminate().0, Some(0));
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
}
