//! Mutual TLS: accepted and rejected client certificates, and the names that the daemon reads from
//! them.

use super::authority::{Authority, CertificateSpec, dns};
use super::{CLIENT, Pki, list};
use caproot_client::{ConnectError, TlsError};

#[tokio::test]
async fn the_daemon_logs_the_names_of_a_client_certificate() {
    let pki = Pki::new();
    pki.issue(
        "many",
        &CertificateSpec::client("urn:x:y").with_name(dns("Client.Example")),
    );
    pki.issue("nameless", &CertificateSpec::default());
    let mut daemon = pki.serve_mutual();
    for (name, names) in [
        ("client", format!("names={CLIENT:?}")),
        ("many", r#"names="urn:x:y, client.example""#.to_owned()),
        ("nameless", r#"names="""#.to_owned()),
    ] {
        let mut client = daemon.connect_and_call(&pki.client_credentials(name)).await;
        let line = daemon.process.wait_for_log("connected over TLS").await;
        assert!(line.contains(&names), "{names} in {line}");
        client.list_roots().await.expect("an answer");
    }
    daemon.stop().await;
}

#[tokio::test]
async fn clients_without_a_valid_certificate_are_rejected() {
    let pki = Pki::new();
    pki.issue(
        "expired",
        &CertificateSpec::client(CLIENT).valid_years(2000, 2001),
    );
    let authority = CertificateSpec {
        is_authority: true,
        ..CertificateSpec::client(CLIENT)
    };
    pki.issue("authority", &authority);
    pki.write(
        "foreign",
        &Authority::new("theirs").issue(&CertificateSpec::client(CLIENT)),
    );
    pki.write(
        "namesake",
        &Authority::new("ours").issue(&CertificateSpec::client(CLIENT)),
    );
    let mut daemon = pki.serve_mutual();
    let rejection = |name| {
        let credentials = pki.client_credentials(name);
        let daemon = &daemon;
        async move {
            match daemon.connect(&credentials).await {
                Err(ConnectError::Tls { error, .. }) => error,
                other => panic!("{name}: {other:?}"),
            }
        }
    };
    let foreign = rejection("foreign").await;
    assert!(matches!(foreign, TlsError::CertificateRejected(why) if why.contains("authority")));
    let expired = rejection("expired").await;
    assert!(matches!(expired, TlsError::CertificateRejected(why) if why.contains("expired")));
    let namesake = rejection("namesake").await;
    assert!(matches!(namesake, TlsError::CertificateRejected(why) if why.contains("signature")));
    let authority = rejection("authority").await;
    assert!(
        matches!(authority, TlsError::CertificateRejected(_)),
        "{authority:?}"
    );
    match daemon.connect(&pki.ca_credentials()).await {
        Err(ConnectError::Tls {
            error: TlsError::CertificateRequired,
            ..
        }) => {}
        other => panic!("{other:?}"),
    }
    for why in [
        "invalid: no authority in `tls.client_ca` issued it",
        "invalid: it has expired",
        "invalid: its signature is not by the authority of this name in `tls.client_ca`",
        "invalid: it is the certificate of an authority (CA:TRUE)",
        "presents no certificate",
    ] {
        let line = daemon.process.wait_for_log("TLS handshake rejected").await;
        assert!(
            line.contains("WARN") && line.contains(why),
            "{why} in {line}"
        );
    }
    daemon
        .connect_and_call(&pki.client_credentials("client"))
        .await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_rejected_certificate_gives_exit_code_5() {
    let pki = Pki::new();
    pki.write(
        "foreign",
        &Authority::new("ours").issue(&CertificateSpec::client(CLIENT)),
    );
    let daemon = pki.serve_mutual();
    let (endpoint, ca) = (daemon.endpoint(), pki.path_arg("ca.pem"));
    let tls = ["--endpoint", &endpoint, "--ca", &ca];
    // The client may notice the rejection at different points of the handshake.
    for _ in 0..10 {
        list(tls, &[])
            .await
            .exited_with(5, "requires a client certificate");
    }
    let (cert, key) = (pki.path_arg("foreign.pem"), pki.path_arg("foreign.key"));
    list(tls.iter().chain(&["--cert", &cert, "--key", &key]), &[])
        .await
        .exited_with(5, "rejected the client certificate");
    let (cert, key) = (pki.path_arg("client.pem"), pki.path_arg("client.key"));
    let env = [
        ("CAPROOT_CERT", cert.as_str()),
        ("CAPROOT_KEY", key.as_str()),
    ];
    list(tls, &env).await.succeeded();
    daemon.stop().await;
}
