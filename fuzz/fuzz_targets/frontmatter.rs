//! The head of a SKILL.md, with its own or with added fences, gives a skill within its limits or an
//! error.

#![no_main]

use caproot::daemon::model::{Severity, SkillMdFrontmatter};
use caproot::daemon::parse::frontmatter;
use caproot_fuzz::{check_problems, check_wire_value};
use libfuzzer_sys::fuzz_target;

/// Maximum number of problems: a few for the name, one for each other field, one for a repair.
const MAX_PROBLEMS: usize = 16;

fuzz_target!(|bytes: &[u8]| {
    let fenced = [b"---\n", bytes, b"\n---\n"].concat();
    for (head, whole) in [(bytes, true), (bytes, false), (&fenced, true)] {
        for dir_name in [
            None,
            Some(&b"a-skill"[..]),
            Some(&bytes[..bytes.len().min(80)]),
        ] {
            let parsed = frontmatter::read(head, whole, dir_name);
            check_problems(&parsed.problems, MAX_PROBLEMS, head);
            let is_broken = parsed
                .problems
                .iter()
                .any(|p| p.severity == Severity::Error);
            assert_eq!(
                parsed.frontmatter.is_none(),
                is_broken,
                "{:?}",
                parsed.problems
            );
            parsed.frontmatter.iter().for_each(check_skill);
        }
    }
});

fn check_skill(skill: &SkillMdFrontmatter) {
    let is_line = |text: &str, max: usize| {
        let length = text.chars().count();
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        (1..=max).contains(&length) && (text == words || text.trim_end() == words)
    };
    assert!(is_line(&skill.name, 64) && !skill.name.chars().any(char::is_control));
    assert!(is_line(&skill.description, 1_024));
    assert!(
        skill
            .short_description
            .as_ref()
            .is_none_or(|text| is_line(text, 1_024))
    );
    for text in [&skill.license, &skill.compatibility] {
        assert!(text.as_ref().is_none_or(|text| !text.trim().is_empty()));
    }
    let metadata = skill
        .metadata
        .iter()
        .map(|(key, value)| key.len() + value.len());
    let tools = skill.allowed_tools.iter().map(|tool| tool.len());
    // Values are stored as JSON text, in which one byte may become an escape of six bytes.
    assert!(metadata.sum::<usize>() <= 6 * (64 << 10) && tools.sum::<usize>() <= 64 << 10);
    skill
        .all_fields
        .iter()
        .for_each(|value| check_wire_value(value, 256 << 10));
}
