//! Rules of the Agent Skills format, one line per rule: the diagnostics of `check`, and the name of
//! the skill in the catalog.

use super::check_json;
use super::daemon_agreement::{is_check_only, list_skills};
use crate::harness::fixture::Fixture;

/// Diagnostics of a skill.
#[derive(Debug, Clone, Copy, PartialEq)]
enum ExpectedDiagnostics {
    Clean,
    /// One diagnostic of the given severity.
    Only(&'static str),
}

use ExpectedDiagnostics::{Clean, Only};

/// Name of the listed skill, or `None` if the skill is omitted.
type ListedName = Option<&'static str>;

const LONG: &str = "a234567890123456789012345678901234567890123456789012345678901234";

fn rules() -> Vec<(&'static str, String, ExpectedDiagnostics, ListedName)> {
    let named = |name: &str| format!("---\nname: {name}\ndescription: Does it.\n---\n");
    let with = |fields: &str| format!("---\nname: s\ndescription: Does it.\n{fields}\n---\n");
    let described =
        |chars: usize| format!("---\nname: s\ndescription: {}\n---\n", "é".repeat(chars));
    let (omitted, warned) = (Only("ERROR"), Only("WARNING"));
    vec![
        ("my-skill", named("my-skill"), Clean, Some("my-skill")),
        ("s", "# No frontmatter\n".into(), omitted, None),
        (
            "s",
            "---\nname: s\ndescription: Never closed.\n".into(),
            omitted,
            None,
        ),
        (
            "s",
            "---\n- name\n- description\n---\n".into(),
            omitted,
            None,
        ),
        (
            "s",
            "---\nname: \"s\ndescription: d\n---\n".into(),
            omitted,
            None,
        ),
        (
            "s",
            "---\ndescription: Does it.\n---\n".into(),
            warned,
            Some("s"),
        ),
        ("s", "---\nname: s\n---\n".into(), omitted, None),
        (
            "s",
            "---\nname: s\ndescription: ' '\n---\n".into(),
            omitted,
            None,
        ),
        ("MySkill", named("MySkill"), warned, Some("MySkill")),
        ("a_b", named("a_b"), warned, Some("a_b")),
        ("a--b", named("a--b"), warned, Some("a--b")),
        ("-a", named("'-a'"), warned, Some("-a")),
        ("a b", named("a b"), warned, Some("a b")),
        ("🚀", named("🚀"), warned, Some("🚀")),
        ("folder", named("other"), warned, Some("other")),
        (LONG, named(LONG), Clean, Some(LONG)),
        ("s", named(&format!("{LONG}5")), omitted, None),
        ("s", described(1_024), Clean, Some("s")),
        ("s", described(1_025), warned, Some("s")),
        (
            "s",
            with(&format!("compatibility: {}", "x".repeat(500))),
            Clean,
            Some("s"),
        ),
        (
            "s",
            with(&format!("compatibility: {}", "x".repeat(501))),
            warned,
            Some("s"),
        ),
        ("s", with("allowed-tools: [a, b]"), Only("NOTE"), Some("s")),
        ("s", with("metadata: {version: 2}"), Only("NOTE"), Some("s")),
        ("s", with("unheard-of: true"), Only("NOTE"), Some("s")),
        (
            "s",
            with(&format!(
                "metadata: {{short-description: {}}}",
                "é".repeat(1_024)
            )),
            Clean,
            Some("s"),
        ),
        (
            "s",
            with(&format!(
                "metadata: {{short-description: {}}}",
                "é".repeat(1_025)
            )),
            warned,
            Some("s"),
        ),
        ("s", with("license: M\u{200b}IT"), warned, Some("s")),
        ("s", named("s") + "Body\u{200b}.\n", warned, Some("s")),
        (
            "s",
            named("s") + &"word ".repeat(40_000) + "\u{202e}.\n",
            warned,
            Some("s"),
        ),
        (
            "s",
            named("s") + "👩\u{200d}🚀 ⚠\u{fe0f} می\u{200c}خواهم\n",
            Clean,
            Some("s"),
        ),
        ("s", "\u{feff}".to_owned() + &named("s"), Clean, Some("s")),
        ("技能", named("技能"), Clean, Some("技能")),
        ("мой-навык", named("мой-навык"), Clean, Some("мой-навык")),
    ]
}

#[tokio::test]
async fn check_and_catalog_follow_the_rules_of_the_format() {
    for (folder, text, diagnostics, name) in rules() {
        let fixture = Fixture::new("dir root");
        fixture.write(&format!("root/{folder}/SKILL.md"), &text);
        let report = check_json(fixture.top(), "root");
        let found = report["diagnostics"].as_array().expect("an array");
        let found = found.iter().filter(|diagnostic| !is_check_only(diagnostic));
        let found: Vec<_> = found
            .map(|d| d["severity"].as_str().expect("text"))
            .collect();
        match diagnostics {
            Clean => assert!(found.is_empty(), "{text}{report}"),
            Only(severity) => assert_eq!(found, [severity], "{text}{report}"),
        }
        let list = list_skills(fixture.path("root")).await;
        let names: Vec<_> = list.skills.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, name.into_iter().collect::<Vec<_>>(), "{text}");
        // Fields that the format does not allow are kept in the frontmatter.
        for skill in &list.skills {
            assert!(skill.description.chars().count() <= 1_024);
            let fields = skill.frontmatter.as_ref().expect("the author's fields");
            let kept = text
                .lines()
                .filter_map(|l| l.split_once(':'))
                .all(|(key, _)| fields.fields.contains_key(key));
            assert!(kept, "{text}{fields:?}");
        }
    }
}
