//! Calls as models write them: each form in the table is accepted, and means the call in its schema's
//! form. Bad calls have an error with the next step.

use std::sync::Arc;

use caproot_client::Fleet;
use caproot_session::{
    DEFAULT_RESULT_BYTES, MAX_RESULT_BYTES, Session, SessionOptions, SkillMention, UserPrompt,
};
use serde_json::{Value, json};

use super::session::{call, parse_result, session};
use super::{executor, published, serve_tree};
use crate::harness::in_time;

const TREE: &str = "skill r/triage-logs\nfile r/triage-logs/references/patterns.md\n| Patterns.\n\
                    skill r/other\nskill r/a/twice\nskill r/b/twice\nskill r/kit-notes";
const PACKAGE: &str = "skill://demo/triage-logs";

/// Call as a model writes it, with the same call in the form of the schema.
struct AcceptedCall {
    what: &'static str,
    tool: &'static str,
    written: Value,
    meant: Value,
}

fn accepted(what: &'static str, tool: &'static str, written: Value, meant: Value) -> AcceptedCall {
    AcceptedCall {
        what,
        tool,
        written,
        meant,
    }
}

fn accepted_calls() -> Vec<AcceptedCall> {
    let main = || json!({"package": PACKAGE});
    let file = || json!({"package": PACKAGE, "resource": "references/patterns.md"});
    let directory = || json!({"package": PACKAGE, "resource": "references/"});
    let read = |what, written, meant| accepted(what, "skills.read", written, meant);
    let list = |what, written| accepted(what, "skills.list", written, json!({}));
    let search = |what, written, meant| accepted(what, "skills.search", written, meant);
    let query = || json!({"query": "does logs", "limit": 3});

    vec![
        read("a name", json!({"package": "triage-logs"}), main()),
        read(
            "a final slash",
            json!({"package": format!("{PACKAGE}/")}),
            main(),
        ),
        read(
            "a main file",
            json!({"package": format!("{PACKAGE}/SKILL.md")}),
            main(),
        ),
        read(
            "a null resource",
            json!({"package": PACKAGE, "resource": null}),
            main(),
        ),
        read(
            "an empty cursor",
            json!({"package": PACKAGE, "cursor": ""}),
            main(),
        ),
        list("an empty cursor of a list", json!({"cursor": ""})),
        read(
            "a directory without a slash",
            json!({"package": PACKAGE, "resource": "references"}),
            directory(),
        ),
        search(
            "a number as a text",
            json!({"query": "does logs", "limit": "3"}),
            query(),
        ),
        read(
            "an authority without an id",
            json!({"package": PACKAGE, "authority": {"kind": "executor"}}),
            main(),
        ),
        list(
            "an authority of a list",
            json!({"authority": {"kind": "executor"}}),
        ),
        // Further forms that models write.
        read("a mention", json!({"package": " $triage-logs "}), main()),
        read(
            "a root and a name",
            json!({"package": "demo/triage-logs"}),
            main(),
        ),
        read(
            "a name as a handle",
            json!({"package": "skill://triage-logs"}),
            main(),
        ),
        read(
            "a name with its main file",
            json!({"package": "triage-logs/SKILL.md", "resource": ""}),
            main(),
        ),
        read(
            "a name with its authority",
            json!({"package": "triage-logs", "authority": {"kind": "executor", "id": "demo"}}),
            main(),
        ),
        read(
            "the handle of a file as package",
            json!({"package": format!("{PACKAGE}/references/patterns.md")}),
            file(),
        ),
        read(
            "only the handle of a file",
            json!({"resource": format!("{PACKAGE}/references/patterns.md")}),
            file(),
        ),
        read(
            "a path that begins with ./",
            json!({"package": PACKAGE, "resource": "./references/patterns.md"}),
            file(),
        ),
        read(
            "a path that begins with /",
            json!({"package": PACKAGE, "resource": "/references/patterns.md"}),
            file(),
        ),
        read(
            "a directory by its handle",
            json!({"package": PACKAGE, "resource": format!("{PACKAGE}/references")}),
            directory(),
        ),
        read(
            "an empty authority",
            json!({"package": PACKAGE, "authority": {"kind": "", "id": null}}),
            main(),
        ),
        read(
            "arguments as one text",
            Value::String(json!({"package": "triage-logs"}).to_string()),
            main(),
        ),
        list("no arguments", Value::Null),
        search(
            "a list of words",
            json!({"query": ["does", "logs"], "limit": 3.0, "cursor": null}),
            query(),
        ),
        search(
            "a limit over the maximum",
            json!({"query": "does logs", "limit": 50}),
            json!({"query": "does logs", "limit": 20}),
        ),
    ]
}

#[tokio::test]
async fn what_models_write_is_accepted() {
    let (_fixture, daemon) = serve_tree("demo", TREE).await;
    let session = session(&[("demo", &daemon.address)]).await;

    for AcceptedCall {
        what,
        tool,
        written,
        meant,
    } in accepted_calls()
    {
        let expected = call(&session, tool, meant).await;
        let result = parse_result(&in_time(session.call(tool, &written)).await);
        assert_eq!(result, expected, "{what}: {written}");
    }
    daemon.stop().await;
}

#[tokio::test]
async fn a_lenient_call_stays_in_its_package() {
    let (fixture, daemon) = serve_tree("demo", TREE).await;
    fixture.write("r/secret.txt", "Secret.");
    let session = session(&[("demo", &daemon.address)]).await;
    for (package, resource) in [
        (PACKAGE, "/../other/SKILL.md"),
        (PACKAGE, "references/../../other"),
        (PACKAGE, "/etc/passwd"),
        (PACKAGE, "../"),
        (PACKAGE, "skill://demo/other/SKILL.md"),
        (PACKAGE, "skill://demo/triage-logs/../other/SKILL.md"),
        ("skill://demo/triage-logs/../other/SKILL.md", ""),
        ("skill://demo/secret.txt", ""),
        ("demo/secret.txt", ""),
        ("../secret.txt", ""),
        ("/etc/passwd", ""),
    ] {
        let arguments = json!({"package": package, "resource": resource});
        let result = in_time(session.call("skills.read", &arguments)).await;
        assert!(!result.success, "{package} {resource}: {}", result.json);
        assert!(!result.json.contains("Secret."), "{}", result.json);
    }
    daemon.stop().await;
}

#[tokio::test]
async fn an_unknown_name_leads_to_the_right_one() {
    let (_fixture, daemon) = serve_tree("demo", TREE).await;
    let session = session(&[("demo", &daemon.address)]).await;
    let error = async |package: &str| {
        let arguments = json!({"package": package});
        parse_result(&in_time(session.call("skills.read", &arguments)).await)["error"].clone()
    };

    for package in ["triage-log", "skill://demo/triage-log", "demo/triage-log"] {
        let error = error(package).await;
        assert_eq!(error["code"], "PACKAGE_NOT_FOUND", "{package}");
        let message = error["message"].as_str().expect("a message");
        assert!(message.ends_with("did you mean triage-logs?"), "{message}");
    }

    let several = error("twice").await;
    assert_eq!(several["code"], "AMBIGUOUS_NAME");
    assert_eq!(
        several["message"],
        "2 skills have the name \"twice\": skill://demo/a/twice, skill://demo/b/twice"
    );
    assert_eq!(
        several["next"],
        "Pass one of these handles in place of the name."
    );
    let nothing = error("zzz").await;
    assert_eq!(
        nothing["message"],
        "no skill of this session has the name \"zzz\""
    );

    // The same names for a person and for a program.
    let prompt = UserPrompt {
        mentions: vec![SkillMention {
            name: "triage-log".to_owned(),
            handle: String::new(),
        }],
        ..UserPrompt::default()
    };
    let injected = in_time(session.inject(&prompt)).await;
    let reason = &injected.omitted[0].reason;
    assert!(reason.ends_with("did you mean triage-logs?"), "{reason}");
    let read = in_time(session.read_file("triage-log", None, "")).await;
    let sentence = read.expect_err("no such skill").sentence();
    assert!(
        sentence.ends_with("did you mean triage-logs?"),
        "{sentence}"
    );
    let text = in_time(session.read_file("triage-logs", None, "/references/patterns.md")).await;
    assert_eq!(text.expect("a file"), "Patterns.\n");
    daemon.stop().await;
}

#[tokio::test]
async fn bad_arguments_have_the_next_step() {
    let (_fixture, daemon) = serve_tree("demo", TREE).await;
    let session = session(&[("demo", &daemon.address)]).await;
    for (tool, arguments) in [
        ("skills.read", json!({})),
        ("skills.read", json!({"package": "  "})),
        ("skills.read", json!({"package": "$"})),
        ("skills.read", json!({"package": 7})),
        ("skills.read", json!({"package": PACKAGE, "path": "x"})),
        ("skills.read", json!("skill://demo/triage-logs")),
        ("skills.read", json!(["triage-logs"])),
        ("skills.list", json!({"limit": 3})),
        ("skills.search", json!({"query": "logs", "limit": "many"})),
        ("skills.search", json!({"query": "logs", "limit": 2.5})),
        ("skills.search", json!({"query": "logs", "limit": -1})),
        ("skills.search", json!({"query": {"words": "logs"}})),
    ] {
        let result = in_time(session.call(tool, &arguments)).await;
        let error = parse_result(&result)["error"].clone();
        assert_eq!(
            error["code"], "INVALID_ARGUMENTS",
            "{tool} {arguments}: {error}"
        );
        assert!(
            error["next"]
                .as_str()
                .is_some_and(|next| next.contains("again"))
        );
    }
    daemon.stop().await;
}

#[tokio::test]
async fn a_session_chooses_the_size_of_its_results() {
    let (fixture, daemon) = serve_tree("demo", TREE).await;
    let text = format!(
        "---\ndescription: Long.\n---\n{}",
        "A line of text.\n".repeat(3_000)
    );
    fixture.write("r/long/SKILL.md", &text);
    for number in 0..200 {
        let description = "Does a thing for a person. ".repeat(8);
        let text = format!("---\ndescription: {description}\n---\n");
        fixture.write(&format!("r/more/s{number}/SKILL.md"), text);
    }
    let start = async |result_bytes: usize| {
        let fleet = Fleet::from_executors([("demo".to_owned(), executor(&daemon.address))]);
        let options = SessionOptions {
            result_bytes,
            ..SessionOptions::default()
        };
        Session::start(&fleet, vec![published("demo")], &options).await
    };

    let large = Arc::new(start(MAX_RESULT_BYTES).await.expect("a session"));
    let mut watch = large.watch();
    while large.listed_skills().expect("skills").len() < 206 {
        in_time(watch.next()).await;
    }
    let pages = async |session: &Session, tool: &str, arguments: Value, limit: usize| {
        let mut arguments = arguments;
        let mut pages = Vec::new();
        loop {
            let result = in_time(session.call(tool, &arguments)).await;
            assert!(
                result.success && result.json.len() <= limit,
                "{}",
                result.json
            );
            pages.push(parse_result(&result));
            let cursor = pages.last().expect("a page")["next_cursor"].clone();
            if cursor.is_null() {
                return pages;
            }
            arguments["cursor"] = cursor;
        }
    };

    let small = start(DEFAULT_RESULT_BYTES).await.expect("a session");
    let read = json!({"package": "long"});
    let few = pages(&large, "skills.read", read.clone(), MAX_RESULT_BYTES).await;
    let many = pages(&small, "skills.read", read, DEFAULT_RESULT_BYTES).await;
    let join = |pages: &[Value]| {
        let parts = pages
            .iter()
            .map(|page| page["contents"].as_str().expect("text"));
        parts.collect::<String>()
    };
    assert_eq!((few.len(), many.len()), (1, 7));
    assert_eq!((join(&few), join(&many)), (text.clone(), text));
    let few = pages(&large, "skills.list", json!({}), MAX_RESULT_BYTES).await;
    let many = pages(&small, "skills.list", json!({}), DEFAULT_RESULT_BYTES).await;
    assert!(
        few.len() * 5 <= many.len(),
        "{} and {}",
        few.len(),
        many.len()
    );

    // A fork has the limit of its session.
    let fork = large.fork(caproot_session::ForkScope::All).expect("a fork");
    let page = call(&fork, "skills.read", json!({"package": "long"})).await;
    assert_eq!(page["truncated"], false);
    for bad in [0, DEFAULT_RESULT_BYTES - 1, MAX_RESULT_BYTES + 1] {
        let error = start(bad).await.expect_err("a bad limit").to_string();
        assert_eq!(
            error,
            format!("result_bytes is {bad}; expected 8192 to 65536")
        );
    }
    daemon.stop().await;
}
