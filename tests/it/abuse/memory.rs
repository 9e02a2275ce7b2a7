//! Memory under continuous load: it grows up to the bounds and stays there.

use std::time::{Duration, Instant};

use bytes::Bytes;
use caproot_core::proto::caproot::v1::ReadResourceRequest;

use super::{SPARE_KIB, Victim, root};
use crate::harness::replica::Replica;
use crate::harness::watch_harness::{skill_text, watch_request};
use crate::harness::{bytes_of, in_time, poll_until, read_request, short_or_long};

const MIB: u64 = 1 << 20;

#[tokio::test]
async fn paging_through_a_large_file_takes_bounded_memory() {
    let size = short_or_long(MIB << 8, MIB << 10);
    let (_fixture, victim) = Victim::with_tree(
        &format!("skill root/a\nsparse {size} root/a/large"),
        "max_file_bytes: 2GiB",
    )
    .await;
    let mut request = read_request(&root(), "skill://r/a", "skill://r/a/large");
    request.max_bytes = 1 << 20;
    let mut sizes = Vec::new();
    let mut read = 0;
    loop {
        let page = victim.good.read(request.clone()).await.expect("a page");
        read += bytes_of(&page).len() as u64;
        if read % (size / 8) == 0 {
            sizes.push(victim.resident_kib());
        }
        if page.next_cursor.is_empty() {
            break;
        }
        request = ReadResourceRequest {
            cursor: page.next_cursor,
            ..request
        };
    }
    assert_eq!(read, size);
    println!(
        "{size} bytes in pages of 1 MiB: {} KiB before, then {sizes:?}",
        victim.resident_before
    );
    victim.assert_unharmed("a large file in pages").await;
    victim.stop().await;
}

/// Connection whose calls take at most one flow-control window of each response.
struct WindowedClient {
    client: h2::client::SendRequest<Bytes>,
    open: Vec<(h2::client::ResponseFuture, h2::SendStream<Bytes>)>,
}

impl WindowedClient {
    async fn new(victim: &Victim, window: u32) -> Self {
        let stream = tokio::net::TcpStream::connect(victim.address)
            .await
            .expect("a connection");
        let mut builder = h2::client::Builder::new();
        builder
            .initial_window_size(window)
            .initial_connection_window_size(1 << 30);
        let (client, connection) = builder.handshake(stream).await.expect("HTTP/2");
        tokio::spawn(connection);
        Self {
            client,
            open: Vec::new(),
        }
    }

    async fn call(&mut self, method: &str, message: &impl prost::Message) {
        let uri = format!("http://caproot.test/caproot.v1.CapabilityService/{method}");
        let request = http::Request::post(uri).header("content-type", "application/grpc");
        let request = request
            .header("te", "trailers")
            .body(())
            .expect("a request");
        self.client = in_time(self.client.clone().ready())
            .await
            .expect("a free HTTP/2 stream");
        let (answer, mut sending) = self
            .client
            .send_request(request, false)
            .expect("the request is sent");
        let message = message.encode_to_vec();
        let len = u32::try_from(message.len()).expect("short").to_be_bytes();
        let message = [&[0][..], &len, &message].concat();
        sending
            .send_data(message.into(), true)
            .expect("the request is sent");
        self.open.push((answer, sending));
    }
}

#[tokio::test]
async fn a_thousand_unread_streams_take_bounded_memory() {
    // More skills than fit into the HTTP/2 window of an unread stream.
    let (fixture, victim) = Victim::with_tree("repeat 300 skill root/s{}", "").await;
    let mut reader = Replica::synced(&victim.good, watch_request(vec![root()])).await;
    let mut unread = Vec::new();
    for _ in 0..10 {
        let mut client = WindowedClient::new(&victim, 65_535).await;
        for _ in 0..100 {
            client
                .call("WatchSkills", &watch_request(vec![root()]))
                .await;
        }
        for (answer, _) in &mut client.open {
            assert_eq!(in_time(answer).await.expect("a stream").status(), 200);
        }
        unread.push(client);
    }
    let opened = victim.resident_kib();
    // The long form exceeds the time after which a stream stuck within a state is ended.
    let lasting = Duration::from_secs(short_or_long(3, 14));
    let (begun, mut sizes, mut n) = (Instant::now(), Vec::new(), 0_usize);
    // On a loaded machine the first samples may take all of this time.
    while begun.elapsed() < lasting || sizes.len() < 6 {
        for _ in 0..10 {
            let description = format!("Change {n}.");
            let name = format!("s{:03}", n % 300);
            fixture.replace(
                &format!("root/{name}/SKILL.md"),
                skill_text(&name, &description),
            );
            reader
                .wait_while(|reader| {
                    reader.skills[&format!("skill://r/{name}")].description != description
                })
                .await;
            n += 1;
        }
        sizes.push(victim.resident_kib());
    }
    let (first, second) = sizes.split_at(sizes.len() / 2);
    let most = |sizes: &[u64]| sizes.iter().copied().max().expect("at least one sample");
    let each = (most(&sizes) - victim.resident_before) / 1_000;
    println!(
        "1,000 unread streams, {n} changes: {} KiB before, {opened} opened, {} at most in the first \
         half, {} in the second; {each} KiB a stream",
        victim.resident_before,
        most(first),
        most(second)
    );
    assert!(each < 192, "{each} KiB a stream");
    assert!(most(second) <= most(first) + most(first) / 20, "{sizes:?}");
    drop((unread, reader));
    victim.assert_served().await;
    victim.stop().await;
}

#[tokio::test]
async fn unread_pages_take_bounded_memory() {
    let (fixture, victim) =
        Victim::with_socket("skill root/a\nsparse 8388608 root/a/large\ndir run").await;
    let mut request = read_request(&root(), "skill://r/a", "skill://r/a/large");
    request.max_bytes = 1 << 20;
    victim.good.read(request.clone()).await.expect("a page");
    let mut clients = Vec::new();
    // The client takes no byte, or one byte, of each response.
    for window in [0, 1] {
        let mut client = WindowedClient::new(&victim, window).await;
        for _ in 0..500 {
            client.call("ReadResource", &request).await;
        }
        for (answer, _) in &mut client.open {
            assert_eq!(in_time(answer).await.expect("an answer").status(), 200);
        }
        // A caller on the Unix socket gets pages of the same size.
        let mut other = super::client_on(&fixture.path("run/c.sock"), None).await;
        in_time(other.read_resource(request.clone()))
            .await
            .expect("a page");
        clients.push(client);
    }
    // The buffered bytes of all callers, the concurrent reads and a margin.
    let growth = victim.resident_kib().saturating_sub(victim.resident_before) >> 10;
    println!("1,000 unread responses of 1 MiB: {growth} MiB");
    assert!(growth < 128 + 64 + 24, "{growth} MiB");
    drop(clients);
    let bound = victim.resident_before + victim.resident_before / 5 + SPARE_KIB;
    poll_until("the memory is freed", || victim.resident_kib() <= bound).await;
    println!(
        "freed: {} KiB before, {} after",
        victim.resident_before,
        victim.resident_kib()
    );
    victim.good.read(request).await.expect("a page");
    victim.stop().await;
}

#[tokio::test]
async fn idle_connections_take_little_memory() {
    let (_fixture, victim) = Victim::with_tree("skill root/a", "").await;
    let mut idle = Vec::new();
    for _ in 0..250 {
        let mut client = super::client_from("127.0.0.1", victim.address).await;
        assert!(super::is_served(&mut client).await);
        idle.push(client);
    }
    let each = victim.resident_kib().saturating_sub(victim.resident_before) / 250;
    println!("250 idle connections: {each} KiB each");
    assert!(each < 96, "{each} KiB each");
    drop(idle);
    victim.stop().await;
}
