//! Connections that send nothing, too little, or too slowly.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use super::raw_http2::PREFACE;
use super::{Victim, client_from, is_served};
use crate::harness::{HANG_TIMEOUT, poll_until};

/// How long a client may take to send the preface.
const PREFACE_TIMEOUT: Duration = Duration::from_secs(10);

/// Waits until the daemon closes the connection. Returns the time since `begun`.
fn wait_until_closed(mut stream: TcpStream, begun: Instant) -> Duration {
    stream
        .set_read_timeout(Some(HANG_TIMEOUT))
        .expect("a timeout");
    let mut rest = Vec::new();
    // A reset closes the connection, too.
    drop(stream.read_to_end(&mut rest));
    assert!(rest.is_empty(), "the daemon sends nothing: {rest:?}");
    begun.elapsed()
}

/// Sends the bytes one per second. Returns how long the daemon kept the connection.
fn send_slowly(address: SocketAddr, bytes: &'static [u8]) -> thread::JoinHandle<Duration> {
    let begun = Instant::now();
    let mut stream = TcpStream::connect(address).expect("a connection");
    thread::spawn(move || {
        for byte in bytes {
            if stream.write_all(&[*byte]).is_err() || begun.elapsed() > HANG_TIMEOUT {
                break;
            }
            thread::sleep(Duration::from_secs(1));
        }
        wait_until_closed(stream, begun)
    })
}

#[tokio::test]
async fn connections_without_a_preface_are_closed_after_a_timeout() {
    let (_fixture, victim) = Victim::with_tree("skill root/a", "").await;
    let (address, before) = (victim.address, victim.open_descriptors());
    let begun = Instant::now();
    let silent = (0..1_000).map(|_| TcpStream::connect(address).expect("the kernel accepts"));
    let silent: Vec<_> = silent.collect();
    // One client sends the preface at a byte a second, the other stops after the first byte.
    let slow = [
        send_slowly(address, PREFACE),
        send_slowly(address, &PREFACE[..1]),
    ];
    // The client that connected earlier and a client at another address are served.
    victim.assert_served().await;
    assert!(is_served(&mut client_from("127.0.0.2", address).await).await);
    // All but the last 128 connections without a call are closed at once.
    let max_descriptors = 128 + 40;
    poll_until("the excess connections are closed", || {
        victim.open_descriptors() < max_descriptors
    })
    .await;
    assert!(
        begun.elapsed() < PREFACE_TIMEOUT / 2,
        "{:?}",
        begun.elapsed()
    );
    assert!(
        victim.open_descriptors() > 120,
        "{}",
        victim.open_descriptors()
    );
    victim.assert_unharmed("1,000 silent connections").await;
    let ends = tokio::task::spawn_blocking(move || {
        silent
            .into_iter()
            .map(|stream| wait_until_closed(stream, begun))
            .max()
            .expect("at least one connection")
    });
    while slow.iter().any(|slow| !slow.is_finished()) || !ends.is_finished() {
        victim.assert_served().await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let ends = ends.await.expect("no panic");
    assert!(
        ends >= PREFACE_TIMEOUT.saturating_sub(Duration::from_secs(1)),
        "{ends:?}"
    );
    for slow in slow {
        let took = slow.join().expect("no panic");
        assert!(
            took >= PREFACE_TIMEOUT.saturating_sub(Duration::from_secs(1)),
            "{took:?}"
        );
        println!("a slow connection was closed after {took:?}, silent ones after {ends:?}");
    }
    poll_until("all connections are closed", || {
        victim.open_descriptors() <= before
    })
    .await;
    victim.assert_unharmed("after the silence").await;
    // A silent connection does not delay the shutdown.
    let silent = TcpStream::connect(address).expect("a connection");
    poll_until("the connection is accepted", || {
        victim.open_descriptors() > before
    })
    .await;
    let begun = Instant::now();
    let log = victim.stop().await;
    assert!(
        begun.elapsed() < PREFACE_TIMEOUT / 2,
        "{:?}",
        begun.elapsed()
    );
    drop(silent);
    let warnings = log
        .lines()
        .filter(|line| line.contains("128 such connections are open"));
    assert!(
        (1..=3).contains(&warnings.count()),
        "a rate-limited warning: {log}"
    );
}
