//! What a new file changes while the daemon runs, and what those see who hold a stream.

use caproot::proto::caproot::v1::{RemovalReason, RootReason, RootState, WatchSkillsRequest};
use tonic::Code;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;

use super::Served;
use crate::harness::{
    assert_rpc_error, connect, in_time, list_request, located, read_request, selected,
};
use crate::watch_harness::{skill_text, watch_request};
use crate::replica::Replica;

const TREE: &str = "skill r/a\nskill r/b\nskill s/c\nskill t/d";
const PLAIN: &str = "roots: [{id: r, path: r}]";

fn published(ids: &[&str]) -> WatchSkillsRequest {
    watch_request(ids.iter().map(|id| located(id, &format!("published:{id}"))).collect())
}

#[tokio::test]
async fn streams_go_on_and_see_what_changed() {
    let mut served = Served::start(TREE, PLAIN).await;
    let mut replica = Replica::open(&served.daemon, published(&["r", "s"])).await;
    assert_eq!(replica.next_batch().await.upserted, ["skill://r/a", "skill://r/b"]);
    assert_eq!(replica.roots["s"].reason(), RootReason::InvalidPath);
    let off = "disabled_skills: [{root: r, path: b}]";
    served.reload(&format!("{PLAIN}\n{off}")).await;
    let step = replica.next_change().await;
    assert_eq!(step.removed, [("skill://r/b".to_owned(), RemovalReason::Disabled)]);
    assert_eq!(step.reset, None, "an ordinary change");
    let both = "roots: [{id: r, path: r}, {id: s, path: s}]";
    served.reload(both).await;
    while replica.skills.len() < 3 {
        assert_eq!(replica.next_change().await.reset, None);
    }
    // The other root's path, and back again.
    served.reload("roots: [{id: r, path: t}, {id: s, path: s}]").await;
    while !replica.skills.contains_key("skill://r/d") {
        assert_eq!(replica.next_change().await.reset, None);
    }
    replica.catch_up(&served.daemon).await;
    served.reload("roots: [{id: s, path: s}]").await;
    while !replica.skills.keys().eq(["skill://s/c"]) {
        let step = replica.next_change().await;
        assert!(step.removed.iter().all(|(_, why)| *why == RemovalReason::RootUnavailable));
    }
    assert_eq!(replica.roots["r"].state(), RootState::Unavailable);
    served.reload(both).await;
    while replica.skills.len() < 3 {
        replica.next_change().await;
    }
    // It is looked after as before.
    served.fixture.write("r/e/SKILL.md", skill_text("e", "New."));
    assert_eq!(replica.next_change().await.upserted, ["skill://r/e"]);
    replica.catch_up(&served.daemon).await;
    served.stop().await;
}

#[tokio::test]
async fn what_no_longer_parses_stays_stale() {
    let mut served = Served::start(TREE, PLAIN).await;
    let mut replica = Replica::open(&served.daemon, published(&["r"])).await;
    replica.next_batch().await;
    served.fixture.write("r/a/SKILL.md", "---\nname: [\n");
    while !replica.skills["skill://r/a"].stale {
        replica.next_change().await;
    }
    // The ground is another one: a directory comes before that of the root.
    served.reload("roots: [{id: r, path: r}, {id: a, path: a}]\nallow: [t]").await;
    replica.catch_up(&served.daemon).await;
    assert!(replica.skills["skill://r/a"].stale, "what it last said is still known");
    served.stop().await;
}

#[tokio::test]
async fn a_token_of_before_means_what_it_meant() {
    let mut served =
        Served::start(TREE, "roots: [{id: r, path: r}, {id: s, path: s}]\nallow: [t]").await;
    let mut replica = Replica::open(&served.daemon, published(&["r", "s"])).await;
    replica.next_batch().await;
    let mut same = replica.fork();
    served
        .reload("roots: [{id: r, path: r}, {id: s, path: s}]\ndisabled_skills: [{name: a}]")
        .await;
    same.resume(&served.daemon).await;
    let step = same.next_change().await;
    assert_eq!((step.reset, step.removed.len()), (None, 1), "the roots are those they were");
    let request = list_request(&[located("r", "published:r")]);
    let page = served.daemon.try_list(caproot::proto::caproot::v1::ListSkillsRequest {
        page_size: 1,
        selected_capability_roots: vec![located("r", "published:r"), located("s", "published:s")],
        ..request
    });
    let page = page.await.expect("a page");
    // Each is now what the other was, and both are known.
    served.reload("roots: [{id: r, path: s}, {id: s, path: r}]").await;
    let request = caproot::proto::caproot::v1::ListSkillsRequest {
        page_size: 1,
        page_token: page.next_page_token,
        ..list_request(&[located("r", "published:r"), located("s", "published:s")])
    };
    let refused = served.daemon.try_list(request).await;
    assert_rpc_error(refused, Code::Aborted, "CATALOG_CHANGED", None);
    same.resume(&served.daemon).await;
    assert!(same.next_change().await.reset.is_some(), "another root is no difference");
    same.catch_up(&served.daemon).await;
    assert_eq!(
        same.skills.keys().collect::<Vec<_>>(),
        ["skill://r/c", "skill://s/a", "skill://s/b"]
    );
    served.stop().await;
}

#[tokio::test]
async fn environments_names_and_allowed_directories() {
    let mut served = Served::start(&format!("{TREE}\nskill r/n/x"), PLAIN).await;
    let s = [selected("s", served.fixture.path("s"))];
    assert_eq!(served.daemon.list(&s).await.roots[0].reason(), RootReason::NotAllowed);
    // Beside a root that was published at the start, so that no sandbox is in the way.
    served.reload("allow: [s]\nroots: [{id: r, path: r}]\nsearch: {excluded_dirs: [n]}").await;
    assert_eq!(served.daemon.list(&s).await.skills.len(), 1);
    assert_eq!(served.daemon.list(&[located("r", "published:r")]).await.skills.len(), 2);
    served.reload("environment_ids: [one, two]").await;
    assert_eq!(served.executor().await.environment_ids, ["one", "two"]);
    assert_eq!(served.daemon.list(&s).await.roots[0].reason(), RootReason::WrongEnvironment);
    served.reload(PLAIN).await;
    assert_eq!(served.daemon.list(&s).await.roots[0].reason(), RootReason::NotAllowed);
    let read = served.daemon.read(read_request(&s[0], "skill://s/c", "")).await;
    assert_rpc_error(read, Code::PermissionDenied, "ROOT_NOT_ALLOWED", None);
    served.stop().await;
}

#[tokio::test]
async fn limits_log_and_reflection() {
    let mut served = Served::start(TREE, PLAIN).await;
    let two = [located("r", "published:r"), located("q", "published:q")];
    served.daemon.list(&two).await;
    let limits =
        "limits: {max_roots: 1, max_streams: 1, max_skills: 1, max_calls: 7, max_history: 2}";
    served
        .reload(&format!("{PLAIN}\n{limits}\nlog: {{filter: debug}}\nopen_reflection: true"))
        .await;
    let list = served.daemon.try_list(list_request(&two)).await;
    assert_rpc_error(
        list,
        Code::InvalidArgument,
        "TOO_MANY_ROOTS",
        Some("selected_capability_roots"),
    );
    let list = served.daemon.list(&two[..1]).await;
    assert_eq!((list.skills.len(), list.roots[0].truncated), (1, true));
    let told = served.executor().await.limits.expect("limits");
    assert_eq!((told.max_streams, told.max_calls, told.max_request_bytes), (1, 7, 70_656));
    let _open = Replica::open(&served.daemon, published(&["r"])).await;
    let second = in_time(served.daemon.client.clone().watch_skills(published(&["r"]))).await;
    let refused = assert_rpc_error(second, Code::ResourceExhausted, "TOO_MANY_STREAMS", None);
    assert_eq!(refused.metadata["limit"], "1");
    served.says(&["DEBUG"]).await;
    // Larger ones count as well, to the bytes of a request.
    served.reload(&format!("{PLAIN}\nlimits: {{max_roots: 1024}}")).await;
    let many: Vec<_> =
        (0..1_000).map(|n| located(&format!("{n}"), &format!("/{}", "x".repeat(2_000)))).collect();
    assert_eq!(served.daemon.list(&many).await.roots.len(), 1_000);
    served.stop().await;
}

#[tokio::test]
async fn reflection_and_audit() {
    let rules = "callers: [{name: nobody, sans: [a.example]}]";
    let mut served = Served::start(TREE, PLAIN).await;
    let channel =
        tonic::transport::Endpoint::from_shared(format!("http://{}", served.daemon.address));
    let channel = channel.expect("an address").connect().await.expect("connected");
    let ask = async || {
        let request = tokio_stream::once(ServerReflectionRequest::default());
        let mut client = ServerReflectionClient::new(channel.clone());
        in_time(client.server_reflection_info(request)).await.map(drop)
    };
    ask().await.expect("open to all");
    served.hangup(&format!("{PLAIN}\n{rules}")).await;
    assert_eq!(ask().await.expect_err("closed").code(), Code::Unauthenticated);
    served.hangup(&format!("{PLAIN}\n{rules}\nopen_reflection: true")).await;
    ask().await.expect("open to all");
    served.hangup(&format!("{PLAIN}\naudit: true\nlog: {{filter: error}}")).await;
    let address = served.daemon.address.clone();
    let mut client = connect(&address).await;
    in_time(client.list_skills(list_request(&[]))).await.expect("a list");
    let line = served.says(&["caproot::audit: call"]).await;
    assert!(line.contains("ListSkills"), "{line}");
    served.stop().await;
}
