//! Changes to `callers` while clients have open streams.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;

use caproot_core::proto::caproot::v1::watch_skills_response::Event;
use caproot_core::proto::caproot::v1::{ResetReason, WatchSkillsResponse};
use hyper_util::rt::TokioIo;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};

use super::{APPLIED, REJECTED, ReloadingDaemon};
use crate::harness::fixture::Fixture;
use crate::harness::process::serve_config;
use crate::harness::watch_harness::{skill_text, watch_request};
use crate::harness::{Client, in_time, located, rpc_error};

const CONFIG_HEAD: &str = "listen: ['unix:run/c.sock', 'tcp:127.0.0.1:0']\n\
                    roots: [{id: r, path: r}, {id: s, path: s}]\n";
const TREE: &str = "dir run\nmode 0700 run\nskill r/a\nskill s/b\nfile 1.token\n| one\n\
                    file 2.token\n| two";

/// Stream of both roots.
struct RootStream(Streaming<WatchSkillsResponse>);

impl RootStream {
    async fn open(mut client: Client, token: Option<&str>) -> Result<Self, Status> {
        let roots = ["r", "s"].map(|id| located(id, &format!("published:{id}")));
        let mut request = Request::new(watch_request(roots.to_vec()));
        if let Some(token) = token {
            let value = format!("Bearer {token}").parse().expect("a header's value");
            request.metadata_mut().insert("authorization", value);
        }
        in_time(client.watch_skills(request))
            .await
            .map(|answer| Self(answer.into_inner()))
    }

    /// Reads the next state. Returns the reset reason, and the added and removed packages.
    async fn read_state(&mut self) -> Result<(Option<ResetReason>, Vec<String>), Status> {
        let (mut reset, mut news) = (None, Vec::new());
        loop {
            let response = in_time(self.0.message())
                .await?
                .expect("a status at the end");
            match response.event.expect("an event") {
                Event::Reset(why) => reset = Some(why.reason()),
                Event::Delta(delta) => {
                    news.extend(
                        delta
                            .removed
                            .into_iter()
                            .map(|gone| format!("-{}", gone.package)),
                    );
                    news.extend(delta.upserted.into_iter().map(|skill| skill.package));
                }
                Event::Synced(_) => return Ok((reset, news)),
                _ => {}
            }
        }
    }

    /// Reads to the end of the stream. Returns its status.
    async fn read_to_end(mut self) -> (Code, String) {
        loop {
            if let Err(status) = self.read_state().await {
                let refused = rpc_error(&status);
                return (refused.code, refused.reason);
            }
        }
    }
}

/// Connects a separate client to the Unix socket.
async fn connect_unix(process: &ReloadingDaemon) -> Client {
    let stream = UnixStream::connect(process.fixture.path("run/c.sock")).expect("a connection");
    stream.set_nonblocking(true).expect("a socket");
    let mut stream = Some(tokio::net::UnixStream::from_std(stream).expect("a socket"));
    let connector = tower::service_fn(move |_| {
        let stream = stream
            .take()
            .ok_or_else(|| std::io::Error::other("connected once"));
        async move { stream.map(TokioIo::new) }
    });
    let endpoint = Endpoint::from_static("http://localhost");
    let channel: Channel = in_time(endpoint.connect_with_connector(connector))
        .await
        .expect("HTTP/2");
    Client::new(channel)
}

async fn start_with_callers(rules: &str) -> ReloadingDaemon {
    let fixture = Fixture::new(TREE);
    for token in ["1.token", "2.token"] {
        fs::set_permissions(fixture.path(token), Permissions::from_mode(0o600)).expect("a mode");
    }
    let command = serve_config(&fixture, &format!("{CONFIG_HEAD}{rules}"));
    ReloadingDaemon::start_command(fixture, command).await
}

const RULE_ONE: &str = "{name: one, token_file: 1.token}";
const RULE_TWO: &str = "{name: two, token_file: 2.token}";

#[tokio::test]
async fn only_callers_without_a_rule_lose_their_streams() {
    let uid = rustix::process::geteuid().as_raw();
    let local_rule = format!("{{name: local, uids: [{uid}]}}");
    let mut process =
        start_with_callers(&format!("callers: [{RULE_ONE}, {RULE_TWO}, {local_rule}]")).await;
    let tcp = process.daemon.client.clone();
    let mut one = RootStream::open(tcp.clone(), Some("one"))
        .await
        .expect("accepted");
    let mut two = RootStream::open(tcp.clone(), Some("two"))
        .await
        .expect("accepted");
    let mut local = RootStream::open(connect_unix(&process).await, None)
        .await
        .expect("accepted");
    for watch in [&mut one, &mut two, &mut local] {
        let all = ["skill://r/a", "skill://s/b"].map(str::to_owned).to_vec();
        assert_eq!(watch.read_state().await.expect("an open stream").1, all);
    }
    process
        .try_reload(&format!(
            "{CONFIG_HEAD}callers: [{RULE_TWO}, {{name: local, uids: [{}]}}]",
            uid + 1
        ))
        .await;
    let unknown = (Code::Unauthenticated, "CALLER_UNKNOWN".to_owned());
    assert_eq!(one.read_to_end().await, unknown);
    let not_allowed = (Code::PermissionDenied, "CALLER_NOT_ALLOWED".to_owned());
    assert_eq!(local.read_to_end().await, not_allowed);
    let again = RootStream::open(tcp.clone(), Some("one"))
        .await
        .err()
        .expect("refused");
    assert_eq!(again.code(), Code::Unauthenticated);
    process
        .fixture
        .write("r/c/SKILL.md", skill_text("c", "New."));
    // The file may be seen before its content.
    let expected = (None, vec!["skill://r/c".to_owned()]);
    while two.read_state().await.expect("an open stream") != expected {}
    // A new token in the file applies at the next reload.
    process.fixture.replace("2.token", "other\n");
    let mode = Permissions::from_mode(0o600);
    fs::set_permissions(process.fixture.path("2.token"), mode).expect("a mode");
    process
        .try_reload(&format!("{CONFIG_HEAD}callers: [{RULE_TWO}]"))
        .await;
    assert_eq!(two.read_to_end().await, unknown);
    process.stop().await;
}

#[tokio::test]
async fn a_client_that_reads_nothing_loses_its_stream_too() {
    let mut process = start_with_callers(&format!(
        "callers: [{RULE_ONE}]\nlimits: {{max_streams: 1}}"
    ))
    .await;
    let tcp = process.daemon.client.clone();
    let unread = RootStream::open(tcp.clone(), Some("one"))
        .await
        .expect("accepted");
    process
        .try_reload(&format!(
            "{CONFIG_HEAD}callers: [{RULE_TWO}]\nlimits: {{max_streams: 1}}"
        ))
        .await;
    // Its stream permit is free, although the client never read.
    in_time(async {
        while RootStream::open(tcp.clone(), Some("two")).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(unread.read_to_end().await.0, Code::Unauthenticated);
    process.stop().await;
}

#[tokio::test]
async fn changed_roots_of_a_caller_reach_its_stream_as_a_delta() {
    let bound = |roots: &str| format!("callers: [{{name: one, token_file: 1.token, {roots}}}]");
    let mut process = start_with_callers(&bound("roots: [r]")).await;
    let mut one = RootStream::open(process.daemon.client.clone(), Some("one"))
        .await
        .expect("accepted");
    let (reset, news) = one.read_state().await.expect("an open stream");
    assert_eq!(
        (reset, news),
        (Some(ResetReason::Initial), vec!["skill://r/a".to_owned()])
    );
    for (roots, news) in [
        ("roots: [r, s]", "skill://s/b"),
        ("roots: [s]", "-skill://r/a"),
        ("roots: [r, s]", "skill://r/a"),
        ("roots: [r]", "-skill://s/b"),
    ] {
        process
            .try_reload(&format!("{CONFIG_HEAD}{}", bound(roots)))
            .await;
        loop {
            let (reset, changes) = one.read_state().await.expect("an open stream");
            assert_eq!(reset, None);
            // A root status may arrive in a state of its own.
            if !changes.is_empty() {
                assert_eq!(changes, [news], "{roots}");
                break;
            }
        }
    }
    process.stop().await;
}

#[tokio::test]
async fn a_token_that_callers_can_read_is_rejected() {
    let token = Fixture::new("file token");
    let group = fs::metadata(token.path("token")).expect("a file").gid();
    let rules = format!("socket: {{group: {group}}}\ncallers: [{RULE_ONE}]");
    let mut process = start_with_callers(&rules).await;
    let file = process.fixture.path("1.token");
    let set_mode = |mode| {
        fs::set_permissions(&file, Permissions::from_mode(mode)).expect("a mode");
    };
    let tcp = process.daemon.client.clone();
    RootStream::open(tcp.clone(), Some("one"))
        .await
        .expect("accepted");

    // Each call compares the file again.
    set_mode(0o640);
    let refused = RootStream::open(tcp.clone(), Some("one")).await.err();
    assert_eq!(refused.expect("refused").code(), Code::Unauthenticated);
    let config = format!("{CONFIG_HEAD}{rules}");
    assert!(process.try_reload(&config).await.contains(REJECTED));

    set_mode(0o600);
    assert!(process.try_reload(&config).await.contains(APPLIED));
    RootStream::open(tcp, Some("one")).await.expect("accepted");
    process.stop().await;
}
