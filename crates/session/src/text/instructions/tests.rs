//! Instruction texts of random skills and budgets: within the budget, deterministic, and with
//! correct counts.

use super::{
    DEFAULT_BUDGET, DescribedSkills, EqualRoots, HEAD, InstructionText, TextEmphasis, TextPlace,
    TextStyle, ToolNames,
};
use crate::skills::equal_roots::ExecutorRoot;
use crate::text::short_names::ShortNames;
use crate::view::list::tests::skill;
use caproot_core::proto::caproot::v1::Skill;
use proptest::prelude::*;
use std::sync::Arc;

fn write(skills: &[Arc<Skill>], budget: usize) -> InstructionText {
    write_with(skills, &TextEmphasis::default(), budget)
}

fn write_with(skills: &[Arc<Skill>], emphasis: &TextEmphasis, budget: usize) -> InstructionText {
    let short_names = ShortNames::default();
    let described = DescribedSkills {
        skills,
        equal_roots: &EqualRoots::default(),
        emphasis,
        names: &short_names.chooser(skills, &EqualRoots::default()),
    };
    super::write_instructions(&described, budget, TextStyle::default())
}

fn head() -> String {
    ToolNames::default().fill_placeholders(HEAD)
}

fn many(count: usize, description: &str) -> Vec<Arc<Skill>> {
    (0..count)
        .map(|n| skill("r", &format!("s{n:03}"), description, false))
        .collect()
}

#[test]
fn everything_is_listed_if_there_is_room() {
    let mut short = Skill::clone(&skill("r", "a", "long", false));
    short.short_description = "Short\n one.".into();
    let skills = [
        Arc::new(short),
        skill("r", "b", "Bee.", false),
        skill("q", "c", "", false),
    ];
    let text = write(&skills, DEFAULT_BUDGET);
    let lines = "\nexecutor \"r\":\n- a: Short one.\n- b: Bee.\n\nexecutor \"q\":\n- c\n";
    assert_eq!(text.text, format!("{}{lines}", head()));
    assert_eq!(
        (text.listed, text.shortened, text.omitted, text.hidden),
        (3, 0, 0, 0)
    );
    assert_eq!(write(&[], 8_000).text, "");
}

/// Returns the lines of the skills.
fn skill_lines(text: &InstructionText) -> Vec<&str> {
    let lines = text.text.lines();
    lines.filter(|line| line.starts_with("- ")).collect()
}

#[test]
fn descriptions_are_truncated_before_skills_are_omitted() {
    let skills = many(40, &"word ".repeat(60));
    let text = write(&skills, DEFAULT_BUDGET);
    assert_eq!((text.listed, text.shortened, text.omitted), (40, 40, 0));
    assert!(text.text.len() <= DEFAULT_BUDGET && text.text.len() > DEFAULT_BUDGET - 200);
    let lengths: Vec<_> = skill_lines(&text).iter().map(|line| line.len()).collect();
    assert!(lengths.iter().all(|len| *len == lengths[0]), "{lengths:?}");
    // A short description is not truncated.
    let mut mixed = skills.clone();
    mixed[7] = skill("r", "s007", "Brief.", false);
    let text = write(&mixed, DEFAULT_BUDGET);
    assert!(text.text.contains("- s007: Brief.\n"));
    assert_eq!(text.shortened, 39);

    // Then descriptions are dropped, and the others are still of use.
    let text = write(&many(300, &"word ".repeat(60)), DEFAULT_BUDGET);
    assert_eq!((text.listed, text.shortened, text.omitted), (300, 300, 0));
    let described = skill_lines(&text)
        .iter()
        .filter(|line| line.contains(": "))
        .count();
    assert!((90..120).contains(&described), "{described}: {}", text.text);
    assert!(
        skill_lines(&text)
            .iter()
            .all(|line| line.len() < 10 || line.len() > 40)
    );
    assert!(text.text.len() > DEFAULT_BUDGET - 100);

    // Then skills are omitted, and no skill has a description.
    let text = write(&many(1_900, "word"), DEFAULT_BUDGET);
    assert!(
        text.listed > 800 && text.omitted == 1_900 - text.listed,
        "{text:?}"
    );
    assert!(!text.text.contains(": word"));
    assert!(text.text.ends_with(&format!(
        "\n{} more skills are omitted here; find them with `skills.search`: 3 to 8 keywords for the \
         task.\n",
        text.omitted
    )));
    assert!(text.text.len() <= DEFAULT_BUDGET && text.text.len() > DEFAULT_BUDGET - 100);
}

/// A model that sees every skill whole needs no search.
#[test]
fn only_a_partial_text_names_the_search() {
    let whole = write(&many(40, "word"), DEFAULT_BUDGET);
    assert!(whole.text.starts_with(&head()) && !whole.text.contains("skills.search"));

    let exact = write(&many(40, "word"), whole.text.len());
    assert_eq!(exact, whole);

    let long = "word ".repeat(40);
    let all_long = write(&many(10, &long), DEFAULT_BUDGET);
    let shortened = write(&many(10, &long), all_long.text.len() - 100);
    assert_eq!((shortened.listed, shortened.omitted), (10, 0));
    assert!(shortened.shortened > 0 && shortened.text.contains("call `skills.search`"));
    assert!(!shortened.text.contains("skills.list"));

    let omitted = write(&many(1_900, "word"), DEFAULT_BUDGET);
    assert_eq!(omitted.text.matches("`skills.search`").count(), 2);
}

#[test]
fn a_pinned_skill_is_whole_while_another_is_shown() {
    let long = "word ".repeat(60);
    let mut skills = many(300, &long);
    skills[290] = skill("r", "s290", &"pinned ".repeat(60), false);
    let emphasis = TextEmphasis {
        pinned: [290, 299].into(),
        name_only: [0, 299].into(),
    };
    let text = write_with(&skills, &emphasis, DEFAULT_BUDGET);
    let lines = skill_lines(&text);
    assert_eq!(lines[0], "- s000");
    assert!(lines[1].starts_with("- s001: word word"), "{}", lines[1]);
    let pinned = "pinned ".repeat(60);
    let pinned = format!("- s290: {}", pinned.trim_end());
    assert_eq!((lines[290], lines[299]), (pinned.as_str(), "- s299"));
    let places = [0, 290, 299].map(|index: usize| text.skills[index].place);
    assert_eq!(
        places,
        [TextPlace::NameOnly, TextPlace::Listed, TextPlace::NameOnly]
    );
    assert_eq!((text.listed, text.omitted), (300, 0));

    // If the pinned skills do not fit whole, they are equals and the only ones.
    let emphasis = TextEmphasis {
        pinned: (0..40).collect(),
        name_only: [].into(),
    };
    let text = write_with(&skills, &emphasis, DEFAULT_BUDGET);
    assert_eq!((text.listed, text.shortened, text.omitted), (40, 40, 260));
    assert!(text.text.len() > DEFAULT_BUDGET - 200);
}

#[test]
fn a_long_description_leaves_room_for_other_skills() {
    let mut skills = many(30, "Does one thing well.");
    let mut long = Skill::clone(&skill("r", "a", "A.", false));
    long.short_description = "word ".repeat(20_000);
    skills.insert(0, Arc::new(long));
    let text = write(&skills, DEFAULT_BUDGET);
    assert_eq!((text.listed, text.shortened, text.omitted), (31, 1, 0));
    assert_eq!(text.text.matches(": Does one thing well.\n").count(), 30);

    // Handles cannot be truncated, so skills with long handles are omitted first.
    let mut skills = many(30, "Does one thing well.");
    for n in 0..8 {
        let mut deep = Skill::clone(&skill("r", &"deep".repeat(40), "Deep.", false));
        deep.package = format!("skill://r/{n}/{}", "x".repeat(2_000));
        skills.insert(0, Arc::new(deep));
    }
    let text = write(&skills, DEFAULT_BUDGET);
    assert_eq!((text.listed, text.shortened, text.omitted), (30, 0, 8));
    assert!(text.text.ends_with(
        "\n8 more skills are omitted here; find them with `skills.search`: 3 to 8 keywords for the task.\n"
    ));
    let text = write(&skills, 40_000);
    assert_eq!(
        (text.listed, text.omitted),
        (38, 0),
        "all skills are listed if all fit"
    );
}

#[test]
fn equal_skills_of_several_environments_are_one_line() {
    let root = |environment: usize| {
        let id = format!("team@{environment}");
        let skill = Skill {
            digest: "sha256:x".into(),
            ..Skill::clone(&skill(&id, "a", "Does a.", false))
        };
        (environment.to_string(), id, [Arc::new(skill)])
    };
    let roots: Vec<_> = (0..30).map(root).collect();
    let equal = EqualRoots::find(
        &roots
            .iter()
            .map(|(environment_id, id, skills)| ExecutorRoot {
                environment_id,
                id,
                skills,
            })
            .collect::<Vec<_>>(),
    );
    let skills: Vec<_> = roots.iter().flat_map(|root| root.2.clone()).collect();
    let short_names = ShortNames::default();
    let described = DescribedSkills {
        skills: &skills,
        equal_roots: &equal,
        emphasis: &TextEmphasis::default(),
        names: &short_names.chooser(&skills, &equal),
    };
    let text = super::write_instructions(&described, DEFAULT_BUDGET, TextStyle::default());
    let others = (1..=8).map(|n| format!("environment \"{n}\": authority id \"team@{n}\"\n"));
    let others = others.collect::<Vec<_>>().concat();
    let lines = format!(
        "\nexecutor \"team@0\":\n\
         These skills are in environment \"0\". The same skills are elsewhere:\n\
         {others}21 more environments: see `skills.list`\n\
         - a: Does a.\n"
    );
    assert_eq!(text.text, format!("{}{lines}", head()));
    assert_eq!((text.listed, text.omitted, text.hidden), (1, 0, 0));
    let merged = text.skills.iter().filter(|s| s.place == TextPlace::Merged);
    assert_eq!(merged.count(), 29);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn no_skill_is_shown_before_a_pinned_skill_is_whole(
        parts in prop::collection::vec((0_usize..3, 0_usize..400, any::<bool>(), any::<bool>()), 1..60),
        budget in 0_usize..12_000,
    ) {
        let mut emphasis = TextEmphasis::default();
        let mut skills = Vec::new();
        for (index, (root, length, is_pinned, is_name_only)) in parts.iter().enumerate() {
            let name = format!("s{index:03}");
            skills.push(skill(&format!("r{root}"), &name, &"x".repeat(*length), false));
            if *is_pinned {
                emphasis.pinned.insert(index);
            }
            if *is_name_only {
                emphasis.name_only.insert(index);
            }
        }

        let text = write_with(&skills, &emphasis, budget);
        prop_assert!(text.text.len() <= budget);
        let shown = |index: &usize| {
            let place = text.skills[*index].place;
            matches!(place, TextPlace::Listed | TextPlace::NameOnly | TextPlace::Shortened { .. })
        };
        let is_cut = |index: &usize| {
            !shown(index) || matches!(text.skills[*index].place, TextPlace::Shortened { .. })
        };
        let others = (0..skills.len()).filter(|index| !emphasis.pinned.contains(index));
        if others.clone().any(|index| shown(&index)) {
            prop_assert!(!emphasis.pinned.iter().any(is_cut), "{}", text.text);
        }

        // Equals are cut to one length.
        let cut_lengths = |pinned: bool| {
            let cut = (0..skills.len()).filter(|index| emphasis.pinned.contains(index) == pinned);
            let lengths = cut.filter_map(|index| match text.skills[index].place {
                TextPlace::Shortened { shown_bytes, .. } => Some(shown_bytes),
                _ => None,
            });
            lengths.collect::<std::collections::BTreeSet<_>>()
        };
        for lengths in [cut_lengths(true), cut_lengths(false)] {
            // Or they are dropped.
            let kept: Vec<_> = lengths.iter().filter(|length| **length > 0).collect();
            prop_assert!(kept.len() <= 1, "{lengths:?}");
            prop_assert!(kept.iter().all(|length| **length >= 30), "{lengths:?}");
        }
        for index in &emphasis.name_only {
            let place = text.skills[*index].place;
            let has_description = matches!(place, TextPlace::Shortened { .. } | TextPlace::Listed);
            prop_assert!(!has_description);
        }
    }

    #[test]
    fn the_text_is_within_any_budget(
        parts in prop::collection::vec(("[a-z]{1,4}", "(?s).{0,90}", "(?s).{0,400}", any::<bool>()), 0..60),
        budget in 0_usize..12_000,
    ) {
        let one = |(n, (root, name, description, hidden)): (usize, &(String, String, String, bool))| {
            let mut skill = Skill::clone(&skill(root, name, description, *hidden));
            skill.package = format!("skill://{root}/{n}");
            Arc::new(skill)
        };
        let skills: Vec<_> = parts.iter().enumerate().map(one).collect();
        let text = write(&skills, budget);
        prop_assert!(text.text.len() <= budget);
        prop_assert_eq!(text.listed + text.omitted + text.hidden, skills.len());
        let lines = skill_lines(&text);
        prop_assert_eq!(lines.len(), text.listed);
        if text.omitted > 0 && budget > 100 {
            prop_assert!(text.text.contains(&text.omitted.to_string()), "{}", text.text);
        }
        prop_assert_eq!(&write(&skills, budget), &text);

        // Each skill has the place that the counts and the text say.
        let count = |is_place: fn(TextPlace) -> bool| {
            text.skills.iter().filter(|skill| is_place(skill.place)).count()
        };
        let shortened = count(|place| matches!(place, TextPlace::Shortened { .. }));
        prop_assert_eq!(shortened, text.shortened);
        prop_assert_eq!(shortened + count(|place| place == TextPlace::Listed), text.listed);
        prop_assert_eq!(count(|place| place == TextPlace::Hidden), text.hidden);
        for (found, skill) in text.skills.iter().zip(&skills) {
            let is_shown = matches!(found.place, TextPlace::Listed | TextPlace::Shortened { .. });
            let has_handle = text.text.contains(&format!(" ({})\n", skill.package));
            prop_assert_eq!(&found.skill, skill);
            prop_assert_eq!(is_shown, has_handle || found.short_name.is_some());
            if let Some(name) = &found.short_name {
                let is_line = |line: &&str| *line == format!("- {name}") || line.starts_with(&format!("- {name}: "));
                prop_assert!(!has_handle && lines.iter().any(is_line));
            }
        }
        let authorities = text.text.matches("\nexecutor ").count();
        prop_assert_eq!(text.text.lines().count(), expected_lines(&text, authorities));
    }
}

/// Returns the number of lines; no text of a skill contains a line break.
fn expected_lines(text: &InstructionText, authorities: usize) -> usize {
    match (text.text.is_empty(), text.listed) {
        (true, _) => 0,
        (false, 0) => 1,
        (false, listed) => {
            HEAD.lines().count() + 2 * authorities + listed + 2 * usize::from(text.omitted > 0)
        }
    }
}

#[test]
fn the_text_for_a_model_with_a_shell_has_another_line() {
    let skills = [Arc::new(Skill {
        name: "pdf".to_owned(),
        ..Skill::default()
    })];
    let short_names = ShortNames::default();
    let described = DescribedSkills {
        skills: &skills,
        equal_roots: &EqualRoots::default(),
        emphasis: &TextEmphasis::default(),
        names: &short_names.chooser(&skills, &EqualRoots::default()),
    };
    let style = |has_scripts| TextStyle {
        names: ToolNames::Flat,
        has_scripts,
    };
    let without = super::write_instructions(&described, DEFAULT_BUDGET, style(false)).text;
    let with = super::write_instructions(&described, DEFAULT_BUDGET, style(true)).text;

    let added: Vec<_> = with
        .lines()
        .filter(|line| !without.contains(line))
        .collect();
    assert_eq!(added.len(), 1, "{with}");
    let command = "`caproot exec PACKAGE/scripts/run.py --digest SKILL_DIGEST -- ARGS`";
    assert!(
        added[0].contains(command) && added[0].contains("`skills_read`"),
        "{with}"
    );
    assert_eq!(with.lines().count(), without.lines().count());
    assert!(without.contains("Scripts are on another machine"));
    assert!(!with.contains("another machine") && !without.contains("caproot exec"));
}
