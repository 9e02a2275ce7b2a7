//! Pages of files that do not change: the joined pages are the file, for any content.

use std::fs;

use caproot::daemon::catalog::OpenMethod;
use caproot_core::proto::caproot::v1::read_resource_response::Body;
use caproot_core::proto::caproot::v1::{ReadResourceRequest, ReadResourceResponse};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tonic::Code;

use crate::harness::fixture::Fixture;
use crate::harness::{
    Daemon, Setup, assert_rpc_error, by_both_openers, bytes_of, content_digest, read_request,
    selected,
};

by_both_openers! {
    async fn pages_are_full_up_to_a_character_boundary;
    async fn an_empty_file_is_one_empty_page;
    async fn the_size_of_a_page_is_limited;
    async fn list_and_read_agree_on_digest_and_size;
    async fn a_matching_digest_saves_the_body;
    async fn cursors_of_other_files_are_rejected;
}

by_both_openers! {
    fn pages_joined_are_the_file;
}

const PACKAGE: &str = "skill://r/a";
const RESOURCE: &str = "skill://r/a/x";

/// Daemon that serves the file `x` of the package `a`, and a request for that file.
async fn serve_file(opener: OpenMethod, content: &[u8]) -> (Fixture, Daemon, ReadResourceRequest) {
    let (fixture, daemon, root) = Setup::default()
        .with_opener(opener)
        .serve("skill root/a")
        .await;
    fixture.write("root/a/x", content);
    (fixture, daemon, read_request(&root, PACKAGE, RESOURCE))
}

/// Text and binary content, often with multi-byte characters.
fn contents() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        any::<String>().prop_map(String::into_bytes),
        "[a\u{e9}\u{20ac}\u{1f600}]{0,400}".prop_map(String::into_bytes),
        proptest::collection::vec(any::<u8>(), 0..2_000),
        // Text with an incomplete character at the end: the whole file must be valid UTF-8.
        "[a\u{20ac}]{0,200}".prop_map(|text| [text.as_bytes(), b"\xe2\x82"].concat()),
    ]
}

fn pages_joined_are_the_file(opener: OpenMethod) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (fixture, daemon, request) = runtime.block_on(serve_file(opener, b""));
    let config = Config {
        cases: 96,
        failure_persistence: None,
        ..Config::default()
    };
    let sizes = prop_oneof![4_i64..64, 4_i64..3_000, Just(0)];
    TestRunner::new(config)
        .run(&(contents(), sizes), |(content, max_bytes)| {
            fixture.replace("root/a/x", &content);
            let request = ReadResourceRequest {
                max_bytes,
                ..request.clone()
            };
            let first = runtime
                .block_on(daemon.read(request.clone()))
                .expect("a page");
            prop_assert_eq!(first.digest, content_digest(&content));
            let text = std::str::from_utf8(&content).is_ok();
            prop_assert_eq!(matches!(first.body, Some(Body::Contents(_))), text);
            // gRPC would not transmit a page of text that is cut inside a character.
            let all = runtime
                .block_on(daemon.read_all(request))
                .expect("all pages");
            prop_assert_eq!(all, content);
            Ok(())
        })
        .expect("pages joined are the file");
    runtime.block_on(daemon.stop());
}

async fn pages_are_full_up_to_a_character_boundary(opener: OpenMethod) {
    let (_fixture, daemon, request) =
        serve_file(opener, "a\u{1f600}\u{1f600}\u{20ac}b".as_bytes()).await;
    let mut pages = Vec::new();
    let mut cursor = String::new();
    loop {
        let request = ReadResourceRequest {
            max_bytes: 6,
            cursor,
            ..request.clone()
        };
        let page = daemon.read(request).await.expect("a page");
        let Some(Body::Contents(text)) = page.body else {
            panic!("text: {page:?}")
        };
        pages.push(text);
        cursor = page.next_cursor;
        if cursor.is_empty() {
            break;
        }
    }
    assert_eq!(pages, ["a\u{1f600}", "\u{1f600}", "\u{20ac}b"]);
    daemon.stop().await;
}

async fn an_empty_file_is_one_empty_page(opener: OpenMethod) {
    let (_fixture, daemon, request) = serve_file(opener, b"").await;
    let page = daemon.read(request.clone()).await.expect("a page");
    let expected = ReadResourceResponse {
        resource: RESOURCE.into(),
        body: Some(Body::Contents(String::new())),
        digest: content_digest(b""),
        media_type: page.media_type.clone(),
        epoch: page.epoch.clone(),
        revision: page.revision,
        ..Default::default()
    };
    assert_eq!(page, expected);
    // An empty frame in each response would end the connection: `h2` accepts 100 of them.
    for _ in 0..200 {
        assert_eq!(
            daemon.read(request.clone()).await.expect("a page"),
            expected
        );
    }
    daemon.stop().await;
}

async fn the_size_of_a_page_is_limited(opener: OpenMethod) {
    let content = vec![b'x'; (2 << 20) + 5];
    let (_fixture, daemon, request) = serve_file(opener, &content).await;
    for (max_bytes, page) in [(0, 8_192), (4, 4), (1 << 20, 1 << 20), (i64::MAX, 1 << 20)] {
        let answer = daemon
            .read(ReadResourceRequest {
                max_bytes,
                ..request.clone()
            })
            .await;
        let answer = answer.expect("a page");
        assert_eq!(bytes_of(&answer).len(), page, "max_bytes {max_bytes}");
        assert_eq!(answer.total_bytes, content.len() as u64);
        assert!(answer.truncated && !answer.not_modified);
    }
    let all = daemon
        .read_all(ReadResourceRequest {
            max_bytes: 1 << 20,
            ..request
        })
        .await;
    assert!(all.expect("all pages") == content, "2 MiB in three pages");
    daemon.stop().await;
}

async fn list_and_read_agree_on_digest_and_size(opener: OpenMethod) {
    let (fixture, daemon, request) = serve_file(opener, b"x").await;
    let main = fs::read(fixture.path("root/a/SKILL.md")).expect("on disk");
    let listed = daemon
        .list(&[request.root.clone().expect("set")])
        .await
        .skills
        .remove(0);
    assert_eq!(
        (listed.digest.clone(), listed.size_bytes),
        (content_digest(&main), main.len() as u64)
    );
    let by_default = ReadResourceRequest {
        resource: String::new(),
        ..request.clone()
    };
    let by_default = daemon.read(by_default).await.expect("the main resource");
    let by_name = ReadResourceRequest {
        resource: listed.main_resource.clone(),
        ..request
    };
    let by_name = daemon.read(by_name).await.expect("the main resource");
    assert_eq!(by_default, by_name);
    assert_eq!(
        (by_name.resource, by_name.digest),
        (listed.main_resource, listed.digest)
    );
    assert_eq!(by_name.media_type, "text/markdown");
    daemon.stop().await;
}

async fn a_matching_digest_saves_the_body(opener: OpenMethod) {
    let (fixture, daemon, request) = serve_file(opener, b"one").await;
    let if_none_match = |digest: &str| ReadResourceRequest {
        if_none_match: digest.into(),
        ..request.clone()
    };
    let same = daemon
        .read(if_none_match(&content_digest(b"one")))
        .await
        .expect("not modified");
    assert!(same.not_modified && same.body.is_none() && same.next_cursor.is_empty());
    assert_eq!((same.digest, same.total_bytes), (content_digest(b"one"), 3));
    for other in [
        content_digest(b"two"),
        "garbage".to_owned(),
        "sha256:".to_owned(),
    ] {
        let page = daemon.read(if_none_match(&other)).await.expect("a page");
        assert!(!page.not_modified);
        assert_eq!(bytes_of(&page), b"one");
    }
    fixture.replace("root/a/x", "two");
    let page = daemon
        .read(if_none_match(&content_digest(b"one")))
        .await
        .expect("a page");
    assert_eq!(
        (bytes_of(&page), page.not_modified),
        (b"two".to_vec(), false)
    );
    daemon.stop().await;
}

async fn cursors_of_other_files_are_rejected(opener: OpenMethod) {
    let (fixture, daemon, request) = serve_file(opener, &[b'x'; 100]).await;
    fixture.write("root/a/y", [b'x'; 100]);
    let request = ReadResourceRequest {
        max_bytes: 10,
        ..request
    };
    let cursor = daemon
        .read(request.clone())
        .await
        .expect("a page")
        .next_cursor;
    let with = |cursor: &str| ReadResourceRequest {
        cursor: cursor.into(),
        ..request.clone()
    };

    let mut bad = vec![format!("{cursor}A"), format!(" {cursor}"), cursor.repeat(2)];
    for at in 0..cursor.len() {
        bad.push(cursor[..at].to_owned());
        for bit in 0..7 {
            let mut flipped = cursor.clone().into_bytes();
            flipped[at] ^= 1 << bit;
            bad.extend(String::from_utf8(flipped));
        }
    }
    bad.retain(|text| !text.is_empty());
    for text in bad {
        // A well-formed changed cursor names a version that the file never had.
        let refused = crate::harness::rpc_error(
            &daemon
                .read(with(&text))
                .await
                .expect_err("a changed cursor"),
        );
        let expected = [
            (Code::InvalidArgument, "INVALID_ARGUMENT"),
            (Code::Aborted, "RESOURCE_CHANGED"),
        ];
        assert!(
            expected.contains(&(refused.code, &refused.reason)),
            "{text}: {refused:?}"
        );
    }

    let other = ReadResourceRequest {
        resource: "skill://r/a/y".into(),
        ..with(&cursor)
    };
    let answer = daemon.read(other).await;
    assert_rpc_error(
        answer,
        Code::InvalidArgument,
        "INVALID_ARGUMENT",
        Some("cursor"),
    );
    let root = selected("s", fixture.path("root"));
    let other = ReadResourceRequest {
        max_bytes: 10,
        cursor: cursor.clone(),
        ..read_request(&root, "skill://s/a", "skill://s/a/x")
    };
    let answer = daemon.read(other).await;
    assert_rpc_error(
        answer,
        Code::InvalidArgument,
        "INVALID_ARGUMENT",
        Some("cursor"),
    );
    assert_eq!(
        bytes_of(
            &daemon
                .read(with(&cursor))
                .await
                .expect("the original cursor")
        ),
        [b'x'; 10]
    );
    daemon.stop().await;
}
