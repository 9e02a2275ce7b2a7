//! Roots on a filesystem that never answers, or stops answering later.

use std::time::{Duration, Instant};

use caproot::daemon::catalog::WatchTiming;
use caproot_core::proto::caproot::v1::{
    RemovalReason, RootReason, RootState, SelectedCapabilityRoot, WatchMode,
};

use crate::harness::fixture::Fixture;
use crate::harness::fuse::Fuse;
use crate::harness::namespaces::run_in_namespaces;
use crate::harness::process::Process;
use crate::harness::replica::Replica;
use crate::harness::watch_harness::{fresh_list, skill_text, watch_request};
use crate::harness::{Daemon, Setup, selected};

fn select_both_roots(fixture: &Fixture) -> Vec<SelectedCapabilityRoot> {
    vec![
        selected("h", fixture.path("h")),
        selected("r", fixture.path("r")),
    ]
}

fn assert_timed_out(replica: &Replica) {
    let root = &replica.roots["h"];
    assert_eq!(
        (root.state(), root.reason()),
        (RootState::Unavailable, RootReason::Timeout)
    );
    assert!(
        !replica
            .skills
            .keys()
            .any(|package| package.starts_with("skill://h/"))
    );
}

async fn wait_until_timed_out(replica: &mut Replica) {
    replica
        .wait_while(|replica| {
            replica
                .roots
                .get("h")
                .is_none_or(|root| root.reason() != RootReason::Timeout)
        })
        .await;
    assert_timed_out(replica);
}

/// Asserts that the daemon exits on SIGTERM. Its clients can close their connections meanwhile.
async fn assert_exits(serving: Process) {
    let started = Instant::now();
    serving.stop().await;
    assert!(
        started.elapsed() < Duration::from_secs(15),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test]
async fn a_root_that_hangs_does_not_block_others_and_recovers() {
    run_in_namespaces!("--mount");
    let fixture = Fixture::new("skill r/a\nskill h/under");
    let Some(hung) = Fuse::mount(&fixture.path("h")) else {
        return;
    };
    hung.hang();
    let (serving, daemon) = Process::allowing(fixture.top()).await;
    let alone = &select_both_roots(&fixture)[1..];
    let mut replica = Replica::open(&daemon, watch_request(select_both_roots(&fixture))).await;
    // While the root is not yet known to hang, a client of the other root alone does not wait for
    // it.
    let started = Instant::now();
    let list = daemon.list(alone).await;
    assert_eq!(list.skills.len(), 1);
    assert!(
        started.elapsed() < Duration::from_secs(4),
        "{:?}",
        started.elapsed()
    );
    wait_until_timed_out(&mut replica).await;
    for n in 0..20 {
        let says = format!("Change {n}.");
        fixture.write("r/a/SKILL.md", skill_text("a", &says));
        replica
            .wait_while(|replica| replica.skills["skill://r/a"].description != says)
            .await;
        assert_eq!(fresh_list(&daemon, alone).await.skills[0].description, says);
    }
    // Calls for the hung root are answered at once and do not use up the quota of other calls.
    let both = select_both_roots(&fixture);
    let lists = futures_util::future::join_all((0..600).map(|_| daemon.list(&both))).await;
    for list in lists {
        assert_eq!(
            (list.skills.len(), list.roots[0].reason()),
            (1, RootReason::Timeout)
        );
    }
    let list = fresh_list(&daemon, &both).await;
    assert_eq!(
        (list.skills.len(), list.roots[0].reason()),
        (1, RootReason::Timeout)
    );
    // The unmount ends every call that hangs in the filesystem.
    drop(hung);
    replica
        .wait_while(|replica| !replica.skills.contains_key("skill://h/under"))
        .await;
    replica.catch_up(&daemon).await;
    assert_eq!(replica.roots["h"].state(), RootState::Ready);
    drop((replica, daemon));
    assert_exits(serving).await;
}

/// A root whose first scan hangs after a restart is not sent again once it is ready.
#[tokio::test]
async fn a_known_root_that_hangs_at_first_is_not_sent_again() {
    run_in_namespaces!("--mount");
    let fixture = Fixture::new("skill r/a\nskill h/under");
    let (first, daemon) = Process::allowing(fixture.top()).await;
    let mut replica = Replica::open(&daemon, watch_request(select_both_roots(&fixture))).await;
    assert_eq!(replica.next_batch().await.upserted.len(), 2);
    replica.close_stream();
    drop(daemon);
    assert_exits(first).await;

    let Some(hung) = Fuse::mount(&fixture.path("h")) else {
        return;
    };
    hung.hang();
    let (second, daemon) = Process::allowing(fixture.top()).await;
    replica.resume(&daemon).await;
    let step = replica.next_batch().await;
    assert_eq!(
        (&step.unchanged[..], step.upserted.len()),
        (&["r".to_owned()][..], 0)
    );
    assert_ne!(replica.roots["h"].state(), RootState::Ready);
    drop(hung);
    loop {
        let step = replica.next_change().await;
        assert_eq!((step.reset, step.upserted.len()), (None, 0), "{step:?}");
        if step.unchanged == ["h"] {
            break;
        }
    }
    assert!(replica.skills.contains_key("skill://h/under"));
    replica.catch_up(&daemon).await;
    drop((replica, daemon));
    assert_exits(second).await;
}

#[tokio::test]
async fn a_directory_that_hangs_does_not_delay_the_shutdown() {
    run_in_namespaces!("--mount");
    let fixture = Fixture::new("skill r/a\nskill h/a\ndir h/deep/down");
    let Some(hung) = Fuse::mount(&fixture.path("h/deep/down")) else {
        return;
    };
    hung.hang();
    let (serving, daemon) = Process::allowing(fixture.top()).await;
    let mut replica = Replica::open(&daemon, watch_request(select_both_roots(&fixture))).await;
    wait_until_timed_out(&mut replica).await;
    assert!(replica.skills.contains_key("skill://r/a"));
    drop((replica, daemon));
    assert_exits(serving).await;
}

/// Timing with which a hung mount is detected soon, and first by the recheck of links.
fn short_timing() -> WatchTiming {
    WatchTiming {
        recheck_interval: Duration::from_millis(50),
        stuck_timeout: Duration::from_secs(2),
        poll_interval: Duration::from_mins(10),
        ..WatchTiming::default()
    }
}

#[tokio::test]
async fn a_root_that_hangs_after_its_scan_recovers() {
    run_in_namespaces!("--mount");
    let fixture = Fixture::new("skill r/a\ndir h");
    let Some(hung) = Fuse::mount(&fixture.path("h")) else {
        return;
    };
    hung.write("a/SKILL.md", skill_text("a", "Answers."));
    let setup = Setup {
        timing: short_timing(),
        ..Setup::allowing([fixture.top().to_owned()])
    };
    let daemon = Daemon::start(setup).await;
    let mut replica = Replica::synced(&daemon, watch_request(select_both_roots(&fixture))).await;
    assert_eq!(replica.roots["h"].watch_mode(), WatchMode::Polling);
    for round in 0..3 {
        assert!(replica.skills.contains_key("skill://h/a"));
        hung.hang();
        let gone = replica.next_change().await;
        assert_eq!(
            gone.removed,
            [("skill://h/a".to_owned(), RemovalReason::RootUnavailable)]
        );
        assert_timed_out(&replica);
        let says = format!("Round {round}.");
        fixture.replace("r/a/SKILL.md", skill_text("a", &says));
        assert_eq!(replica.next_change().await.upserted, ["skill://r/a"]);
        assert_eq!(
            fresh_list(&daemon, &select_both_roots(&fixture)[1..])
                .await
                .skills[0]
                .description,
            says
        );
        hung.resume();
        // The root is unchanged, so the same skill returns.
        assert_eq!(replica.next_change().await.upserted, ["skill://h/a"]);
        assert_eq!(replica.roots["h"].state(), RootState::Ready);
        replica.catch_up(&daemon).await;
    }
    daemon.stop().await;
}

#[tokio::test]
async fn a_root_that_hangs_later_does_not_delay_the_shutdown() {
    run_in_namespaces!("--mount");
    let fixture = Fixture::new("skill r/a\ndir h");
    let Some(hung) = Fuse::mount(&fixture.path("h")) else {
        return;
    };
    hung.write("a/SKILL.md", skill_text("a", "Answers."));
    let (serving, daemon) = Process::allowing(fixture.top()).await;
    let mut replica = Replica::synced(&daemon, watch_request(select_both_roots(&fixture))).await;
    assert_eq!(replica.skills.len(), 2);
    hung.hang();
    wait_until_timed_out(&mut replica).await;
    assert!(replica.skills.contains_key("skill://r/a"));
    drop((replica, daemon));
    assert_exits(serving).await;
}

#[tokio::test]
async fn a_published_root_that_hangs_does_not_block_others() {
    run_in_namespaces!("--mount");
    // The mount itself, and a directory below it.
    for published in ["h", "h/deep/down"] {
        let fixture = Fixture::new("skill r/a\ndir h");
        let Some(hung) = Fuse::mount(&fixture.path("h")) else {
            return;
        };
        hung.write("deep/down/a/SKILL.md", skill_text("a", "Answers."));
        let publish = [("h", published), ("r", "r")];
        let publish = publish.map(|(id, dir)| (Some(id.to_owned()), fixture.path(dir)));
        let setup = Setup {
            timing: short_timing(),
            roots: publish.into(),
            ..Setup::default()
        };
        let daemon = Daemon::start(setup).await;
        let alone = [selected("r", fixture.path("r"))];
        let roots = vec![selected("h", fixture.path(published)), alone[0].clone()];
        let mut replica = Replica::synced(&daemon, watch_request(roots)).await;
        assert_eq!(replica.skills.len(), 2);
        hung.hang();
        wait_until_timed_out(&mut replica).await;
        // Long enough for several rechecks of the other root.
        for n in 0..40 {
            let says = format!("Change {n}.");
            fixture.write("r/a/SKILL.md", skill_text("a", &says));
            replica
                .wait_while(|replica| replica.skills["skill://r/a"].description != says)
                .await;
            assert_eq!(
                fresh_list(&daemon, &alone).await.skills[0].description,
                says
            );
        }
        std::fs::rename(fixture.path("r"), fixture.path("away")).expect("away");
        replica
            .wait_while(|replica| replica.roots["r"].state() == RootState::Ready)
            .await;
        std::fs::rename(fixture.path("away"), fixture.path("r")).expect("back");
        replica
            .wait_while(|replica| replica.roots["r"].state() != RootState::Ready)
            .await;
        hung.resume();
        replica
            .wait_while(|replica| replica.roots["h"].state() != RootState::Ready)
            .await;
        replica.catch_up(&daemon).await;
        daemon.stop().await;
    }
}
