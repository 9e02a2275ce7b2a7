//! Root on a filesystem whose changes cause no inotify event.

use std::time::Duration;

use caproot::daemon::catalog::WatchTiming;
use caproot_core::proto::caproot::v1::{
    DiagnosticCode, RemovalReason, RootState, Severity, WatchMode,
};

use crate::harness::fixture::Fixture;
use crate::harness::fuse::Fuse;
use crate::harness::namespaces::run_in_namespaces;
use crate::harness::replica::Replica;
use crate::harness::watch_harness::{fresh_list, skill_text, watch_request, watch_status};
use crate::harness::{Daemon, Setup, selected};

#[tokio::test]
async fn changes_without_events_are_found_by_polling() {
    run_in_namespaces!("--mount");
    let fixture = Fixture::new("dir r\nskill e/a");
    let Some(remote) = Fuse::mount(&fixture.path("r")) else {
        return;
    };
    for name in ["a", "b", "deep/down/c"] {
        remote.write(&format!("{name}/SKILL.md"), skill_text("s", "At first."));
    }
    let timing = WatchTiming {
        poll_interval: Duration::from_millis(100),
        ..WatchTiming::default()
    };
    let setup = Setup {
        timing,
        ..Setup::allowing([fixture.top().to_owned()])
    };
    let daemon = Daemon::start(setup).await;
    let roots = vec![
        selected("r", fixture.path("r")),
        selected("e", fixture.path("e")),
    ];
    let mut replica = Replica::synced(&daemon, watch_request(roots.clone())).await;
    assert_eq!(replica.skills.len(), 4);
    let root = &replica.roots["r"];
    assert_eq!(
        (root.state(), root.watch_mode()),
        (RootState::Ready, WatchMode::Polling)
    );
    assert!(
        root.watch_message.contains("FUSE"),
        "the reason: {}",
        root.watch_message
    );
    let diagnostics = &replica.diagnostics["r"];
    let diagnostic = diagnostics
        .iter()
        .find(|d| d.code() == DiagnosticCode::WatchDegraded)
        .expect("a warning");
    assert_eq!(
        (diagnostic.severity(), &diagnostic.message),
        (Severity::Warning, &root.watch_message)
    );
    assert_eq!(
        replica.roots["e"].watch_mode(),
        WatchMode::Events,
        "the other root has events"
    );
    assert_eq!(watch_status(&daemon).await.polling_roots, 1);

    for n in 0..5 {
        let says = format!("Round {n}.");
        remote.write("a/SKILL.md", skill_text("s", &says));
        assert_eq!(replica.next_change().await.upserted, ["skill://r/a"]);
        assert_eq!(replica.skills["skill://r/a"].description, says);
        remote.write("new/SKILL.md", skill_text("s", "New."));
        assert_eq!(replica.next_change().await.upserted, ["skill://r/new"]);
        remote.remove("new");
        let gone = [("skill://r/new".to_owned(), RemovalReason::Deleted)];
        assert_eq!(replica.next_change().await.removed, gone);
    }
    remote.remove("deep/down/c/SKILL.md");
    let gone = [("skill://r/deep/down/c".to_owned(), RemovalReason::Deleted)];
    assert_eq!(replica.next_change().await.removed, gone);
    // A fresh list does not wait for the next poll.
    for n in 0..20 {
        let says = format!("Fresh {n}.");
        remote.write("b/SKILL.md", skill_text("s", &says));
        let list = fresh_list(&daemon, &roots).await;
        let found = list
            .skills
            .iter()
            .find(|s| s.package == "skill://r/b")
            .expect("listed");
        assert_eq!(found.description, says);
    }
    replica.catch_up(&daemon).await;
    daemon.stop().await;
}
