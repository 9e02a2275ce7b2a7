//! Difference between two catalogs of one root. Applying the difference to the old catalog results
//! in the new catalog.

use super::catalog::Catalog;
use super::skill::Skill;
use super::{Plugin, Severity, skill_file_name};
use caproot_core::wire::RelPath;
use std::collections::HashSet;
use std::sync::Arc;

/// Changes between two catalogs.
#[derive(Debug, Default)]
pub struct CatalogDiff {
    /// Skills that are new or replace the skill of the same package, in the order of the new
    /// catalog.
    pub upserted: Vec<Arc<Skill>>,
    /// Skills that are no longer listed, by package.
    pub removed: Vec<(RelPath, RemovalReason)>,
    /// Plugins that are new or replace the plugin of the same package, by package.
    pub upserted_plugins: Vec<Arc<Plugin>>,
    /// Plugins that no longer exist, by package.
    pub removed_plugins: Vec<RelPath>,
}

/// Reason why a skill is no longer listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // documented at `RemovalReason` in capability_service.proto
pub enum RemovalReason {
    Deleted,
    Invalid,
    Disabled,
    OverLimit,
    Renamed,
    NotApproved,
}

/// Compares two catalogs of one root. If one was made of the other by
/// [`Catalog::with_replaced_skills`], the cost is proportional to the number of changed skills.
#[must_use]
pub fn diff_catalogs(old: &Catalog, new: &Catalog) -> CatalogDiff {
    if let Some(replaced) = new.replaced_skills(old) {
        return CatalogDiff {
            upserted: replaced.map(|(new, _)| new.clone()).collect(),
            ..CatalogDiff::default()
        };
    }

    // An unchanged skill keeps its `Arc`, so that most skills are not compared by value.
    let changed = new.skills(0).filter(|skill| {
        old.skill(&skill.package)
            .is_none_or(|old| !Arc::ptr_eq(old, skill) && old != *skill)
    });
    let upserted: Vec<_> = changed.cloned().collect();

    let removed_skills = old
        .skills(0)
        .filter(|skill| new.skill(&skill.package).is_none());
    let mut removed_skills: Vec<_> = removed_skills.collect();
    removed_skills.sort_by_key(|skill| &skill.package);

    let removed = if removed_skills.is_empty() {
        Vec::new()
    } else {
        removal_reasons(&removed_skills, &upserted, old, new)
    };

    let upserted_plugins = new
        .plugins()
        .iter()
        .filter(|plugin| old.plugin(&plugin.package) != Some(*plugin));
    let old_packages = old.plugins().iter().map(|plugin| &plugin.package);
    let removed_plugins = old_packages.filter(|package| new.plugin(package).is_none());
    CatalogDiff {
        upserted,
        removed,
        upserted_plugins: upserted_plugins.cloned().collect(),
        removed_plugins: removed_plugins.cloned().collect(),
    }
}

fn removal_reasons(
    removed_skills: &[&Arc<Skill>],
    upserted: &[Arc<Skill>],
    old: &Catalog,
    new: &Catalog,
) -> Vec<(RelPath, RemovalReason)> {
    let added = upserted
        .iter()
        .filter(|skill| old.skill(&skill.package).is_none());
    let added: HashSet<_> = added.filter_map(|skill| skill.digest()).collect();

    let kept = new.diagnostics.kept().iter();
    let errors = kept.filter(|d| d.problem.severity == Severity::Error);
    let invalid: HashSet<_> = errors.filter_map(|d| d.resource.as_ref()).collect();

    let reason = |skill: &Skill| {
        let has_package = |sorted: &[RelPath]| sorted.binary_search(&skill.package).is_ok();
        if skill.digest().is_some_and(|digest| added.contains(&digest)) {
            RemovalReason::Renamed
        } else if has_package(&new.disabled_packages.paths) {
            RemovalReason::Disabled
        } else if has_package(&new.hidden_packages) {
            RemovalReason::NotApproved
        } else if invalid.contains(&skill.package.join_path(&skill_file_name())) {
            RemovalReason::Invalid
        } else if new.header.truncated && !old.header.truncated {
            RemovalReason::OverLimit
        } else {
            RemovalReason::Deleted
        }
    };

    removed_skills
        .iter()
        .map(|skill| (skill.package.clone(), reason(skill)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{RemovalReason, diff_catalogs};
    use crate::daemon::model::catalog::{
        BoundedDiagnostics, Catalog, CatalogHeader, RootCounts, RootKind,
    };
    use crate::daemon::model::skill::{SkillFile, assemble_skill};
    use crate::daemon::model::{Skill, SkillMdFrontmatter};
    use caproot_core::wire::{ContentDigest, RelPath};
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    /// Returns a catalog of packages, each with a number that stands for its content.
    fn catalog(skills: &BTreeMap<String, u8>) -> Catalog {
        let skill = |(package, content): (&String, &u8)| {
            let frontmatter = SkillMdFrontmatter {
                name: package.as_str().into(),
                description: format!("Content {content}.").into(),
                short_description: None,
                license: None,
                compatibility: None,
                metadata: Box::default(),
                allowed_tools: Box::default(),
                forbids_model: false,
                forbids_user: false,
                is_switched_off: false,
                all_fields: None,
            };
            let file = Arc::new(SkillFile {
                digest: Some(ContentDigest([*content; 32])),
                size: 1,
                frontmatter: Some(frontmatter.into()),
                problems: Box::default(),
                sidecar: None,
                stale: false,
            });
            let package = RelPath::new(package.as_bytes()).expect("a path");
            Arc::new(
                assemble_skill(&package, &file, None, false)
                    .0
                    .expect("a skill"),
            )
        };
        let header = CatalogHeader {
            scope: None,
            follow_links: true,
            kind: RootKind::SkillSet,
            plugin: None,
            counts: RootCounts::default(),
            truncated: false,
            trust: None,
        };
        Catalog::new(
            skills.iter().map(skill).collect(),
            BoundedDiagnostics::with_limit(10),
            header,
        )
    }

    proptest! {
        #[test]
        fn diff_applied_to_old_gives_new(
            old in proptest::collection::btree_map("[a-d]{1,2}", 0u8..4, 0..8),
            new in proptest::collection::btree_map("[a-d]{1,2}", 0u8..4, 0..8),
        ) {
            let (from, to) = (catalog(&old), catalog(&new));
            let change = diff_catalogs(&from, &to);
            let mut applied: BTreeMap<_, _> =
                from.skills(0).map(|s| (s.package.clone(), s.clone())).collect();
            for (package, _) in &change.removed {
                prop_assert!(applied.remove(package).is_some());
            }
            for skill in &change.upserted {
                let before = applied.insert(skill.package.clone(), skill.clone());
                prop_assert_ne!(before.as_ref(), Some(skill), "an unchanged skill is not in the diff");
            }
            let want: BTreeMap<_, _> =
                to.skills(0).map(|s| (s.package.clone(), s.clone())).collect();
            prop_assert_eq!(applied, want);
            // Replaces the skills that are in both.
            let both: Vec<_> = to.skills(0).filter(|s| from.skill(&s.package).is_some()).cloned().collect();
            let replaced = from.with_replaced_skills(&both);
            prop_assert!(both.iter().all(|s| replaced.skill(&s.package) == Some(s)));
            prop_assert_eq!(diff_catalogs(&from, &replaced).removed, []);
            prop_assert_eq!(diff_catalogs(&replaced, &from.with_replaced_skills(&both)).upserted, Vec::<Arc<Skill>>::new());
        }
    }

    #[test]
    fn diff_finds_replaced_skills() {
        let all: BTreeMap<String, u8> = (0..300).map(|n| (format!("s{n:03}"), 0)).collect();
        let old = catalog(&all);
        let changed = catalog(&BTreeMap::from([("s007".into(), 1), ("s299".into(), 2)]));
        let changed: Vec<_> = changed.skills(0).cloned().collect();
        let new = old.with_replaced_skills(&changed);
        assert_eq!(diff_catalogs(&old, &new).upserted, changed);
        assert_eq!(diff_catalogs(&new, &old).upserted.len(), 2);
        assert!(!new.is_equivalent(&old) && new.is_equivalent(&new.with_replaced_skills(&changed)));
        assert_eq!(new.skills(299).collect::<Vec<_>>(), [&changed[1]]);
    }

    #[test]
    fn a_moved_package_is_renamed() {
        let old = catalog(&BTreeMap::from([("a".into(), 1), ("b".into(), 2)]));
        let new = catalog(&BTreeMap::from([("c".into(), 1)]));
        let reasons: Vec<_> = diff_catalogs(&old, &new)
            .removed
            .into_iter()
            .map(|(_, reason)| reason)
            .collect();
        assert_eq!(reasons, [RemovalReason::Renamed, RemovalReason::Deleted]);
    }
}
