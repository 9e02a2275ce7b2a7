//! TLS in a config file: errors of `config check`, behaviour of `serve`, and TCP for other
//! machines.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;

use super::authority::CertificateSpec;
use super::{Pki, TlsDaemon};
use crate::harness::connect;
use crate::harness::golden::check_cases;
use crate::harness::process::{Output, caproot, run_blocking, run_command};

async fn check_config(pki: &Pki, config: &str, more: &[&str]) -> Output {
    pki.fixture.write("c.yaml", config);
    let file = pki.path_arg("c.yaml");
    run_command(caproot(["config", "check", &file]).args(more)).await
}

#[test]
fn config_check_reports_every_tls_error_with_its_position() {
    let pki = Pki::new();
    pki.fixture.write(
        "broken",
        "-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n",
    );
    pki.fixture.write(
        "locked",
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAA==\n-----END ENCRYPTED PRIVATE KEY-----\n",
    );
    pki.fixture.write("large", vec![b'x'; (1 << 20) + 1]);
    let file = pki.path_arg("c.yaml");
    check_cases("tests/snapshots/tls_errors.txt", |config| {
        pki.fixture.write("c.yaml", config);
        let output = run_blocking(caproot(["config", "check", &file])).exited_with(78, "");
        let text = output.text().replace(&format!("{file}:"), "");
        text.replace(pki.fixture.top().to_str().expect("UTF-8"), "$TMP")
    });
}

const VALID_TLS: &str = "tls: {certificate: server.pem, key: server.key, client_ca: ca.pem}\n";

#[tokio::test]
async fn expired_nameless_or_readable_certificate_files_are_warnings() {
    let pki = Pki::new();
    let key = |mode| {
        let mode = Permissions::from_mode(mode);
        fs::set_permissions(pki.fixture.path("server.key"), mode).expect("chmod");
    };
    key(0o640);
    let config = format!("{VALID_TLS}roots: [{{id: r, path: root}}]");
    let output = check_config(&pki, &config, &[]).await;
    assert_eq!(
        (output.code, output.text().lines().count()),
        (Some(0), 1),
        "{}",
        output.text()
    );
    // The group of the key is the group of the test, and of the socket.
    let shared = format!("{config}\nsocket: {{mode: '0660'}}\nmetrics: {{listen: 'unix:m.sock'}}");
    let output = check_config(&pki, &shared, &[]).await;
    let (key_file, first) = (pki.path_arg("server.key"), output.text().lines().next());
    let start = format!("warning: {key_file} can be read by group ");
    assert!(
        first.is_some_and(|line| line.starts_with(&start)) && output.code == Some(0),
        "{}",
        output.text()
    );
    pki.issue(
        "server",
        &CertificateSpec::client("x:y").valid_years(2000, 2001),
    );
    key(0o644);
    let output = check_config(&pki, &config, &[]).await;
    let [expired, nameless, open, ok] = output.text().lines().collect::<Vec<_>>()[..] else {
        panic!("three warnings: {}", output.text())
    };
    let (certificate, key_file) = (pki.path_arg("server.pem"), pki.path_arg("server.key"));
    let start = format!("warning: the certificate in {certificate}");
    assert_eq!(expired, format!("{start} expired on 2001-01-01 00:00 UTC"));
    assert!(
        nameless.starts_with(&format!("{start} names no host")),
        "{nameless}"
    );
    assert!(
        open.starts_with(&format!("warning: {key_file} can be read by every user")),
        "{open}"
    );
    assert!(ok.starts_with("ok: ") && output.code == Some(0), "{ok}");
    let output = check_config(&pki, &config, &["--output", "json"]).await;
    let json: Value = serde_json::from_str(output.text()).expect("JSON");
    assert_eq!(json["warnings"].as_array().map(Vec::len), Some(3), "{json}");
    pki.issue(
        "server",
        &CertificateSpec::client("spiffe://example.org/executor/one"),
    );
    let output = check_config(&pki, &config, &[]).await;
    let spiffe = output.text().lines().next().expect("a warning");
    assert_eq!(
        spiffe,
        format!(
            "{start} has a SPIFFE id and names no host; only clients that expect the SPIFFE id \
             accept the certificate"
        )
    );
    pki.issue(
        "server",
        &CertificateSpec::client("x:y").valid_years(2000, 2001),
    );
    key(0o644);
    // The daemon prints the same warnings.
    let mut daemon = pki.serve(&[]);
    for part in [
        "expired on 2001",
        "names no host",
        "can be read by every user",
    ] {
        assert!(
            daemon.process.wait_for_log("WARN").await.contains(part),
            "{part}"
        );
    }
    daemon.stop().await;
}

#[tokio::test]
async fn flags_replace_the_certificate_of_the_config_file() {
    let pki = Pki::new();
    pki.issue("second", &CertificateSpec::for_host("second.example"));
    pki.fixture.write("c.yaml", VALID_TLS);
    let config = pki.path_arg("c.yaml");
    let daemon = TlsDaemon::start(&pki.fixture, &["--config", &config]);
    daemon
        .connect_and_call(&pki.client_credentials("client"))
        .await;
    daemon.stop().await;
    // Flags replace the certificate and keep the client authority.
    let (cert, key) = (pki.path_arg("second.pem"), pki.path_arg("second.key"));
    let flags = ["--config", &config, "--tls-cert", &cert, "--tls-key", &key];
    let daemon = TlsDaemon::start(&pki.fixture, &flags);
    let mut credentials = pki.client_credentials("client");
    credentials.server_name = Some("second.example".to_owned());
    daemon.connect_and_call(&credentials).await;
    credentials.identity = None;
    assert!(daemon.connect(&credentials).await.is_err());
    daemon.stop().await;
}

#[tokio::test]
async fn tcp_for_other_machines_needs_tls_or_insecure_tcp() {
    let pki = Pki::new();
    let all = ["--listen", "tcp:0.0.0.0:0"];
    let daemon = pki.serve(&all);
    daemon.connect_and_call(&pki.ca_credentials()).await;
    daemon.stop().await;
    pki.fixture
        .write("c.yaml", "insecure_tcp: true\nlisten: ['tcp:0.0.0.0:0']");
    let config = pki.path_arg("c.yaml");
    for flags in [
        &[all[0], all[1], "--insecure-tcp"][..],
        &["--config", &config, all[0], all[1]],
    ] {
        let mut daemon = TlsDaemon::start(&pki.fixture, flags);
        let warning = daemon.process.wait_for_log("WARN").await;
        assert!(
            warning.contains("other machines can connect to tcp:"),
            "{warning}"
        );
        connect(&format!("127.0.0.1:{}", daemon.port)).await;
        daemon.stop().await;
    }
}
