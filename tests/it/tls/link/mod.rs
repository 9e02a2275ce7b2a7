//! `caproot link` with a real broker: the real binary as daemon, link and client, and Debian's
//! `nats-server`. Without that program, the tests print that they are skipped.

mod accounts;
mod announcements;
mod broker;
mod claims;
mod cluster;
mod cuttable_route;
mod floods;
pub(crate) mod nats_cluster;
mod outages;
mod page;

use std::path::PathBuf;
use std::time::Duration;

use caproot_client::{Fleet, Mirror, MirrorSelection, MirrorSnapshot, MirrorState};

use super::authority::{CertificateSpec, dns, uri};
use super::{Pki, TlsDaemon, call_executor};
use crate::harness::process::{Process, caproot, run_command};
use crate::harness::{HANG_TIMEOUT, in_time, published};
use broker::NatsServer;

/// A daemon with TLS behind a broker: the executor `one`.
struct LinkedExecutor<B = NatsServer> {
    pki: Pki,
    daemon: TlsDaemon,
    broker: B,
}

impl<B> LinkedExecutor<B> {
    /// Starts the daemon.
    fn behind(broker: B) -> Self {
        let pki = Pki::new();
        let spec = CertificateSpec::server()
            .with_name(dns("one.executors.example"))
            .with_name(uri("spiffe://example.org/executor/one"));
        pki.issue("server", &spec);
        let daemon = pki.serve(&["--environment-id", "one", "--environment-id", "two"]);
        Self {
            pki,
            daemon,
            broker,
        }
    }

    /// Writes the config of a link for an environment to servers. `more` has further lines.
    fn write_link_to(&self, servers: &str, environment_id: &str, more: &str) -> PathBuf {
        let text = format!(
            "environment_ids: [{environment_id}]\ndaemon: tls:127.0.0.1:{}\nnats:\n  servers: \
             [{servers}]\n{more}",
            self.daemon.port,
        );
        let name = format!("link-{environment_id}.yaml");
        self.pki.fixture.write(&name, text);
        self.pki.fixture.path(&name)
    }

    /// Starts a link to servers, and waits until the link is ready.
    async fn start_link_to(&self, servers: &str, environment_id: &str, more: &str) -> Process {
        let mut command = caproot(["link", "--config"]);
        command.arg(self.write_link_to(servers, environment_id, more));
        let mut link = Process::spawn(command);
        assert_eq!(link.line().await, format!("linked {environment_id}"));
        link
    }

    /// Writes a fleet file whose executors come through servers.
    fn write_fleet_to(&self, servers: &str, name: &str) -> PathBuf {
        let text = format!(
            "nats:\n  servers: [{servers}]\npattern:\n  endpoint: \
             tls:{{id}}.executors.example:7420\n  via: nats\n  ca: ca.pem\n  spiffe_id: \
             spiffe://example.org/executor/{{id}}\n",
        );
        self.pki.fixture.write(name, text);
        self.pki.fixture.path(name)
    }

    /// Opens a fleet with a file of its own, because a fleet follows the changes of its file.
    async fn open_fleet_to(&self, servers: &str, name: &str) -> Fleet {
        Fleet::from_file(&self.write_fleet_to(servers, name))
            .await
            .expect("a valid file")
    }

    /// Adds a skill to the root of the daemon.
    fn add_skill(&self, name: &str) {
        let text = format!("---\nname: {name}\ndescription: A skill. Use it.\n---\n");
        self.pki
            .fixture
            .write(&format!("root/{name}/SKILL.md"), text);
    }
}

impl LinkedExecutor {
    /// Starts the daemon and the broker. Returns `None` without the broker's program.
    async fn start() -> Option<Self> {
        Some(Self::behind(NatsServer::start("").await?))
    }

    fn write_link(&self, environment_id: &str, more: &str) -> PathBuf {
        self.write_link_to(&self.broker.url(), environment_id, more)
    }

    async fn start_link(&self, environment_id: &str, more: &str) -> Process {
        self.start_link_to(&self.broker.url(), environment_id, more)
            .await
    }

    fn write_fleet(&self) -> PathBuf {
        self.write_fleet_to(&self.broker.url(), "fleet.yaml")
    }

    async fn open_fleet(&self) -> Fleet {
        self.open_fleet_to(&self.broker.url(), "fleet.yaml").await
    }
}

/// Returns a mirror of the root of the executor `one`.
fn mirror_one(fleet: &Fleet) -> Mirror {
    let mut root = published("root");
    "one".clone_into(&mut root.location.as_mut().expect("a location").environment_id);
    fleet.mirror("one", MirrorSelection::new(vec![root]))
}

/// Waits for a state of a mirror.
async fn wait_for(mirror: &mut Mirror, is_expected: impl Fn(&MirrorSnapshot) -> bool) {
    in_time(reach(mirror, is_expected)).await;
}

/// Follows a mirror up to a state.
async fn reach(mirror: &mut Mirror, is_expected: impl Fn(&MirrorSnapshot) -> bool) {
    while !is_expected(&mirror.snapshot()) {
        mirror.changed().await;
    }
}

/// Waits until a mirror is live with a number of skills.
async fn wait_until_live_with(mirror: &mut Mirror, skills: usize) {
    wait_until_live_within(HANG_TIMEOUT, mirror, skills).await;
}

/// Waits until a mirror is live with a number of skills, at most for `limit`.
async fn wait_until_live_within(limit: Duration, mirror: &mut Mirror, skills: usize) {
    let is_live = |now: &MirrorSnapshot| {
        now.state == MirrorState::Live && now.catalog.skill_count() == skills
    };
    tokio::time::timeout(limit, reach(mirror, is_live))
        .await
        .expect("no hang");
}

fn is_stale(snapshot: &MirrorSnapshot) -> bool {
    matches!(snapshot.state, MirrorState::Stale { .. })
}

/// Calls the executor of an environment until a call succeeds.
async fn call_until_success(fleet: &Fleet, environment_id: &str) {
    in_time(async {
        while call_executor(fleet, environment_id).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Text of a skill that must not be readable outside of TLS.
const SECRET: &str = "only the orchestrator reads this sentence";

#[tokio::test]
async fn a_tunnel_carries_the_bytes_of_a_direct_connection() {
    let Some(executor) = LinkedExecutor::start().await else {
        return;
    };
    let body = format!("{SECRET}\n").repeat(20_000);
    let skill = format!("---\nname: a\ndescription: A skill. Use it.\n---\n{body}");
    executor.pki.fixture.write("root/a/SKILL.md", skill);
    let recorder = executor.broker.record_everything().await;
    let link = executor.start_link("one", "").await;
    let fleet = executor.write_fleet();
    let direct = executor.pki.path_arg("ca.pem");
    let endpoint = executor.daemon.endpoint();
    for words in ["list --output json", "read skill://root/a"] {
        let words = || words.split_whitespace();
        let tunnel = ["--environment-id", "one", "--fleet"];
        let mut tunnel = caproot(words().chain(tunnel));
        let tunnel = run_command(tunnel.arg(&fleet)).await.succeeded();
        let direct = ["--ca", &direct, "--endpoint", &endpoint];
        let direct = run_command(caproot(words().chain(direct)))
            .await
            .succeeded();
        assert!(!direct.stdout.is_empty() && tunnel.stdout == direct.stdout);
    }
    // A link has opened the tunnels, and the broker has seen their bytes.
    let messages = recorder.stop().await;
    let text = String::from_utf8_lossy(&messages);
    assert!(text.contains("caproot.v1.in.one.dial") && messages.len() > body.len());
    assert!(
        !text.contains(&SECRET[..12]),
        "the broker sees ciphertext only"
    );
    let log = link.exit_on(rustix::process::Signal::TERM).await;
    assert_eq!(log.code, Some(0), "{}", log.stderr);
    executor.daemon.stop().await;
}

#[tokio::test]
async fn an_executor_is_the_one_that_its_certificate_names() {
    let Some(executor) = LinkedExecutor::start().await else {
        return;
    };
    let fleet = executor.open_fleet().await;
    let error = call_executor(&fleet, "one").await.expect_err("no link");
    assert!(
        error.contains("no link serves the environment: start `caproot link`"),
        "{error}"
    );
    let one = executor.start_link("one", "").await;
    // A link that claims the environment of another executor.
    let two = executor.start_link("two", "").await;
    call_executor(&fleet, "one").await.expect("an answer");
    let error = call_executor(&fleet, "two")
        .await
        .expect_err("another executor");
    assert!(
        error.contains(
            "is not for spiffe://example.org/executor/two, but for \
             spiffe://example.org/executor/one"
        ),
        "{error}"
    );
    drop((one, two));
    let file = executor.pki.path_arg("fleet.yaml");
    for words in ["list --environment-id three --fleet", "fleet list"] {
        let mut command = caproot(words.split_whitespace().chain([&*file]));
        let code = if words == "fleet list" {
            command.arg("three");
            1
        } else {
            3
        };
        run_command(command)
            .await
            .exited_with(code, "no link serves the environment");
    }
}

#[tokio::test]
async fn the_limits_of_a_link_refuse_dials() {
    let Some(executor) = LinkedExecutor::start().await else {
        return;
    };
    let link = executor.start_link("one", "max_tunnels: 1\n").await;
    let (first, second) = (executor.open_fleet().await, executor.open_fleet().await);
    // The client keeps its tunnel open.
    let client = first.client("one").await.expect("a client");
    call_executor(&first, "one").await.expect("an answer");
    let error = call_executor(&second, "one")
        .await
        .expect_err("a second tunnel");
    assert!(
        error.contains("the link has its maximum number of tunnels"),
        "{error}"
    );
    drop((client, first));
    // The tunnel of the first fleet ends.
    call_until_success(&second, "one").await;
    drop(link);
}

/// The daemon is away when a dial comes, and the link says so.
#[tokio::test]
async fn a_stopped_daemon_refuses_dials() {
    let Some(executor) = LinkedExecutor::start().await else {
        return;
    };
    let link = executor.start_link("one", "").await;
    let fleet = executor.open_fleet().await;
    let LinkedExecutor {
        pki,
        daemon,
        broker,
    } = executor;
    daemon.stop().await;
    let error = call_executor(&fleet, "one").await.expect_err("no daemon");
    assert!(
        error.contains("the link cannot connect to the daemon on its machine"),
        "{error}"
    );
    drop((link, pki, broker));
}

#[tokio::test]
async fn a_link_file_is_checked_without_a_connection() {
    let pki = Pki::new();
    let valid = "environment_ids: [one]\ndaemon: tls:127.0.0.1:1\nnats: {servers: [tls://n]}\n";
    pki.fixture.write("link.yaml", valid);
    let file = pki.path_arg("link.yaml");
    let checked = run_command(caproot(["link", "check", &file]))
        .await
        .succeeded();
    assert_eq!(checked.text(), format!("ok: {file}: 1 environment\n"));
    pki.fixture
        .write("link.yaml", valid.replace("tls:127", "tcp:127"));
    let checked = run_command(caproot(["link", "check", &file])).await;
    assert_eq!(checked.code, Some(78));
    let finding = "link.yaml:2:9: daemon: invalid value \"tcp:127.0.0.1:1\": expected tls";
    assert!(checked.text().contains(finding), "{}", checked.text());
    pki.fixture.write(
        "link.yaml",
        format!("{valid}  \n").replace("tls://n", "tls://n], creds: [x"),
    );
    let checked = run_command(caproot(["link", "--config", &file])).await;
    checked.exited_with(78, "nats.creds: expected text, found a list");
    let example = run_command(caproot(["config", "example", "--link"]))
        .await
        .succeeded();
    pki.fixture.write("link.yaml", example.stdout);
    let checked = run_command(caproot(["link", "check", &file]))
        .await
        .succeeded();
    assert_eq!(checked.text(), format!("ok: {file}: 1 environment\n"));
}
