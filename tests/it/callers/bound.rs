//! Callers that are bound to roots: what each call shows them, and what it does not.

use std::fs;

use caproot::proto::caproot::v1::{
    DiagnosticCode, ListSkillsRequest, ReadResourceRequest, ResetReason, RootReason, RootState,
    SelectedCapabilityRoot,
};
use tonic::{Code, Status};

use super::calls::{files, list, packages, published, read, resolve, roots, step, try_list, watch};
use super::{daemon, write_token};
use crate::fixture::Fixture;
use crate::harness::{
    Daemon, assert_rpc_error, bytes_of, list_request, located, read_request, selected,
};
use crate::watch_harness::retarget;

/// Two callers with a root each, and one with both.
const RULES: &str = "roots: [{id: mine, path: srv/mine}, {id: theirs, path: srv/theirs}]\n\
    allow: [srv]\n\
    callers:\n\
    - {name: me, token_file: me, roots: [mine]}\n\
    - {name: them, token_file: them, roots: [theirs]}\n\
    - {name: all, token_file: all}\n";

const TREE: &str = "skill srv/mine/a\nfile srv/mine/a/own.md\n| mine\n\
    skill srv/theirs/b\nfile srv/theirs/b/secret.md\n| theirs\n\
    link srv/mine/linked -> ../theirs/b\n\
    link srv/mine/gone -> ../theirs/none\n\
    link srv/mine/a/secret.md -> $TMP/srv/theirs/b/secret.md\n\
    link srv/mine/a/more -> ../../theirs/b\n\
    link srv/mine/up -> ..\n\
    link srv/mine/back -> ../theirs/../mine/a\n";

async fn serving_with(tree: &str, rules: &str) -> (Fixture, Daemon) {
    let fixture = Fixture::new(tree);
    for token in ["me", "them", "all"] {
        write_token(&fixture, token, token);
    }
    let daemon = daemon(&fixture, rules).await;
    (fixture, daemon)
}

async fn serving() -> (Fixture, Daemon) {
    serving_with(TREE, RULES).await
}

#[tokio::test]
async fn only_their_own_are_offered() {
    let (_fixture, daemon) = serving().await;
    for (token, expected) in
        [("me", &["mine"][..]), ("them", &["theirs"]), ("all", &["mine", "theirs"])]
    {
        let roots = roots(&daemon, token).await.roots;
        let ids: Vec<_> = roots.iter().map(|root| &*root.id).collect();
        assert_eq!(ids, expected, "{token}");
        assert!(roots.iter().all(|root| root.state() == RootState::Ready), "{roots:?}");
    }
    daemon.stop().await;
}

#[tokio::test]
async fn another_ones_root_is_none() {
    let (fixture, daemon) = serving().await;
    // A name that is another caller's is like one that is nobody's.
    let (theirs, none) = (located("r", "published:theirs"), located("r", "published:no-such-root"));
    let of = async |root: &SelectedCapabilityRoot| {
        let list = list(&daemon, "me", std::slice::from_ref(root)).await;
        assert!(list.skills.is_empty());
        let read = read(&daemon, "me", read_request(root, "skill://r/b", "")).await;
        let read = read.expect_err("no root");
        let files = files(&daemon, "me", root, "skill://r/b").await.expect_err("no root");
        let told = step(&mut watch(&daemon, "me", root, "").await).await;
        assert!(told.upserted.is_empty());
        let seen = |s: &Status| (s.code(), s.message().to_owned(), s.details().to_vec());
        let resolved = resolve(&daemon, "me", root).await;
        (list.roots, list.diagnostics, resolved, seen(&read), seen(&files), told.statuses)
    };
    let refused = of(&theirs).await;
    assert_eq!(refused, of(&none).await);
    assert_eq!(refused.0[0].reason(), RootReason::InvalidPath);
    // A place that is another caller's is like one where nothing is, or that nobody may use.
    let mut all = Vec::new();
    let path = |below: &str| fixture.path(below).to_str().expect("UTF-8").to_owned();
    for place in [
        path("srv/theirs"),
        path("srv/theirs/b"),
        path("srv/theirs/none"),
        path("srv/none"),
        path("srv"),
        path("srv/mine/../theirs"),
        path("srv/mine/linked"),
        path("srv/mine/gone"),
        path("srv/mine/up"),
        path("srv/mine/up/theirs"),
        path("srv/theirs/b/secret.md"),
        format!("file://{}", path("srv/theirs")),
        "/etc".to_owned(),
        "/no/where".to_owned(),
    ] {
        all.push((of(&located("r", &place)).await, place));
    }
    for (refused, place) in &all {
        assert_eq!(*refused, all[0].0, "{place}");
    }
    let (lists, diagnostics, resolved, read, files, watched) = &all[0].0;
    assert!(diagnostics.is_empty() && resolved.diagnostics.is_empty());
    let refused = RootReason::NotAllowed;
    assert_eq!((lists[0].reason(), watched[0].reason()), (refused, refused));
    assert_eq!(read.0, Code::PermissionDenied);
    assert_eq!(read, files);
    daemon.stop().await;
}

#[tokio::test]
async fn links_end_at_the_bound() {
    let (_fixture, daemon) = serving().await;
    let mine = [published("mine")];
    let (bound, all) = (list(&daemon, "me", &mine).await, list(&daemon, "all", &mine).await);
    assert_eq!(packages(&bound), ["skill://mine/a"]);
    assert_eq!(packages(&all), ["skill://mine/a", "skill://mine/linked"]);
    // Each link that leads out is said to, whether anything is there or not.
    let outside = bound.diagnostics.iter().filter(|d| d.code() == DiagnosticCode::OutsideRoot);
    let outside: Vec<_> = outside.map(|d| (&*d.resource, &*d.message)).collect();
    let names: Vec<_> = outside.iter().map(|(resource, _)| *resource).collect();
    assert_eq!(
        names,
        [
            "skill://mine/a/more",
            "skill://mine/a/secret.md",
            "skill://mine/back",
            "skill://mine/gone",
            "skill://mine/linked",
            "skill://mine/up",
        ]
    );
    assert!(outside.iter().all(|(_, message)| *message == outside[0].1), "{outside:?}");
    let root = &mine[0];
    for (package, resource, reason) in [
        ("skill://mine/linked", "", "PACKAGE_NOT_FOUND"),
        ("skill://mine/a", "skill://mine/a/secret.md", "OUTSIDE_ROOT"),
        ("skill://mine/a", "skill://mine/a/more/secret.md", "OUTSIDE_ROOT"),
        ("skill://mine/a", "skill://mine/a/more/none", "OUTSIDE_ROOT"),
    ] {
        let code = match reason {
            "PACKAGE_NOT_FOUND" => Code::NotFound,
            _ => Code::PermissionDenied,
        };
        let refused = read(&daemon, "me", read_request(root, package, resource)).await;
        assert_rpc_error(refused, code, reason, None);
    }
    let own = files(&daemon, "me", root, "skill://mine/a").await.expect("files");
    assert_eq!(own, ["SKILL.md", "own.md"]);
    let whole = files(&daemon, "all", root, "skill://mine/a").await.expect("files");
    assert_eq!(whole, ["SKILL.md", "more/SKILL.md", "more/secret.md", "own.md", "secret.md"]);
    let read =
        read(&daemon, "all", read_request(root, "skill://mine/a", "skill://mine/a/secret.md"));
    assert_eq!(bytes_of(&read.await.expect("allowed")), b"theirs\n");
    daemon.stop().await;
}

#[tokio::test]
async fn a_link_that_is_turned_to_another_ones_root() {
    let tree = "skill srv/mine/one/x\nskill srv/theirs/x\nlink srv/mine/now -> one";
    let (fixture, daemon) = serving_with(tree, RULES).await;
    let now = selected("now", fixture.path("srv/mine/now"));
    let mut stream = watch(&daemon, "me", &now, "").await;
    assert_eq!(step(&mut stream).await.upserted, ["skill://now/x"]);
    retarget(&fixture.path("srv/mine/now"), "../theirs");
    let told = step(&mut stream).await;
    assert_eq!(told.removed, ["skill://now/x"]);
    assert_eq!(told.statuses[0].reason(), RootReason::NotAllowed);
    let refused = read(&daemon, "me", read_request(&now, "skill://now/x", "")).await;
    assert_rpc_error(refused, Code::PermissionDenied, "ROOT_NOT_ALLOWED", None);
    retarget(&fixture.path("srv/mine/now"), "one");
    assert_eq!(step(&mut stream).await.upserted, ["skill://now/x"]);
    daemon.stop().await;
}

#[tokio::test]
async fn a_bound_that_is_moved() {
    let tree = "skill srv/v1/a\nskill srv/v2/b\nlink srv/mine -> v1\nskill srv/theirs/x";
    let (fixture, daemon) = serving_with(tree, RULES).await;
    let mine = published("mine");
    let mut stream = watch(&daemon, "me", &mine, "").await;
    assert_eq!(step(&mut stream).await.upserted, ["skill://mine/a"]);
    let old = selected("old", fixture.path("srv/v1"));
    assert_eq!(packages(&list(&daemon, "me", std::slice::from_ref(&old)).await), ["skill://old/a"]);
    let mut on_old = watch(&daemon, "me", &old, "").await;
    step(&mut on_old).await;
    // The operator's root is elsewhere now, and the bound goes with it.
    retarget(&fixture.path("srv/mine"), "v2");
    let told = step(&mut stream).await;
    assert_eq!(
        (&*told.upserted, &*told.removed),
        (&["skill://mine/b".to_owned()][..], &["skill://mine/a".to_owned()][..])
    );
    assert_eq!(step(&mut on_old).await.statuses[0].reason(), RootReason::NotAllowed);
    let refused = read(&daemon, "me", read_request(&old, "skill://old/a", "")).await;
    assert_rpc_error(refused, Code::PermissionDenied, "ROOT_NOT_ALLOWED", None);
    daemon.stop().await;
}

#[tokio::test]
async fn tokens_of_others_give_nothing() {
    let tree = "skill srv/mine/a\nskill srv/mine/b\nlink srv/mine/c -> ../theirs/d\n\
                skill srv/theirs/d\nfile srv/theirs/d/f.md\n| 0123456789";
    let (_fixture, daemon) = serving_with(tree, RULES).await;
    let mine = published("mine");
    let page = |page_token: &str| ListSkillsRequest {
        page_size: 1,
        page_token: page_token.into(),
        ..list_request(std::slice::from_ref(&mine))
    };
    let first = try_list(&daemon, "all", page("")).await.expect("a page");
    let second = try_list(&daemon, "all", page(&first.next_page_token)).await.expect("a page");
    for token in [&first.next_page_token, &second.next_page_token] {
        let refused = try_list(&daemon, "me", page(token)).await;
        assert_rpc_error(refused, Code::InvalidArgument, "INVALID_ARGUMENT", Some("page_token"));
    }
    let own = try_list(&daemon, "me", page("")).await.expect("a page");
    let end = try_list(&daemon, "me", page(&own.next_page_token)).await.expect("a page");
    assert_eq!((packages(&end), &*end.next_page_token), (vec!["skill://mine/b"], ""));
    // A stream that is resumed with another caller's token begins anew, with what is its own.
    let token = list(&daemon, "all", std::slice::from_ref(&mine)).await.resume_token;
    let mut stream = watch(&daemon, "me", &mine, &token).await;
    let told = step(&mut stream).await;
    assert_eq!(told.reset, Some(ResetReason::SelectionChanged));
    assert_eq!(told.upserted, ["skill://mine/a", "skill://mine/b"]);
    let mut stream = watch(&daemon, "me", &mine, &told.token).await;
    let told = step(&mut stream).await;
    assert_eq!((told.reset, &*told.upserted), (None, &[][..]));
    // A cursor is a place in a file, which must be one's own.
    let file = ReadResourceRequest {
        max_bytes: 4,
        ..read_request(&mine, "skill://mine/c", "skill://mine/c/f.md")
    };
    let cursor = read(&daemon, "all", file.clone()).await.expect("a page").next_cursor;
    let refused = read(&daemon, "me", ReadResourceRequest { cursor, ..file }).await;
    assert_rpc_error(refused, Code::NotFound, "PACKAGE_NOT_FOUND", None);
    daemon.stop().await;
}

/// A bound ends what is served, and changes neither a skill's name nor what is switched off.
#[tokio::test]
async fn names_and_rules_are_everybodys() {
    let rules = "roots: [{id: plugins, path: srv/plugins}]\n\
        callers:\n\
        - {name: me, token_file: me, roots: [/TOP/srv/plugins/p/skills/on, /TOP/srv/plugins/p/skills/sub]}\n\
        - {name: all, token_file: all}\n\
        disabled_skills: [{name: 'plug:by-name'}, {root: plugins, path: 'p/skills/sub/*-place'}]\n";
    let fixture = Fixture::new(
        "file srv/plugins/p/.codex-plugin/plugin.json\n| {\"name\": \"plug\"}\n\
         skill srv/plugins/p/skills/on\nskill srv/plugins/p/skills/sub/by-place\n\
         skill srv/plugins/p/skills/sub/by-name\nskill srv/plugins/p/skills/sub/left\n\
         skill srv/plugins/p/skills/other",
    );
    for token in ["me", "all"] {
        write_token(&fixture, token, token);
    }
    let rules = rules.replace("/TOP", fixture.top().to_str().expect("UTF-8"));
    let daemon = daemon(&fixture, &rules).await;
    let of = async |token: &str, path: &str| {
        let root = selected("r", fixture.path(path));
        let list = list(&daemon, token, &[root]).await;
        let disabled = list.roots[0].counts.map(|counts| counts.disabled);
        (list.skills.into_iter().map(|skill| skill.name).collect::<Vec<_>>(), disabled)
    };
    for (path, names, disabled) in [
        ("srv/plugins/p/skills/on", &["plug:on"][..], 0),
        ("srv/plugins/p/skills/sub", &["plug:left"], 2),
    ] {
        let bound = of("me", path).await;
        assert_eq!(bound, (names.iter().map(|n| (*n).to_owned()).collect(), Some(disabled)));
        assert_eq!(bound, of("all", path).await, "{path}");
    }
    assert!(roots(&daemon, "me").await.roots.is_empty());
    assert_eq!(of("me", "srv/plugins/p/skills").await, (Vec::new(), None));
    // Nothing is said of what is wrong with a manifest above the bound.
    fixture.write("srv/plugins/p/.codex-plugin/plugin.json", "{\"name\": ");
    let root = [selected("r", fixture.path("srv/plugins/p/skills/on"))];
    let fresh = ListSkillsRequest { consistency: 2, ..list_request(&root) };
    let bound = try_list(&daemon, "me", fresh.clone()).await.expect("a list");
    assert_eq!((&*bound.skills[0].name, &*bound.diagnostics), ("on", &[][..]));
    let all = try_list(&daemon, "all", fresh).await.expect("a list");
    assert_eq!(all.diagnostics[0].code(), DiagnosticCode::ManifestInvalid);
    daemon.stop().await;
}

/// What each of several rules gives is given.
#[tokio::test]
async fn several_rules_give_their_union() {
    let fixture =
        Fixture::new("skill a/x\nskill b/y\nskill c/z\nlink a/l -> ../b/y\nlink a/m -> ../c/z");
    write_token(&fixture, "t", "t");
    let rules = "roots: [{id: a, path: a}, {id: b, path: b}, {id: c, path: c}]\n\
                 callers: [{name: 1, token_file: t, roots: [a]}, {name: '2', token_file: t, roots: [b]}]";
    let daemon = daemon(&fixture, &rules.replace("name: 1", "name: '1'")).await;
    let ids: Vec<_> = roots(&daemon, "t").await.roots.into_iter().map(|root| root.id).collect();
    assert_eq!(ids, ["a", "b"]);
    let both = list(&daemon, "t", &[published("a"), published("b"), published("c")]).await;
    assert_eq!(packages(&both), ["skill://a/x", "skill://a/l", "skill://b/y"]);
    // A directory that is taken away and made again is the same root.
    fs::remove_dir_all(fixture.path("b")).expect("removed");
    let gone = list_request(&[published("b")]);
    let gone = try_list(&daemon, "t", ListSkillsRequest { consistency: 2, ..gone }).await;
    assert_eq!(gone.expect("a list").roots[0].reason(), RootReason::NotFound);
    daemon.stop().await;
}
