//! The files of `docs/operate/link.md` work as they are, with the paths and ports of a test.

use caproot_client::{Fleet, RetryPolicy};
use caproot_link::BrokerConfig;
use rustix::process::Signal;

use super::announcements::wait_for_announcement;
use super::broker::NatsServer;
use super::call_executor;
use crate::harness::in_time;
use crate::harness::process::{Process, caproot, run_command};
use crate::harness::strace;
use crate::tls::authority::CertificateSpec;
use crate::tls::{CLIENT, Pki};

const PAGE: &str = include_str!("../../../../docs/operate/link.md");

/// Returns the text of a file of the page.
pub(super) fn file(name: &str) -> &'static str {
    let (_, rest) = PAGE
        .split_once(&format!("<!-- file {name} -->\n```"))
        .expect(name);
    let (_, text) = rest.split_once('\n').expect("a block");
    text.split_once("\n```").expect("the end of a block").0
}

/// Returns credentials of the page's executor, orchestrator and broker, and the broker.
async fn start_broker() -> Option<(Pki, NatsServer)> {
    start_broker_with("").await
}

/// As `start_broker`, with a further block of the broker's file.
async fn start_broker_with(more: &str) -> Option<(Pki, NatsServer)> {
    let pki = Pki::new();
    for name in ["one", "link"] {
        pki.issue(
            name,
            &CertificateSpec::client("spiffe://example.org/executor/one"),
        );
    }
    let dir = pki.fixture.path("").display().to_string();
    let config = format!("{}\n{more}", file("nats.conf"));
    let config = config.replace("/etc/nats", dir.trim_end_matches('/'));
    let config: Vec<_> = config
        .lines()
        .filter(|line| !line.starts_with("listen:"))
        .collect();
    pki.fixture.write("nats.conf", config.join("\n"));
    let broker =
        NatsServer::start(&format!("-a 127.0.0.1 -c {}", pki.path_arg("nats.conf"))).await?;
    Some((pki, broker))
}

/// Returns a file of the page with the addresses of a test.
pub(super) fn adapt(pki: &Pki, name: &str, broker: &NatsServer, daemon: &str) -> String {
    let text = file(name)
        .replace("tls://nats.example:4222", &broker.tls_url())
        .replace("127.0.0.1:7420", daemon)
        .replace("tcp:127.0.0.1:9465", "tcp:127.0.0.1:0")
        .replace("/srv/skills", &pki.path_arg("root"));
    pki.fixture.write(name, text);
    pki.path_arg(name)
}

#[tokio::test]
async fn the_files_of_the_page_give_a_list_over_a_tunnel() {
    let Some((pki, broker)) = start_broker().await else {
        return;
    };
    let config = adapt(&pki, "caproot.yaml", &broker, "127.0.0.1:0");
    let daemon = Process::start(caproot(["serve", "--config", &config]));
    let config = adapt(&pki, "link.yaml", &broker, daemon.address());
    let mut link = Process::start_until(caproot(["link", "--config", &config]), |e| !e.is_empty());
    assert_eq!(link.line().await, "linked one");
    let fleet = adapt(&pki, "fleet.yaml", &broker, "");
    let list = ["list", "--fleet", &fleet, "--environment-id", "one"];
    let list = run_command(caproot(list)).await.succeeded();
    assert!(list.text().contains("team"), "{}", list.text());
    let executors = run_command(caproot(["fleet", "list", &fleet, "one"]))
        .await
        .succeeded();
    assert!(executors.text().contains("one"), "{}", executors.text());

    // The broker denies the subjects of another executor to the link, and of claims to orchestrators.
    let other = file("link.yaml")
        .replace("[one]", "[two]")
        .replace("metrics:\n  listen", "#");
    let other = other
        .replace("tls://nats.example:4222", &broker.tls_url())
        .replace("127.0.0.1:7420", daemon.address())
        .replace("# tcp:127.0.0.1:9465", "");
    let other: Vec<_> = other
        .lines()
        .filter(|line| !line.starts_with('#'))
        .collect();
    pki.fixture.write("two.yaml", other.join("\n"));
    let mut two = Process::spawn(caproot(["link", "--config", &pki.path_arg("two.yaml")]));
    two.wait_for_log("Permissions Violation").await;
    let fleet = Fleet::from_file(&pki.fixture.path("fleet.yaml"))
        .await
        .expect("a fleet");
    let error = call_executor(&fleet, "two").await.expect_err("no link");
    assert!(error.contains("no link serves the environment"), "{error}");
    let client = fleet.client("one").await.expect("a client");
    in_time(client.with_retry_policy(RetryPolicy::NONE).get_executor())
        .await
        .expect("an answer");
    assert!(file("nats.conf").contains(CLIENT));
    // The broker lets orchestrators hear claims.
    let identity = ["client.pem", "client.key"].map(|name| pki.fixture.path(name));
    wait_for_announcement(BrokerConfig {
        ca: Some(pki.fixture.path("ca.pem")),
        identity: Some(identity.into()),
        ..BrokerConfig::new(vec![broker.tls_url()])
    })
    .await;
    drop((link, two, daemon));
}

#[tokio::test]
async fn a_link_and_an_orchestrator_come_by_web_sockets() {
    let websocket = file("nats-websocket.conf").replace("0.0.0.0:443", "127.0.0.1:-1");
    let Some((pki, broker)) = start_broker_with(&websocket).await else {
        return;
    };
    let over_https = |name| {
        let text = std::fs::read_to_string(pki.fixture.path(name)).expect("a file");
        let text = text.replace(&broker.tls_url(), &broker.websocket_url());
        pki.fixture.write(name, text);
    };
    let config = adapt(&pki, "caproot.yaml", &broker, "127.0.0.1:0");
    let daemon = Process::start(caproot(["serve", "--config", &config]));
    let config = adapt(&pki, "link.yaml", &broker, daemon.address());
    over_https("link.yaml");
    let mut link = Process::start_until(caproot(["link", "--config", &config]), |e| !e.is_empty());
    assert_eq!(link.line().await, "linked one");

    // The orchestrator comes by TLS, and then by WebSockets, too.
    let fleet = adapt(&pki, "fleet.yaml", &broker, "");
    let list = ["list", "--fleet", &fleet, "--environment-id", "one"];
    let by_tls = run_command(caproot(list)).await.succeeded();
    assert!(by_tls.text().contains("team"), "{}", by_tls.text());
    over_https("fleet.yaml");
    let by_web_socket = run_command(caproot(list)).await.succeeded();
    assert_eq!(by_web_socket.stdout, by_tls.stdout);

    let text = std::fs::read_to_string(&config).expect("a file");
    let mixed = text.replace("servers: ['", "servers: ['tls://127.0.0.1:1', '");
    pki.fixture.write("link.yaml", mixed);
    let checked = run_command(caproot(["link", "check", &config])).await;
    assert_eq!(checked.code, Some(78));
    let reason = "wss:// and other servers; name servers of one kind";
    assert!(checked.text().contains(reason), "{}", checked.text());
}

/// The link opens its config and its credentials, and no other file than those of any program.
#[tokio::test]
async fn the_link_opens_no_file_but_its_own() {
    let Some((pki, broker)) = start_broker().await else {
        return;
    };
    let config = adapt(&pki, "caproot.yaml", &broker, "127.0.0.1:0");
    let daemon = Process::start(caproot(["serve", "--config", &config]));
    let config = adapt(&pki, "link.yaml", &broker, daemon.address());
    let log = pki.fixture.path("strace.log");
    let options = ["-e", "trace=open,openat,openat2"];
    let command = caproot(["link", "--config", &config]);
    let Some(command) = strace::trace_command(&log, &options, command) else {
        return;
    };
    let mut link = Process::start_until(command, |endpoints| !endpoints.is_empty());
    assert_eq!(link.line().await, "linked one");
    adapt(&pki, "fleet.yaml", &broker, "");
    let fleet = Fleet::from_file(&pki.fixture.path("fleet.yaml"))
        .await
        .expect("a fleet");
    call_executor(&fleet, "one").await.expect("an answer");
    let output = link.exit_on(Signal::TERM).await;
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let log = std::fs::read_to_string(&log).expect("the log");
    let own = ["link.yaml", "ca.pem", "link.pem", "link.key"].map(|name| pki.path_arg(name));
    let of_any_program = ["/lib", "/usr/lib", "/etc/ld.so", "/proc/", "/sys/"];
    let opened: Vec<_> = log
        .lines()
        .filter_map(|line| line.split('"').nth(1))
        .collect();
    for own in &own {
        assert!(opened.contains(&&**own), "{own}: {log}");
    }
    let is_other = |path: &&&str| {
        !own.iter().any(|own| own == **path)
            && !of_any_program.iter().any(|prefix| path.starts_with(prefix))
    };
    assert_eq!(opened.iter().find(is_other), None, "{log}");
}
