//! The broker or the link is killed under a mirror.

use rustix::process::Signal;

use super::{
    LinkedExecutor, call_until_success, is_stale, mirror_one, wait_for, wait_until_live_with,
};

/// A mirror keeps its catalog while the broker is away, and is live again without another dial by
/// the program.
#[tokio::test]
async fn a_mirror_resumes_after_the_broker_and_after_the_link() {
    let Some(mut executor) = LinkedExecutor::start().await else {
        return;
    };
    let link = executor.start_link("one", "").await;
    let fleet = executor.open_fleet().await;
    let mut mirror = mirror_one(&fleet);
    wait_until_live_with(&mut mirror, 1).await;
    executor.broker.kill();
    wait_for(&mut mirror, is_stale).await;
    executor.broker.restart().await;
    assert_eq!(mirror.snapshot().catalog.skill_count(), 1);
    wait_until_live_with(&mut mirror, 1).await;
    // The link vanishes without a message, and another link comes.
    link.send_signal(Signal::KILL);
    let other = executor.start_link("one", "").await;
    executor.add_skill("b");
    // The call finds the end of the tunnel, and opens another.
    call_until_success(&fleet, "one").await;
    wait_until_live_with(&mut mirror, 2).await;
    drop((link, other));
}
