use super::{
    InstructionUpdate, MAX_NOTICE_BYTES, TextRegistry, ToolNames, UpdateKind, UpdateRequest,
};
use crate::skills::equal_roots::EqualRoots;
use crate::skills::skill::TextEmphasis;
use crate::text::instructions::{DescribedSkills, TextStyle, write_instructions};
use crate::text::short_names::ShortNames;
use caproot_core::proto::caproot::v1::Skill;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Skill as a test describes it: a name, a description and a version of its SKILL.md.
type SkillSpec = (String, String, u8);

fn update(
    registry: &mut TextRegistry,
    known: Option<&str>,
    specs: &[SkillSpec],
    budget: usize,
) -> InstructionUpdate {
    let skills: Vec<_> = specs
        .iter()
        .enumerate()
        .map(|(index, (name, description, version))| {
            Arc::new(Skill {
                name: name.clone(),
                description: description.clone(),
                package: format!("skill://r/{name}-{}", index * usize::from(name == "same")),
                digest: format!("sha256:{version}"),
                ..Skill::default()
            })
        })
        .collect();
    let names = ToolNames::Flat;
    let known_names = ShortNames::default();
    let described = DescribedSkills {
        skills: &skills,
        equal_roots: &EqualRoots::default(),
        emphasis: &TextEmphasis::default(),
        names: &known_names.chooser(&skills, &EqualRoots::default()),
    };
    let style = TextStyle {
        names,
        ..TextStyle::default()
    };
    let whole = write_instructions(&described, budget, style);
    let request = UpdateRequest {
        known,
        budget,
        names,
        short_names: &ShortNames::default(),
    };
    registry.update(request, whole)
}

fn spec(name: &str, description: &str, version: u8) -> SkillSpec {
    (name.to_owned(), description.to_owned(), version)
}

#[test]
fn a_notice_names_each_change() {
    let mut registry = TextRegistry::default();
    let before = [
        spec("a", "Does a.", 1),
        spec("b", "Does b.", 1),
        spec("c", "Does c.", 1),
    ];
    let first = update(&mut registry, None, &before, 8_000);
    let again = update(&mut registry, Some(&first.id), &before, 8_000);
    assert_eq!(
        (again.kind, again.id.as_str()),
        (UpdateKind::Unchanged, first.id.as_str())
    );
    assert_eq!(
        (again.instructions.text.as_str(), again.instructions.listed),
        ("", 3)
    );

    let after = [
        spec("a", "Does a.", 2),
        spec("b", "Does\nmore\u{202e}.", 1),
        spec("d", "Does d.", 1),
    ];
    let notice = update(&mut registry, Some(&first.id), &after, 8_000);
    assert_eq!(
        notice.instructions.text,
        "## Changed skills\nNew:\n- d: Does d. (skill://r/d-0)\nChanged, so read them again before \
         use:\n- a (skill://r/a-0)\n- b: Does more\\u{202e}. (skill://r/b-0)\nGone:\n- c (skill://r/c-0)\n"
    );
    let changes = notice.changes.expect("changes");
    assert_eq!(
        (changes.added, changes.removed),
        (vec!["d".to_owned()], vec!["c".to_owned()])
    );
    assert_eq!(changes.changed, ["a", "b"]);

    // The same skills have the same id again.
    let back = update(&mut registry, Some(&notice.id), &before, 8_000);
    assert_eq!((back.kind, back.id), (UpdateKind::Notice, first.id));
}

#[test]
fn an_unknown_id_gives_the_whole_text_with_the_reason() {
    let mut registry = TextRegistry::default();
    let skills = [spec("a", "Does a.", 1)];
    let first = update(&mut registry, None, &skills, 8_000);
    let other = update(&mut TextRegistry::default(), None, &skills, 8_000);
    let huge = "A".repeat(10 << 20);
    let hidden = format!("{}\u{200b}", first.id);
    let mut wrong_budget = first.id.clone();
    wrong_budget.push('A');
    for (id, reason) in [
        (other.id.as_str(), "the id is of another session"),
        (&huge, "no session returned such an id"),
        (&hidden, "no session returned such an id"),
        (&wrong_budget, "no session returned such an id"),
        ("", "no session returned such an id"),
    ] {
        let whole = update(&mut registry, Some(id), &skills, 8_000);
        assert_eq!(
            (whole.kind, whole.reason.as_deref()),
            (UpdateKind::Whole, Some(reason))
        );
        assert_eq!(whole.instructions.text, first.instructions.text);
    }
    let short = update(&mut registry, Some(&first.id), &skills, 4_000);
    assert_eq!(
        short.reason.as_deref(),
        Some("the text of the id has another budget")
    );

    for version in 2..10 {
        update(&mut registry, None, &[spec("a", "Does a.", version)], 8_000);
    }
    let old = update(&mut registry, Some(&first.id), &skills, 8_000);
    let reason = old.reason.expect("a reason");
    assert!(reason.contains("last 8 texts"), "{reason}");
    assert_eq!(registry.kept.len(), 8);
}

#[test]
fn twenty_thousand_changes_are_one_short_notice() {
    let mut registry = TextRegistry::default();
    let skills = |version: u8| -> Vec<_> {
        (0..20_000)
            .map(|_| spec("same", &"Long. ".repeat(100), version))
            .collect()
    };
    let first = update(&mut registry, None, &skills(1), 8_000);
    let notice = update(&mut registry, Some(&first.id), &skills(2), 8_000);
    let changes = notice.changes.expect("changes");
    let text = notice.instructions.text;
    assert!(
        text.len() <= MAX_NOTICE_BYTES && changes.changed.len() > 10,
        "{text}"
    );
    assert_eq!(changes.changed.len() + changes.unnamed, 20_000);
    let closing = format!(
        "{} more changes; `skills_list` lists all skills.\n",
        changes.unnamed
    );
    assert!(text.ends_with(&closing), "{text}");
}

#[test]
fn a_notice_says_that_all_skills_went() {
    let mut registry = TextRegistry::default();
    let first = update(&mut registry, None, &[spec("a", "Does a.", 1)], 8_000);
    let notice = update(&mut registry, Some(&first.id), &[], 8_000);
    assert_eq!(notice.kind, UpdateKind::Notice);
    assert!(
        notice
            .instructions
            .text
            .ends_with("Gone:\n- a (skill://r/a-0)\n")
    );

    // A text that only counts the skills is shorter than a notice of several names.
    let several = ["b", "c", "d", "e"].map(|name| spec(name, "", 1));
    let tiny = update(&mut registry, None, &[spec("a", "", 1)], 100);
    let whole = update(&mut registry, Some(&tiny.id), &several, 100);
    assert_eq!(
        whole.reason.as_deref(),
        Some("the whole text is not longer than a notice")
    );
}

fn specs() -> impl Strategy<Value = Vec<SkillSpec>> {
    let name = prop_oneof!["[a-c]{1,2}", "[a-z]{1,90}", Just("same".to_owned())];
    let one = (name, "(?s).{0,40}|[a-z ]{300}", 0_u8..3);
    prop::collection::vec(one, 0..40).prop_map(|mut specs: Vec<SkillSpec>| {
        specs.sort();
        specs.dedup_by(|a, b| a.0 == b.0 && a.0 != "same");
        specs
    })
}

fn count_names<'a>(names: impl IntoIterator<Item = &'a String>) -> BTreeMap<&'a str, isize> {
    let mut counts = BTreeMap::new();
    for name in names {
        *counts.entry(name.as_str()).or_default() += 1;
    }
    counts
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// A notice that names all changes turns the old names into the new names.
    #[test]
    fn a_notice_applied_to_the_old_names_gives_the_new_names(before in specs(), after in specs()) {
        let mut registry = TextRegistry::default();
        let first = update(&mut registry, None, &before, 8_000);
        let next = update(&mut registry, Some(&first.id), &after, 8_000);
        prop_assert!(next.kind != UpdateKind::Whole || next.reason.is_some());
        prop_assert_eq!(next.kind == UpdateKind::Unchanged, next.id == first.id);
        let Some(changes) = next.changes else { return Ok(()) };

        let text = &next.instructions.text;
        prop_assert!(text.len() <= MAX_NOTICE_BYTES, "{} bytes: {text}", text.len());
        for name in changes.added.iter().chain(&changes.changed).chain(&changes.removed) {
            prop_assert!(text.contains(&format!("- {name}")), "{name} is not in {text}");
        }

        let mut expected = count_names(before.iter().map(|spec| &spec.0));
        for name in &changes.added {
            *expected.entry(name).or_default() += 1;
        }
        for name in &changes.removed {
            *expected.entry(name).or_default() -= 1;
        }
        expected.retain(|_, count| *count != 0);
        let actual = count_names(after.iter().map(|spec| &spec.0));
        let distance: isize = expected.keys().chain(actual.keys())
            .collect::<std::collections::BTreeSet<_>>().into_iter()
            .map(|name| (expected.get(name).unwrap_or(&0) - actual.get(name).unwrap_or(&0)).abs())
            .sum();
        prop_assert!(distance <= changes.unnamed.cast_signed(), "{distance} over {}", changes.unnamed);
    }
}
