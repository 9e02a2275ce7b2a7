//! Connections that say nothing, or not enough, or too slowly.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use super::raw::PREFACE;
use super::{Victim, client_from, serves, until};
use crate::fixture::Fixture;
use crate::harness::HANG_TIMEOUT;

/// How long a beginning may take.
const BEGINNING: Duration = Duration::from_secs(10);

/// Waits until the daemon hangs up; gives after how long.
fn hung_up(mut stream: TcpStream, begun: Instant) -> Duration {
    stream.set_read_timeout(Some(HANG_TIMEOUT)).expect("a timeout");
    let mut rest = Vec::new();
    // A reset is an end, too.
    drop(stream.read_to_end(&mut rest));
    assert!(rest.is_empty(), "nothing was asked: {rest:?}");
    begun.elapsed()
}

/// Begins in so many pieces, one a second.
fn slowly(address: SocketAddr, beginning: &'static [u8]) -> thread::JoinHandle<Duration> {
    let begun = Instant::now();
    let mut stream = TcpStream::connect(address).expect("a connection");
    thread::spawn(move || {
        for byte in beginning {
            if stream.write_all(&[*byte]).is_err() || begun.elapsed() > HANG_TIMEOUT {
                break;
            }
            thread::sleep(Duration::from_secs(1));
        }
        hung_up(stream, begun)
    })
}

#[tokio::test]
async fn a_beginning_that_does_not_end() {
    let fixture = Fixture::new("skill root/a");
    let victim = Victim::new(&fixture, "").await;
    let (address, before) = (victim.address, victim.descriptors());
    // A byte a second, of a good beginning and of one that lacks the frame behind the preface.
    let slow = [slowly(address, PREFACE), slowly(address, &PREFACE[..1])];
    let begun = Instant::now();
    let silent = (0..1_000).map(|_| TcpStream::connect(address).expect("the kernel accepts"));
    let silent: Vec<_> = silent.collect();
    // Who came before is served, and so is who comes from elsewhere.
    victim.is_served().await;
    assert!(serves(&mut client_from("127.0.0.2", address).await).await);
    // All were closed at once but 256, with those from before.
    let most = 256 + 40;
    until("the others are closed", || victim.descriptors() < most).await;
    assert!(begun.elapsed() < BEGINNING / 2, "{:?}", begun.elapsed());
    assert!(victim.descriptors() > 250, "{}", victim.descriptors());
    victim.assert_unharmed("1,000 silent connections").await;
    let ends = tokio::task::spawn_blocking(move || {
        silent.into_iter().map(|stream| hung_up(stream, begun)).max().expect("a thousand")
    });
    while slow.iter().any(|slow| !slow.is_finished()) || !ends.is_finished() {
        victim.is_served().await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let ends = ends.await.expect("no panic");
    assert!(ends >= BEGINNING.saturating_sub(Duration::from_secs(1)), "{ends:?}");
    for slow in slow {
        let took = slow.join().expect("no panic");
        assert!(took >= BEGINNING.saturating_sub(Duration::from_secs(1)), "{took:?}");
        println!("a slow beginning was ended after {took:?}, silent ones after {ends:?}");
    }
    until("all are closed", || victim.descriptors() <= before).await;
    victim.assert_unharmed("after the silence").await;
    // One more does not hold up the end.
    let silent = TcpStream::connect(address).expect("a connection");
    until("it is accepted", || victim.descriptors() > before).await;
    let begun = Instant::now();
    // Elsewhere, so that the client hears meanwhile that the daemon goes.
    let log = victim.end().await;
    assert!(begun.elapsed() < BEGINNING / 2, "{:?}", begun.elapsed());
    drop(silent);
    let said = log.lines().filter(|line| line.contains("max_connections_per_caller is 256"));
    assert!((1..=3).contains(&said.count()), "said, but seldom: {log}");
}
