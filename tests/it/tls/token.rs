//! Tokens of clients: what is sent, where it is not sent, and files that hold none. What the daemon makes
//! of a token is no matter here: another server listens.

use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use caproot::client::{Client, ClientCredentials, ConnectError, DaemonEndpoint};
use tokio::net::TcpListener;
use tokio_stream::wrappers::{TcpListenerStream, UnixListenerStream};
use tonic::metadata::MetadataMap;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Server;
use tonic::{Request, Status};

use super::{Pki, list};
use crate::fixture::Fixture;
use crate::harness::in_time;

type Heard = Arc<Mutex<Vec<MetadataMap>>>;

/// A health service that keeps what came with each call.
struct Listening {
    heard: Heard,
    address: SocketAddr,
}

impl Listening {
    async fn new(fixture: &Fixture, bind: &str) -> Self {
        let heard = Heard::default();
        let listener = TcpListener::bind(bind).await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let unix = tokio::net::UnixListener::bind(fixture.path("h.sock")).expect("a socket");
        let (_, health) = tonic_health::server::health_reporter();
        let keep = heard.clone();
        let keep = move |request: Request<()>| -> Result<_, Status> {
            keep.lock().expect("no panic").push(request.metadata().clone());
            Ok(request)
        };
        let service = InterceptedService::new(health, keep);
        let server = || Server::builder().add_service(service.clone());
        tokio::spawn(server().serve_with_incoming(TcpListenerStream::new(listener)));
        tokio::spawn(server().serve_with_incoming(UnixListenerStream::new(unix)));
        Self { heard, address }
    }

    /// What came with the only call.
    fn token(&self) -> Option<String> {
        let mut heard = self.heard.lock().expect("no panic");
        let [only] = heard.as_slice() else { panic!("one call: {heard:?}") };
        let token = only.get("authorization").map(|v| v.to_str().expect("text").to_owned());
        heard.clear();
        token
    }
}

async fn call(endpoint: &str, credentials: &ClientCredentials) -> Result<(), ConnectError> {
    let endpoint: DaemonEndpoint = endpoint.parse().expect("an endpoint");
    let mut client = Client::connect(&endpoint, credentials, Duration::from_secs(30)).await?;
    in_time(client.check_health()).await.expect("an answer");
    Ok(())
}

#[tokio::test]
async fn a_token_goes_with_each_call_within_this_machine() {
    let fixture = Fixture::new("file token\n| \\tabc.def-~+/==\\r");
    let listening = Listening::new(&fixture, "127.0.0.1:0").await;
    let token_file = Some(fixture.path("token"));
    let credentials = ClientCredentials { token_file, ..ClientCredentials::default() };
    let socket = format!("unix:{}", fixture.path("h.sock").display());
    let port = listening.address.port();
    for endpoint in [format!("tcp:127.0.0.1:{port}"), format!("http://localhost:{port}"), socket] {
        call(&endpoint, &credentials).await.expect("a connection");
        assert_eq!(listening.token().as_deref(), Some("Bearer abc.def-~+/=="), "{endpoint}");
    }
    call(&format!("tcp:127.0.0.1:{port}"), &ClientCredentials::default())
        .await
        .expect("a connection");
    assert_eq!(listening.token(), None);
    let text = format!("{credentials:?}");
    assert!(!text.contains("abc"), "{text}");
}

/// An address of this machine that is not loopback, if it has one.
fn own_address() -> Option<SocketAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // Sends nothing; asks the kernel which address it would send from.
    socket.connect("192.0.2.1:9").ok()?;
    socket.local_addr().ok().filter(|address| !address.ip().is_loopback())
}

#[tokio::test]
async fn a_token_is_not_sent_where_others_can_read_it() {
    let fixture = Fixture::new("file token\n| secret");
    let Some(address) = own_address() else {
        println!("SKIPPED: this machine has no address but loopback");
        return;
    };
    let listening = Listening::new(&fixture, &format!("{}:0", address.ip())).await;
    let endpoint = format!("tcp:{}", listening.address);
    let credentials = ClientCredentials {
        token_file: Some(fixture.path("token")),
        ..ClientCredentials::default()
    };
    match call(&endpoint, &credentials).await {
        Err(error @ ConnectError::TokenInCleartext { .. }) => {
            assert!(!error.to_string().contains("secret"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    call(&endpoint, &ClientCredentials::default()).await.expect("without a token it is as before");
    assert_eq!(listening.token(), None);
    let token = fixture.path("token");
    let token = token.to_str().expect("a path in UTF-8");
    let said = list(["--endpoint", &endpoint], &[("CAPROOT_TOKEN_FILE", token)]).await;
    assert_eq!(said.code, Some(78), "{}", said.stderr);
    assert!(said.stderr.contains("the token is not sent to tcp:"), "{}", said.stderr);
}

#[tokio::test]
async fn files_that_hold_no_token() {
    let pki = Pki::new();
    let served = pki.serve(&[]).await;
    for (content, says) in [
        (&b""[..], "holds no token"),
        (b" \n\t", "holds no token"),
        (b"a b", "white space"),
        (b"a\nb", "white space"),
        (b"a\0b", "control character"),
        (b"\xc3\xa4", "non-ASCII"),
        (&[b'a'; 9_000], "over 8 KiB"),
    ] {
        pki.fixture.write("token", content);
        let (endpoint, ca, token) = (served.endpoint(), pki.arg("ca.pem"), pki.arg("token"));
        let said = list(["--endpoint", &endpoint, "--ca", &ca, "--token-file", &token], &[]).await;
        assert_eq!(said.code, Some(78), "{content:?}: {}", said.stderr);
        assert!(said.stderr.contains(says), "{content:?}: {}", said.stderr);
    }
    pki.fixture.write("token", "good\n");
    let (endpoint, ca, token) = (served.endpoint(), pki.arg("ca.pem"), pki.arg("token"));
    let flags = ["--endpoint", &endpoint, "--ca", &ca, "--token-file"];
    let said = list(flags.iter().chain(&[token.as_str()]), &[]).await;
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    let said = list(flags.iter().chain(&["/nonexistent"]), &[]).await;
    assert_eq!(said.code, Some(78), "{}", said.stderr);
    served.stop().await;
}
