//! Clients that connect with their first call: TLS checks are the same as for an eager connection.

use std::time::Duration;

use caproot_client::{Client, ClientCredentials, ClientToken, DaemonEndpoint};

use super::authority::Authority;
use super::{Pki, TlsDaemon};
use crate::harness::in_time;
use crate::harness::process::{caproot, run_command};

async fn call_on_lazy_client(
    endpoint: &str,
    credentials: &ClientCredentials,
) -> Result<(), String> {
    let endpoint: DaemonEndpoint = endpoint.parse().expect("an endpoint");
    let client = Client::connect_lazily(&endpoint, credentials, Duration::from_secs(30)).await;
    let mut client = client.map_err(|error| error.to_string())?;
    in_time(client.get_executor())
        .await
        .map(drop)
        .map_err(|error| error.to_string())
}

#[tokio::test]
async fn the_first_call_reports_tls_errors() {
    let pki = Pki::new();
    pki.fixture
        .write("other.pem", Authority::new("other").pem());
    let daemon = pki.serve_mutual();
    let (endpoint, good) = (daemon.endpoint(), pki.client_credentials("client"));
    call_on_lazy_client(&endpoint, &good)
        .await
        .expect("an answer");
    let other_ca = ClientCredentials {
        ca: Some(pki.fixture.path("other.pem")),
        ..good.clone()
    };
    let other_name = ClientCredentials {
        server_name: Some("else.example".into()),
        ..good.clone()
    };
    let missing_ca = ClientCredentials {
        ca: Some(pki.fixture.path("none.pem")),
        ..good.clone()
    };
    for (credentials, part) in [
        (&other_ca, "authority that is not trusted here"),
        (&other_name, "its certificate is not for"),
        (&missing_ca, "none.pem"),
    ] {
        let why = call_on_lazy_client(&endpoint, credentials)
            .await
            .expect_err(part);
        assert!(why.contains(part), "{part}: {why}");
    }
    call_on_lazy_client(&endpoint, &pki.ca_credentials())
        .await
        .expect_err("the client has no certificate");
    let plain = format!("tcp:127.0.0.1:{}", daemon.port);
    call_on_lazy_client(&plain, &ClientCredentials::default())
        .await
        .expect_err("the client does not use TLS");
    let token = ClientCredentials {
        token: Some(ClientToken::File(pki.fixture.path("none"))),
        ..good
    };
    let why = call_on_lazy_client(&endpoint, &token)
        .await
        .expect_err("no token");
    assert!(why.contains("none does not exist"), "{why}");
    daemon.stop().await;
}

#[tokio::test]
async fn a_fleet_file_configures_tls() {
    let pki = Pki::new();
    let daemon: TlsDaemon = pki.serve_mutual();
    let keys = "ca: ca.pem, cert: client.pem, key: client.key";
    let fleet = format!(
        "executors:\n  local: {{endpoint: '{}', {keys}}}\n",
        daemon.endpoint()
    );
    // The paths in the file are relative to its directory.
    pki.fixture.write("fleet.yaml", fleet);
    for words in [["list", "--fleet"], ["call", "--fleet"]] {
        let mut command = caproot(words);
        command.arg(pki.fixture.path("fleet.yaml"));
        let output = run_command(command).await.succeeded();
        if words[0] == "list" {
            assert!(output.text().contains("Does a."));
        } else {
            assert_eq!(output.stderr, "");
        }
    }
    daemon.stop().await;
}
