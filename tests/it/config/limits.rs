//! Limits of a config file: each limit is reported and enforced.

use std::time::{Duration, Instant};

use caproot_core::proto::caproot::v1::{DiagnosticCode, Limits};
use tonic::Code;

use super::read_file;
use crate::harness::fixture::Fixture;
use crate::harness::process::ConfiguredDaemon;
use crate::harness::{assert_rpc_error, list_request, packages, published};

/// Starts a daemon with the given limits. Returns the daemon and the limits that it reports.
async fn start_with_limits(fixture: &Fixture, limits: &str) -> (ConfiguredDaemon, Limits) {
    let config = format!("roots: [{{id: r, path: root}}]\nlimits: {{{limits}}}");
    let served = ConfiguredDaemon::start(fixture, &config).await;
    let limits = served.executor().await.limits.expect("limits");
    (served, limits)
}

/// Checks that a limit truncates a scan, and that the diagnostic names the limit.
async fn assert_truncated(limit: &str, reported: impl Fn(&Limits) -> u32, expected: &[&str]) {
    let fixture = Fixture::new("skill root/a\nskill root/a/b\nskill root/a/b/c\nskill root/z");
    let (served, limits) = start_with_limits(&fixture, &format!("{limit}: 2")).await;
    assert_eq!(reported(&limits), 2, "{limit}");
    let list = served.list(&[published("r")]).await;
    assert_eq!(packages(&list), expected, "{limit}");
    assert!(list.truncated && list.roots[0].truncated, "{limit}");
    let diagnostic = list
        .diagnostics
        .iter()
        .find(|d| d.code() == DiagnosticCode::LimitReached);
    let message = &diagnostic.expect("a diagnostic").message;
    assert!(message.starts_with(&format!("{limit} is 2:")), "{message}");
}

#[tokio::test]
async fn limits_of_a_scan_truncate_the_list() {
    let [a, b, z] = ["skill://r/a", "skill://r/a/b", "skill://r/z"];
    assert_truncated("max_depth", |l| l.max_depth, &[a, b, z]).await;
    assert_truncated("max_directories", |l| l.max_directories, &[a]).await;
    assert_truncated("max_entries", |l| l.max_entries, &[]).await;
    assert_truncated("max_skills", |l| l.max_skills, &[a, z]).await;
}

#[tokio::test]
async fn max_roots_limits_the_roots_of_a_request() {
    let fixture = Fixture::new("dir root");
    let (served, limits) = start_with_limits(&fixture, "max_roots: 2").await;
    assert_eq!(limits.max_roots, 2);
    let roots = ["a", "b", "c"].map(published);
    let answer = served.try_list(list_request(&roots)).await;
    let field = Some("selected_capability_roots");
    assert_rpc_error(answer, Code::InvalidArgument, "TOO_MANY_ROOTS", field);
    assert_eq!(served.list(&roots[..2]).await.roots.len(), 2);
}

#[tokio::test]
async fn max_file_bytes_limits_the_size_of_a_read_file() {
    let fixture = Fixture::new("skill root/a\nsparse 2048 root/a/fits\nsparse 2049 root/a/over");
    let (served, limits) = start_with_limits(&fixture, "max_file_bytes: 2KiB").await;
    assert_eq!(limits.max_file_bytes, 2_048);
    let answer = read_file(&served, "r", "skill://r/a", "fits").await;
    assert_eq!(answer.expect("a file").len(), 2_048);
    let answer = read_file(&served, "r", "skill://r/a", "over").await;
    assert_rpc_error(answer, Code::FailedPrecondition, "TOO_LARGE", None);
}

#[tokio::test]
async fn max_cached_roots_limits_the_remembered_roots() {
    let fixture = Fixture::new("skill root/a\nskill root/b");
    for (limits, rescanned) in [
        ("max_roots: 1, max_cached_roots: 1", true),
        ("max_roots: 1, max_cached_roots: 2", false),
    ] {
        let config = format!("allow: [root]\nlimits: {{{limits}}}");
        let served = ConfiguredDaemon::start(&fixture, &config).await;
        let reported = served
            .executor()
            .await
            .limits
            .expect("limits")
            .max_cached_roots;
        assert_eq!(reported, if rescanned { 1 } else { 2 });
        let [a, b] =
            ["a", "b"].map(|dir| crate::harness::selected(dir, fixture.path("root").join(dir)));
        served.list(std::slice::from_ref(&a)).await;
        let before = served.list(&[b]).await.revision;
        // Nothing changed, so only a root that was evicted makes a new revision.
        let after = served.list(&[a]).await.revision;
        assert_eq!(after > before, rescanned, "{limits}");
    }
}

#[tokio::test]
async fn limits_of_connections_and_calls_are_reported() {
    let fixture = Fixture::new("dir root");
    let given = "max_connections: 11, max_connections_per_caller: 12, max_streams_per_caller: 13, \
                 max_calls: 14, max_calls_per_caller: 15, max_roots: 1";
    // The tests in `abuse` check that these limits are enforced.
    let (_served, limits) = start_with_limits(&fixture, given).await;
    let connections = (limits.max_connections, limits.max_connections_per_caller);
    assert_eq!((connections, limits.max_streams_per_caller), ((11, 12), 13));
    assert_eq!((limits.max_calls, limits.max_calls_per_caller), (14, 15));
    assert_eq!(limits.max_request_bytes, (64 << 10) + (5 << 10));
}

#[tokio::test]
async fn max_reads_per_root_limits_concurrent_reads() {
    let fixture =
        Fixture::new("skill root/a\nsparse 600000000 root/a/large\nfile root/a/small\n| x");
    for (limit, waits) in [(1, true), (2, false)] {
        let (served, limits) = start_with_limits(
            &fixture,
            &format!("max_file_bytes: 8GiB, max_reads_per_root: {limit}"),
        )
        .await;
        assert_eq!(limits.max_reads_per_root, limit);
        served.list(&[published("r")]).await;
        // The digest of the large file takes far longer than anything else here.
        let large = async {
            read_file(&served, "r", "skill://r/a", "large")
                .await
                .expect("a file");
            Instant::now()
        };
        let small = async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            read_file(&served, "r", "skill://r/a", "small")
                .await
                .expect("a file");
            Instant::now()
        };
        let (large, small) = tokio::join!(large, small);
        // A read that waited ends with the large read, and may overtake its last steps.
        let waited = small + Duration::from_millis(100) > large;
        assert_eq!(waited, waits, "max_reads_per_root {limit}");
    }
}
