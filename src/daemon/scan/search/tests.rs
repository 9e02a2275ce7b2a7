//! Tests of the scan over trees in memory.

use super::{DEFAULT_RESOURCE_DIRS, DEFAULT_SKIPPED_DIRS, SearchRules, SkillSearch};
use crate::daemon::model::skill::SkillFile;
use crate::daemon::model::{Limits, ResolvedPath};
use crate::daemon::scan::{DirListing, DirToScan, ListingEntry, ListingEntryKind};
use caproot_core::wire::RelPath;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Directories with their entries. A name that ends in `/` is a directory, `a -> b` is a link to
/// the directory `b` of the same tree, and other names are files.
struct Tree(BTreeMap<RelPath, BTreeSet<String>>);

fn rel(text: &str) -> RelPath {
    RelPath::new(text.as_bytes()).expect(text)
}

fn resolved(path: &RelPath) -> ResolvedPath {
    ResolvedPath {
        dir_index: 0,
        rel_path: path.clone(),
    }
}

impl Tree {
    fn new(lines: &[&str]) -> Self {
        let mut dirs = BTreeMap::from([(RelPath::root(), BTreeSet::new())]);
        for line in lines {
            let mut dir = RelPath::root();
            let (path, link) = line
                .split_once(" -> ")
                .map_or((*line, None), |(p, t)| (p, Some(t)));
            let mut segments = path.split('/').peekable();
            while let Some(name) = segments.next() {
                let entries = dirs.entry(dir.clone()).or_default();
                match (segments.peek(), link) {
                    (Some(_), _) => {
                        entries.insert(format!("{name}/"));
                        dir = dir.join(name.as_bytes()).expect("name");
                        dirs.entry(dir.clone()).or_default();
                    }
                    (None, Some(target)) => drop(entries.insert(format!("{name} -> {target}"))),
                    (None, None) => drop(entries.insert(name.to_owned())),
                }
            }
        }
        Self(dirs)
    }

    fn identity(&self, dir: &RelPath) -> (u64, u64) {
        (0, self.0.range(..dir).count() as u64)
    }

    fn list(&self, dir: &DirToScan) -> DirListing {
        let names = &self.0[&dir.resolved.rel_path];
        let entries = names.iter().enumerate().map(|(ordinal, text)| {
            let (name, kind) = if let Some(name) = text.strip_suffix('/') {
                (name, ListingEntryKind::Directory)
            } else if let Some((name, target)) = text.split_once(" -> ") {
                let target = rel(target);
                (
                    name,
                    ListingEntryKind::LinkedDirectory(resolved(&target), self.identity(&target)),
                )
            } else {
                let file = SkillFile {
                    digest: None,
                    size: 0,
                    frontmatter: None,
                    problems: Box::default(),
                    sidecar: None,
                    stale: false,
                };
                (
                    &**text,
                    ListingEntryKind::File((text == "SKILL.md").then(|| Ok(Arc::new(file)))),
                )
            };
            ListingEntry {
                name: name.as_bytes().into(),
                ordinal,
                kind,
            }
        });
        DirListing {
            identity: self.identity(&dir.resolved.rel_path),
            total_entries: names.len(),
            entries: entries.collect(),
            may_hold_manifest: false,
            is_worktree: false,
        }
    }
}

fn rules(limits: Limits) -> SearchRules {
    let names = |names: &[&str]| names.iter().map(|n| n.as_bytes().into()).collect();
    SearchRules {
        limits,
        skipped_dirs: names(&DEFAULT_SKIPPED_DIRS),
        resource_dirs: names(&DEFAULT_RESOURCE_DIRS),
        follow_links: true,
        nested_roots: Arc::default(),
        disable_rules: Arc::default(),
        trust: None,
    }
}

/// Returns the packages that the scan found, and the diagnostics as `CODE path`.
fn find(tree: &Tree, rules: SearchRules) -> (Vec<String>, Vec<String>) {
    let mut search = SkillSearch::new(resolved(&RelPath::root()), rules);
    loop {
        let round = search.next_round();
        if round.is_empty() {
            break;
        }
        for dir in round {
            let listing = Arc::new(tree.list(&dir));
            search.add_listing(dir, Ok(listing));
        }
    }
    let found = search.finish().findings;
    let packages = found.candidates.iter().map(|c| c.package.to_string());
    let diagnostics = found.diagnostics.kept().iter().map(|d| {
        format!(
            "{:?} {}",
            d.problem.code,
            d.resource.as_ref().expect("a path")
        )
    });
    (packages.collect(), diagnostics.collect())
}

#[test]
fn a_path_without_links_takes_precedence() {
    let tree = Tree::new(&[
        "a -> z/deep/dir",
        "b -> a2",
        "a2/x -> z",
        "z/deep/dir/SKILL.md",
    ]);
    let (packages, diagnostics) = find(&tree, rules(Limits::default()));
    assert_eq!(packages, ["z/deep/dir"]);
    assert_eq!(diagnostics, ["Alias a", "Alias b", "Alias a2/x"]);
}

#[test]
fn link_cycles_end() {
    let tree = Tree::new(&["a/SKILL.md", "a/loop -> a", "a/up -> "]);
    let (packages, diagnostics) = find(&tree, rules(Limits::default()));
    assert_eq!(packages, ["a"]);
    assert_eq!(diagnostics, ["Alias a/loop", "Alias a/up"]);
}

#[test]
fn nested_roots_are_not_scanned() {
    let tree = Tree::new(&["a/SKILL.md", ".system/b/SKILL.md"]);
    let mut rules = rules(Limits::default());
    rules.nested_roots = Arc::new([resolved(&rel(".system"))].into());
    assert_eq!(find(&tree, rules).0, ["a"]);
}

#[test]
fn limits_end_the_scan_in_order() {
    let tree = Tree::new(&["a/SKILL.md", "b/SKILL.md", "c/x/SKILL.md", "c/SKILL.md"]);
    let limits = Limits::default();
    for (limits, packages, diagnostics) in [
        (
            Limits {
                max_depth: 1,
                ..limits.clone()
            },
            vec!["a", "b", "c"],
            "LimitReached c/x",
        ),
        (
            Limits {
                max_directories: 3,
                ..limits.clone()
            },
            vec!["a", "b"],
            "LimitReached c",
        ),
        (
            Limits {
                max_entries: 4,
                ..limits.clone()
            },
            vec!["a"],
            "LimitReached b",
        ),
        (
            Limits {
                max_skills: 1,
                ..limits.clone()
            },
            vec!["a"],
            "LimitReached b/SKILL.md",
        ),
    ] {
        assert_eq!(
            find(&tree, rules(limits)),
            (
                packages.iter().map(|p| (*p).to_owned()).collect(),
                vec![diagnostics.to_owned()]
            )
        );
    }
}

proptest! {
    /// Each SKILL.md of any tree is found or lies below a skipped directory.
    #[test]
    fn every_skill_is_found_or_below_a_skipped_dir(paths in proptest::collection::vec(
        proptest::collection::vec(prop::sample::select(vec!["a", "b", "scripts", "target", ".git", "c"]), 0..5), 0..12,
    )) {
        let lines: Vec<String> = paths.iter().map(|p| [&p[..], &["SKILL.md"]].concat().join("/")).collect();
        let tree = Tree::new(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        let (packages, _) = find(&tree, rules(Limits::default()));
        let is_skill = |dir: &RelPath| tree.0.get(dir).is_some_and(|e| e.contains("SKILL.md"));
        for dir in tree.0.keys().filter(|d| is_skill(d)) {
            let mut current = Some(dir.clone());
            let mut skipped = false;
            while let Some(dir_path) = current {
                let name = dir_path.file_name().unwrap_or_default();
                let name = std::str::from_utf8(name).expect("text");
                skipped |= DEFAULT_SKIPPED_DIRS.contains(&name);
                current = dir_path.parent();
                skipped |= DEFAULT_RESOURCE_DIRS.contains(&name) && current.as_ref().is_some_and(is_skill);
            }
            prop_assert_eq!(packages.contains(&dir.to_string()), !skipped, "{}", dir);
        }
    }
}
