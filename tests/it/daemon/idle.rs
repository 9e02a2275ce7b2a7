//! An idle daemon uses no processor time.

use std::fs;
use std::time::{Duration, Instant};

use caproot_core::proto::caproot::v1::{RootState, WatchSkillsRequest};

use crate::harness::fixture::Fixture;
use crate::harness::process::{Process, serve, wrap_command};
use crate::harness::process_usage::{descriptors, processor_time};
use crate::harness::replica::Replica;
use crate::harness::watch_harness::{watch_request, watch_status};
use crate::harness::{selected, short_or_long};

/// One scan of the skills costs several times this processor time.
const LIMIT: Duration = Duration::from_millis(100);

#[tokio::test]
async fn an_idle_daemon_uses_no_processor_time() {
    let (skills, bookmark_seconds) = short_or_long((4_000, 2), (10_000, 5));
    let fixture = Fixture::new(&format!(
        "repeat {skills} skill r/s{{}}\nrepeat 500 skill out/more/t{{}}"
    ));
    let (serving, daemon) = Process::allowing(fixture.top()).await;
    let request = WatchSkillsRequest {
        bookmark_interval: Some(prost_types::Duration {
            seconds: bookmark_seconds,
            nanos: 0,
        }),
        ..watch_request(vec![selected("r", fixture.path("r"))])
    };
    let mut replica = Replica::synced(&daemon, request).await;
    // On a busy machine, the first state may come before the end of the scan.
    replica
        .wait_while(|replica| replica.skills.len() < skills)
        .await;
    assert!(replica.next_batch().await.is_bookmark, "settled");
    let revision = replica.revision;
    let mut least = Duration::MAX;
    // On a busy machine, the same work takes more processor time. Work that repeats while the
    // daemon is idle falls into each of the windows.
    for _ in 0..3 {
        let (before, started) = (processor_time(serving.pid()), Instant::now());
        for _ in 0..2 {
            assert!(
                replica.next_batch().await.is_bookmark,
                "no event before the bookmark"
            );
        }
        let spent = processor_time(serving.pid()).saturating_sub(before);
        println!(
            "{spent:?} of processor time in {:?} with {skills} skills",
            started.elapsed()
        );
        least = least.min(spent);
        if least < LIMIT {
            break;
        }
    }
    assert_eq!(replica.revision, revision);
    assert!(least < LIMIT, "{least:?} without a change");
    assert_eq!(watch_status(&daemon).await.missed_changes, 0);
    // After the idle time, the root task is not mistaken for a hung one when it has to scan again.
    fs::rename(fixture.path("out/more"), fixture.path("r/more")).expect("moved in whole");
    replica.catch_up(&daemon).await;
    assert_eq!(replica.skills.len(), skills + 500);
    serving.stop().await;
}

#[tokio::test]
async fn many_roots_need_few_descriptors() {
    const ROOTS: usize = 100;
    let fixture = Fixture::new(&format!("repeat {ROOTS} skill r{{}}/a"));
    let mut command = serve([""; 0]);
    let paths: Vec<_> = (0..ROOTS)
        .map(|n| fixture.path(&format!("r{n:02}")))
        .collect();
    for path in &paths {
        command.arg("--root").arg(path);
    }
    // Each root needs one descriptor. The usual limit is 1,024.
    let limit = ["sh", "-c", "ulimit -n 256 && exec \"$@\"", "sh"];
    let Some(command) = wrap_command(limit, command, "ulimit does not work") else {
        return;
    };
    let serving = Process::start(command);
    let daemon = serving.connect().await;
    let roots: Vec<_> = paths
        .iter()
        .enumerate()
        .map(|(n, path)| selected(&format!("r{n}"), path))
        .collect();
    let mut replica = Replica::open(&daemon, watch_request(roots)).await;
    replica
        .wait_while(|replica| {
            replica
                .roots
                .values()
                .filter(|root| root.state() == RootState::Ready)
                .count()
                < ROOTS
        })
        .await;
    assert_eq!(replica.skills.len(), ROOTS);
    replica.catch_up(&daemon).await;
    let open = descriptors(serving.pid());
    println!("{open} descriptors for {ROOTS} roots");
    assert!(open < ROOTS as u64 + 50, "{open}");
    serving.stop().await;
}
