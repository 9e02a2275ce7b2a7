//! Client tokens: sent on safe connections only, and token files that are invalid. The server is a
//! stub, so the daemon's own checks are not involved.

use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use caproot_client::{Client, ClientCredentials, ClientToken, ConnectError, DaemonEndpoint};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::metadata::MetadataMap;
use tonic::service::Routes;
use tonic::service::interceptor::InterceptedService;
use tonic::{Request, Status};

use super::{Pki, list};
use crate::harness::fixture::Fixture;
use crate::harness::in_time;
use crate::harness::test_servers::{serve_grpc, start_grpc};

type ReceivedMetadata = Arc<Mutex<Vec<MetadataMap>>>;

/// Health service that records the metadata of each call.
struct HealthServer {
    received: ReceivedMetadata,
    address: String,
}

impl HealthServer {
    async fn start(fixture: &Fixture, bind: &str) -> Self {
        let received = ReceivedMetadata::default();
        let unix = tokio::net::UnixListener::bind(fixture.path("h.sock")).expect("a socket");
        let (_, health) = tonic_health::server::health_reporter();
        let record = received.clone();
        let record = move |request: Request<()>| -> Result<_, Status> {
            record
                .lock()
                .expect("no panic")
                .push(request.metadata().clone());
            Ok(request)
        };
        let service = InterceptedService::new(health, record);
        let services = Routes::new(service);
        serve_grpc(UnixListenerStream::new(unix), services.clone());
        Self {
            received,
            address: start_grpc(bind, services).await,
        }
    }

    /// Returns the token of the only call.
    fn take_only_token(&self) -> Option<String> {
        let mut received = self.received.lock().expect("no panic");
        let [only] = received.as_slice() else {
            panic!("one call: {received:?}")
        };
        let token = only
            .get("authorization")
            .map(|v| v.to_str().expect("text").to_owned());
        received.clear();
        token
    }
}

async fn check_health(endpoint: &str, credentials: &ClientCredentials) -> Result<(), ConnectError> {
    let endpoint: DaemonEndpoint = endpoint.parse().expect("an endpoint");
    let mut client = Client::connect(&endpoint, credentials, Duration::from_secs(30)).await?;
    in_time(client.check_health()).await.expect("an answer");
    Ok(())
}

#[tokio::test]
async fn a_token_is_sent_with_calls_within_this_machine() {
    let fixture = Fixture::new("file token\n| \\tabc.def-~+/==\\r");
    let server = HealthServer::start(&fixture, "127.0.0.1:0").await;
    let token = Some(ClientToken::File(fixture.path("token")));
    let credentials = ClientCredentials {
        token,
        ..ClientCredentials::default()
    };
    let socket = format!("unix:{}", fixture.path("h.sock").display());
    let tcp = format!("tcp:{}", server.address);
    let (_, port) = server.address.split_once(':').expect("a port");
    for endpoint in [tcp.clone(), format!("http://localhost:{port}"), socket] {
        check_health(&endpoint, &credentials)
            .await
            .expect("a connection");
        assert_eq!(
            server.take_only_token().as_deref(),
            Some("Bearer abc.def-~+/=="),
            "{endpoint}"
        );
    }
    check_health(&tcp, &ClientCredentials::default())
        .await
        .expect("a connection");
    assert_eq!(server.take_only_token(), None);
    let text = format!("{credentials:?}");
    assert!(!text.contains("abc"), "{text}");

    // A program can hold the token itself.
    let token = Some(ClientToken::Value(" from-memory\n".to_owned()));
    let credentials = ClientCredentials {
        token,
        ..ClientCredentials::default()
    };
    check_health(&tcp, &credentials)
        .await
        .expect("a connection");
    assert_eq!(
        server.take_only_token().as_deref(),
        Some("Bearer from-memory")
    );
    let text = format!("{credentials:?}");
    assert!(
        !text.contains("from-memory") && text.contains("redacted"),
        "{text}"
    );
    for invalid in ["", "two words", &"a".repeat(9_000)] {
        let token = Some(ClientToken::Value(invalid.to_owned()));
        let credentials = ClientCredentials {
            token,
            ..ClientCredentials::default()
        };
        let error = check_health(&tcp, &credentials)
            .await
            .expect_err("no token")
            .to_string();
        assert!(error.starts_with("the value of the token "), "{error}");
    }
}

/// Returns a non-loopback address of this machine, if there is one.
fn own_address() -> Option<SocketAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // `connect` on UDP sends nothing and makes the kernel choose a source address.
    socket.connect("192.0.2.1:9").ok()?;
    socket
        .local_addr()
        .ok()
        .filter(|address| !address.ip().is_loopback())
}

#[tokio::test]
async fn a_token_is_not_sent_in_cleartext_to_other_machines() {
    let fixture = Fixture::new("file token\n| secret");
    let Some(address) = own_address() else {
        println!("SKIPPED: this machine has no address but loopback");
        return;
    };
    let server = HealthServer::start(&fixture, &format!("{}:0", address.ip())).await;
    let endpoint = format!("tcp:{}", server.address);
    let credentials = ClientCredentials {
        token: Some(ClientToken::File(fixture.path("token"))),
        ..ClientCredentials::default()
    };
    match check_health(&endpoint, &credentials).await {
        Err(error @ ConnectError::TokenInCleartext { .. }) => {
            assert!(!error.to_string().contains("secret"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    check_health(&endpoint, &ClientCredentials::default())
        .await
        .expect("without a token it is as before");
    assert_eq!(server.take_only_token(), None);
    let token = fixture.path("token");
    let token = token.to_str().expect("a path in UTF-8");
    list(["--endpoint", &endpoint], &[("CAPROOT_TOKEN_FILE", token)])
        .await
        .exited_with(78, "the token is not sent to tcp:");
}

#[tokio::test]
async fn invalid_token_files_are_rejected() {
    let pki = Pki::new();
    let daemon = pki.serve(&[]);
    for (content, expected) in [
        (&b""[..], "holds no token"),
        (b" \n\t", "holds no token"),
        (b"a b", "white space"),
        (b"a\nb", "white space"),
        (b"a\0b", "control character"),
        (b"\xc3\xa4", "non-ASCII"),
        (&[b'a'; 9_000], "over 8 KiB"),
    ] {
        pki.fixture.write("token", content);
        let (endpoint, ca, token) = (
            daemon.endpoint(),
            pki.path_arg("ca.pem"),
            pki.path_arg("token"),
        );
        list(
            ["--endpoint", &endpoint, "--ca", &ca, "--token-file", &token],
            &[],
        )
        .await
        .exited_with(78, expected);
    }
    pki.fixture.write("token", "good\n");
    let (endpoint, ca, token) = (
        daemon.endpoint(),
        pki.path_arg("ca.pem"),
        pki.path_arg("token"),
    );
    let flags = ["--endpoint", &endpoint, "--ca", &ca, "--token-file"];
    list(flags.iter().chain(&[token.as_str()]), &[])
        .await
        .succeeded();
    list(flags.iter().chain(&["/nonexistent"]), &[])
        .await
        .exited_with(78, "");
    daemon.stop().await;
}
