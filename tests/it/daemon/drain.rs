//! Shutdown of the real binary: clients are notified, calls in flight may finish, and the daemon
//! exits no matter what its clients do.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use caproot_core::proto::caproot::v1::WatchSkillsRequest;
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

use crate::harness::fixture::Fixture;
use crate::harness::process::{Output, Process, serve_config};
use crate::harness::replica::Replica;
use crate::harness::watch_harness::watch_request;
use crate::harness::{Client, in_time, located, read_request, rpc_error};

/// Running daemon and a connection to it.
struct RunningDaemon {
    fixture: Fixture,
    serving: Process,
    channel: Channel,
}

impl RunningDaemon {
    async fn start(tree: &str, config: &str) -> Self {
        let fixture = Fixture::new(tree);
        let config = format!("roots: [{{id: r, path: r}}]\n{config}");
        let serving = Process::start(serve_config(&fixture, &config));
        let endpoint = Endpoint::from_shared(format!("http://{}", serving.address()));
        let channel = in_time(endpoint.expect("an address").connect())
            .await
            .expect("connected");
        Self {
            fixture,
            serving,
            channel,
        }
    }

    fn request() -> WatchSkillsRequest {
        watch_request(vec![located("r", "published:r")])
    }

    /// Opens a health stream and reads its first status, `Serving`.
    async fn health_stream(&self) -> Streaming<HealthCheckResponse> {
        let mut client = HealthClient::new(self.channel.clone());
        let stream = in_time(client.watch(HealthCheckRequest::default()))
            .await
            .expect("a stream");
        let mut stream = stream.into_inner();
        assert_eq!(next_status(&mut stream).await, Some(ServingStatus::Serving));
        stream
    }

    /// Opens a reflection stream that the client never ends.
    async fn endless_stream(&self) -> Streaming<ServerReflectionResponse> {
        use tokio_stream::StreamExt as _;
        let mut client = ServerReflectionClient::new(self.channel.clone());
        let request = ServerReflectionRequest {
            message_request: Some(MessageRequest::ListServices(String::new())),
            ..ServerReflectionRequest::default()
        };
        let first = tokio_stream::once(request);
        let requests = first.chain(tokio_stream::pending());
        let mut stream = in_time(client.server_reflection_info(requests))
            .await
            .expect("a stream")
            .into_inner();
        in_time(stream.message())
            .await
            .expect("an answer")
            .expect("an open stream");
        stream
    }
}

async fn next_status(stream: &mut Streaming<HealthCheckResponse>) -> Option<ServingStatus> {
    in_time(stream.message())
        .await
        .expect("no error")
        .map(|answer| answer.status())
}

#[tokio::test]
async fn clients_are_notified_and_new_connections_are_rejected() {
    let served = RunningDaemon::start("skill r/a", "").await;
    let mut health = served.health_stream().await;
    let daemon = served.serving.connect().await;
    let mut replica = Replica::synced(&daemon, RunningDaemon::request()).await;
    let revision = replica.revision;
    // An open stream delays the exit, so that the test can observe the shutdown.
    let open_stream = served.endless_stream().await;
    served.serving.send_signal(Signal::TERM);
    assert_eq!(
        next_status(&mut health).await,
        Some(ServingStatus::NotServing)
    );
    assert_eq!(next_status(&mut health).await, None, "the stream ends");
    assert!(replica.next_batch().await.is_bookmark);
    assert_eq!(replica.revision, revision);
    let end = replica
        .try_next_batch()
        .await
        .expect_err("the end")
        .expect("with a status");
    assert!(
        end.get_error_details()
            .retry_info()
            .is_some_and(|info| info.retry_delay.is_some())
    );
    let end = rpc_error(&end);
    assert_eq!(
        (end.code, &*end.reason),
        (Code::Unavailable, "SHUTTING_DOWN")
    );
    let refused = TcpStream::connect(served.serving.address()).expect_err("the listener is closed");
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    let late =
        in_time(Client::new(served.channel.clone()).watch_skills(RunningDaemon::request())).await;
    // Some libraries report `Cancelled`.
    let late = late.expect_err("too late").code();
    assert!(
        matches!(late, Code::Unavailable | Code::Cancelled),
        "{late:?}"
    );
    drop((open_stream, health, replica, daemon));
    let RunningDaemon {
        serving,
        channel,
        fixture: _fixture,
        ..
    } = served;
    drop(channel);
    serving.stop().await;
}

#[tokio::test]
async fn the_end_of_stdin_stops_the_daemon_with_the_flag() {
    let fixture = Fixture::new("skill r/a");
    let mut command = serve_config(&fixture, "roots: [{id: r, path: r}]");
    command.arg("--stop-with-stdin").stdin(Stdio::piped());
    let mut serving = Process::start(&mut command);

    // A line on stdin stops nothing, and the shutdown is that of a signal.
    let mut stdin = serving.take_stdin().expect("a pipe");
    writeln!(stdin, "a line").expect("written");
    let daemon = serving.connect().await;
    let request = watch_request(vec![located("r", "published:r")]);
    let mut replica = Replica::synced(&daemon, request).await;
    drop(stdin);
    assert!(replica.next_batch().await.is_bookmark);
    let end = replica.try_next_batch().await.expect_err("the end");
    assert_eq!(rpc_error(&end.expect("a status")).reason, "SHUTTING_DOWN");
    drop((replica, daemon));
    assert_eq!(serving.exit().await.code, Some(0));

    // Without the flag, the daemon ignores stdin, which is empty here.
    let serving = Process::start(serve_config(&fixture, "roots: [{id: r, path: r}]"));
    drop(serving.connect().await);
    serving.stop().await;
}

#[tokio::test]
async fn a_second_signal_stops_the_daemon_at_once() {
    for second in [Signal::TERM, Signal::INT] {
        let served = RunningDaemon::start("skill r/a", "").await;
        let mut health = served.health_stream().await;
        let _open_stream = served.endless_stream().await;
        served.serving.send_signal(Signal::TERM);
        assert_eq!(
            next_status(&mut health).await,
            Some(ServingStatus::NotServing)
        );
        let RunningDaemon {
            serving,
            fixture: _fixture,
            ..
        } = served;
        serving.send_signal(second);
        let Output {
            code, stderr: log, ..
        } = serving.exit().await;
        assert_eq!(code, Some(0), "{log}");
        assert!(log.contains("second stop signal"), "{log}");
        assert!(
            !log.contains("calls in flight did not end"),
            "the daemon did not wait: {log}"
        );
    }
}

#[tokio::test]
async fn the_daemon_exits_although_clients_keep_connections_open() {
    let served = RunningDaemon::start("repeat 2000 skill r/s{}", "").await;
    let mut health = served.health_stream().await;
    let _open_stream = served.endless_stream().await;
    // This client reads nothing of a state that is larger than any window.
    let daemon = served.serving.connect().await;
    let _not_reading = Replica::open(&daemon, RunningDaemon::request()).await;
    // These connections send nothing, or half of the preface.
    let _silent = TcpStream::connect(served.serving.address()).expect("connected");
    let mut half = TcpStream::connect(served.serving.address()).expect("connected");
    half.write_all(b"PRI * HTTP/2.0\r\n").expect("sent");
    served.serving.send_signal(Signal::TERM);
    assert_eq!(
        next_status(&mut health).await,
        Some(ServingStatus::NotServing)
    );
    let RunningDaemon {
        serving,
        fixture: _fixture,
        ..
    } = served;
    // Waits for the exit without a second signal.
    let Output {
        code, stderr: log, ..
    } = serving.exit().await;
    assert_eq!(code, Some(0), "{log}");
    assert!(
        log.contains("calls in flight did not end") && !log.contains("again"),
        "{log}"
    );
}

/// Number of `ReadResource` calls in flight.
fn reads_in_flight(fixture: &Fixture) -> String {
    let mut socket = UnixStream::connect(fixture.path("run/m.sock")).expect("a listener");
    socket
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        .expect("sent");
    let mut page = String::new();
    socket.read_to_string(&mut page).expect("a page");
    let series = "caproot_calls_in_flight{method=\"caproot.v1.CapabilityService/ReadResource\"} ";
    page.lines()
        .find_map(|line| line.strip_prefix(series))
        .unwrap_or("0")
        .to_owned()
}

#[tokio::test]
async fn a_read_in_flight_is_answered() {
    let tree = "dir run\nmode 0700 run\nskill r/a\nsparse 67108864 r/a/big";
    let served = RunningDaemon::start(tree, "metrics: {listen: 'unix:run/m.sock'}").await;
    let mut client = Client::new(served.channel.clone());
    let root = located("r", "published:r");
    let small = read_request(&root, "skill://r/a", "");
    in_time(client.read_resource(small)).await.expect("a file");
    while reads_in_flight(&served.fixture) != "0" {
        tokio::task::yield_now().await;
    }
    let request = read_request(&root, "skill://r/a", "skill://r/a/big");
    let read = tokio::spawn(async move { client.read_resource(request).await });
    while reads_in_flight(&served.fixture) == "0" && !read.is_finished() {
        tokio::task::yield_now().await;
    }
    served.serving.send_signal(Signal::TERM);
    let page = in_time(read)
        .await
        .expect("no panic")
        .expect("an answer")
        .into_inner();
    assert_eq!((page.total_bytes, page.truncated), (67_108_864, true));
    let RunningDaemon {
        serving,
        channel,
        fixture: _fixture,
        ..
    } = served;
    drop(channel);
    let Output {
        code, stderr: log, ..
    } = serving.exit().await;
    assert_eq!(code, Some(0), "{log}");
    assert!(!log.contains("cut off"), "{log}");
}
