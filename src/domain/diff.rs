//! The difference between two catalogs of one root. Law: `apply(old, diff(old, new)) == new`.

use super::catalog::Catalog;
use super::skill::Skill;
use super::{Plugin, RelPath, Severity, main_file};
use std::collections::HashSet;
use std::sync::Arc;

/// What changed.
#[derive(Debug, Default)]
pub struct Diff {
    /// New, or in the place of the one with the same package. In the new catalog's order.
    pub upserted: Vec<Arc<Skill>>,
    /// No longer listed. By package.
    pub removed: Vec<(RelPath, Removal)>,
    /// Plugins that are new, or in the place of the one with the same package. By package.
    pub upserted_plugins: Vec<Arc<Plugin>>,
    /// Plugins that are no longer there. By package.
    pub removed_plugins: Vec<RelPath>,
}

/// Why a skill is no longer listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // the proto's `RemovalReason` says what each means
pub enum Removal {
    Deleted,
    Invalid,
    Disabled,
    OverLimit,
    Renamed,
}

/// Compares two catalogs of one root. Where one was made of the other by [`Catalog::with`], this
/// costs in proportion to what was changed.
#[must_use]
pub fn diff(old: &Catalog, new: &Catalog) -> Diff {
    if let Some(replaced) = new.replaced(old) {
        let upserted = replaced.map(|(now, _)| now.clone()).collect();
        return Diff { upserted, ..Diff::default() };
    }
    let changed = |skill: &&Arc<Skill>| {
        old.skill(&skill.package).is_none_or(|o| !Arc::ptr_eq(o, skill) && o != *skill)
    };
    let upserted: Vec<_> = new.skills(0).filter(changed).cloned().collect();
    let gone = old.skills(0).filter(|skill| new.skill(&skill.package).is_none());
    let mut gone: Vec<_> = gone.collect();
    gone.sort_by(|a, b| a.package.cmp(&b.package));
    let removed = if gone.is_empty() { Vec::new() } else { reasons(&gone, &upserted, old, new) };
    let (upserted_plugins, removed_plugins) = plugins(old, new);
    Diff { upserted, removed, upserted_plugins, removed_plugins }
}

fn plugins(old: &Catalog, new: &Catalog) -> (Vec<Arc<Plugin>>, Vec<RelPath>) {
    let changed = |plugin: &&Arc<Plugin>| old.plugin(&plugin.package) != Some(plugin);
    let upserted = new.plugins().iter().filter(changed).cloned().collect();
    let gone = old.plugins().iter().filter(|plugin| new.plugin(&plugin.package).is_none());
    (upserted, gone.map(|plugin| plugin.package.clone()).collect())
}

fn reasons(
    gone: &[&Arc<Skill>],
    upserted: &[Arc<Skill>],
    old: &Catalog,
    new: &Catalog,
) -> Vec<(RelPath, Removal)> {
    let came = upserted.iter().filter(|skill| old.skill(&skill.package).is_none());
    let came: HashSet<_> = came.filter_map(|skill| skill.digest()).collect();
    let errors = new.diagnostics.kept().iter().filter(|d| d.problem.severity == Severity::Error);
    let invalid: HashSet<_> = errors.filter_map(|d| d.resource.as_ref()).collect();
    let reason = |skill: &Skill| {
        if skill.digest().is_some_and(|digest| came.contains(&digest)) {
            Removal::Renamed
        } else if new.off().walked().binary_search(&skill.package).is_ok() {
            Removal::Disabled
        } else if invalid.contains(&skill.package.join_all(&main_file())) {
            Removal::Invalid
        } else if new.header.truncated && !old.header.truncated {
            Removal::OverLimit
        } else {
            Removal::Deleted
        }
    };
    gone.iter().map(|skill| (skill.package.clone(), reason(skill))).collect()
}

#[cfg(test)]
mod tests {
    use super::{Removal, diff};
    use crate::domain::catalog::{Catalog, Counts, Diagnostics, Header, Kind};
    use crate::domain::skill::{MainFile, assemble};
    use crate::domain::{Authored, Digest, RelPath, Skill};
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    /// A catalog of packages, each with a number that stands for its content.
    fn catalog(skills: &BTreeMap<String, u8>) -> Catalog {
        let skill = |(package, content): (&String, &u8)| {
            let authored = Authored {
                name: package.as_str().into(),
                description: format!("Content {content}.").into(),
                short_description: None,
                license: None,
                compatibility: None,
                metadata: Box::default(),
                allowed_tools: Box::default(),
                frontmatter: None,
            };
            let file = Arc::new(MainFile {
                digest: Some(Digest([*content; 32])),
                size: 1,
                authored: Some(authored.into()),
                problems: Box::default(),
                sidecar: None,
                stale: false,
            });
            let package = RelPath::new(package.as_bytes()).expect("a path");
            Arc::new(assemble(&package, &file, None).0.expect("a skill"))
        };
        let header = Header {
            scope: None,
            follow_links: true,
            kind: Kind::SkillSet,
            plugin: None,
            counts: Counts::default(),
            truncated: false,
        };
        Catalog::new(skills.iter().map(skill).collect(), Diagnostics::keeping(10), header)
    }

    proptest! {
        #[test]
        fn applied_it_gives_the_new(
            old in proptest::collection::btree_map("[a-d]{1,2}", 0u8..4, 0..8),
            new in proptest::collection::btree_map("[a-d]{1,2}", 0u8..4, 0..8),
        ) {
            let (from, to) = (catalog(&old), catalog(&new));
            let change = diff(&from, &to);
            let mut held: BTreeMap<_, _> =
                from.skills(0).map(|s| (s.package.clone(), s.clone())).collect();
            for (package, _) in &change.removed {
                prop_assert!(held.remove(package).is_some());
            }
            for skill in &change.upserted {
                let before = held.insert(skill.package.clone(), skill.clone());
                prop_assert_ne!(before.as_ref(), Some(skill), "nothing is sent that did not change");
            }
            let want: BTreeMap<_, _> =
                to.skills(0).map(|s| (s.package.clone(), s.clone())).collect();
            prop_assert_eq!(held, want);
            // What is in both, replaced in place.
            let both: Vec<_> = to.skills(0).filter(|s| from.skill(&s.package).is_some()).cloned().collect();
            let replaced = from.with(&both);
            prop_assert!(both.iter().all(|s| replaced.skill(&s.package) == Some(s)));
            prop_assert_eq!(diff(&from, &replaced).removed, []);
            prop_assert_eq!(diff(&replaced, &from.with(&both)).upserted, Vec::<Arc<Skill>>::new());
        }
    }

    #[test]
    fn what_was_replaced_is_found() {
        let all: BTreeMap<String, u8> = (0..300).map(|n| (format!("s{n:03}"), 0)).collect();
        let old = catalog(&all);
        let changed = catalog(&BTreeMap::from([("s007".into(), 1), ("s299".into(), 2)]));
        let changed: Vec<_> = changed.skills(0).cloned().collect();
        let new = old.with(&changed);
        assert_eq!(diff(&old, &new).upserted, changed);
        assert_eq!(diff(&new, &old).upserted.len(), 2);
        assert!(!new.means_the_same(&old) && new.means_the_same(&new.with(&changed)));
        assert_eq!(new.skills(299).collect::<Vec<_>>(), [&changed[1]]);
    }

    #[test]
    fn a_package_that_moved_is_renamed() {
        let old = catalog(&BTreeMap::from([("a".into(), 1), ("b".into(), 2)]));
        let new = catalog(&BTreeMap::from([("c".into(), 1)]));
        let reasons: Vec<_> = diff(&old, &new).removed.into_iter().map(|(_, why)| why).collect();
        assert_eq!(reasons, [Removal::Renamed, Removal::Deleted]);
    }
}
