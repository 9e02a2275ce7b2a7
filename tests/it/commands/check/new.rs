//! `caproot new`: the new skill passes the check, and nothing is overwritten.

use super::{check_json, run_caproot};
use crate::harness::fixture::Fixture;
use std::fs;

#[test]
fn a_new_skill_has_no_problem() {
    let fixture = Fixture::new("dir here");
    let here = fixture.path("here");
    for (args, path) in [
        (
            &["a", "--into", ".", "--description", "Use it."][..],
            "a/SKILL.md",
        ),
        (
            &["b", "--into", "some/dir", "--description", "Use it."],
            "some/dir/b/SKILL.md",
        ),
        (
            &["c", "--description", "Use when: it's\n  #1 \u{fc}"],
            "c/SKILL.md",
        ),
        (&["true", "--description", "1"], "true/SKILL.md"),
        (&["1", "--description", "[when]"], "1/SKILL.md"),
        (&["技能", "--description", "使用"], "技能/SKILL.md"),
    ] {
        let output = run_caproot(&here, [&["new"], args].concat());
        assert_eq!(output, (0, format!("{path}\n"), String::new()), "{args:?}");
        let dir = path.trim_end_matches("/SKILL.md");
        let (exit, stdout, stderr) = run_caproot(&here, ["check", "--deny-warnings", dir]);
        assert_eq!((exit, &*stderr), (0, ""), "{stdout}");
    }
    let report = check_json(&here, "c");
    assert_eq!(
        report["skills"][0]["description"],
        "Use when: it's #1 \u{fc}"
    );
    // A new skill without a description is not ready for anyone.
    let output = run_caproot(&here, ["new", "fill-forms"]);
    assert_eq!(output.1, "fill-forms/SKILL.md\n");
    let (exit, stdout, _) = run_caproot(&here, ["check", "--deny-warnings", "fill-forms"]);
    assert_eq!(exit, 1);
    assert!(
        stdout.contains("warning[USE_NOT_DESCRIBED]: the description is the text of `caproot new`"),
        "{stdout}"
    );
    let output = run_caproot(&here, ["new", "d", "--output", "json"]);
    assert_eq!(output.1, "{\"name\":\"d\",\"path\":\"d/SKILL.md\"}\n");
}

#[test]
fn bad_names_say_the_rule_and_nothing_is_overwritten() {
    let fixture = Fixture::new("skill pdf\nfile plain\n| x\ndir empty");
    let name = |name: &str| vec!["new".to_owned(), name.to_owned()];
    for (args, exit, message) in [
        (
            name("My Skill"),
            2,
            "should contain only lower-case letters, digits and hyphens",
        ),
        (name("a--b"), 2, "should not contain two hyphens in a row"),
        (name("a-"), 2, "should not begin or end with a hyphen"),
        (name(&"a".repeat(65)), 2, "is over 64 characters"),
        (name(""), 2, "is not the name of a directory"),
        (name(".."), 2, "is not the name of a directory"),
        (name("a/b"), 2, "is not the name of a directory"),
        (name("a\u{1b}[2J"), 2, "contains control characters"),
        (
            [name("x"), vec!["--description".into(), " ".into()]].concat(),
            2,
            "no `description`",
        ),
        (
            [name("x"), vec!["--description".into(), "é".repeat(1_025)]].concat(),
            2,
            "over 1024",
        ),
        (name("pdf"), 78, "pdf exists; caproot overwrites nothing"),
        (
            name("empty"),
            78,
            "empty exists; caproot overwrites nothing",
        ),
        (
            [name("x"), vec!["--into".into(), "plain".into()]].concat(),
            74,
            "cannot create plain",
        ),
    ] {
        let (actual, stdout, stderr) = run_caproot(fixture.top(), &args);
        assert_eq!((actual, &*stdout), (exit, ""), "{args:?}");
        assert!(
            stderr.starts_with("caproot: ") && stderr.contains(message),
            "{stderr}"
        );
    }
    for (bad, hint) in [
        ("My Skill", "hint: a valid name is `my-skill`\n"),
        ("a--b", "hint: a valid name is `a-b`\n"),
        ("skills/PDF Forms", "hint: a valid name is `pdf-forms`\n"),
        ("a\u{1b}[2J", "hint: a valid name is `a-2j`\n"),
        (
            &"ab-".repeat(30),
            &format!("hint: a valid name is `{}a`\n", "ab-".repeat(21)),
        ),
        ("..", ""),
        ("", ""),
        ("pdf", ""),
    ] {
        let (_, _, stderr) = run_caproot(fixture.top(), name(bad));
        let found = stderr.find("hint: ").map_or("", |at| &stderr[at..]);
        assert_eq!(found, hint, "{bad:?}");
        if !hint.is_empty() {
            let suggested = hint.trim_start_matches("hint: a valid name is `");
            let suggested = suggested.trim_end_matches("`\n");
            assert_eq!(run_caproot(fixture.top(), ["new", suggested]).0, 0);
        }
    }
    let kept = fs::read_to_string(fixture.path("pdf/SKILL.md")).expect("the skill");
    assert!(kept.contains("Does pdf."));
    assert!(!fixture.path("x").exists());
}
