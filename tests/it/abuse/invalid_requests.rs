//! Requests that are too large, malformed or forged.

use std::time::Duration;

use bytes::Bytes;
use caproot_core::proto::caproot::v1::{
    GetExecutorRequest, ListResourcesRequest, ListSkillsRequest, ReadResourceRequest,
};
use futures_util::future::join_all;
use tonic::{Code, Request};

use super::{Victim, root};
use crate::harness::{assert_rpc_error, files_request, in_time, list_request, read_request};

/// Sends a request body with a library that does not check it. Returns the gRPC status.
async fn send_body(victim: &Victim, path: &str, body: Vec<u8>) -> Option<Code> {
    let stream = tokio::net::TcpStream::connect(victim.address)
        .await
        .expect("a connection");
    let (mut client, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
    let connection = tokio::spawn(connection);
    let request = http::Request::post(format!("http://caproot.test{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())
        .expect("a request");
    let (answer, mut sending) = client
        .send_request(request, false)
        .expect("the request is sent");
    sending
        .send_data(Bytes::from(body), false)
        .expect("the request is sent");
    let mut answer = in_time(answer).await.expect("an answer");
    let mut status = answer.headers().get("grpc-status").cloned();
    if status.is_none() {
        status = in_time(answer.body_mut().trailers())
            .await
            .ok()?
            .and_then(|mut t| t.remove("grpc-status"));
    }
    drop((client, sending));
    connection.abort();
    status.map(|status| Code::from_bytes(status.as_bytes()))
}

/// Frames `sent` as a gRPC message that declares `len` bytes.
fn frame_message(len: u32, sent: &[u8]) -> Vec<u8> {
    [&[0][..], &len.to_be_bytes(), sent].concat()
}

#[tokio::test]
async fn too_much_metadata_and_a_malformed_timeout_are_errors() {
    let (_fixture, victim) = Victim::with_tree("skill root/a", "").await;
    let mut client = victim.good.client.clone();
    let mut call = async |name: &'static str, value: String| {
        let mut request = Request::new(GetExecutorRequest {});
        let value = value.parse().expect("a header's value");
        request.metadata_mut().insert(name, value);
        in_time(client.get_executor(request)).await
    };
    assert!(call("x-long", "x".repeat(15_000)).await.is_ok());
    let refused = call("x-long", "x".repeat(20_000))
        .await
        .expect_err("too long");
    assert_eq!(refused.code(), Code::ResourceExhausted);
    let message = refused.message();
    assert!(
        message.contains("the limit is 16384; send less metadata"),
        "{message}"
    );
    // The library of HTTP/2 answers a larger request with an HTTP status.
    assert!(call("x-long", "x".repeat(100_000)).await.is_err());

    for timeout in ["5", "5s", "five", "1.5S", "123456789S"] {
        let refused = call("grpc-timeout", timeout.to_owned()).await;
        let refused = refused.expect_err("no timeout");
        let message = refused.message().to_owned();
        assert!(message.contains("such as `5S` for 5 seconds"), "{message}");
        let field = Some("grpc-timeout");
        let refused = Err::<(), _>(refused);
        assert_rpc_error(refused, Code::InvalidArgument, "INVALID_ARGUMENT", field);
    }
    assert!(call("grpc-timeout", "30S".to_owned()).await.is_ok());
    victim.stop().await;
}

#[tokio::test]
async fn wrong_sizes_and_broken_messages_are_rejected() {
    let (_fixture, victim) = Victim::with_tree("skill root/a", "").await;
    // All methods run at once, because the daemon waits a moment for the rest of each request.
    let methods = [
        "ListSkills",
        "WatchSkills",
        "ReadResource",
        "ResolveRoots",
        "GetExecutor",
    ];
    let calls = methods.into_iter().map(|method| {
        let victim = &victim;
        async move {
            let path = format!("/caproot.v1.CapabilityService/{method}");
            let sizes = [1 << 30, u32::MAX, 2 << 20].map(|len| frame_message(len, &[0; 100]));
            let broken = [&[0xff; 64][..], &[0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f]];
            let broken = broken.map(|bytes| {
                frame_message(u32::try_from(bytes.len()).expect("a short message"), bytes)
            });
            // The message is flagged as compressed, but the request names no encoding.
            let compressed = [&[1][..], &4_u32.to_be_bytes(), &[0; 4]].concat();
            let statuses = async |bodies: Vec<Vec<u8>>| {
                join_all(
                    bodies
                        .into_iter()
                        .map(|body| send_body(victim, &path, body)),
                )
                .await
            };
            let (sizes, broken, compressed) = tokio::join!(
                statuses(sizes.into()),
                statuses(broken.into()),
                statuses(vec![compressed])
            );
            assert_eq!(sizes, [Some(Code::OutOfRange); 3], "{method}");
            assert_eq!(broken, [Some(Code::Internal); 2], "{method}");
            let is_refused = matches!(compressed[0], Some(Code::Internal | Code::Unimplemented));
            assert!(is_refused, "{method}: {compressed:?}");
        }
    });
    join_all(calls).await;
    victim.assert_served().await;
    victim.assert_unharmed("declared sizes").await;
    victim.stop().await;
}

#[tokio::test]
async fn too_large_headers_are_rejected() {
    let (_fixture, victim) = Victim::with_tree("skill root/a", "").await;
    let stream = tokio::net::TcpStream::connect(victim.address)
        .await
        .expect("a connection");
    let (mut client, connection) = h2::client::handshake(stream).await.expect("HTTP/2");
    tokio::spawn(connection);
    for (bytes, status) in [
        (15 << 10, 200),
        (17 << 10, 200),
        (100 << 10, 431),
        (15 << 10, 200),
    ] {
        let request = http::Request::post("http://caproot.test/caproot.v1.CapabilityService/No")
            .header("content-type", "application/grpc")
            .header("x-large", "x".repeat(bytes))
            .body(())
            .expect("a request");
        let (answer, _) = client
            .send_request(request, true)
            .expect("the request is sent");
        assert_eq!(
            in_time(answer).await.expect("an answer").status(),
            status,
            "{bytes}"
        );
    }
    drop(client);
    victim.stop().await;
}

#[tokio::test]
async fn huge_forged_tokens_are_rejected() {
    let (_fixture, victim) = Victim::with_tree("skill root/a", "").await;
    let list = list_request(&[root()]);
    let read = read_request(&root(), "skill://r/a", "");
    let files = files_request(&root(), "skill://r/a");
    for (size, code) in [
        (1 << 20, Code::InvalidArgument),
        (2 << 20, Code::OutOfRange),
    ] {
        for letter in ["A", "_", "%", "\u{1f600}"] {
            let text = letter.repeat(size / letter.len());
            let page_token = text.clone();
            let request = ListSkillsRequest {
                page_token,
                ..list.clone()
            };
            let answer = victim.good.try_list(request).await;
            assert_eq!(
                answer.expect_err("forged").code(),
                code,
                "page token of {letter}"
            );
            let request = ReadResourceRequest {
                cursor: text.clone(),
                ..read.clone()
            };
            let answer = victim.good.read(request).await;
            assert_eq!(
                answer.expect_err("forged").code(),
                code,
                "cursor of {letter}"
            );
            let request = ListResourcesRequest {
                page_token: text,
                ..files.clone()
            };
            let answer = victim.good.list_resources(request).await;
            assert_eq!(
                answer.expect_err("forged").code(),
                code,
                "page token of {letter}"
            );
        }
    }
    victim.assert_unharmed("forged texts").await;
    victim.stop().await;
}

#[tokio::test]
async fn the_maximum_number_of_roots_fits_a_request() {
    let (fixture, victim) =
        Victim::with_tree("skill root/a", "max_roots: 4096, max_cached_roots: 4096").await;
    // Each id, environment and path has the maximum length.
    let name = |n: usize| format!("{n:0>256}");
    let path = fixture.path("root").join("x/".repeat(2_000));
    let mut longest = crate::harness::selected("", &path);
    let location = longest.location.as_mut().expect("a location");
    location.environment_id = "e".repeat(256);
    location
        .path
        .push_str(&"x".repeat(4_095 - location.path.len()));
    let roots: Vec<_> = (0..4_096)
        .map(
            |n| caproot_core::proto::caproot::v1::SelectedCapabilityRoot {
                id: name(n),
                ..longest.clone()
            },
        )
        .collect();
    let list = tokio::time::timeout(
        Duration::from_mins(1),
        victim.good.try_list(list_request(&roots)),
    );
    let list = list.await.expect("no hang").expect("a list");
    assert_eq!(list.roots.len(), 4_096);
    victim.stop().await;
}
