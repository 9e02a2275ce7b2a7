//! Two catalogs of one root: the difference, applied to the old one, gives the new one.

#![no_main]

use std::collections::BTreeMap;
use std::sync::Arc;

use caproot::domain::catalog::{Catalog, RootCounts, BoundedDiagnostics, CatalogHeader, Kind};
use caproot::domain::diff::{CatalogDiff, diff};
use caproot::domain::skill::{SkillFile, assemble};
use caproot::domain::{SkillMdFrontmatter, ContentDigest, DisabledPackages, RelPath, Skill};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

/// Packages by their paths, each with a name and a content.
type Packages<'a> = BTreeMap<&'a [u8], (&'a str, u8)>;

#[derive(Debug, Arbitrary)]
struct Input<'a> {
    old: Packages<'a>,
    new: Packages<'a>,
    /// Packages of the old one that are given another content in place.
    changed: Vec<(u8, u8)>,
    off: Vec<&'a [u8]>,
    truncated: bool,
}

type Held = BTreeMap<RelPath, Arc<Skill>>;

fuzz_target!(|input: Input| {
    let off = input.off.iter().filter_map(|path| RelPath::new(path)).map(|path| (path, None));
    let old = catalog(&input.old, false);
    let new = catalog(&input.new, input.truncated).without(DisabledPackages::new(off.collect()));
    check(&old, &new);
    check(&new, &old);

    let held: Vec<_> = old.skills(0).cloned().collect();
    let changed: Vec<_> = input
        .changed
        .iter()
        .filter_map(|(at, content)| held.get(usize::from(*at)).map(|skill| (skill, *content)))
        .filter_map(|(old, content)| skill(&old.package, old.name(), content))
        .collect();
    let replaced = old.with(&changed);
    check(&old, &replaced);
    check(&replaced, &old);
    check(&replaced, &new);
});

fn check(old: &Catalog, new: &Catalog) {
    let CatalogDiff { upserted, removed, .. } = diff(old, new);
    let mut held = held(old);
    for (package, _) in removed {
        assert!(held.remove(&package).is_some(), "{package:?} was not there");
    }
    for skill in upserted {
        let before = held.insert(skill.package.clone(), skill.clone());
        assert_ne!(before, Some(skill), "nothing is sent that did not change");
    }
    assert_eq!(held, self::held(new));
    assert!(old.skills(0).all(|skill| old.skill(&skill.package) == Some(skill)));
}

fn held(catalog: &Catalog) -> Held {
    catalog.skills(0).map(|skill| (skill.package.clone(), skill.clone())).collect()
}

fn skill(package: &RelPath, name: &str, content: u8) -> Option<Arc<Skill>> {
    let authored = SkillMdFrontmatter {
        name: name.into(),
        description: "A description.".into(),
        short_description: None,
        license: None,
        compatibility: None,
        metadata: Box::default(),
        allowed_tools: Box::default(),
        frontmatter: None,
    };
    let file = SkillFile {
        digest: Some(ContentDigest([content; 32])),
        size: 1,
        authored: Some(authored.into()),
        problems: Box::default(),
        sidecar: None,
        stale: false,
    };
    assemble(package, &Arc::new(file), None).0.map(Arc::new)
}

fn catalog(packages: &Packages, truncated: bool) -> Catalog {
    let skills = packages
        .iter()
        .filter_map(|(path, (name, content))| skill(&RelPath::new(path)?, name, *content));
    let header = CatalogHeader {
        scope: None,
        follow_links: true,
        kind: Kind::SkillSet,
        plugin: None,
        counts: RootCounts::default(),
        truncated,
    };
    Catalog::new(skills.collect(), BoundedDiagnostics::keeping(10), header)
}
