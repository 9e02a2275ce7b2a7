//! Hostile clients against the real binary. Attacks cost the daemon little memory, and other
//! clients are served during each attack.

mod abandoned_reads;
mod connections;
mod dead_clients;
mod floods;
mod growth;
mod invalid_requests;
mod memory;
mod no_credentials;
mod raw_http2;
mod silent_connections;

use std::borrow::BorrowMut;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use caproot_core::proto::caproot::v1::SelectedCapabilityRoot;
use caproot_core::proto::caproot::v1::capability_service_client::CapabilityServiceClient;
use hyper_util::rt::TokioIo;
use tokio::net::TcpSocket;
use tonic::transport::Endpoint;
use tower::service_fn;

use crate::callers::{ProcessUser, channel_over};
use crate::harness::fixture::Fixture;
use crate::harness::process::{Process, serve_config};
use crate::harness::{Client, Daemon, HANG_TIMEOUT, in_time, list_request, located};

/// Growth allowed in addition to a fifth of the resident memory: buffers that are kept for reuse.
const SPARE_KIB: u64 = 8 << 10;
/// Memory that a call in flight may take in a debug build.
const CALL_KIB: u64 = 16;

/// Daemon under attack, with a well-behaved client.
struct Victim {
    serving: Process,
    good: Daemon,
    address: SocketAddr,
    /// Resident memory before the attack, in KiB.
    resident_before: u64,
    /// How many calls attackers may have in flight, including calls on connections that just ended.
    max_open_calls: u64,
}

impl Victim {
    /// Builds a tree and serves its directory `root` as `r` with the given limits.
    async fn with_tree(tree: &str, limits: &str) -> (Fixture, Self) {
        let fixture = Fixture::new(tree);
        let victim = Self::start_command(serve_command(&fixture, limits)).await;
        (fixture, victim)
    }

    /// Builds a tree with the directories `root` and `run`, and serves it on TCP and on a socket.
    async fn with_socket(tree: &str) -> (Fixture, Self) {
        let fixture = Fixture::new(tree);
        let serving = serve_with_socket(&fixture, "roots: [{id: r, path: root}]");
        let victim = Self::new(serving).await;
        (fixture, victim)
    }

    async fn start_command(command: impl BorrowMut<Command>) -> Self {
        Self::new(Process::start(command)).await
    }

    /// Connects to a daemon, and records its resident memory after 50 lists.
    async fn new(serving: Process) -> Self {
        let good = serving.connect().await;
        let address = serving.address().parse().expect("an address");
        let mut victim = Self {
            serving,
            good,
            address,
            resident_before: 0,
            max_open_calls: 0,
        };
        for _ in 0..50 {
            victim.assert_served().await;
        }
        victim.resident_before = victim.resident_kib();
        victim
    }

    /// Checks that the well-behaved client gets a list of skills.
    async fn assert_served(&self) {
        let list = self.good.list(&[root()]).await;
        assert!(!list.skills.is_empty(), "{list:?}");
    }

    /// Returns the resident memory in KiB.
    fn resident_kib(&self) -> u64 {
        self.status_field("VmRSS:")
    }

    /// Returns a number from `/proc/PID/status`.
    fn status_field(&self, field: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.serving.pid()));
        let status = status.expect("a running process");
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(field))
            .expect("the field");
        line.split_whitespace()
            .next()
            .expect("a number")
            .parse()
            .expect("a number")
    }

    /// Counts the daemon's open file descriptors.
    fn open_descriptors(&self) -> usize {
        let open = fs::read_dir(format!("/proc/{}/fd", self.serving.pid()));
        open.expect("a running process").count()
    }

    /// Waits until the daemon has freed the memory that the attack took, then checks the bounds: at
    /// most a fifth plus [`SPARE_KIB`] more than before the attack, and never much more in between.
    async fn assert_unharmed(&self, attack: &str) {
        let bound = self.resident_before + self.resident_before / 5 + SPARE_KIB;
        let begun = Instant::now();
        while self.resident_kib() > bound && begun.elapsed() < HANG_TIMEOUT {
            self.assert_served().await;
        }
        let (before, after) = (self.resident_before, self.resident_kib());
        let peak = self.status_field("VmHWM:");
        println!("{attack}: {before} KiB before, {peak} at most, {after} after");
        assert!(after <= bound, "{attack}: {after} KiB is over {bound}");
        let peak_bound = bound + SPARE_KIB + self.max_open_calls * CALL_KIB;
        assert!(peak <= peak_bound, "{attack}: {peak} KiB at most");
    }

    /// Stops the daemon, checks that its log has no panic or internal error, and returns the log.
    async fn stop(self) -> String {
        drop(self.good);
        let log = self.serving.stop().await;
        for word in ["panicked", "internal error"] {
            assert!(!log.contains(word), "{log}");
        }
        log
    }
}

/// Returns a `caproot serve` command for a fixture, on TCP, with the given limits.
fn serve_command(fixture: &Fixture, limits: &str) -> Command {
    let config = format!("roots: [{{id: r, path: root}}]\nlimits: {{{limits}}}");
    serve_config(fixture, &config)
}

/// Adds a Unix socket, on which the users of this machine may connect, to a config. The TCP listener
/// stays the first one.
fn with_socket(fixture: &Fixture, config: &str) -> String {
    let socket = fixture.path("run/c.sock").display().to_string();
    format!("listen: ['tcp:127.0.0.1:0', 'unix:{socket}']\n{config}")
}

/// Starts a daemon with a config and the socket `run/c.sock`, which every user may connect to.
fn serve_with_socket(fixture: &Fixture, config: &str) -> Process {
    let command = serve_config(fixture, &with_socket(fixture, config));
    let serving = Process::start_until(command, |endpoints| endpoints.len() == 2);
    let socket = fixture.path("run/c.sock");
    for (path, mode) in [(fixture.top(), 0o755), (&socket, 0o666)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
    }
    serving
}

/// Returns a user without groups.
const fn user(uid: u32) -> ProcessUser {
    ProcessUser {
        uid,
        gid: uid,
        groups: &[],
    }
}

/// Connects to a Unix socket as this user, or as another user, which only root can.
async fn client_on(socket: &Path, user: Option<ProcessUser>) -> Client {
    CapabilityServiceClient::new(match user {
        Some(user) => user.open_channel(socket).await,
        None => channel_over(UnixStream::connect(socket).expect("a connection")).await,
    })
}

fn root() -> SelectedCapabilityRoot {
    located("r", "published:r")
}

/// Connects a client from another address of this machine.
async fn client_from(source: &str, address: SocketAddr) -> Client {
    let source: SocketAddr = format!("{source}:0").parse().expect("an address");
    let connector = service_fn(move |_: http::Uri| async move {
        let socket = TcpSocket::new_v4()?;
        socket.bind(source)?;
        socket.connect(address).await.map(TokioIo::new)
    });
    let endpoint = Endpoint::from_static("http://caproot.test");
    let channel = in_time(endpoint.connect_with_connector(connector)).await;
    CapabilityServiceClient::new(channel.expect("a connection"))
}

/// Whether a client gets the list of skills.
async fn is_served(client: &mut Client) -> bool {
    let list = in_time(client.list_skills(list_request(&[root()]))).await;
    list.is_ok_and(|list| list.into_inner().skills.len() == 1)
}
