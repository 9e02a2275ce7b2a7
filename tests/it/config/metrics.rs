//! Metrics of a scrape: correct counts, no labels from callers, and agreement with the dashboard and
//! the alerts.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use caproot::daemon::telemetry::RPC_METHODS;
use caproot_core::proto::FILE_DESCRIPTOR_SET;
use prost_reflect::DescriptorPool;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::harness::fixture::Fixture;
use crate::harness::process::{ConfiguredDaemon, Process, caproot};
use crate::harness::test_servers::unused_address;
use crate::harness::{in_time, published, read_request, selected};

const CONFIG: &str = "roots: [{id: r, path: root}, {id: gone, path: gone}]\n\
                      metrics: {listen: 'unix:run/m.sock'}\n";
const DASHBOARD: &str = include_str!("../../../systemd/monitoring/dashboard.json");
const ALERTS: &str = include_str!("../../../systemd/monitoring/alerts.yaml");

fn build_measured_tree() -> Fixture {
    Fixture::new("dir run\nmode 0700 run\nskill root/a\nskill root/b\nfile root/bad/SKILL.md\n| no")
}

/// Sends one HTTP request, and returns the response.
fn send_http_request(fixture: &Fixture, head: &str) -> String {
    let mut socket = UnixStream::connect(fixture.path("run/m.sock")).expect("a listener");
    // A response that rejects the request early may cut off the rest of the write.
    drop(socket.write_all(format!("{head} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()));
    let mut bytes = Vec::new();
    drop(socket.read_to_end(&mut bytes));
    String::from_utf8(bytes).expect("text")
}

/// Returns the metrics of the daemon that listens at `run/m.sock` of the fixture.
pub(crate) fn scrape(fixture: &Fixture) -> String {
    let answer = send_http_request(fixture, "GET /metrics");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    let (head, page) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(
        head.contains("content-type: application/openmetrics-text"),
        "{head}"
    );
    page.to_owned()
}

/// Starts a daemon, lists a root, and returns a scrape.
pub(crate) async fn scrape_new_daemon() -> String {
    let fixture = build_measured_tree();
    let served = ConfiguredDaemon::start(&fixture, CONFIG).await;
    served.list(&[published("r")]).await;
    scrape(&fixture)
}

/// Returns the metrics that a process serves at a TCP address.
pub(crate) async fn scrape_address(address: &str) -> String {
    let mut stream = TcpStream::connect(address).await.expect("metrics");
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n")
        .await
        .expect("metrics");
    let mut text = String::new();
    in_time(stream.read_to_string(&mut text))
        .await
        .expect("metrics");
    text.split_once("\r\n\r\n").expect("a head").1.to_owned()
}

/// Starts a link whose broker is away, and returns a scrape.
pub(crate) async fn scrape_new_link() -> String {
    let fixture = Fixture::new("");
    let config = format!(
        "environment_ids: [one]\ndaemon: tls:127.0.0.1:1\nnats: {{servers: ['nats://{}']}}\n\
         metrics: {{listen: 'tcp:127.0.0.1:0'}}\n",
        unused_address()
    );
    fixture.write("link.yaml", config);
    let mut command = caproot(["link", "--config"]);
    command.arg(fixture.path("link.yaml"));
    let link = Process::start_until(command, |endpoints| !endpoints.is_empty());
    scrape_address(link.address()).await
}

/// Returns the value of one series.
pub(crate) fn series_value(page: &str, series: &str) -> f64 {
    let line = page
        .lines()
        .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{series} in {page}"))
        .parse()
        .expect("a number")
}

/// Returns the names of all metric families as Prometheus stores them.
fn families(page: &str) -> BTreeSet<String> {
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let names = types.map(|line| match line.split_once(' ').expect("a type") {
        (name, "counter") => format!("{name}_total"),
        (name, "info") => format!("{name}_info"),
        (name, _) => name.to_owned(),
    });
    names.collect()
}

#[tokio::test]
async fn counts_match_the_served_roots_and_calls() {
    let fixture = build_measured_tree();
    let served = ConfiguredDaemon::start(&fixture, CONFIG).await;
    let wrong_path = selected("typo", fixture.path("root/typo"));
    let roots = [published("r"), published("gone"), wrong_path];
    served.list(&roots).await;
    for package in ["skill://r/none", "skill://r/a", "skill://r/a"] {
        drop(
            served
                .read(read_request(&published("r"), package, ""))
                .await,
        );
    }
    let page = scrape(&fixture);
    for (series, expected) in [
        ("caproot_skills", 2.0),
        (r#"caproot_roots{kind="published",state="ready"}"#, 1.0),
        (
            r#"caproot_roots{kind="published",state="unavailable"}"#,
            1.0,
        ),
        (r#"caproot_roots{kind="selected",state="ready"}"#, 0.0),
        (r#"caproot_roots{kind="selected",state="unavailable"}"#, 1.0),
        (
            r#"caproot_roots_unavailable{kind="published",reason="NOT_FOUND"}"#,
            1.0,
        ),
        (
            r#"caproot_roots_unavailable{kind="selected",reason="NOT_FOUND"}"#,
            1.0,
        ),
        ("caproot_diagnostics{code=\"NO_FRONTMATTER\"}", 1.0),
        ("caproot_diagnostics{code=\"OUTSIDE_ROOT\"}", 0.0),
        ("caproot_watcher_running", 1.0),
        ("caproot_watch_overflows_total", 0.0),
        ("caproot_tls_certificate_expiry_timestamp_seconds", 0.0),
    ] {
        assert!(
            (series_value(&page, series) - expected).abs() < 0.1,
            "{series} {expected} in {page}"
        );
    }
    for series in [
        "caproot_revisions_total",
        "caproot_watches",
        "caproot_scans_total{kind=\"full\"}",
    ] {
        assert!(series_value(&page, series) >= 1.0, "{series} in {page}");
    }
    let read = "method=\"caproot.v1.CapabilityService/ReadResource\"";
    let ended = |code| {
        series_value(
            &page,
            &format!("caproot_calls_total{{{read},code=\"{code}\"}}"),
        )
    };
    assert!(
        (ended("OK") - 2.0).abs() < 0.1 && (ended("NOT_FOUND") - 1.0).abs() < 0.1,
        "{page}"
    );
    let timed = series_value(
        &page,
        &format!("caproot_call_duration_seconds_count{{{read}}}"),
    );
    assert!((timed - 3.0).abs() < 0.1, "{page}");
}

#[tokio::test]
async fn text_of_callers_makes_no_label() {
    let fixture = build_measured_tree();
    let served = ConfiguredDaemon::start(&fixture, CONFIG).await;
    let address = served.address.clone();
    let channel = tonic::transport::Endpoint::from_shared(format!("http://{address}"))
        .expect("an address")
        .connect()
        .await
        .expect("connected");
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready().await.expect("ready");
    let path = http::uri::PathAndQuery::from_static("/evil.Service/Name");
    let codec = tonic_prost::ProstCodec::<(), ()>::default();
    drop(
        grpc.unary(tonic::Request::new(()), path, codec)
            .await
            .expect_err("no such method"),
    );
    let page = scrape(&fixture);
    assert!(!page.contains("evil"), "{page}");
    let other = "caproot_calls_total{method=\"other\",code=\"UNIMPLEMENTED\"}";
    assert!((series_value(&page, other) - 1.0).abs() < 0.1, "{page}");
}

#[test]
fn every_method_is_known_by_name() {
    let pool = DescriptorPool::decode(FILE_DESCRIPTOR_SET).expect("descriptors");
    let own = pool.services().flat_map(|service| {
        let methods: Vec<_> = service.methods().collect();
        methods
            .into_iter()
            .map(move |m| format!("{}/{}", service.full_name(), m.name()))
    });
    for method in own {
        assert!(RPC_METHODS.contains(&&*method), "{method}");
    }
}

#[tokio::test]
async fn other_http_requests_are_rejected() {
    let fixture = build_measured_tree();
    let _served = ConfiguredDaemon::start(&fixture, CONFIG).await;
    assert!(send_http_request(&fixture, "GET /x").starts_with("HTTP/1.1 404"));
    assert!(send_http_request(&fixture, "POST /").starts_with("HTTP/1.1 404"));
    let front = send_http_request(&fixture, "GET /");
    assert!(
        front.starts_with("HTTP/1.1 200")
            && front
                .ends_with("\r\n\r\ncaproot serves metrics for Prometheus here: scrape /metrics\n"),
        "{front}"
    );
    assert!(send_http_request(&fixture, "POST /metrics").starts_with("HTTP/1.1 405"));
    let garbage = send_http_request(&fixture, "\0\u{1}");
    assert!(
        garbage.is_empty() || garbage.starts_with("HTTP/1.1 400"),
        "{garbage}"
    );
    scrape(&fixture);
}

#[tokio::test]
async fn the_dashboard_and_the_alerts_name_existing_metrics() {
    let mut families = families(&scrape_new_daemon().await);
    families.extend(self::families(&scrape_new_link().await));
    let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).expect("JSON");
    assert!(
        dashboard["panels"]
            .as_array()
            .is_some_and(|panels| panels.len() >= 8)
    );
    let alerts: serde_yaml::Value = serde_yaml::from_str(ALERTS).expect("YAML");
    assert!(
        alerts["groups"][0]["rules"]
            .as_sequence()
            .is_some_and(|rules| rules.len() >= 5)
    );
    for (file, text) in [("dashboard.json", DASHBOARD), ("alerts.yaml", ALERTS)] {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let named: BTreeSet<_> = words.filter(|word| word.starts_with("caproot_")).collect();
        assert!(!named.is_empty(), "{file} names no metric");
        for name in named {
            let family = name.strip_suffix("_bucket").unwrap_or(name);
            assert!(
                families.contains(family),
                "{file} names {name}, which does not exist"
            );
        }
    }
}
