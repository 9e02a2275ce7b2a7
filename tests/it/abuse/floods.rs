//! Floods on connections of which HTTP/2 has begun, and on ones where it never does.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::raw::{
    CONTINUATION, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, HEADERS, Heard, PING, RST_STREAM,
    Raw, SETTINGS, call, fill, frame, header,
};
use super::{Victim, until};
use crate::fixture::Fixture;
use crate::harness::short_or_long;

const LIST: &str = "/caproot.v1.CapabilityService/ListSkills";
const ATTACKERS: usize = 2;
/// How often somebody else is served while the flood goes on.
const LISTS: usize = 30;

/// Floods a daemon on a few connections, again and again, until others were served often and each
/// attacker was through at least once and for so long; gives what was heard.
async fn flood<T: Send + 'static>(
    what: &str,
    lasting: Duration,
    attack: impl Fn(SocketAddr) -> T + Send + Sync + 'static,
) -> Vec<T> {
    flood_of_calls(what, 0, lasting, attack).await
}

/// The same where each attacker may have so many calls under way.
async fn flood_of_calls<T: Send + 'static>(
    what: &str,
    calls: u64,
    lasting: Duration,
    attack: impl Fn(SocketAddr) -> T + Send + Sync + 'static,
) -> Vec<T> {
    let fixture = Fixture::new("skill root/a");
    let mut victim = Victim::new(&fixture, "").await;
    victim.calls = 2 * ATTACKERS as u64 * calls;
    let (attack, enough) = (Arc::new(attack), Arc::new(AtomicBool::new(false)));
    let rounds = Arc::new(AtomicUsize::new(0));
    let attackers = (0..ATTACKERS).map(|_| {
        let (attack, enough, rounds) = (attack.clone(), enough.clone(), rounds.clone());
        let address = victim.address;
        thread::spawn(move || {
            let mut heard = Vec::new();
            while !enough.load(Ordering::Relaxed) {
                heard.push(attack(address));
                rounds.fetch_add(1, Ordering::Relaxed);
            }
            heard
        })
    });
    let attackers: Vec<_> = attackers.collect();
    let (begun, mut lists) = (Instant::now(), 0);
    while lists < LISTS || begun.elapsed() < lasting || rounds.load(Ordering::Relaxed) < ATTACKERS {
        victim.is_served().await;
        lists += 1;
    }
    enough.store(true, Ordering::Relaxed);
    until("every attacker ends", || attackers.iter().all(thread::JoinHandle::is_finished)).await;
    let heard = attackers.into_iter().flat_map(|attacker| attacker.join().expect("no panic"));
    let heard: Vec<_> = heard.collect();
    println!("{what}: {lists} lists during {} rounds in {:?}", heard.len(), begun.elapsed());
    victim.assert_unharmed(what).await;
    victim.end().await;
    heard
}

/// Sends one thing after the other until the daemon has enough, or for so many times.
fn until_closed(address: SocketAddr, times: u32, part: impl Fn(u32) -> Vec<u8>) -> Heard {
    let Ok(mut raw) = Raw::open(address) else { return Heard::default() };
    // The first error is the daemon's end of the connection.
    let _ = (0..times).try_for_each(|n| raw.send(&part(n)));
    raw.end()
}

#[tokio::test]
async fn calls_that_are_taken_back() {
    let heard = flood("rapid reset", Duration::ZERO, |address| {
        until_closed(address, 200, |n| {
            let pairs = (0..100).flat_map(|m| {
                let stream = (n * 100 + m) * 2 + 1;
                let headers = frame(HEADERS, END_HEADERS | END_STREAM, stream, &call(LIST));
                [headers, frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])].concat()
            });
            pairs.collect()
        })
    });
    // A connection may be reset before GOAWAY was read.
    assert!(heard.await.iter().any(|h| h.goaway == Some(ENHANCE_YOUR_CALM)));
}

#[tokio::test]
async fn ten_thousand_headers() {
    let heard = flood("10,000 headers", Duration::ZERO, |address| {
        until_closed(address, 1, |_| {
            let mut block = call(LIST);
            (0..10_000).for_each(|n| block.extend(header(&format!("x-{n}"), "value")));
            let mut parts = block.chunks(16_384);
            let mut bytes = frame(HEADERS, END_STREAM, 1, parts.next().expect("a part"));
            parts.for_each(|part| bytes.extend(frame(CONTINUATION, 0, 1, part)));
            bytes.extend(frame(CONTINUATION, END_HEADERS, 1, &[]));
            bytes
        })
    });
    assert!(heard.await.iter().any(|h| h.goaway.is_some_and(|code| code != 0)));
}

#[tokio::test]
async fn headers_without_an_end() {
    let heard = flood("CONTINUATION flood", Duration::ZERO, |address| {
        until_closed(address, 100_000, |n| match n {
            0 => frame(HEADERS, END_STREAM, 1, &call(LIST)),
            n => frame(CONTINUATION, 0, 1, &header("x", &n.to_string())),
        })
    });
    assert!(heard.await.iter().any(|h| h.goaway == Some(ENHANCE_YOUR_CALM)));
}

#[tokio::test]
async fn pings_that_are_answered() {
    let heard = flood("PING flood", Duration::ZERO, |address| {
        until_closed(address, 100, |_| frame(PING, 0, 0, &[7; 8]).repeat(100))
    });
    // Nothing wrong was done.
    for heard in heard.await {
        assert_eq!((heard.pongs, heard.goaway.unwrap_or(0)), (10_000, 0), "{heard:?}");
    }
}

#[tokio::test]
async fn pings_and_settings_whose_answers_nobody_reads() {
    flood("unread PING flood", Duration::ZERO, |address| {
        fill(address, &frame(PING, 0, 0, &[7; 8]).repeat(1_000)).is_ok()
    })
    .await;
    flood("unread SETTINGS flood", Duration::ZERO, |address| {
        fill(address, &frame(SETTINGS, 0, 0, &[]).repeat(1_000)).is_ok()
    })
    .await;
}

/// On connections that stay open, so that all of it is there at once.
#[tokio::test]
async fn calls_whose_answers_nobody_reads() {
    let fixture = Fixture::new("skill root/a");
    let victim = Victim::new(&fixture, "").await;
    let mut bytes = Vec::new();
    for stream in (1..2_000).step_by(2) {
        bytes.extend(frame(HEADERS, END_HEADERS | END_STREAM, stream, &call("/no/Such")));
    }
    let bytes = Arc::new(bytes);
    let attackers = (0..ATTACKERS).map(|_| {
        let (address, bytes) = (victim.address, bytes.clone());
        tokio::task::spawn_blocking(move || fill(address, &bytes).expect("a connection"))
    });
    let open = futures_util::future::join_all(attackers).await;
    for _ in 0..LISTS {
        victim.is_served().await;
    }
    drop(open);
    victim.assert_unharmed("unread calls").await;
    victim.end().await;
}

#[tokio::test]
async fn calls_whose_requests_never_come() {
    let heard = flood_of_calls("half requests", 1_024, Duration::ZERO, |address| {
        until_closed(address, 1, |_| {
            let streams = (0..1_030).map(|n| n * 2 + 1);
            streams.flat_map(|stream| frame(HEADERS, END_HEADERS, stream, &call(LIST))).collect()
        })
    });
    assert!(heard.await.iter().any(|h| h.refused == 6), "1,024 at once");
}

#[tokio::test]
async fn garbage() {
    // Repeatable, and no two rounds alike.
    let seed = AtomicUsize::new(1);
    let heard = flood("garbage", Duration::from_secs(short_or_long(2, 10)), move |address| {
        let mut state = seed.fetch_add(1, Ordering::Relaxed) as u64;
        let mut random = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state.to_le_bytes()[4]
        };
        let garbage: Vec<u8> = (0..50_000).map(|_| random()).collect();
        match garbage[0] % 4 {
            0 => before_http(address, &garbage).is_ok(),
            // Frames of every kind, with wrong sizes, flags and streams.
            1 => {
                let frames = garbage.chunks_exact(40).flat_map(|part| {
                    frame(part[0] % 12, part[1], u32::from(part[2] % 8), &part[3..])
                });
                let frames: Vec<u8> = frames.collect();
                until_closed(address, 1, |_| frames.clone()).goaway.is_some()
            }
            // Headers that are none.
            2 => {
                let block = garbage[..1_000].to_vec();
                let bytes = frame(HEADERS, END_HEADERS | END_STREAM, 1, &block);
                until_closed(address, 1, |_| bytes.clone()).goaway.is_some()
            }
            _ => until_closed(address, 1, |_| garbage.clone()).goaway.is_some(),
        }
    });
    let heard = heard.await;
    assert!(heard.len() > 20, "{}", heard.len());
}

/// Sends what is no HTTP/2 at all; the daemon hangs up.
fn before_http(address: SocketAddr, garbage: &[u8]) -> io::Result<()> {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(address)?;
    stream.set_read_timeout(Some(crate::harness::HANG_TIMEOUT))?;
    // It may hang up before it has read all of it.
    drop(stream.write_all(garbage));
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        // Or it says that this is not for it.
        Ok(_) => assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 505 "), "{answer:?}"),
        Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}"),
    }
    Ok(())
}

#[tokio::test]
async fn what_is_no_http() {
    let heard = flood("garbage preface", Duration::ZERO, |address| {
        let sent =
            ["GET / HTTP/1.1\r\nHost: caproot.test\r\n\r\n", "PRI * HTTP/1.0\r\n\r\nSM\r\n\r\n"];
        for text in sent {
            before_http(address, &text.repeat(3).into_bytes()).expect("a connection");
        }
    });
    assert!(heard.await.len() >= ATTACKERS);
}
