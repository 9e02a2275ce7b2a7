//! Table of errors of the contract: status, reason, metadata and field. Errors for which a file
//! must change between two calls are in `changing_reads.rs`.

use caproot::model::Limits;
use caproot::proto::caproot::v1::{
    Authority, CapabilityRootLocation, ListSkillsRequest, ReadResourceRequest, ResolveRootsRequest,
    RootReason, RootState, SelectedCapabilityRoot,
};
use tonic::Code;

use crate::fixture::Fixture;
use crate::harness::{
    Daemon, RpcError, Setup, assert_rpc_error, list_request, located, read_request, selected,
};

const INVALID: Code = Code::InvalidArgument;

/// Starts a daemon with one skill `a`, and a directory outside the allowed directory.
async fn one_skill() -> (Fixture, Daemon, SelectedCapabilityRoot) {
    let fixture = Fixture::new("skill root/a\nfile root/a/x.md\n| text\nskill other/b");
    let daemon = Daemon::start(Setup::allowing([fixture.path("root")])).await;
    let root = selected("r", fixture.path("root"));
    (fixture, daemon, root)
}

/// Root that an error is about.
fn root_id_of(refused: &RpcError) -> Option<&str> {
    refused.metadata.get("root_id").map(String::as_str)
}

#[tokio::test]
async fn root_ids_with_bad_characters_are_rejected() {
    let (fixture, daemon, good) = one_skill().await;
    let path = fixture.path("root");
    for bad in ["", ".", "..", "a\nb", "a\0b", "\u{7f}", "\u{85}", &"x".repeat(257)] {
        let bad = selected(bad, &path);
        let roots = vec![good.clone(), bad.clone()];
        let field = Some("selected_capability_roots[1].id");
        let listed = daemon.try_list(list_request(&roots)).await;
        assert_rpc_error(listed, INVALID, "INVALID_ARGUMENT", field);
        let request =
            ResolveRootsRequest { selected_capability_roots: roots, ..Default::default() };
        let resolved = daemon.client.clone().resolve_roots(request).await;
        assert_rpc_error(resolved, INVALID, "INVALID_ARGUMENT", field);
        let read = daemon.read(read_request(&bad, "skill://r/a", "")).await;
        assert_rpc_error(read, INVALID, "INVALID_ARGUMENT", Some("root.id"));
    }
    for good in ["x", &"x".repeat(256), "...", "a b", "\u{e9}"] {
        let answer = daemon.list(&[selected(good, &path)]).await;
        assert_eq!(answer.skills.len(), 1, "{good:?} is an id");
    }
    daemon.stop().await;
}

#[tokio::test]
async fn two_roots_with_one_id_are_rejected() {
    let (fixture, daemon, root) = one_skill().await;
    let mut other_environment = root.clone();
    other_environment.location.as_mut().expect("set").environment_id = "elsewhere".into();
    let elsewhere = selected("r", fixture.path("root/a"));
    for second in [elsewhere, other_environment, located("r", "published:r")] {
        let answer = daemon.try_list(list_request(&[root.clone(), second])).await;
        let field = Some("selected_capability_roots[1].id");
        assert_rpc_error(answer, INVALID, "INVALID_ARGUMENT", field);
    }
    // A root that is selected twice is answered once.
    let answer = daemon.list(&[root.clone(), root]).await;
    assert_eq!((answer.roots.len(), answer.skills.len()), (1, 1));
    daemon.stop().await;
}

#[tokio::test]
async fn too_many_roots_are_rejected() {
    let fixture = Fixture::new("skill root/a");
    let limits = Limits { max_roots: 3, ..Limits::default() };
    let setup = Setup { limits, ..Setup::allowing([fixture.path("root")]) };
    let daemon = Daemon::start(setup).await;
    let roots: Vec<_> = (0..4).map(|n| selected(&format!("r{n}"), fixture.path("root"))).collect();
    assert_eq!(daemon.list(&roots[..3]).await.skills.len(), 3);
    let field = Some("selected_capability_roots");
    let answer = daemon.try_list(list_request(&roots)).await;
    let message = answer.as_ref().expect_err("too many").message().to_owned();
    assert!(message.contains('3'), "the limit is named: {message}");
    assert_rpc_error(answer, INVALID, "TOO_MANY_ROOTS", field);
    let request = ResolveRootsRequest { selected_capability_roots: roots, ..Default::default() };
    let answer = daemon.client.clone().resolve_roots(request).await;
    assert_rpc_error(answer, INVALID, "TOO_MANY_ROOTS", field);
    daemon.stop().await;
}

#[tokio::test]
async fn bad_page_sizes_and_tokens_are_rejected() {
    let (_fixture, daemon, root) = one_skill().await;
    for page_size in [-1, i32::MIN] {
        let request = ListSkillsRequest { page_size, ..list_request(std::slice::from_ref(&root)) };
        let answer = daemon.try_list(request).await;
        assert_rpc_error(answer, INVALID, "INVALID_ARGUMENT", Some("page_size"));
    }
    for token in ["x", "AAAA", "\u{fffd}", "%", &"A".repeat(100_000)] {
        let page_token = token.to_owned();
        let request = ListSkillsRequest { page_token, ..list_request(std::slice::from_ref(&root)) };
        let answer = daemon.try_list(request).await;
        assert_rpc_error(answer, INVALID, "INVALID_ARGUMENT", Some("page_token"));
    }
    daemon.stop().await;
}

#[tokio::test]
async fn bad_arguments_of_a_read_are_rejected() {
    let (_fixture, daemon, root) = one_skill().await;
    let good = read_request(&root, "skill://r/a", "");
    for max_bytes in [1, 2, 3, -1, i64::MIN] {
        let answer = daemon.read(ReadResourceRequest { max_bytes, ..good.clone() }).await;
        assert_rpc_error(answer, INVALID, "INVALID_ARGUMENT", Some("max_bytes"));
    }
    for max_bytes in [0, 4, i64::MAX] {
        daemon
            .read(ReadResourceRequest { max_bytes, ..good.clone() })
            .await
            .expect("a valid limit");
    }
    for cursor in ["0", "5", "AAAA", "-", "\u{fffd}", &"A".repeat(100_000)] {
        let answer =
            daemon.read(ReadResourceRequest { cursor: cursor.into(), ..good.clone() }).await;
        assert_rpc_error(answer, INVALID, "INVALID_ARGUMENT", Some("cursor"));
    }
    for package in ["", "a", "skill://other/a", "skill://r/a/", "skill://r/./a"] {
        let answer = daemon.read(read_request(&root, package, "")).await;
        assert_rpc_error(answer, INVALID, "INVALID_ARGUMENT", Some("package"));
    }
    for resource in ["x.md", "skill://other/a/x.md", "skill://r/a//x.md", "skill://r/a/%78.md"] {
        let answer = daemon.read(read_request(&root, "skill://r/a", resource)).await;
        assert_rpc_error(answer, INVALID, "INVALID_ARGUMENT", Some("resource"));
    }
    let answer = daemon.read(ReadResourceRequest { root: None, ..good }).await;
    let refused = crate::harness::rpc_error(&answer.expect_err("no root"));
    assert_eq!((refused.code, refused.reason.as_str()), (INVALID, "INVALID_ARGUMENT"));
    assert!(refused.fields[0].starts_with("root"), "{refused:?}");
    daemon.stop().await;
}

#[tokio::test]
async fn missing_packages_and_resources_are_not_found() {
    let (_fixture, daemon, root) = one_skill().await;
    let answer = daemon.read(read_request(&root, "skill://r/gone", "")).await;
    let refused = assert_rpc_error(answer, Code::NotFound, "PACKAGE_NOT_FOUND", None);
    assert_eq!(root_id_of(&refused), Some("r"));
    let answer = daemon.read(read_request(&root, "skill://r/a", "skill://r/a/gone.md")).await;
    let refused = assert_rpc_error(answer, Code::NotFound, "RESOURCE_NOT_FOUND", None);
    assert_eq!(root_id_of(&refused), Some("r"));
    daemon.stop().await;
}

#[tokio::test]
async fn a_root_outside_the_allowed_directories_is_denied() {
    let (fixture, daemon, _) = one_skill().await;
    let places =
        [fixture.path("other"), fixture.path("nothing"), "/etc".into(), "/no/where".into()];
    let mut messages = Vec::new();
    for place in places {
        let answer = daemon.read(read_request(&selected("r", place), "skill://r/b", "")).await;
        messages.push(answer.as_ref().expect_err("outside").message().to_owned());
        let refused = assert_rpc_error(answer, Code::PermissionDenied, "ROOT_NOT_ALLOWED", None);
        assert_eq!(root_id_of(&refused), Some("r"));
    }
    messages.dedup();
    assert_eq!(messages.len(), 1, "the message does not depend on existence: {messages:?}");
    daemon.stop().await;
}

#[tokio::test]
async fn a_link_that_leads_outside_is_denied() {
    let fixture = Fixture::new(
        "skill root/a\nfile out/x\n| text\n\
         link root/a/there -> $TMP/out/x\nlink root/a/gone -> $TMP/out/y",
    );
    let daemon = Daemon::start(Setup::allowing([fixture.path("root")])).await;
    let root = selected("r", fixture.path("root"));
    let mut messages = Vec::new();
    for name in ["there", "gone"] {
        let answer =
            daemon.read(read_request(&root, "skill://r/a", &format!("skill://r/a/{name}"))).await;
        messages.push(answer.as_ref().expect_err("outside").message().to_owned());
        let refused = assert_rpc_error(answer, Code::PermissionDenied, "OUTSIDE_ROOT", None);
        assert_eq!(root_id_of(&refused), Some("r"));
    }
    assert_eq!(
        messages[0], messages[1],
        "the message is the same whether the target exists or not"
    );
    daemon.stop().await;
}

#[tokio::test]
async fn a_read_in_an_unavailable_root_fails() {
    let (fixture, daemon, _) = one_skill().await;
    let unavailable = [
        selected("r", fixture.path("root/gone")),
        selected("r", fixture.path("root/a/x.md")),
        located("r", "relative/path"),
        SelectedCapabilityRoot { id: "r".into(), location: None },
    ];
    let mut other_type = selected("r", fixture.path("root"));
    other_type.location.as_mut().expect("set").r#type = "bucket".into();
    for root in unavailable.into_iter().chain([other_type]) {
        let answer = daemon.read(read_request(&root, "skill://r/a", "")).await;
        let refused = crate::harness::rpc_error(&answer.expect_err("unusable"));
        assert_eq!(refused.code, Code::FailedPrecondition, "{root:?}: {refused:?}");
        let reason = match root.location {
            Some(_) => "ROOT_UNAVAILABLE",
            None => "WRONG_ENVIRONMENT",
        };
        assert_eq!(refused.reason, reason, "{root:?}: {refused:?}");
        assert_eq!(root_id_of(&refused), Some("r"));
    }
    daemon.stop().await;
}

#[tokio::test]
async fn a_root_of_another_environment_is_rejected() {
    let (fixture, daemon, _) = one_skill().await;
    let location = CapabilityRootLocation {
        environment_id: "elsewhere".into(),
        path: fixture.path("root").to_str().expect("UTF-8").into(),
        ..Default::default()
    };
    let root = SelectedCapabilityRoot { id: "r".into(), location: Some(location) };
    let answer = daemon.read(read_request(&root, "skill://r/a", "")).await;
    let refused = assert_rpc_error(answer, Code::FailedPrecondition, "WRONG_ENVIRONMENT", None);
    assert_eq!(root_id_of(&refused), Some("r"));
    daemon.stop().await;
}

#[tokio::test]
async fn messages_name_the_problem_of_a_location() {
    let (fixture, daemon, good) = one_skill().await;
    let mut untyped = good.clone();
    untyped.location.as_mut().expect("set").r#type.clear();
    let mut nowhere = good.clone();
    nowhere.location.as_mut().expect("set").environment_id.clear();
    let absent = SelectedCapabilityRoot { id: "r".into(), location: None };
    let longest = "/x".repeat(2_048);
    let too_long = format!("{longest}x");
    let missing = (RootReason::WrongEnvironment, "the environment id is missing");
    let long = (RootReason::InvalidPath, "over 4,096 bytes");
    for (root, expected) in [
        (good, None),
        (untyped, None),
        (nowhere, Some(missing)),
        (absent, Some(missing)),
        (located("r", &longest), Some((RootReason::NotAllowed, "outside every allowed root"))),
        (located("r", &too_long), Some(long)),
        (located("r", &format!("file://{longest}")), Some(long)),
        (located("r", "relative"), Some((RootReason::InvalidPath, "not an absolute path"))),
        (
            located("r", fixture.path("root/gone").to_str().expect("UTF-8")),
            Some((RootReason::NotFound, "does not exist")),
        ),
    ] {
        let status = daemon.list(std::slice::from_ref(&root)).await.roots.remove(0);
        let read = daemon.read(read_request(&root, "skill://r/a", "")).await;
        match expected {
            None => {
                assert_eq!(status.state(), RootState::Ready, "{status:?}");
                read.expect("a page");
            }
            Some((reason, says)) => {
                assert_eq!(status.reason(), reason, "{status:?}");
                assert!(status.message.contains(says), "{status:?}");
                let refused = read.expect_err("an unavailable root");
                assert!(refused.message().contains(says), "{refused:?}");
            }
        }
    }
    daemon.stop().await;
}

#[tokio::test]
async fn a_wrong_authority_is_rejected() {
    let (_fixture, daemon, root) = one_skill().await;
    let authority = |kind: &str, id: &str| Some(Authority { kind: kind.into(), id: id.into() });
    let good = read_request(&root, "skill://r/a", "");
    for wrong in [authority("executor", "s"), authority("host", "r"), authority("", "")] {
        let answer = daemon.read(ReadResourceRequest { authority: wrong, ..good.clone() }).await;
        let refused =
            assert_rpc_error(answer, Code::FailedPrecondition, "AUTHORITY_MISMATCH", None);
        assert_eq!(root_id_of(&refused), Some("r"));
    }
    for right in [authority("executor", "r"), None] {
        daemon
            .read(ReadResourceRequest { authority: right, ..good.clone() })
            .await
            .expect("the selected root");
    }
    daemon.stop().await;
}

#[tokio::test]
async fn a_file_over_the_size_limit_is_rejected() {
    let fixture = Fixture::new("skill root/a\nsparse 101 root/a/big\nsparse 100 root/a/fits");
    let limits = Limits { max_file_bytes: 100, ..Limits::default() };
    let setup = Setup { limits, ..Setup::allowing([fixture.path("root")]) };
    let daemon = Daemon::start(setup).await;
    let root = selected("r", fixture.path("root"));
    let answer = daemon.read(read_request(&root, "skill://r/a", "skill://r/a/big")).await;
    let refused = assert_rpc_error(answer, Code::FailedPrecondition, "TOO_LARGE", None);
    assert_eq!(root_id_of(&refused), Some("r"));
    let fits = daemon.read_all(read_request(&root, "skill://r/a", "skill://r/a/fits")).await;
    assert_eq!(fits.expect("at the limit"), [0; 100]);
    daemon.stop().await;
}
