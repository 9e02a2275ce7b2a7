//! List of a server's skills. An unchanged skill is reused, and an invalid one is omitted with a warning.

use super::RemoteSkill;
use crate::sources::SkillListing;
use caproot_core::text::quote_value;
use std::collections::HashMap;
use std::sync::Arc;

/// Invalid skills that a warning names.
const MAX_REPORTED: usize = 4;

/// Skills of a server by package.
pub type RemoteSkills = HashMap<String, Arc<RemoteSkill>>;

/// List of a server, with the declarations of its skills.
#[derive(Debug)]
pub struct ListedSkills {
    pub listing: SkillListing,
    pub skills: RemoteSkills,
}

/// Builder of a list.
pub struct SkillListBuilder<'a> {
    /// Skills of the list before.
    before: &'a RemoteSkills,
    skills: RemoteSkills,
    invalid: Vec<String>,
    invalid_count: usize,
}

impl<'a> SkillListBuilder<'a> {
    pub fn new(before: &'a RemoteSkills) -> Self {
        Self {
            before,
            skills: RemoteSkills::new(),
            invalid: Vec::new(),
            invalid_count: 0,
        }
    }

    /// Returns the number of skills.
    pub fn skill_count(&self) -> usize {
        self.skills.len()
    }

    /// Adds a skill, or records the reason for its rejection. The label names an invalid skill.
    pub fn add_skill(&mut self, label: &str, skill: Result<RemoteSkill, String>) {
        let skill = match skill {
            Ok(skill) if self.skills.contains_key(&skill.skill.package) => {
                return self.record_invalid(label, "it is listed twice");
            }
            Ok(skill) => skill,
            Err(reason) => return self.record_invalid(label, &reason),
        };

        let package = skill.skill.package.clone();
        let skill = match self.before.get(&package) {
            Some(known) if known.is_same(&skill) => {
                known.confirm();
                known.clone()
            }
            _ => Arc::new(skill),
        };
        self.skills.insert(package, skill);
    }

    pub fn record_invalid(&mut self, label: &str, reason: &str) {
        self.invalid_count += 1;
        if self.invalid.len() < MAX_REPORTED {
            self.invalid
                .push(format!("{}: {reason}", quote_value(label)));
        }
    }

    /// Returns the list of a server. `phrase` names the server, and `cut_reason` is the limit that ended the
    /// list.
    pub fn finish(self, phrase: &str, cut_reason: Option<&str>) -> ListedSkills {
        let mut warnings = Vec::new();
        if let Some(reason) = cut_reason {
            warnings.push(format!("the list of {phrase} is truncated: {reason}"));
        }
        if self.invalid_count > 0 {
            warnings.push(format!(
                "{} skills of {phrase} are omitted: {}",
                self.invalid_count,
                self.invalid.join("; ")
            ));
        }

        let count = self
            .skills
            .values()
            .filter(|skill| skill.declared.files.is_none())
            .count();
        if count > 0 {
            warnings.push(format!(
                "{phrase} declares no digests for {count} of its skills"
            ));
        }

        let mut skills: Vec<_> = self
            .skills
            .values()
            .map(|skill| skill.skill.clone())
            .collect();
        skills.sort_by(|a, b| (&a.name, &a.package).cmp(&(&b.name, &b.package)));
        ListedSkills {
            listing: SkillListing {
                skills,
                warnings,
                truncated: cut_reason.is_some(),
                reserved_names: Vec::new(),
            },
            skills: self.skills,
        }
    }
}

/// Returns whether two lists have the same skills. An unchanged skill is the same `Arc`.
pub fn is_same_skills(before: &RemoteSkills, after: &RemoteSkills) -> bool {
    before.len() == after.len()
        && after.iter().all(|(package, skill)| {
            before
                .get(package)
                .is_some_and(|known| Arc::ptr_eq(known, skill))
        })
}
