//! Reads with the mode `hide`: only approved bytes are sent.

use std::fs;

use caproot_core::proto::caproot::v1::{ListResourcesRequest, ReadResourceRequest, RemovalReason};
use tonic::Code;

use super::{LockedDaemon, TREE};
use crate::harness::fixture::Fixture;
use crate::harness::replica::Replica;
use crate::harness::shared_mapping::SharedMapping;
use crate::harness::watch_harness::watch_request;
use crate::harness::{
    assert_rpc_error, bytes_of, content_digest, files_request, published, read_request,
};

fn read(resource: &str) -> ReadResourceRequest {
    read_request(&published("r"), "skill://r/pdf", resource)
}

#[tokio::test]
async fn only_approved_files_are_listed_and_readable() {
    let locked = LockedDaemon::start(TREE, "hide").await;
    let text = locked
        .daemon
        .read_all(read("skill://r/pdf/references/steps.md"))
        .await;
    assert_eq!(text.expect("an approved file"), b"One.\n");

    // The state may not have changed yet when the file is read.
    locked.fixture.write("r/pdf/new.md", "new");
    let refused = locked.daemon.read(read("skill://r/pdf/new.md")).await;
    let refused = refused.expect_err("no approved file");
    assert_eq!(refused.code(), Code::NotFound);
    let files = files_request(&published("r"), "skill://r/pdf");
    if let Ok(list) = locked.daemon.list_resources(files).await {
        assert!(
            list.resources
                .iter()
                .all(|file| !file.resource.ends_with("new.md"))
        );
    }

    locked.wait_for_list(|list| list.skills.len() == 1).await;
    let refused = locked.daemon.read(read("skill://r/pdf/SKILL.md")).await;
    assert_rpc_error(refused, Code::NotFound, "PACKAGE_NOT_FOUND", None);
    locked.daemon.stop().await;
}

#[tokio::test]
async fn a_write_without_an_event_is_refused_and_then_hides_the_skill() {
    for len in [100, 300_000] {
        let tree = format!("{TREE}\nfile r/pdf/data\n| \\{{{len}*g}}\\");
        let fixture = Fixture::new(&tree);
        let good = vec![b'g'; len];
        let mut evil = good.clone();
        evil[len / 2] = b'e';

        // The first write sets the times. The later ones need not.
        let mut mapping = SharedMapping::new(&fixture.path("r/pdf/data"));
        mapping.write(&evil);
        mapping.write(&good);
        let locked = LockedDaemon::start_with(fixture, "hide").await;
        let mut replica =
            Replica::synced(&locked.daemon, watch_request(vec![published("r")])).await;
        let request = read("skill://r/pdf/data");
        let text = locked.daemon.read_all(request.clone()).await;
        assert_eq!(text.expect("the approved bytes"), good);
        let cursor = locked.daemon.read(ReadResourceRequest {
            max_bytes: 64,
            ..request.clone()
        });
        let cursor = cursor.await.expect("a page").next_cursor;

        mapping.write(&evil);
        let refused = locked.daemon.read_all(request.clone()).await;
        let refused = assert_rpc_error(refused, Code::FailedPrecondition, "NOT_APPROVED", None);
        assert_eq!(
            refused.metadata.get("approved_digest"),
            Some(&content_digest(&good))
        );
        assert_eq!(refused.metadata.get("digest"), Some(&content_digest(&evil)));

        let change = replica.next_change().await;
        assert_eq!(
            change.removed,
            [("skill://r/pdf".to_owned(), RemovalReason::NotApproved)]
        );

        // A cursor does not depend on the times of the file.
        mapping.write(&good);
        locked.fixture.write("r/pdf/other", "");
        fs::remove_file(locked.fixture.path("r/pdf/other")).expect("removed");
        locked.wait_for_list(|list| list.skills.len() == 2).await;
        let next = locked
            .daemon
            .read(ReadResourceRequest { cursor, ..request });
        let next = next.await.expect("the next page");
        let read = bytes_of(&next);
        assert_eq!(read, good[64..64 + read.len()]);
        locked.daemon.stop().await;
    }
}

#[tokio::test]
async fn a_list_of_files_states_the_approved_file_and_looks_again() {
    let fixture = Fixture::new(&format!("{TREE}\nfile r/pdf/data\n| good\\"));
    // The first write sets the times. The later ones need not.
    let mut mapping = SharedMapping::new(&fixture.path("r/pdf/data"));
    mapping.write(b"evil");
    mapping.write(b"good");
    let locked = LockedDaemon::start_with(fixture, "hide").await;
    let mut replica = Replica::synced(&locked.daemon, watch_request(vec![published("r")])).await;

    mapping.write(b"evil");
    let request = ListResourcesRequest {
        include_digests: true,
        ..files_request(&published("r"), "skill://r/pdf")
    };
    let files = locked.daemon.list_resources(request).await.expect("a list");
    let data = files
        .resources
        .iter()
        .find(|f| f.resource.ends_with("/data"));
    let data = data.expect("an approved file");
    assert_eq!(
        (&data.digest, data.size_bytes),
        (&content_digest(b"good"), 4)
    );
    let change = replica.next_change().await;
    assert_eq!(
        change.removed,
        [("skill://r/pdf".to_owned(), RemovalReason::NotApproved)]
    );
    locked.daemon.stop().await;
}

#[tokio::test]
async fn pages_of_all_sizes_are_the_approved_bytes() {
    let content: Vec<u8> = (0..70_000_u32).flat_map(u32::to_le_bytes).collect();
    let fixture = Fixture::new(TREE);
    fixture.write("r/pdf/data", &content);
    fixture.write("r/pdf/empty", "");
    fixture.write("r/pdf/text", "é".repeat(40_000));
    let locked = LockedDaemon::start_with(fixture, "hide").await;
    for max_bytes in [5, 100, 8_192, 16_384, 16_385, 100_000, 1 << 20] {
        let request = |resource: &str| ReadResourceRequest {
            max_bytes,
            ..read(resource)
        };
        let whole = max_bytes > 1_000;
        if whole {
            let data = locked.daemon.read_all(request("skill://r/pdf/data")).await;
            assert!(data.expect("the file") == content, "{max_bytes}");
            let text = locked.daemon.read_all(request("skill://r/pdf/text")).await;
            assert!(
                text.expect("the file") == "é".repeat(40_000).as_bytes(),
                "{max_bytes}"
            );
        }
        let empty = locked.daemon.read_all(request("skill://r/pdf/empty")).await;
        assert_eq!(empty.expect("the file"), b"", "{max_bytes}");
        let page = locked
            .daemon
            .read(request("skill://r/pdf/data"))
            .await
            .expect("a page");
        let read = bytes_of(&page);
        assert_eq!(read, content[..read.len()], "{max_bytes}");
        assert_eq!(page.digest, content_digest(&content));
        let known = ReadResourceRequest {
            if_none_match: page.digest.clone(),
            ..request("skill://r/pdf/data")
        };
        assert!(
            locked
                .daemon
                .read(known)
                .await
                .expect("a response")
                .not_modified
        );
    }
    locked.daemon.stop().await;
}
