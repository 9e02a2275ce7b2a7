//! Measures the cost of a lock: a cold scan of a tree without a lock, with a lock of one skill and with a
//! lock of all skills, and a page of an approved file. The targets are at most 0.7 s more for 15,000
//! approved skills, at most 1 % more for a lock of one skill, and at most 25 µs more for a page.

use caproot::daemon::catalog::OpenMethod;
use caproot::daemon::fs::{
    AllowedDirs, DisabledSkills, FilePageRequest, ReadCaches, ReadRules, read_page,
    read_page_cached,
};
use caproot::daemon::model::{
    DisableRules, DisabledPackages, LoadedLock, ManifestFiles, TrustMode, TrustPolicy,
};
use caproot::daemon::scan::search::SearchRules;
use caproot::daemon::scan::{ScanProgress, ScanTarget, scan_root};
use caproot_core::lock::{ApprovedFiles, ApprovedSkill, Lock, SkillDescription};
use caproot_core::wire::{ContentDigest, FileChecksum, RelPath};
use criterion::Criterion;
use std::fs;
use std::hint::black_box;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

const SKILLS: usize = 15_000;
const FILES: [&str; 3] = ["scripts/run.sh", "references/a.md", "references/b.md"];
const PAGE_BYTES: usize = 8 << 10;

/// Tree of skills, each with a SKILL.md and three other files.
struct ApprovedTree {
    dir: TempDir,
    lock: Lock,
}

impl ApprovedTree {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let skills = (0..SKILLS).map(|number| write_skill(dir.path(), number));
        let lock = skills.collect();
        Self { dir, lock }
    }

    fn scan(&self, rules: &SearchRules) -> usize {
        let allowed = AllowedDirs::new(vec![self.dir.path().to_owned()]);
        let target = ScanTarget {
            path: self.dir.path().as_os_str().as_bytes().into(),
            rules: rules.clone(),
            published: Arc::new([]),
        };
        let catalog = scan_root(&allowed, &target, &ScanProgress::new()).expect("a catalog");
        assert_eq!(catalog.len(), SKILLS);
        catalog.trust_counts().skills.approved
    }
}

/// Writes a skill, and returns its entry of a lock.
fn write_skill(top: &Path, number: usize) -> ApprovedSkill {
    let name = format!("skill-{number:05}");
    let main = format!(
        "---\nname: {name}\ndescription: Does {name}.\n---\n{}",
        "Text.\n".repeat(500)
    );
    let other = format!("Content of {name}.\n").repeat(100);
    let texts = FILES.map(|path| (path, other.as_str()));
    let files = [("SKILL.md", main.as_str())]
        .into_iter()
        .chain(texts)
        .map(|(path, text)| {
            let file = top.join(&name).join(path);
            fs::create_dir_all(file.parent().expect("a parent")).expect("a directory");
            fs::write(file, text).expect("a file");
            let checksum = FileChecksum {
                digest: ContentDigest::of(text),
                bytes: text.len() as u64,
                executable: false,
            };
            (RelPath::new(path.as_bytes()).expect("a path"), checksum)
        });
    let files = ApprovedFiles::new(files.collect()).expect("files");
    ApprovedSkill::new(&name, SkillDescription::default(), files)
}

fn rules(lock: Option<Lock>) -> SearchRules {
    let trust = lock.map(|lock| TrustPolicy {
        mode: TrustMode::Warn,
        roots: None,
        lock: Arc::new(LoadedLock {
            lock,
            path: PathBuf::new(),
            signers: None,
            digest: ContentDigest([0; 32]),
            signer: None,
            loaded_at: Duration::ZERO,
        }),
    });
    SearchRules {
        limits: caproot::daemon::model::Limits::default(),
        skipped_dirs: Vec::new(),
        resource_dirs: ["scripts", "references", "assets"]
            .map(|name| name.as_bytes().into())
            .into(),
        follow_links: true,
        nested_roots: Arc::default(),
        disable_rules: Arc::default(),
        trust,
    }
}

pub fn bench_approval(criterion: &mut Criterion) {
    let tree = ApprovedTree::new();
    let one = tree.lock.skills().iter().take(1).cloned().collect();
    let mut group = criterion.benchmark_group("approval");
    group.sample_size(10);
    for (title, approved, lock) in [
        ("cold scan without a lock", 0, None),
        ("cold scan with a lock of one skill", 1, Some(one)),
        (
            "cold scan with a lock of all skills",
            SKILLS,
            Some(tree.lock.clone()),
        ),
    ] {
        let rules = rules(lock);
        group.bench_function(title, |bencher| {
            bencher.iter(|| assert_eq!(tree.scan(&rules), approved));
        });
    }
    let text = tree.lock.to_text().expect("a text");
    group.bench_function("parse a lock of all skills", |bencher| {
        bencher.iter(|| Lock::parse(black_box(text.as_bytes())).expect("a lock"));
    });
    group.finish();
    bench_pages(criterion);
}

/// Measures a page of a file of 300 KB, as a caller reads it for the second time.
fn bench_pages(criterion: &mut Criterion) {
    let dir = tempfile::tempdir().expect("a directory");
    let content = vec![b'x'; 300_000];
    fs::create_dir(dir.path().join("a")).expect("a directory");
    fs::write(dir.path().join("a/data"), &content).expect("a file");
    fs::write(dir.path().join("a/SKILL.md"), "x").expect("a file");

    let checksum = |bytes: &[u8]| FileChecksum {
        digest: ContentDigest::of(bytes),
        bytes: bytes.len() as u64,
        executable: false,
    };
    let path = |text: &str| RelPath::new(text.as_bytes()).expect("a path");
    let approved = ApprovedFiles::new(vec![
        (path("SKILL.md"), checksum(b"x")),
        (path("data"), checksum(&content)),
    ]);
    let approved = approved.expect("files");

    let mut group = criterion.benchmark_group("page of 8 KB");
    for (title, approved_files) in [
        ("without approval", None),
        ("of an approved file", Some(&approved)),
    ] {
        let allowed = AllowedDirs::with_opener(OpenMethod::probe(), vec![dir.path().to_owned()]);
        let top = dir.path().as_os_str().as_bytes();
        let root = allowed.resolve(top).expect("the root");
        let packages = DisabledPackages::default();
        let disable_rules = DisableRules::default();
        let manifest_files = ManifestFiles::default();
        let package = path("a");
        let resource = path("data");
        let request = FilePageRequest {
            package: &package,
            resource: &resource,
            from: None,
            max_bytes: PAGE_BYTES,
            unless_digest: None,
            rules: ReadRules {
                skipped_dirs: &[],
                follow_links: true,
                disabled_skills: DisabledSkills {
                    packages: &packages,
                    rules: &disable_rules,
                    published: &[],
                },
                manifest_files: &manifest_files,
                is_plugin: false,
                approved_files,
            },
            max_file_bytes: 1 << 20,
        };
        let caches = ReadCaches::default();
        read_page(&root, &request, &caches, &CancellationToken::new()).expect("a page");
        group.bench_function(title, |bencher| {
            bencher.iter(|| read_page_cached(&allowed, top, &request, &caches).expect("a page"));
        });
    }
    group.finish();
}
