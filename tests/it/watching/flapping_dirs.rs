//! Directories that are renamed away and back while they are scanned. The daemon must find changes
//! that it missed meanwhile, although nothing below the directory changed.

use std::fs;
use std::thread;
use std::time::Duration;

use caproot::daemon::catalog::WatchTiming;

use crate::harness::open_counter::OpenCounter;
use crate::harness::watch_harness::{BusyThread, WatchHarness, watch_status};

/// Timing with which only events cause rescans during the test.
fn only_events() -> WatchTiming {
    let never = Duration::from_hours(1);
    WatchTiming {
        recheck_interval: never,
        full_scan_interval: never,
        ..WatchTiming::default()
    }
}

/// Renames a directory away and back, during fresh lists and between them. Afterwards all skills
/// must be listed.
async fn assert_recovers_from_renames_of(dir: &'static str) {
    let skills: Vec<_> = (0..60).map(|n| format!("skill r/g/s{n:02}")).collect();
    let mut live = WatchHarness::with_timing(&skills.join("\n"), only_events()).await;
    live.fixture.write(
        "r/g/s00/agents/openai.yaml",
        "policy:\n  allow_implicit_invocation: false\n",
    );
    let whole = live.fresh_list().await;
    assert_eq!(whole.skills.len(), 60);
    for n in 0..150 {
        let (here, away) = (live.fixture.path(dir), live.fixture.path("away"));
        let renames = thread::spawn(move || {
            for _ in 0..3 {
                fs::rename(&here, &away).expect("away");
                thread::sleep(Duration::from_micros(200 * (n % 10)));
                fs::rename(&away, &here).expect("back");
            }
        });
        while !renames.is_finished() {
            live.fresh_list().await;
        }
        renames.join().expect("no panic");
        let list = live.fresh_list().await;
        assert_eq!(list.skills, whole.skills, "round {n}: {:?}", list.roots);
    }
    live.replica.catch_up(&live.daemon).await;
    live.finish().await;
}

#[tokio::test]
async fn a_root_renamed_away_and_back_is_rescanned() {
    assert_recovers_from_renames_of("r").await;
}

#[tokio::test]
async fn a_directory_renamed_away_and_back_is_rescanned() {
    assert_recovers_from_renames_of("r/g").await;
}

#[tokio::test]
async fn a_skill_renamed_away_and_back_is_rescanned() {
    assert_recovers_from_renames_of("r/g/s00").await;
}

#[tokio::test]
async fn constant_changes_above_a_root_cause_no_rescan() {
    let live = WatchHarness::with_timing("skill r/a", only_events()).await;
    let (one, two) = (live.fixture.path("one"), live.fixture.path("two"));
    fs::create_dir(&one).expect("a directory next to the root");
    let busy = BusyThread::new(move |_| {
        fs::rename(&one, &two).expect("rename");
        fs::rename(&two, &one).expect("rename");
    });
    let before = watch_status(&live.daemon).await.overflows;
    let mut openings = OpenCounter::start(&live.fixture.path("r/a"));
    for _ in 0..50 {
        assert_eq!(live.fresh_list().await.skills.len(), 1);
    }
    // If the kernel dropped events, the daemon rescans everything once.
    let rescans = u64::try_from(openings.count()).expect("few");
    let overflowed = watch_status(&live.daemon).await.overflows - before;
    assert!(
        rescans <= overflowed,
        "{rescans} rescans, {overflowed} overflows of an unaffected root"
    );
    drop(busy);
    live.finish().await;
}
