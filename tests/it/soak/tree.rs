//! The changing tree: creation, restoration, and its current content without the daemon.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use caproot_core::proto::caproot::v1::{ListSkillsResponse, Skill};

use super::file_contents::{self, ContentKind, recognize};
use crate::harness::fixture::Fixture;

/// Selected directories. Each has `GROUPS` groups of `SKILLS` skills: 5,000 skills in all.
pub(super) const ROOTS: [&str; 5] = ["r0", "r1", "r2", "r3", "r4"];
pub(super) const GROUPS: u64 = 20;
pub(super) const SKILLS: u64 = 50;

/// One skill in this many has a file with many pages.
const WITH_NOTES: u64 = 10;

/// Resource directory of a skill, which is not scanned for skills.
const RESOURCE_DIR: &str = "references";

/// Directory tree of the test.
pub(super) struct Tree {
    fixture: Fixture,
}

/// Expected skills of a root.
#[derive(Debug, Default)]
pub(super) struct ExpectedSkills {
    /// Skills that must be listed: package path and description.
    listable: BTreeMap<String, String>,
    /// Skills that must be listed once their files were unchanged for a while.
    repairable: BTreeMap<String, String>,
    /// Paths at and below which the listing is undefined: partial or unreadable files.
    undefined: BTreeSet<String>,
}

impl Tree {
    /// Creates the tree.
    pub(super) fn new() -> Self {
        let fixture = Fixture::new("dir out");
        let tree = Self { fixture };
        for root in ROOTS {
            tree.create_root(root, root);
            tree.create_link_targets(root);
        }
        tree
    }

    /// Returns the native path of an entry.
    pub(super) fn path(&self, relative: &str) -> PathBuf {
        self.fixture.path(relative)
    }

    /// Restores the whole tree with new files.
    pub(super) fn restore(&self) {
        let out = self.path("out");
        for root in ROOTS {
            self.create_root(&format!("fresh/{root}"), root);
            self.create_link_targets(root);
            fs::rename(self.path(root), out.join(format!("old-{root}"))).expect("renamed");
            fs::rename(self.path(&format!("fresh/{root}")), self.path(root)).expect("renamed");
        }
        for entry in [out.clone(), self.path("fresh")] {
            open_all(&entry);
            fs::remove_dir_all(&entry).expect("removed");
        }
        fs::create_dir(&out).expect("empty");
    }

    /// Creates a root at `at`.
    fn create_root(&self, at: &str, root: &str) {
        for group in 0..GROUPS {
            self.create_group(&format!("{at}/g{group:02}"), root, 0);
        }
        symlink(format!("../v/{root}/1"), self.path(at).join("current")).expect("a link");
    }

    /// Creates a group of a root at `at`.
    pub(super) fn create_group(&self, at: &str, root: &str, version: u64) {
        for n in 0..SKILLS {
            let name = format!("s{n:02}");
            let dir = format!("{at}/{name}");
            self.fixture.write(
                &format!("{dir}/SKILL.md"),
                file_contents::skill(root, &name, version),
            );
            if n % WITH_NOTES == 0 {
                let notes = file_contents::notes(root, &name, version);
                self.fixture
                    .write(&format!("{dir}/{RESOURCE_DIR}/notes"), notes);
            }
        }
    }

    /// Creates the targets of the root's link.
    fn create_link_targets(&self, root: &str) {
        for (release, version) in [("1", 0), ("2", 1)] {
            for name in ["t0", "t1"] {
                let file = format!("v/{root}/{release}/{name}/SKILL.md");
                self.fixture
                    .write(&file, file_contents::skill(root, name, version));
            }
        }
    }

    /// Reads the expected skills of a root from the disk.
    pub(super) fn expected_skills(&self, root: &str) -> ExpectedSkills {
        let mut expected = ExpectedSkills::default();
        expected.scan_dir(&self.path(root), "", root);
        expected
    }
}

impl ExpectedSkills {
    fn scan_dir(&mut self, dir: &Path, relative: &str, root: &str) {
        let Ok(entries) = fs::read_dir(dir) else {
            self.undefined.insert(relative.to_owned());
            return;
        };
        for entry in entries {
            let path = entry.expect("an entry").path();
            let name = path
                .file_name()
                .and_then(|name| name.to_str())
                .expect("UTF-8")
                .to_owned();
            if name == "SKILL.md" {
                match fs::read(&path).map(|bytes| recognize(&bytes, root)) {
                    Ok(ContentKind::Skill(description)) => {
                        drop(self.listable.insert(relative.to_owned(), description));
                    }
                    Ok(ContentKind::Repairable(description)) => {
                        drop(self.repairable.insert(relative.to_owned(), description));
                    }
                    Ok(ContentKind::Unknown) => panic!("{} has unknown content", path.display()),
                    _ => drop(self.undefined.insert(relative.to_owned())),
                }
            } else if name != RESOURCE_DIR && path.is_dir() {
                let below = if relative.is_empty() {
                    name
                } else {
                    format!("{relative}/{name}")
                };
                self.scan_dir(&path, &below, root);
            }
        }
    }

    /// Whether the listed skills have the contents of all files that only the repair of YAML can
    /// read.
    pub(super) fn has_repaired(&self, listed: &BTreeMap<String, Skill>, id: &str) -> bool {
        self.repairable.iter().all(|(path, description)| {
            let skill = listed.get(&format!("skill://{id}/{path}"));
            skill.is_some_and(|skill| skill.description == *description)
        })
    }

    fn is_undefined(&self, package: &str) -> bool {
        self.undefined
            .iter()
            .any(|path| Path::new(package).starts_with(path))
    }

    /// Asserts that a list has exactly the expected skills of the root `id`.
    pub(super) fn assert_listed(&self, list: &ListSkillsResponse, id: &str) {
        let prefix = format!("skill://{id}/");
        let path = |skill: &Skill| skill.package.strip_prefix(&prefix).map(str::to_owned);
        let listed = list
            .skills
            .iter()
            .filter_map(|skill| Some((path(skill)?, skill)));
        let (stale, listed): (Vec<_>, Vec<_>) = listed.partition(|(_, skill)| skill.stale);
        for (path, skill) in stale {
            assert!(self.is_undefined(&path), "stale without a cause: {skill:?}");
        }
        let listed: BTreeMap<_, _> = listed
            .into_iter()
            .map(|(p, s)| (p, &s.description))
            .collect();
        let (revision, root) = (list.revision, list.roots.iter().find(|root| root.id == id));
        let other: Vec<_> = self
            .listable
            .iter()
            .chain(&self.repairable)
            .filter(|(p, s)| listed.get(*p) != Some(s))
            .collect();
        if let Some((path, description)) = other.first() {
            let package = format!("{prefix}{path}");
            let of_root = format!("skill://{id}");
            let problems: Vec<_> = list
                .diagnostics
                .iter()
                .filter(|d| d.resource == of_root || d.resource.starts_with(&package))
                .collect();
            let skill = list.skills.iter().find(|skill| skill.package == package);
            let others = other.len();
            panic!(
                "revision {revision}: {others} differ, such as {package}, which says {description:?}, \
                 and is listed as {skill:?} with {problems:?} of {root:?}"
            );
        }
        for (path, description) in listed {
            let known = self.listable.contains_key(&path)
                || self.repairable.contains_key(&path)
                || self.is_undefined(&path);
            assert!(
                known,
                "revision {revision}: {prefix}{path} is not there, but says {description:?}"
            );
        }
    }
}

/// Makes everything below readable and removable.
fn open_all(dir: &Path) {
    let open = fs::Permissions::from_mode(0o755);
    fs::set_permissions(dir, open).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    for entry in fs::read_dir(dir).expect("open") {
        let entry = entry.expect("an entry");
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            open_all(&entry.path());
        }
    }
}
