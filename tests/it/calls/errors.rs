//! Answers to invalid and borderline requests, in `tests/snapshots/rpc_errors.txt`. Errors for which
//! a file must change between two calls are in `changing_reads.rs`.

use std::fmt::Write as _;
use std::fs;

use caproot::daemon::model::Limits;
use caproot_core::proto::caproot::v1::{
    Authority, CapabilityRootLocation, ListResourcesRequest, ListSkillsRequest,
    ReadResourceRequest, RootReason, RootState, SelectedCapabilityRoot,
};
use tonic::{Code, Status};

use crate::harness::fixture::Fixture;
use crate::harness::golden::check_file;
use crate::harness::listing::short_name;
use crate::harness::{
    Daemon, Setup, assert_rpc_error, list_request, located, read_request, resolve_request,
    rpc_error, selected,
};

/// Root that is selected as `r` and published as `pub`, and the answers to requests about it.
struct AnswerTable {
    fixture: Fixture,
    daemon: Daemon,
    root: SelectedCapabilityRoot,
    text: String,
}

impl AnswerTable {
    async fn start() -> Self {
        let fixture = Fixture::new(
            "skill root/a\nfile root/a/x.md\n| text\nskill root/b\nfile root/f\ndir root/a b%
            sparse 101 root/a/big\nsparse 100 root/a/fits\nskill other/b",
        );
        let setup = Setup {
            limits: Limits {
                max_roots: 8,
                max_file_bytes: 100,
                ..Limits::default()
            },
            environment_ids: vec!["local".into(), "second".into()],
            ..Setup::publishing("pub", fixture.path("root"))
        };
        let daemon = Daemon::start(setup).await;
        let root = selected("r", fixture.path("root"));
        let text = "# Requests, and the answer to each: the status, the fields and the metadata of an error, and\n\
                    # its message, which begins with the reason. `CAPROOT_BLESS=1 cargo test errors` rewrites the\n\
                    # answers from the output of the daemon. Review the difference: this is the contract.\n";
        Self {
            fixture,
            daemon,
            root,
            text: text.to_owned(),
        }
    }

    fn add_section(&mut self, title: &str) {
        write!(self.text, "\n== {title}\n").expect("text");
    }

    fn add(&mut self, call: &str, request: &str, answer: Result<String, Status>) {
        let answer = answer.unwrap_or_else(|status| {
            let error = rpc_error(&status);
            let metadata: Vec<_> = error
                .metadata
                .iter()
                .map(|(k, v)| format!("{k}={v}"))
                .collect();
            let details = [error.fields, metadata].concat().join(" ");
            format!("{:?} [{details}] {}", error.code, status.message())
        });
        let top = self.fixture.top().to_str().expect("UTF-8");
        let answer = answer.replace(top, "$TMP");
        writeln!(self.text, "{call} {request}\n-> {answer}").expect("text");
    }

    async fn list(&mut self, request: &str, message: ListSkillsRequest) {
        let answer = self.daemon.try_list(message).await;
        let answer =
            answer.map(|list| format!("{} roots, {} skills", list.roots.len(), list.skills.len()));
        self.add("ListSkills", request, answer);
    }

    async fn resolve(&mut self, request: &str, roots: &[SelectedCapabilityRoot]) {
        let answer = self.daemon.try_resolve(resolve_request(roots)).await;
        self.add(
            "ResolveRoots",
            request,
            answer.map(|list| format!("{} roots", list.roots.len())),
        );
    }

    async fn read(&mut self, request: &str, message: ReadResourceRequest) {
        let answer = self.daemon.read(message).await;
        self.add(
            "ReadResource",
            request,
            answer.map(|page| format!("{} bytes", page.total_bytes)),
        );
    }

    async fn list_files(&mut self, request: &str, message: ListResourcesRequest) {
        let answer = self.daemon.list_resources(message).await;
        let answer = answer.map(|list| format!("{} files", list.resources.len()));
        self.add("ListResources", request, answer);
    }

    /// Adds the state of a root, in which `ListSkills` and `ResolveRoots` must agree, and the answer
    /// to a read of its skill `a`.
    async fn select(&mut self, request: &str, root: &SelectedCapabilityRoot) {
        let roots = std::slice::from_ref(root);
        let listed = self.daemon.list(roots).await.roots.remove(0);
        let resolved = self.daemon.resolve(roots).await.roots.remove(0);
        let state = (listed.state, listed.reason, &listed.message);
        assert_eq!(state, (resolved.state, resolved.reason, &resolved.message));
        assert_eq!(listed.id, root.id);
        let is_ready = listed.state() == RootState::Ready;
        assert_eq!(
            is_ready,
            listed.reason() == RootReason::Unspecified,
            "{listed:?}"
        );
        let reason = short_name(listed.reason().as_str_name(), "ROOT_REASON_").to_owned();
        let answer = if is_ready {
            "READY".to_owned()
        } else {
            format!("{reason}: {}", listed.message)
        };
        self.add("root", request, Ok(answer));
        self.read("of this root", read_request(root, "skill://r/a", ""))
            .await;
    }
}

/// Writes a value of a request. A long text is shortened.
fn brief(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{:?}… ({} bytes)", &text[..end], text.len()),
        None => format!("{text:?}"),
    }
}

fn authority(kind: &str, id: &str) -> Authority {
    Authority {
        kind: kind.into(),
        id: id.into(),
    }
}

#[tokio::test]
async fn each_request_has_its_answer() {
    let mut table = AnswerTable::start().await;
    add_root_ids(&mut table).await;
    add_locations(&mut table).await;
    add_pages(&mut table).await;
    add_reads(&mut table).await;
    add_lists_of_files(&mut table).await;
    check_file("tests/snapshots/rpc_errors.txt", &table.text);
    table.daemon.stop().await;
}

async fn add_root_ids(table: &mut AnswerTable) {
    table.add_section("Ids and number of roots");
    let (path, root) = (table.fixture.path("root"), table.root.clone());
    let long = ["x".repeat(256), "x".repeat(257)];
    let ids = [
        "", ".", "..", "a\nb", "a\0b", "\u{7f}", "\u{85}", "...", "a b", "\u{e9}",
    ];
    for id in ids.into_iter().chain(long.iter().map(String::as_str)) {
        let roots = [root.clone(), selected(id, &path)];
        let request = format!("the second id is {}", brief(id));
        table.list(&request, list_request(&roots)).await;
        table.resolve(&request, &roots).await;
        table
            .read(
                &format!("id {}", brief(id)),
                read_request(&roots[1], "skill://r/a", ""),
            )
            .await;
    }
    let mut other_environment = root.clone();
    other_environment
        .location
        .as_mut()
        .expect("set")
        .environment_id = "elsewhere".into();
    for (request, second) in [
        ("one root twice", root.clone()),
        (
            "one id for two paths",
            selected("r", table.fixture.path("root/a")),
        ),
        ("one id for two environments", other_environment),
        (
            "one id for a path and a published root",
            located("r", "published:pub"),
        ),
    ] {
        table
            .list(request, list_request(&[root.clone(), second]))
            .await;
    }
    for count in [8, 9] {
        let roots: Vec<_> = (0..count)
            .map(|n| selected(&format!("r{n}"), &path))
            .collect();
        table
            .list(&format!("{count} roots"), list_request(&roots))
            .await;
        table.resolve(&format!("{count} roots"), &roots).await;
    }
}

async fn add_locations(table: &mut AnswerTable) {
    table.add_section("Paths and URIs of roots");
    let top = table.fixture.top().to_str().expect("UTF-8").to_owned();
    let longest = "/x".repeat(2_048);
    for path in [
        format!("{top}/root"),
        format!("{top}/root/"),
        format!("{top}//root/./a/.."),
        format!("file://{top}/root"),
        format!("file://localhost{top}/root"),
        format!("file://{top}/root/a%20b%25"),
        format!("file://{top}/%72oot"),
        format!("file://{top}/root/f"),
        format!("file://{top}/root/gone"),
        format!("file://elsewhere{top}/root"),
        format!("file://127.0.0.1{top}/root"),
        format!("file://{top}/root%00"),
        format!("file://{top}/root?x"),
        format!("file://{top}/root#x"),
        format!("file://{top}/root%zz"),
        format!("file:{}", &top[1..]),
        "published:pub".into(),
        "published:other".into(),
        "published:".into(),
        String::new(),
        "relative".into(),
        "./root".into(),
        "~/root".into(),
        format!("{top}/root\0"),
        format!("http://{top}/root"),
        format!("{top}/root/gone"),
        format!("{top}/root/f"),
        format!("{top}/root/.."),
        format!("{top}/root/gone/../../other"),
        "/".into(),
        format!("{longest}x"),
        format!("file://{longest}"),
        longest,
    ] {
        let request = brief(&path.replace(&top, "$TMP").replace(&top[1..], "$TMP"));
        table.select(&request, &located("r", &path)).await;
    }
    table.add_section("Types and environments of roots");
    for (kind, environment_id) in [
        ("environment", "second"),
        ("", "local"),
        ("environment", "elsewhere"),
        ("environment", ""),
        ("environment", "Local"),
        ("Environment", "local"),
        ("bucket", "local"),
    ] {
        let location = CapabilityRootLocation {
            r#type: kind.into(),
            environment_id: environment_id.into(),
            path: format!("{top}/root"),
        };
        let root = SelectedCapabilityRoot {
            id: "r".into(),
            location: Some(location),
        };
        table
            .select(
                &format!("type {kind:?}, environment {environment_id:?}"),
                &root,
            )
            .await;
    }
    let absent = SelectedCapabilityRoot {
        id: "r".into(),
        location: None,
    };
    table.select("without a location", &absent).await;
}

async fn add_pages(table: &mut AnswerTable) {
    table.add_section("Pages of skills");
    let good = list_request(std::slice::from_ref(&table.root));
    for page_size in [-1, i32::MIN] {
        let request = ListSkillsRequest {
            page_size,
            ..good.clone()
        };
        table.list(&format!("page_size {page_size}"), request).await;
    }
    for token in ["x", "AAAA", "\u{fffd}", "%", &"A".repeat(100_000)] {
        let request = ListSkillsRequest {
            page_token: token.to_owned(),
            ..good.clone()
        };
        table
            .list(&format!("page_token {}", brief(token)), request)
            .await;
    }
}

async fn add_reads(table: &mut AnswerTable) {
    table.add_section("Reads");
    let root = table.root.clone();
    let good = read_request(&root, "skill://r/a", "");
    for max_bytes in [0, 4, i64::MAX, 1, 2, 3, -1, i64::MIN] {
        let request = ReadResourceRequest {
            max_bytes,
            ..good.clone()
        };
        table.read(&format!("max_bytes {max_bytes}"), request).await;
    }
    for cursor in ["0", "5", "AAAA", "-", "\u{fffd}", &"A".repeat(100_000)] {
        let request = ReadResourceRequest {
            cursor: cursor.into(),
            ..good.clone()
        };
        table
            .read(&format!("cursor {}", brief(cursor)), request)
            .await;
    }
    for package in [
        "",
        "a",
        "skill://other/a",
        "skill://r/a/",
        "skill://r/./a",
        "skill://r/gone",
    ] {
        table
            .read(
                &format!("package {package:?}"),
                read_request(&root, package, ""),
            )
            .await;
    }
    for resource in [
        "x.md",
        "skill://other/a/x.md",
        "skill://r/a//x.md",
        "skill://r/a/%78.md",
        "skill://r/a/gone.md",
        "skill://r/a/fits",
        "skill://r/a/big",
    ] {
        let request = read_request(&root, "skill://r/a", resource);
        table.read(&format!("resource {resource:?}"), request).await;
    }
    for (kind, id) in [
        ("executor", "r"),
        ("executor", "s"),
        ("host", "r"),
        ("", ""),
    ] {
        let request = ReadResourceRequest {
            authority: Some(authority(kind, id)),
            ..good.clone()
        };
        table
            .read(&format!("authority {kind:?} {id:?}"), request)
            .await;
    }
    table
        .read("without a root", ReadResourceRequest { root: None, ..good })
        .await;
}

/// Change that makes a valid request invalid.
type RequestChange<'a> = &'a dyn Fn(&mut ListResourcesRequest);

async fn add_lists_of_files(table: &mut AnswerTable) {
    table.add_section("Lists of files");
    let good = crate::calls::resources::request(&table.root);
    let first = ListResourcesRequest {
        page_size: 1,
        ..good.clone()
    };
    let token = table
        .daemon
        .list_resources(first)
        .await
        .expect("a page")
        .next_page_token;
    let other_root = |path: &str| selected("r", table.fixture.path(path));
    let (outside, gone) = (other_root("other"), other_root("root/none"));
    let changes: [(&str, RequestChange); 20] = [
        ("page_size -1", &|r| r.page_size = -1),
        ("page_size -2147483648", &|r| r.page_size = i32::MIN),
        ("package \"skill://r/a/\"", &|r| {
            r.package = "skill://r/a/".into();
        }),
        ("package \"skill://s/a\"", &|r| {
            r.package = "skill://s/a".into();
        }),
        ("package \"\"", &|r| r.package = String::new()),
        ("package \"skill://r/gone\"", &|r| {
            r.package = "skill://r/gone".into();
        }),
        ("package \"skill://r/a/x.md\"", &|r| {
            r.package = "skill://r/a/x.md".into();
        }),
        ("package \"skill://r\"", &|r| r.package = "skill://r".into()),
        ("id \"..\"", &|r| {
            r.root.as_mut().expect("set").id = "..".into();
        }),
        ("page_token \"x\"", &|r| r.page_token = "x".into()),
        ("page_token of 100,000 bytes", &|r| {
            r.page_token = "A".repeat(100_000);
        }),
        ("page_token that is too long", &|r| {
            r.page_token = format!("{token}A");
        }),
        ("page_token of another package", &|r| {
            (r.page_token, r.package) = (token.clone(), "skill://r/b".into());
        }),
        ("page_token of a list without digests", &|r| {
            (r.page_token, r.include_digests) = (token.clone(), true);
        }),
        ("authority of the root", &|r| {
            r.authority = Some(authority("executor", "r"));
        }),
        ("authority of another root", &|r| {
            r.authority = Some(authority("executor", "s"));
        }),
        ("authority without a kind", &|r| {
            r.authority = Some(authority("", "r"));
        }),
        ("root outside", &|r| r.root = Some(outside.clone())),
        ("missing root", &|r| r.root = Some(gone.clone())),
        ("root of another environment", &|r| {
            let location = r.root.as_mut().and_then(|root| root.location.as_mut());
            location.expect("set").environment_id = "elsewhere".into();
        }),
    ];
    for (request, change) in changes {
        let mut message = good.clone();
        change(&mut message);
        table.list_files(request, message).await;
    }
    // The package is in the catalog but was removed from the disk.
    fs::remove_dir_all(table.fixture.path("root/a")).expect("remove");
    table
        .list_files("of a package that was removed", good)
        .await;
}

#[tokio::test]
async fn a_root_outside_the_allowed_directories_is_denied() {
    let (fixture, daemon, _) = Setup::default().serve("skill root/a\nskill other/b").await;
    let places = [
        fixture.path("other"),
        fixture.path("nothing"),
        "/etc".into(),
        "/no/where".into(),
    ];
    let mut messages = Vec::new();
    for place in places {
        let answer = daemon
            .read(read_request(&selected("r", place), "skill://r/b", ""))
            .await;
        messages.push(answer.as_ref().expect_err("outside").message().to_owned());
        let refused = assert_rpc_error(answer, Code::PermissionDenied, "ROOT_NOT_ALLOWED", None);
        assert_eq!(refused.metadata["root_id"], "r");
    }
    messages.dedup();
    assert_eq!(
        messages.len(),
        1,
        "the message does not depend on existence: {messages:?}"
    );
    daemon.stop().await;
}

#[tokio::test]
async fn a_link_that_leads_outside_is_denied() {
    let tree = "skill root/a\nfile out/x\n| text\n\
                link root/a/there -> $TMP/out/x\nlink root/a/gone -> $TMP/out/y";
    let (_fixture, daemon, root) = Setup::default().serve(tree).await;
    let mut messages = Vec::new();
    for name in ["there", "gone"] {
        let answer = daemon
            .read(read_request(
                &root,
                "skill://r/a",
                &format!("skill://r/a/{name}"),
            ))
            .await;
        messages.push(answer.as_ref().expect_err("outside").message().to_owned());
        let refused = assert_rpc_error(answer, Code::PermissionDenied, "OUTSIDE_ROOT", None);
        assert_eq!(refused.metadata["root_id"], "r");
    }
    assert_eq!(
        messages[0], messages[1],
        "the message is the same whether the target exists or not"
    );
    daemon.stop().await;
}
