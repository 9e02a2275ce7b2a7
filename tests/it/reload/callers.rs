//! Who may ask changes, while they hold streams.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;

use caproot::proto::caproot::v1::watch_skills_response::Event;
use caproot::proto::caproot::v1::{ResetReason, WatchSkillsResponse};
use hyper_util::rt::TokioIo;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};

use super::Served;
use crate::fixture::Fixture;
use crate::harness::{Client, in_time, located, rpc_error};
use crate::watch_harness::{skill_text, watch_request};

const HEAD: &str = "listen: ['unix:run/c.sock', 'tcp:127.0.0.1:0']\n\
                    roots: [{id: r, path: r}, {id: s, path: s}]\n";
const TREE: &str = "dir run\nmode 0700 run\nskill r/a\nskill s/b\nfile 1.token\n| one\n\
                    file 2.token\n| two";

/// One stream of both roots.
struct Watch(Streaming<WatchSkillsResponse>);

impl Watch {
    async fn open(mut client: Client, token: Option<&str>) -> Result<Self, Status> {
        let roots = ["r", "s"].map(|id| located(id, &format!("published:{id}")));
        let mut request = Request::new(watch_request(roots.to_vec()));
        if let Some(token) = token {
            let value = format!("Bearer {token}").parse().expect("a header's value");
            request.metadata_mut().insert("authorization", value);
        }
        in_time(client.watch_skills(request)).await.map(|answer| Self(answer.into_inner()))
    }

    /// Goes on to the next state: whether it began anew, and what came and went.
    async fn synced(&mut self) -> Result<(Option<ResetReason>, Vec<String>), Status> {
        let (mut reset, mut news) = (None, Vec::new());
        loop {
            let response = in_time(self.0.message()).await?.expect("it ends with a status");
            match response.event.expect("an event") {
                Event::Reset(why) => reset = Some(why.reason()),
                Event::Delta(delta) => {
                    news.extend(delta.removed.into_iter().map(|gone| format!("-{}", gone.package)));
                    news.extend(delta.upserted.into_iter().map(|skill| skill.package));
                }
                Event::Synced(_) => return Ok((reset, news)),
                _ => {}
            }
        }
    }

    /// All up to the end.
    async fn end(mut self) -> (Code, String) {
        loop {
            if let Err(status) = self.synced().await {
                let refused = rpc_error(&status);
                return (refused.code, refused.reason);
            }
        }
    }
}

/// A client of its own on the Unix socket.
async fn local(served: &Served) -> Client {
    let stream = UnixStream::connect(served.fixture.path("run/c.sock")).expect("a connection");
    stream.set_nonblocking(true).expect("a socket");
    let mut stream = Some(tokio::net::UnixStream::from_std(stream).expect("a socket"));
    let connector = tower::service_fn(move |_| {
        let stream = stream.take().ok_or_else(|| std::io::Error::other("connected once"));
        async move { stream.map(TokioIo::new) }
    });
    let endpoint = Endpoint::from_static("http://localhost");
    let channel: Channel =
        in_time(endpoint.connect_with_connector(connector)).await.expect("HTTP/2");
    Client::new(channel)
}

async fn start(rules: &str) -> Served {
    let fixture = Fixture::new(TREE);
    for token in ["1.token", "2.token"] {
        fs::set_permissions(fixture.path(token), Permissions::from_mode(0o600)).expect("a mode");
    }
    fixture.write("caproot.yaml", format!("{HEAD}{rules}"));
    let file = fixture.path("caproot.yaml");
    Served::begin(fixture, |command| command.arg("--config").arg(file)).await
}

const ONE: &str = "{name: one, token_file: 1.token}";
const TWO: &str = "{name: two, token_file: 2.token}";

#[tokio::test]
async fn who_is_let_in_no_more_loses_the_streams_and_nobody_else_does() {
    let uid = rustix::process::geteuid().as_raw();
    let local_rule = format!("{{name: local, uids: [{uid}]}}");
    let mut served = start(&format!("callers: [{ONE}, {TWO}, {local_rule}]")).await;
    let tcp = served.daemon.client.clone();
    let mut one = Watch::open(tcp.clone(), Some("one")).await.expect("let in");
    let mut two = Watch::open(tcp.clone(), Some("two")).await.expect("let in");
    let mut local = Watch::open(local(&served).await, None).await.expect("let in");
    for watch in [&mut one, &mut two, &mut local] {
        let all = ["skill://r/a", "skill://s/b"].map(str::to_owned).to_vec();
        assert_eq!(watch.synced().await.expect("goes on").1, all);
    }
    served.hangup(&format!("{HEAD}callers: [{TWO}, {{name: local, uids: [{}]}}]", uid + 1)).await;
    let unknown = (Code::Unauthenticated, "CALLER_UNKNOWN".to_owned());
    assert_eq!(one.end().await, unknown);
    let not_allowed = (Code::PermissionDenied, "CALLER_NOT_ALLOWED".to_owned());
    assert_eq!(local.end().await, not_allowed);
    let again = Watch::open(tcp.clone(), Some("one")).await.err().expect("refused");
    assert_eq!(again.code(), Code::Unauthenticated);
    served.fixture.write("r/c/SKILL.md", skill_text("c", "New."));
    assert_eq!(two.synced().await.expect("goes on"), (None, vec!["skill://r/c".to_owned()]));
    // A token that was replaced counts at the next reload.
    served.fixture.replace("2.token", "other\n");
    let mode = Permissions::from_mode(0o600);
    fs::set_permissions(served.fixture.path("2.token"), mode).expect("a mode");
    served.hangup(&format!("{HEAD}callers: [{TWO}]")).await;
    assert_eq!(two.end().await, unknown);
    served.stop().await;
}

#[tokio::test]
async fn one_who_reads_nothing_is_cut_off_too() {
    let mut served = start(&format!("callers: [{ONE}]\nlimits: {{max_streams: 1}}")).await;
    let tcp = served.daemon.client.clone();
    let deaf = Watch::open(tcp.clone(), Some("one")).await.expect("let in");
    served.hangup(&format!("{HEAD}callers: [{TWO}]\nlimits: {{max_streams: 1}}")).await;
    // Its place is free, though it never looked.
    in_time(async {
        while Watch::open(tcp.clone(), Some("two")).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(deaf.end().await.0, Code::Unauthenticated);
    served.stop().await;
}

#[tokio::test]
async fn one_who_is_bound_otherwise_is_told_the_difference() {
    let bound = |roots: &str| format!("callers: [{{name: one, token_file: 1.token, {roots}}}]");
    let mut served = start(&bound("roots: [r]")).await;
    let mut one = Watch::open(served.daemon.client.clone(), Some("one")).await.expect("let in");
    let (reset, news) = one.synced().await.expect("goes on");
    assert_eq!((reset, news), (Some(ResetReason::Initial), vec!["skill://r/a".to_owned()]));
    for (roots, news) in [
        ("roots: [r, s]", "skill://s/b"),
        ("roots: [s]", "-skill://r/a"),
        ("roots: [r, s]", "skill://r/a"),
        ("roots: [r]", "-skill://s/b"),
    ] {
        served.hangup(&format!("{HEAD}{}", bound(roots))).await;
        loop {
            let (reset, told) = one.synced().await.expect("goes on");
            assert_eq!(reset, None);
            // The state of a root may come by itself.
            if !told.is_empty() {
                assert_eq!(told, [news], "{roots}");
                break;
            }
        }
    }
    served.stop().await;
}
