//! Whoever connects to a TLS listener and does not mean it: says nothing, or nonsense.

use std::io::ErrorKind;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{Pki, Served};
use crate::harness::in_time;

async fn open(served: &Served) -> TcpStream {
    in_time(TcpStream::connect(("127.0.0.1", served.port))).await.expect("a connection")
}

/// Reads until the daemon has ended the connection; gives what it sent.
async fn closed(mut stream: TcpStream) -> Vec<u8> {
    let mut said = Vec::new();
    match in_time(stream.read_to_end(&mut said)).await {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
    said
}

#[tokio::test]
async fn who_says_nothing_holds_up_nobody_and_is_sent_away() {
    let pki = Pki::new();
    let mut served = pki.serve(&[]).await;
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(open(&served).await);
    }
    // A handshake that begins and does not go on.
    silent[0].write_all(b"\x16\x03\x01\x02\x00\x01").await.expect("sent");
    let client = served.admitted(&pki.trusting()).await;
    let line = served.says("timed out").await;
    assert!(line.contains("10s"), "{line}");
    for stream in silent {
        assert!(closed(stream).await.is_empty());
    }
    // It was no connection of theirs.
    in_time(client.clone().get_executor()).await.expect("an answer");
    served.stop().await;
}

#[tokio::test]
async fn nonsense_is_sent_away() {
    let pki = Pki::new();
    let mut served = pki.serve_mutual().await;
    let hello_of = |len: usize| {
        let record = u16::try_from(len + 4).expect("a record").to_be_bytes();
        let body = u16::try_from(len).expect("a handshake").to_be_bytes();
        let head = [&[0x16, 3, 1][..], &record, &[1, 0], &body].concat();
        [head, vec![0xa5; len]].concat()
    };
    let (plain, broken) = ("does not speak TLS", "TLS handshake failed");
    let nonsense: [(&str, Vec<u8>, &str, &str); 6] = [
        ("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), "WARN", plain),
        // One line is enough for all that comes from one address in a while.
        ("text", b"GET / HTTP/1.1\r\n\r\n".repeat(600), "DEBUG", plain),
        ("zeros", vec![0; 10_000], "DEBUG", plain),
        ("a record of nothing", b"\x16\x03\x03\x00\x00".to_vec(), "DEBUG", broken),
        ("a ClientHello of noise", hello_of(10_000), "DEBUG", broken),
        ("an alert", b"\x15\x03\x03\x00\x02\x02\x28".to_vec(), "DEBUG", broken),
    ];
    for (what, bytes, level, why) in nonsense {
        let mut stream = open(&served).await;
        // The daemon may be done with it before all of it is sent.
        let _ = stream.write_all(&bytes).await;
        let said = closed(stream).await;
        assert!(said.len() < 100, "{what}: {said:?}");
        let line = served.says(why).await;
        assert!(line.contains(level), "{what}: {line}");
    }
    served.admitted(&pki.showing("client")).await;
    served.stop().await;
}

#[tokio::test]
async fn who_leaves_in_the_middle_is_no_matter() {
    let pki = Pki::new();
    let mut served = pki.serve(&[]).await;
    for _ in 0..20 {
        drop(open(&served).await);
    }
    served.says("TLS handshake failed").await;
    served.admitted(&pki.trusting()).await;
    served.stop().await;
}
