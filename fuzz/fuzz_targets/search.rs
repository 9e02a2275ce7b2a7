//! The search below one root, over a tree that is only in memory: it ends, keeps to its limits, says
//! when it did not see all, and names nothing twice.

#![no_main]

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use caproot::domain::listing::{Entry, DirListing, DirToScan, ListingEntryKind};
use caproot::domain::search::{SearchOutcome, SearchRules, SkillSearch};
use caproot::domain::skill::SkillFile;
use caproot::domain::{DiagnosticCode, Limits, RelPath, ResolvedPath};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
struct Input {
    /// What is in the directory of this number, by a name of this number.
    entries: Vec<(u8, u8, Thing)>,
    depth: u8,
    directories: u8,
    of_entries: u8,
    skills: u8,
    follow_links: bool,
    fence: Option<u8>,
}

#[derive(Debug, Clone, Copy, Arbitrary)]
enum Thing {
    File,
    Directory,
    /// To the directory of this number.
    Link(u8),
    Special,
}

const NAMES: [&str; 8] = ["SKILL.md", "skill.md", "a", "b", "scripts", "target", "..data", ".x"];

/// The directories, root first, each with what it holds by name.
struct Tree {
    paths: Vec<RelPath>,
    held: Vec<BTreeMap<&'static str, Thing>>,
}

impl Tree {
    fn new(entries: &[(u8, u8, Thing)]) -> Self {
        let mut tree = Self { paths: vec![RelPath::root()], held: vec![BTreeMap::new()] };
        for (dir, name, thing) in entries {
            let dir = usize::from(*dir) % tree.paths.len();
            let name = NAMES[usize::from(*name) % NAMES.len()];
            let path = tree.paths[dir].join(name.as_bytes()).expect("a name");
            if tree.held[dir].contains_key(name) || path.depth() > 40 {
                continue;
            }
            tree.held[dir].insert(name, *thing);
            if matches!(thing, Thing::Directory) {
                tree.paths.push(path);
                tree.held.push(BTreeMap::new());
            }
        }
        tree
    }

    fn spot(&self, number: u8) -> (ResolvedPath, (u64, u64)) {
        let at = usize::from(number) % self.paths.len();
        (ResolvedPath { base: 0, rel: self.paths[at].clone() }, (0, at as u64))
    }

    fn list(&self, visit: &DirToScan) -> DirListing {
        let at = self.paths.iter().position(|path| *path == visit.spot.rel).expect("a directory");
        let entries = self.held[at].iter().enumerate().map(|(ordinal, (name, thing))| {
            let what = match thing {
                Thing::File => ListingEntryKind::File((*name == "SKILL.md").then(|| Ok(main()))),
                Thing::Directory => ListingEntryKind::Directory,
                Thing::Link(to) => {
                    let (spot, identity) = self.spot(*to);
                    ListingEntryKind::LinkedDirectory(spot, identity)
                }
                Thing::Special => ListingEntryKind::Special,
            };
            Entry { name: name.as_bytes().into(), ordinal, what }
        });
        DirListing {
            identity: (0, at as u64),
            total: self.held[at].len(),
            entries: entries.collect(),
            may_hold_manifest: false,
        }
    }
}

fn main() -> Arc<SkillFile> {
    let file = SkillFile {
        digest: None,
        size: 0,
        authored: None,
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
        max_entries: usize::from(input.of_entries) * 4,
        max_skills: usize::from(input.skills),
        ..Limits::default()
    };
    let rules = SearchRules {
        limits: limits.clone(),
        passed_over: vec![b"target"[..].into()],
        own_directories: vec![b"scripts"[..].into()],
        follow_links: input.follow_links,
        fences: Arc::new(input.fence.map(|number| tree.spot(number).0).into_iter().collect()),
        switched_off: Arc::default(),
    };
    let found = run(&tree, rules.clone());
    check(&found, &limits);
    // Whatever was found within small limits is found within large ones, unless a path without
    // links, which was too deep or too late, takes its name over.
    if !found.rest.truncated {
        let limits = Limits { max_depth: 100, ..Limits::default() };
        let more = run(&tree, SearchRules { limits: limits.clone(), ..rules });
        check(&more, &limits);
        assert_eq!(packages(&found), packages(&more));
    }
});

fn run(tree: &Tree, rules: SearchRules) -> SearchOutcome {
    let root = ResolvedPath { base: 0, rel: RelPath::root() };
    let mut search = SkillSearch::new(root, rules);
    let mut rounds = 0;
    loop {
        let round = search.round();
        if round.is_empty() {
            return search.finish();
        }
        rounds += 1;
        assert!(rounds <= 4 * tree.paths.len() + 64, "it does not end");
        for visit in round {
            let listing = Arc::new(tree.list(&visit));
            search.absorb(visit, Ok(listing));
        }
    }
}

fn packages(found: &SearchOutcome) -> Vec<&RelPath> {
    found.rest.candidates.iter().map(|candidate| &candidate.package).collect()
}

fn check(found: &SearchOutcome, limits: &Limits) {
    let rest = &found.rest;
    assert!(rest.candidates.len() <= limits.max_skills);
    assert!(rest.counts.directories as usize <= limits.max_directories);
    assert!(rest.counts.entries as usize <= limits.max_entries);
    assert_eq!(found.entered.len(), rest.counts.directories as usize);
    assert!(packages(found).iter().all(|package| package.depth() <= limits.max_depth));
    let spots: HashSet<_> = rest.candidates.iter().map(|candidate| &candidate.spot).collect();
    let names: HashSet<_> = packages(found).into_iter().collect();
    assert_eq!((spots.len(), names.len()), (rest.candidates.len(), rest.candidates.len()));
    let is_said = rest.diagnostics.kept().iter().any(|d| d.problem.code == DiagnosticCode::LimitReached);
    assert_eq!(rest.truncated, is_said);
}
