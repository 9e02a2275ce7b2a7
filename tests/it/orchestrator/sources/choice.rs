//! Choice of a session's skills: by name, handle and source, in forks and after a restore.

use caproot_client::Fleet;
use caproot_session::{ForkScope, Session, SessionOptions, SkillChoice, UserPrompt};
use serde_json::json;

use super::super::call_command::CallProcess;
use super::super::session::{list_all, read_all};
use super::super::{executor, impatient_options, published, serve_tree};
use super::{arguments, local_source, mcp_source, read_error};
use crate::harness::in_time;
use crate::harness::process::{client_command, run_command};
use crate::harness::test_servers::mcp_server;

fn choice(include: &[&str], exclude: &[&str]) -> SkillChoice {
    let rules = |texts: &[&str]| {
        texts
            .iter()
            .map(|text| text.parse().expect("a rule"))
            .collect()
    };
    SkillChoice {
        include: rules(include),
        exclude: rules(exclude),
        ..SkillChoice::default()
    }
}

#[tokio::test]
async fn a_choice_includes_and_excludes_skills() {
    let (fixture, daemon) = serve_tree(
        "r",
        "skill r/pdf\nskill r/kit/mail\nskill r/kit/draw\nskill mine/notes",
    )
    .await;
    let mock = mcp_server::start_with_skills(&[("pdf", &[]), ("more", &[])]).await;
    let fleet = Fleet::from_executors([("r".to_owned(), executor(&daemon.address))]);
    let start = async |choice: SkillChoice| {
        let others = vec![
            local_source(&fixture, &["mine"]).await,
            mcp_source("docs", &mock.url).await,
        ];
        let options = SessionOptions {
            choice,
            ..impatient_options()
        };
        Session::start_with(&fleet, vec![published("r")], others, &options).await
    };
    for (include, exclude, expected) in [
        (&["name:notes"][..], &[][..], &["skill://mine/notes"][..]),
        (
            &["source:mcp/docs"],
            &[],
            &["mcp+skill://docs/more", "mcp+skill://docs/pdf"],
        ),
        (
            &["handle:skill://r/kit"],
            &["name:draw"],
            &["skill://r/kit/mail"],
        ),
        (
            &["handle:skill://r/pdf/SKILL.md", "name:more"],
            &[],
            &["skill://r/pdf", "mcp+skill://docs/more"],
        ),
        (
            &[],
            &["source:executor/r", "source:local/here", "name:more"],
            &["mcp+skill://docs/pdf"],
        ),
    ] {
        let session = start(choice(include, exclude)).await.expect("sources");
        let (packages, warnings) = list_all(&session).await;
        assert_eq!(packages, expected, "{include:?} {exclude:?}");
        assert!(
            !warnings.iter().any(|warning| warning.contains("chosen")),
            "{warnings:?}"
        );
        let text = session.instruction_text(8_000);
        assert_eq!((text.listed, text.omitted), (expected.len(), 0));
    }

    // An excluded skill cannot be read or mentioned, and reserves no name.
    let chosen = choice(&[], &["handle:skill://r/pdf"]);
    let session = start(chosen).await.expect("sources");
    let excluded = arguments("executor", "r", "skill://r/pdf", "");
    assert_eq!(
        read_error(&session, excluded.clone()).await.0,
        "PACKAGE_NOT_FOUND"
    );
    let prompt = UserPrompt::from("$pdf [$pdf](skill://r/pdf)");
    let injected = in_time(session.inject(&prompt)).await;
    assert!(injected.fragments.is_empty(), "{injected:?}");
    let injected = in_time(session.inject(&"$pdf".into())).await;
    assert_eq!(injected.fragments[0].package, "mcp+skill://docs/pdf");
    let included = arguments("executor", "r", "skill://r/kit/mail", "");
    assert!(read_all(&session, included).await.contains("Does mail."));

    // A fork and a restored session have the choice, although the options have none.
    let fork = session.fork(ForkScope::Only(&["r"])).expect("a fork");
    let saved = session.save().expect("a small session");
    let restored = Session::restore(&fleet, &saved, &impatient_options())
        .await
        .expect("a saved session");
    for other in [fork, restored.session] {
        let expected = ["skill://r/kit/draw", "skill://r/kit/mail"];
        assert_eq!(list_all(&other).await.0, expected);
        assert_eq!(
            read_error(&other, excluded.clone()).await.0,
            "PACKAGE_NOT_FOUND"
        );
    }

    // A fork can have fewer skills than its session, and never more.
    let session = start(choice(&["name:mail", "name:pdf"], &[]))
        .await
        .expect("sources");
    for (include, exclude, expected) in [
        (
            vec!["name:draw", "name:mail"],
            vec![],
            &["skill://r/kit/mail"][..],
        ),
        (vec![], vec!["handle:skill://r/kit"], &["skill://r/pdf"]),
        (vec!["name:draw"], vec![], &[]),
    ] {
        let fork = session.fork(ForkScope::All).expect("a fork");
        let narrower = choice(&include, &exclude);
        let fork = fork.with_narrower_choice(&narrower).expect("few rules");
        assert_eq!(list_all(&fork).await.0, expected, "{include:?} {exclude:?}");

        // Forks of forks and restored forks are as narrow.
        let again = fork.fork(ForkScope::All).expect("a fork");
        let widened = again.with_narrower_choice(&choice(&["source:executor/r"], &[]));
        assert_eq!(list_all(&widened.expect("few rules")).await.0, expected);
        let saved = fork.save().expect("a small session");
        let restored = Session::restore(&fleet, &saved, &impatient_options()).await;
        let restored = restored.expect("a saved session").session;
        assert_eq!(list_all(&restored).await.0, expected);
    }

    // The name of a skill that a fork excludes does not become free for the skill of another source.
    let whole = start(SkillChoice::default()).await.expect("sources");
    let fork = whole.fork(ForkScope::All).expect("a fork");
    let fork = fork.with_narrower_choice(&choice(&[], &["handle:skill://r"]));
    let fork = fork.expect("few rules");
    let expected = ["skill://mine/notes", "mcp+skill://docs/more"];
    assert_eq!(list_all(&fork).await.0, expected);
    let injected = in_time(fork.inject(&"$pdf".into())).await;
    assert!(injected.fragments.is_empty(), "{injected:?}");

    let fork = session.fork(ForkScope::All).expect("a fork");
    let error = fork
        .with_narrower_choice(&choice(&["name:x"; 255], &[]))
        .expect_err("too many rules");
    assert!(error.to_string().contains("257 rules"), "{error}");

    let session = start(choice(&["name:pfd", "name:more"], &[]))
        .await
        .expect("sources");
    assert_eq!(
        list_all(&session).await.1,
        ["no skill matches the chosen `name:pfd`"]
    );
    let many = vec!["name:x"; 300];
    let error = start(choice(&many, &[]))
        .await
        .expect_err("too many rules")
        .to_string();
    assert!(error.contains("300 rules"), "{error}");
    daemon.stop().await;
}

#[tokio::test]
async fn flags_choose_the_skills() {
    let (_fixture, daemon) =
        serve_tree("local", "skill r/pdf\nskill r/kit/mail\nskill r/kit/draw").await;
    let flags = "call --include handle:skill://local/kit --include name:pdf --exclude name:draw";
    let mut process = CallProcess::start(client_command(&daemon, flags));
    let list = process.call("skills.list", &json!({})).await;
    let packages: Vec<_> = list["skills"].as_array().expect("a list").iter().collect();
    let packages: Vec<_> = packages.iter().map(|skill| &skill["package"]).collect();
    assert_eq!(packages, ["skill://local/kit/mail", "skill://local/pdf"]);
    assert_eq!(process.end().await, Some(0));

    // Rules for the text, and the reasons of the places.
    let flags = "prompt --output json --manual name:mail --name-only name:draw --pin name:draw";
    let prompt = run_command(client_command(&daemon, flags))
        .await
        .succeeded()
        .json();
    assert_eq!(
        (&prompt["listed"], &prompt["hidden"]),
        (&json!(2), &json!(1))
    );
    let text = prompt["text"].as_str().expect("text");
    assert!(
        text.contains("\n- draw\n") && !text.contains("mail"),
        "{text}"
    );
    let skills = prompt["skills"].as_array().expect("a list").iter();
    let places: Vec<_> = skills.map(|skill| skill["place"].as_str()).collect();
    assert_eq!(places, [Some("name-only"), Some("hidden"), Some("listed")]);
    let mut process = CallProcess::start(client_command(&daemon, "call --manual name:pfd"));
    let list = process.call("skills.list", &json!({})).await;
    assert_eq!(
        list["warnings"],
        json!(["no skill matches the chosen `name:pfd`"])
    );
    assert_eq!(process.end().await, Some(0));

    run_command(client_command(&daemon, "call --include pdf"))
        .await
        .exited_with(2, "name:NAME");
    daemon.stop().await;
}
