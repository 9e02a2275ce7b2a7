//! Pulls from a hostile or changing executor: nothing is written outside the directory, and the
//! directory never has a mix of two states.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use caproot_client::pull::{
    PullError, PullLimits, PullReport, PullRequest, pull_package, verify_dir,
};
use caproot_core::proto::caproot::v1::read_resource_response::Body;
use caproot_core::proto::caproot::v1::{
    ListResourcesResponse, ReadResourceRequest, ReadResourceResponse, Resource,
};

use super::{names_in, read_tree};
use crate::harness::content_digest;
use crate::harness::fixture::Fixture;
use crate::harness::test_servers::{HostileDaemon, ReadResponder};
use crate::harness::{in_time, located};
use crate::orchestrator::client;

const PACKAGE: &str = "skill://r/s";

/// Files of a package by name.
type Files = BTreeMap<String, String>;

fn collect_files(entries: &[(&str, &str)]) -> Files {
    entries
        .iter()
        .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
        .collect()
}

fn resource(name: &str, text: &str) -> Resource {
    Resource {
        resource: format!("{PACKAGE}/{name}"),
        size_bytes: text.len() as u64,
        digest: content_digest(text.as_bytes()),
        ..Resource::default()
    }
}

fn list_of(files: &Files) -> ListResourcesResponse {
    let resources = files
        .iter()
        .map(|(name, text)| resource(name, text))
        .collect();
    ListResourcesResponse {
        resources,
        ..ListResourcesResponse::default()
    }
}

/// Returns the whole file that a request names.
fn content_of(files: &Files, request: &ReadResourceRequest) -> ReadResourceResponse {
    let name = request
        .resource
        .strip_prefix(PACKAGE)
        .expect("of the package");
    let text = files
        .get(name.trim_start_matches('/'))
        .cloned()
        .unwrap_or_default();
    ReadResourceResponse {
        digest: content_digest(text.as_bytes()),
        total_bytes: text.len() as u64,
        body: Some(Body::Contents(text)),
        ..ReadResourceResponse::default()
    }
}

/// Honest daemon of a package.
fn honest(files: Files) -> HostileDaemon {
    let (listed, read) = (files.clone(), files);
    HostileDaemon {
        files: Box::new(move |_| list_of(&listed)),
        read: Box::new(move |request| content_of(&read, request)),
        ..HostileDaemon::default()
    }
}

async fn pull(hostile: HostileDaemon, dir: &Path) -> Result<PullReport, PullError> {
    let client = client(&hostile.start().await).await;
    let mut request = PullRequest::new(located("r", "published:r"), PACKAGE, dir);
    request.limits = PullLimits {
        max_files: 100,
        max_bytes: 1 << 20,
    };
    // Spawned, because a program with several threads spawns its pulls.
    let pull = async move { pull_package(&client, &request, &mut |_| {}).await };
    in_time(tokio::spawn(pull)).await.expect("no panic")
}

#[tokio::test]
#[allow(clippy::too_many_lines)] // each list is a case
async fn lists_that_lie_are_rejected_and_write_nothing() {
    let one = |resource: Resource| ListResourcesResponse {
        resources: vec![resource],
        ..ListResourcesResponse::default()
    };
    let named = |name: &str| one(resource(name, "x"));
    let outside = |handle: &str| {
        one(Resource {
            resource: handle.into(),
            ..resource("a", "x")
        })
    };
    let mut cases: Vec<(&str, ListResourcesResponse)> = Vec::new();
    for name in [
        "../evil",
        "a/../../evil",
        "%2E%2E/evil",
        "a/..",
        "a//b",
        "",
        "a/",
        ".",
        "%00",
        "a%2Fb",
        "%61",
        "/etc/evil",
        "%ZZ",
        "a b",
    ] {
        cases.push(("has a name", named(name)));
    }
    cases.push((
        "is a copy that a pull made",
        named(".caproot-checksums.json"),
    ));
    let forbidden = [
        ".git",
        ".git/config",
        "a/b/.GIT/hooks/post-checkout",
        "a/.gIt",
        ".hg/hgrc",
        "a/.Hg/b",
        ".svn/entries",
        "a/.SVN",
        "..data/SKILL.md",
        "a/..2026_11_22/b",
        "...",
        "a/..%FF",
    ];
    let says_path = forbidden.map(|name| format!("the package has the file {name:?}, and"));
    cases.extend(
        forbidden
            .iter()
            .zip(&says_path)
            .map(|(name, says)| (says.as_str(), named(name))),
    );
    for handle in [
        "/etc/evil",
        "../evil",
        "skill://q/s/a",
        "skill://r/sa",
        "skill://r/s",
        "",
    ] {
        cases.push(("is outside the package", outside(handle)));
    }
    let twice = vec![resource("a", "x"), resource("a", "y")];
    let below = vec![resource("a", "x"), resource("a/b", "y")];
    let of = |resources| ListResourcesResponse {
        resources,
        ..ListResourcesResponse::default()
    };
    let many = (0..200)
        .map(|n| resource(&format!("f{n:03}"), "x"))
        .collect();
    let huge = Resource {
        size_bytes: u64::MAX,
        ..resource("a", "x")
    };
    cases.extend([
        ("is listed twice", of(twice)),
        ("is below another file", of(below)),
        ("more than 100 files", of(many)),
        (
            "more than 1048576 bytes",
            of(vec![
                huge.clone(),
                Resource {
                    resource: format!("{PACKAGE}/b"),
                    ..huge
                },
            ]),
        ),
        (
            "has an invalid digest",
            one(Resource {
                digest: "sha256:zz".into(),
                ..resource("a", "x")
            }),
        ),
        (
            "has no digest",
            one(Resource {
                digest: String::new(),
                ..resource("a", "x")
            }),
        ),
        (
            "omits files",
            ListResourcesResponse {
                truncated: true,
                ..named("a")
            },
        ),
        (
            "a page token repeats",
            ListResourcesResponse {
                next_page_token: "t".into(),
                ..of(Vec::new())
            },
        ),
    ]);
    for (says, list) in cases {
        let fixture = Fixture::new("dir out\ndir out/keep");
        let hostile = HostileDaemon {
            files: Box::new({
                let list = list.clone();
                move |_| list.clone()
            }),
            ..HostileDaemon::default()
        };
        let error = pull(hostile, &fixture.path("out/dir"))
            .await
            .expect_err(says);
        assert!(error.to_string().contains(says), "{error} for {list:?}");
        assert_eq!(names_in(&fixture.path("out")), ["keep"], "{says}");
        assert_eq!(names_in(fixture.top()), ["out"], "{says}");
    }
}

/// The error comes from the list: the good files are neither read nor written.
#[tokio::test]
async fn a_forbidden_name_is_found_before_the_first_read() {
    let fixture = Fixture::new("dir out");
    let hostile = HostileDaemon {
        read: Box::new(|request| panic!("read {request:?}")),
        ..honest(collect_files(&[
            ("SKILL.md", "text"),
            ("x/.git/config", "evil"),
        ]))
    };
    let error = pull(hostile, &fixture.path("out/dir"))
        .await
        .expect_err("a forbidden name");
    assert!(matches!(&error, PullError::ForbiddenName(name) if name == "x/.git/config"));
    assert!(names_in(&fixture.path("out")).is_empty());
    // Similar names are ordinary.
    let similar = collect_files(&[
        (".gitignore", "a"),
        ("a/.github/b", "b"),
        ("git/c", "c"),
        ("x..", "d"),
    ]);
    let report = pull(honest(similar), &fixture.path("out/dir")).await;
    assert_eq!(report.expect("a pull").files, 4);
}

#[tokio::test]
async fn files_that_lie_are_rejected_and_write_nothing() {
    let answer = |text: &str, next: &str| ReadResourceResponse {
        digest: content_digest(b"text"),
        total_bytes: 4,
        body: Some(Body::Contents(text.into())),
        next_cursor: next.into(),
        ..ReadResourceResponse::default()
    };
    let pages = AtomicUsize::new(0);
    let endless = move |_: &ReadResourceRequest| {
        let next = format!("{}", pages.fetch_add(1, Ordering::Relaxed));
        ReadResourceResponse {
            total_bytes: 1 << 40,
            ..answer("x", &next)
        }
    };
    let cases: Vec<(&str, Box<ReadResponder>)> = vec![
        (
            "do not have the digest",
            Box::new(move |_| answer("evil", "")),
        ),
        ("smaller than the file", Box::new(move |_| answer("te", ""))),
        (
            "larger than the file",
            Box::new(move |_| answer("text and more", "")),
        ),
        (
            "is empty, and more follows",
            Box::new(move |_| answer("", "1")),
        ),
        ("has too many pages", Box::new(endless)),
        (
            "has no body",
            Box::new(move |_| ReadResourceResponse {
                body: None,
                ..answer("", "")
            }),
        ),
        (
            // The daemon sends a whole other file than it listed, again and again.
            "changed during each of 5 attempts",
            Box::new(move |_| ReadResourceResponse {
                digest: content_digest(b"evil"),
                ..answer("evil", "")
            }),
        ),
    ];
    for (says, read) in cases {
        let fixture = Fixture::new("dir out");
        let hostile = HostileDaemon {
            read,
            ..honest(collect_files(&[("a/b", "text")]))
        };
        let error = pull(hostile, &fixture.path("out/dir"))
            .await
            .expect_err(says);
        assert!(error.to_string().contains(says), "{error}");
        assert!(names_in(&fixture.path("out")).is_empty(), "{says}");
    }
}

#[tokio::test]
async fn a_size_that_lies_is_rejected() {
    for size_bytes in [0, 3, 5] {
        let fixture = Fixture::new("dir out");
        let list = ListResourcesResponse {
            resources: vec![Resource {
                size_bytes,
                ..resource("a", "text")
            }],
            ..ListResourcesResponse::default()
        };
        let hostile = HostileDaemon {
            files: Box::new(move |_| list.clone()),
            ..honest(collect_files(&[("a", "text")]))
        };
        let outcome = pull(hostile, &fixture.path("out/dir")).await;
        assert!(outcome.is_err(), "{size_bytes}: {outcome:?}");
        assert!(names_in(&fixture.path("out")).is_empty(), "{size_bytes}");
    }
}

#[tokio::test]
async fn tiny_pages_without_end_are_rejected() {
    let fixture = Fixture::new("dir out");
    let text = "x".repeat(1 << 20);
    let list = list_of(&collect_files(&[("a", &text)]));
    let pages = AtomicUsize::new(0);
    let read = move |_: &ReadResourceRequest| ReadResourceResponse {
        digest: content_digest(text.as_bytes()),
        total_bytes: text.len() as u64,
        body: Some(Body::Contents("x".into())),
        next_cursor: format!("{}", pages.fetch_add(1, Ordering::Relaxed)),
        ..ReadResourceResponse::default()
    };
    let hostile = HostileDaemon {
        files: Box::new(move |_| list.clone()),
        read: Box::new(read),
        ..HostileDaemon::default()
    };
    let error = pull(hostile, &fixture.path("out/dir"))
        .await
        .expect_err("tiny pages");
    assert!(error.to_string().contains("has too many pages"), "{error}");
}

/// The package changes once, after each possible number of calls.
#[tokio::test]
async fn a_package_that_changes_is_never_mixed() {
    let old = collect_files(&[
        ("SKILL.md", "old"),
        ("a", "old a"),
        ("gone/x", "old x"),
        ("same", "s"),
    ]);
    let new = collect_files(&[
        ("SKILL.md", "new"),
        ("a", "new a"),
        ("more/y", "new y"),
        ("same", "s"),
    ]);
    for change_after in 0..12 {
        let fixture = Fixture::new("dir out");
        let out = fixture.path("out/dir");
        let calls = Arc::new(AtomicUsize::new(0));
        let states = [old.clone(), new.clone()];
        let state = move || {
            let call = calls.fetch_add(1, Ordering::SeqCst);
            states[usize::from(call >= change_after)].clone()
        };
        let read = state.clone();
        let changing = HostileDaemon {
            files: Box::new(move |_| list_of(&state())),
            read: Box::new(move |request| {
                let files = read();
                let mut response = content_of(&files, request);
                if response.total_bytes == 0 {
                    // The file is gone. No digest of the list has this content.
                    response.digest = content_digest(b"");
                }
                response
            }),
            ..HostileDaemon::default()
        };
        let report = pull(changing, &out).await.expect("a whole state");
        let pulled: Files = read_tree(&out)
            .into_iter()
            .map(|(name, (bytes, _))| {
                (
                    String::from_utf8(name).expect("UTF-8"),
                    String::from_utf8(bytes).expect("UTF-8"),
                )
            })
            .collect();
        assert!(pulled == old || pulled == new, "{change_after}: {pulled:?}");
        assert_eq!(report.files, 4);
        assert!(verify_dir(&out).expect("pulled").differences.is_empty());
        assert_eq!(names_in(&fixture.path("out")), ["dir"]);
    }
}

#[tokio::test]
async fn a_package_that_never_rests_leaves_the_directory_as_it_is() {
    let fixture = Fixture::new("dir out");
    let out = fixture.path("out/dir");
    let first = collect_files(&[("SKILL.md", "first")]);
    pull(honest(first), &out).await.expect("a pull");
    let before = read_tree(&out);
    let lists = AtomicUsize::new(0);
    let parent = fixture.path("out");
    let restless = HostileDaemon {
        files: Box::new(move |_| {
            let names = names_in(&parent);
            let staging: Vec<_> = names.iter().filter(|name| *name != "dir").collect();
            assert!(
                staging.len() <= 1,
                "at most one unfinished copy: {staging:?}"
            );
            for name in staging {
                let mode = fs::metadata(parent.join(name)).expect("a directory").mode();
                assert_eq!(mode & 0o7777, 0o700, "closed to other users");
            }
            let text = lists.fetch_add(1, Ordering::SeqCst).to_string();
            list_of(&collect_files(&[("SKILL.md", "second"), ("count", &text)]))
        }),
        read: Box::new(|request| content_of(&collect_files(&[("SKILL.md", "second")]), request)),
        ..HostileDaemon::default()
    };
    let error = pull(restless, &out)
        .await
        .expect_err("changes all the time");
    assert!(matches!(error, PullError::KeepsChanging), "{error}");
    assert_eq!(read_tree(&out), before);
    assert_eq!(names_in(&fixture.path("out")), ["dir"]);
}
