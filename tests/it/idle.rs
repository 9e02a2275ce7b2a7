//! A daemon that has nothing to do does nothing.

use std::ffi::OsStr;
use std::fs;
use std::time::Duration;

use caproot::proto::caproot::v1::WatchSkillsRequest;

use crate::binary::Serving;
use crate::fixture::Fixture;
use crate::harness::{Daemon, selected};
use crate::live::watching;
use crate::replica::Replica;

/// The processor time of a process, in ticks of 10 ms.
pub(crate) fn ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("a live process");
    let (_, fields) = stat.rsplit_once(") ").expect("a name in brackets");
    let fields: Vec<_> = fields.split(' ').collect();
    let number = |at: usize| fields[at].parse::<u64>().expect("a number");
    number(11) + number(12)
}

#[tokio::test]
async fn idle_is_idle() {
    let fixture = Fixture::new("repeat 2000 skill r/s{}");
    let flags = ["--listen", "tcp:127.0.0.1:0", "--allow"].map(OsStr::new);
    let serving = Serving::start(&[&flags[..], &[fixture.top().as_os_str()]].concat());
    let address = serving.endpoint().strip_prefix("tcp:").expect("TCP");
    let daemon = Daemon::elsewhere(address).await;
    let request = WatchSkillsRequest {
        bookmark_interval: Some(prost_types::Duration { seconds: 3, nanos: 0 }),
        ..watching(vec![selected("r", fixture.path("r"))])
    };
    let mut replica = Replica::open(&daemon, request).await;
    replica.step().await;
    assert_eq!(replica.skills.len(), 2_000);
    assert!(replica.step().await.is_bookmark);
    let (revision, before) = (replica.revision, ticks(serving.pid()));
    let begun = std::time::Instant::now();
    assert!(replica.step().await.is_bookmark, "and nothing before");
    assert!(begun.elapsed() > Duration::from_secs(2));
    assert_eq!(replica.revision, revision);
    // One search of so many skills takes ten times as long, even where it is fast.
    let spent = ticks(serving.pid()) - before;
    println!("{spent} ticks of 10 ms in {:?}", begun.elapsed());
    assert!(spent <= 3, "{spent} ticks of 10 ms in 3 s without a change");
    assert_eq!(serving.terminate().0, Some(0));
}
