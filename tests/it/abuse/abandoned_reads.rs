//! Reads whose caller has gone or whose deadline has passed: the daemon stops the work soon.

use std::fs;
use std::time::{Duration, Instant};

use bytes::Bytes;
use caproot_core::proto::caproot::v1::ListResourcesRequest;
use prost::Message as _;
use tonic::Code;

use super::{Victim, root};
use crate::harness::{bytes_of, files_request, in_time, poll_until, read_request};

/// File size whose digest takes longer than any test may.
const HUGE: u64 = 1 << 34;

/// Returns how many bytes the daemon has read so far.
fn bytes_read(victim: &Victim) -> u64 {
    let io = fs::read_to_string(format!("/proc/{}/io", victim.serving.pid()))
        .expect("a readable /proc/PID/io");
    let read = io
        .lines()
        .find_map(|line| line.strip_prefix("rchar: "))
        .expect("rchar");
    read.parse().expect("a number")
}

/// Waits until the daemon stops reading, and checks that it stopped long before the end of the
/// file.
async fn wait_until_reading_stops(victim: &Victim) {
    let mut before = bytes_read(victim);
    let begun = Instant::now();
    loop {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let now = bytes_read(victim);
        // Rescans of the roots continue and read a little.
        let has_stopped = now < before + (1 << 20);
        before = now;
        if has_stopped {
            break;
        }
    }
    let took = begun.elapsed();
    println!(
        "{} MiB of {} were read; reading stopped in {took:?}",
        before >> 20,
        HUGE >> 20
    );
    assert!(before < HUGE / 2, "{before} of {HUGE} bytes");
}

#[tokio::test]
async fn a_read_stops_at_its_deadline_and_when_its_caller_leaves() {
    let (_fixture, victim) = Victim::with_tree(
        &format!("skill root/a\nsparse {HUGE} root/a/huge\nfile root/a/small\n| small"),
        "max_file_bytes: 16GiB, max_reads_per_root: 1",
    )
    .await;
    let huge = read_request(&root(), "skill://r/a", "skill://r/a/huge");
    let small = read_request(&root(), "skill://r/a", "skill://r/a/small");

    // A raw client enforces no deadline of its own, so the status comes from the daemon.
    let stream = tokio::net::TcpStream::connect(victim.address)
        .await
        .expect("a connection");
    let (mut client, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
    tokio::spawn(connection);
    let request =
        http::Request::post("http://caproot.test/caproot.v1.CapabilityService/ReadResource")
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .header("grpc-timeout", "500m")
            .body(())
            .expect("a request");
    let (answer, mut sending) = client
        .send_request(request, false)
        .expect("the request is sent");
    let message = huge.encode_to_vec();
    let len = u32::try_from(message.len()).expect("short").to_be_bytes();
    let message = [&[0][..], &len, &message].concat();
    sending
        .send_data(Bytes::from(message), true)
        .expect("the request is sent");
    let answer = in_time(answer).await.expect("an answer");
    let status = tonic::Status::from_header_map(answer.headers()).expect("a status");
    assert_eq!(status.code(), Code::DeadlineExceeded);
    let refused = crate::harness::rpc_error(&status);
    assert_eq!(refused.reason, "DEADLINE_EXCEEDED");
    wait_until_reading_stops(&victim).await;

    // The only read permit of the root is free again.
    let read = victim.good.read(small.clone()).await.expect("a file");
    assert_eq!(bytes_of(&read), b"small\n");

    // The caller goes away.
    let before = bytes_read(&victim);
    let mut gone = victim.good.client.clone();
    let call = tokio::spawn(async move { gone.read_resource(huge).await.map(drop) });
    poll_until("the file is being read", || {
        bytes_read(&victim) > before + (8 << 20)
    })
    .await;
    call.abort();
    let read = victim.good.read(small).await.expect("a file");
    assert_eq!(bytes_of(&read), b"small\n");
    wait_until_reading_stops(&victim).await;
    victim.stop().await;
}

#[tokio::test]
async fn digests_of_a_file_list_stop_when_the_caller_leaves() {
    let (_fixture, victim) = Victim::with_tree(
        &format!("skill root/a\nsparse {HUGE} root/a/huge"),
        "max_file_bytes: 16GiB",
    )
    .await;
    let request = ListResourcesRequest {
        include_digests: true,
        ..files_request(&root(), "skill://r/a")
    };
    let before = bytes_read(&victim);
    let mut client = victim.good.client.clone();
    let call = tokio::spawn(async move { client.list_resources(request).await.map(drop) });
    poll_until("the file is being read", || {
        bytes_read(&victim) > before + (8 << 20)
    })
    .await;
    call.abort();
    wait_until_reading_stops(&victim).await;
    victim.stop().await;
}
