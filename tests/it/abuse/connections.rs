//! Limits on connections, streams and calls: the totals, and the share of one caller.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::Duration;

use caproot::daemon::config::{Config, RootFlag, ServeFlags};
use caproot::daemon::model::Limits;
use caproot_core::proto::caproot::v1::GetExecutorRequest;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use super::{
    Victim, client_from, client_on, is_served, root, serve_command, serve_with_socket, user,
};
use crate::callers::ProcessUser;
use crate::harness::fixture::{Fixture, is_root};
use crate::harness::process::wrap_command;
use crate::harness::process_usage::processor_time;
use crate::harness::test_servers::free_port;
use crate::harness::watch_harness::{skill_text, watch_request};
use crate::harness::{
    Client, Daemon, assert_rpc_error, in_time, isolated_env, list_request, poll_until, rpc_error,
    selected,
};

/// Asserts that the first call on a new connection is rejected by a limit.
async fn assert_no_permit(client: &mut Client, limit_name: &str, limit: &str) {
    let refused = in_time(client.get_executor(GetExecutorRequest {})).await;
    let refused = assert_rpc_error(refused, Code::ResourceExhausted, "OVERLOADED", None);
    assert_eq!(refused.metadata["limit_name"], limit_name);
    assert_eq!(refused.metadata["limit"], limit);
}

#[tokio::test]
async fn a_call_beyond_the_connection_limit_is_rejected_until_one_is_closed() {
    let (_fixture, victim) = Victim::with_tree("skill root/a", "max_connections: 2").await;
    let mut other = client_from("127.0.0.2", victim.address).await;
    assert!(is_served(&mut other).await);
    let mut further = client_from("127.0.0.3", victim.address).await;
    assert_no_permit(&mut further, "max_connections", "2").await;
    victim.assert_served().await;

    drop(other);
    let served = async {
        while !is_served(&mut further).await {
            tokio::task::yield_now().await;
        }
    };
    in_time(served).await;
    let log = victim.stop().await;
    assert!(log.contains("max_connections, 2, is reached"), "{log}");
}

/// Returns a `caproot` command as another user, or `None` if this is impossible.
///
/// The command runs a copy of the binary that other users may execute.
pub(super) fn caproot_as(fixture: &Fixture, user: ProcessUser, args: &[&str]) -> Option<Command> {
    if !is_root() {
        println!("SKIPPED: only root can run a client as a second user");
        return None;
    }
    let binary = fixture.path("caproot");
    if !binary.exists() {
        fs::copy(env!("CARGO_BIN_EXE_caproot"), &binary).expect("a copy");
    }
    fs::set_permissions(fixture.top(), fs::Permissions::from_mode(0o755)).expect("chmod");
    let mut command = Command::new(binary);
    command.args(args);
    let skipped = "setpriv(1) cannot run a program in the temporary directory as another user";
    wrap_command(user.setpriv(), command, skipped)
}

#[tokio::test]
async fn a_greedy_user_does_not_lock_out_another() {
    const GREEDY: ProcessUser = user(23_456);
    let fixture = Fixture::new("skill root/a\ndir run");
    let socket = fixture.path("run/c.sock");
    let endpoint = format!("unix:{}", socket.display());
    let Some(mut other) = caproot_as(&fixture, user(12_345), &["list", "--endpoint", &endpoint])
    else {
        return;
    };
    let config = "roots: [{id: r, path: root}]\nlimits: {max_connections_per_caller: 20}";
    let serving = serve_with_socket(&fixture, config);
    let mut greedy = Vec::new();
    for _ in 0..20 {
        let mut client = client_on(&socket, Some(GREEDY)).await;
        assert!(is_served(&mut client).await);
        greedy.push(client);
    }
    for _ in 0..3 {
        let mut client = client_on(&socket, Some(GREEDY)).await;
        assert_no_permit(&mut client, "max_connections_per_caller", "20").await;
    }
    let code = |command: &mut Command| command.output().expect("the command runs").status.code();
    for _ in 0..3 {
        assert_eq!(code(&mut other), Some(0));
    }

    drop(greedy.pop());
    let served = async {
        loop {
            let mut client = client_on(&socket, Some(GREEDY)).await;
            if is_served(&mut client).await {
                break;
            }
        }
    };
    in_time(served).await;
    drop(greedy);
    let log = serving.stop().await;
    let lines = log
        .lines()
        .filter(|line| line.contains("max_connections_per_caller, 20, is reached"));
    assert!(lines.clone().count() == 1, "{log}");
    assert!(
        lines.clone().all(|line| line.contains("uid 23456")),
        "{log}"
    );
}

const WITHOUT_PRLIMIT: &str = "prlimit(1) is missing, so open files cannot be limited";

#[tokio::test]
async fn the_connection_limit_leaves_descriptors_for_other_files() {
    let fixture = Fixture::new("skill root/a");
    let serve = serve_command(&fixture, "");
    let Some(limited) = wrap_command(["prlimit", "--nofile=60:60"], serve, WITHOUT_PRLIMIT) else {
        return;
    };
    let victim = Victim::start_command(limited).await;
    let limits = victim.good.executor().await.limits.expect("limits");
    assert_eq!(limits.max_connections, 20);
    let mut served = Vec::new();
    for _ in 1..20 {
        let mut client = client_from("127.0.0.1", victim.address).await;
        assert!(is_served(&mut client).await);
        served.push(client);
    }
    let silent: Vec<_> = (0..100)
        .map(|_| TcpStream::connect(victim.address).expect("a connection"))
        .collect();
    poll_until("all connection permits are taken", || {
        victim.open_descriptors() > 35
    })
    .await;
    fixture.write(
        "root/b/SKILL.md",
        skill_text("b", "Found while there is little room."),
    );
    let listed = async {
        while victim.good.list(&[root()]).await.skills.len() < 2 {
            tokio::task::yield_now().await;
        }
    };
    in_time(listed).await;
    assert!(
        victim.open_descriptors() < 60,
        "{}",
        victim.open_descriptors()
    );
    drop((served, silent));
    let log = victim.stop().await;
    assert!(log.contains("only 60 files may be open at once"), "{log}");
}

#[tokio::test]
async fn accepting_continues_after_descriptors_ran_out() {
    let fixture = Fixture::new("skill root/a");
    let serve = serve_command(&fixture, "");
    let Some(command) = wrap_command(["prlimit"], serve, WITHOUT_PRLIMIT) else {
        return;
    };
    let victim = Victim::start_command(command).await;
    let pid = victim.serving.pid();
    let allow = |files: usize| {
        let mut command = Command::new("prlimit");
        command.args([format!("--pid={pid}"), format!("--nofile={files}:")]);
        assert!(command.status().expect("prlimit").success());
    };
    allow(victim.open_descriptors());
    let before = processor_time(pid);
    let silent: Vec<_> = (0..20)
        .map(|_| TcpStream::connect(victim.address).expect("a connection"))
        .collect();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let spent = processor_time(pid).saturating_sub(before);
    println!("{spent:?} of processor time in 2 s without free descriptors");
    assert!(
        spent < Duration::from_secs(1),
        "accepting does not spin: {spent:?} in 2 s"
    );
    allow(1_024);
    let mut late = client_from("127.0.0.1", victim.address).await;
    assert!(
        in_time(late.get_executor(GetExecutorRequest {}))
            .await
            .is_ok()
    );
    drop((silent, late));
    let log = victim.stop().await;
    let warnings = log
        .lines()
        .filter(|line| line.contains("accepting a connection failed"));
    assert!(
        (1..=3).contains(&warnings.count()),
        "a rate-limited warning: {log}"
    );
}

/// Starts a daemon on TCP and on the socket `run/c.sock`, whose clients are another caller. The
/// directory `root` is published as `r`.
async fn start_with_socket(fixture: &Fixture, limits: Limits) -> Daemon {
    let socket = fixture.path("run/c.sock");
    let flags = ServeFlags {
        roots: vec![RootFlag {
            id: Some("r".to_owned()),
            dir: fixture.path("root"),
        }],
        listen: vec![
            format!("unix:{}", socket.display()),
            format!("tcp:{}", free_port()),
        ],
        ..ServeFlags::default()
    };
    let env = isolated_env(fixture.top());
    let mut config = Config::from_flags(flags, &env).expect("a valid configuration");
    config.limits = limits;
    Daemon::start_with(config).await
}

async fn client_on_socket(fixture: &Fixture) -> Client {
    client_on(&fixture.path("run/c.sock"), None).await
}

#[tokio::test]
async fn streams_are_limited_in_total_and_per_caller() {
    let fixture = Fixture::new("skill root/a\ndir run");
    let limits = Limits {
        max_streams: 3,
        max_streams_per_caller: 2,
        ..Limits::default()
    };
    let daemon = start_with_socket(&fixture, limits).await;
    let request = watch_request(vec![selected("r", fixture.path("root"))]);
    let address = daemon.address.parse().expect("an address");
    let mut greedy = daemon.client.clone();
    let mut again = client_from("127.0.0.1", address).await;
    let first = in_time(greedy.watch_skills(request.clone()))
        .await
        .expect("a stream");
    let _second = in_time(again.watch_skills(request.clone()))
        .await
        .expect("a second");
    for client in [&mut greedy, &mut again] {
        let refused = in_time(client.watch_skills(request.clone())).await;
        let refused = assert_rpc_error(refused, Code::ResourceExhausted, "TOO_MANY_STREAMS", None);
        assert_eq!(refused.metadata["limit_name"], "max_streams_per_caller");
        assert_eq!(refused.metadata["limit"], "2");
    }
    let mut other = client_on_socket(&fixture).await;
    let _third = in_time(other.watch_skills(request.clone()))
        .await
        .expect("for another");
    let refused = in_time(other.watch_skills(request.clone())).await;
    let refused = assert_rpc_error(refused, Code::ResourceExhausted, "TOO_MANY_STREAMS", None);
    assert_eq!(refused.metadata["limit_name"], "max_streams");
    drop(first);
    let back = async {
        // The daemon notices the dropped stream with a delay.
        while other.watch_skills(request.clone()).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    in_time(back).await;
    daemon.stop().await;
}

#[tokio::test]
async fn calls_are_limited_per_caller() {
    let fixture = Fixture::new("skill root/a\ndir run");
    let limits = Limits {
        max_calls: 3,
        max_calls_per_caller: 2,
        ..Limits::default()
    };
    let daemon = start_with_socket(&fixture, limits).await;
    let address: std::net::SocketAddr = daemon.address.parse().expect("an address");
    // Health watches are calls that do not end.
    let endpoint = tonic::transport::Endpoint::new(format!("http://{address}"));
    let channel = endpoint
        .expect("an address")
        .connect()
        .await
        .expect("a connection");
    let mut health = HealthClient::new(channel);
    let mut open = Vec::new();
    for _ in 0..2 {
        open.push(
            in_time(health.watch(HealthCheckRequest::default()))
                .await
                .expect("a stream"),
        );
    }
    let refused = daemon
        .try_list(list_request(&[root()]))
        .await
        .expect_err("a third");
    let delay = tonic_types::StatusExt::get_details_retry_info(&refused);
    assert!(
        delay
            .and_then(|d| d.retry_delay)
            .is_some_and(|d| d > Duration::ZERO)
    );
    let refused = rpc_error(&refused);
    assert_eq!(
        (refused.code, &*refused.reason),
        (Code::ResourceExhausted, "OVERLOADED")
    );
    assert_eq!(refused.metadata["limit_name"], "max_calls_per_caller");
    assert_eq!(refused.metadata["limit"], "2");
    // All loopback addresses are one caller.
    let mut same = client_from("127.0.0.2", address).await;
    assert!(!is_served(&mut same).await);
    let mut other = client_on_socket(&fixture).await;
    assert!(is_served(&mut other).await);
    // Watch streams have permits of their own.
    let stream = in_time(other.watch_skills(watch_request(vec![root()])))
        .await
        .expect("a stream");
    assert!(is_served(&mut other).await);
    open.pop();
    let back = async {
        while daemon.try_list(list_request(&[root()])).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    in_time(back).await;
    drop((open, stream));
    daemon.stop().await;
}
