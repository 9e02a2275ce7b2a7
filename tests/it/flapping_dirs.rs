//! A directory that is away for a moment, while what is below it is being read, and comes back as it
//! was. What was missed meanwhile must be found, though nothing below it ever changed.

use std::fs;
use std::thread;
use std::time::Duration;

use caproot::catalog::WatchTiming;

use crate::watch_harness::{BusyThread, WatchHarness, watch_status};
use crate::open_counter::OpenCounter;

/// Nothing but events has anything looked at again within the test.
fn events_alone() -> WatchTiming {
    let never = Duration::from_hours(1);
    WatchTiming { recheck_interval: never, full_scan_interval: never, ..WatchTiming::default() }
}

/// Takes a directory away and back, while fresh lists have everything read and while it is quiet; after
/// each time all is there again.
async fn blink(dir: &'static str) {
    let skills: Vec<_> = (0..60).map(|n| format!("skill r/g/s{n:02}")).collect();
    let mut live = WatchHarness::with_timing(&skills.join("\n"), events_alone()).await;
    live.fixture
        .write("r/g/s00/agents/openai.yaml", "policy:\n  allow_implicit_invocation: false\n");
    let whole = live.fresh_list().await;
    assert_eq!(whole.skills.len(), 60);
    for n in 0..150 {
        let (here, away) = (live.fixture.path(dir), live.fixture.path("away"));
        let blinking = thread::spawn(move || {
            for _ in 0..3 {
                fs::rename(&here, &away).expect("away");
                thread::sleep(Duration::from_micros(200 * (n % 10)));
                fs::rename(&away, &here).expect("back");
            }
        });
        while !blinking.is_finished() {
            live.fresh_list().await;
        }
        blinking.join().expect("no panic");
        let list = live.fresh_list().await;
        assert_eq!(list.skills, whole.skills, "round {n}: {:?}", list.roots);
    }
    live.replica.catch_up(&live.daemon).await;
    live.finish().await;
}

#[tokio::test]
async fn a_root_that_is_away_for_a_moment() {
    blink("r").await;
}

#[tokio::test]
async fn a_directory_below_that_is_away_for_a_moment() {
    blink("r/g").await;
}

#[tokio::test]
async fn a_skill_that_is_away_for_a_moment() {
    blink("r/g/s00").await;
}

#[tokio::test]
async fn a_directory_above_that_changes_all_the_time_holds_nobody_up() {
    let live = WatchHarness::with_timing("skill r/a", events_alone()).await;
    let (one, two) = (live.fixture.path("one"), live.fixture.path("two"));
    fs::create_dir(&one).expect("a directory beside the root");
    let busy = BusyThread::new(move |_| {
        fs::rename(&one, &two).expect("rename");
        fs::rename(&two, &one).expect("rename");
    });
    let before = watch_status(&live.daemon).await.overflows;
    let mut looks = OpenCounter::start(&live.fixture.path("r/a"));
    for _ in 0..50 {
        assert_eq!(live.fresh_list().await.skills.len(), 1);
    }
    // Where the kernel had to drop events, everything is looked at once.
    let looked = u64::try_from(looks.count()).expect("few");
    let overflowed = watch_status(&live.daemon).await.overflows - before;
    assert!(looked <= overflowed, "it concerns no root: {looked} looks, {overflowed} overflows");
    drop(busy);
    live.finish().await;
}
