//! Reads of files that change: pages of different versions are never mixed, and cursors outlive the
//! daemon.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use caproot::daemon::catalog::OpenMethod;
use caproot_core::proto::caproot::v1::{Consistency, ReadResourceRequest};
use tonic::Code;

use crate::harness::content_digest;
use crate::harness::fixture::Fixture;
use crate::harness::shared_mapping::SharedMapping;
use crate::harness::{
    Daemon, Setup, assert_rpc_error, by_both_openers, bytes_of, read_request, rpc_error,
};

by_both_openers! {
    async fn an_edit_between_pages_is_reported_with_the_new_digest;
    async fn a_file_removed_between_pages_is_not_found;
    async fn a_file_that_is_replaced_by_another_type_is_not_read;
    async fn a_removed_package_is_not_found_by_a_fresh_read;
    async fn a_cursor_outlives_the_daemon;
    async fn a_cursor_gives_no_access_to_a_disallowed_root;
    async fn a_read_during_rewrites_is_one_version_or_an_error;
    async fn a_write_through_a_mapping_changes_the_digest_of_a_read;
    async fn a_noticed_write_through_a_mapping_ends_the_old_version;
}

/// Daemon with a package `a` that has a file of 100 bytes, and a request for the first 10 bytes.
async fn serve_hundred_bytes(opener: OpenMethod) -> (Fixture, Daemon, ReadResourceRequest) {
    let tree = "skill root/a\nfile root/a/x\n| \\{100*o}\\";
    let (fixture, daemon, root) = Setup::default().with_opener(opener).serve(tree).await;
    let request = read_request(&root, "skill://r/a", "skill://r/a/x");
    (
        fixture,
        daemon,
        ReadResourceRequest {
            max_bytes: 10,
            ..request
        },
    )
}

async fn an_edit_between_pages_is_reported_with_the_new_digest(opener: OpenMethod) {
    let (fixture, daemon, request) = serve_hundred_bytes(opener).await;
    let in_place = "n".repeat(100);
    let edits: [(&str, &dyn Fn()); 3] = [
        (&in_place, &|| fixture.write("root/a/x", &in_place)),
        ("no longer as long", &|| {
            fixture.replace("root/a/x", "no longer as long");
        }),
        ("grown again, in place", &|| {
            fixture.write("root/a/x", "grown again, in place");
        }),
    ];
    for (content, edit) in edits {
        let cursor = daemon
            .read(request.clone())
            .await
            .expect("a page")
            .next_cursor;
        edit();
        let next = ReadResourceRequest {
            cursor,
            ..request.clone()
        };
        let refused = assert_rpc_error(
            daemon.read(next).await,
            Code::Aborted,
            "RESOURCE_CHANGED",
            None,
        );
        assert_eq!(
            refused.metadata.get("digest"),
            Some(&content_digest(content.as_bytes()))
        );
        assert_eq!(
            refused.metadata.get("root_id").map(String::as_str),
            Some("r")
        );
        let again = daemon
            .read_all(request.clone())
            .await
            .expect("from the start");
        assert_eq!(again, content.as_bytes());
    }
    daemon.stop().await;
}

/// Times of a file, in nanoseconds.
fn file_times(path: &Path) -> (i64, i64) {
    let now = fs::metadata(path).expect("the file");
    (now.mtime_nsec(), now.ctime_nsec())
}

async fn a_write_through_a_mapping_changes_the_digest_of_a_read(opener: OpenMethod) {
    let (fixture, daemon, request) = serve_hundred_bytes(opener).await;
    let file = fixture.path("root/a/x");
    let mut mapping = SharedMapping::new(&file);
    let request = ReadResourceRequest {
        max_bytes: 1 << 10,
        ..request
    };
    let (mut unreported, mut times) = (0, (0, 0));
    for round in 0..30 {
        // The first write to a page changes the times, and later writes do not.
        let content = format!("{round:0100}");
        mapping.write(content.as_bytes());
        let page = daemon.read(request.clone()).await.expect("the file");
        assert_eq!(bytes_of(&page), content.as_bytes());
        assert_eq!(
            page.digest,
            content_digest(content.as_bytes()),
            "round {round}"
        );
        let before = std::mem::replace(&mut times, file_times(&file));
        unreported += u32::from(before == times);
    }
    assert!(unreported > 0, "each write changed the times");
    // Text that becomes binary is no text any more.
    mapping.write(&[0xff; 100]);
    let page = daemon.read(request).await.expect("the file");
    assert_eq!(
        (bytes_of(&page), page.digest),
        (vec![0xff; 100], content_digest(&[0xff; 100]))
    );
    daemon.stop().await;
}

async fn a_noticed_write_through_a_mapping_ends_the_old_version(opener: OpenMethod) {
    let (fixture, daemon, first_page) = serve_hundred_bytes(opener).await;
    let mut mapping = SharedMapping::new(&fixture.path("root/a/x"));
    let whole = ReadResourceRequest {
        max_bytes: 1 << 10,
        ..first_page.clone()
    };
    let (mut old, mut new) = ([b'0'; 100], [b'1'; 100]);
    for _ in 0..10 {
        mapping.write(&old);
        let old_digest = daemon.read(whole.clone()).await.expect("the file").digest;
        let first = daemon.read(first_page.clone()).await.expect("a page");
        assert_eq!(first.digest, old_digest);
        mapping.write(&new);
        let noticed = daemon.read(whole.clone()).await.expect("the file");
        assert_eq!(noticed.digest, content_digest(&new));

        let next = ReadResourceRequest {
            cursor: first.next_cursor,
            ..first_page.clone()
        };
        let refused = assert_rpc_error(
            daemon.read(next).await,
            Code::Aborted,
            "RESOURCE_CHANGED",
            None,
        );
        assert_eq!(refused.metadata.get("digest"), Some(&content_digest(&new)));
        let conditional = ReadResourceRequest {
            if_none_match: old_digest,
            ..whole.clone()
        };
        let again = daemon.read(conditional).await.expect("the file");
        assert_eq!(
            (again.not_modified, bytes_of(&again)),
            (false, new.to_vec())
        );
        std::mem::swap(&mut old, &mut new);
    }
    daemon.stop().await;
}

async fn a_file_removed_between_pages_is_not_found(opener: OpenMethod) {
    let (fixture, daemon, request) = serve_hundred_bytes(opener).await;
    let cursor = daemon
        .read(request.clone())
        .await
        .expect("a page")
        .next_cursor;
    fs::remove_file(fixture.path("root/a/x")).expect("remove");
    let answer = daemon.read(ReadResourceRequest { cursor, ..request }).await;
    assert_rpc_error(answer, Code::NotFound, "RESOURCE_NOT_FOUND", None);
    daemon.stop().await;
}

async fn a_file_that_is_replaced_by_another_type_is_not_read(opener: OpenMethod) {
    let (mut fixture, daemon, request) = serve_hundred_bytes(opener).await;
    daemon.read(request.clone()).await.expect("a page");
    for entry in ["fifo root/a/x", "dir root/a/x", "link root/a/x -> .env"] {
        let path = fixture.path("root/a/x");
        if path.is_dir() {
            fs::remove_dir(&path).expect("remove");
        } else {
            fs::remove_file(&path).expect("remove");
        }
        fixture.add(entry);
        let answer = daemon.read(request.clone()).await;
        assert_rpc_error(answer, Code::NotFound, "RESOURCE_NOT_FOUND", None);
    }
    fs::remove_file(fixture.path("root/a/x")).expect("remove");
    fixture.add("link root/a/x -> /etc/passwd");
    let answer = daemon.read(request).await;
    assert_rpc_error(answer, Code::PermissionDenied, "OUTSIDE_ROOT", None);
    daemon.stop().await;
}

async fn a_removed_package_is_not_found_by_a_fresh_read(opener: OpenMethod) {
    let (fixture, daemon, request) = serve_hundred_bytes(opener).await;
    daemon.read(request.clone()).await.expect("a page");
    fs::remove_file(fixture.path("root/a/SKILL.md")).expect("remove");
    let fresh = ReadResourceRequest {
        consistency: Consistency::Fresh.into(),
        ..request.clone()
    };
    let answer = daemon.read(fresh).await;
    assert_rpc_error(answer, Code::NotFound, "PACKAGE_NOT_FOUND", None);
    daemon.stop().await;
}

async fn a_cursor_outlives_the_daemon(opener: OpenMethod) {
    let (fixture, daemon, request) = serve_hundred_bytes(opener).await;
    let first = daemon.read(request.clone()).await.expect("a page");
    daemon.stop().await;
    let daemon = Daemon::start(Setup::allowing([fixture.path("root")]).with_opener(opener)).await;
    let next = ReadResourceRequest {
        cursor: first.next_cursor.clone(),
        ..request.clone()
    };
    let second = daemon.read(next.clone()).await.expect("the next page");
    assert_eq!(
        (bytes_of(&second), second.digest),
        (vec![b'o'; 10], first.digest)
    );
    assert_ne!(second.epoch, first.epoch, "another daemon");
    fixture.replace("root/a/x", "changed while no daemon ran");
    assert_rpc_error(
        daemon.read(next).await,
        Code::Aborted,
        "RESOURCE_CHANGED",
        None,
    );
    daemon.stop().await;
}

async fn a_cursor_gives_no_access_to_a_disallowed_root(opener: OpenMethod) {
    let (fixture, daemon, request) = serve_hundred_bytes(opener).await;
    let cursor = daemon
        .read(request.clone())
        .await
        .expect("a page")
        .next_cursor;
    daemon.stop().await;
    let mut fixture = fixture;
    fixture.add("dir elsewhere");
    let daemon =
        Daemon::start(Setup::allowing([fixture.path("elsewhere")]).with_opener(opener)).await;
    let answer = daemon.read(ReadResourceRequest { cursor, ..request }).await;
    assert_rpc_error(answer, Code::PermissionDenied, "ROOT_NOT_ALLOWED", None);
    daemon.stop().await;
}

/// The two versions differ in every byte and in length, so that any mix is detected.
async fn a_read_during_rewrites_is_one_version_or_an_error(opener: OpenMethod) {
    let (fixture, daemon, request) = serve_hundred_bytes(opener).await;
    let versions = [vec![b'a'; 40_000], vec![b'b'; 50_000]];
    fixture.replace("root/a/x", &versions[0]);
    let fixture = Arc::new(fixture);
    let done = Arc::new(AtomicBool::new(false));
    let writer = {
        let (fixture, done, versions) = (fixture.clone(), done.clone(), versions.clone());
        std::thread::spawn(move || {
            for version in versions.iter().cycle() {
                if done.load(Ordering::Relaxed) {
                    return;
                }
                fixture.replace("root/a/x", version);
                fixture.write("root/a/x", version);
            }
        })
    };
    let request = ReadResourceRequest {
        max_bytes: 1 << 20,
        ..request
    };
    for _ in 0..300 {
        match daemon.read(request.clone()).await {
            Ok(page) => {
                let bytes = bytes_of(&page);
                assert_eq!(
                    page.digest,
                    content_digest(&bytes),
                    "the digest matches the page"
                );
                assert_eq!(page.total_bytes, bytes.len() as u64);
                assert!(
                    versions.iter().any(|version| version.starts_with(&bytes)),
                    "no two versions in one answer"
                );
            }
            Err(status) => {
                let refused = rpc_error(&status);
                assert_eq!(
                    (refused.code, &*refused.reason),
                    (Code::Aborted, "RESOURCE_CHANGED")
                );
            }
        }
    }
    done.store(true, Ordering::Relaxed);
    writer.join().expect("the writer");
    let last = daemon
        .read(request.clone())
        .await
        .expect("the writer has ended");
    assert!(versions.contains(&bytes_of(&last)));
    daemon.stop().await;
}
