//! An approved root without changes costs nothing, although its files have hard links.

use std::fs;

use caproot_core::proto::caproot::v1::WatchSkillsRequest;

use super::{LockedDaemon, bytes_read};
use crate::harness::fixture::Fixture;
use crate::harness::open_counter::OpenCounter;
use crate::harness::process_usage::processor_time;
use crate::harness::published;
use crate::harness::replica::Replica;
use crate::harness::watch_harness::{fresh_list, skill_text, watch_request};

const SKILLS: usize = 200;
/// Several seconds, with two rechecks at least.
const BOOKMARKS: usize = 2;
const BOOKMARK_SECONDS: i64 = 3;

#[tokio::test]
async fn approved_files_with_hard_links_are_not_read_again() {
    let fixture = Fixture::new(&format!("repeat {SKILLS} skill r/s{{}}\ndir out"));
    for n in 0..SKILLS {
        let file = fixture.path(&format!("r/s{n:03}/SKILL.md"));
        fs::hard_link(file, fixture.path(&format!("out/{n}"))).expect("another name");
    }
    let locked = LockedDaemon::start_with(fixture, "hide").await;
    let request = WatchSkillsRequest {
        bookmark_interval: Some(prost_types::Duration {
            seconds: BOOKMARK_SECONDS,
            nanos: 0,
        }),
        ..watch_request(vec![published("r")])
    };
    let mut replica = Replica::synced(&locked.daemon, request).await;
    assert_eq!(replica.skills.len(), SKILLS);
    assert!(replica.next_batch().await.is_bookmark, "settled");

    let pid = locked.daemon.process.pid();
    let mut openings = OpenCounter::start(&locked.fixture.path("r/s007"));
    let (spent, read) = (processor_time(pid), bytes_read(pid));
    for _ in 0..BOOKMARKS {
        assert!(replica.next_batch().await.is_bookmark, "no change");
    }
    let spent = processor_time(pid).saturating_sub(spent);
    let read = bytes_read(pid) - read;
    println!("{spent:?} of processor time, {read} bytes read, with {SKILLS} skills");
    assert_eq!(openings.count(), 0, "a file was opened");
    // The mount table and the like, and no file of a skill.
    assert!(read < 64 << 10, "{read} bytes");

    // A fresh list compares stamps, and reads nothing either.
    let list = fresh_list(&locked.daemon, &[published("r")]).await;
    assert_eq!(list.skills.len(), SKILLS);
    assert_eq!(openings.count(), 0, "a file was opened");

    // A write through the other name is found nevertheless.
    let text = skill_text("s007", "Changed.");
    locked.fixture.write("out/7", text);
    replica
        .wait_while(|replica| replica.skills.len() == SKILLS)
        .await;
    assert!(openings.count() > 0);
    locked.daemon.stop().await;
}
