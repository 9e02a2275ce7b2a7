//! Cost of catalogs, searches, walks and rules, over trees in memory.

use std::sync::Arc;

use caproot::daemon::fs::package_walk::{self, PackageWalk, WalkLimits};
use caproot::daemon::model::catalog::{
    BoundedDiagnostics, Catalog, CatalogHeader, RootCounts, RootKind,
};
use caproot::daemon::model::diff::diff_catalogs;
use caproot::daemon::model::disabled_skills::{DisableRules, parse_glob};
use caproot::daemon::model::skill::{SkillFile, assemble_skill};
use caproot::daemon::model::{
    Diagnostic, DiagnosticCode, FileProblem, Limits, ResolvedPath, SkillMdFrontmatter,
};
use caproot::daemon::scan::search::{SearchRules, SkillSearch};
use caproot::daemon::scan::{DirListing, ListingEntry, ListingEntryKind};
use caproot_core::wire::{ContentDigest, RelPath, RootId};

use super::assert_in_proportion;

fn rel(text: &str) -> RelPath {
    RelPath::new(text.as_bytes()).expect("a path")
}

/// Builds a catalog of `count` packages below the directory `letter`.
fn build_catalog(
    count: usize,
    letter: char,
    name: impl Fn(usize) -> String,
    content: u8,
) -> Catalog {
    let authored = |name: String| SkillMdFrontmatter {
        name: name.into(),
        description: "d".into(),
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
    let skills = (0..count).map(|n| {
        let file = SkillFile {
            digest: Some(ContentDigest([content; 32])),
            size: 1,
            frontmatter: Some(authored(name(n)).into()),
            problems: Box::default(),
            sidecar: None,
            stale: false,
        };
        let package = rel(&format!("{letter}/{}/s{n}", n % 7));
        Arc::new(
            assemble_skill(&package, &Arc::new(file), None, false)
                .0
                .expect("a skill"),
        )
    });
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
        skills.collect(),
        BoundedDiagnostics::with_limit(1_000),
        header,
    )
}

#[test]
fn catalogs_are_built_and_compared_in_linear_time() {
    let same = |_: usize| "same".to_owned();
    let own = |n: usize| format!("own-{n}");
    let make = |count| {
        [
            build_catalog(count, 'a', own, 0),
            build_catalog(count, 'a', own, 1),
            build_catalog(count, 'b', same, 1),
            build_catalog(count, 'c', same, 0),
        ]
    };
    assert_in_proportion("built", 20_000, |count| count, |count| drop(make(*count)));
    assert_in_proportion(
        "all changed, all renamed, all gone",
        20_000,
        make,
        |[a, b, c, d]| {
            assert_eq!(diff_catalogs(a, b).upserted.len(), a.len());
            assert_eq!(diff_catalogs(b, c).removed.len(), b.len());
            assert_eq!(diff_catalogs(c, d).removed.len(), b.len());
        },
    );
    assert_in_proportion("a thousand changed in place", 20_000, make, |[a, b, ..]| {
        let changed: Vec<_> = b.skills(0).step_by(20).cloned().collect();
        assert_eq!(
            diff_catalogs(a, &a.with_replaced_skills(&changed))
                .upserted
                .len(),
            changed.len()
        );
    });
    assert_in_proportion("pages", 20_000, make, |[a, ..]| {
        let pages = (0..a.len())
            .step_by(100)
            .map(|from| a.skills(from).take(100).count());
        assert_eq!(pages.sum::<usize>(), a.len());
    });
}

#[test]
fn diagnostics_are_collected_in_linear_time() {
    let make = |count: usize| -> Vec<_> {
        let at = |n: usize| Some(rel(&format!("s{}/SKILL.md", n * 7919 % count)));
        let problem =
            |n: usize| FileProblem::warning(DiagnosticCode::Unreadable, format!("no {n}"));
        (0..count)
            .map(|n| Diagnostic {
                resource: at(n),
                problem: problem(n),
            })
            .collect()
    };
    assert_in_proportion("diagnostics", 50_000, make, |all| {
        let mut kept = BoundedDiagnostics::with_limit(100);
        for diagnostic in all {
            kept.push(diagnostic.clone());
        }
        assert!(kept.kept().len() <= 400);
    });
}

#[test]
fn disable_rules_are_matched_in_linear_time() {
    let rules = |count: usize, text: &str| {
        let id = RootId::new("r").expect("an id");
        let globs = (0..count).map(|n| {
            let text = text.replace("{}", &n.to_string());
            (id.clone(), parse_glob(&text).expect("a glob"))
        });
        DisableRules::new(globs, []).expect("a set")
    };
    let match_packages = |rules: &DisableRules, packages: usize| {
        let globs = rules.resolve_globs(|_| {
            Some(ResolvedPath {
                dir_index: 0,
                rel_path: RelPath::root(),
            })
        });
        for n in 0..packages {
            let rel_path = rel(&format!("some/{}/deep/place-{n}/x", n % 9));
            assert!(!globs.matches_package(&ResolvedPath {
                dir_index: 0,
                rel_path
            }));
        }
    };
    for text in [
        "a/{}/*",
        "**/n{}-*",
        "*/*/d*p/*{}?/y*",
        "{a,b}*{c,d}*/{}[a-z]*",
    ] {
        let thousand = rules(1_000, text);
        let name = format!("{text} for many packages");
        assert_in_proportion(&name, 20_000, |n| n, |n| match_packages(&thousand, *n));
        let name = format!("many of {text}");
        assert_in_proportion(
            &name,
            1_000,
            |n| rules(n, text),
            |rules| match_packages(rules, 200),
        );
        assert_in_proportion(
            &format!("built from {text}"),
            1_000,
            |n| n,
            |n| drop(rules(*n, text)),
        );
    }
    let stars = rules(1, &"*a".repeat(127));
    let hostile = |size: usize| rel(&format!("{}b", "a".repeat(size)));
    assert_in_proportion("stars", 200_000, hostile, |rel| {
        let globs = stars.resolve_globs(|_| {
            Some(ResolvedPath {
                dir_index: 0,
                rel_path: RelPath::root(),
            })
        });
        assert!(!globs.matches_package(&ResolvedPath {
            dir_index: 0,
            rel_path: rel.clone()
        }));
    });
}

/// Searches a tree in which `entries` returns the entries of each directory. Returns the number of
/// skill candidates.
fn count_candidates(entries: impl Fn(&RelPath) -> Vec<(String, ListingEntryKind)>) -> usize {
    let rules = SearchRules {
        limits: Limits::default(),
        skipped_dirs: Vec::new(),
        resource_dirs: Vec::new(),
        follow_links: true,
        nested_roots: Arc::default(),
        disable_rules: Arc::default(),
        trust: None,
    };
    let mut search = SkillSearch::new(
        ResolvedPath {
            dir_index: 0,
            rel_path: RelPath::root(),
        },
        rules,
    );
    let mut inode = 0;
    loop {
        let round = search.next_round();
        if round.is_empty() {
            return search.finish().findings.candidates.len();
        }
        for visit in round {
            inode += 1;
            let entries = entries(&visit.resolved.rel_path).into_iter().enumerate();
            let entries = entries.map(|(ordinal, (name, kind))| ListingEntry {
                name: name.into_bytes().into(),
                ordinal,
                kind,
            });
            let entries: Vec<_> = entries.collect();
            let total = entries.len();
            let identity = (0, inode);
            let listing = DirListing {
                identity,
                total_entries: total,
                entries,
                may_hold_manifest: false,
                is_worktree: false,
            };
            search.add_listing(visit, Ok(Arc::new(listing)));
        }
    }
}

fn skill_md_entry() -> ListingEntryKind {
    let file = SkillFile {
        digest: None,
        size: 0,
        frontmatter: None,
        problems: Box::default(),
        sidecar: None,
        stale: false,
    };
    ListingEntryKind::File(Some(Ok(Arc::new(file))))
}

#[test]
fn trees_are_searched_in_linear_time() {
    let skill_md = || vec![("SKILL.md".to_owned(), skill_md_entry())];
    assert_in_proportion(
        "wide",
        20_000,
        |n| n,
        |n| {
            let found = count_candidates(|dir| match dir.depth() {
                0 => (0..*n)
                    .map(|n| (format!("d{n:05}"), ListingEntryKind::Directory))
                    .collect(),
                _ => skill_md(),
            });
            assert_eq!(found, *n);
        },
    );
    assert_in_proportion(
        "links to one directory",
        20_000,
        |n| n,
        |n| {
            let found = count_candidates(|dir| match dir.depth() {
                0 => (0..*n)
                    .map(|n| {
                        let to = ResolvedPath {
                            dir_index: 1,
                            rel_path: rel("x"),
                        };
                        (
                            format!("l{n:05}"),
                            ListingEntryKind::LinkedDirectory(to, (9, 9)),
                        )
                    })
                    .collect(),
                _ => skill_md(),
            });
            assert!(found > 0);
        },
    );
}

#[test]
fn packages_are_walked_in_linear_time() {
    let bounds = WalkLimits {
        entries: 1_000_000,
        depth: 16,
        path_bytes: 2_048,
    };
    let make = |count: usize| -> Vec<Box<[u8]>> {
        (0..count)
            .map(|n| format!("f{}", n * 7919 % count).into_bytes().into())
            .collect()
    };
    assert_in_proportion("files", 100_000, make, |names| {
        let mut walk = PackageWalk::new(bounds, None);
        walk.enter_dir(
            (),
            RelPath::root(),
            names
                .iter()
                .map(|name| (name.clone(), package_walk::WalkEntryKind::File)),
        );
        let mut count = 0;
        while walk.next().is_some() {
            count += 1;
        }
        assert_eq!(count, names.len());
    });
}
