//! Difference of two catalogs of one root: the old catalog plus the difference is the new catalog.

#![no_main]

use std::collections::BTreeMap;
use std::sync::Arc;

use caproot::daemon::model::catalog::{
    BoundedDiagnostics, Catalog, CatalogHeader, RootCounts, RootKind,
};
use caproot::daemon::model::diff::{CatalogDiff, diff_catalogs};
use caproot::daemon::model::skill::{SkillFile, assemble_skill};
use caproot::daemon::model::{DisabledPackages, Skill, SkillMdFrontmatter};
use caproot_core::wire::{ContentDigest, RelPath};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

/// Names and contents of packages by their paths.
type Packages<'a> = BTreeMap<&'a [u8], (&'a str, u8)>;

#[derive(Debug, Arbitrary)]
struct Input<'a> {
    old: Packages<'a>,
    new: Packages<'a>,
    /// Indexes of old packages that get new content in place.
    changed: Vec<(u8, u8)>,
    disabled: Vec<&'a [u8]>,
    truncated: bool,
}

type SkillMap = BTreeMap<RelPath, Arc<Skill>>;

fuzz_target!(|input: Input| {
    let disabled = input
        .disabled
        .iter()
        .filter_map(|path| RelPath::new(path))
        .map(|path| (path, None));
    let old = catalog(&input.old, false);
    let mut new = catalog(&input.new, input.truncated);
    new.disabled_packages = DisabledPackages::new(disabled.collect());
    check(&old, &new);
    check(&new, &old);

    let old_skills: Vec<_> = old.skills(0).cloned().collect();
    let changed: Vec<_> = input
        .changed
        .iter()
        .filter_map(|(at, content)| {
            old_skills
                .get(usize::from(*at))
                .map(|skill| (skill, *content))
        })
        .filter_map(|(old, content)| skill(&old.package, old.name(), content))
        .collect();
    let replaced = old.with_replaced_skills(&changed);
    check(&old, &replaced);
    check(&replaced, &old);
    check(&replaced, &new);
});

fn check(old: &Catalog, new: &Catalog) {
    let CatalogDiff {
        upserted, removed, ..
    } = diff_catalogs(old, new);
    let mut skills = skill_map(old);
    for (package, _) in removed {
        assert!(
            skills.remove(&package).is_some(),
            "{package:?} was not in the old catalog"
        );
    }
    for skill in upserted {
        let before = skills.insert(skill.package.clone(), skill.clone());
        assert_ne!(
            before,
            Some(skill),
            "unchanged skills are not in the difference"
        );
    }
    assert_eq!(skills, skill_map(new));
    assert!(
        old.skills(0)
            .all(|skill| old.skill(&skill.package) == Some(skill))
    );
}

fn skill_map(catalog: &Catalog) -> SkillMap {
    catalog
        .skills(0)
        .map(|skill| (skill.package.clone(), skill.clone()))
        .collect()
}

fn skill(package: &RelPath, name: &str, content: u8) -> Option<Arc<Skill>> {
    let frontmatter = SkillMdFrontmatter {
        name: name.into(),
        description: "A description.".into(),
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
    let file = SkillFile {
        digest: Some(ContentDigest([content; 32])),
        size: 1,
        frontmatter: Some(frontmatter.into()),
        problems: Box::default(),
        sidecar: None,
        stale: false,
    };
    assemble_skill(package, &Arc::new(file), None, false)
        .0
        .map(Arc::new)
}

fn catalog(packages: &Packages, truncated: bool) -> Catalog {
    let skills = packages
        .iter()
        .filter_map(|(path, (name, content))| skill(&RelPath::new(path)?, name, *content));
    let header = CatalogHeader {
        scope: None,
        follow_links: true,
        kind: RootKind::SkillSet,
        plugin: None,
        trust: None,
        counts: RootCounts::default(),
        truncated,
    };
    Catalog::new(skills.collect(), BoundedDiagnostics::with_limit(10), header)
}
