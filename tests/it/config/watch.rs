//! Debounce of changes, and limits of streams, history and diagnostics.

use std::time::{Duration, Instant};

use caproot::proto::caproot::v1::watch_skills_response::Event;
use caproot::proto::caproot::v1::{
    ListSkillsRequest, ListSkillsResponse, WatchSkillsRequest, WatchSkillsResponse,
};
use tonic::{Code, Status, Streaming};

use super::{ConfiguredDaemon, published};
use crate::fixture::Fixture;
use crate::harness::{assert_refused, in_time, list_request};

const ROOT: &str = "roots: [{id: r, path: root}]\n";

impl ConfiguredDaemon {
    /// Watches the root `r`.
    async fn watch(&self) -> Result<Streaming<WatchSkillsResponse>, Status> {
        let roots = vec![published("r")];
        let request = WatchSkillsRequest { selected_capability_roots: roots, ..Default::default() };
        in_time(self.client().watch_skills(request)).await.map(tonic::Response::into_inner)
    }

    async fn page(&self, page_size: i32, page_token: &str) -> Result<ListSkillsResponse, Status> {
        let request = ListSkillsRequest {
            page_size,
            page_token: page_token.into(),
            ..list_request(&[published("r")])
        };
        in_time(self.client().list_skills(request)).await.map(tonic::Response::into_inner)
    }
}

async fn wait_until_synced(stream: &mut Streaming<WatchSkillsResponse>) {
    loop {
        let message = in_time(stream.message()).await.expect("a stream").expect("an event");
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
    let watch = "watch: {debounce: 700ms, max_debounce: 2s}";
    let served = ConfiguredDaemon::start(&fixture, &format!("{ROOT}{watch}")).await;
    let mut stream = served.watch().await.expect("a stream");
    wait_until_synced(&mut stream).await;
    let begun = Instant::now();
    write_skill(&fixture, 0);
    wait_until_synced(&mut stream).await;
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(650), "after the last event: {took:?}");
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
    assert!(took >= Duration::from_millis(1_900), "after the first event: {took:?}");
}

#[tokio::test]
async fn max_streams_limits_open_streams() {
    let fixture = Fixture::new("skill root/a");
    let served =
        ConfiguredDaemon::start(&fixture, &format!("{ROOT}limits: {{max_streams: 2}}")).await;
    assert_eq!(served.executor().await.limits.expect("limits").max_streams, 2);
    let one = served.watch().await.expect("a stream");
    let _two = served.watch().await.expect("another");
    assert_refused(served.watch().await, Code::ResourceExhausted, "TOO_MANY_STREAMS", None);
    drop(one);
}

#[tokio::test]
async fn max_history_limits_how_long_page_tokens_work() {
    for (limit, is_known) in [(1, false), (8, true)] {
        let fixture = Fixture::new("skill root/a\nskill root/b");
        let config = format!("{ROOT}limits: {{max_history: {limit}}}");
        let served = ConfiguredDaemon::start(&fixture, &config).await;
        assert_eq!(served.executor().await.limits.expect("limits").max_history, limit);
        let first = served.page(1, "").await.expect("a page");
        let mut stream = served.watch().await.expect("a stream");
        wait_until_synced(&mut stream).await;
        write_skill(&fixture, 0);
        wait_until_synced(&mut stream).await;
        let next = served.page(1, &first.next_page_token).await;
        if is_known {
            assert_eq!(next.expect("a page").revision, first.revision);
        } else {
            assert_refused(next, Code::Aborted, "CATALOG_CHANGED", None);
        }
    }
}

#[tokio::test]
async fn max_diagnostics_limits_the_list() {
    let fixture = Fixture::new("repeat 5 file root/{}/SKILL.md\n| no frontmatter");
    let config = format!("{ROOT}limits: {{max_diagnostics: 2}}");
    let served = ConfiguredDaemon::start(&fixture, &config).await;
    assert_eq!(served.executor().await.limits.expect("limits").max_diagnostics, 2);
    let list = served.page(0, "").await.expect("a page");
    assert_eq!(list.diagnostics.len(), 2);
    assert_eq!(list.roots[0].counts.expect("counts").diagnostics, 5);
}

#[tokio::test]
async fn a_skill_that_becomes_disabled_is_removed_with_this_reason() {
    let fixture = Fixture::new("skill root/a");
    let off = "disabled_skills: [{name: gone}]";
    let served = ConfiguredDaemon::start(&fixture, &format!("{ROOT}{off}")).await;
    let mut stream = served.watch().await.expect("a stream");
    wait_until_synced(&mut stream).await;
    fixture.write("root/a/SKILL.md", "---\nname: gone\ndescription: Off.\n---\n");
    let removed = loop {
        let message = in_time(stream.message()).await.expect("a stream").expect("an event");
        if let Some(Event::Delta(delta)) = message.event {
            break delta.removed;
        }
    };
    let removed: Vec<_> = removed.iter().map(|r| (&*r.package, r.reason())).collect();
    let reason = caproot::proto::caproot::v1::RemovalReason::Disabled;
    assert_eq!(removed, [("skill://r/a", reason)]);
    assert!(served.packages(&[published("r")]).await.is_empty());
}
