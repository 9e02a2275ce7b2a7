//! Skills whose authors restrict who may choose them: in sessions, streams and commands.

use caproot_core::proto::caproot::v1::Skill;
use caproot_session::{SkillMention, SkillNameListOptions, UserPrompt};
use serde_json::{Value, json};

use super::serve_tree;
use super::session::{call, list_all, read_all, session};
use crate::harness::process::run_client;
use crate::harness::watch_harness::WatchHarness;
use crate::harness::{Daemon, in_time};

/// Skills in the order of the list, each with the lines that restrict who may choose the skill.
const SKILLS: [(&str, &str); 5] = [
    (
        "closed",
        "disable-model-invocation: true\nuser-invocable: false\n",
    ),
    ("models", "user-invocable: false\n"),
    ("odd", "disable-model-invocation: maybe\n"),
    ("open", "disable-model-invocation: false\n"),
    ("people", "disable-model-invocation: true\n"),
];

fn skill_text(name: &str, restrictions: &str) -> String {
    format!("---\nname: {name}\ndescription: Of {name}.\n{restrictions}---\nBody of {name}.\n")
}

/// Returns the description of a tree with `SKILLS` below `r`.
fn restricted_tree() -> String {
    let mut tree = String::new();
    for (name, restrictions) in SKILLS {
        let text = skill_text(name, restrictions).replace('\n', "\n| ");
        let content = text.trim_end_matches("\n| ");
        tree += &["file r/", name, "/SKILL.md\n| ", content, "\n"].concat();
    }
    tree
}

#[tokio::test]
async fn a_session_shows_a_model_only_what_authors_allow() {
    let (_fixture, daemon) = serve_tree("r", &restricted_tree()).await;
    let session = session(&[("r", &daemon.address)]).await;

    let (packages, warnings) = list_all(&session).await;
    assert_eq!(packages, ["skill://r/models", "skill://r/open"]);
    assert_eq!(
        warnings,
        ["3 skills are not listed: a model may use them only if a person names them"]
    );

    let text = session.instruction_text(8_000);
    assert_eq!((text.listed, text.hidden), (2, 3));
    for hidden in ["closed", "odd", "people"] {
        assert!(!text.text.contains(hidden), "{}", text.text);
    }
    let names = session.skill_names(SkillNameListOptions {
        budget: 4_096,
        with_descriptions: true,
    });
    let lines: Vec<_> = names.lines.iter().map(|line| line.name.as_str()).collect();
    assert_eq!((names.total, lines), (2, vec!["models", "open"]));

    // A skill that a person named can be read.
    let arguments = json!({"package": "skill://r/people"});
    let read = call(&session, "skills.read", arguments.clone()).await;
    assert_eq!(read["next_cursor"], Value::Null);
    assert!(
        read_all(&session, arguments)
            .await
            .contains("Body of people.")
    );

    let _ = session.close(false).await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_mention_reaches_only_skills_that_a_person_may_choose() {
    let (_fixture, daemon) = serve_tree("r", &restricted_tree()).await;
    let session = session(&[("r", &daemon.address)]).await;

    let prompt = UserPrompt {
        mentions: vec![
            SkillMention {
                name: "models".into(),
                handle: String::new(),
            },
            SkillMention {
                name: String::new(),
                handle: "skill://r/models/SKILL.md".into(),
            },
        ],
        ..UserPrompt::from(
            "$open $people $odd $models $closed [$closed](skill://r/closed) [$x](skill://r/people)",
        )
    };
    let injected = in_time(session.inject(&prompt)).await;

    let packages: Vec<_> = injected.fragments.iter().map(|f| &*f.package).collect();
    assert_eq!(
        packages,
        ["skill://r/open", "skill://r/people", "skill://r/odd"]
    );
    let omitted: Vec<_> = injected.omitted.iter().map(|o| &*o.mention).collect();
    assert_eq!(
        omitted,
        ["models", "skill://r/models/SKILL.md", "skill://r/closed"]
    );
    for mention in &injected.omitted {
        assert_eq!(
            mention.reason,
            "the author of this skill does not let a person choose it"
        );
    }
    assert!(injected.ambiguous.is_empty());

    let _ = session.close(false).await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_changed_restriction_reaches_a_stream() {
    let flags = |skill: &Skill| (skill.is_offered(), skill.user_invocable);
    let mut live = WatchHarness::new(&restricted_tree()).await;
    let package = "skill://r/open";
    assert_eq!(flags(&live.replica.skills[package]), (true, true));

    for (restrictions, expected) in [
        ("disable-model-invocation: true\n", (false, true)),
        ("user-invocable: false\n", (true, false)),
        ("user-invocable: maybe\n", (true, false)),
        ("", (true, true)),
    ] {
        let text = skill_text("open", restrictions);
        live.fixture.replace("r/open/SKILL.md", text);
        assert_eq!(live.next_change().await.upserted, [package]);
        assert_eq!(
            flags(&live.replica.skills[package]),
            expected,
            "{restrictions}"
        );
    }
    live.finish().await;
}

#[tokio::test]
async fn list_shows_who_may_choose_a_skill() {
    let (fixture, daemon) = Daemon::publishing("r", &restricted_tree()).await;
    let text = run_client(&daemon, "list --all").await.text().to_owned();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(
        lines,
        [
            "NAME    ROOT  FOR     DESCRIPTION",
            "closed  r     none    Of closed.",
            "models  r     models  Of models.",
            "odd     r     people  Of odd.",
            "open    r     all     Of open.",
            "people  r     people  Of people.",
        ]
    );

    let list = run_client(&daemon, "list --all --output json").await.json();
    let flags: Vec<_> = list["skills"]
        .as_array()
        .expect("skills")
        .iter()
        .map(|skill| (skill["notOffered"].clone(), skill["userInvocable"].clone()))
        .collect();
    let (yes, absent) = (json!(true), Value::Null);
    let people = json!("NOT_OFFERED_PEOPLE_ONLY");
    assert_eq!(
        flags,
        [
            (people.clone(), absent.clone()),
            (absent.clone(), absent.clone()),
            (people.clone(), yes.clone()),
            (absent, yes.clone()),
            (people, yes),
        ]
    );

    // Without a restriction, the table has no such column.
    for (name, _) in SKILLS {
        fixture.replace(&format!("r/{name}/SKILL.md"), skill_text(name, ""));
    }
    let text = run_client(&daemon, "list --fresh").await.text().to_owned();
    assert!(text.starts_with("NAME    ROOT  DESCRIPTION\n"), "{text}");
    daemon.stop().await;
}

#[tokio::test]
async fn a_session_switches_on_only_what_is_switched_off() {
    let tree = "file r/idle/SKILL.md\n| ---\n| description: Waits.\n| defaultEnabled: off\n| ---\n\
                file r/people/SKILL.md\n| ---\n| description: Asks.\n| disable-model-invocation: on\n\
                | default-enabled: 0\n| ---\n";
    let (_fixture, daemon) = serve_tree("r", tree).await;
    for (rules, listed) in [
        ("", vec![]),
        ("--enable handle:skill://r", vec!["idle"]),
        ("--enable name:idle --manual name:idle", vec![]),
    ] {
        let words = format!("prompt --output json {rules}");
        let prompt = run_client(&daemon, &words).await.json();
        let skills = prompt["skills"].as_array().expect("skills").iter();
        let shown: Vec<_> = skills
            .filter(|skill| skill["place"] == "listed")
            .map(|skill| skill["name"].as_str().expect("a name"))
            .collect();
        assert_eq!(shown, listed, "{rules} {prompt}");
    }
    daemon.stop().await;
}
