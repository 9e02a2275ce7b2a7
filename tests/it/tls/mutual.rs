//! Mutual TLS: who gets in by its certificate, and by which names the daemon then knows it.

use super::authority::{Authority, Wanted, dns};
use super::{CLIENT, Pki, list};
use caproot::client::{ConnectError, TlsError};

#[tokio::test]
async fn the_names_of_a_client_arrive() {
    let pki = Pki::new();
    pki.issue("many", &Wanted::client("urn:x:y").and(dns("Client.Example")));
    pki.issue("nameless", &Wanted::default());
    let mut served = pki.serve_mutual().await;
    for (name, names) in [
        ("client", format!("names=[{CLIENT:?}]")),
        ("many", r#"names=["urn:x:y", "client.example"]"#.to_owned()),
        ("nameless", "names=[]".to_owned()),
    ] {
        let mut client = served.admitted(&pki.showing(name)).await;
        let line = served.says("connected over TLS").await;
        assert!(line.contains(&names), "{names} in {line}");
        client.list_roots().await.expect("an answer");
    }
    served.stop().await;
}

#[tokio::test]
async fn whoever_shows_no_good_certificate_is_turned_away() {
    let pki = Pki::new();
    pki.issue("expired", &Wanted::client(CLIENT).valid(2000, 2001));
    pki.write("foreign", &Authority::new("theirs").issue(&Wanted::client(CLIENT)));
    pki.write("namesake", &Authority::new("ours").issue(&Wanted::client(CLIENT)));
    let mut served = pki.serve_mutual().await;
    let refused = |name| {
        let credentials = pki.showing(name);
        let served = &served;
        async move {
            match served.connect(&credentials).await {
                Err(ConnectError::Tls { error, .. }) => error,
                other => panic!("{name}: {other:?}"),
            }
        }
    };
    let foreign = refused("foreign").await;
    assert!(matches!(foreign, TlsError::CertificateRejected(why) if why.contains("authority")));
    let expired = refused("expired").await;
    assert!(matches!(expired, TlsError::CertificateRejected(why) if why.contains("expired")));
    let namesake = refused("namesake").await;
    assert!(matches!(namesake, TlsError::CertificateRejected(why) if why.contains("signature")));
    match served.connect(&pki.trusting()).await {
        Err(ConnectError::Tls { error: TlsError::CertificateRequired, .. }) => {}
        other => panic!("{other:?}"),
    }
    for why in ["UnknownIssuer", "expired", "BadSignature", "presents no certificate"] {
        let line = served.says("TLS handshake rejected").await;
        assert!(line.contains("WARN") && line.contains(why), "{why} in {line}");
    }
    served.admitted(&pki.showing("client")).await;
    served.stop().await;
}

#[tokio::test]
async fn the_exit_code_says_that_it_is_not_permitted() {
    let pki = Pki::new();
    pki.write("foreign", &Authority::new("ours").issue(&Wanted::client(CLIENT)));
    let served = pki.serve_mutual().await;
    let (endpoint, ca) = (served.endpoint(), pki.arg("ca.pem"));
    let tls = ["--endpoint", &endpoint, "--ca", &ca];
    // Each at its own moment of the handshake's end.
    for _ in 0..10 {
        let said = list(tls, &[]).await;
        assert_eq!(said.code, Some(5), "{}", said.stderr);
        assert!(said.stderr.contains("requires a client certificate"), "{}", said.stderr);
    }
    let (cert, key) = (pki.arg("foreign.pem"), pki.arg("foreign.key"));
    let said = list(tls.iter().chain(&["--cert", &cert, "--key", &key]), &[]).await;
    assert_eq!(said.code, Some(5), "{}", said.stderr);
    assert!(said.stderr.contains("rejected the client certificate"), "{}", said.stderr);
    let (cert, key) = (pki.arg("client.pem"), pki.arg("client.key"));
    let env = [("CAPROOT_CERT", cert.as_str()), ("CAPROOT_KEY", key.as_str())];
    let said = list(tls, &env).await;
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    served.stop().await;
}
