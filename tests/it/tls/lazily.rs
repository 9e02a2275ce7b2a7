//! Clients that connect with their first call: over TLS they prove, and want proved, the same.

use std::time::Duration;

use caproot::client::{Client, ClientCredentials, DaemonEndpoint};

use super::authority::Authority;
use super::{Pki, Served};
use crate::commands::{caproot, run_command};
use crate::harness::in_time;

async fn called(endpoint: &str, credentials: &ClientCredentials) -> Result<(), String> {
    let endpoint: DaemonEndpoint = endpoint.parse().expect("an endpoint");
    let client = Client::connect_lazily(&endpoint, credentials, Duration::from_secs(30)).await;
    let mut client = client.map_err(|error| error.to_string())?;
    in_time(client.get_executor()).await.map(drop).map_err(|error| error.to_string())
}

#[tokio::test]
async fn the_first_call_says_what_is_wrong() {
    let pki = Pki::new();
    pki.fixture.write("other.pem", Authority::new("other").pem());
    let served = pki.serve_mutual().await;
    let (endpoint, good) = (served.endpoint(), pki.showing("client"));
    called(&endpoint, &good).await.expect("an answer");
    let stranger = ClientCredentials { ca: Some(pki.fixture.path("other.pem")), ..good.clone() };
    let renamed = ClientCredentials { server_name: Some("else.example".into()), ..good.clone() };
    let missing = ClientCredentials { ca: Some(pki.fixture.path("none.pem")), ..good.clone() };
    for (credentials, part) in [
        (&stranger, "authority that is not trusted here"),
        (&renamed, "its certificate is not for"),
        (&missing, "none.pem"),
    ] {
        let why = called(&endpoint, credentials).await.expect_err(part);
        assert!(why.contains(part), "{part}: {why}");
    }
    called(&endpoint, &pki.trusting()).await.expect_err("it shows no certificate");
    let plain = format!("tcp:127.0.0.1:{}", served.port);
    called(&plain, &ClientCredentials::default()).await.expect_err("it speaks no TLS");
    let token = ClientCredentials { token_file: Some(pki.fixture.path("none")), ..good };
    let why = called(&endpoint, &token).await.expect_err("no token");
    assert!(why.contains("none cannot be read"), "{why}");
    served.stop().await;
}

#[tokio::test]
async fn a_fleet_over_tls() {
    let pki = Pki::new();
    let served: Served = pki.serve_mutual().await;
    let keys = "ca: ca.pem, cert: client.pem, key: client.key";
    let fleet = format!("executors:\n  local: {{endpoint: '{}', {keys}}}\n", served.endpoint());
    // Beside the files that it names.
    pki.fixture.write("fleet.yaml", fleet);
    for words in [["list", "--fleet"], ["call", "--fleet"]] {
        let mut command = caproot(words);
        command.arg(pki.fixture.path("fleet.yaml"));
        let said = run_command(command).await;
        assert_eq!(said.code, Some(0), "{words:?}: {}", said.stderr);
        if words[0] == "list" {
            assert!(String::from_utf8_lossy(&said.stdout).contains("Does a."));
        } else {
            assert_eq!(said.stderr, "");
        }
    }
    served.stop().await;
}
