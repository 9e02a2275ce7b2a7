//! Links of roots that the daemon chose itself, to skills outside these roots.

use std::fs;
use std::os::unix::fs::{chown, symlink};

use caproot::daemon::catalog::OpenMethod;
use caproot_core::net::endpoint::ProcessEnv;
use caproot_core::proto::caproot::v1::SelectedCapabilityRoot;
use caproot_core::proto::caproot::v1::{DiagnosticCode, ListSkillsResponse};
use tonic::Code;

use crate::harness::fixture::{Fixture, is_root};
use crate::harness::rng::Rng;
use crate::harness::watch_harness::{fresh_list, skill_text};
use crate::harness::{
    Daemon, Setup, assert_rpc_error, by_both_openers, files_request, isolated_env, located,
    packages, read_request, selected, short_or_long,
};

by_both_openers! {
    async fn a_link_of_the_search_finds_a_skill_of_the_project;
    async fn a_link_to_anything_else_is_outside;
    async fn a_link_in_a_skill_is_as_strict_as_before;
    async fn a_link_at_home_finds_a_skill_of_another_tool;
    async fn a_selected_or_named_root_follows_no_such_link;
    async fn random_links_find_skills_of_the_project_only;
}

/// Tree of a project in which links of `.agents/skills` are followed.
const PROJECT: &str = "dir proj/.git\ndir proj/.agents/skills\nskill proj/store/tidy\n\
    file proj/store/tidy/guide.md\n| The guide.\nfile proj/private/notes.md\n| Secret.\n\
    skill away/plan";

async fn serve_project(fixture: &Fixture, opener: OpenMethod) -> Daemon {
    let env = ProcessEnv {
        current_dir: Some(fixture.path("proj")),
        ..isolated_env(fixture.top())
    };
    let setup = Setup {
        env,
        ..Setup::default()
    };
    Daemon::start(setup.with_opener(opener)).await
}

fn repo() -> SelectedCapabilityRoot {
    located("repo", "published:repo")
}

fn link(fixture: &Fixture, target: &str, path: &str) {
    let path = fixture.path(path);
    fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
    symlink(target, path).expect("a link");
}

fn codes(list: &ListSkillsResponse) -> Vec<(DiagnosticCode, &str)> {
    let found = list.diagnostics.iter();
    found.map(|d| (d.code(), d.resource.as_str())).collect()
}

async fn a_link_of_the_search_finds_a_skill_of_the_project(opener: OpenMethod) {
    let fixture = Fixture::new(PROJECT);
    link(&fixture, "../../store/tidy", "proj/.agents/skills/tidy");
    link(
        &fixture,
        "../../../store/tidy/SKILL.md",
        "proj/.agents/skills/other/SKILL.md",
    );
    // A chain of links, and a link in a subdirectory.
    link(&fixture, "tidy", "proj/store/alias");
    link(
        &fixture,
        "../../../store/alias",
        "proj/.agents/skills/group/tidy",
    );
    let daemon = serve_project(&fixture, opener).await;

    let list = fresh_list(&daemon, &[repo()]).await;
    assert_eq!(packages(&list), ["skill://repo/tidy"]);
    let aliases = [
        (DiagnosticCode::Alias, "skill://repo/group/tidy"),
        (DiagnosticCode::Alias, "skill://repo/other/SKILL.md"),
    ];
    assert_eq!(codes(&list), aliases);

    let read = read_request(&repo(), "skill://repo/tidy", "skill://repo/tidy/guide.md");
    assert_eq!(
        daemon.read_all(read).await.expect("the guide"),
        b"The guide.\n"
    );
    let files = daemon
        .list_resources(files_request(&repo(), "skill://repo/tidy"))
        .await;
    let files = files.expect("the files").resources;
    let names: Vec<_> = files.iter().map(|file| file.resource.as_str()).collect();
    assert_eq!(
        names,
        ["skill://repo/tidy/SKILL.md", "skill://repo/tidy/guide.md"]
    );

    // An edit of the target and a removal of the target are noticed.
    fixture.write("proj/store/tidy/SKILL.md", skill_text("tidy", "Edited."));
    assert_eq!(
        fresh_list(&daemon, &[repo()]).await.skills[0].description,
        "Edited."
    );
    fs::remove_dir_all(fixture.path("proj/store/tidy")).expect("removed");
    assert_eq!(packages(&fresh_list(&daemon, &[repo()]).await), [""; 0]);
    daemon.stop().await;
}

async fn a_link_to_anything_else_is_outside(opener: OpenMethod) {
    let fixture = Fixture::new(PROJECT);
    let outside = [
        ("no-skill", "../../private"),
        ("file", "../../store/tidy/SKILL.md"),
        ("away", "../../../away/plan"),
        ("missing", "../../store/none"),
        ("round", "../../links/round"),
        ("through", "../../private/../../away/plan"),
        ("inner", "../../private/../store/tidy"),
        ("above", "../.."),
    ];
    for (name, target) in outside {
        link(&fixture, target, &format!("proj/.agents/skills/{name}"));
    }
    link(
        &fixture,
        "../../../private/notes.md",
        "proj/.agents/skills/named/SKILL.md",
    );
    link(&fixture, "round", "proj/links/round");
    let mut expected = 9;
    if is_root() {
        fixture.write(
            "proj/theirs/SKILL.md",
            skill_text("theirs", "Owned by another user."),
        );
        chown(fixture.path("proj/theirs"), Some(4_321), None).expect("chown");
        link(&fixture, "../../theirs", "proj/.agents/skills/theirs");
        expected += 1;
    }
    let daemon = serve_project(&fixture, opener).await;

    let list = fresh_list(&daemon, &[repo()]).await;
    assert_eq!(packages(&list), [""; 0]);
    let found = codes(&list);
    assert_eq!(found.len(), expected, "{found:?}");
    assert!(
        found
            .iter()
            .all(|(code, _)| *code == DiagnosticCode::OutsideRoot),
        "{found:?}"
    );
    // A caller does not learn which files of the project exist.
    let messages: Vec<_> = list.diagnostics.iter().map(|d| &d.message).collect();
    assert!(
        messages.iter().all(|message| *message == messages[0]),
        "{messages:?}"
    );
    daemon.stop().await;
}

async fn a_link_in_a_skill_is_as_strict_as_before(opener: OpenMethod) {
    let fixture = Fixture::new(PROJECT);
    link(&fixture, "../../store/tidy", "proj/.agents/skills/tidy");
    fixture.write(
        "proj/.agents/skills/own/SKILL.md",
        skill_text("own", "Has links."),
    );
    link(
        &fixture,
        "../../../store/tidy",
        "proj/.agents/skills/own/inner",
    );
    link(
        &fixture,
        "../../../../store/tidy",
        "proj/.agents/skills/own/sub/inner",
    );
    // In the linked skill, a link may lead to the same skill or to an allowed directory.
    link(&fixture, "guide.md", "proj/store/tidy/same.md");
    link(
        &fixture,
        "../../.agents/skills/own/SKILL.md",
        "proj/store/tidy/allowed.md",
    );
    link(
        &fixture,
        "../../private/notes.md",
        "proj/store/tidy/secret.md",
    );
    link(
        &fixture,
        "../tidy/../../private/notes.md",
        "proj/store/tidy/through.md",
    );
    let daemon = serve_project(&fixture, opener).await;

    let list = fresh_list(&daemon, &[repo()]).await;
    assert_eq!(packages(&list), ["skill://repo/own", "skill://repo/tidy"]);
    let read = |name: &str| {
        let resource = format!("skill://repo/tidy/{name}");
        daemon.read_all(read_request(&repo(), "skill://repo/tidy", &resource))
    };
    assert_eq!(read("same.md").await.expect("the guide"), b"The guide.\n");
    let own = read("allowed.md").await.expect("the other skill");
    assert_eq!(own, skill_text("own", "Has links.").as_bytes());
    for name in ["secret.md", "through.md"] {
        let resource = format!("skill://repo/tidy/{name}");
        let request = read_request(&repo(), "skill://repo/tidy", &resource);
        let answer = daemon.read(request).await;
        assert_rpc_error(answer, Code::PermissionDenied, "OUTSIDE_ROOT", None);
    }
    let request = read_request(
        &repo(),
        "skill://repo/own",
        "skill://repo/own/inner/guide.md",
    );
    assert_rpc_error(
        daemon.read(request).await,
        Code::PermissionDenied,
        "OUTSIDE_ROOT",
        None,
    );
    daemon.stop().await;
}

async fn a_link_at_home_finds_a_skill_of_another_tool(opener: OpenMethod) {
    let fixture = Fixture::new(
        "dir work\ndir home/.agents/skills\nskill home/.claude/skills/tidy\nskill home/notes/plan\n\
         skill bob/.claude/skills/his",
    );
    link(
        &fixture,
        "../../.claude/skills/tidy",
        "home/.agents/skills/tidy",
    );
    link(&fixture, "../../notes/plan", "home/.agents/skills/plan");
    link(
        &fixture,
        "../../../bob/.claude/skills/his",
        "home/.agents/skills/his",
    );
    let setup = Setup {
        env: isolated_env(fixture.top()),
        ..Setup::default()
    };
    let daemon = Daemon::start(setup.with_opener(opener)).await;
    let list = fresh_list(&daemon, &[located("user", "published:user")]).await;
    assert_eq!(packages(&list), ["skill://user/tidy"]);
    let outside = ["skill://user/his", "skill://user/plan"];
    assert_eq!(
        codes(&list),
        outside.map(|link| (DiagnosticCode::OutsideRoot, link))
    );
    daemon.stop().await;
}

async fn a_selected_or_named_root_follows_no_such_link(opener: OpenMethod) {
    let fixture = Fixture::new(PROJECT);
    link(&fixture, "../../store/tidy", "proj/.agents/skills/tidy");
    let daemon = serve_project(&fixture, opener).await;
    // The project is not allowed: only links of the search lead there.
    let list = fresh_list(&daemon, &[selected("s", fixture.path("proj/store"))]).await;
    assert_eq!(packages(&list), [""; 0]);
    assert_eq!(
        list.roots[0].message,
        "the root lies outside every allowed root; have the executor's operator allow it"
    );
    daemon.stop().await;

    let setup = Setup {
        roots: vec![(Some("repo".to_owned()), fixture.path("proj/.agents/skills"))],
        ..Setup::default()
    };
    let daemon = Daemon::start(setup.with_opener(opener)).await;
    let list = fresh_list(&daemon, &[repo()]).await;
    assert_eq!(packages(&list), [""; 0]);
    assert_eq!(
        codes(&list),
        [(DiagnosticCode::OutsideRoot, "skill://repo/tidy")]
    );
    daemon.stop().await;
}

/// Text of everything that a link of the search must not show.
const SECRET: &str = "secret-of-outside";

/// Makes random links in the project and in its root, in place of earlier ones. Returns whether a link of the
/// search leads directly to the skill `a`.
fn make_random_links(fixture: &Fixture, rng: &mut Rng) -> bool {
    for dir in ["proj/links", "proj/.agents/skills"] {
        fs::remove_dir_all(fixture.path(dir)).expect("removed");
        fs::create_dir_all(fixture.path(dir)).expect("a directory");
    }
    let targets = [
        "proj/store/a",
        "proj/store/b",
        "proj/store/a/SKILL.md",
        "proj/store",
        "proj/private",
        "proj/private/notes.md",
        "proj/links/0",
        "proj/links/1",
        "proj/links/2/SKILL.md",
        "proj/.agents/skills",
        "proj/private/../../away/plan",
        "away/plan",
        "away/plan/SKILL.md",
        "away",
        "",
    ];
    let places = [
        ("proj/links/0", ".."),
        ("proj/links/1", ".."),
        ("proj/links/2", ".."),
        ("proj/.agents/skills/0", "../.."),
        ("proj/.agents/skills/1", "../.."),
        ("proj/.agents/skills/group/2", "../../.."),
        ("proj/.agents/skills/file/SKILL.md", "../../.."),
    ];

    let mut is_direct = false;
    for (place, to_project) in places {
        let target = *rng.pick(&targets);
        let is_relative = rng.one_in(2);
        let text = if is_relative {
            format!("{to_project}/../{target}")
        } else {
            fixture.path(target).to_str().expect("UTF-8").to_owned()
        };
        link(fixture, &text, place);
        let is_search = place.starts_with("proj/.agents/skills") && !place.ends_with("SKILL.md");
        is_direct |= is_search && !is_relative && target == "proj/store/a";
    }
    is_direct
}

async fn random_links_find_skills_of_the_project_only(opener: OpenMethod) {
    let fixture = Fixture::new("dir proj/.git\ndir proj/links\ndir proj/.agents/skills");
    for name in ["a", "b"] {
        let file = format!("proj/store/{name}/SKILL.md");
        fixture.write(&file, skill_text(name, "Project skill."));
    }
    fixture.write("proj/private/notes.md", SECRET);
    fixture.write("away/plan/SKILL.md", skill_text("plan", SECRET));
    symlink(
        "../../private/notes.md",
        fixture.path("proj/store/a/notes.md"),
    )
    .expect("a link");
    let project = fixture.path("proj").canonicalize().expect("the project");
    let daemon = serve_project(&fixture, opener).await;

    let mut rng = Rng::new(7);
    let mut found = 0;
    for round in 0..short_or_long(60, 1_000) {
        let is_direct = make_random_links(&fixture, &mut rng);
        let list = fresh_list(&daemon, &[repo()]).await;
        assert!(!format!("{list:?}").contains(SECRET), "{round}: {list:?}");
        let has_a = list.skills.iter().any(|skill| skill.name == "a");
        assert!(has_a || !is_direct, "{round}: {:?}", codes(&list));

        for skill in &list.skills {
            found += 1;
            let path = skill
                .main_resource
                .strip_prefix("skill://repo/")
                .expect("a handle");
            let real = fixture
                .path(&format!("proj/.agents/skills/{path}"))
                .canonicalize();
            let real = real.expect("the file of a listed skill");
            assert!(real.starts_with(&project), "{round}: {}", real.display());

            let files = daemon
                .list_resources(files_request(&repo(), &skill.package))
                .await;
            for file in files.expect("the files").resources {
                let request = read_request(&repo(), &skill.package, &file.resource);
                let bytes = daemon.read_all(request).await.expect("a listed file");
                assert!(
                    !String::from_utf8_lossy(&bytes).contains(SECRET),
                    "{round}: {file:?}"
                );
            }
        }
    }
    assert!(found > 20, "the links led to {found} skills");
    daemon.stop().await;
}
