//! An idle daemon uses no processor time.

use std::ffi::OsStr;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use caproot::proto::caproot::v1::{RootState, WatchSkillsRequest};

use crate::binary::DaemonProcess;
use crate::fixture::Fixture;
use crate::harness::{Daemon, selected, short_or_long};
use crate::process_usage::processor_time;
use crate::replica::Replica;
use crate::watch_harness::{watch_request, watch_status};

#[tokio::test]
async fn an_idle_daemon_uses_no_processor_time() {
    let (skills, bookmark_seconds) = short_or_long((4_000, 2), (10_000, 5));
    let fixture =
        Fixture::new(&format!("repeat {skills} skill r/s{{}}\nrepeat 500 skill out/more/t{{}}"));
    let flags = ["--listen", "tcp:127.0.0.1:0", "--allow"].map(OsStr::new);
    let serving = DaemonProcess::start(&[&flags[..], &[fixture.top().as_os_str()]].concat());
    let address = serving.endpoint().strip_prefix("tcp:").expect("TCP");
    let daemon = Daemon::connect_to(address).await;
    let request = WatchSkillsRequest {
        bookmark_interval: Some(prost_types::Duration { seconds: bookmark_seconds, nanos: 0 }),
        ..watch_request(vec![selected("r", fixture.path("r"))])
    };
    let mut replica = Replica::open(&daemon, request).await;
    replica.next_batch().await;
    assert_eq!(replica.skills.len(), skills);
    assert!(replica.next_batch().await.is_bookmark, "settled");
    let (revision, before) = (replica.revision, processor_time(serving.pid()));
    let started = Instant::now();
    for _ in 0..2 {
        assert!(replica.next_batch().await.is_bookmark, "no event before the bookmark");
    }
    let idle = started.elapsed();
    let spent = processor_time(serving.pid()).saturating_sub(before);
    println!("{spent:?} of processor time in {idle:?} with {skills} skills");
    assert_eq!(replica.revision, revision);
    // One scan of this many skills costs several times the limit.
    assert!(spent < Duration::from_millis(50), "{spent:?} in {idle:?} without a change");
    assert_eq!(watch_status(&daemon).await.missed_changes, 0);
    // After the idle time, the root task is not mistaken for a hung one when it has to scan again.
    fs::rename(fixture.path("out/more"), fixture.path("r/more")).expect("moved in whole");
    replica.catch_up(&daemon).await;
    assert_eq!(replica.skills.len(), skills + 500);
    assert_eq!(serving.terminate_async().await.0, Some(0));
}

#[tokio::test]
async fn many_roots_need_few_descriptors() {
    const ROOTS: usize = 100;
    let fixture = Fixture::new(&format!("repeat {ROOTS} skill r{{}}/a"));
    let mut command = Command::new("sh");
    // Each root needs one descriptor. The usual limit is 1,024.
    command.args(["-c", "ulimit -n 256 && exec \"$@\"", "sh", env!("CARGO_BIN_EXE_caproot")]);
    command.args(["serve", "--listen", "tcp:127.0.0.1:0"]);
    let paths: Vec<_> = (0..ROOTS).map(|n| fixture.path(&format!("r{n:02}"))).collect();
    for path in &paths {
        command.arg("--root").arg(path);
    }
    let serving = DaemonProcess::spawn(&mut command);
    let daemon = Daemon::connect_to(serving.endpoint().strip_prefix("tcp:").expect("TCP")).await;
    let roots: Vec<_> =
        paths.iter().enumerate().map(|(n, path)| selected(&format!("r{n}"), path)).collect();
    let mut replica = Replica::open(&daemon, watch_request(roots)).await;
    while replica.roots.values().filter(|root| root.state() == RootState::Ready).count() < ROOTS {
        replica.next_change().await;
    }
    assert_eq!(replica.skills.len(), ROOTS);
    replica.catch_up(&daemon).await;
    let open = fs::read_dir(format!("/proc/{}/fd", serving.pid())).expect("a live process").count();
    println!("{open} descriptors for {ROOTS} roots");
    assert!(open < ROOTS + 50, "{open}");
    assert_eq!(serving.terminate_async().await.0, Some(0));
}
