//! Hostile connections to a TLS listener: silent clients and invalid bytes.

use std::io::ErrorKind;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use super::{Pki, TlsDaemon};
use crate::harness::in_time;
use crate::harness::process_usage::descriptors;

/// Begin of a `ClientHello`.
const HALF_HELLO: &[u8] = b"\x16\x03\x01\x02\x00\x01";

async fn open_connection(daemon: &TlsDaemon) -> TcpStream {
    in_time(TcpStream::connect(("127.0.0.1", daemon.port)))
        .await
        .expect("a connection")
}

/// Reads until the daemon closes the connection. Returns the received bytes.
async fn read_until_closed(mut stream: TcpStream) -> Vec<u8> {
    let mut output = Vec::new();
    match in_time(stream.read_to_end(&mut output)).await {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
    output
}

#[tokio::test]
async fn silent_connections_are_closed_and_do_not_block_others() {
    let pki = Pki::new();
    let mut daemon = pki.serve(&[]);
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(open_connection(&daemon).await);
    }
    // This handshake starts and never finishes.
    silent[0].write_all(HALF_HELLO).await.expect("sent");
    let client = daemon.connect_and_call(&pki.ca_credentials()).await;
    let line = daemon.process.wait_for_log("timed out").await;
    assert!(line.contains("10s"), "{line}");
    for stream in silent {
        assert!(read_until_closed(stream).await.is_empty());
    }
    // The limit applies to handshakes, so the established connection is still open.
    in_time(client.clone().get_executor())
        .await
        .expect("an answer");
    daemon.stop().await;
}

#[tokio::test]
async fn half_handshakes_lock_out_no_certificate() {
    let pki = Pki::new();
    let daemon = pki.serve_mutual();
    let address: SocketAddr = format!("127.0.0.1:{}", daemon.port)
        .parse()
        .expect("an address");
    let mut half = Vec::new();
    for n in 0..1_100 {
        let socket = TcpSocket::new_v4().expect("a socket");
        let source = format!("127.0.0.{}:0", 1 + n % 5);
        socket
            .bind(source.parse().expect("an address"))
            .expect("a loopback address");
        let mut stream = in_time(socket.connect(address))
            .await
            .expect("a connection");
        // The daemon may have closed the connection for a newer one.
        drop(stream.write_all(HALF_HELLO).await);
        half.push(stream);
    }
    let certificate = pki.client_credentials("client");
    for _ in 0..5 {
        daemon.connect_and_call(&certificate).await;
    }
    // The pool of connections without an accepted call, and the files of the daemon.
    let open = descriptors(daemon.process.pid());
    assert!((100..128 + 40).contains(&open), "{open} descriptors");
    drop(half);
    let log = daemon.stop().await;
    assert!(log.contains("128 such connections are open"), "{log}");
}

#[tokio::test]
async fn connections_with_invalid_bytes_are_closed_and_logged() {
    let pki = Pki::new();
    let mut daemon = pki.serve_mutual();
    let hello_of = |len: usize| {
        let record = u16::try_from(len + 4).expect("a record").to_be_bytes();
        let body = u16::try_from(len).expect("a handshake").to_be_bytes();
        let head = [&[0x16, 3, 1][..], &record, &[1, 0], &body].concat();
        [head, vec![0xa5; len]].concat()
    };
    let (plain, broken) = ("does not speak TLS", "TLS handshake failed");
    let nonsense: [(&str, Vec<u8>, &str, &str); 6] = [
        (
            "HTTP/2",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
            "WARN",
            plain,
        ),
        // The log has at most one warning per address and interval.
        (
            "text",
            b"GET / HTTP/1.1\r\n\r\n".repeat(600),
            "DEBUG",
            plain,
        ),
        ("zeros", vec![0; 10_000], "DEBUG", plain),
        (
            "a record of nothing",
            b"\x16\x03\x03\x00\x00".to_vec(),
            "DEBUG",
            broken,
        ),
        ("a ClientHello of noise", hello_of(10_000), "DEBUG", broken),
        (
            "an alert",
            b"\x15\x03\x03\x00\x02\x02\x28".to_vec(),
            "DEBUG",
            broken,
        ),
    ];
    for (what, bytes, level, why) in nonsense {
        let mut stream = open_connection(&daemon).await;
        // The daemon may close the connection before all bytes are sent.
        let _ = stream.write_all(&bytes).await;
        let output = read_until_closed(stream).await;
        assert!(output.len() < 100, "{what}: {output:?}");
        let line = daemon.process.wait_for_log(why).await;
        assert!(line.contains(level), "{what}: {line}");
    }
    daemon
        .connect_and_call(&pki.client_credentials("client"))
        .await;
    daemon.stop().await;
}

#[tokio::test]
async fn clients_that_disconnect_during_the_handshake_do_no_harm() {
    let pki = Pki::new();
    let mut daemon = pki.serve(&[]);
    for _ in 0..20 {
        drop(open_connection(&daemon).await);
    }
    daemon.process.wait_for_log("TLS handshake failed").await;
    daemon.connect_and_call(&pki.ca_credentials()).await;
    daemon.stop().await;
}
