//! Catalogs, searches, walks and rules, over trees that are only in memory.

use std::sync::Arc;

use caproot::domain::catalog::{Catalog, Counts, Diagnostics, Header, Kind};
use caproot::domain::diff::diff;
use caproot::domain::files::{self, Bounds, Walk};
use caproot::domain::listing::{Entry, Listing, What};
use caproot::domain::search::{Rules, Search};
use caproot::domain::skill::{MainFile, assemble};
use caproot::domain::switched_off::{SwitchedOff, glob};
use caproot::domain::{Authored, Code, Diagnostic, Digest, Limits, Problem, RelPath, RootId, Spot};

use super::assert_in_proportion;

fn rel(text: &str) -> RelPath {
    RelPath::new(text.as_bytes()).expect("a path")
}

/// A catalog of so many packages, which begin with a letter, of one name or each of its own.
fn catalog(count: usize, letter: char, name: impl Fn(usize) -> String, content: u8) -> Catalog {
    let authored = |name: String| Authored {
        name: name.into(),
        description: "d".into(),
        short_description: None,
        license: None,
        compatibility: None,
        metadata: Box::default(),
        allowed_tools: Box::default(),
        frontmatter: None,
    };
    let skills = (0..count).map(|n| {
        let file = MainFile {
            digest: Some(Digest([content; 32])),
            size: 1,
            authored: Some(authored(name(n)).into()),
            problems: Box::default(),
            sidecar: None,
            stale: false,
        };
        let package = rel(&format!("{letter}/{}/s{n}", n % 7));
        Arc::new(assemble(&package, &Arc::new(file), None).0.expect("a skill"))
    });
    let header = Header {
        scope: None,
        follow_links: true,
        kind: Kind::SkillSet,
        plugin: None,
        counts: Counts::default(),
        truncated: false,
    };
    Catalog::new(skills.collect(), Diagnostics::keeping(1_000), header)
}

#[test]
fn catalogs_and_what_changed_in_them() {
    let same = |_: usize| "same".to_owned();
    let own = |n: usize| format!("own-{n}");
    let make = |count| {
        [
            catalog(count, 'a', own, 0),
            catalog(count, 'a', own, 1),
            catalog(count, 'b', same, 1),
            catalog(count, 'c', same, 0),
        ]
    };
    assert_in_proportion("made", 20_000, |count| count, |count| drop(make(*count)));
    assert_in_proportion("all changed, all renamed, all gone", 20_000, make, |[a, b, c, d]| {
        assert_eq!(diff(a, b).upserted.len(), a.len());
        assert_eq!(diff(b, c).removed.len(), b.len());
        assert_eq!(diff(c, d).removed.len(), b.len());
    });
    assert_in_proportion("a thousand changed in place", 20_000, make, |[a, b, ..]| {
        let changed: Vec<_> = b.skills(0).step_by(20).cloned().collect();
        assert_eq!(diff(a, &a.with(&changed)).upserted.len(), changed.len());
    });
    assert_in_proportion("pages", 20_000, make, |[a, ..]| {
        let pages = (0..a.len()).step_by(100).map(|from| a.skills(from).take(100).count());
        assert_eq!(pages.sum::<usize>(), a.len());
    });
}

#[test]
fn diagnostics() {
    let make = |count: usize| -> Vec<_> {
        let at = |n: usize| Some(rel(&format!("s{}/SKILL.md", n * 7919 % count)));
        let problem = |n: usize| Problem::warning(Code::Unreadable, format!("no {n}"));
        (0..count).map(|n| Diagnostic { resource: at(n), problem: problem(n) }).collect()
    };
    assert_in_proportion("diagnostics", 50_000, make, |all| {
        let mut kept = Diagnostics::keeping(100);
        for one in all {
            kept.push(one.clone());
        }
        assert!(kept.kept().len() <= 400);
    });
}

#[test]
fn rules_for_skills_that_are_switched_off() {
    let rules = |count: usize, text: &str| {
        let id = RootId::new("r").expect("an id");
        let globs = (0..count).map(|n| {
            let text = text.replace("{}", &n.to_string());
            (id.clone(), glob(&text).expect("a glob"))
        });
        SwitchedOff::new(globs, []).expect("a set")
    };
    let hold = |off: &SwitchedOff, packages: usize| {
        let places = off.places(|_| Some(Spot { base: 0, rel: RelPath::root() }));
        for n in 0..packages {
            let rel = rel(&format!("some/{}/deep/place-{n}/x", n % 9));
            assert!(!places.hold(&Spot { base: 0, rel }));
        }
    };
    for text in ["a/{}/*", "**/n{}-*", "*/*/d*p/*{}?/y*", "{a,b}*{c,d}*/{}[a-z]*"] {
        let thousand = rules(1_000, text);
        let name = format!("{text} for many packages");
        assert_in_proportion(&name, 20_000, |n| n, |n| hold(&thousand, *n));
        let name = format!("many of {text}");
        assert_in_proportion(&name, 1_000, |n| rules(n, text), |off| hold(off, 200));
        assert_in_proportion(&format!("made of {text}"), 1_000, |n| n, |n| drop(rules(*n, text)));
    }
    let stars = rules(1, &"*a".repeat(127));
    let hostile = |size: usize| rel(&format!("{}b", "a".repeat(size)));
    assert_in_proportion("stars", 200_000, hostile, |rel| {
        let places = stars.places(|_| Some(Spot { base: 0, rel: RelPath::root() }));
        assert!(!places.hold(&Spot { base: 0, rel: rel.clone() }));
    });
}

/// Directories that hold, each, what `entries` says, as one tree would.
fn search(entries: impl Fn(&RelPath) -> Vec<(String, What)>) -> usize {
    let rules = Rules {
        limits: Limits::default(),
        passed_over: Vec::new(),
        own_directories: Vec::new(),
        follow_links: true,
        fences: Arc::default(),
        switched_off: Arc::default(),
    };
    let mut search = Search::new(Spot { base: 0, rel: RelPath::root() }, rules);
    let mut inode = 0;
    loop {
        let round = search.round();
        if round.is_empty() {
            return search.finish().rest.candidates.len();
        }
        for visit in round {
            inode += 1;
            let entries = entries(&visit.spot.rel).into_iter().enumerate();
            let entries = entries.map(|(ordinal, (name, what))| Entry {
                name: name.into_bytes().into(),
                ordinal,
                what,
            });
            let entries: Vec<_> = entries.collect();
            let total = entries.len();
            let identity = (0, inode);
            let listing = Listing { identity, total, entries, may_hold_manifest: false };
            search.absorb(visit, Ok(Arc::new(listing)));
        }
    }
}

fn main_file() -> What {
    let file = MainFile {
        digest: None,
        size: 0,
        authored: None,
        problems: Box::default(),
        sidecar: None,
        stale: false,
    };
    What::File(Some(Ok(Arc::new(file))))
}

#[test]
fn searches() {
    let main = || vec![("SKILL.md".to_owned(), main_file())];
    assert_in_proportion(
        "wide",
        20_000,
        |n| n,
        |n| {
            let found = search(|dir| match dir.depth() {
                0 => (0..*n).map(|n| (format!("d{n:05}"), What::Directory)).collect(),
                _ => main(),
            });
            assert_eq!(found, *n);
        },
    );
    assert_in_proportion(
        "links to one place",
        20_000,
        |n| n,
        |n| {
            let found = search(|dir| match dir.depth() {
                0 => (0..*n)
                    .map(|n| {
                        let to = Spot { base: 1, rel: rel("x") };
                        (format!("l{n:05}"), What::LinkedDirectory(to, (9, 9)))
                    })
                    .collect(),
                _ => main(),
            });
            assert!(found > 0);
        },
    );
}

#[test]
fn walks() {
    let bounds = Bounds { entries: 1_000_000, depth: 16, path_bytes: 2_048 };
    let make = |count: usize| -> Vec<Box<[u8]>> {
        (0..count).map(|n| format!("f{}", n * 7919 % count).into_bytes().into()).collect()
    };
    assert_in_proportion("files", 100_000, make, |names| {
        let mut walk = Walk::new(bounds, None);
        walk.enter((), RelPath::root(), names.iter().map(|name| (name.clone(), files::Kind::File)));
        let mut count = 0;
        while walk.next().is_some() {
            count += 1;
        }
        assert_eq!(count, names.len());
    });
}
