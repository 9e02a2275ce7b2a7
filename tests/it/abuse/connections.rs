//! Limits on connections, streams and calls: the totals, and the share of one caller.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::{Duration, Instant};

use caproot::model::Limits;
use caproot::proto::caproot::v1::GetExecutorRequest;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use super::{Victim, client_from, is_served, root, serve_command, wait_until};
use crate::fixture::{Fixture, is_root};
use crate::harness::{Daemon, Setup, assert_rpc_error, in_time, list_request, rpc_error, selected};
use crate::process::{Process, caproot, wrap_command};
use crate::process_usage::{descriptors, processor_time};
use crate::watch_harness::{skill_text, watch_request};

#[tokio::test]
async fn further_connections_wait_until_one_is_closed() {
    let (_fixture, victim) = Victim::with_tree("skill root/a", "max_connections: 3").await;
    let other = client_from("127.0.0.2", victim.address).await;
    let silent = TcpStream::connect(victim.address).expect("a connection");
    wait_until("all connection permits are taken", || {
        victim.open_descriptors() > 12
    })
    .await;
    let waiting = async {
        let begun = Instant::now();
        // The kernel completes the connection at once: the request waits.
        let mut client = client_from("127.0.0.3", victim.address).await;
        assert!(is_served(&mut client).await);
        begun.elapsed()
    };
    let closing = async {
        for _ in 0..20 {
            victim.assert_served().await;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        drop(silent);
        Instant::now()
    };
    let (waited, closed) = tokio::join!(waiting, closing);
    assert!(
        waited >= Duration::from_millis(200),
        "{waited:?}, closed at {closed:?}"
    );
    drop(other);
    victim.stop().await;
}

/// Returns `caproot list` as another user, or `None` if this is impossible.
///
/// The command runs a copy of the binary that other users may execute.
fn list_as_other_user(fixture: &Fixture, endpoint: &str) -> Option<Command> {
    if !is_root() {
        println!("SKIPPED: only root can run a client as a second user");
        return None;
    }
    let binary = fixture.path("caproot");
    fs::copy(env!("CARGO_BIN_EXE_caproot"), &binary).expect("a copy");
    fs::set_permissions(fixture.top(), fs::Permissions::from_mode(0o755)).expect("chmod");
    let mut command = Command::new(binary);
    command.args(["list", "--endpoint", endpoint]);
    let wrapper = [
        "setpriv",
        "--reuid=12345",
        "--regid=12345",
        "--clear-groups",
    ];
    let skipped = "setpriv(1) cannot run a program in the temporary directory as another user";
    wrap_command(wrapper, command, skipped)
}

#[tokio::test]
async fn a_greedy_user_does_not_lock_out_another() {
    let fixture = Fixture::new("skill root/a\ndir run");
    let socket = fixture.path("run/c.sock");
    let listen = format!("unix:{}", socket.display());
    let Some(mut other) = list_as_other_user(&fixture, &listen) else {
        return;
    };
    let mut serve = serve_command(&fixture, "max_connections_per_caller: 20");
    let serving = Process::start(serve.args(["--listen", &listen]));
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o666)).expect("chmod");
    let connect = || UnixStream::connect(&socket).expect("a connection");
    let greedy: Vec<_> = (0..60).map(|_| connect()).collect();
    let fds = || descriptors(serving.pid());
    wait_until("the excess connections are closed", || {
        (20..50).contains(&fds())
    })
    .await;
    // The greedy user gets no further connections.
    let status = |command: &mut Command| command.output().expect("the command runs").status.code();
    let mut own = caproot(["list", "--endpoint", &listen]);
    // The daemon closes the connection before or while the client writes.
    let rejected = status(&mut own);
    assert!(matches!(rejected, Some(3 | 6)), "{rejected:?}");
    for _ in 0..5 {
        assert_eq!(status(&mut other), Some(0));
    }
    drop(greedy);
    let begun = Instant::now();
    while status(&mut own) != Some(0) {
        assert!(
            begun.elapsed() < crate::harness::HANG_TIMEOUT,
            "connections are freed"
        );
    }
    let log = serving.stop().await;
    let lines = log
        .lines()
        .filter(|line| line.contains("max_connections_per_caller, 20, is reached"));
    assert!(lines.clone().count() == 1, "{log}");
    assert!(lines.clone().all(|line| line.contains("uid 0")), "{log}");
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
    assert_eq!(limits.max_connections, 30);
    let silent: Vec<_> = (0..100)
        .map(|_| TcpStream::connect(victim.address).expect("a connection"))
        .collect();
    wait_until("all connection permits are taken", || {
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
    drop(silent);
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

#[tokio::test]
async fn streams_are_limited_in_total_and_per_caller() {
    let fixture = Fixture::new("skill root/a");
    let limits = Limits {
        max_streams: 3,
        max_streams_per_caller: 2,
        ..Limits::default()
    };
    let daemon = Daemon::start(Setup {
        limits,
        ..Setup::allowing([fixture.path("root")])
    })
    .await;
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
    let mut other = client_from("127.0.0.2", address).await;
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
    let fixture = Fixture::new("skill root/a");
    let limits = Limits {
        max_calls: 3,
        max_calls_per_caller: 2,
        ..Limits::default()
    };
    let setup = Setup {
        limits,
        ..Setup::publishing("r", fixture.path("root"))
    };
    let daemon = Daemon::start(setup).await;
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
    let mut other = client_from("127.0.0.2", address).await;
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
