//! Memory under load that goes on: it grows to what the bounds allow and stays there.

use std::time::{Duration, Instant};

use bytes::Bytes;
use caproot::proto::caproot::v1::ReadResourceRequest;

use super::{SPARE_KIB, Victim, root};
use crate::fixture::Fixture;
use crate::harness::{bytes_of, short_or_long, in_time, read_request};
use crate::watch_harness::{skill_text, watch_request};
use crate::replica::Replica;

const MIB: u64 = 1 << 20;

#[tokio::test]
async fn paging_through_a_large_file() {
    let size = short_or_long(MIB << 8, MIB << 10);
    let fixture = Fixture::new(&format!("skill root/a\nsparse {size} root/a/large"));
    let victim = Victim::new(&fixture, "max_file_bytes: 2GiB").await;
    let mut request = read_request(&root(), "skill://r/a", "skill://r/a/large");
    request.max_bytes = 1 << 20;
    let mut sizes = Vec::new();
    let mut read = 0;
    loop {
        let page = victim.good.read(request.clone()).await.expect("a page");
        read += bytes_of(&page).len() as u64;
        if read % (size / 8) == 0 {
            sizes.push(victim.resident());
        }
        if page.next_cursor.is_empty() {
            break;
        }
        request = ReadResourceRequest { cursor: page.next_cursor, ..request };
    }
    assert_eq!(read, size);
    println!("{size} bytes in pages of 1 MiB: {} KiB before, then {sizes:?}", victim.before);
    victim.assert_unharmed("a large file in pages").await;
    victim.end().await;
}

/// Opens calls or streams on a connection that takes their answers as far as `window` goes.
struct Taker {
    client: h2::client::SendRequest<Bytes>,
    open: Vec<(h2::client::ResponseFuture, h2::SendStream<Bytes>)>,
}

impl Taker {
    async fn new(victim: &Victim, window: u32) -> Self {
        let stream = tokio::net::TcpStream::connect(victim.address).await.expect("a connection");
        let mut builder = h2::client::Builder::new();
        builder.initial_window_size(window).initial_connection_window_size(1 << 30);
        let (client, connection) = builder.handshake(stream).await.expect("HTTP/2");
        tokio::spawn(connection);
        Self { client, open: Vec::new() }
    }

    async fn call(&mut self, method: &str, message: &impl prost::Message) {
        let uri = format!("http://caproot.test/caproot.v1.CapabilityService/{method}");
        let request = http::Request::post(uri).header("content-type", "application/grpc");
        let request = request.header("te", "trailers").body(()).expect("a request");
        self.client = in_time(self.client.clone().ready()).await.expect("room for a call");
        let (answer, mut sending) = self.client.send_request(request, false).expect("it is sent");
        let message = message.encode_to_vec();
        let len = u32::try_from(message.len()).expect("short").to_be_bytes();
        let message = [&[0][..], &len, &message].concat();
        sending.send_data(message.into(), true).expect("it is sent");
        self.open.push((answer, sending));
    }
}

#[tokio::test]
async fn a_thousand_streams_that_nobody_reads() {
    // More than HTTP/2 lets through before it is read.
    let fixture = Fixture::new("repeat 300 skill root/s{}");
    let victim = Victim::new(&fixture, "").await;
    let mut reader = Replica::open(&victim.good, watch_request(vec![root()])).await;
    reader.next_batch().await;
    let mut unread = Vec::new();
    for _ in 0..10 {
        let mut taker = Taker::new(&victim, 65_535).await;
        for _ in 0..100 {
            taker.call("WatchSkills", &watch_request(vec![root()])).await;
        }
        for (answer, _) in &mut taker.open {
            assert_eq!(in_time(answer).await.expect("a stream").status(), 200);
        }
        unread.push(taker);
    }
    let opened = victim.resident();
    // The long form lasts longer than a reader may be stuck in the middle of a state.
    let lasting = Duration::from_secs(short_or_long(3, 14));
    let (begun, mut sizes, mut n) = (Instant::now(), Vec::new(), 0_usize);
    while begun.elapsed() < lasting {
        for _ in 0..10 {
            let says = format!("Change {n}.");
            let name = format!("s{:03}", n % 300);
            fixture.replace(&format!("root/{name}/SKILL.md"), skill_text(&name, &says));
            while reader.skills[&format!("skill://r/{name}")].description != says {
                reader.next_change().await;
            }
            n += 1;
        }
        sizes.push(victim.resident());
    }
    let (first, second) = sizes.split_at(sizes.len() / 2);
    let most = |sizes: &[u64]| sizes.iter().copied().max().expect("many");
    let each = (most(&sizes) - victim.before) / 1_000;
    println!(
        "1,000 unread streams, {n} changes: {} KiB before, {opened} opened, {} at most in the first \
         half, {} in the second; {each} KiB a stream",
        victim.before,
        most(first),
        most(second)
    );
    assert!(each < 192, "{each} KiB a stream");
    assert!(most(second) <= most(first) + most(first) / 20, "{sizes:?}");
    drop((unread, reader));
    victim.is_served().await;
    victim.end().await;
}

#[tokio::test]
async fn answers_that_nobody_takes() {
    let fixture = Fixture::new("skill root/a\nsparse 8388608 root/a/large");
    let victim = Victim::new(&fixture, "").await;
    let mut request = read_request(&root(), "skill://r/a", "skill://r/a/large");
    request.max_bytes = 1 << 20;
    victim.good.read(request.clone()).await.expect("a page");
    let mut takers = Vec::new();
    // Nothing at all, and a byte of each.
    for window in [0, 1] {
        let mut taker = Taker::new(&victim, window).await;
        for _ in 0..500 {
            taker.call("ReadResource", &request).await;
        }
        for (answer, _) in &mut taker.open {
            assert_eq!(in_time(answer).await.expect("an answer").status(), 200);
        }
        // Who asks from elsewhere gets pages of the same size.
        let mut other = super::client_from("127.0.0.2", victim.address).await;
        in_time(other.read_resource(request.clone())).await.expect("a page");
        takers.push(taker);
    }
    // What may be held, and what is read at once.
    let held = victim.resident().saturating_sub(victim.before) >> 10;
    println!("1,000 answers of 1 MiB that nobody takes: {held} MiB");
    assert!(held < 128 + 64 + 24, "{held} MiB");
    drop(takers);
    let bound = victim.before + victim.before / 5 + SPARE_KIB;
    super::until("it is given back", || victim.resident() <= bound).await;
    println!("given back: {} KiB before, {} after", victim.before, victim.resident());
    victim.good.read(request).await.expect("a page");
    victim.end().await;
}

#[tokio::test]
async fn connections_that_are_kept_for_nothing() {
    let fixture = Fixture::new("skill root/a");
    let victim = Victim::new(&fixture, "").await;
    let mut idle = Vec::new();
    for _ in 0..250 {
        let mut client = super::client_from("127.0.0.1", victim.address).await;
        assert!(super::serves(&mut client).await);
        idle.push(client);
    }
    let each = victim.resident().saturating_sub(victim.before) / 250;
    println!("250 connections that were used once: {each} KiB each");
    assert!(each < 96, "{each} KiB each");
    drop(idle);
    victim.end().await;
}
