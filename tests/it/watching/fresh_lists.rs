//! Fresh lists after a write, while another thread writes too.

use std::fs::{self, File};
use std::io::Write as _;
use std::thread::sleep;
use std::time::Duration;

use caproot::daemon::catalog::WatchTiming;

use crate::harness::short_or_long;
use crate::harness::watch_harness::{BusyThread, WatchHarness, skill_text};

#[tokio::test]
async fn a_fresh_list_has_every_write_before_it() {
    let rounds = short_or_long(500, 2_000);
    let live = WatchHarness::new("skill r/a\nskill r/churn").await;
    let churn = live.fixture.path("r/churn");
    let busy = BusyThread::new(move |n| {
        let (file, fresh) = (churn.join("SKILL.md"), churn.join("fresh"));
        fs::write(&fresh, skill_text("churn", &format!("No. {n}."))).expect("write");
        fs::rename(&fresh, &file).expect("rename");
        sleep(Duration::from_millis(1));
    });
    let started = std::time::Instant::now();
    for n in 0..rounds {
        let says = format!("Write {n}.");
        live.fixture.write("r/a/SKILL.md", skill_text("a", &says));
        let list = live.fresh_list().await;
        let found = list
            .skills
            .iter()
            .find(|s| s.name == "a")
            .expect("the skill always exists");
        assert_eq!(found.description, says);
    }
    println!("{rounds} writes and fresh lists in {:?}", started.elapsed());
    drop(busy);
    live.finish().await;
}

#[tokio::test]
async fn a_file_that_is_saved_in_place_is_not_stale() {
    // Long, so that a writer on a loaded machine is never slower.
    let timing = WatchTiming {
        debounce: Duration::from_secs(5),
        max_debounce: Duration::from_secs(20),
        ..WatchTiming::default()
    };
    let live = WatchHarness::with_timing("skill r/a", timing).await;
    let path = live.fixture.path("r/a/SKILL.md");
    let busy = BusyThread::new(move |n| {
        let text = skill_text("a", &format!("No. {n}."));
        let (begin, rest) = text.split_at(10);
        let mut file = File::create(&path).expect("created");
        file.write_all(begin.as_bytes()).expect("written");
        sleep(Duration::from_millis(5));
        file.write_all(rest.as_bytes()).expect("written");
        drop(file);
        sleep(Duration::from_millis(15));
    });
    for _ in 0..short_or_long(100, 1_000) {
        let list = live.fresh_list().await;
        assert!(!list.skills[0].stale, "{:?}", list.diagnostics);
    }
    drop(busy);

    // A writer that stops in the middle of a save makes the skill stale.
    fs::write(live.fixture.path("r/a/SKILL.md"), "---\nname: a\n").expect("written");
    let list = live.fresh_list().await;
    assert!(list.skills[0].stale, "{:?}", list.skills);
    live.finish().await;
}
