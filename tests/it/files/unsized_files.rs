//! Files whose filesystem reports no size, as in /proc. The test binds them into a package in a
//! mount namespace of the daemon.

use std::ffi::OsStr;
use std::fs;

use caproot_core::proto::caproot::v1::{ListResourcesRequest, ReadResourceRequest};
use tonic::Code;

use crate::harness::content_digest;
use crate::harness::fixture::Fixture;
use crate::harness::process::{Process, serve, wrap_command};
use crate::harness::{
    assert_rpc_error, bytes_of, files_request, read_request, rpc_error, selected,
};

/// Files of the package `a` and the bound sources: a constant file, a file that changes by itself,
/// and a file over the limit.
const BOUND: [(&str, &str); 3] = [
    ("still", "/proc/version"),
    ("moving", "/proc/uptime"),
    ("large", "/proc/cpuinfo"),
];

/// Starts a daemon that sees the bound files. Returns `None` if nothing can be mounted.
fn serve_with_mounts(fixture: &Fixture) -> Option<Process> {
    fixture.write(
        "caproot.yaml",
        "allow: [r]\nlimits:\n  max_file_bytes: 1KiB\n",
    );
    let mounts = BOUND.map(|(name, source)| format!("mount --bind {source} r/a/{name} &&"));
    let script = format!("cd \"$0\" && {} exec \"$@\"", mounts.join(" "));
    let wrapper = [
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        &script,
    ];
    let wrapper = wrapper
        .iter()
        .map(OsStr::new)
        .chain([fixture.top().as_os_str()]);
    let mut command = serve(["--config"]);
    command.arg(fixture.path("caproot.yaml"));
    wrap_command(wrapper, command, "bind mounts are not available").map(Process::start)
}

#[tokio::test]
async fn files_of_unknown_size_are_read_to_their_end() {
    let fixture = Fixture::new(
        "skill r/a\nfile r/a/still\nfile r/a/moving\nfile r/a/large\nsparse 0 r/a/empty",
    );
    let Some(serving) = serve_with_mounts(&fixture) else {
        return;
    };
    let daemon = serving.connect().await;
    let root = selected("r", fixture.path("r"));
    let read = |name: &str| ReadResourceRequest {
        max_bytes: 16,
        ..read_request(&root, "skill://r/a", &format!("skill://r/a/{name}"))
    };

    let content = fs::read("/proc/version").expect("a readable file");
    assert_eq!(
        fs::metadata("/proc/version").expect("metadata").len(),
        0,
        "the size is not reported"
    );
    assert_eq!(
        daemon.read_all(read("still")).await.expect("all pages"),
        content
    );
    let first = daemon.read(read("still")).await.expect("a page");
    assert_eq!(
        (first.digest.clone(), first.total_bytes),
        (content_digest(&content), content.len() as u64)
    );
    let unchanged = ReadResourceRequest {
        if_none_match: first.digest,
        ..read("still")
    };
    assert!(
        daemon
            .read(unchanged)
            .await
            .expect("the same version")
            .not_modified
    );
    assert_eq!(
        daemon.read_all(read("empty")).await.expect("an empty file"),
        b""
    );

    // A file that changes by itself is one version or an error. It cannot be read in several pages.
    let whole = ReadResourceRequest {
        max_bytes: 0,
        ..read("moving")
    };
    let page = daemon.read(whole).await.expect("all of it at once");
    assert_eq!(page.digest, content_digest(&bytes_of(&page)));
    let mut pages = ReadResourceRequest {
        max_bytes: 4,
        ..read("moving")
    };
    let refused = loop {
        match daemon.read(pages.clone()).await {
            Ok(page) => pages.cursor = page.next_cursor,
            Err(status) => break rpc_error(&status),
        }
    };
    assert_eq!(
        (refused.code, &*refused.reason),
        (Code::Aborted, "RESOURCE_CHANGED")
    );

    let large = daemon.read(read("large")).await;
    assert_rpc_error(large, Code::FailedPrecondition, "TOO_LARGE", None);

    let request = ListResourcesRequest {
        include_digests: true,
        ..files_request(&root, "skill://r/a")
    };
    let files = daemon
        .list_resources(request)
        .await
        .expect("a list")
        .resources;
    let found = files
        .iter()
        .map(|f| (f.resource.as_str(), f.size_bytes, f.digest.is_empty()));
    assert_eq!(
        found
            .filter(|(name, ..)| !name.ends_with("SKILL.md"))
            .collect::<Vec<_>>(),
        [
            ("skill://r/a/empty", 0, false),
            ("skill://r/a/large", 0, true),
            ("skill://r/a/moving", 0, true),
            ("skill://r/a/still", 0, true),
        ]
    );
    drop(daemon);
    serving.stop().await;
}
