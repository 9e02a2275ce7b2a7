//! The broker or the link is killed under a mirror.

use caproot::client::{Mirror, MirrorSelection, MirrorState};
use rustix::process::Signal;

use super::{LinkedExecutor, call_until_success};
use crate::harness::{in_time, published};

/// Waits for a state of the mirror.
async fn wait_for(mirror: &mut Mirror, is_expected: impl Fn(&MirrorState) -> bool) {
    in_time(async {
        while !is_expected(&mirror.snapshot().state) {
            mirror.changed().await;
        }
    })
    .await;
}

/// A mirror keeps its catalog while the broker is away, and is live again without another dial by
/// the program.
#[tokio::test]
async fn a_mirror_resumes_after_the_broker_and_after_the_link() {
    let Some(mut executor) = LinkedExecutor::start().await else { return };
    let link = executor.start_link("one", "").await;
    let fleet = executor.open_fleet().await;
    let mut root = published("root");
    root.location.as_mut().expect("a location").environment_id = "one".to_owned();
    let selection = MirrorSelection::new(vec![root]);
    let mut mirror = fleet.mirror("one", selection);
    wait_for(&mut mirror, |state| *state == MirrorState::Live).await;
    let is_stale = |state: &MirrorState| matches!(state, MirrorState::Stale { .. });
    executor.broker.replace(wait_for(&mut mirror, is_stale)).await;
    assert_eq!(mirror.snapshot().catalog.skills().count(), 1);
    wait_for(&mut mirror, |state| *state == MirrorState::Live).await;
    // The link vanishes without a message, and another link comes.
    link.send_signal(Signal::KILL);
    let other = executor.start_link("one", "").await;
    executor.pki.fixture.write("root/b/SKILL.md", "---\nname: b\ndescription: B. Use b.\n---\n");
    // The call finds the end of the tunnel, and opens another.
    call_until_success(&fleet, "one").await;
    in_time(async {
        while mirror.snapshot().catalog.skills().count() != 2 {
            mirror.changed().await;
        }
    })
    .await;
    drop((link, other));
}
