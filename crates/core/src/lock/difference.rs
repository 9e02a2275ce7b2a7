//! Differences between the approved and the current skills, by file.

use super::{ApprovedFiles, ApprovedSkill, Lock, SkillDescription};
use crate::wire::{FileChecksum, RelPath};
use std::collections::BTreeSet;

/// Differences between a lock and the current skills.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LockDifference {
    /// Skills that differ, sorted by name.
    pub skills: Vec<SkillDifference>,
}

/// Skill that differs from the lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillDifference {
    /// Qualified name.
    pub name: Box<str>,
    /// Kind of the difference.
    pub change: SkillChange,
}

/// Kind of a difference of a skill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SkillChange {
    /// The lock has the name with other files or another description.
    Changed {
        /// Files that differ from the most similar approved version, sorted by path.
        files: Vec<FileDifference>,
        /// Keys of the description that differ, such as `products`.
        description: Vec<&'static str>,
    },
    /// The lock does not have the name.
    New,
    /// No current skill has the name.
    Gone,
    /// Several packages with different files have the name, and not all of them are approved.
    Twin {
        /// Handles of the packages.
        packages: Vec<Box<str>>,
    },
}

/// File that differs from the approved version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileDifference {
    /// Path below the package.
    pub path: RelPath,
    /// Kind of the difference.
    pub change: FileChange,
}

/// Kind of a difference of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileChange {
    /// The approved version does not have the file.
    Added(FileChecksum),
    /// Only the approved version has the file.
    Removed(FileChecksum),
    /// The content, the size or the mode differs.
    Changed {
        /// Approved file.
        approved: FileChecksum,
        /// Current file.
        current: FileChecksum,
    },
}

impl LockDifference {
    /// Whether all current skills are approved, and each approved skill exists.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.skills.is_empty()
    }

    /// Returns the names of the skills whose difference `is_wanted`.
    pub fn names(&self, is_wanted: impl Fn(&SkillChange) -> bool) -> impl Iterator<Item = &str> {
        let wanted = self
            .skills
            .iter()
            .filter(move |skill| is_wanted(&skill.change));
        wanted.map(|skill| &*skill.name)
    }
}

impl Lock {
    /// Compares the lock with the current skills. An approved version that no current skill has is no
    /// difference if another version of the name is current.
    #[must_use]
    pub fn difference(&self, current: &Self) -> LockDifference {
        let names: BTreeSet<&str> = [self, current]
            .into_iter()
            .flat_map(|lock| lock.skills.iter().map(|skill| &*skill.name))
            .collect();

        let mut skills = Vec::new();
        for name in names {
            let approved = self.versions(name);
            let found = current.versions(name);
            let changes: Vec<_> = match (approved, found) {
                ([], _) => vec![SkillChange::New],
                (_, []) => vec![SkillChange::Gone],
                _ => found
                    .iter()
                    .filter_map(|skill| skill.change_from(approved))
                    .collect(),
            };
            skills.extend(changes.into_iter().map(|change| SkillDifference {
                name: name.into(),
                change,
            }));
        }
        LockDifference { skills }
    }
}

impl ApprovedSkill {
    /// Compares the skill with its approved versions. Returns `None` if it equals one of them.
    fn change_from(&self, approved: &[Self]) -> Option<SkillChange> {
        let mut nearest: Option<(Vec<FileDifference>, &SkillDescription)> = None;
        for version in approved {
            let files = self.files.difference_from(&version.files);
            if files.is_empty() && version.description == self.description {
                return None;
            }
            let is_nearer = nearest
                .as_ref()
                .is_none_or(|(known, _)| files.len() < known.len());
            if is_nearer {
                nearest = Some((files, &version.description));
            }
        }

        let (files, description) = nearest?;
        Some(SkillChange::Changed {
            files,
            description: self.description.different_keys(description),
        })
    }
}

impl SkillDescription {
    /// Returns the keys that differ from another description.
    fn different_keys(&self, other: &Self) -> Vec<&'static str> {
        let keys = [
            ("description", self.description == other.description),
            (
                "shortDescription",
                self.short_description == other.short_description,
            ),
            (
                "modelInvocable",
                self.model_invocable == other.model_invocable,
            ),
            ("userInvocable", self.user_invocable == other.user_invocable),
            ("products", self.products == other.products),
        ];
        keys.into_iter()
            .filter(|(_, is_equal)| !is_equal)
            .map(|(key, _)| key)
            .collect()
    }
}

impl ApprovedFiles {
    /// Returns the files that differ from the approved files, sorted by path.
    #[must_use]
    pub fn difference_from(&self, approved: &Self) -> Vec<FileDifference> {
        let mut differences = Vec::new();
        for (path, current) in self.iter() {
            let change = match approved.get(path) {
                None => FileChange::Added(*current),
                Some(known) if known != current => FileChange::Changed {
                    approved: *known,
                    current: *current,
                },
                Some(_) => continue,
            };
            let path = path.clone();
            differences.push(FileDifference { path, change });
        }

        for (path, known) in approved.iter() {
            if self.get(path).is_none() {
                let path = path.clone();
                let change = FileChange::Removed(*known);
                differences.push(FileDifference { path, change });
            }
        }
        differences.sort_by(|a, b| a.path.cmp(&b.path));
        differences
    }
}
