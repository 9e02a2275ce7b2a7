//! Notes for a model about skills that miss something on their executor.

use caproot_core::proto::caproot::v1::{
    MissingRequirement, ReadinessState, RequirementKind, Skill, SkillReadiness,
};
use caproot_core::text::{escape_hidden_chars, single_line, truncate_with_ellipsis};

/// Maximum number of requirements in a note.
const MAX_NOTED: usize = 5;
/// Maximum length of the names of one requirement in a note.
const MAX_NAMES_BYTES: usize = 80;

/// Whether the executor of a skill does not have something that the skill declares to need.
#[must_use]
pub fn is_missing_something(skill: &Skill) -> bool {
    let readiness = skill.readiness.as_ref();
    readiness.is_some_and(|readiness| readiness.state() == ReadinessState::Missing)
}

/// Returns the missing requirements of a skill as short texts, such as `program jq`. The names come from
/// the author.
#[must_use]
pub fn missing_notes(skill: &Skill) -> Vec<String> {
    skill
        .readiness
        .as_ref()
        .map_or_else(Vec::new, missing_requirements)
}

/// Returns the missing requirements of a readiness as short texts.
#[must_use]
pub fn missing_requirements(readiness: &SkillReadiness) -> Vec<String> {
    if readiness.state() != ReadinessState::Missing {
        return Vec::new();
    }
    let missing = &readiness.missing;
    let mut notes: Vec<_> = missing.iter().take(MAX_NOTED).map(missing_note).collect();
    let more = missing.len() - notes.len();
    if more > 0 {
        notes.push(format!("{more} more"));
    }
    notes
}

fn missing_note(missing: &MissingRequirement) -> String {
    let kind = match missing.kind() {
        RequirementKind::Program => "program",
        RequirementKind::Variable => "variable",
        RequirementKind::Platform => "platform",
        RequirementKind::Unspecified => "requirement",
    };
    let names = single_line(&missing.names.join(" or "));
    let names = truncate_with_ellipsis(&names, MAX_NAMES_BYTES);
    format!("{kind} {}", escape_hidden_chars(&names))
}

#[cfg(test)]
mod tests {
    use super::{
        MissingRequirement, ReadinessState, RequirementKind, Skill, SkillReadiness, missing_notes,
    };

    #[test]
    fn a_note_is_short_and_on_one_line() {
        let missing = |kind: RequirementKind, names: &[&str]| MissingRequirement {
            kind: kind.into(),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
        };
        let mut all = vec![
            missing(RequirementKind::Program, &["jq"]),
            missing(RequirementKind::Program, &["podman", "docker"]),
            missing(RequirementKind::Platform, &["dar\nwin"]),
        ];
        all.extend((0..60).map(|_| missing(RequirementKind::Variable, &[&"X".repeat(255)])));
        let skill = Skill {
            readiness: Some(SkillReadiness {
                state: ReadinessState::Missing.into(),
                missing: all,
            }),
            ..Skill::default()
        };
        let notes = missing_notes(&skill);
        assert_eq!(notes[..2], ["program jq", "program podman or docker"]);
        assert_eq!((notes.len(), &*notes[5]), (6, "58 more"));
        let text = notes.join(", ");
        assert!(!text.contains('\n') && text.len() < 400, "{text}");
    }
}
