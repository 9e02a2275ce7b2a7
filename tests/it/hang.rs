//! A root on a filesystem that does not answer, from the first or later on.

use std::ffi::OsStr;
use std::time::{Duration, Instant};

use caproot::catalog::WatchTiming;
use caproot::proto::caproot::v1::{
    RemovalReason, RootReason, RootState, SelectedCapabilityRoot, WatchMode,
};

use crate::binary::DaemonProcess;
use crate::fixture::Fixture;
use crate::fuse::Fuse;
use crate::harness::{Daemon, Setup, selected};
use crate::watch_harness::{fresh_list, skill_text, watch_request};
use crate::namespaces::runs_in_namespaces;
use crate::replica::Replica;

fn serve(fixture: &Fixture) -> DaemonProcess {
    let flags = ["--listen", "tcp:127.0.0.1:0", "--allow"].map(OsStr::new);
    DaemonProcess::start(&[&flags[..], &[fixture.top().as_os_str()]].concat())
}

async fn connect(serving: &DaemonProcess) -> Daemon {
    Daemon::connect_to(serving.endpoint().strip_prefix("tcp:").expect("TCP")).await
}

fn roots(fixture: &Fixture) -> Vec<SelectedCapabilityRoot> {
    vec![selected("h", fixture.path("h")), selected("r", fixture.path("r"))]
}

fn assert_hangs(replica: &Replica) {
    let root = &replica.roots["h"];
    assert_eq!((root.state(), root.reason()), (RootState::Unavailable, RootReason::Timeout));
    assert!(!replica.skills.keys().any(|package| package.starts_with("skill://h/")));
}

async fn until_it_hangs(replica: &mut Replica) {
    while replica.roots.get("h").is_none_or(|root| root.reason() != RootReason::Timeout) {
        replica.next_change().await;
    }
    assert_hangs(replica);
}

/// It ends when it is asked to. Its clients can say that they are gone meanwhile.
async fn assert_ends(serving: DaemonProcess) {
    let begun = Instant::now();
    assert_eq!(serving.terminate_async().await.0, Some(0));
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_root_that_hangs_holds_up_nobody_else_and_heals() {
    if !runs_in_namespaces("hang::a_root_that_hangs_holds_up_nobody_else_and_heals", &["--mount"]) {
        return;
    }
    let fixture = Fixture::new("skill r/a\nskill h/under");
    let Some(hung) = Fuse::mount(&fixture.path("h")) else { return };
    hung.hang();
    let serving = serve(&fixture);
    let daemon = connect(&serving).await;
    let alone = &roots(&fixture)[1..];
    let mut replica = Replica::open(&daemon, watch_request(roots(&fixture))).await;
    // Before the root is known to hang, who asks for the other one alone does not wait for it.
    let begun = Instant::now();
    let list = daemon.list(alone).await;
    assert_eq!(list.skills.len(), 1);
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    until_it_hangs(&mut replica).await;
    for n in 0..20 {
        let says = format!("Change {n}.");
        fixture.write("r/a/SKILL.md", skill_text("a", &says));
        while replica.skills["skill://r/a"].description != says {
            replica.next_change().await;
        }
        assert_eq!(fresh_list(&daemon, alone).await.skills[0].description, says);
    }
    // Many who ask for it are told at once, and take nothing from those who ask for others.
    let both = roots(&fixture);
    let asked = futures_util::future::join_all((0..600).map(|_| daemon.list(&both))).await;
    for list in asked {
        assert_eq!((list.skills.len(), list.roots[0].reason()), (1, RootReason::Timeout));
    }
    let list = fresh_list(&daemon, &both).await;
    assert_eq!((list.skills.len(), list.roots[0].reason()), (1, RootReason::Timeout));
    // The mount is taken away, and with it every call that hangs in it.
    drop(hung);
    while !replica.skills.contains_key("skill://h/under") {
        replica.next_change().await;
    }
    replica.catch_up(&daemon).await;
    assert_eq!(replica.roots["h"].state(), RootState::Ready);
    drop((replica, daemon));
    assert_ends(serving).await;
}

#[tokio::test]
async fn a_directory_that_hangs_does_not_hold_up_the_end() {
    if !runs_in_namespaces("hang::a_directory_that_hangs_does_not_hold_up_the_end", &["--mount"]) {
        return;
    }
    let fixture = Fixture::new("skill r/a\nskill h/a\ndir h/deep/down");
    let Some(hung) = Fuse::mount(&fixture.path("h/deep/down")) else { return };
    hung.hang();
    let serving = serve(&fixture);
    let daemon = connect(&serving).await;
    let mut replica = Replica::open(&daemon, watch_request(roots(&fixture))).await;
    until_it_hangs(&mut replica).await;
    assert!(replica.skills.contains_key("skill://r/a"));
    drop((replica, daemon));
    assert_ends(serving).await;
}

/// Times at which a mount is known soon to hang, and is met first by the look at links.
fn hasty() -> WatchTiming {
    WatchTiming {
        recheck_interval: Duration::from_millis(50),
        stuck_timeout: Duration::from_secs(2),
        poll_interval: Duration::from_mins(10),
        ..WatchTiming::default()
    }
}

#[tokio::test]
async fn a_root_that_hangs_after_it_was_searched() {
    if !runs_in_namespaces("hang::a_root_that_hangs_after_it_was_searched", &["--mount"]) {
        return;
    }
    let fixture = Fixture::new("skill r/a\ndir h");
    let Some(hung) = Fuse::mount(&fixture.path("h")) else { return };
    hung.write("a/SKILL.md", skill_text("a", "Answers."));
    let setup = Setup { timing: hasty(), ..Setup::allowing([fixture.top().to_owned()]) };
    let daemon = Daemon::start(setup).await;
    let mut replica = Replica::open(&daemon, watch_request(roots(&fixture))).await;
    replica.next_batch().await;
    assert_eq!(replica.roots["h"].watch_mode(), WatchMode::Polling);
    for round in 0..3 {
        assert!(replica.skills.contains_key("skill://h/a"));
        hung.hang();
        let gone = replica.next_change().await;
        assert_eq!(gone.removed, [("skill://h/a".to_owned(), RemovalReason::RootUnavailable)]);
        assert_hangs(&replica);
        let says = format!("Round {round}.");
        fixture.replace("r/a/SKILL.md", skill_text("a", &says));
        assert_eq!(replica.next_change().await.upserted, ["skill://r/a"]);
        assert_eq!(fresh_list(&daemon, &roots(&fixture)[1..]).await.skills[0].description, says);
        hung.go_on();
        // Nothing there changed, so it is as it was.
        assert_eq!(replica.next_change().await.upserted, ["skill://h/a"]);
        assert_eq!(replica.roots["h"].state(), RootState::Ready);
        replica.catch_up(&daemon).await;
    }
    daemon.stop().await;
}

#[tokio::test]
async fn a_root_that_hangs_later_does_not_hold_up_the_end() {
    if !runs_in_namespaces("hang::a_root_that_hangs_later_does_not_hold_up_the_end", &["--mount"]) {
        return;
    }
    let fixture = Fixture::new("skill r/a\ndir h");
    let Some(hung) = Fuse::mount(&fixture.path("h")) else { return };
    hung.write("a/SKILL.md", skill_text("a", "Answers."));
    let serving = serve(&fixture);
    let daemon = connect(&serving).await;
    let mut replica = Replica::open(&daemon, watch_request(roots(&fixture))).await;
    replica.next_batch().await;
    assert_eq!(replica.skills.len(), 2);
    hung.hang();
    until_it_hangs(&mut replica).await;
    assert!(replica.skills.contains_key("skill://r/a"));
    drop((replica, daemon));
    assert_ends(serving).await;
}

#[tokio::test]
async fn a_published_root_that_hangs_holds_up_no_other() {
    if !runs_in_namespaces("hang::a_published_root_that_hangs_holds_up_no_other", &["--mount"]) {
        return;
    }
    // The mount itself, and a directory below it.
    for published in ["h", "h/deep/down"] {
        let fixture = Fixture::new("skill r/a\ndir h");
        let Some(hung) = Fuse::mount(&fixture.path("h")) else { return };
        hung.write("deep/down/a/SKILL.md", skill_text("a", "Answers."));
        let publish = [("h", published), ("r", "r")];
        let publish = publish.map(|(id, dir)| (Some(id.to_owned()), fixture.path(dir)));
        let setup = Setup { timing: hasty(), roots: publish.into(), ..Setup::default() };
        let daemon = Daemon::start(setup).await;
        let alone = [selected("r", fixture.path("r"))];
        let roots = vec![selected("h", fixture.path(published)), alone[0].clone()];
        let mut replica = Replica::open(&daemon, watch_request(roots)).await;
        replica.next_batch().await;
        assert_eq!(replica.skills.len(), 2);
        hung.hang();
        until_it_hangs(&mut replica).await;
        // For long enough to look at the other again and again.
        for n in 0..40 {
            let says = format!("Change {n}.");
            fixture.write("r/a/SKILL.md", skill_text("a", &says));
            while replica.skills["skill://r/a"].description != says {
                replica.next_change().await;
            }
            assert_eq!(fresh_list(&daemon, &alone).await.skills[0].description, says);
        }
        std::fs::rename(fixture.path("r"), fixture.path("away")).expect("away");
        while replica.roots["r"].state() == RootState::Ready {
            replica.next_change().await;
        }
        std::fs::rename(fixture.path("away"), fixture.path("r")).expect("back");
        while replica.roots["r"].state() != RootState::Ready {
            replica.next_change().await;
        }
        hung.go_on();
        while replica.roots["h"].state() != RootState::Ready {
            replica.next_change().await;
        }
        replica.catch_up(&daemon).await;
        daemon.stop().await;
    }
}
