//! Measures the functions that dominate a cold start, a change and a response, each by itself, with
//! criterion. `cargo bench --bench inside` compares with the previous run. The bench `whole`
//! measures the whole process.

#[path = "common/approval.rs"]
mod approval;
#[path = "common/process_memory.rs"]
mod process_memory;
#[path = "common/skill_search.rs"]
mod skill_search;
#[path = "common/trees.rs"]
#[expect(dead_code, reason = "this bench creates no files")]
mod trees;

use approval::bench_approval;
use caproot::daemon::model::catalog::{
    BoundedDiagnostics, Catalog, CatalogHeader, RootCounts, RootKind,
};
use caproot::daemon::model::diff::diff_catalogs;
use caproot::daemon::model::skill::{SkillFile, assemble_skill};
use caproot::daemon::model::token::PageToken;
use caproot::daemon::model::{Limits, ResolvedPath, Skill};
use caproot::daemon::parse::frontmatter;
use caproot::daemon::scan::search::{SearchOutcome, SearchRules, SkillSearch};
use caproot::daemon::scan::{DirListing, DirToScan, ListingEntry, ListingEntryKind};
use caproot_core::proto::caproot::v1 as pb;
use caproot_core::wire::cursor::Cursor as _;
use caproot_core::wire::{RelPath, RootId, handle};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use prost::Message as _;
use skill_search::bench_skill_search;
use std::collections::HashMap;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use trees::Plan;

const SKILLS: usize = 10_000;
/// Number of skills on a page of a list.
const PAGE: usize = 1_000;
const PLAN: Plan = Plan {
    skills: SKILLS,
    bytes: 6 << 10,
    roots: 1,
    seed: 1,
};

criterion_group!(
    benches,
    bench_parsing,
    bench_search,
    bench_diff,
    bench_encoding,
    bench_skill_search,
    bench_approval
);
criterion_main!(benches);

fn bench_parsing(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("parse");
    group.throughput(Throughput::Elements(1));
    let text = PLAN.skill_md(7, None);
    let repaired = text.replacen("can ", "can: ", 1);
    let name = Some(&b"skill-00007"[..]);
    for (title, text) in [
        ("a SKILL.md", text),
        ("a SKILL.md that is repaired", repaired),
    ] {
        let read = || frontmatter::read(black_box(text.as_bytes()), true, name);
        assert!(read().frontmatter.is_some(), "{title} is a skill");
        group.bench_function(title, |bencher| bencher.iter(read));
    }
}

fn bench_search(criterion: &mut Criterion) {
    let tree = ListedTree::new();
    assert_eq!(tree.search().findings.candidates.len(), SKILLS);
    let mut group = criterion.benchmark_group("search");
    group
        .throughput(Throughput::Elements(SKILLS as u64))
        .sample_size(20);
    group.bench_function("10,000 skills that are listed", |bencher| {
        bencher.iter(|| tree.search());
    });
}

fn bench_diff(criterion: &mut Criterion) {
    let skills = skills("as it was");
    let old = catalog(skills.clone());
    let at = SKILLS / 2;
    let stale = SkillFile {
        stale: true,
        ..SkillFile::clone(&main_file(at, "as it was"))
    };
    let (one, ..) = assemble_skill(&package(at), &Arc::new(stale), None, false);
    let replaced = old.with_replaced_skills(&one.map(Arc::new).into_iter().collect::<Vec<_>>());
    let other = catalog(self::skills("as it is"));
    assert_eq!(diff_catalogs(&old, &replaced).upserted.len(), 1);
    assert_eq!(diff_catalogs(&old, &other).upserted.len(), SKILLS);
    let mut group = criterion.benchmark_group("diff");
    group.bench_function("one of 10,000 skills", |bencher| {
        bencher.iter(|| {
            diff_catalogs(black_box(&old), black_box(&replaced))
                .upserted
                .len()
        });
    });
    group.bench_function("all of 10,000 skills", |bencher| {
        bencher.iter(|| {
            diff_catalogs(black_box(&old), black_box(&other))
                .upserted
                .len()
        });
    });
    group.bench_function("a catalog made of 10,000 skills", |bencher| {
        bencher.iter(|| catalog(black_box(&skills).clone()));
    });
}

fn bench_encoding(criterion: &mut Criterion) {
    let root = RootId::new("a-root").expect("an id");
    let skills = skills("as it is");
    let listed = skills.iter().take(PAGE).map(|skill| pb::Skill {
        package: handle::format_handle(&root, &skill.package),
        main_resource: handle::format_handle(&root, &skill.skill_file_path()),
        name: skill.name().to_owned(),
        description: skill.frontmatter.description().to_owned(),
        ..pb::Skill::default()
    });
    let page = pb::ListSkillsResponse {
        skills: listed.collect(),
        ..pb::ListSkillsResponse::default()
    };
    let mut group = criterion.benchmark_group("encode");
    group.throughput(Throughput::Bytes(page.encoded_len() as u64));
    group.bench_function("a page of 1,000 skills", |bencher| {
        bencher.iter(|| black_box(&page).encode_to_vec());
    });
    group.throughput(Throughput::Elements(PAGE as u64));
    group.bench_function("1,000 handles", |bencher| {
        let handles = || {
            skills
                .iter()
                .take(PAGE)
                .map(|skill| handle::format_handle(&root, &skill.package))
        };
        bencher.iter(|| handles().map(|handle| handle.len()).sum::<usize>());
    });
    let token = PageToken {
        epoch: 1,
        revision: 2,
        position: (3, 4),
    };
    group.throughput(Throughput::Elements(1));
    group.bench_function("a page token, there and back", |bencher| {
        bencher.iter(|| PageToken::decode(&black_box(&token).encode(b"question"), b"question"));
    });
}

/// Path of a skill below its root.
fn package(n: usize) -> RelPath {
    let at = PLAN.skill_dir(Path::new(""), n);
    RelPath::new(at.to_string_lossy().as_bytes()).expect("a path")
}

fn main_file(n: usize, says: &str) -> Arc<SkillFile> {
    let text = PLAN
        .skill_md(n, None)
        .replacen("can ", &format!("{says} can "), 1);
    let read = frontmatter::read(text.as_bytes(), true, None);
    Arc::new(SkillFile {
        digest: None,
        size: text.len() as u64,
        frontmatter: read.frontmatter.map(Into::into),
        problems: read.problems.into(),
        sidecar: None,
        stale: false,
    })
}

fn skills(says: &str) -> Vec<Arc<Skill>> {
    let all =
        (0..SKILLS).filter_map(|n| assemble_skill(&package(n), &main_file(n, says), None, false).0);
    all.map(Arc::new).collect()
}

fn catalog(skills: Vec<Arc<Skill>>) -> Catalog {
    let header = CatalogHeader {
        scope: None,
        follow_links: true,
        kind: RootKind::SkillSet,
        plugin: None,
        counts: RootCounts::default(),
        truncated: false,
        trust: None,
    };
    Catalog::new(skills, BoundedDiagnostics::with_limit(10), header)
}

/// Directories with their listings.
struct ListedTree(HashMap<RelPath, Arc<DirListing>>);

impl ListedTree {
    fn new() -> Self {
        let main = main_file(0, "it");
        let mut entries: HashMap<RelPath, Vec<ListingEntry>> = HashMap::new();
        for n in 0..SKILLS {
            let package = package(n);
            let what = ListingEntryKind::File(Some(Ok(main.clone())));
            entries
                .entry(package.clone())
                .or_default()
                .push(entry(b"SKILL.md", what));
            let mut below = package;
            while let (Some(above), Some(name)) = (below.parent(), below.file_name()) {
                let listed = entries.entry(above.clone()).or_default();
                if listed.iter().all(|entry| *entry.name != *name) {
                    listed.push(entry(name, ListingEntryKind::Directory));
                }
                below = above;
            }
        }
        let listings = entries.into_iter().zip(1..).map(|((dir, entries), inode)| {
            let total = entries.len();
            (
                dir,
                Arc::new(DirListing {
                    identity: (1, inode),
                    total_entries: total,
                    entries,
                    may_hold_manifest: false,
                    is_worktree: false,
                }),
            )
        });
        Self(listings.collect())
    }

    fn search(&self) -> SearchOutcome {
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
        loop {
            let round = search.next_round();
            if round.is_empty() {
                return search.finish();
            }
            let list = |visit: DirToScan| {
                let listing = self.0[&visit.resolved.rel_path].clone();
                (visit, Ok(listing))
            };
            for (visit, listing) in round.into_iter().map(list) {
                search.add_listing(visit, listing);
            }
        }
    }
}

fn entry(name: &[u8], what: ListingEntryKind) -> ListingEntry {
    ListingEntry {
        name: name.into(),
        ordinal: 0,
        kind: what,
    }
}
