//! Callers whose rule names roots: each call serves these roots only.

use std::fs;

use caproot_core::proto::caproot::v1::{
    DiagnosticCode, GetExecutorRequest, ListSkillsRequest, ReadResourceRequest, ResetReason,
    RootReason, RootState, SelectedCapabilityRoot,
};
use tonic::{Code, Status};

use super::calls::{list, list_files, next_update, published_roots, resolve, watch};
use super::{start_configured_daemon, with_token, write_token};
use crate::harness::fixture::Fixture;
use crate::harness::watch_harness::retarget;
use crate::harness::{
    Daemon, assert_rpc_error, bytes_of, in_time, list_request, located, packages, published,
    read_request, selected,
};

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

async fn start_with_tree(tree: &str, rules: &str) -> (Fixture, Daemon) {
    let fixture = Fixture::new(tree);
    for token in ["me", "them", "all"] {
        write_token(&fixture, token, token);
    }
    let daemon = start_configured_daemon(&fixture, rules).await;
    (fixture, daemon)
}

async fn start_with_rules() -> (Fixture, Daemon) {
    start_with_tree(TREE, RULES).await
}

/// The manifest of a plugin above the roots of a caller gives its skills their names, and says nothing else.
#[tokio::test]
async fn a_manifest_above_the_scope_says_no_capabilities_of_a_host() {
    let tree = "file srv/.claude-plugin/plugin.json\n\
                | {\"name\": \"p\", \"requires\": {\"hostCapabilities\": [\"tray\"]}}\n\
                skill srv/mine/a";
    let rules = "roots: [{id: mine, path: srv/mine}]\nallow: [srv]\ncallers:\n\
                 - {name: me, token_file: me, roots: [mine]}\n- {name: all, token_file: all}\n";
    let (_fixture, daemon) = start_with_tree(tree, rules).await;
    for (token, needs) in [("me", &[][..]), ("all", &["tray"])] {
        let found = list(&daemon, token, &[published("mine")]).await;
        let [skill] = &found.skills[..] else {
            panic!("{token}: {found:?}")
        };
        assert_eq!(skill.name, "p:a", "{token}");
        assert_eq!(skill.host_capabilities, needs, "{token}");
        assert_eq!(skill.plugin_package(), None, "{token}");
    }
    daemon.stop().await;
}

#[tokio::test]
async fn list_roots_shows_allowed_roots_only() {
    let (_fixture, daemon) = start_with_rules().await;
    for (token, expected) in [
        ("me", &["mine"][..]),
        ("them", &["theirs"]),
        ("all", &["mine", "theirs"]),
    ] {
        let roots = published_roots(&daemon, token).await;
        let ids: Vec<_> = roots.iter().map(|root| &*root.id).collect();
        assert_eq!(ids, expected, "{token}");
        assert!(
            roots.iter().all(|root| root.state() == RootState::Ready),
            "{roots:?}"
        );
    }
    daemon.stop().await;
}

#[tokio::test]
async fn roots_of_other_callers_look_like_missing_roots() {
    let (fixture, daemon) = start_with_rules().await;
    // The name of another caller's root gets the response of an unknown name.
    let (theirs, none) = (
        located("r", "published:theirs"),
        located("r", "published:no-such-root"),
    );
    let responses = async |root: &SelectedCapabilityRoot| {
        let list = list(&daemon, "me", std::slice::from_ref(root)).await;
        assert!(list.skills.is_empty());
        let read = daemon
            .read(with_token("me", read_request(root, "skill://r/b", "")))
            .await;
        let read = read.expect_err("no root");
        let files = list_files(&daemon, "me", root, "skill://r/b")
            .await
            .expect_err("no root");
        let update = next_update(&mut watch(&daemon, "me", root, "").await).await;
        assert!(update.upserted.is_empty());
        let visible = |s: &Status| (s.code(), s.message().to_owned(), s.details().to_vec());
        let resolved = resolve(&daemon, "me", root).await;
        (
            list.roots,
            list.diagnostics,
            resolved,
            visible(&read),
            visible(&files),
            update.statuses,
        )
    };
    let hidden = responses(&theirs).await;
    assert_eq!(hidden, responses(&none).await);
    assert_eq!(hidden.0[0].reason(), RootReason::InvalidPath);
    // The message names only the published roots in the scope of the caller.
    assert_eq!(
        hidden.0[0].message,
        "no published root has this name; correct the name in the root's path; the published roots \
         are `mine`"
    );
    // A path in another caller's root gets the response of a missing or denied path.
    let mut all = Vec::new();
    let path = |below: &str| fixture.path(below).to_str().expect("UTF-8").to_owned();
    for path in [
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
        all.push((responses(&located("r", &path)).await, path));
    }
    for (denied, path) in &all {
        assert_eq!(*denied, all[0].0, "{path}");
    }
    let (lists, diagnostics, resolved, read, files, watched) = &all[0].0;
    assert!(diagnostics.is_empty() && resolved.diagnostics.is_empty());
    let denied = RootReason::NotAllowed;
    assert_eq!((lists[0].reason(), watched[0].reason()), (denied, denied));
    assert_eq!(read.0, Code::PermissionDenied);
    assert_eq!(read, files);
    daemon.stop().await;
}

#[tokio::test]
async fn links_out_of_the_allowed_roots_are_not_followed() {
    let (_fixture, daemon) = start_with_rules().await;
    let mine = [published("mine")];
    let (scoped, all) = (
        list(&daemon, "me", &mine).await,
        list(&daemon, "all", &mine).await,
    );
    assert_eq!(packages(&scoped), ["skill://mine/a"]);
    assert_eq!(packages(&all), ["skill://mine/a", "skill://mine/linked"]);
    // Each link that leads out gets the same diagnostic, whether its target exists or not.
    let outside = scoped
        .diagnostics
        .iter()
        .filter(|d| d.code() == DiagnosticCode::OutsideRoot);
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
    assert!(
        outside.iter().all(|(_, message)| *message == outside[0].1),
        "{outside:?}"
    );
    let root = &mine[0];
    for (package, resource, reason) in [
        ("skill://mine/linked", "", "PACKAGE_NOT_FOUND"),
        ("skill://mine/a", "skill://mine/a/secret.md", "OUTSIDE_ROOT"),
        (
            "skill://mine/a",
            "skill://mine/a/more/secret.md",
            "OUTSIDE_ROOT",
        ),
        ("skill://mine/a", "skill://mine/a/more/none", "OUTSIDE_ROOT"),
    ] {
        let code = match reason {
            "PACKAGE_NOT_FOUND" => Code::NotFound,
            _ => Code::PermissionDenied,
        };
        let denied = daemon
            .read(with_token("me", read_request(root, package, resource)))
            .await;
        assert_rpc_error(denied, code, reason, None);
    }
    let own = list_files(&daemon, "me", root, "skill://mine/a")
        .await
        .expect("files");
    assert_eq!(own, ["SKILL.md", "own.md"]);
    let whole = list_files(&daemon, "all", root, "skill://mine/a")
        .await
        .expect("files");
    assert_eq!(
        whole,
        [
            "SKILL.md",
            "more/SKILL.md",
            "more/secret.md",
            "own.md",
            "secret.md"
        ]
    );
    let read = daemon.read(with_token(
        "all",
        read_request(root, "skill://mine/a", "skill://mine/a/secret.md"),
    ));
    assert_eq!(bytes_of(&read.await.expect("allowed")), b"theirs\n");
    daemon.stop().await;
}

#[tokio::test]
async fn a_link_retargeted_to_another_callers_root_ends_access() {
    let tree = "skill srv/mine/one/x\nskill srv/theirs/x\nlink srv/mine/now -> one";
    let (fixture, daemon) = start_with_tree(tree, RULES).await;
    let now = selected("now", fixture.path("srv/mine/now"));
    let mut stream = watch(&daemon, "me", &now, "").await;
    assert_eq!(next_update(&mut stream).await.upserted, ["skill://now/x"]);
    retarget(&fixture.path("srv/mine/now"), "../theirs");
    let update = next_update(&mut stream).await;
    assert_eq!(update.removed, ["skill://now/x"]);
    assert_eq!(update.statuses[0].reason(), RootReason::NotAllowed);
    let denied = daemon
        .read(with_token("me", read_request(&now, "skill://now/x", "")))
        .await;
    assert_rpc_error(denied, Code::PermissionDenied, "ROOT_NOT_ALLOWED", None);
    retarget(&fixture.path("srv/mine/now"), "one");
    assert_eq!(next_update(&mut stream).await.upserted, ["skill://now/x"]);
    daemon.stop().await;
}

#[tokio::test]
async fn a_retargeted_root_moves_the_access_scope() {
    let tree = "skill srv/v1/a\nskill srv/v2/b\nlink srv/mine -> v1\nskill srv/theirs/x";
    let (fixture, daemon) = start_with_tree(tree, RULES).await;
    let mine = published("mine");
    let mut stream = watch(&daemon, "me", &mine, "").await;
    assert_eq!(next_update(&mut stream).await.upserted, ["skill://mine/a"]);
    let old = selected("old", fixture.path("srv/v1"));
    assert_eq!(
        packages(&list(&daemon, "me", std::slice::from_ref(&old)).await),
        ["skill://old/a"]
    );
    let mut on_old = watch(&daemon, "me", &old, "").await;
    next_update(&mut on_old).await;
    // The operator's root now leads elsewhere, and the caller's scope follows.
    retarget(&fixture.path("srv/mine"), "v2");
    let update = next_update(&mut stream).await;
    assert_eq!(
        (&*update.upserted, &*update.removed),
        (
            &["skill://mine/b".to_owned()][..],
            &["skill://mine/a".to_owned()][..]
        )
    );
    assert_eq!(
        next_update(&mut on_old).await.statuses[0].reason(),
        RootReason::NotAllowed
    );
    let denied = daemon
        .read(with_token("me", read_request(&old, "skill://old/a", "")))
        .await;
    assert_rpc_error(denied, Code::PermissionDenied, "ROOT_NOT_ALLOWED", None);
    daemon.stop().await;
}

#[tokio::test]
async fn page_and_resume_tokens_of_other_callers_give_nothing() {
    let tree = "skill srv/mine/a\nskill srv/mine/b\nlink srv/mine/c -> ../theirs/d\n\
                skill srv/theirs/d\nfile srv/theirs/d/f.md\n| 0123456789";
    let (_fixture, daemon) = start_with_tree(tree, RULES).await;
    let mine = published("mine");
    let page = |page_token: &str| ListSkillsRequest {
        page_size: 1,
        page_token: page_token.into(),
        ..list_request(std::slice::from_ref(&mine))
    };
    let first = daemon
        .try_list(with_token("all", page("")))
        .await
        .expect("a page");
    let second = daemon
        .try_list(with_token("all", page(&first.next_page_token)))
        .await
        .expect("a page");
    for token in [&first.next_page_token, &second.next_page_token] {
        let denied = daemon.try_list(with_token("me", page(token))).await;
        assert_rpc_error(
            denied,
            Code::InvalidArgument,
            "INVALID_ARGUMENT",
            Some("page_token"),
        );
    }
    let own = daemon
        .try_list(with_token("me", page("")))
        .await
        .expect("a page");
    let end = daemon
        .try_list(with_token("me", page(&own.next_page_token)))
        .await
        .expect("a page");
    assert_eq!(
        (packages(&end), &*end.next_page_token),
        (vec!["skill://mine/b"], "")
    );
    // A stream resumed with another caller's token starts again, with its own caller's skills.
    let token = list(&daemon, "all", std::slice::from_ref(&mine))
        .await
        .resume_token;
    let mut stream = watch(&daemon, "me", &mine, &token).await;
    let update = next_update(&mut stream).await;
    assert_eq!(update.reset, Some(ResetReason::SelectionChanged));
    assert_eq!(update.upserted, ["skill://mine/a", "skill://mine/b"]);
    let mut stream = watch(&daemon, "me", &mine, &update.token).await;
    let update = next_update(&mut stream).await;
    assert_eq!((update.reset, &*update.upserted), (None, &[][..]));
    // A cursor names a position in a file, which must lie in the caller's scope.
    let file = ReadResourceRequest {
        max_bytes: 4,
        ..read_request(&mine, "skill://mine/c", "skill://mine/c/f.md")
    };
    let cursor = daemon
        .read(with_token("all", file.clone()))
        .await
        .expect("a page")
        .next_cursor;
    let denied = daemon
        .read(with_token("me", ReadResourceRequest { cursor, ..file }))
        .await;
    assert_rpc_error(denied, Code::NotFound, "PACKAGE_NOT_FOUND", None);
    daemon.stop().await;
}

/// An access scope limits the served files. Names of skills and `disabled_skills` stay the same.
#[tokio::test]
async fn skill_names_and_disabled_skills_do_not_depend_on_the_caller() {
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
    let daemon = start_configured_daemon(&fixture, &rules).await;
    let names_and_disabled = async |token: &str, path: &str| {
        let root = selected("r", fixture.path(path));
        let list = list(&daemon, token, &[root]).await;
        let disabled = list.roots[0].counts.map(|counts| counts.disabled);
        (
            list.skills
                .into_iter()
                .map(|skill| skill.name)
                .collect::<Vec<_>>(),
            disabled,
        )
    };
    for (path, names, disabled) in [
        ("srv/plugins/p/skills/on", &["plug:on"][..], 0),
        ("srv/plugins/p/skills/sub", &["plug:left"], 2),
    ] {
        let scoped = names_and_disabled("me", path).await;
        assert_eq!(
            scoped,
            (
                names.iter().map(|n| (*n).to_owned()).collect(),
                Some(disabled)
            )
        );
        assert_eq!(scoped, names_and_disabled("all", path).await, "{path}");
    }
    assert!(published_roots(&daemon, "me").await.is_empty());
    assert_eq!(
        names_and_disabled("me", "srv/plugins/p/skills").await,
        (Vec::new(), None)
    );
    // A broken manifest above the caller's scope gives the caller no diagnostic.
    fixture.write("srv/plugins/p/.codex-plugin/plugin.json", "{\"name\": ");
    let root = [selected("r", fixture.path("srv/plugins/p/skills/on"))];
    let fresh = ListSkillsRequest {
        consistency: 2,
        ..list_request(&root)
    };
    let scoped = daemon
        .try_list(with_token("me", fresh.clone()))
        .await
        .expect("a list");
    assert_eq!(
        (&*scoped.skills[0].name, &*scoped.diagnostics),
        ("on", &[][..])
    );
    let all = daemon
        .try_list(with_token("all", fresh))
        .await
        .expect("a list");
    assert_eq!(all.diagnostics[0].code(), DiagnosticCode::ManifestInvalid);
    daemon.stop().await;
}

#[tokio::test]
async fn a_caller_gets_the_roots_of_all_matching_rules() {
    let fixture =
        Fixture::new("skill a/x\nskill b/y\nskill c/z\nlink a/l -> ../b/y\nlink a/m -> ../c/z");
    write_token(&fixture, "t", "t");
    let rules = "roots: [{id: a, path: a}, {id: b, path: b}, {id: c, path: c}]\n\
                 callers: [{name: 1, token_file: t, roots: [a]}, {name: '2', token_file: t, roots: [b]}]";
    let daemon = start_configured_daemon(&fixture, &rules.replace("name: 1", "name: '1'")).await;
    let ids: Vec<_> = published_roots(&daemon, "t")
        .await
        .into_iter()
        .map(|root| root.id)
        .collect();
    assert_eq!(ids, ["a", "b"]);
    let both = list(
        &daemon,
        "t",
        &[published("a"), published("b"), published("c")],
    )
    .await;
    assert_eq!(
        packages(&both),
        ["skill://a/x", "skill://a/l", "skill://b/y"]
    );
    // A root whose directory is removed stays allowed: the reason is NOT_FOUND.
    fs::remove_dir_all(fixture.path("b")).expect("removed");
    let gone = list_request(&[published("b")]);
    let gone = daemon
        .try_list(with_token(
            "t",
            ListSkillsRequest {
                consistency: 2,
                ..gone
            },
        ))
        .await;
    assert_eq!(
        gone.expect("a list").roots[0].reason(),
        RootReason::NotFound
    );
    daemon.stop().await;
}

#[tokio::test]
async fn a_root_in_several_scopes_is_counted_once() {
    let stats = async |tokens: &[&str]| {
        let (_fixture, daemon) = start_with_rules().await;
        for token in tokens {
            published_roots(&daemon, token).await;
        }
        let request = with_token("all", GetExecutorRequest {});
        let executor = in_time(daemon.client.clone().get_executor(request)).await;
        let executor = executor.expect("GetExecutor").into_inner();
        daemon.stop().await;
        (
            executor.catalog_stats.expect("counts"),
            executor.watch.expect("a status").roots,
        )
    };
    let (counts, watched) = stats(&["all"]).await;
    let published = counts.published_roots.expect("counts");
    assert_eq!((published.ready, watched), (2, 2));
    assert_eq!(stats(&["me", "all", "them"]).await, (counts, watched));
}
