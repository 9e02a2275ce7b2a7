//! Random changes to the tree, one after the other, from a seed. A change is skipped if an earlier
//! change removed its path.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::counters::Counters;
use super::file_contents;
use super::tree::{GROUPS, ROOTS, SKILLS, Tree};
use crate::harness::rng::Rng;
use crate::harness::watch_harness::retarget;

/// Longest pause between two changes, in milliseconds.
const MAX_PAUSE_MS: u64 = 30;

/// Kind of change: name, weight and function.
type ChangeKind = (&'static str, u64, fn(&mut Churn) -> io::Result<()>);

const CHANGE_KINDS: [ChangeKind; 17] = [
    ("edit in place", 75, Churn::edit_in_place),
    ("edit by rename", 100, Churn::edit_by_rename),
    ("add", 30, Churn::add),
    ("remove", 30, Churn::remove),
    ("rename", 30, Churn::rename),
    ("break", 30, Churn::break_skill),
    ("close", 25, Churn::remove_permissions),
    ("retarget a link", 20, Churn::retarget_link),
    ("edit another file", 60, Churn::edit_notes),
    ("change a sidecar", 25, Churn::change_sidecar),
    ("change a manifest", 10, Churn::change_manifest),
    ("touch", 20, Churn::touch),
    ("move a group", 15, Churn::move_group),
    ("rewrite a group", 8, Churn::rewrite_group),
    ("exchange a group", 5, Churn::exchange_group),
    ("remove a group", 3, Churn::remove_group),
    ("take a root away and back", 2, Churn::hide_root),
];

/// Random changes to the tree.
pub(super) struct Churn {
    tree: Arc<Tree>,
    dice: Rng,
    /// Version of the last change.
    version: u64,
    /// Path without permissions, until the next change.
    unreadable: Option<PathBuf>,
    counters: Arc<Counters>,
}

impl Churn {
    pub(super) fn new(tree: Arc<Tree>, seed: u64, counters: Arc<Counters>) -> Self {
        Self {
            tree,
            dice: Rng::new(seed),
            version: 0,
            unreadable: None,
            counters,
        }
    }

    /// Changes the tree for this time.
    pub(super) fn change_for(&mut self, span: Duration) {
        let end = Instant::now() + span;
        while Instant::now() < end {
            self.change();
            thread::sleep(Duration::from_millis(self.dice.below(MAX_PAUSE_MS)));
        }
    }

    fn change(&mut self) {
        self.restore_permissions();
        self.version += 1;
        let mut remaining_weight = self
            .dice
            .below(CHANGE_KINDS.iter().map(|(_, weight, _)| weight).sum());
        for (name, weight, change) in CHANGE_KINDS {
            if remaining_weight < weight {
                let is_done = change(self).is_ok();
                let name = if is_done {
                    name
                } else {
                    "skipped, its path is missing"
                };
                return self.counters.add(&format!("change: {name}"), 1);
            }
            remaining_weight -= weight;
        }
    }

    /// Restores the whole tree to its first state.
    pub(super) fn restore(&mut self) {
        self.restore_permissions();
        self.tree.restore();
    }

    fn restore_permissions(&mut self) {
        if let Some(path) = self.unreadable.take() {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("ours");
        }
    }

    /// Makes one small change in each root, or restores its file if this is the last change.
    pub(super) fn edit_one_skill_per_root(&mut self, is_last: bool) {
        self.version += 1;
        let version = if is_last { 0 } else { self.version };
        for root in ROOTS {
            let text = file_contents::skill(root, "s00", version);
            self.replace(&format!("{root}/g00/s00/SKILL.md"), text)
                .expect("the first files exist");
        }
    }

    fn path(&self, relative: &str) -> PathBuf {
        self.tree.path(relative)
    }

    fn pick_root(&mut self) -> &'static str {
        self.dice.pick::<&str>(&ROOTS)
    }

    /// Picks a root and one of its groups, sometimes among the moved groups.
    fn pick_group(&mut self) -> (&'static str, String) {
        let (root, group) = (self.pick_root(), self.dice.below(GROUPS));
        let moved = if self.dice.one_in(5) { "moved/" } else { "" };
        (root, format!("{root}/{moved}g{group:02}"))
    }

    /// Picks a root, the directory of a skill in it, and the skill's name.
    fn pick_skill(&mut self) -> (&'static str, String, String) {
        let ((root, group), name) = (
            self.pick_group(),
            format!("s{:02}", self.dice.below(SKILLS)),
        );
        (root, format!("{group}/{name}"), name)
    }

    /// Writes a file in place. Creates its directory if needed.
    fn write(&self, relative: &str, content: impl AsRef<[u8]>) -> io::Result<()> {
        let path = self.path(relative);
        fs::create_dir_all(path.parent().expect("below the top"))?;
        fs::write(path, content)
    }

    /// Replaces a file in an existing directory by rename.
    fn replace(&self, relative: &str, content: impl AsRef<[u8]>) -> io::Result<()> {
        let fresh = self.path("out/fresh");
        fs::write(&fresh, content)?;
        fs::rename(fresh, self.path(relative))
    }

    fn edit_in_place(&mut self) -> io::Result<()> {
        let (root, dir, name) = self.pick_skill();
        self.write(
            &format!("{dir}/SKILL.md"),
            file_contents::skill(root, &name, self.version),
        )
    }

    fn edit_by_rename(&mut self) -> io::Result<()> {
        let (root, dir, name) = self.pick_skill();
        self.replace(
            &format!("{dir}/SKILL.md"),
            file_contents::skill(root, &name, self.version),
        )
    }

    fn add(&mut self) -> io::Result<()> {
        let ((root, group), name) = (self.pick_group(), format!("x{}", self.dice.below(9)));
        self.write(
            &format!("{group}/{name}/SKILL.md"),
            file_contents::skill(root, &name, self.version),
        )
    }

    fn remove(&mut self) -> io::Result<()> {
        let (_, dir, _) = self.pick_skill();
        fs::remove_dir_all(self.path(&dir))
    }

    fn rename(&mut self) -> io::Result<()> {
        let ((_, from, _), to) = (self.pick_skill(), self.dice.below(9));
        let to = Path::new(&from).with_file_name(format!("y{to}"));
        fs::rename(self.path(&from), self.path(to.to_str().expect("UTF-8")))
    }

    fn break_skill(&mut self) -> io::Result<()> {
        let (root, dir, name) = self.pick_skill();
        self.write(
            &format!("{dir}/SKILL.md"),
            file_contents::repairable(root, &name, self.version),
        )
    }

    fn remove_permissions(&mut self) -> io::Result<()> {
        let (_, dir, _) = self.pick_skill();
        let what = if self.dice.one_in(2) {
            dir
        } else {
            dir + "/SKILL.md"
        };
        let path = self.path(&what);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o000))?;
        self.unreadable = Some(path);
        Ok(())
    }

    fn retarget_link(&mut self) -> io::Result<()> {
        let (root, release) = (self.pick_root(), 1 + self.dice.below(2));
        retarget(
            &self.path(&format!("{root}/current")),
            &format!("../v/{root}/{release}"),
        );
        let file = format!("v/{root}/{release}/t0/SKILL.md");
        self.replace(&file, file_contents::skill(root, "t0", self.version))
    }

    fn edit_notes(&mut self) -> io::Result<()> {
        let (root, dir, name) = self.pick_skill();
        let (file, notes) = (
            format!("{dir}/references/notes"),
            file_contents::notes(root, &name, self.version),
        );
        if self.dice.one_in(2) {
            self.write(&file, notes)
        } else {
            self.replace(&file, notes)
        }
    }

    fn change_sidecar(&mut self) -> io::Result<()> {
        let (_, dir, _) = self.pick_skill();
        let file = format!("{dir}/agents/openai.yaml");
        match self.dice.below(4) {
            0 => fs::remove_file(self.path(&file)),
            1 => self.write(&file, "policy:\n  products: [chatgpt]\n"),
            2 => self.write(&file, "policy: [broken\n"),
            _ => self.write(
                &file,
                format!("interface:\n  display_name: No. {}\n", self.version),
            ),
        }
    }

    fn change_manifest(&mut self) -> io::Result<()> {
        let (_, group) = self.pick_group();
        let file = format!("{group}/.codex-plugin/plugin.json");
        match self.dice.below(4) {
            0 => fs::remove_file(self.path(&file)),
            1 => self.write(&file, "{"),
            n => self.write(&file, format!(r#"{{"name": "p{n}"}}"#)),
        }
    }

    fn touch(&mut self) -> io::Result<()> {
        let (_, dir, _) = self.pick_skill();
        let mode = fs::Permissions::from_mode(*self.dice.pick(&[0o644, 0o664]));
        fs::set_permissions(self.path(&format!("{dir}/SKILL.md")), mode)?;
        self.write(&format!("{dir}/.swp"), self.version.to_string())
    }

    fn move_group(&mut self) -> io::Result<()> {
        let (root, group) = (self.pick_root(), self.dice.below(GROUPS));
        let moved = self.path(&format!("{root}/moved"));
        fs::create_dir_all(&moved)?;
        let group_dir = self.path(&format!("{root}/g{group:02}"));
        let moved_dir = moved.join(format!("g{group:02}"));
        if moved_dir.exists() {
            fs::rename(moved_dir, group_dir)
        } else {
            fs::rename(group_dir, moved_dir)
        }
    }

    fn rewrite_group(&mut self) -> io::Result<()> {
        let (root, group) = self.pick_group();
        for n in 0..SKILLS {
            let name = format!("s{n:02}");
            let text = file_contents::skill(root, &name, self.version);
            self.write(&format!("{group}/{name}/SKILL.md"), text)?;
        }
        Ok(())
    }

    /// Exchanges a group for a complete new one by rename.
    fn exchange_group(&mut self) -> io::Result<()> {
        let (root, group) = self.pick_group();
        self.tree.create_group("out/next", root, self.version);
        let exchanged = fs::rename(self.path(&group), self.path("out/last"))
            .and_then(|()| fs::rename(self.path("out/next"), self.path(&group)));
        drop(fs::remove_dir_all(self.path("out/last")));
        drop(fs::remove_dir_all(self.path("out/next")));
        exchanged
    }

    fn remove_group(&mut self) -> io::Result<()> {
        let (_, group) = self.pick_group();
        fs::remove_dir_all(self.path(&group))
    }

    fn hide_root(&mut self) -> io::Result<()> {
        let root = self.pick_root();
        let root = self.path(root);
        let away = self.path("out/away");
        fs::rename(&root, &away)?;
        thread::sleep(Duration::from_millis(self.dice.below(600)));
        fs::rename(away, root)
    }
}
