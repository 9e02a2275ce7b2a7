//! The end of the real binary: who is told, what may still finish, and that it comes whatever clients
//! do.

use std::ffi::OsStr;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use caproot::proto::caproot::v1::WatchSkillsRequest;
use rustix::process::Signal;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Streaming};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::{ServerReflectionRequest, ServerReflectionResponse};
use tonic_types::StatusExt as _;

use crate::binary::Serving;
use crate::fixture::Fixture;
use crate::harness::{Client, Daemon, in_time, located, read_request, refusal};
use crate::live::watching;
use crate::replica::Replica;

/// A daemon, and a connection to it.
struct Served {
    fixture: Fixture,
    serving: Serving,
    address: String,
    channel: Channel,
}

impl Served {
    async fn start(tree: &str, config: &str) -> Self {
        let fixture = Fixture::new(tree);
        let config = format!("listen: ['tcp:127.0.0.1:0']\nroots: [{{id: r, path: r}}]\n{config}");
        fixture.write("caproot.yaml", config);
        let file = fixture.path("caproot.yaml");
        let serving = Serving::start(&[OsStr::new("--config"), file.as_os_str()]);
        let address = serving.endpoint().strip_prefix("tcp:").expect("TCP").to_owned();
        let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
        let channel = in_time(endpoint.connect()).await.expect("connected");
        Self { fixture, serving, address, channel }
    }

    fn request() -> WatchSkillsRequest {
        watching(vec![located("r", "published:r")])
    }

    /// Health, as it is told over time; it has said that it serves.
    async fn health(&self) -> Streaming<HealthCheckResponse> {
        let mut client = HealthClient::new(self.channel.clone());
        let stream = in_time(client.watch(HealthCheckRequest::default())).await.expect("a stream");
        let mut stream = stream.into_inner();
        assert_eq!(next(&mut stream).await, Some(ServingStatus::Serving));
        stream
    }

    /// A conversation that the client never ends.
    async fn conversation(&self) -> Streaming<ServerReflectionResponse> {
        use tokio_stream::StreamExt as _;
        let mut client = ServerReflectionClient::new(self.channel.clone());
        let request = ServerReflectionRequest {
            message_request: Some(MessageRequest::ListServices(String::new())),
            ..ServerReflectionRequest::default()
        };
        let first = tokio_stream::once(request);
        let asked = first.chain(tokio_stream::pending());
        let mut stream =
            in_time(client.server_reflection_info(asked)).await.expect("a stream").into_inner();
        in_time(stream.message()).await.expect("an answer").expect("goes on");
        stream
    }
}

async fn next(stream: &mut Streaming<HealthCheckResponse>) -> Option<ServingStatus> {
    in_time(stream.message()).await.expect("no error").map(|answer| answer.status())
}

#[tokio::test]
async fn everybody_is_told_and_nobody_new_comes_in() {
    let served = Served::start("skill r/a", "").await;
    let mut health = served.health().await;
    let daemon = Daemon::elsewhere(&served.address).await;
    let mut replica = Replica::open(&daemon, Served::request()).await;
    replica.step().await;
    let revision = replica.revision;
    // Holds the end up, so that there is something to see of it.
    let held = served.conversation().await;
    served.serving.send(Signal::TERM);
    assert_eq!(next(&mut health).await, Some(ServingStatus::NotServing));
    assert_eq!(next(&mut health).await, None, "and there is no more to tell");
    assert!(replica.step().await.is_bookmark);
    assert_eq!(replica.revision, revision);
    let end = replica.try_step().await.expect_err("the end").expect("with a status");
    assert!(end.get_error_details().retry_info().is_some_and(|info| info.retry_delay.is_some()));
    let end = refusal(&end);
    assert_eq!((end.code, &*end.reason), (Code::Unavailable, "SHUTTING_DOWN"));
    let refused = TcpStream::connect(&served.address).expect_err("nobody listens");
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    let late = in_time(Client::new(served.channel.clone()).watch_skills(Served::request())).await;
    // Some libraries call it cancelled.
    let late = late.expect_err("too late").code();
    assert!(matches!(late, Code::Unavailable | Code::Cancelled), "{late:?}");
    drop((held, health, replica, daemon));
    let Served { serving, channel, fixture: _fixture, .. } = served;
    drop(channel);
    let (code, log) = serving.terminated().await;
    assert_eq!(code, Some(0), "{log}");
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once() {
    for second in [Signal::TERM, Signal::INT] {
        let served = Served::start("skill r/a", "").await;
        let mut health = served.health().await;
        let _held = served.conversation().await;
        served.serving.send(Signal::TERM);
        assert_eq!(next(&mut health).await, Some(ServingStatus::NotServing));
        let Served { serving, fixture: _fixture, .. } = served;
        serving.send(second);
        let (code, log) = tokio::task::spawn_blocking(|| serving.ended()).await.expect("it ends");
        assert_eq!(code, Some(0), "{log}");
        assert!(log.contains("second stop signal"), "{log}");
        assert!(!log.contains("calls in flight did not end"), "it did not wait: {log}");
    }
}

#[tokio::test]
async fn it_ends_whatever_clients_do() {
    let served = Served::start("repeat 2000 skill r/s{}", "").await;
    let mut health = served.health().await;
    let _conversation = served.conversation().await;
    // Reads nothing of a state that fits no window.
    let daemon = Daemon::elsewhere(&served.address).await;
    let _deaf = Replica::open(&daemon, Served::request()).await;
    // Says nothing, and half of what begins a connection.
    let _silent = TcpStream::connect(&served.address).expect("connected");
    let mut half = TcpStream::connect(&served.address).expect("connected");
    half.write_all(b"PRI * HTTP/2.0\r\n").expect("sent");
    served.serving.send(Signal::TERM);
    assert_eq!(next(&mut health).await, Some(ServingStatus::NotServing));
    let Served { serving, fixture: _fixture, .. } = served;
    // Waits for the end, and does not ask again.
    let (code, log) = tokio::task::spawn_blocking(|| serving.ended()).await.expect("it ends");
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("calls were still under way") && !log.contains("again"), "{log}");
}

/// How many reads the daemon has under way.
fn reads(fixture: &Fixture) -> String {
    let mut socket = UnixStream::connect(fixture.path("run/m.sock")).expect("a listener");
    socket.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
    let mut page = String::new();
    socket.read_to_string(&mut page).expect("a page");
    let series = "caproot_calls_in_flight{method=\"caproot.v1.CapabilityService/ReadResource\"} ";
    page.lines().find_map(|line| line.strip_prefix(series)).unwrap_or("0").to_owned()
}

#[tokio::test]
async fn a_read_that_is_under_way_is_answered() {
    let tree = "dir run\nmode 0700 run\nskill r/a\nsparse 268435456 r/a/big";
    let served = Served::start(tree, "metrics: {listen: 'unix:run/m.sock'}").await;
    let mut client = Client::new(served.channel.clone());
    let root = located("r", "published:r");
    let small = read_request(&root, "skill://r/a", "");
    in_time(client.read_resource(small)).await.expect("a file");
    let request = read_request(&root, "skill://r/a", "skill://r/a/big");
    let read = tokio::spawn(async move { client.read_resource(request).await });
    while reads(&served.fixture) == "0" && !read.is_finished() {
        tokio::task::yield_now().await;
    }
    served.serving.send(Signal::TERM);
    let page = in_time(read).await.expect("no panic").expect("an answer").into_inner();
    assert_eq!((page.total_bytes, page.truncated), (268_435_456, true));
    let Served { serving, channel, fixture: _fixture, .. } = served;
    drop(channel);
    let (code, log) = tokio::task::spawn_blocking(|| serving.ended()).await.expect("it ends");
    assert_eq!(code, Some(0), "{log}");
    assert!(!log.contains("cut off"), "{log}");
}
