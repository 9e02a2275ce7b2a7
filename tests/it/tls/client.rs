//! Clients that verify a daemon over TLS: error messages and exit codes.

use super::authority::{Authority, CertificateSpec};
use super::{Pki, TlsDaemon, list};
use crate::harness::process::{caproot, run_command};
use crate::harness::test_servers::silent_listener;

#[tokio::test]
async fn a_list_over_tls_succeeds() {
    let pki = Pki::new();
    let mut daemon = pki.serve(&[]);
    daemon.process.wait_for_log("serving TLS").await;
    let ca = pki.path_arg("ca.pem");
    for endpoint in [
        daemon.endpoint(),
        format!("https://localhost:{}/", daemon.port),
        format!("tls:127.0.0.1:{}", daemon.port),
    ] {
        let output = list(["--endpoint", &endpoint, "--ca", &ca], &[])
            .await
            .succeeded();
        assert!(output.text().contains("Does a."));
    }
    // The settings come from variables, with the authorities of the machine.
    for variable in ["CAPROOT_CA", "SSL_CERT_FILE"] {
        let endpoint = daemon.endpoint();
        let output = list([""; 0], &[("CAPROOT_ENDPOINT", &endpoint), (variable, &ca)]).await;
        assert_eq!(output.code, Some(0), "{variable}: {}", output.stderr);
    }
    daemon.process.wait_for_log("connected over TLS").await;
    daemon.stop().await;
}

/// Asserts that `caproot list` fails with this message, a hint and this exit code.
async fn assert_list_fails(flags: &[&str], code: i32, expected: &str) {
    let output = list(flags, &[("SSL_CERT_FILE", "/dev/null")])
        .await
        .exited_with(code, "");
    assert!(output.stdout.is_empty());
    assert!(
        output.stderr.lines().count() <= 2,
        "a sentence and a hint: {}",
        output.stderr
    );
    let first = output.stderr.lines().next().expect("a sentence");
    assert!(first.contains(expected), "{expected:?} in {first}");
}

#[tokio::test]
async fn a_client_without_tls_gets_an_error_that_names_tls() {
    let pki = Pki::new();
    let daemon = pki.serve(&[]);
    let endpoint = format!("tcp:127.0.0.1:{}", daemon.port);
    // The state of the closed connection varies between runs. The message must not.
    for _ in 0..10 {
        assert_list_fails(&["--endpoint", &endpoint], 3, "the server requires TLS").await;
    }
    let mut watch = caproot(["watch", "--endpoint", &endpoint]);
    run_command(&mut watch).await.exited_with(3, "");
    daemon.stop().await;
}

#[tokio::test]
async fn servers_without_tls_are_reported() {
    let pki = Pki::new();
    let daemon = TlsDaemon::start(&pki.fixture, &[]);
    let ca = pki.path_arg("ca.pem");
    assert_list_fails(
        &["--endpoint", &daemon.endpoint(), "--ca", &ca],
        3,
        "does not speak TLS",
    )
    .await;
    daemon.stop().await;
    let (taken, address) = silent_listener();
    let endpoint = format!("tls:{address}");
    let silent = ["--endpoint", &endpoint, "--ca", &ca, "--timeout", "300ms"];
    assert_list_fails(&silent, 3, "no connection within 300ms").await;
    drop(taken);
    assert_list_fails(
        &["--endpoint", &endpoint, "--ca", &ca],
        3,
        "no daemon answers",
    )
    .await;
}

#[tokio::test]
async fn untrusted_certificates_are_rejected() {
    let pki = Pki::new();
    let other = Authority::new("another");
    pki.fixture.write("other.pem", other.pem());
    let daemon = pki.serve(&[]);
    let (endpoint, ca, other) = (
        daemon.endpoint(),
        pki.path_arg("ca.pem"),
        pki.path_arg("other.pem"),
    );
    let unknown = "an authority that is not trusted";
    assert_list_fails(&["--endpoint", &endpoint, "--ca", &other], 3, unknown).await;
    let namesake = Authority::new("ours");
    pki.fixture.write("namesake.pem", namesake.pem());
    assert_list_fails(
        &[
            "--endpoint",
            &endpoint,
            "--ca",
            &pki.path_arg("namesake.pem"),
        ],
        3,
        unknown,
    )
    .await;
    // The authority is not in the store of the machine, which is empty here.
    assert_list_fails(&["--endpoint", &endpoint], 78, "certificate store is empty").await;
    let named = [
        "--endpoint",
        &endpoint,
        "--ca",
        &ca,
        "--server-name",
        "b.example",
    ];
    assert_list_fails(&named, 3, "not for b.example, but for localhost, 127.0.0.1").await;
    let nonsense = [
        "--endpoint",
        &endpoint,
        "--ca",
        &ca,
        "--server-name",
        "no name",
    ];
    assert_list_fails(&nonsense, 78, "invalid server name \"no name\"").await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_certificate_for_another_name_needs_server_name() {
    let pki = Pki::new();
    pki.issue("server", &CertificateSpec::for_host("executor.example"));
    let daemon = pki.serve(&[]);
    let (endpoint, ca) = (daemon.endpoint(), pki.path_arg("ca.pem"));
    assert_list_fails(
        &["--endpoint", &endpoint, "--ca", &ca],
        3,
        "not for localhost, but for exec",
    )
    .await;
    let flags = [
        "--endpoint",
        &endpoint,
        "--ca",
        &ca,
        "--server-name",
        "executor.example",
    ];
    list(flags, &[]).await.succeeded();
    daemon.stop().await;
}

#[tokio::test]
async fn expired_and_future_certificates_are_rejected() {
    for (from, to, expected) in [
        (2000, 2001, "has expired"),
        (3000, 3001, "is not valid yet"),
    ] {
        let pki = Pki::new();
        pki.issue("server", &CertificateSpec::server().valid_years(from, to));
        // The daemon starts: only clients reject the certificate.
        let mut daemon = pki.serve(&[]);
        let warning = daemon.process.wait_for_log("WARN").await;
        assert!(warning.contains("server.pem"), "{warning}");
        assert_list_fails(
            &[
                "--endpoint",
                &daemon.endpoint(),
                "--ca",
                &pki.path_arg("ca.pem"),
            ],
            3,
            expected,
        )
        .await;
        daemon.stop().await;
    }
}

#[tokio::test]
async fn unusable_credential_files_are_reported() {
    let pki = Pki::new();
    let daemon = pki.serve(&[]);
    let endpoint = daemon.endpoint();
    let [ca, client, key, other_key] =
        ["ca.pem", "client.pem", "client.key", "server.key"].map(|file| pki.path_arg(file));
    for (flags, expected) in [
        (&["--ca", "/nonexistent"][..], "/nonexistent does not exist"),
        (&["--ca", &key], "contains no PEM certificate"),
        (
            &["--ca", &ca, "--cert", &client, "--key", &other_key],
            "is not the key of the certificate",
        ),
        (&["--ca", &ca, "--cert", &key, "--key", &client], "; "),
        (
            &["--ca", &ca, "--cert", "/dev/zero", "--key", &key],
            "/dev/zero is not a regular file",
        ),
    ] {
        assert_list_fails(&[&["--endpoint", &endpoint], flags].concat(), 78, expected).await;
    }
    for half in [["--cert", client.as_str()], ["--key", key.as_str()]] {
        list(["--endpoint", &endpoint].iter().chain(&half), &[])
            .await
            .exited_with(2, "");
    }
    daemon.stop().await;
}
