//! Debounce of changes, and limits of streams, history and diagnostics.

use std::time::{Duration, Instant};

use caproot_core::proto::caproot::v1::watch_skills_response::Event;
use caproot_core::proto::caproot::v1::{
    ListSkillsRequest, ListSkillsResponse, WatchSkillsResponse,
};
use tonic::{Code, Status, Streaming};

use crate::harness::fixture::Fixture;
use crate::harness::process::ConfiguredDaemon;
use crate::harness::watch_harness::watch_request;
use crate::harness::{Daemon, assert_rpc_error, in_time, list_request, published};

const ROOT: &str = "roots: [{id: r, path: root}]\n";

/// Watches the root `r`.
async fn watch_root(served: &Daemon) -> Result<Streaming<WatchSkillsResponse>, Status> {
    served.watch(watch_request(vec![published("r")])).await
}

/// Lists the root `r`.
async fn list_page(
    served: &Daemon,
    page_size: i32,
    page_token: &str,
) -> Result<ListSkillsResponse, Status> {
    let page_token = page_token.into();
    let request = list_request(&[published("r")]);
    served
        .try_list(ListSkillsRequest {
            page_size,
            page_token,
            ..request
        })
        .await
}

async fn wait_until_synced(stream: &mut Streaming<WatchSkillsResponse>) {
    loop {
        let message = in_time(stream.message())
            .await
            .expect("a stream")
            .expect("an event");
        if matches!(message.event, Some(Event::Synced(_))) {
            return;
        }
    }
}

fn write_skill(fixture: &Fixture, number: u32) {
    let text = format!("---\nname: a\ndescription: Number {number}.\n---\n");
    fixture.write("root/a/SKILL.md", text);
}

#[tokio::test]
async fn debounce_and_max_debounce_delay_changes() {
    let fixture = Fixture::new("skill root/a");
    let timing = "watch: {debounce: 700ms, max_debounce: 2s}";
    let served = ConfiguredDaemon::start(&fixture, &format!("{ROOT}{timing}")).await;
    let mut stream = watch_root(&served).await.expect("a stream");
    wait_until_synced(&mut stream).await;
    let begun = Instant::now();
    write_skill(&fixture, 0);
    wait_until_synced(&mut stream).await;
    let took = begun.elapsed();
    assert!(
        took >= Duration::from_millis(650),
        "after the last event: {took:?}"
    );
    // The changes never pause, so `max_debounce` decides.
    let begun = Instant::now();
    let storm = async {
        for number in 1.. {
            write_skill(&fixture, number);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::select! {
        () = storm => {}
        () = wait_until_synced(&mut stream) => {}
    }
    let took = begun.elapsed();
    assert!(
        took >= Duration::from_millis(1_900),
        "after the first event: {took:?}"
    );
}

#[tokio::test]
async fn max_streams_limits_open_streams() {
    let fixture = Fixture::new("skill root/a");
    let served =
        ConfiguredDaemon::start(&fixture, &format!("{ROOT}limits: {{max_streams: 2}}")).await;
    assert_eq!(
        served.executor().await.limits.expect("limits").max_streams,
        2
    );
    let one = watch_root(&served).await.expect("a stream");
    let _two = watch_root(&served).await.expect("another");
    assert_rpc_error(
        watch_root(&served).await,
        Code::ResourceExhausted,
        "TOO_MANY_STREAMS",
        None,
    );
    drop(one);
}

#[tokio::test]
async fn max_history_limits_how_long_page_tokens_work() {
    for (limit, is_known) in [(1, false), (8, true)] {
        let fixture = Fixture::new("skill root/a\nskill root/b");
        let config = format!("{ROOT}limits: {{max_history: {limit}}}");
        let served = ConfiguredDaemon::start(&fixture, &config).await;
        assert_eq!(
            served.executor().await.limits.expect("limits").max_history,
            limit
        );
        let first = list_page(&served, 1, "").await.expect("a page");
        let mut stream = watch_root(&served).await.expect("a stream");
        wait_until_synced(&mut stream).await;
        write_skill(&fixture, 0);
        wait_until_synced(&mut stream).await;
        let next = list_page(&served, 1, &first.next_page_token).await;
        if is_known {
            assert_eq!(next.expect("a page").revision, first.revision);
        } else {
            assert_rpc_error(next, Code::Aborted, "CATALOG_CHANGED", None);
        }
    }
}

#[tokio::test]
async fn max_diagnostics_limits_the_list() {
    let fixture = Fixture::new("repeat 5 file root/{}/SKILL.md\n| no frontmatter");
    let config = format!("{ROOT}limits: {{max_diagnostics: 2}}");
    let served = ConfiguredDaemon::start(&fixture, &config).await;
    assert_eq!(
        served
            .executor()
            .await
            .limits
            .expect("limits")
            .max_diagnostics,
        2
    );
    let list = list_page(&served, 0, "").await.expect("a page");
    assert_eq!(list.diagnostics.len(), 2);
    assert_eq!(list.roots[0].counts.expect("counts").diagnostics, 5);
}

#[tokio::test]
async fn a_skill_that_becomes_disabled_is_removed_with_this_reason() {
    let fixture = Fixture::new("skill root/a");
    let off = "disabled_skills: [{name: gone}]";
    let served = ConfiguredDaemon::start(&fixture, &format!("{ROOT}{off}")).await;
    let mut stream = watch_root(&served).await.expect("a stream");
    wait_until_synced(&mut stream).await;
    fixture.write(
        "root/a/SKILL.md",
        "---\nname: gone\ndescription: Off.\n---\n",
    );
    let removed = loop {
        let message = in_time(stream.message())
            .await
            .expect("a stream")
            .expect("an event");
        if let Some(Event::Delta(delta)) = message.event {
            break delta.removed;
        }
    };
    let removed: Vec<_> = removed.iter().map(|r| (&*r.package, r.reason())).collect();
    let reason = caproot_core::proto::caproot::v1::RemovalReason::Disabled;
    assert_eq!(removed, [("skill://r/a", reason)]);
    assert!(served.packages(&[published("r")]).await.is_empty());
}
