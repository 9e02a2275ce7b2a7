//! A daemon that gets next to no processor time.

use std::time::Duration;

use caproot_core::proto::caproot::v1::{RootState, RootStatus};
use rustix::process::Signal;

use crate::harness::fixture::Fixture;
use crate::harness::process::Process;
use crate::harness::replica::Replica;
use crate::harness::selected;
use crate::harness::watch_harness::watch_request;

#[tokio::test]
async fn a_lack_of_processor_time_is_no_broken_disk() {
    let fixture = Fixture::new("repeat 4000 skill r/s{}");
    let (serving, daemon) = Process::allowing(fixture.top()).await;
    let root = selected("r", fixture.path("r"));
    let mut replica = Replica::open(&daemon, watch_request(vec![root])).await;

    // The daemon runs for moments, and does not run for longer than `stuck_timeout` in between.
    let starve = async {
        for _ in 0..2 {
            tokio::time::sleep(Duration::from_millis(4)).await;
            serving.send_signal(Signal::STOP);
            tokio::time::sleep(Duration::from_millis(5_500)).await;
            serving.send_signal(Signal::CONT);
        }
    };
    let follow = async {
        while replica
            .roots
            .get("r")
            .is_none_or(|r| r.state() != RootState::Ready)
        {
            replica.next_batch().await;
            let state = replica.roots.get("r").map(RootStatus::state);
            assert_ne!(state, Some(RootState::Unavailable));
        }
    };
    tokio::join!(starve, follow);

    assert_eq!(replica.skills.len(), 4_000);
    drop((replica, daemon));
    serving.stop().await;
}
