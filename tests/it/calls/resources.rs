//! Lists of a package's files: content, order and pages.

use std::fs;

use caproot::daemon::model::Limits;
use caproot_core::proto::caproot::v1::{ListResourcesRequest, Resource, SelectedCapabilityRoot};
use prost::Message as _;
use tonic::Code;

use crate::harness::content_digest;
use crate::harness::fixture::{Fixture, is_root};
use crate::harness::{
    Daemon, Setup, assert_rpc_error, files_request, located, read_request, selected,
};

/// Request for the first page of the files of the package `a` of the root `r`.
pub(crate) fn request(root: &SelectedCapabilityRoot) -> ListResourcesRequest {
    files_request(root, &format!("skill://{}/a", root.id))
}

/// Reads, checks and joins all pages. Returns the files, and whether the last page was truncated.
pub(crate) async fn list_all(
    daemon: &Daemon,
    request: ListResourcesRequest,
) -> (Vec<Resource>, bool) {
    let (mut joined, mut page_token) = (Vec::new(), String::new());
    loop {
        let next = ListResourcesRequest {
            page_token,
            ..request.clone()
        };
        let answer = daemon.list_resources(next).await.expect("a page");
        assert!(answer.encoded_len() < 1 << 20, "a page is under 1 MiB");
        let most = if request.page_size == 0 {
            1_000
        } else {
            request.page_size
        };
        assert!(answer.resources.len() <= usize::try_from(most.min(1_000)).expect("a size"));
        joined.extend(answer.resources);
        page_token = answer.next_page_token;
        if page_token.is_empty() {
            let names = joined.iter().map(|r: &Resource| &r.resource);
            assert!(
                names.is_sorted_by(|a, b| a < b),
                "sorted by handle without duplicates"
            );
            return (joined, answer.truncated);
        }
    }
}

/// Handles relative to the package, in order.
fn relative_handles(resources: &[Resource]) -> Vec<&str> {
    let prefix = "skill://r/a/";
    resources
        .iter()
        .map(|r| r.resource.strip_prefix(prefix).expect("in the package"))
        .collect()
}

/// Daemon that allows `root` and `also`, with its tree and the root `r`.
async fn serve_tree(tree: &str) -> (Fixture, Daemon, SelectedCapabilityRoot) {
    let fixture = Fixture::new(&format!("skill root/a\ndir also\n{tree}"));
    let setup = Setup::allowing([fixture.path("root"), fixture.path("also")]);
    let daemon = Daemon::start(setup).await;
    let root = selected("r", fixture.path("root"));
    (fixture, daemon, root)
}

/// Files of the package `a` as the daemon lists them.
async fn listed_files(tree: &str) -> Vec<String> {
    let (_fixture, daemon, root) = serve_tree(tree).await;
    let (resources, truncated) = list_all(&daemon, request(&root)).await;
    assert!(!truncated);
    daemon.stop().await;
    relative_handles(&resources)
        .into_iter()
        .map(str::to_owned)
        .collect()
}

#[tokio::test]
async fn every_regular_file_is_listed_in_handle_order() {
    let tree = "file root/a/scripts/run.sh\nfile root/a/references/x\nfile root/a/assets/i.png
        file root/a/a/x\nfile root/a/a-b\nfile root/a/a.b\nfile root/a/a b\nfile root/a/a0
        file root/a/\\xff\\n\nfile root/a/.hidden/y\nskill root/a/nested\nfile root/a/nested/z
        fifo root/a/fifo\nsocket root/a/socket\ndir root/a/empty\nfile root/b/not-its-own";
    let expected = [
        "%FF%0A",
        ".hidden/y",
        "SKILL.md",
        "a%20b",
        "a-b",
        "a.b",
        "a/x",
        "a0",
        "assets/i.png",
        "nested/SKILL.md",
        "nested/z",
        "references/x",
        "scripts/run.sh",
    ];
    assert_eq!(listed_files(tree).await, expected);
}

#[tokio::test]
async fn files_in_skipped_directories_are_not_listed() {
    let tree = "file root/a/.git/config\nfile root/a/x/node_modules/y\nfile root/a/target/z
        file root/a/.venv/v\nfile root/a/__pycache__/p\nfile root/a/.hg/h\nfile root/a/.svn/s
        file root/a/.env\nfile root/a/x/.env.local\nfile root/a/.envrc\nfile root/a/.environment/e
        file root/a/x/env\nfile root/a/.gitignore\nfile root/node_modules/m\nfile root/.git/g
        link root/a/modules -> ../node_modules\nlink root/a/one -> ../.git/g
        link root/a/inner -> .git\nlink root/a/secret -> .env\nfile also/.git/o
        link root/a/foreign -> $TMP/also/.git\nfile root/b/q\nlink root/.git/back -> ../b
        link root/a/git -> ../.git";
    assert_eq!(
        listed_files(tree).await,
        [".gitignore", "SKILL.md", "x/env"]
    );
}

#[tokio::test]
async fn links_are_followed_inside_the_allowed_directories() {
    let tree = "file root/shared/x\nfile also/y\nfile out/z\ndir also/d\nfile also/d/deep/f
        link root/a/file -> ../shared/x\nlink root/a/dir -> ../shared\nlink root/a/also -> $TMP/also
        link root/a/absolute -> $TMP/root/shared/x\nlink root/a/outside -> $TMP/out/z
        link root/a/out -> $TMP/out\nlink root/a/nothing -> nowhere\nlink root/a/gone -> $TMP/no
        link root/a/self -> self\nlink also/d/back-out -> $TMP/out\nlink root/a/chain -> dir
        fifo also/d/fifo\nlink root/a/fifo -> $TMP/also/d/fifo";
    let expected = [
        "SKILL.md",
        "absolute",
        "also/d/deep/f",
        "also/y",
        "chain/x",
        "dir/x",
        "file",
    ];
    assert_eq!(listed_files(tree).await, expected);
}

#[tokio::test]
async fn cyclic_links_are_not_entered_twice() {
    let tree = "file root/a/d/x\nlink root/a/d/up -> ..\nlink root/a/d/here -> .\n
        link root/a/root -> ..\nfile root/b/y\nlink root/b/to-a -> ../a\nlink root/a/to-b -> ../b";
    // A link to a directory on its own path is not entered. Another path to that directory is
    // entered.
    let expected = ["SKILL.md", "d/x", "root/b/y", "to-b/y"];
    assert_eq!(listed_files(tree).await, expected);
}

#[tokio::test]
async fn a_root_below_a_skipped_name_is_listed() {
    let fixture = Fixture::new(
        "skill target/root/a\nlink target/root/a/up -> ../..\nfile target/root/b/y\nfile target/z
        link target/root/a/main -> up/root/b",
    );
    let daemon = Daemon::start(Setup::allowing([fixture.path(".")])).await;
    let root = selected("r", fixture.path("target/root"));
    let (resources, _) = list_all(&daemon, request(&root)).await;
    assert_eq!(
        relative_handles(&resources),
        ["SKILL.md", "main/y", "up/root/b/y"]
    );
    daemon.stop().await;
}

#[tokio::test]
async fn a_main_resource_behind_a_link_into_a_skipped_directory_is_listed() {
    let tree = "skill root/.git\nlink root/a/SKILL.md -> ../.git/SKILL.md
        link root/a/other.md -> ../.git/SKILL.md";
    let (_fixture, daemon, root) = Setup::default().serve(tree).await;
    let (resources, _) = list_all(&daemon, request(&root)).await;
    assert_eq!(relative_handles(&resources), ["SKILL.md"]);
    daemon
        .read(read_request(&root, "skill://r/a", ""))
        .await
        .expect("the listed file");
    daemon.stop().await;
}

#[tokio::test]
async fn a_skill_at_the_root_lists_its_files() {
    let fixture = Fixture::new("skill root\nfile root/x\nlink root/up -> .\nfile top");
    let daemon = Daemon::start(Setup::allowing([fixture.path(".")])).await;
    let root = selected("r", fixture.path("root"));
    let request = ListResourcesRequest {
        package: "skill://r".into(),
        ..request(&root)
    };
    let (resources, _) = list_all(&daemon, request).await;
    let handles: Vec<_> = resources.iter().map(|r| r.resource.as_str()).collect();
    assert_eq!(handles, ["skill://r/SKILL.md", "skill://r/x"]);
    daemon.stop().await;
}

#[tokio::test]
async fn links_are_not_followed_in_a_root_without_links() {
    let fixture = Fixture::new(
        "skill home/.codex/skills/.system/a\nfile home/.codex/skills/.system/a/x
        link home/.codex/skills/.system/a/l -> x\nfile home/.codex/skills/.system/d/y
        link home/.codex/skills/.system/a/d -> ../d",
    );
    let setup = Setup {
        env: crate::harness::isolated_env(fixture.top()),
        ..Setup::default()
    };
    let daemon = Daemon::start(setup).await;
    let root = located("r", "published:system");
    let (resources, _) = list_all(&daemon, request(&root)).await;
    assert_eq!(relative_handles(&resources), ["SKILL.md", "x"]);
    daemon.stop().await;
}

#[tokio::test]
async fn size_type_and_digest_of_a_file_are_listed() {
    let (fixture, daemon, root) = serve_tree(
        "file root/a/run.py\n| #!\nmode 0755 root/a/run.py\nfile root/a/bytes\n| \\xff
        file root/a/text\n| text\nsparse 0 root/a/empty",
    )
    .await;
    let main = fs::read(fixture.path("root/a/SKILL.md")).expect("on disk");
    let resource = |name: &str, content: &[u8], media_type: &str, executable, digested| Resource {
        resource: format!("skill://r/a/{name}"),
        size_bytes: content.len() as u64,
        media_type: media_type.into(),
        executable,
        digest: if digested {
            content_digest(content)
        } else {
            String::new()
        },
    };
    for include_digests in [false, true] {
        let (files, _) = list_all(
            &daemon,
            ListResourcesRequest {
                include_digests,
                ..request(&root)
            },
        )
        .await;
        let by_content = |kind: &'static str| if include_digests { kind } else { "" };
        let expected = [
            resource("SKILL.md", &main, "text/markdown", false, include_digests),
            resource(
                "bytes",
                b"\xff\n",
                by_content("application/octet-stream"),
                false,
                include_digests,
            ),
            resource(
                "empty",
                b"",
                by_content("text/plain"),
                false,
                include_digests,
            ),
            resource("run.py", b"#!\n", "text/plain", true, include_digests),
            resource(
                "text",
                b"text\n",
                by_content("text/plain"),
                false,
                include_digests,
            ),
        ];
        assert_eq!(files, expected);
    }
    // A new version has a new digest.
    fixture.replace("root/a/text", "other");
    let with_digests = ListResourcesRequest {
        include_digests: true,
        ..request(&root)
    };
    let (files, _) = list_all(&daemon, with_digests).await;
    assert_eq!(
        files[4],
        resource("text", b"other", "text/plain", false, true)
    );
    daemon.stop().await;
}

#[tokio::test]
async fn a_file_over_the_size_limit_is_listed_without_a_digest() {
    let limits = Limits {
        max_file_bytes: 200,
        ..Limits::default()
    };
    let (_fixture, daemon, root) = Setup {
        limits,
        ..Setup::default()
    }
    .serve("skill root/a\nsparse 201 root/a/big\nsparse 200 root/a/fits")
    .await;
    let with_digests = ListResourcesRequest {
        include_digests: true,
        ..request(&root)
    };
    let (files, truncated) = list_all(&daemon, with_digests).await;
    assert_eq!(relative_handles(&files), ["SKILL.md", "big", "fits"]);
    assert_eq!(
        (files[1].size_bytes, files[1].digest.as_str(), truncated),
        (201, "", false)
    );
    assert_eq!(files[2].digest, content_digest(&[0; 200]));
    let refused = daemon
        .read(read_request(&root, "skill://r/a", &files[1].resource))
        .await;
    assert_rpc_error(refused, Code::FailedPrecondition, "TOO_LARGE", None);
    daemon.stop().await;
}

#[tokio::test]
async fn unreadable_files_are_not_listed() {
    if is_root() {
        // Root can read every file.
        return;
    }
    let tree = "file root/a/closed\nmode 0000 root/a/closed\nfile root/a/d/x\nmode 0000 root/a/d";
    assert_eq!(listed_files(tree).await, ["SKILL.md"]);
}

#[tokio::test]
async fn pages_joined_are_the_list() {
    let tree =
        "repeat 2000 file root/a/f{}\nrepeat 480 file root/a/d/{}\nrepeat 19 file root/a/g/{}/x";
    let (fixture, daemon, root) = serve_tree(tree).await;
    let (whole, truncated) = list_all(&daemon, request(&root)).await;
    assert_eq!((whole.len(), truncated), (2_500, false));
    for page_size in [1_000_000, 61, 1_000, 333] {
        let paged = list_all(
            &daemon,
            ListResourcesRequest {
                page_size,
                ..request(&root)
            },
        )
        .await;
        assert_eq!(paged.0, whole, "pages of {page_size}");
    }
    // The next page starts after the last name, even if that file was removed.
    let first = daemon.list_resources(request(&root)).await.expect("a page");
    let last = first
        .resources
        .last()
        .expect("1,000 of them")
        .resource
        .clone();
    let name = last
        .strip_prefix("skill://r/")
        .expect("a handle of the root");
    fs::remove_file(fixture.path("root").join(name)).expect("remove");
    fixture.write("root/a/a-before", "x");
    fixture.write("root/a/z-behind", "x");
    let next = ListResourcesRequest {
        page_token: first.next_page_token.clone(),
        ..request(&root)
    };
    let second = daemon.list_resources(next.clone()).await.expect("a page");
    assert_eq!(second.resources[..999], whole[1_000..1_999]);
    // A token outlives the daemon.
    daemon.stop().await;
    let daemon = Daemon::start(Setup::allowing([fixture.path("root")])).await;
    let again = daemon.list_resources(next).await.expect("a page");
    assert_eq!(again.resources, second.resources);
    assert_ne!(again.epoch, second.epoch);
    daemon.stop().await;
}

#[tokio::test]
async fn pages_with_long_names_have_fewer_entries() {
    // Each handle has about 1,900 bytes, so 1,000 handles do not fit on a page.
    let deep = "\\{250*\\xff}/\\{250*\\xff}";
    let tree = format!("repeat 1500 file root/a/{deep}/\\{{100*\\xff}}{{}}");
    let (_fixture, daemon, root) = serve_tree(&tree).await;
    let with_digests = ListResourcesRequest {
        include_digests: true,
        ..request(&root)
    };
    let (resources, truncated) = list_all(&daemon, with_digests).await;
    assert_eq!((resources.len(), truncated), (1_501, false));
    daemon.stop().await;
}

#[tokio::test]
async fn limits_truncate_the_list() {
    let tree = "repeat 50 file root/a/f{}\nfile root/a/d/d/d/deep\nfile root/a/d/d/x";
    for (limits, expected) in [
        (
            Limits {
                max_entries: 10,
                ..Limits::default()
            },
            7,
        ),
        (
            Limits {
                max_entries: 52,
                ..Limits::default()
            },
            49,
        ),
        (
            Limits {
                max_depth: 2,
                ..Limits::default()
            },
            52,
        ),
    ] {
        let (_fixture, daemon, root) = Setup {
            limits,
            ..Setup::default()
        }
        .serve(&format!("skill root/a\n{tree}"))
        .await;
        let (whole, truncated) = list_all(&daemon, request(&root)).await;
        assert_eq!((whole.len(), truncated), (expected, true));
        for page_size in [1, 5, 7] {
            let paged = list_all(
                &daemon,
                ListResourcesRequest {
                    page_size,
                    ..request(&root)
                },
            )
            .await;
            assert_eq!(paged, (whole.clone(), true), "pages of {page_size}");
        }
        daemon.stop().await;
    }
    // A handle that ReadResource would reject is not listed.
    let long = "\\{250*\\xff}";
    let tree = format!("file root/a/{long}/{long}/{long}\nfile root/a/z");
    let (_fixture, daemon, root) = serve_tree(&tree).await;
    let (resources, truncated) = list_all(&daemon, request(&root)).await;
    assert_eq!(
        (relative_handles(&resources), truncated),
        (vec!["SKILL.md", "z"], true)
    );
    daemon.stop().await;
}
