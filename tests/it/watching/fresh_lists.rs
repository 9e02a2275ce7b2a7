//! Fresh lists after a write, while another thread writes too.

use crate::harness::short_or_long;
use crate::harness::watch_harness::{BusyThread, WatchHarness, skill_text};

#[tokio::test]
async fn a_fresh_list_has_every_write_before_it() {
    let rounds = short_or_long(500, 2_000);
    let live = WatchHarness::new("skill r/a\nskill r/churn").await;
    let churn = live.fixture.path("r/churn");
    let busy = BusyThread::new(move |n| {
        let (file, fresh) = (churn.join("SKILL.md"), churn.join("fresh"));
        std::fs::write(&fresh, skill_text("churn", &format!("No. {n}."))).expect("write");
        std::fs::rename(&fresh, &file).expect("rename");
        std::thread::sleep(std::time::Duration::from_millis(1));
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
