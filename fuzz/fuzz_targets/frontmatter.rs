//! The head of a SKILL.md, with its fences or put between some: a skill within its bounds, or an
//! error.

#![no_main]

use caproot::domain::{SkillMdFrontmatter, Severity, frontmatter};
use caproot_fuzz::{check_problems, check_sent};
use libfuzzer_sys::fuzz_target;

/// A few for the name, one for each other field, one for a repair.
const MAX_PROBLEMS: usize = 16;

fuzz_target!(|bytes: &[u8]| {
    let fenced = [b"---\n", bytes, b"\n---\n"].concat();
    for (head, whole) in [(bytes, true), (bytes, false), (&fenced, true)] {
        for dir_name in [None, Some(&b"a-skill"[..]), Some(&bytes[..bytes.len().min(80)])] {
            let reading = frontmatter::read(head, whole, dir_name);
            check_problems(&reading.problems, MAX_PROBLEMS, head);
            let is_broken = reading.problems.iter().any(|p| p.severity == Severity::Error);
            assert_eq!(reading.skill.is_none(), is_broken, "{:?}", reading.problems);
            reading.skill.iter().for_each(check_skill);
        }
    }
});

fn check_skill(skill: &SkillMdFrontmatter) {
    let is_line = |text: &str, most: usize| {
        let length = text.chars().count();
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        (1..=most).contains(&length) && (text == words || text.trim_end() == words)
    };
    assert!(is_line(&skill.name, 64) && !skill.name.chars().any(char::is_control));
    assert!(is_line(&skill.description, 1_024));
    assert!(skill.short_description.as_ref().is_none_or(|text| is_line(text, 1_024)));
    for text in [&skill.license, &skill.compatibility] {
        assert!(text.as_ref().is_none_or(|text| !text.trim().is_empty()));
    }
    let metadata = skill.metadata.iter().map(|(key, value)| key.len() + value.len());
    let tools = skill.allowed_tools.iter().map(|tool| tool.len());
    // Printed as JSON, a value may take twice as much and more: what was one byte is an escape.
    assert!(metadata.sum::<usize>() <= 6 * (64 << 10) && tools.sum::<usize>() <= 64 << 10);
    skill.frontmatter.iter().for_each(|value| check_sent(value, 256 << 10));
}
