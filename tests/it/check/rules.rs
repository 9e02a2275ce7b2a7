//! The rules of the Agent Skills format, a line each: what `check` says and what becomes of the skill
//! in the catalog.

use super::agrees::listed;
use super::json;
use crate::fixture::Fixture;

/// What is said of a skill.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Says {
    Clean,
    Only(&'static str),
}

use Says::{Clean, Only};

/// What becomes of it: listed under a name, or left out.
type Becomes = Option<&'static str>;

const LONG: &str = "a234567890123456789012345678901234567890123456789012345678901234";

fn rules() -> Vec<(&'static str, String, Says, Becomes)> {
    let named = |name: &str| format!("---\nname: {name}\ndescription: Does it.\n---\n");
    let with = |fields: &str| format!("---\nname: s\ndescription: Does it.\n{fields}\n---\n");
    let described =
        |chars: usize| format!("---\nname: s\ndescription: {}\n---\n", "é".repeat(chars));
    let (left_out, warned) = (Only("ERROR"), Only("WARNING"));
    vec![
        ("my-skill", named("my-skill"), Clean, Some("my-skill")),
        ("s", "# No frontmatter\n".into(), left_out, None),
        ("s", "---\nname: s\ndescription: Never closed.\n".into(), left_out, None),
        ("s", "---\n- name\n- description\n---\n".into(), left_out, None),
        ("s", "---\nname: \"s\ndescription: d\n---\n".into(), left_out, None),
        ("s", "---\ndescription: Does it.\n---\n".into(), warned, Some("s")),
        ("s", "---\nname: s\n---\n".into(), left_out, None),
        ("s", "---\nname: s\ndescription: ' '\n---\n".into(), left_out, None),
        ("MySkill", named("MySkill"), warned, Some("MySkill")),
        ("a_b", named("a_b"), warned, Some("a_b")),
        ("a--b", named("a--b"), warned, Some("a--b")),
        ("-a", named("'-a'"), warned, Some("-a")),
        ("a b", named("a b"), warned, Some("a b")),
        ("🚀", named("🚀"), warned, Some("🚀")),
        ("folder", named("other"), warned, Some("other")),
        (LONG, named(LONG), Clean, Some(LONG)),
        ("s", named(&format!("{LONG}5")), left_out, None),
        ("s", described(1_024), Clean, Some("s")),
        ("s", described(1_025), warned, Some("s")),
        ("s", with(&format!("compatibility: {}", "x".repeat(500))), Clean, Some("s")),
        ("s", with(&format!("compatibility: {}", "x".repeat(501))), warned, Some("s")),
        ("s", with("allowed-tools: [a, b]"), Only("NOTE"), Some("s")),
        ("s", with("metadata: {version: 2}"), Only("NOTE"), Some("s")),
        ("s", with("unheard-of: true"), Only("NOTE"), Some("s")),
        (
            "s",
            with(&format!("metadata: {{short-description: {}}}", "é".repeat(1_024))),
            Clean,
            Some("s"),
        ),
        (
            "s",
            with(&format!("metadata: {{short-description: {}}}", "é".repeat(1_025))),
            warned,
            Some("s"),
        ),
        ("s", with("license: M\u{200b}IT"), warned, Some("s")),
        ("s", named("s") + "Body\u{200b}.\n", warned, Some("s")),
        ("s", named("s") + &"word ".repeat(40_000) + "\u{202e}.\n", warned, Some("s")),
        ("s", named("s") + "👩\u{200d}🚀 ⚠\u{fe0f} می\u{200c}خواهم\n", Clean, Some("s")),
        ("s", "\u{feff}".to_owned() + &named("s"), Clean, Some("s")),
        ("技能", named("技能"), Clean, Some("技能")),
        ("мой-навык", named("мой-навык"), Clean, Some("мой-навык")),
    ]
}

#[tokio::test]
async fn as_check_and_the_catalog_see_them() {
    for (folder, text, says, becomes) in rules() {
        let fixture = Fixture::new("dir root");
        fixture.write(&format!("root/{folder}/SKILL.md"), &text);
        let said = json(fixture.top(), "root");
        let found = said["diagnostics"].as_array().expect("an array");
        let found: Vec<_> = found.iter().map(|d| d["severity"].as_str().expect("text")).collect();
        match says {
            Clean => assert!(found.is_empty(), "{text}{said}"),
            Only(one) => assert_eq!(found, [one], "{text}{said}"),
        }
        let list = listed(fixture.path("root")).await;
        let names: Vec<_> = list.skills.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, becomes.into_iter().collect::<Vec<_>>(), "{text}");
        // What the format does not allow is still there for whoever wants it.
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
