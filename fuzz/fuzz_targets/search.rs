//! Scan of one root over an in-memory tree: the scan ends, keeps its limits, reports an incomplete
//! result, and gives no package twice.

#![no_main]

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use caproot::daemon::model::skill::SkillFile;
use caproot::daemon::model::{DiagnosticCode, Limits, ResolvedPath};
use caproot::daemon::scan::search::{SearchOutcome, SearchRules, SkillSearch};
use caproot::daemon::scan::{DirListing, DirToScan, ListingEntry, ListingEntryKind};
use caproot_core::wire::RelPath;
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
struct Input {
    /// Index of a directory, index of a name, and the entry.
    entries: Vec<(u8, u8, TreeEntry)>,
    depth: u8,
    directories: u8,
    entry_limit: u8,
    skills: u8,
    follow_links: bool,
    nested_root: Option<u8>,
}

#[derive(Debug, Clone, Copy, Arbitrary)]
enum TreeEntry {
    File,
    Directory,
    /// Link to the directory with this index.
    Link(u8),
    Special,
}

const NAMES: [&str; 8] = [
    "SKILL.md", "skill.md", "a", "b", "scripts", "target", "..data", ".x",
];

/// Paths of directories, root first, and their entries by name.
struct Tree {
    paths: Vec<RelPath>,
    entries_by_dir: Vec<BTreeMap<&'static str, TreeEntry>>,
}

impl Tree {
    fn new(entries: &[(u8, u8, TreeEntry)]) -> Self {
        let mut tree = Self {
            paths: vec![RelPath::root()],
            entries_by_dir: vec![BTreeMap::new()],
        };
        for (dir, name, entry) in entries {
            let dir = usize::from(*dir) % tree.paths.len();
            let name = NAMES[usize::from(*name) % NAMES.len()];
            let path = tree.paths[dir].join(name.as_bytes()).expect("a name");
            if tree.entries_by_dir[dir].contains_key(name) || path.depth() > 40 {
                continue;
            }
            tree.entries_by_dir[dir].insert(name, *entry);
            if matches!(entry, TreeEntry::Directory) {
                tree.paths.push(path);
                tree.entries_by_dir.push(BTreeMap::new());
            }
        }
        tree
    }

    fn resolve(&self, number: u8) -> (ResolvedPath, (u64, u64)) {
        let at = usize::from(number) % self.paths.len();
        (
            ResolvedPath {
                dir_index: 0,
                rel_path: self.paths[at].clone(),
            },
            (0, at as u64),
        )
    }

    fn list(&self, visit: &DirToScan) -> DirListing {
        let at = self
            .paths
            .iter()
            .position(|path| *path == visit.resolved.rel_path)
            .expect("a directory");
        let entries = self.entries_by_dir[at]
            .iter()
            .enumerate()
            .map(|(ordinal, (name, entry))| {
                let kind = match entry {
                    TreeEntry::File => {
                        ListingEntryKind::File((*name == "SKILL.md").then(|| Ok(skill_file())))
                    }
                    TreeEntry::Directory => ListingEntryKind::Directory,
                    TreeEntry::Link(to) => {
                        let (resolved, identity) = self.resolve(*to);
                        ListingEntryKind::LinkedDirectory(resolved, identity)
                    }
                    TreeEntry::Special => ListingEntryKind::SpecialFile,
                };
                ListingEntry {
                    name: name.as_bytes().into(),
                    ordinal,
                    kind,
                }
            });
        DirListing {
            identity: (0, at as u64),
            total_entries: self.entries_by_dir[at].len(),
            entries: entries.collect(),
            may_hold_manifest: false,
            is_worktree: at % 5 == 4,
        }
    }
}

fn skill_file() -> Arc<SkillFile> {
    let file = SkillFile {
        digest: None,
        size: 0,
        frontmatter: None,
        problems: Box::default(),
        sidecar: None,
        stale: false,
    };
    Arc::new(file)
}

fuzz_target!(|input: Input| {
    let tree = Tree::new(&input.entries);
    let limits = Limits {
        max_depth: usize::from(input.depth),
        max_directories: usize::from(input.directories),
        max_entries: usize::from(input.entry_limit) * 4,
        max_skills: usize::from(input.skills),
        ..Limits::default()
    };
    let rules = SearchRules {
        trust: None,
        limits: limits.clone(),
        skipped_dirs: vec![b"target"[..].into()],
        resource_dirs: vec![b"scripts"[..].into()],
        follow_links: input.follow_links,
        nested_roots: Arc::new(
            input
                .nested_root
                .map(|number| tree.resolve(number).0)
                .into_iter()
                .collect(),
        ),
        disable_rules: Arc::default(),
    };
    let found = run(&tree, rules.clone());
    check(&found, &limits);
    // A complete scan finds the same packages with larger limits. A truncated scan may not: a path
    // without links beyond the limits can take precedence over a path through a link.
    if !found.findings.truncated {
        let limits = Limits {
            max_depth: 100,
            ..Limits::default()
        };
        let more = run(
            &tree,
            SearchRules {
                limits: limits.clone(),
                ..rules
            },
        );
        check(&more, &limits);
        assert_eq!(packages(&found), packages(&more));
    }
});

fn run(tree: &Tree, rules: SearchRules) -> SearchOutcome {
    let root = ResolvedPath {
        dir_index: 0,
        rel_path: RelPath::root(),
    };
    let mut search = SkillSearch::new(root, rules);
    let mut rounds = 0;
    loop {
        let round = search.next_round();
        if round.is_empty() {
            return search.finish();
        }
        rounds += 1;
        assert!(rounds <= 4 * tree.paths.len() + 64, "the scan does not end");
        for visit in round {
            let listing = Arc::new(tree.list(&visit));
            search.add_listing(visit, Ok(listing));
        }
    }
}

fn packages(found: &SearchOutcome) -> Vec<&RelPath> {
    found
        .findings
        .candidates
        .iter()
        .map(|candidate| &candidate.package)
        .collect()
}

fn check(found: &SearchOutcome, limits: &Limits) {
    let findings = &found.findings;
    assert!(findings.candidates.len() <= limits.max_skills);
    assert!(findings.counts.directories as usize <= limits.max_directories);
    assert!(findings.counts.entries as usize <= limits.max_entries);
    assert_eq!(
        found.entered_dirs.len(),
        findings.counts.directories as usize
    );
    assert!(
        packages(found)
            .iter()
            .all(|package| package.depth() <= limits.max_depth)
    );
    let resolved: HashSet<_> = findings
        .candidates
        .iter()
        .map(|candidate| &candidate.resolved)
        .collect();
    let names: HashSet<_> = packages(found).into_iter().collect();
    assert_eq!(
        (resolved.len(), names.len()),
        (findings.candidates.len(), findings.candidates.len())
    );
    let is_reported = findings
        .diagnostics
        .kept()
        .iter()
        .any(|d| d.problem.code == DiagnosticCode::LimitReached);
    assert_eq!(findings.truncated, is_reported);
}
