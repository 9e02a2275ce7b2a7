//! Differences between the approved and the current skills and plugins, by file.

use super::{ApprovedFiles, ApprovedPlugin, ApprovedSkill, EntryKind, Lock, SkillDescription};
use crate::wire::{FileChecksum, RelPath};
use std::collections::BTreeSet;

/// Differences between a lock and the current skills and plugins.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LockDifference {
    /// Skills and plugins that differ, sorted by name and kind.
    pub entries: Vec<EntryDifference>,
}

/// Skill or plugin that differs from the lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryDifference {
    /// Kind of the entry.
    pub kind: EntryKind,
    /// Qualified name of a skill, or name of a plugin.
    pub name: Box<str>,
    /// Kind of the difference.
    pub change: EntryChange,
}

/// Kind of a difference of a skill or plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryChange {
    /// The lock has the name with other files, another description or another version.
    Changed {
        /// Files that differ from the most similar approved version, sorted by path.
        files: Vec<FileDifference>,
        /// Keys of the entry that differ without the files, such as `products`.
        keys: Vec<&'static str>,
        /// Versions of a plugin, if they differ.
        version: Option<VersionChange>,
    },
    /// The lock does not have the name.
    New,
    /// No current skill or plugin has the name.
    Gone,
    /// Several packages with different files have the name, and not all of them are approved.
    Twin {
        /// Handles of the packages.
        packages: Vec<Box<str>>,
    },
}

/// Different versions of a plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionChange {
    /// Version in the lock; empty if the manifest had none.
    pub approved: Box<str>,
    /// Version in the manifest; empty if it has none.
    pub current: Box<str>,
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
    /// Whether everything current is approved, and each approved skill and plugin exists.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the names of the skills and plugins whose difference `is_wanted`.
    pub fn names(&self, is_wanted: impl Fn(&EntryChange) -> bool) -> impl Iterator<Item = &str> {
        let wanted = self
            .entries
            .iter()
            .filter(move |entry| is_wanted(&entry.change));
        wanted.map(|entry| &*entry.name)
    }
}

impl Lock {
    /// Compares the lock with the current skills and plugins. An approved version that is not current is no
    /// difference if another version of the name is current.
    #[must_use]
    pub fn difference(&self, current: &Self) -> LockDifference {
        let mut names: BTreeSet<(&str, EntryKind)> = BTreeSet::new();
        for lock in [self, current] {
            names.extend(
                lock.skills
                    .iter()
                    .map(|entry| (&*entry.name, EntryKind::Skill)),
            );
            names.extend(
                lock.plugins
                    .iter()
                    .map(|entry| (&*entry.name, EntryKind::Plugin)),
            );
        }

        let mut entries = Vec::new();
        for (name, kind) in names {
            let changes = match kind {
                EntryKind::Skill => changes_of_name(
                    self.versions(name),
                    current.versions(name),
                    ApprovedSkill::change_from,
                ),
                EntryKind::Plugin => changes_of_name(
                    self.plugin_versions(name),
                    current.plugin_versions(name),
                    ApprovedPlugin::change_from,
                ),
            };
            entries.extend(changes.into_iter().map(|change| EntryDifference {
                kind,
                name: name.into(),
                change,
            }));
        }
        LockDifference { entries }
    }
}

/// Compares the current packages of one name with its approved versions.
fn changes_of_name<T>(
    approved: &[T],
    found: &[T],
    change_from: impl Fn(&T, &[T]) -> Option<EntryChange>,
) -> Vec<EntryChange> {
    match (approved, found) {
        ([], _) => vec![EntryChange::New],
        (_, []) => vec![EntryChange::Gone],
        _ => found
            .iter()
            .filter_map(|entry| change_from(entry, approved))
            .collect(),
    }
}

impl ApprovedSkill {
    /// Compares the skill with its approved versions. Returns `None` if it equals one of them.
    fn change_from(&self, approved: &[Self]) -> Option<EntryChange> {
        let differences = approved.iter().map(|version| {
            let files = self.files.difference_from(&version.files);
            let keys = self.description.different_keys(&version.description);
            (files, keys)
        });
        // An equal version precedes a version with the same files and another description.
        let nearest = differences
            .min_by_key(|(files, keys)| (files.len(), files.is_empty() && !keys.is_empty()));

        let (files, keys) = nearest?;
        let is_equal = files.is_empty() && keys.is_empty();
        (!is_equal).then_some(EntryChange::Changed {
            files,
            keys,
            version: None,
        })
    }
}

impl ApprovedPlugin {
    /// Compares the plugin with its approved versions. Returns `None` if it equals one of them.
    fn change_from(&self, approved: &[Self]) -> Option<EntryChange> {
        let differences = approved.iter().map(|version| {
            let files = self.files.difference_from(&version.files);
            let keys = unequal_keys([
                (
                    "declarationDigest",
                    self.declaration_digest == version.declaration_digest,
                ),
                ("withheld", self.withheld == version.withheld),
            ]);
            let version = (self.version != version.version).then(|| VersionChange {
                approved: version.version.clone(),
                current: self.version.clone(),
            });
            (files, keys, version)
        });
        let nearest = differences
            .min_by_key(|(files, keys, version)| (files.len(), keys.len(), version.is_some()));

        let (files, mut keys, version) = nearest?;
        if files.is_empty() && keys.is_empty() && version.is_none() {
            return None;
        }
        // Other files say other things, so that only the names of the files help a reviewer.
        if !files.is_empty() {
            keys.clear();
        }
        Some(EntryChange::Changed {
            files,
            keys,
            version,
        })
    }
}

impl SkillDescription {
    /// Returns the keys that differ from another description.
    fn different_keys(&self, other: &Self) -> Vec<&'static str> {
        unequal_keys([
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
        ])
    }
}

/// Returns the keys whose values are not equal.
fn unequal_keys<const N: usize>(keys: [(&'static str, bool); N]) -> Vec<&'static str> {
    let unequal = keys.into_iter().filter(|(_, is_equal)| !is_equal);
    unequal.map(|(key, _)| key).collect()
}

impl ApprovedFiles {
    /// Returns the files that differ from the approved files, sorted by path.
    #[must_use]
    pub fn difference_from(&self, approved: &Self) -> Vec<FileDifference> {
        let changed = self.iter().filter_map(|(path, current)| {
            let change = match approved.get(path) {
                None => FileChange::Added(*current),
                Some(known) if known != current => FileChange::Changed {
                    approved: *known,
                    current: *current,
                },
                Some(_) => return None,
            };
            Some((path, change))
        });
        let removed = approved.iter().filter(|(path, _)| self.get(path).is_none());
        let removed = removed.map(|(path, known)| (path, FileChange::Removed(*known)));

        let differences = changed.chain(removed).map(|(path, change)| FileDifference {
            path: path.clone(),
            change,
        });
        let mut differences: Vec<_> = differences.collect();
        differences.sort_by(|a, b| a.path.cmp(&b.path));
        differences
    }
}
