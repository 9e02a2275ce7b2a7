//! TLS in a config file: what `config check` says of it, what `serve` makes of it, and TCP that leaves
//! the machine.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;

use super::authority::Wanted;
use super::{Pki, Served, ended_with};
use crate::commands::{CommandOutput, caproot};
use crate::harness::connect;

async fn check(pki: &Pki, config: &str, more: &[&str]) -> CommandOutput {
    pki.fixture.write("c.yaml", config);
    let file = pki.arg("c.yaml");
    ended_with(caproot(["config", "check", &file]).args(more)).await
}

fn text(ended: &CommandOutput) -> &str {
    std::str::from_utf8(&ended.stdout).expect("text")
}

#[tokio::test]
async fn every_mistake_with_its_place() {
    let pki = Pki::new();
    pki.fixture.write("broken", "-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n");
    pki.fixture.write(
        "locked",
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAA==\n-----END ENCRYPTED PRIVATE KEY-----\n",
    );
    pki.fixture.write("large", vec![b'x'; (1 << 20) + 1]);
    let top = pki.arg(".");
    for (files, expected) in [
        (
            "certificate: none.pem, key: none.key, client_ca: none",
            &[
                "1:20: tls.certificate: \"none.pem\" does not exist",
                "1:35: tls.key: \"none.key\" does not exist",
                "1:56: tls.client_ca: \"none\" does not exist",
            ][..],
        ),
        (
            "certificate: server.key, key: server.pem",
            &[
                "1:20: tls.certificate: \"server.key\" contains no PEM certificate",
                "1:37: tls.key: \"server.pem\" contains no PEM private key",
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
        let said = check(&pki, &format!("tls: {{{files}}}"), &[]).await;
        assert_eq!(said.code, Some(78), "{files}");
        let file = pki.arg("c.yaml");
        let expected: Vec<_> =
            expected.iter().map(|line| format!("{file}:{}", line.replace("$TOP", &top))).collect();
        assert_eq!(text(&said).lines().collect::<Vec<_>>(), expected);
    }
    let both = "tls: {certificate: server.pem, key: server.key}\ninsecure_tcp: true";
    let said = check(&pki, both, &[]).await;
    assert!(
        text(&said)
            .contains(":2:15: insecure_tcp: invalid value true: cannot be combined with `tls`")
    );
    assert_eq!(said.code, Some(78));
}

const GOOD: &str = "tls: {certificate: server.pem, key: server.key, client_ca: ca.pem}\n";

#[tokio::test]
async fn what_is_odd_is_a_warning() {
    let pki = Pki::new();
    let key = |mode| {
        let mode = Permissions::from_mode(mode);
        fs::set_permissions(pki.fixture.path("server.key"), mode).expect("chmod");
    };
    key(0o640);
    let config = format!("{GOOD}roots: [{{id: r, path: root}}]");
    let said = check(&pki, &config, &[]).await;
    assert_eq!((said.code, text(&said).lines().count()), (Some(0), 1), "{}", text(&said));
    pki.issue("server", &Wanted::client("x:y").valid(2000, 2001));
    key(0o644);
    let said = check(&pki, &config, &[]).await;
    let [expired, nameless, open, ok] = text(&said).lines().collect::<Vec<_>>()[..] else {
        panic!("three warnings: {}", text(&said))
    };
    let (certificate, key) = (pki.arg("server.pem"), pki.arg("server.key"));
    let start = format!("warning: the certificate in {certificate}");
    assert_eq!(expired, format!("{start} expired on 2001-01-01 00:00 UTC"));
    assert!(nameless.starts_with(&format!("{start} names no host")), "{nameless}");
    assert!(open.starts_with(&format!("warning: {key} can be read by every user")), "{open}");
    assert!(ok.starts_with("ok: ") && said.code == Some(0), "{ok}");
    let said = check(&pki, &config, &["--output", "json"]).await;
    let json: Value = serde_json::from_str(text(&said)).expect("JSON");
    assert_eq!(json["warnings"].as_array().map(Vec::len), Some(3), "{json}");
    // The daemon says the same.
    let mut served = pki.serve(&[]).await;
    for part in ["expired on 2001", "names no host", "can be read by every user"] {
        assert!(served.says("WARN").await.contains(part), "{part}");
    }
    served.stop().await;
}

#[tokio::test]
async fn a_file_and_flags() {
    let pki = Pki::new();
    pki.issue("second", &Wanted::named("second.example"));
    pki.fixture.write("c.yaml", GOOD);
    let config = pki.arg("c.yaml");
    let served = Served::start(&pki.fixture, &["--config", &config]).await;
    served.admitted(&pki.showing("client")).await;
    served.stop().await;
    // Flags replace the certificate, and leave the clients' authority as it is.
    let (cert, key) = (pki.arg("second.pem"), pki.arg("second.key"));
    let flags = ["--config", &config, "--tls-cert", &cert, "--tls-key", &key];
    let served = Served::start(&pki.fixture, &flags).await;
    let mut credentials = pki.showing("client");
    credentials.server_name = Some("second.example".to_owned());
    served.admitted(&credentials).await;
    credentials.identity = None;
    assert!(served.connect(&credentials).await.is_err());
    served.stop().await;
}

#[tokio::test]
async fn tcp_beyond_this_machine() {
    let pki = Pki::new();
    let all = ["serve", "--root", "/", "--listen", "tcp:0.0.0.0:0"];
    let said = ended_with(&mut caproot(all)).await;
    assert_eq!(said.code, Some(78));
    assert!(said.stderr.contains("other machines could connect without TLS"), "{}", said.stderr);
    let (cert, key) = (pki.arg("server.pem"), pki.arg("server.key"));
    let both = ["--tls-cert", &cert, "--tls-key", &key, "--insecure-tcp"];
    let said = ended_with(caproot(all).args(both)).await;
    assert_eq!(said.code, Some(78));
    assert!(said.stderr.contains("--insecure-tcp: cannot be combined with TLS"), "{}", said.stderr);

    let all = ["--listen", "tcp:0.0.0.0:0"];
    let served = pki.serve(&all).await;
    served.admitted(&pki.trusting()).await;
    served.stop().await;
    pki.fixture.write("c.yaml", "insecure_tcp: true\nlisten: ['tcp:0.0.0.0:0']");
    let config = pki.arg("c.yaml");
    for flags in [&[all[0], all[1], "--insecure-tcp"][..], &["--config", &config, all[0], all[1]]] {
        let mut served = Served::start(&pki.fixture, flags).await;
        let warning = served.says("WARN").await;
        assert!(warning.contains("other machines can connect to tcp:"), "{warning}");
        connect(&format!("127.0.0.1:{}", served.port)).await;
        served.stop().await;
    }
}
