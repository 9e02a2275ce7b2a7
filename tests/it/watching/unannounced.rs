//! Changes that no event announces, and mounts whose source is gone.

use std::fs;
use std::time::Duration;

use caproot::daemon::catalog::{FaultInjector, WatchTiming};
use caproot_core::proto::caproot::v1::{
    Diagnostic, DiagnosticCode, RootReason, RootState, Severity, WatchMode,
};

use crate::harness::fixture::Fixture;
use crate::harness::namespaces::{Mount, run_in_namespaces};
use crate::harness::replica::Replica;
use crate::harness::watch_harness::{fresh_list, skill_text, watch_request};
use crate::harness::{Daemon, Setup, selected};

#[tokio::test]
async fn a_root_whose_changes_come_without_events_is_polled_until_it_is_quiet() {
    let fixture = Fixture::new("skill r/a");
    let faults = FaultInjector::default();
    let timing = WatchTiming {
        full_scan_interval: Duration::from_millis(100),
        poll_interval: Duration::from_millis(100),
        ..WatchTiming::default()
    };
    let setup = Setup {
        timing,
        faults: faults.clone(),
        ..Setup::allowing([fixture.top().to_owned()])
    };
    let daemon = Daemon::start(setup).await;
    let roots = vec![selected("r", fixture.path("r"))];
    let mut replica = Replica::synced(&daemon, watch_request(roots)).await;
    // On a busy machine, the first scans may find files that no watch has announced yet.
    replica
        .wait_while(|replica| replica.roots["r"].watch_mode() == WatchMode::Polling)
        .await;

    faults.drop_events(100);
    for round in 0.. {
        fixture.write("r/a/SKILL.md", skill_text("a", &format!("Round {round}.")));
        replica.next_change().await;
        let is_polled = replica.roots["r"].watch_mode() == WatchMode::Polling;
        assert!(round < 5, "the root is still not polled");
        if is_polled {
            break;
        }
    }
    let root = &replica.roots["r"];
    assert!(
        root.watch_message.contains("without an inotify event"),
        "{}",
        root.watch_message
    );
    let diagnostics = &replica.diagnostics["r"];
    assert!(
        diagnostics
            .iter()
            .any(|d| d.code() == DiagnosticCode::WatchDegraded)
    );

    // Six scans later, the root has events again.
    faults.drop_events(0);
    replica
        .wait_while(|replica| replica.roots["r"].watch_mode() == WatchMode::Polling)
        .await;
    fixture.write("r/a/SKILL.md", skill_text("a", "By an event."));
    assert_eq!(replica.next_change().await.upserted, ["skill://r/a"]);
    daemon.stop().await;
}

#[tokio::test]
async fn a_root_that_was_removed_below_its_mount_is_unavailable() {
    run_in_namespaces!("--mount");
    let fixture = Fixture::new("skill host/a\ndir mnt");
    let mount = Mount::bind(&fixture.path("host"), &fixture.path("mnt"));
    let daemon = Daemon::start(Setup::allowing([fixture.top().to_owned()])).await;
    let roots = vec![selected("r", fixture.path("mnt"))];
    let mut replica = Replica::synced(&daemon, watch_request(roots.clone())).await;
    assert_eq!(replica.skills.len(), 1);

    fs::remove_dir_all(fixture.path("host")).expect("removed");
    fixture.write("host/a/SKILL.md", skill_text("a", "New."));
    replica
        .wait_while(|replica| replica.roots["r"].state() == RootState::Ready)
        .await;
    let root = &replica.roots["r"];
    assert_eq!(root.reason(), RootReason::NotFound);
    assert!(
        root.message.contains("removed or replaced on the host"),
        "{}",
        root.message
    );
    let list = fresh_list(&daemon, &roots).await;
    assert_eq!(list.roots[0].state(), RootState::Unavailable);
    assert!(list.skills.is_empty());

    // A new mount shows the new directory.
    drop(mount);
    let _mount = Mount::bind(&fixture.path("host"), &fixture.path("mnt"));
    replica
        .wait_while(|replica| replica.roots["r"].state() != RootState::Ready)
        .await;
    assert_eq!(replica.skills["skill://r/a"].description, "New.");
    daemon.stop().await;
}

#[tokio::test]
async fn a_file_that_was_replaced_below_its_mount_has_a_warning() {
    run_in_namespaces!("--mount");
    let fixture = Fixture::new("skill host/a\nskill r/a");
    let _mount = Mount::bind(
        &fixture.path("host/a/SKILL.md"),
        &fixture.path("r/a/SKILL.md"),
    );
    let daemon = Daemon::start(Setup::allowing([fixture.top().to_owned()])).await;
    let roots = [selected("r", fixture.path("r"))];
    let mut first = fresh_list(&daemon, &roots).await.diagnostics.into_iter();
    assert!(first.all(|diagnostic| diagnostic.code() != DiagnosticCode::Unreadable));

    fixture.replace("host/a/SKILL.md", skill_text("a", "New."));
    let list = fresh_list(&daemon, &roots).await;
    assert_eq!(list.skills[0].description, "Does a.");
    // The limit of inotify instances belongs to the host, so the root may be polled as well, with a warning of its own.
    let unreadable = |diagnostic: &&Diagnostic| diagnostic.code() == DiagnosticCode::Unreadable;
    let diagnostic = list.diagnostics.iter().find(unreadable).unwrap_or_else(|| {
        panic!("a warning: {:?}", list.diagnostics);
    });
    assert_eq!(diagnostic.severity(), Severity::Warning);
    assert!(
        diagnostic.message.contains("the mounted file"),
        "{}",
        diagnostic.message
    );
    daemon.stop().await;
}
