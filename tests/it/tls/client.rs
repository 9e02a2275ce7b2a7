//! What clients say of a daemon over TLS, and with which exit code: the daemon proves who it is.

use super::authority::{Authority, Wanted};
use super::{Pki, Served, ended_with, list};
use crate::commands::caproot;

#[tokio::test]
async fn a_list_over_tls() {
    let pki = Pki::new();
    let mut served = pki.serve(&[]).await;
    served.says("serving TLS").await;
    let ca = pki.arg("ca.pem");
    for endpoint in [
        served.endpoint(),
        format!("https://localhost:{}/", served.port),
        format!("tls:127.0.0.1:{}", served.port),
    ] {
        let said = list(["--endpoint", &endpoint, "--ca", &ca], &[]).await;
        assert_eq!(said.code, Some(0), "{endpoint}: {}", said.stderr);
        assert!(String::from_utf8_lossy(&said.stdout).contains("Does a."));
    }
    // By the variables, and with the machine's own authorities.
    for variable in ["CAPROOT_CA", "SSL_CERT_FILE"] {
        let endpoint = served.endpoint();
        let said = list([""; 0], &[("CAPROOT_ENDPOINT", &endpoint), (variable, &ca)]).await;
        assert_eq!(said.code, Some(0), "{variable}: {}", said.stderr);
    }
    served.says("connected over TLS").await;
    served.stop().await;
}

/// A list that must fail with a sentence that holds this, a hint and this exit code.
async fn fails(flags: &[&str], code: i32, says: &str) {
    let said = list(flags, &[("SSL_CERT_FILE", "/dev/null")]).await;
    assert_eq!(said.code, Some(code), "{flags:?}: {}", said.stderr);
    assert!(said.stdout.is_empty());
    assert!(said.stderr.lines().count() <= 2, "a sentence and a hint: {}", said.stderr);
    let first = said.stderr.lines().next().expect("a sentence");
    assert!(first.contains(says), "{says:?} in {first}");
}

#[tokio::test]
async fn a_plain_client_is_told_so() {
    let pki = Pki::new();
    let served = pki.serve(&[]).await;
    let endpoint = format!("tcp:127.0.0.1:{}", served.port);
    // What is left of the connection differs from time to time; what is said must not.
    for _ in 0..10 {
        fails(&["--endpoint", &endpoint], 3, "the server requires TLS").await;
    }
    let mut watch = caproot(["watch", "--endpoint", &endpoint]);
    let said = ended_with(&mut watch).await;
    assert_eq!(said.code, Some(3), "it does not try for ever: {}", said.stderr);
    served.stop().await;
}

#[tokio::test]
async fn what_speaks_no_tls() {
    let pki = Pki::new();
    let served = Served::start(&pki.fixture, &[]).await;
    let ca = pki.arg("ca.pem");
    fails(&["--endpoint", &served.endpoint(), "--ca", &ca], 3, "does not speak TLS").await;
    served.stop().await;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let endpoint = format!("tls:{}", taken.local_addr().expect("an address"));
    let silent = ["--endpoint", &endpoint, "--ca", &ca, "--timeout", "300ms"];
    fails(&silent, 3, "no connection within 300ms").await;
    drop(taken);
    fails(&["--endpoint", &endpoint, "--ca", &ca], 3, "no daemon answers").await;
}

#[tokio::test]
async fn whose_certificate_is_not_trusted() {
    let pki = Pki::new();
    let other = Authority::new("another");
    pki.fixture.write("other.pem", other.pem());
    let served = pki.serve(&[]).await;
    let (endpoint, ca, other) = (served.endpoint(), pki.arg("ca.pem"), pki.arg("other.pem"));
    let unknown = "an authority that is not trusted";
    fails(&["--endpoint", &endpoint, "--ca", &other], 3, unknown).await;
    let namesake = Authority::new("ours");
    pki.fixture.write("namesake.pem", namesake.pem());
    fails(&["--endpoint", &endpoint, "--ca", &pki.arg("namesake.pem")], 3, unknown).await;
    // It is none of the machine's: there are none.
    fails(&["--endpoint", &endpoint], 78, "certificate store is empty").await;
    let named = ["--endpoint", &endpoint, "--ca", &ca, "--server-name", "b.example"];
    fails(&named, 3, "not for b.example, but for localhost, 127.0.0.1").await;
    let nonsense = ["--endpoint", &endpoint, "--ca", &ca, "--server-name", "no name"];
    fails(&nonsense, 78, "\"no name\" is no name").await;
    served.stop().await;
}

#[tokio::test]
async fn a_certificate_by_another_name() {
    let pki = Pki::new();
    pki.issue("server", &Wanted::named("executor.example"));
    let served = pki.serve(&[]).await;
    let (endpoint, ca) = (served.endpoint(), pki.arg("ca.pem"));
    fails(&["--endpoint", &endpoint, "--ca", &ca], 3, "not for localhost, but for exec").await;
    let flags = ["--endpoint", &endpoint, "--ca", &ca, "--server-name", "executor.example"];
    let said = list(flags, &[]).await;
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    served.stop().await;
}

#[tokio::test]
async fn a_certificate_out_of_its_time() {
    for (from, to, says) in [(2000, 2001, "has expired"), (3000, 3001, "is not valid yet")] {
        let pki = Pki::new();
        pki.issue("server", &Wanted::server().valid(from, to));
        // It is the operator's to know: the daemon starts.
        let mut served = pki.serve(&[]).await;
        let warning = served.says("WARN").await;
        assert!(warning.contains("server.pem"), "{warning}");
        fails(&["--endpoint", &served.endpoint(), "--ca", &pki.arg("ca.pem")], 3, says).await;
        served.stop().await;
    }
}

#[tokio::test]
async fn files_that_cannot_be_used() {
    let pki = Pki::new();
    let served = pki.serve(&[]).await;
    let endpoint = served.endpoint();
    let [ca, client, key, other_key] =
        ["ca.pem", "client.pem", "client.key", "server.key"].map(|file| pki.arg(file));
    for (flags, says) in [
        (&["--ca", "/nonexistent"][..], "/nonexistent does not exist"),
        (&["--ca", &key], "contains no PEM certificate"),
        (
            &["--ca", &ca, "--cert", &client, "--key", &other_key],
            "is not the key of the certificate",
        ),
        (&["--ca", &ca, "--cert", &key, "--key", &client], "; "),
        (&["--ca", &ca, "--cert", "/dev/zero", "--key", &key], "/dev/zero is not a regular file"),
    ] {
        fails(&[&["--endpoint", &endpoint], flags].concat(), 78, says).await;
    }
    for half in [["--cert", client.as_str()], ["--key", key.as_str()]] {
        let said = list(["--endpoint", &endpoint].iter().chain(&half), &[]).await;
        assert_eq!(said.code, Some(2), "{}", said.stderr);
    }
    served.stop().await;
}
