//! Peers without credentials: they take no permit, no call and no memory of callers, and their
//! connections end.

use std::io;
use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use bytes::Bytes;
use caproot::daemon::config::ConnectionTiming;
use caproot_core::proto::caproot::v1::GetExecutorRequest;
use h2::client::{ResponseFuture, SendRequest};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use super::connections::caproot_as;
use super::{client_from, client_on, is_served, root, serve_with_socket, user};
use crate::callers::{ProcessUser, can_switch_user, with_token, write_token};
use crate::harness::fixture::Fixture;
use crate::harness::process::{Process, caproot, run_command};
use crate::harness::process_usage::descriptors;
use crate::harness::{Client, Daemon, Setup, assert_rpc_error, in_time, list_request, poll_until};

const ATTACKERS: usize = 1_100;
/// Connections without an accepted call that a listener keeps.
const MAX_PENDING: u64 = 128;
const WATCH_HEALTH: &str = "/grpc.health.v1.Health/Watch";
const GET_EXECUTOR: &str = "/caproot.v1.CapabilityService/GetExecutor";

/// HTTP/2 connection whose task answers pings until the daemon closes the connection.
struct PingedConnection {
    sender: SendRequest<Bytes>,
    task: JoinHandle<Result<(), h2::Error>>,
}

impl PingedConnection {
    async fn open(source: &str, address: SocketAddr) -> io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(format!("{source}:0").parse().expect("an address"))?;
        Self::over(socket.connect(address).await?).await
    }

    async fn over(stream: TcpStream) -> io::Result<Self> {
        let handshake = h2::client::handshake(stream).await;
        let (sender, connection) = handshake.map_err(io::Error::other)?;
        Ok(Self {
            sender,
            task: tokio::spawn(connection),
        })
    }

    /// Begins a call with an empty message. The daemon may have closed the connection.
    async fn begin_call(&mut self, path: &str) -> Result<ResponseFuture, h2::Error> {
        let request = http::Request::post(format!("http://caproot.test{path}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())
            .expect("a request");
        let mut sender = self.sender.clone().ready().await?;
        let (response, mut body) = sender.send_request(request, false)?;
        // The frame of an empty message.
        body.send_data(Bytes::from_static(&[0; 5]), true)?;
        Ok(response)
    }

    /// Calls `GetExecutor` successfully.
    async fn assert_served(&mut self) {
        let response = self
            .begin_call(GET_EXECUTOR)
            .await
            .expect("an open connection");
        let mut body = in_time(response).await.expect("a response").into_body();
        let message = in_time(body.data()).await.expect("a message");
        assert!(message.expect("a message").len() > 5);
    }
}

/// Allows the clients of this process as many connections as the system does.
fn raise_open_files() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let limit = Rlimit {
        current: maximum,
        maximum,
    };
    setrlimit(Resource::Nofile, limit).expect("the hard limit is allowed");
}

fn status_command(fixture: &Fixture) -> Command {
    let endpoint = format!("unix:{}", fixture.path("run/c.sock").display());
    caproot(["status", "--endpoint", &endpoint])
}

/// Asserts that a caller with the token gets a list on this connection.
async fn assert_served_with_token(client: &mut Client) {
    let list = client.list_skills(with_token("s3cret", list_request(&[root()])));
    assert_eq!(
        in_time(list)
            .await
            .expect("a list")
            .into_inner()
            .skills
            .len(),
        1
    );
}

#[tokio::test]
async fn pinged_connections_lock_out_no_caller() {
    raise_open_files();
    let fixture = Fixture::new("skill root/a\ndir run");
    write_token(&fixture, "token", "s3cret");
    let uid = rustix::process::getuid().as_raw();
    let config = format!(
        "roots: [{{id: r, path: root}}]\n\
         callers: [{{name: operator, uids: [{uid}]}}, {{name: job, token_file: token}}]"
    );
    let serving = serve_with_socket(&fixture, &config);
    let address: SocketAddr = serving.address().parse().expect("an address");
    let mut early = client_from("127.0.0.1", address).await;
    assert_served_with_token(&mut early).await;

    let mut attackers = Vec::new();
    for n in 0..ATTACKERS {
        let source = format!("127.0.0.{}", 1 + n % 5);
        let attacker = PingedConnection::open(&source, address).await;
        let mut attacker = attacker.expect("a connection");
        let mut calls = Vec::new();
        for _ in 0..2 {
            // The daemon may have closed the connection for a newer one.
            calls.extend(attacker.begin_call(WATCH_HEALTH).await);
        }
        attackers.push((attacker, calls));
    }
    assert_served_with_token(&mut early).await;
    for _ in 0..5 {
        let mut new = client_from("127.0.0.1", address).await;
        assert_served_with_token(&mut new).await;
        let mut local = client_on(&fixture.path("run/c.sock"), None).await;
        assert!(is_served(&mut local).await);
    }
    run_command(status_command(&fixture)).await.succeeded();
    poll_until("excess connections are closed", || {
        descriptors(serving.pid()) < MAX_PENDING + 40
    })
    .await;
    let open = attackers
        .iter()
        .filter(|(attacker, _)| !attacker.task.is_finished());
    assert!(
        open.count() > 100,
        "a call to the health service is no accepted call"
    );

    drop((attackers, early));
    let log = serving.stop().await;
    assert!(log.contains("128 such connections are open"), "{log}");
}

/// Starts a daemon on a socket that serves two users, and returns a third user, whose calls the
/// daemon rejects.
fn serve_users(fixture: &Fixture, limits: &str) -> Option<(Process, ProcessUser)> {
    if !can_switch_user() {
        return None;
    }
    let config = format!(
        "roots: [{{id: r, path: root}}]\nlimits: {{{limits}}}\n\
         callers: [{{name: users, uids: [0, 12345]}}]"
    );
    Some((serve_with_socket(fixture, &config), user(23_456)))
}

#[tokio::test]
async fn a_rejected_user_locks_out_no_other_user() {
    let fixture = Fixture::new("skill root/a\ndir run");
    let endpoint = format!("unix:{}", fixture.path("run/c.sock").display());
    let list = ["list", "--endpoint", &endpoint];
    let Some((serving, rejected)) = serve_users(&fixture, "") else {
        return;
    };
    let mut attackers = Vec::new();
    for _ in 0..200 {
        let mut client = client_on(&fixture.path("run/c.sock"), Some(rejected)).await;
        // The daemon may close the connection for a newer one before or after its answer.
        drop(in_time(client.get_executor(GetExecutorRequest {})).await);
        attackers.push(client);
    }
    if let Some(command) = caproot_as(&fixture, user(12_345), &list) {
        run_command(command).await.succeeded();
    }
    run_command(status_command(&fixture)).await.succeeded();
    let denied = in_time(
        attackers
            .pop()
            .expect("a client")
            .get_executor(GetExecutorRequest {}),
    )
    .await;
    assert_rpc_error(denied, Code::PermissionDenied, "CALLER_NOT_ALLOWED", None);
    drop(attackers);
    serving.stop().await;
}

#[tokio::test]
async fn the_operator_gets_the_status_when_all_permits_are_taken() {
    let fixture = Fixture::new("skill root/a\ndir run");
    let socket = fixture.path("run/c.sock");
    let limits = "max_connections: 2, max_calls: 1";
    let Some((serving, _)) = serve_users(&fixture, limits) else {
        return;
    };
    let other = user(12_345);
    let mut first = client_on(&socket, Some(other)).await;
    assert!(is_served(&mut first).await);
    let channel = other.open_channel(&socket).await;
    let mut health = HealthClient::new(channel);
    let watching = async {
        loop {
            // The permit of the list is free a moment after its response.
            if let Ok(watching) = health.watch(HealthCheckRequest::default()).await {
                break watching;
            }
        }
    };
    let watching = in_time(watching).await;

    for (client, limit_name) in [
        (&mut first, "max_calls"),
        (
            &mut client_on(&socket, Some(other)).await,
            "max_connections",
        ),
    ] {
        let refused = in_time(client.get_executor(GetExecutorRequest {})).await;
        let refused = assert_rpc_error(refused, Code::ResourceExhausted, "OVERLOADED", None);
        assert_eq!(refused.metadata["limit_name"], limit_name);
    }
    for _ in 0..3 {
        run_command(status_command(&fixture)).await.succeeded();
    }
    // A connection of the operator may stay, and its calls are few.
    let mut operator = client_on(&socket, None).await;
    assert!(is_served(&mut operator).await && is_served(&mut operator).await);
    drop((watching, first, operator));
    serving.stop().await;
}

#[tokio::test]
async fn the_calls_of_a_connection_without_an_accepted_call_are_few() {
    let fixture = Fixture::new("skill root/a\ndir run");
    let Some((serving, rejected)) = serve_users(&fixture, "") else {
        return;
    };
    let channel = rejected.open_channel(&fixture.path("run/c.sock")).await;
    let mut health = HealthClient::new(channel);
    let mut open = Vec::new();
    for _ in 0..32 {
        let watching = in_time(health.watch(HealthCheckRequest::default())).await;
        open.push(watching.expect("a stream"));
    }
    let refused = in_time(health.check(HealthCheckRequest::default())).await;
    let refused = assert_rpc_error(refused, Code::ResourceExhausted, "OVERLOADED", None);
    assert_eq!(
        refused.metadata["limit_name"],
        "max_calls_of_new_connection"
    );
    drop(open);
    serving.stop().await;
}

#[tokio::test]
async fn a_connection_without_an_accepted_call_ends() {
    const FIRST_CALL_TIMEOUT: Duration = Duration::from_millis(300);
    let fixture = Fixture::new("skill root/a");
    let daemon = Daemon::start(Setup {
        connection_timing: ConnectionTiming {
            first_call_timeout: FIRST_CALL_TIMEOUT,
            ..ConnectionTiming::default()
        },
        ..Setup::publishing("r", fixture.path("root"))
    })
    .await;
    let address = daemon.address.parse().expect("an address");
    let served = PingedConnection::open("127.0.0.1", address).await;
    let mut served = served.expect("a connection");
    served.assert_served().await;

    let begun = Instant::now();
    let silent = PingedConnection::open("127.0.0.1", address).await;
    let ended = in_time(silent.expect("a connection").task).await;
    ended
        .expect("no panic")
        .expect("the daemon closed the connection without an error");
    assert!(begun.elapsed() >= FIRST_CALL_TIMEOUT);
    // The older connection has an accepted call.
    served.assert_served().await;
    drop(served);
    daemon.stop().await;
}
