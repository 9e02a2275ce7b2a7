//! Texts of whatever catalog and budget: within it, the same each time, and honest about the rest.

use super::super::list::tests::skill;
use super::{DEFAULT_BUDGET, HEAD, InstructionText, ToolNames};
use crate::proto::caproot::v1::Skill;
use proptest::prelude::*;
use std::sync::Arc;

fn write(skills: &[Arc<Skill>], budget: usize, warnings: &[String]) -> InstructionText {
    super::write_instructions(skills, budget, warnings, &ToolNames::default())
}

fn head() -> String {
    ToolNames::default().fill_placeholders(HEAD)
}

fn many(count: usize, description: &str) -> Vec<Arc<Skill>> {
    (0..count).map(|n| skill("r", &format!("s{n:03}"), description, false)).collect()
}

#[test]
fn whole_where_there_is_room() {
    let mut short = Skill::clone(&skill("r", "a", "long", false));
    short.short_description = "Short\n one.".into();
    let skills = [Arc::new(short), skill("r", "b", "Bee.", false), skill("q", "c", "", false)];
    let told = write(&skills, DEFAULT_BUDGET, &["w".to_owned()]);
    let lines = "\nauthority {\"kind\":\"executor\",\"id\":\"r\"}:\n\
                 - a: Short one. (skill://r/a)\n\
                 - b: Bee. (skill://r/b)\n\
                 \nauthority {\"kind\":\"executor\",\"id\":\"q\"}:\n\
                 - c (skill://q/c)\n";
    assert_eq!(told.text, format!("{}{lines}", head()));
    assert_eq!((told.listed, told.shortened, told.omitted, told.hidden), (3, 0, 0, 0));
    assert_eq!(told.warnings, ["w"]);
    assert_eq!(write(&[], 8_000, &[]).text, "");
}

#[test]
fn descriptions_give_way_evenly_and_skills_last() {
    let skills = many(40, &"word ".repeat(60));
    let told = write(&skills, DEFAULT_BUDGET, &[]);
    assert_eq!((told.listed, told.shortened, told.omitted), (40, 40, 0));
    assert!(told.text.len() <= DEFAULT_BUDGET && told.text.len() > DEFAULT_BUDGET - 200);
    let lines: Vec<_> = told.text.lines().filter(|line| line.starts_with("- ")).collect();
    let lengths: Vec<_> = lines.iter().map(|line| line.len()).collect();
    assert!(lengths.iter().all(|len| *len == lengths[0]), "{lengths:?}");
    // A short one stays whole.
    let mut mixed = skills.clone();
    mixed[7] = skill("r", "s007", "Brief.", false);
    let told = write(&mixed, DEFAULT_BUDGET, &[]);
    assert!(told.text.contains("- s007: Brief. ("));
    assert_eq!(told.shortened, 39);

    let told = write(&many(900, "word"), DEFAULT_BUDGET, &[]);
    assert!(told.listed > 100 && told.omitted == 900 - told.listed, "{told:?}");
    assert!(told.text.ends_with(&format!(
        "\n{} more skills have no room here; `skills.list` has them all.\n",
        told.omitted
    )));
    assert!(told.text.len() <= DEFAULT_BUDGET && told.text.len() > DEFAULT_BUDGET - 100);
}

#[test]
fn a_long_text_leaves_room_for_the_others() {
    let mut skills = many(30, "Does one thing well.");
    let mut long = Skill::clone(&skill("r", "a", "A.", false));
    long.short_description = "word ".repeat(20_000);
    skills.insert(0, Arc::new(long));
    let told = write(&skills, DEFAULT_BUDGET, &[]);
    assert_eq!((told.listed, told.shortened, told.omitted), (31, 1, 0));
    assert_eq!(told.text.matches(": Does one thing well. (").count(), 30);

    // Long handles cannot be cut, so that their skills give way to the others.
    let mut skills = many(30, "Does one thing well.");
    for n in 0..8 {
        let mut deep = Skill::clone(&skill("r", "deep", "Deep.", false));
        deep.package = format!("skill://r/{n}/{}", "x".repeat(2_000));
        skills.insert(0, Arc::new(deep));
    }
    let told = write(&skills, DEFAULT_BUDGET, &[]);
    assert_eq!((told.listed, told.shortened, told.omitted), (30, 0, 8));
    assert!(
        told.text.ends_with("\n8 more skills have no room here; `skills.list` has them all.\n")
    );
    let told = write(&skills, 40_000, &[]);
    assert_eq!((told.listed, told.omitted), (38, 0), "with room for all, all are listed");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn within_any_budget(
        parts in prop::collection::vec(("[a-z]{1,4}", "(?s).{0,90}", "(?s).{0,400}", any::<bool>()), 0..60),
        budget in 0_usize..12_000,
    ) {
        let one = |(n, (root, name, text, hidden)): (usize, &(String, String, String, bool))| {
            let mut skill = Skill::clone(&skill(root, name, text, *hidden));
            skill.package = format!("skill://{root}/{n}");
            Arc::new(skill)
        };
        let skills: Vec<_> = parts.iter().enumerate().map(one).collect();
        let told = write(&skills, budget, &[]);
        prop_assert!(told.text.len() <= budget);
        prop_assert_eq!(told.listed + told.omitted + told.hidden, skills.len());
        let shown = |skill: &&Arc<Skill>| told.text.contains(&format!(" ({})\n", skill.package));
        prop_assert_eq!(skills.iter().filter(shown).count(), told.listed);
        if told.omitted > 0 && budget > 100 {
            prop_assert!(told.text.contains(&told.omitted.to_string()), "{}", told.text);
        }
        prop_assert_eq!(&write(&skills, budget, &[]), &told);
        let authorities = told.text.matches("\nauthority ").count();
        prop_assert_eq!(told.text.lines().count(), expected_lines(&told, authorities));
    }
}

/// No text of a stranger makes a line.
fn expected_lines(told: &InstructionText, authorities: usize) -> usize {
    match (told.text.is_empty(), told.listed) {
        (true, _) => 0,
        (false, 0) => 1,
        (false, listed) => {
            HEAD.lines().count() + 2 * authorities + listed + 2 * usize::from(told.omitted > 0)
        }
    }
}
