//! Applied config changes, and their effect on open streams.

use caproot_core::proto::caproot::v1::{RemovalReason, RootReason, RootState, WatchSkillsRequest};
use tonic::Code;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;

use super::ReloadingDaemon;
use crate::harness::replica::Replica;
use crate::harness::watch_harness::{skill_text, watch_request};
use crate::harness::{assert_rpc_error, in_time, list_request, located, read_request, selected};

const TREE: &str = "skill r/a\nskill r/b\nskill s/c\nskill t/d";
const PLAIN: &str = "roots: [{id: r, path: r}]";

fn watch_published(ids: &[&str]) -> WatchSkillsRequest {
    watch_request(
        ids.iter()
            .map(|id| located(id, &format!("published:{id}")))
            .collect(),
    )
}

#[tokio::test]
async fn streams_continue_and_report_changes() {
    let mut process = ReloadingDaemon::start(TREE, PLAIN).await;
    let mut replica = Replica::open(&process.daemon, watch_published(&["r", "s"])).await;
    assert_eq!(
        replica.next_batch().await.upserted,
        ["skill://r/a", "skill://r/b"]
    );
    assert_eq!(replica.roots["s"].reason(), RootReason::InvalidPath);
    let off = "disabled_skills: [{root: r, path: b}]";
    process.reload(&format!("{PLAIN}\n{off}")).await;
    let step = replica.next_change().await;
    assert_eq!(
        step.removed,
        [("skill://r/b".to_owned(), RemovalReason::Disabled)]
    );
    assert_eq!(step.reset, None, "an ordinary change");
    let both = "roots: [{id: r, path: r}, {id: s, path: s}]";
    process.reload(both).await;
    while replica.skills.len() < 3 {
        assert_eq!(replica.next_change().await.reset, None);
    }
    // The root changes to the path of another root, and back.
    process
        .reload("roots: [{id: r, path: t}, {id: s, path: s}]")
        .await;
    while !replica.skills.contains_key("skill://r/d") {
        assert_eq!(replica.next_change().await.reset, None);
    }
    replica.catch_up(&process.daemon).await;
    process.reload("roots: [{id: s, path: s}]").await;
    while !replica.skills.keys().eq(["skill://s/c"]) {
        let step = replica.next_change().await;
        assert!(
            step.removed
                .iter()
                .all(|(_, why)| *why == RemovalReason::RootUnavailable)
        );
    }
    assert_eq!(replica.roots["r"].state(), RootState::Unavailable);
    process.reload(both).await;
    replica.wait_while(|replica| replica.skills.len() < 3).await;
    // The root is watched again.
    process
        .fixture
        .write("r/e/SKILL.md", skill_text("e", "New."));
    assert_eq!(replica.next_change().await.upserted, ["skill://r/e"]);
    replica.catch_up(&process.daemon).await;
    process.stop().await;
}

#[tokio::test]
async fn stale_skills_stay_stale_after_a_reload() {
    let mut process = ReloadingDaemon::start(TREE, PLAIN).await;
    let mut replica = Replica::synced(&process.daemon, watch_published(&["r"])).await;
    process.fixture.write("r/a/SKILL.md", "---\nname: [\n");
    replica
        .wait_while(|replica| !replica.skills["skill://r/a"].stale)
        .await;
    // The snapshot of the allowed directories changes: another directory is sorted before the
    // root's.
    process
        .reload("roots: [{id: r, path: r}, {id: a, path: a}]\nallow: [t]")
        .await;
    replica.catch_up(&process.daemon).await;
    assert!(
        replica.skills["skill://r/a"].stale,
        "the last valid skill is kept"
    );
    process.stop().await;
}

#[tokio::test]
async fn a_resume_token_is_valid_only_if_the_roots_are_unchanged() {
    let mut process = ReloadingDaemon::start(
        TREE,
        "roots: [{id: r, path: r}, {id: s, path: s}]\nallow: [t]",
    )
    .await;
    let replica = Replica::synced(&process.daemon, watch_published(&["r", "s"])).await;
    let mut same = replica.fork();
    process
        .reload("roots: [{id: r, path: r}, {id: s, path: s}]\ndisabled_skills: [{name: a}]")
        .await;
    same.resume(&process.daemon).await;
    let step = same.next_change().await;
    assert_eq!(
        (step.reset, step.removed.len()),
        (None, 1),
        "the roots are unchanged"
    );
    let request = list_request(&[located("r", "published:r")]);
    let page = process
        .daemon
        .try_list(caproot_core::proto::caproot::v1::ListSkillsRequest {
            page_size: 1,
            selected_capability_roots: vec![
                located("r", "published:r"),
                located("s", "published:s"),
            ],
            ..request
        });
    let page = page.await.expect("a page");
    // The roots swap their paths. Both were known before.
    process
        .reload("roots: [{id: r, path: s}, {id: s, path: r}]")
        .await;
    let request = caproot_core::proto::caproot::v1::ListSkillsRequest {
        page_size: 1,
        page_token: page.next_page_token,
        ..list_request(&[located("r", "published:r"), located("s", "published:s")])
    };
    let refused = process.daemon.try_list(request).await;
    assert_rpc_error(refused, Code::Aborted, "CATALOG_CHANGED", None);
    same.resume(&process.daemon).await;
    assert!(
        same.next_change().await.reset.is_some(),
        "a different root is a reset"
    );
    same.catch_up(&process.daemon).await;
    assert_eq!(
        same.skills.keys().collect::<Vec<_>>(),
        ["skill://r/c", "skill://s/a", "skill://s/b"]
    );
    process.stop().await;
}

#[tokio::test]
async fn environments_and_allowed_directories_are_applied() {
    let mut process = ReloadingDaemon::start(TREE, PLAIN).await;
    let s = [selected("s", process.fixture.path("s"))];
    assert_eq!(
        process.daemon.list(&s).await.roots[0].reason(),
        RootReason::NotAllowed
    );
    // The allowed directory is next to a published root, so the sandbox already permits it.
    process
        .reload("allow: [s]\nroots: [{id: r, path: r}]")
        .await;
    let list = process.daemon.list(&s).await;
    assert_eq!(list.skills.len(), 1, "{:?}", list.roots);
    process.reload("environment_ids: [one, two]").await;
    assert_eq!(
        process.daemon.executor().await.environment_ids,
        ["one", "two"]
    );
    assert_eq!(
        process.daemon.list(&s).await.roots[0].reason(),
        RootReason::WrongEnvironment
    );
    process.reload(PLAIN).await;
    assert_eq!(
        process.daemon.list(&s).await.roots[0].reason(),
        RootReason::NotAllowed
    );
    let read = process
        .daemon
        .read(read_request(&s[0], "skill://s/c", ""))
        .await;
    assert_rpc_error(read, Code::PermissionDenied, "ROOT_NOT_ALLOWED", None);
    process.stop().await;
}

#[tokio::test]
async fn keys_of_the_process_wait_for_a_restart() {
    let mut process = ReloadingDaemon::start(TREE, PLAIN).await;
    let before = process.daemon.executor().await;
    let keys = "limits: {max_roots: 1, max_skills: 1}\nwatch: {debounce: 1ms}\naudit: true\n\
                search: {excluded_dirs: [a]}";
    process
        .reload(&format!("{PLAIN}\n{keys}\nlog: {{filter: debug}}"))
        .await;
    assert_eq!(
        process.config().await.restart_required,
        ["audit", "search", "limits", "watch"]
    );
    assert_eq!(process.daemon.executor().await.limits, before.limits);
    let list = process.daemon.list(&[located("r", "published:r")]).await;
    assert_eq!(list.skills.len(), 2);
    // The filter of the log is applied.
    process.process.wait_for_log("DEBUG").await;
    process.reload(PLAIN).await;
    assert!(process.config().await.restart_required.is_empty());
    process.stop().await;
}

#[tokio::test]
async fn reflection_access_is_applied() {
    let rules = "callers: [{name: other, sans: [a.example]}]";
    let mut process = ReloadingDaemon::start(TREE, PLAIN).await;
    let channel =
        tonic::transport::Endpoint::from_shared(format!("http://{}", process.daemon.address));
    let channel = channel
        .expect("an address")
        .connect()
        .await
        .expect("connected");
    let ask = async || {
        let request = tokio_stream::once(ServerReflectionRequest::default());
        let mut client = ServerReflectionClient::new(channel.clone());
        in_time(client.server_reflection_info(request))
            .await
            .map(drop)
    };
    ask().await.expect("open to all");
    process.try_reload(&format!("{PLAIN}\n{rules}")).await;
    assert_eq!(
        ask().await.expect_err("closed").code(),
        Code::Unauthenticated
    );
    process
        .try_reload(&format!("{PLAIN}\n{rules}\nopen_reflection: true"))
        .await;
    ask().await.expect("open to all");
    process.stop().await;
}
