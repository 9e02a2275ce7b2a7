//! Floods of HTTP/2 frames, and of bytes that are not HTTP/2.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::Victim;
use super::raw_http2::{
    CONTINUATION, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, HEADERS, PING, RST_STREAM,
    RawConnection, ReceivedFrames, SETTINGS, encode_call_headers, fill_unread, frame, header,
};
use crate::harness::{poll_until, short_or_long};

const LIST: &str = "/caproot.v1.CapabilityService/ListSkills";
const ATTACKERS: usize = 2;
/// How many lists the well-behaved client gets during a flood.
const LISTS: usize = 30;

/// Floods a daemon on a few connections, again and again. Returns the results of all rounds.
///
/// The flood ends after `min_duration`, when the well-behaved client got [`LISTS`] lists and each
/// attacker has finished at least one round.
async fn flood<T: Send + 'static>(
    name: &str,
    min_duration: Duration,
    attack: impl Fn(SocketAddr) -> T + Send + Sync + 'static,
) -> Vec<T> {
    flood_calls(name, 0, min_duration, attack).await
}

/// Floods a daemon like [`flood`], with up to `calls` calls in flight per attacker.
async fn flood_calls<T: Send + 'static>(
    name: &str,
    calls: u64,
    min_duration: Duration,
    attack: impl Fn(SocketAddr) -> T + Send + Sync + 'static,
) -> Vec<T> {
    let (_fixture, mut victim) = Victim::with_tree("skill root/a", "").await;
    victim.max_open_calls = 2 * ATTACKERS as u64 * calls;
    let (attack, enough) = (Arc::new(attack), Arc::new(AtomicBool::new(false)));
    let rounds = Arc::new(AtomicUsize::new(0));
    let attackers = (0..ATTACKERS).map(|_| {
        let (attack, enough, rounds) = (attack.clone(), enough.clone(), rounds.clone());
        let address = victim.address;
        thread::spawn(move || {
            let mut received = Vec::new();
            while !enough.load(Ordering::Relaxed) {
                received.push(attack(address));
                rounds.fetch_add(1, Ordering::Relaxed);
            }
            received
        })
    });
    let attackers: Vec<_> = attackers.collect();
    let (begun, mut lists) = (Instant::now(), 0);
    while lists < LISTS
        || begun.elapsed() < min_duration
        || rounds.load(Ordering::Relaxed) < ATTACKERS
    {
        victim.assert_served().await;
        lists += 1;
    }
    enough.store(true, Ordering::Relaxed);
    poll_until("every attacker has ended", || {
        attackers.iter().all(thread::JoinHandle::is_finished)
    })
    .await;
    let received = attackers
        .into_iter()
        .flat_map(|attacker| attacker.join().expect("no panic"));
    let received: Vec<_> = received.collect();
    println!(
        "{name}: {lists} lists during {} rounds in {:?}",
        received.len(),
        begun.elapsed()
    );
    victim.assert_unharmed(name).await;
    victim.stop().await;
    received
}

/// Sends up to `times` parts, until the daemon closes the connection. Returns the daemon's frames.
fn send_until_closed(
    address: SocketAddr,
    times: u32,
    part: impl Fn(u32) -> Vec<u8>,
) -> ReceivedFrames {
    let Ok(mut raw) = RawConnection::open(address) else {
        return ReceivedFrames::default();
    };
    // The first error means that the daemon closed the connection.
    let _ = (0..times).try_for_each(|n| raw.send(&part(n)));
    raw.finish()
}

#[tokio::test]
async fn rapid_resets_are_stopped() {
    let received = flood("rapid reset", Duration::ZERO, |address| {
        send_until_closed(address, 200, |n| {
            let pairs = (0..100).flat_map(|m| {
                let stream = (n * 100 + m) * 2 + 1;
                let headers = frame(
                    HEADERS,
                    END_HEADERS | END_STREAM,
                    stream,
                    &encode_call_headers(LIST),
                );
                [headers, frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])].concat()
            });
            pairs.collect()
        })
    });
    // A connection may be reset before the client reads GOAWAY.
    assert!(
        received
            .await
            .iter()
            .any(|frames| frames.goaway == Some(ENHANCE_YOUR_CALM))
    );
}

#[tokio::test]
async fn ten_thousand_headers_are_rejected() {
    let received = flood("10,000 headers", Duration::ZERO, |address| {
        send_until_closed(address, 1, |_| {
            let mut block = encode_call_headers(LIST);
            (0..10_000).for_each(|n| block.extend(header(&format!("x-{n}"), "value")));
            let mut parts = block.chunks(16_384);
            let mut bytes = frame(HEADERS, END_STREAM, 1, parts.next().expect("a part"));
            parts.for_each(|part| bytes.extend(frame(CONTINUATION, 0, 1, part)));
            bytes.extend(frame(CONTINUATION, END_HEADERS, 1, &[]));
            bytes
        })
    });
    assert!(
        received
            .await
            .iter()
            .any(|frames| frames.goaway.is_some_and(|code| code != 0))
    );
}

#[tokio::test]
async fn endless_continuation_frames_are_stopped() {
    let received = flood("CONTINUATION flood", Duration::ZERO, |address| {
        send_until_closed(address, 100_000, |n| match n {
            0 => frame(HEADERS, END_STREAM, 1, &encode_call_headers(LIST)),
            n => frame(CONTINUATION, 0, 1, &header("x", &n.to_string())),
        })
    });
    assert!(
        received
            .await
            .iter()
            .any(|frames| frames.goaway == Some(ENHANCE_YOUR_CALM))
    );
}

#[tokio::test]
async fn pings_are_answered_within_bounds() {
    let received = flood("PING flood", Duration::ZERO, |address| {
        send_until_closed(address, 100, |_| frame(PING, 0, 0, &[7; 8]).repeat(100))
    });
    // Pings are legal: each is acknowledged, without GOAWAY.
    for received in received.await {
        assert_eq!(
            (received.pongs, received.goaway.unwrap_or(0)),
            (10_000, 0),
            "{received:?}"
        );
    }
}

#[tokio::test]
async fn unread_acknowledgements_take_bounded_memory() {
    flood("unread PING flood", Duration::ZERO, |address| {
        fill_unread(address, &frame(PING, 0, 0, &[7; 8]).repeat(1_000)).is_ok()
    })
    .await;
    flood("unread SETTINGS flood", Duration::ZERO, |address| {
        fill_unread(address, &frame(SETTINGS, 0, 0, &[]).repeat(1_000)).is_ok()
    })
    .await;
}

/// The connections stay open, so that the daemon has all calls at once.
#[tokio::test]
async fn unread_responses_take_bounded_memory() {
    let (_fixture, victim) = Victim::with_tree("skill root/a", "").await;
    let mut bytes = Vec::new();
    for stream in (1..2_000).step_by(2) {
        bytes.extend(frame(
            HEADERS,
            END_HEADERS | END_STREAM,
            stream,
            &encode_call_headers("/no/Such"),
        ));
    }
    let bytes = Arc::new(bytes);
    let attackers = (0..ATTACKERS).map(|_| {
        let (address, bytes) = (victim.address, bytes.clone());
        tokio::task::spawn_blocking(move || fill_unread(address, &bytes).expect("a connection"))
    });
    let open = futures_util::future::join_all(attackers).await;
    for _ in 0..LISTS {
        victim.assert_served().await;
    }
    drop(open);
    victim.assert_unharmed("unread calls").await;
    victim.stop().await;
}

#[tokio::test]
async fn calls_without_a_request_body_are_limited() {
    let received = flood_calls("half requests", 1_024, Duration::ZERO, |address| {
        send_until_closed(address, 1, |_| {
            let streams = (0..1_030).map(|n| n * 2 + 1);
            streams
                .flat_map(|stream| frame(HEADERS, END_HEADERS, stream, &encode_call_headers(LIST)))
                .collect()
        })
    });
    assert!(
        received.await.iter().any(|frames| frames.refused == 6),
        "at most 1,024 calls at once"
    );
}

#[tokio::test]
async fn random_frames_do_no_harm() {
    // Each round has its own seed, so a run is repeatable and no two rounds are alike.
    let seed = AtomicUsize::new(1);
    let received = flood(
        "garbage",
        Duration::from_secs(short_or_long(2, 10)),
        move |address| {
            let mut state = seed.fetch_add(1, Ordering::Relaxed) as u64;
            let mut random = move || {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                state.to_le_bytes()[4]
            };
            let garbage: Vec<u8> = (0..50_000).map(|_| random()).collect();
            match garbage[0] % 4 {
                0 => send_non_http2(address, &garbage).is_ok(),
                // Frames of every kind, with wrong sizes, flags and streams.
                1 => {
                    let frames = garbage.chunks_exact(40).flat_map(|part| {
                        frame(part[0] % 12, part[1], u32::from(part[2] % 8), &part[3..])
                    });
                    let frames: Vec<u8> = frames.collect();
                    send_until_closed(address, 1, |_| frames.clone())
                        .goaway
                        .is_some()
                }
                // Random bytes as a header block.
                2 => {
                    let block = garbage[..1_000].to_vec();
                    let bytes = frame(HEADERS, END_HEADERS | END_STREAM, 1, &block);
                    send_until_closed(address, 1, |_| bytes.clone())
                        .goaway
                        .is_some()
                }
                _ => send_until_closed(address, 1, |_| garbage.clone())
                    .goaway
                    .is_some(),
            }
        },
    );
    let received = received.await;
    assert!(received.len() > 20, "{}", received.len());
}

/// Sends bytes that are not HTTP/2, and checks that the daemon closes the connection.
fn send_non_http2(address: SocketAddr, garbage: &[u8]) -> io::Result<()> {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(address)?;
    stream.set_read_timeout(Some(crate::harness::HANG_TIMEOUT))?;
    // The daemon may close the connection before it has read everything.
    drop(stream.write_all(garbage));
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        // The daemon may reply that it does not support this version of HTTP.
        Ok(_) => assert!(
            answer.is_empty() || answer.starts_with(b"HTTP/1.1 505 "),
            "{answer:?}"
        ),
        Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}"),
    }
    Ok(())
}

#[tokio::test]
async fn a_connection_without_http2_is_closed() {
    let received = flood("garbage preface", Duration::ZERO, |address| {
        let sent = [
            "GET / HTTP/1.1\r\nHost: caproot.test\r\n\r\n",
            "PRI * HTTP/1.0\r\n\r\nSM\r\n\r\n",
        ];
        for text in sent {
            send_non_http2(address, &text.repeat(3).into_bytes()).expect("a connection");
        }
    });
    assert!(received.await.len() >= ATTACKERS);
}
