//! Clients that mean harm, against the real binary: whatever they do costs the daemon next to nothing,
//! and whoever else is there is served all the while.

mod connections;
mod files;
mod floods;
mod memory;
mod raw;
mod refusals;
mod silence;

use std::ffi::OsStr;
use std::fs;
use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use caproot::proto::caproot::v1::SelectedCapabilityRoot;
use caproot::proto::caproot::v1::capability_service_client::CapabilityServiceClient;
use hyper_util::rt::TokioIo;
use tokio::net::TcpSocket;
use tonic::transport::Endpoint;
use tower::service_fn;

use crate::binary::Serving;
use crate::fixture::Fixture;
use crate::harness::{Client, Daemon, HANG, in_time, list_request, located};

/// What may come beside a fifth of what was there: buffers that are kept for later.
const SPARE_KIB: u64 = 8 << 10;
/// What a call that is under way may come to, in a debug build.
const CALL_KIB: u64 = 16;

/// A daemon of its own, and a client of it that means no harm.
struct Victim {
    serving: Serving,
    good: Daemon,
    address: SocketAddr,
    /// In memory before anybody did harm, in KiB.
    before: u64,
    /// How many calls attackers may have under way, with those of connections that just ended.
    calls: u64,
}

impl Victim {
    /// Serves `root` of the fixture as `r`, with these limits.
    async fn new(fixture: &Fixture, limits: &str) -> Self {
        Self::of(&mut command(fixture, limits)).await
    }

    async fn of(command: &mut Command) -> Self {
        let serving = Serving::of(command);
        let address = serving.endpoint().strip_prefix("tcp:").expect("TCP").to_owned();
        let good = Daemon::elsewhere(&address).await;
        let address = address.parse().expect("an address");
        let mut victim = Self { serving, good, address, before: 0, calls: 0 };
        for _ in 0..50 {
            victim.is_served().await;
        }
        victim.before = victim.resident();
        victim
    }

    /// Lists, as often as anybody may.
    async fn is_served(&self) {
        let list = self.good.list(&[root()]).await;
        assert!(!list.skills.is_empty(), "{list:?}");
    }

    /// What is in memory now, in KiB.
    fn resident(&self) -> u64 {
        self.status("VmRSS:")
    }

    fn status(&self, field: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.serving.pid()));
        let status = status.expect("a live process");
        let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("the field");
        line.split_whitespace().next().expect("a number").parse().expect("a number")
    }

    /// Files that it has open.
    fn descriptors(&self) -> usize {
        let open = fs::read_dir(format!("/proc/{}/fd", self.serving.pid()));
        open.expect("a live process").count()
    }

    /// Waits until what was in use by attackers has been given back: what is in memory is within a fifth
    /// of what was, and was never much more.
    async fn assert_unharmed(&self, what: &str) {
        let bound = self.before + self.before / 5 + SPARE_KIB;
        let begun = Instant::now();
        while self.resident() > bound && begun.elapsed() < HANG {
            self.is_served().await;
        }
        let (before, after, most) = (self.before, self.resident(), self.status("VmHWM:"));
        println!("{what}: {before} KiB before, {most} at most, {after} after");
        assert!(after <= bound, "{what}: {after} KiB is over {bound}");
        assert!(most <= bound + SPARE_KIB + self.calls * CALL_KIB, "{what}: {most} KiB at most");
    }

    /// Ends it, and checks that it met no defect of its own.
    async fn end(self) -> String {
        drop(self.good);
        let (code, log) = self.serving.terminated().await;
        assert_eq!(code, Some(0), "{log}");
        assert!(!log.contains("panicked") && !log.contains("internal error"), "{log}");
        log
    }
}

/// `caproot serve` for a fixture, on TCP, with these limits.
fn command(fixture: &Fixture, limits: &str) -> Command {
    let root = fixture.path("root");
    let config = format!(
        "listen: ['tcp:127.0.0.1:0']\nroots: [{{id: r, path: {}}}]\nlimits: {{{limits}}}\n",
        root.display()
    );
    fixture.write("caproot.yaml", config);
    let mut command = Command::new(env!("CARGO_BIN_EXE_caproot"));
    let args = [OsStr::new("serve"), OsStr::new("--config")];
    command.args(args).arg(fixture.path("caproot.yaml")).env_clear();
    command
}

fn root() -> SelectedCapabilityRoot {
    located("r", "published:r")
}

/// A client that connects from another address of this machine.
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

/// Whether a client of its own is served.
async fn serves(client: &mut Client) -> bool {
    let list = in_time(client.list_skills(list_request(&[root()]))).await;
    list.is_ok_and(|list| list.into_inner().skills.len() == 1)
}

/// Waits until something is so that comes by itself.
async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < HANG, "never so: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
