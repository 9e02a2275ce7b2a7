//! TLS in a config file: errors of `config check`, behaviour of `serve`, and TCP for other
//! machines.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;

use super::authority::CertificateSpec;
use super::{Pki, TlsDaemon, run_command};
use crate::commands::{CommandOutput, caproot};
use crate::harness::connect;

async fn check_config(pki: &Pki, config: &str, more: &[&str]) -> CommandOutput {
    pki.fixture.write("c.yaml", config);
    let file = pki.path_arg("c.yaml");
    run_command(caproot(["config", "check", &file]).args(more)).await
}

fn stdout_text(ended: &CommandOutput) -> &str {
    std::str::from_utf8(&ended.stdout).expect("text")
}

#[tokio::test]
async fn config_check_reports_every_tls_error_with_its_position() {
    let pki = Pki::new();
    pki.fixture.write("broken", "-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n");
    pki.fixture.write(
        "locked",
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAA==\n-----END ENCRYPTED PRIVATE KEY-----\n",
    );
    pki.fixture.write("large", vec![b'x'; (1 << 20) + 1]);
    let top = pki.path_arg(".");
    for (files, expected) in [
        (
            "certificate: none.pem, key: none.key, client_ca: none",
            &[
                "1:20: tls.certificate: invalid value \"none.pem\": does not exist",
                "1:35: tls.key: invalid value \"none.key\": does not exist",
                "1:56: tls.client_ca: invalid value \"none\": does not exist",
            ][..],
        ),
        (
            "certificate: server.key, key: server.pem",
            &[
                "1:20: tls.certificate: invalid value \"server.key\": contains no PEM certificate",
                "1:37: tls.key: invalid value \"server.pem\": contains no PEM private key",
            ],
        ),
        (
            "certificate: server.pem, key: client.key",
            &[
                "1:37: tls.key: invalid value \"client.key\": is not the key of the certificate in $TOP/server.pem",
            ],
        ),
        (
            "certificate: broken, key: locked",
            &[
                "1:20: tls.certificate: invalid value \"broken\": contains invalid base64 in its PEM section",
                "1:33: tls.key: invalid value \"locked\": contains an encrypted key; use a key without a passphrase",
            ],
        ),
        (
            "certificate: large, key: root, client_ca: c.yaml",
            &[
                "1:20: tls.certificate: invalid value \"large\": is larger than 1 MiB, the limit for certificates and keys",
                "1:32: tls.key: invalid value \"root\": is not a regular file",
                "1:49: tls.client_ca: invalid value \"c.yaml\": contains no PEM certificate",
            ],
        ),
        ("key: server.key", &["1:6: tls.certificate: required key is missing"]),
        (
            "certificate: server.pem, key: server.key, ca: ca.pem",
            &["1:49: tls.ca: unknown key; the keys are certificate, key, client_ca"],
        ),
    ] {
        let output = check_config(&pki, &format!("tls: {{{files}}}"), &[]).await;
        assert_eq!(output.code, Some(78), "{files}");
        let file = pki.path_arg("c.yaml");
        let expected: Vec<_> =
            expected.iter().map(|line| format!("{file}:{}", line.replace("$TOP", &top))).collect();
        assert_eq!(stdout_text(&output).lines().collect::<Vec<_>>(), expected);
    }
    let both = "tls: {certificate: server.pem, key: server.key}\ninsecure_tcp: true";
    let output = check_config(&pki, both, &[]).await;
    assert!(
        stdout_text(&output)
            .contains(":2:15: insecure_tcp: invalid value true: cannot be combined with `tls`")
    );
    assert_eq!(output.code, Some(78));
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
        (output.code, stdout_text(&output).lines().count()),
        (Some(0), 1),
        "{}",
        stdout_text(&output)
    );
    pki.issue("server", &CertificateSpec::client("x:y").valid_years(2000, 2001));
    key(0o644);
    let output = check_config(&pki, &config, &[]).await;
    let [expired, nameless, open, ok] = stdout_text(&output).lines().collect::<Vec<_>>()[..] else {
        panic!("three warnings: {}", stdout_text(&output))
    };
    let (certificate, key) = (pki.path_arg("server.pem"), pki.path_arg("server.key"));
    let start = format!("warning: the certificate in {certificate}");
    assert_eq!(expired, format!("{start} expired on 2001-01-01 00:00 UTC"));
    assert!(nameless.starts_with(&format!("{start} names no host")), "{nameless}");
    assert!(open.starts_with(&format!("warning: {key} can be read by every user")), "{open}");
    assert!(ok.starts_with("ok: ") && output.code == Some(0), "{ok}");
    let output = check_config(&pki, &config, &["--output", "json"]).await;
    let json: Value = serde_json::from_str(stdout_text(&output)).expect("JSON");
    assert_eq!(json["warnings"].as_array().map(Vec::len), Some(3), "{json}");
    // The daemon prints the same warnings.
    let mut daemon = pki.serve(&[]).await;
    for part in ["expired on 2001", "names no host", "can be read by every user"] {
        assert!(daemon.wait_for_log("WARN").await.contains(part), "{part}");
    }
    daemon.stop().await;
}

#[tokio::test]
async fn flags_replace_the_certificate_of_the_config_file() {
    let pki = Pki::new();
    pki.issue("second", &CertificateSpec::for_host("second.example"));
    pki.fixture.write("c.yaml", VALID_TLS);
    let config = pki.path_arg("c.yaml");
    let daemon = TlsDaemon::start(&pki.fixture, &["--config", &config]).await;
    daemon.connect_and_call(&pki.client_credentials("client")).await;
    daemon.stop().await;
    // Flags replace the certificate and keep the client authority.
    let (cert, key) = (pki.path_arg("second.pem"), pki.path_arg("second.key"));
    let flags = ["--config", &config, "--tls-cert", &cert, "--tls-key", &key];
    let daemon = TlsDaemon::start(&pki.fixture, &flags).await;
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
    let all = ["serve", "--root", "/", "--listen", "tcp:0.0.0.0:0"];
    let output = run_command(&mut caproot(all)).await;
    assert_eq!(output.code, Some(78));
    assert!(
        output.stderr.contains("other machines could connect without TLS"),
        "{}",
        output.stderr
    );
    let (cert, key) = (pki.path_arg("server.pem"), pki.path_arg("server.key"));
    let both = ["--tls-cert", &cert, "--tls-key", &key, "--insecure-tcp"];
    let output = run_command(caproot(all).args(both)).await;
    assert_eq!(output.code, Some(78));
    assert!(
        output.stderr.contains("--insecure-tcp: cannot be combined with TLS"),
        "{}",
        output.stderr
    );

    let all = ["--listen", "tcp:0.0.0.0:0"];
    let daemon = pki.serve(&all).await;
    daemon.connect_and_call(&pki.ca_credentials()).await;
    daemon.stop().await;
    pki.fixture.write("c.yaml", "insecure_tcp: true\nlisten: ['tcp:0.0.0.0:0']");
    let config = pki.path_arg("c.yaml");
    for flags in [&[all[0], all[1], "--insecure-tcp"][..], &["--config", &config, all[0], all[1]]] {
        let mut daemon = TlsDaemon::start(&pki.fixture, flags).await;
        let warning = daemon.wait_for_log("WARN").await;
        assert!(warning.contains("other machines can connect to tcp:"), "{warning}");
        connect(&format!("127.0.0.1:{}", daemon.port)).await;
        daemon.stop().await;
    }
}
