//! The tree that is churned: how it begins, how it is put back, and what lies in it at a moment, found
//! by looking for oneself. Leaves changes to `churn`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use caproot::proto::caproot::v1::{ListSkillsResponse, Skill};

use super::texts::{self, Read, recognize};
use crate::fixture::Fixture;

/// Directories that are selected, each with so many groups of so many skills: 5,000 in all.
pub(super) const ROOTS: [&str; 5] = ["r0", "r1", "r2", "r3", "r4"];
pub(super) const GROUPS: u64 = 20;
pub(super) const SKILLS: u64 = 50;

/// One in so many skills has a file of many pages.
const WITH_NOTES: u64 = 10;

/// What a skill's directory may be called so that it is read with the skill, and not searched.
const OWN: &str = "references";

/// The tree.
pub(super) struct Tree {
    fixture: Fixture,
}

/// What a root holds.
#[derive(Debug, Default)]
pub(super) struct Truth {
    /// Skills that can be listed: package path and description.
    good: BTreeMap<String, String>,
    /// Paths at and below which nobody can know: broken, or closed to us.
    unsure: BTreeSet<String>,
}

impl Tree {
    /// Plants it.
    pub(super) fn new() -> Self {
        let fixture = Fixture::new("dir out");
        let tree = Self { fixture };
        for root in ROOTS {
            tree.plant(root, root);
            tree.plant_releases(root);
        }
        tree
    }

    /// The native path of an entry.
    pub(super) fn path(&self, relative: &str) -> PathBuf {
        self.fixture.path(relative)
    }

    /// Makes the whole tree what it was, as new files.
    pub(super) fn undo(&self) {
        let out = self.path("out");
        for root in ROOTS {
            self.plant(&format!("fresh/{root}"), root);
            self.plant_releases(root);
            fs::rename(self.path(root), out.join(format!("old-{root}"))).expect("away");
            fs::rename(self.path(&format!("fresh/{root}")), self.path(root)).expect("in place");
        }
        for entry in [out.clone(), self.path("fresh")] {
            open_all(&entry);
            fs::remove_dir_all(&entry).expect("removed");
        }
        fs::create_dir(&out).expect("empty");
    }

    /// Plants a root in `at`.
    fn plant(&self, at: &str, root: &str) {
        for group in 0..GROUPS {
            self.plant_group(&format!("{at}/g{group:02}"), root, 0);
        }
        symlink(format!("../v/{root}/1"), self.path(at).join("current")).expect("a link");
    }

    /// Plants a group of a root in `at`.
    pub(super) fn plant_group(&self, at: &str, root: &str, version: u64) {
        for n in 0..SKILLS {
            let name = format!("s{n:02}");
            let dir = format!("{at}/{name}");
            self.fixture.write(&format!("{dir}/SKILL.md"), texts::skill(root, &name, version));
            if n % WITH_NOTES == 0 {
                let notes = texts::notes(root, &name, version);
                self.fixture.write(&format!("{dir}/{OWN}/notes"), notes);
            }
        }
    }

    /// Plants what the root's link leads to.
    fn plant_releases(&self, root: &str) {
        for (release, version) in [("1", 0), ("2", 1)] {
            for name in ["t0", "t1"] {
                let file = format!("v/{root}/{release}/{name}/SKILL.md");
                self.fixture.write(&file, texts::skill(root, name, version));
            }
        }
    }

    /// What a root holds now, found without a daemon.
    pub(super) fn truth(&self, root: &str) -> Truth {
        let mut truth = Truth::default();
        truth.look(&self.path(root), "", root);
        truth
    }
}

impl Truth {
    fn look(&mut self, dir: &Path, relative: &str, root: &str) {
        let Ok(entries) = fs::read_dir(dir) else {
            self.unsure.insert(relative.to_owned());
            return;
        };
        for entry in entries {
            let path = entry.expect("an entry").path();
            let name = path.file_name().and_then(|name| name.to_str()).expect("UTF-8").to_owned();
            if name == "SKILL.md" {
                match fs::read(&path).map(|bytes| recognize(&bytes, root)) {
                    Ok(Read::Skill(says)) => drop(self.good.insert(relative.to_owned(), says)),
                    Ok(Read::Mixed) => panic!("{} is nothing of ours", path.display()),
                    _ => drop(self.unsure.insert(relative.to_owned())),
                }
            } else if name != OWN && path.is_dir() {
                let below = if relative.is_empty() { name } else { format!("{relative}/{name}") };
                self.look(&path, &below, root);
            }
        }
    }

    fn is_unsure(&self, package: &str) -> bool {
        self.unsure.iter().any(|path| Path::new(package).starts_with(path))
    }

    /// Whether this is what a list says of the root `id`.
    pub(super) fn assert_is(&self, list: &ListSkillsResponse, id: &str) {
        let prefix = format!("skill://{id}/");
        let path = |skill: &Skill| skill.package.strip_prefix(&prefix).map(str::to_owned);
        let listed = list.skills.iter().filter_map(|skill| Some((path(skill)?, skill)));
        let (stale, listed): (Vec<_>, Vec<_>) = listed.partition(|(_, skill)| skill.stale);
        for (path, skill) in stale {
            assert!(self.is_unsure(&path), "stale without a cause: {skill:?}");
        }
        let listed: BTreeMap<_, _> = listed.into_iter().map(|(p, s)| (p, &s.description)).collect();
        let (revision, root) = (list.revision, list.roots.iter().find(|root| root.id == id));
        let other: Vec<_> = self.good.iter().filter(|(p, s)| listed.get(*p) != Some(s)).collect();
        if let Some((path, says)) = other.first() {
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
                "revision {revision}: {others} differ, such as {package}, which says {says:?}, \
                 and is listed as {skill:?} with {problems:?} of {root:?}"
            );
        }
        for (path, says) in listed {
            let known = self.good.contains_key(&path) || self.is_unsure(&path);
            assert!(known, "revision {revision}: {prefix}{path} is not there, but says {says:?}");
        }
    }
}

/// Makes all below readable and removable, for whom that is closed.
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
