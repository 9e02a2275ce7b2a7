//! Published roots, the default locations, and roots that change between two calls.

use std::fs;

use caproot_core::proto::caproot::v1::{
    ListSkillsResponse, PublishedRoot, RootReason, RootState, Scope, SelectedCapabilityRoot,
};

use crate::harness::fixture::Fixture;
use crate::harness::watch_harness::fresh_list;
use crate::harness::{Daemon, Setup, isolated_env, located, selected};

async fn fresh(daemon: &Daemon, root: &SelectedCapabilityRoot) -> ListSkillsResponse {
    fresh_list(daemon, std::slice::from_ref(root)).await
}

fn skill_names(answer: &ListSkillsResponse) -> Vec<&str> {
    answer.skills.iter().map(|s| &*s.name).collect()
}

#[tokio::test]
async fn a_published_root_is_selected_without_a_path() {
    let fixture = Fixture::new("skill b/one\nskill a/two");
    let roots = ["b", "a"].map(|id| (Some(id.to_owned()), fixture.path(id)));
    let setup = Setup {
        roots: roots.into(),
        ..Setup::default()
    };
    let daemon = Daemon::start(setup).await;
    let roots = daemon.published_roots().await;
    assert_eq!(
        roots.iter().map(|r| &*r.id).collect::<Vec<_>>(),
        ["a", "b"],
        "by id"
    );
    for root in roots {
        assert_eq!(root.state(), RootState::Ready);
        let select = root
            .selected_capability_root
            .clone()
            .expect("ready to be sent back");
        let location = select.location.clone().expect("a location");
        assert_eq!(location.path, format!("published:{}", root.id));
        assert_eq!(
            (&*location.r#type, &*location.environment_id),
            ("environment", "local")
        );
        let answer = daemon.list(&[select]).await;
        assert_eq!(answer.skills.len(), 1);
        assert_eq!(
            answer.skills[0].scope,
            Some(root.scope),
            "a published root has a scope"
        );
    }
    let by_path = daemon.list(&[selected("x", fixture.path("a"))]).await;
    assert_eq!(skill_names(&by_path), ["two"]);
    daemon.stop().await;
}

#[tokio::test]
async fn a_root_that_is_not_published_has_no_scope() {
    let (_fixture, daemon, root) = Setup::default().serve("skill root/a").await;
    assert!(daemon.published_roots().await.is_empty());
    assert_eq!(
        daemon.list(std::slice::from_ref(&root)).await.skills[0].scope,
        None
    );
    assert_eq!(daemon.resolve(&[root]).await.roots[0].scope, None);
    daemon.stop().await;
}

#[tokio::test]
async fn default_locations_are_published_in_scope_order() {
    let fixture = Fixture::new(
        "skill work/.agents/skills/of-repo\nskill home/.agents/skills/of-user\n\
         skill home/.codex/skills/of-codex\nskill home/.codex/skills/.system/of-system\n\
         skill home/elsewhere/linked\n\
         link home/.codex/skills/.system/link -> ../of-codex\n\
         skill etc/codex/skills/of-admin",
    );
    let setup = Setup {
        env: isolated_env(fixture.top()),
        ..Setup::default()
    };
    let daemon = Daemon::start(setup).await;
    let roots = daemon.published_roots().await;
    let scopes: Vec<_> = roots.iter().map(PublishedRoot::scope).collect();
    assert_eq!(
        scopes,
        [
            Scope::Repo,
            Scope::User,
            Scope::User,
            Scope::System,
            Scope::Admin
        ]
    );
    assert!(
        roots.iter().all(|r| r.state() == RootState::Ready),
        "{roots:?}"
    );
    let select: Vec<_> = roots
        .iter()
        .map(|r| r.selected_capability_root.clone().expect("set"))
        .collect();
    let answer = daemon.list(&select).await;
    let found: std::collections::BTreeMap<_, _> = answer
        .skills
        .iter()
        .map(|s| (&*s.name, s.scope()))
        .collect();
    // A published root is not scanned inside another published root, and links in SYSTEM are not
    // followed.
    let expected = [
        ("of-admin", Scope::Admin),
        ("of-codex", Scope::User),
        ("of-repo", Scope::Repo),
        ("of-system", Scope::System),
        ("of-user", Scope::User),
    ];
    assert_eq!(found, expected.into());
    assert_eq!(answer.skills.len(), 5, "each is listed once");
    let codes: Vec<_> = answer
        .diagnostics
        .iter()
        .map(|d| d.code().as_str_name())
        .collect();
    assert!(
        codes.contains(&"DIAGNOSTIC_CODE_OUTSIDE_ROOT"),
        "the link is reported: {codes:?}"
    );
    daemon.stop().await;
}

#[tokio::test]
async fn default_locations_with_the_same_directory_are_published_once() {
    let fixture = Fixture::new(
        "skill home/.agents/skills/one\nskill home/.codex/skills/two\nlink linked -> home",
    );
    for current_dir in ["home", "linked"] {
        let mut env = isolated_env(fixture.top());
        env.current_dir = Some(fixture.path(current_dir));
        let daemon = Daemon::start(Setup {
            env,
            ..Setup::default()
        })
        .await;
        let roots = daemon.published_roots().await;
        let ids: Vec<_> = roots.iter().map(|root| &*root.id).collect();
        assert_eq!(ids, ["codex", "user"], "in {current_dir}");
        let select: Vec<_> = roots
            .iter()
            .map(|r| r.selected_capability_root.clone().expect("set"))
            .collect();
        let names: Vec<_> = daemon
            .list(&select)
            .await
            .skills
            .into_iter()
            .map(|skill| skill.name)
            .collect();
        assert_eq!(names, ["two", "one"], "in {current_dir}");
        daemon.stop().await;
    }
}

#[tokio::test]
async fn codex_home_is_used_and_missing_locations_are_ignored() {
    let fixture = Fixture::new("skill codex/skills/one");
    let mut env = isolated_env(fixture.top());
    env.codex_home = Some(fixture.path("codex"));
    let daemon = Daemon::start(Setup {
        env,
        ..Setup::default()
    })
    .await;
    let roots = daemon.published_roots().await;
    assert_eq!(
        roots.iter().map(PublishedRoot::scope).collect::<Vec<_>>(),
        [Scope::User]
    );
    daemon.stop().await;
}

#[tokio::test]
async fn ids_of_published_roots_are_made_unique() {
    let fixture = Fixture::new("skill a/same/one\nskill b/same/two\nskill c/same/three");
    let roots = ["a/same", "b/same", "c/same"].map(|dir| (None, fixture.path(dir)));
    let daemon = Daemon::start(Setup {
        roots: roots.into(),
        ..Setup::default()
    })
    .await;
    let roots = daemon.published_roots().await;
    let ids: std::collections::BTreeSet<_> = roots.iter().map(|r| &*r.id).collect();
    assert_eq!(ids.len(), 3, "{ids:?}");
    assert!(
        ids.contains("same") && ids.iter().all(|id| id.starts_with("same")),
        "{ids:?}"
    );
    daemon.stop().await;
}

#[tokio::test]
async fn a_fresh_list_includes_earlier_changes() {
    let (mut fixture, daemon, root) = Setup::default().serve("skill root/a").await;
    let first = daemon.list(std::slice::from_ref(&root)).await;
    assert_eq!(skill_names(&first), ["a"]);
    let same = fresh(&daemon, &root).await;
    assert_eq!(same.revision, first.revision, "no change is no revision");
    let mut revision = first.revision;
    for round in 0..20 {
        fixture.add(&format!("skill root/new{round:02}"));
        let answer = fresh(&daemon, &root).await;
        assert_eq!(answer.skills.len(), round + 2);
        assert!(answer.revision > revision, "a change is a revision");
        revision = answer.revision;
    }
    fixture.write(
        "root/a/SKILL.md",
        "---\nname: a\ndescription: Edited.\n---\n",
    );
    assert_eq!(fresh(&daemon, &root).await.skills[0].description, "Edited.");
    fs::remove_dir_all(fixture.path("root/a")).expect("remove");
    assert_eq!(fresh(&daemon, &root).await.skills.len(), 20);
    daemon.stop().await;
}

#[tokio::test]
async fn a_root_that_is_removed_and_recreated_is_found() {
    let mut fixture = Fixture::new("dir top");
    let daemon = Daemon::start(Setup::allowing([fixture.path("top")])).await;
    let root = selected("r", fixture.path("top/root"));
    for _ in 0..2 {
        let answer = fresh(&daemon, &root).await;
        assert_eq!(answer.roots[0].reason(), RootReason::NotFound);
        fixture.add("skill top/root/one");
        let answer = fresh(&daemon, &root).await;
        assert_eq!(
            (answer.roots[0].state(), skill_names(&answer)),
            (RootState::Ready, vec!["one"])
        );
        fs::remove_dir_all(fixture.path("top/root")).expect("remove");
    }
    fixture.write("top/root", "now a file");
    assert_eq!(
        fresh(&daemon, &root).await.roots[0].reason(),
        RootReason::NotADirectory
    );
    daemon.stop().await;
}

#[tokio::test]
async fn a_root_follows_a_changed_link() {
    let mut fixture = Fixture::new("skill top/v1/one\nskill top/v2/two\nlink top/current -> v1");
    let daemon = Daemon::start(Setup::allowing([fixture.path("top")])).await;
    let root = selected("r", fixture.path("top/current"));
    assert_eq!(skill_names(&fresh(&daemon, &root).await), ["one"]);
    fixture.add("link top/next -> v2");
    fs::rename(fixture.path("top/next"), fixture.path("top/current")).expect("rename");
    assert_eq!(skill_names(&fresh(&daemon, &root).await), ["two"]);
    fixture.add("link top/next -> ../out");
    fs::rename(fixture.path("top/next"), fixture.path("top/current")).expect("rename");
    assert_eq!(
        fresh(&daemon, &root).await.roots[0].reason(),
        RootReason::NotAllowed
    );
    daemon.stop().await;
}

#[tokio::test]
async fn an_unknown_published_name_is_an_invalid_path() {
    let fixture = Fixture::new("skill root/a");
    let daemon = Daemon::start(Setup::publishing("p", fixture.path("root"))).await;
    let answer = daemon
        .list(&[located("x", "published:q"), located("y", "published:p")])
        .await;
    assert_eq!(answer.roots[0].reason(), RootReason::InvalidPath);
    let message = &answer.roots[0].message;
    assert!(
        message.ends_with("; the published roots are `p`"),
        "{message}"
    );
    assert_eq!(answer.roots[1].state(), RootState::Ready);
    assert_eq!(
        answer.skills[0].package, "skill://y/a",
        "handles carry the selection's id"
    );
    daemon.stop().await;
}

#[tokio::test]
async fn a_removed_published_root_is_not_found() {
    let fixture = Fixture::new("skill top/root/a\nskill top/other/b");
    let mut setup = Setup::publishing("p", fixture.path("top/root"));
    setup.allow.push(fixture.path("top"));
    let daemon = Daemon::start(setup).await;
    assert_eq!(daemon.published_roots().await[0].state(), RootState::Ready);
    fs::remove_dir_all(fixture.path("top/root")).expect("remove");
    let root = located("p", "published:p");
    assert_eq!(
        fresh(&daemon, &root).await.roots[0].reason(),
        RootReason::NotFound
    );
    let listed = daemon.published_roots().await.remove(0);
    assert_eq!(
        (listed.state(), listed.reason()),
        (RootState::Unavailable, RootReason::NotFound)
    );
    assert!(!listed.message.is_empty());
    daemon.stop().await;
}

/// The catalog of an unchanged tree is the same after each start, except for epoch, revision and
/// token.
#[tokio::test]
async fn two_daemons_give_the_same_list_of_one_tree() {
    let fixture = Fixture::new(
        "repeat 40 skill root/s{}\nrepeat 9 link root/l{} -> s0{}\nskill root/.git/x\n\
         repeat 5 file root/bad{}/SKILL.md\n| {}\nlink root/out -> ..",
    );
    let root = selected("r", fixture.path("root"));
    let mut lists = Vec::new();
    for _ in 0..2 {
        let daemon = Daemon::start(Setup::allowing([fixture.path("root")])).await;
        let mut answer = daemon.list(std::slice::from_ref(&root)).await;
        (answer.epoch, answer.revision) = (String::new(), 0);
        // The resume token contains the epoch and the revision.
        answer.resume_token.clear();
        assert_eq!(answer.skills.len(), 40);
        lists.push(answer);
        daemon.stop().await;
    }
    assert_eq!(lists[0], lists[1]);
}

#[tokio::test]
async fn the_message_of_an_unknown_published_name_is_bounded() {
    let fixture = Fixture::new("repeat 12 skill root{}/a");
    let long = "x".repeat(200);
    let roots = (0..12).map(|n| {
        (
            Some(format!("{n:02}{long}")),
            fixture.path(&format!("root{n:02}")),
        )
    });
    let daemon = Daemon::start(Setup {
        roots: roots.collect(),
        ..Setup::default()
    })
    .await;
    let answer = daemon.list(&[located("x", "published:q")]).await;
    let message = &answer.roots[0].message;
    assert!(message.ends_with("x…` and 4 more"), "{message}");
    assert!(message.len() < 800, "{message}");
    daemon.stop().await;
}
