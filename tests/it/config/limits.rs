//! Each limit of a config file, as it is reported and as it is met.

use std::time::{Duration, Instant};

use caproot::proto::caproot::v1::{DiagnosticCode, Limits};
use tonic::Code;

use super::{Served, published};
use crate::fixture::Fixture;
use crate::harness::{assert_rpc_error, in_time, list_request};

/// A daemon with one limit, and what it reports.
async fn limited(fixture: &Fixture, limits: &str) -> (Served, Limits) {
    let config = format!("roots: [{{id: r, path: root}}]\nlimits: {{{limits}}}");
    let served = Served::start(fixture, &config).await;
    let limits = served.executor().await.limits.expect("limits");
    (served, limits)
}

/// A search that a limit cuts short; the diagnostic names the limit.
async fn cut_short(limit: &str, reported: impl Fn(&Limits) -> u32, left: &[&str]) {
    let fixture = Fixture::new("skill root/a\nskill root/a/b\nskill root/a/b/c\nskill root/z");
    let (served, limits) = limited(&fixture, &format!("{limit}: 2")).await;
    assert_eq!(reported(&limits), 2, "{limit}");
    let list = served.list(&[published("r")]).await;
    let packages: Vec<_> = list.skills.iter().map(|s| &*s.package).collect();
    assert_eq!(packages, left, "{limit}");
    assert!(list.truncated && list.roots[0].truncated, "{limit}");
    let said = list.diagnostics.iter().find(|d| d.code() == DiagnosticCode::LimitReached);
    let said = &said.expect("a diagnostic").message;
    assert!(said.starts_with(&format!("{limit} is 2:")), "{said}");
}

#[tokio::test]
async fn limits_of_a_search() {
    let [a, b, z] = ["skill://r/a", "skill://r/a/b", "skill://r/z"];
    cut_short("max_depth", |l| l.max_depth, &[a, b, z]).await;
    cut_short("max_directories", |l| l.max_directories, &[a]).await;
    cut_short("max_entries", |l| l.max_entries, &[]).await;
    cut_short("max_skills", |l| l.max_skills, &[a, z]).await;
}

#[tokio::test]
async fn max_roots() {
    let fixture = Fixture::new("dir root");
    let (served, limits) = limited(&fixture, "max_roots: 2").await;
    assert_eq!(limits.max_roots, 2);
    let roots = ["a", "b", "c"].map(published);
    let mut client = served.client();
    let answer = in_time(client.list_skills(list_request(&roots))).await;
    let field = Some("selected_capability_roots");
    assert_rpc_error(answer, Code::InvalidArgument, "TOO_MANY_ROOTS", field);
    assert_eq!(served.list(&roots[..2]).await.roots.len(), 2);
}

#[tokio::test]
async fn max_file_bytes() {
    let fixture = Fixture::new("skill root/a\nsparse 2048 root/a/fits\nsparse 2049 root/a/over");
    let (served, limits) = limited(&fixture, "max_file_bytes: 2KiB").await;
    assert_eq!(limits.max_file_bytes, 2_048);
    let answer = served.read_file("r", "skill://r/a", "fits").await;
    assert_eq!(answer.expect("a file").len(), 2_048);
    let answer = served.read_file("r", "skill://r/a", "over").await;
    assert_rpc_error(answer, Code::FailedPrecondition, "TOO_LARGE", None);
}

#[tokio::test]
async fn max_cached_roots() {
    let fixture = Fixture::new("skill root/a\nskill root/b");
    for (limits, searched_again) in
        [("max_roots: 1, max_cached_roots: 1", true), ("max_roots: 1, max_cached_roots: 2", false)]
    {
        let config = format!("allow: [root]\nlimits: {{{limits}}}");
        let served = Served::start(&fixture, &config).await;
        let reported = served.executor().await.limits.expect("limits").max_cached_roots;
        assert_eq!(reported, if searched_again { 1 } else { 2 });
        let [a, b] =
            ["a", "b"].map(|dir| crate::harness::selected(dir, fixture.path("root").join(dir)));
        served.list(std::slice::from_ref(&a)).await;
        let before = served.list(&[b]).await.revision;
        // Nothing changed, so only a root that was forgotten makes a revision.
        let after = served.list(&[a]).await.revision;
        assert_eq!(after > before, searched_again, "{limits}");
    }
}

#[tokio::test]
async fn limits_of_connections_and_calls() {
    let fixture = Fixture::new("dir root");
    let given = "max_connections: 11, max_connections_per_caller: 12, max_streams_per_caller: 13, \
                 max_calls: 14, max_calls_per_caller: 15, max_roots: 1";
    // How each is met is told where callers mean harm.
    let (_served, limits) = limited(&fixture, given).await;
    let connections = (limits.max_connections, limits.max_connections_per_caller);
    assert_eq!((connections, limits.max_streams_per_caller), ((11, 12), 13));
    assert_eq!((limits.max_calls, limits.max_calls_per_caller), (14, 15));
    assert_eq!(limits.max_request_bytes, (64 << 10) + (5 << 10));
}

#[tokio::test]
async fn max_reads_per_root() {
    let fixture =
        Fixture::new("skill root/a\nsparse 600000000 root/a/large\nfile root/a/small\n| x");
    for (limit, waits) in [(1, true), (2, false)] {
        let (served, limits) =
            limited(&fixture, &format!("max_file_bytes: 8GiB, max_reads_per_root: {limit}")).await;
        assert_eq!(limits.max_reads_per_root, limit);
        served.list(&[published("r")]).await;
        // Its digest takes far longer than anything else here.
        let large = async {
            served.read_file("r", "skill://r/a", "large").await.expect("a file");
            Instant::now()
        };
        let small = async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            served.read_file("r", "skill://r/a", "small").await.expect("a file");
            Instant::now()
        };
        let (large, small) = tokio::join!(large, small);
        // One that waited ends with the other, and may overtake it on the last steps.
        let waited = small + Duration::from_millis(100) > large;
        assert_eq!(waited, waits, "max_reads_per_root {limit}");
    }
}
