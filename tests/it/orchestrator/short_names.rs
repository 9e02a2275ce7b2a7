//! Short names in texts: a name that a model knows never comes to mean another skill.

use std::fs;

use caproot_client::Fleet;
use caproot_session::{
    DEFAULT_BUDGET, ForkScope, MAX_INJECTED_BYTES, Session, SessionOptions, SkillNameListOptions,
};
use serde_json::{Value, json};

use super::session::{call, parse_result, session};
use super::{executor, serve_tree, start_daemon};
use crate::harness::fixture::Fixture;
use crate::harness::in_time;

async fn read(session: &Session, package: &str) -> Value {
    let arguments = json!({"package": package});
    parse_result(&in_time(session.call("skills.read", &arguments)).await)
}

/// Waits until the session lists exactly these packages.
async fn wait_for_packages(session: &Session, expected: &[&str]) {
    let mut watch = session.watch();
    loop {
        let skills = session.listed_skills().expect("an open session");
        if skills
            .iter()
            .map(|skill| skill.package.as_str())
            .eq(expected.iter().copied())
        {
            return;
        }
        in_time(watch.next()).await;
    }
}

fn text(session: &Session) -> String {
    session.instruction_text(DEFAULT_BUDGET).text
}

/// Checks that the name `pdf` does not read, and that the error names the other skill.
async fn assert_name_is_taken(session: &Session, what: &str) {
    let error = read(session, "pdf").await["error"].clone();
    assert_eq!(error["code"], "PACKAGE_NOT_FOUND", "{what}: {error}");
    assert_eq!(
        error["message"],
        "the skill \"pdf\" that you know, skill://r/pdf, is gone, and the name now means another \
         skill: skill://r/new/pdf",
        "{what}"
    );
    assert_eq!(
        error["next"],
        "Pass the handle as `package` if you want the other skill."
    );
}

#[tokio::test]
async fn a_short_name_keeps_its_skill() {
    let (mut fixture, daemon) = serve_tree("r", "skill r/pdf\nskill r/docx").await;
    let session = session(&[("r", &daemon.address)]).await;
    let shown = text(&session);
    assert!(
        shown.ends_with("\nexecutor \"r\":\n- docx: Does docx.\n- pdf: Does pdf.\n"),
        "{shown}"
    );
    let page = read(&session, "pdf").await;
    assert_eq!(page["resource"], "skill://r/pdf/SKILL.md");
    let early_fork = session.fork(ForkScope::All).expect("a fork");

    // Another skill takes the name.
    fs::remove_dir_all(fixture.path("r/pdf")).expect("a directory");
    fixture.add("skill r/new/pdf");
    wait_for_packages(&session, &["skill://r/docx", "skill://r/new/pdf"]).await;
    assert_name_is_taken(&session, "the session").await;
    wait_for_packages(&early_fork, &["skill://r/docx", "skill://r/new/pdf"]).await;
    assert_name_is_taken(&early_fork, "a fork").await;
    let fork = session.fork(ForkScope::All).expect("a fork");
    assert_name_is_taken(&fork, "a later fork").await;
    let given_back = in_time(session.reinject(MAX_INJECTED_BYTES)).await;
    assert!(
        given_back.note.contains("skill://r/pdf/SKILL.md"),
        "{}",
        given_back.note
    );
    assert_name_is_taken(&session, "after a compaction").await;

    let saved = session.save().expect("a saved session");
    let fleet = Fleet::from_executors([("r".to_owned(), executor(&daemon.address))]);
    let options = SessionOptions::default();
    let restored = Session::restore(&fleet, &saved, &options).await;
    let restored = restored.expect("a session").session;
    assert_name_is_taken(&restored, "the saved session").await;

    // The other skill has another name in texts, by which it is read.
    for session in [&session, &restored] {
        let shown = text(session);
        assert!(
            shown.ends_with("- docx: Does docx.\n- r/pdf: Does pdf.\n"),
            "{shown}"
        );
        let page = read(session, "r/pdf").await;
        assert_eq!(page["resource"], "skill://r/new/pdf/SKILL.md");
    }

    // The first skill is there again, and so is its name.
    fixture.add("skill r/pdf");
    let all = ["skill://r/docx", "skill://r/new/pdf", "skill://r/pdf"];
    wait_for_packages(&session, &all).await;
    let page = read(&session, "pdf").await;
    assert_eq!(page["resource"], "skill://r/pdf/SKILL.md");
    let shown = text(&session);
    assert!(
        shown.ends_with("- docx: Does docx.\n- r/pdf: Does pdf.\n- pdf: Does pdf.\n"),
        "{shown}"
    );
    daemon.stop().await;
}

#[tokio::test]
async fn a_name_that_is_gone_is_missing() {
    let (fixture, daemon) = serve_tree("r", "skill r/pdf\nskill r/docx").await;
    let session = session(&[("r", &daemon.address)]).await;
    let names = SkillNameListOptions {
        budget: 1_000,
        with_descriptions: false,
    };
    // Also a name that only the description of a tool has.
    let listed = session.skill_names(names).lines;
    assert!(listed.iter().any(|line| line.name == "pdf"));
    fs::remove_dir_all(fixture.path("r/pdf")).expect("a directory");
    wait_for_packages(&session, &["skill://r/docx"]).await;
    let error = read(&session, "pdf").await["error"].clone();
    assert_eq!(error["code"], "PACKAGE_NOT_FOUND", "{error}");

    fixture.write("r/new/pdf/SKILL.md", "---\ndescription: Another.\n---\n");
    wait_for_packages(&session, &["skill://r/docx", "skill://r/new/pdf"]).await;
    assert_name_is_taken(&session, "a name of a list").await;
    daemon.stop().await;
}

#[tokio::test]
async fn names_of_several_roots_are_told_apart() {
    let fixture = Fixture::new(
        "skill a/pdf\nskill a/mail\nskill b/pdf\nfile b/pdf/more.md\n| More.\nskill b/x/twice\n\
         skill b/y/twice",
    );
    let one = start_daemon("a", fixture.path("a"), None).await;
    let two = start_daemon("b", fixture.path("b"), None).await;
    let session = session(&[("a", &one.address), ("b", &two.address)]).await;

    let shown = text(&session);
    assert!(
        shown.ends_with(
            "\nexecutor \"a\":\n- mail: Does mail.\n- a/pdf: Does pdf.\n\
             \nexecutor \"b\":\n- b/pdf: Does pdf.\n- twice: Does twice. (skill://b/x/twice)\n\
             - twice: Does twice. (skill://b/y/twice)\n"
        ),
        "{shown}"
    );
    let page = call(
        &session,
        "skills.read",
        json!({"package": "b/pdf", "resource": "more.md"}),
    );
    assert_eq!(page.await["contents"], "More.\n");
    let authority = json!({"kind": "executor", "id": "a"});
    let page = call(
        &session,
        "skills.read",
        json!({"package": "pdf", "authority": authority}),
    );
    assert_eq!(page.await["resource"], "skill://a/pdf/SKILL.md");
    let error = read(&session, "pdf").await["error"].clone();
    assert_eq!(error["code"], "AMBIGUOUS_NAME");

    // A fork without the root of a name does not read the skill of another root.
    let only = session.fork(ForkScope::Only(&["b"])).expect("a fork");
    let error = read(&only, "mail").await["error"].clone();
    assert_eq!(error["code"], "PACKAGE_NOT_FOUND");
    one.stop().await;
    two.stop().await;
}
