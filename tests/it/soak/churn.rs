//! What is done to the tree: one change after the other, by a seed. Whatever cannot be done, because
//! an earlier change took its place away, is left out.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::tally::Tally;
use super::texts;
use super::tree::{GROUPS, ROOTS, SKILLS, Tree};
use crate::rng::Rng;
use crate::watch_harness::retarget;

/// The most milliseconds between two changes.
const PAUSE: u64 = 30;

/// A kind of change: its name, how often it is done beside the others, and how.
type Kind = (&'static str, u64, fn(&mut Churn) -> io::Result<()>);

const KINDS: [Kind; 17] = [
    ("edit in place", 75, Churn::edit_in_place),
    ("edit by rename", 100, Churn::edit_by_rename),
    ("add", 30, Churn::add),
    ("remove", 30, Churn::remove),
    ("rename", 30, Churn::rename),
    ("break", 30, Churn::tear),
    ("close", 25, Churn::close),
    ("retarget a link", 20, Churn::turn),
    ("edit another file", 60, Churn::edit_notes),
    ("change a sidecar", 25, Churn::sidecar),
    ("change a manifest", 10, Churn::manifest),
    ("touch", 20, Churn::touch),
    ("move a group", 15, Churn::move_group),
    ("rewrite a group", 8, Churn::rewrite_group),
    ("exchange a group", 5, Churn::exchange_group),
    ("remove a group", 3, Churn::remove_group),
    ("take a root away and back", 2, Churn::blink),
];

/// Who changes the tree.
pub(super) struct Churn {
    tree: Arc<Tree>,
    dice: Rng,
    /// Of the last change.
    version: u64,
    /// What is closed now, until the next change.
    closed: Option<PathBuf>,
    tally: Arc<Tally>,
}

impl Churn {
    pub(super) fn new(tree: Arc<Tree>, seed: u64, tally: Arc<Tally>) -> Self {
        Self { tree, dice: Rng::new(seed), version: 0, closed: None, tally }
    }

    /// Changes the tree for so long.
    pub(super) fn go_on(&mut self, span: Duration) {
        let end = Instant::now() + span;
        while Instant::now() < end {
            self.change();
            thread::sleep(Duration::from_millis(self.dice.below(PAUSE)));
        }
    }

    fn change(&mut self) {
        self.open();
        self.version += 1;
        let mut at = self.dice.below(KINDS.iter().map(|(_, weight, _)| weight).sum());
        for (name, weight, change) in KINDS {
            if at < weight {
                let done = change(self).is_ok();
                let name = if done { name } else { "none, its place was gone" };
                return self.tally.add(&format!("change: {name}"), 1);
            }
            at -= weight;
        }
    }

    /// Makes the whole tree what it was at first.
    pub(super) fn undo(&mut self) {
        self.open();
        self.tree.undo();
    }

    fn open(&mut self) {
        if let Some(path) = self.closed.take() {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("ours");
        }
    }

    /// Makes one small change in each root, then leaves it there as it was.
    pub(super) fn nudge(&mut self, is_last: bool) {
        self.version += 1;
        let version = if is_last { 0 } else { self.version };
        for root in ROOTS {
            let text = texts::skill(root, "s00", version);
            self.put(&format!("{root}/g00/s00/SKILL.md"), text).expect("as it was planted");
        }
    }

    fn path(&self, relative: &str) -> PathBuf {
        self.tree.path(relative)
    }

    fn root(&mut self) -> &'static str {
        self.dice.pick::<&str>(&ROOTS)
    }

    /// A root, and a group of it; one in a while where groups are moved to.
    fn group(&mut self) -> (&'static str, String) {
        let (root, group) = (self.root(), self.dice.below(GROUPS));
        let moved = if self.dice.one_in(5) { "moved/" } else { "" };
        (root, format!("{root}/{moved}g{group:02}"))
    }

    /// A root, the directory of a skill in it, and the skill's name.
    fn skill(&mut self) -> (&'static str, String, String) {
        let ((root, group), name) = (self.group(), format!("s{:02}", self.dice.below(SKILLS)));
        (root, format!("{group}/{name}"), name)
    }

    /// Writes a file in place, and its directory.
    fn write(&self, relative: &str, content: impl AsRef<[u8]>) -> io::Result<()> {
        let path = self.path(relative);
        fs::create_dir_all(path.parent().expect("below the top"))?;
        fs::write(path, content)
    }

    /// Replaces a file by another one, whose directory is there.
    fn put(&self, relative: &str, content: impl AsRef<[u8]>) -> io::Result<()> {
        let fresh = self.path("out/fresh");
        fs::write(&fresh, content)?;
        fs::rename(fresh, self.path(relative))
    }

    fn edit_in_place(&mut self) -> io::Result<()> {
        let (root, dir, name) = self.skill();
        self.write(&format!("{dir}/SKILL.md"), texts::skill(root, &name, self.version))
    }

    fn edit_by_rename(&mut self) -> io::Result<()> {
        let (root, dir, name) = self.skill();
        self.put(&format!("{dir}/SKILL.md"), texts::skill(root, &name, self.version))
    }

    fn add(&mut self) -> io::Result<()> {
        let ((root, group), name) = (self.group(), format!("x{}", self.dice.below(9)));
        self.write(&format!("{group}/{name}/SKILL.md"), texts::skill(root, &name, self.version))
    }

    fn remove(&mut self) -> io::Result<()> {
        let (_, dir, _) = self.skill();
        fs::remove_dir_all(self.path(&dir))
    }

    fn rename(&mut self) -> io::Result<()> {
        let ((_, from, _), to) = (self.skill(), self.dice.below(9));
        let to = Path::new(&from).with_file_name(format!("y{to}"));
        fs::rename(self.path(&from), self.path(to.to_str().expect("UTF-8")))
    }

    fn tear(&mut self) -> io::Result<()> {
        let (root, dir, name) = self.skill();
        self.write(&format!("{dir}/SKILL.md"), texts::broken(root, &name, self.version))
    }

    fn close(&mut self) -> io::Result<()> {
        let (_, dir, _) = self.skill();
        let what = if self.dice.one_in(2) { dir } else { dir + "/SKILL.md" };
        let path = self.path(&what);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o000))?;
        self.closed = Some(path);
        Ok(())
    }

    fn turn(&mut self) -> io::Result<()> {
        let (root, release) = (self.root(), 1 + self.dice.below(2));
        retarget(&self.path(&format!("{root}/current")), &format!("../v/{root}/{release}"));
        let file = format!("v/{root}/{release}/t0/SKILL.md");
        self.put(&file, texts::skill(root, "t0", self.version))
    }

    fn edit_notes(&mut self) -> io::Result<()> {
        let (root, dir, name) = self.skill();
        let (file, notes) =
            (format!("{dir}/references/notes"), texts::notes(root, &name, self.version));
        if self.dice.one_in(2) { self.write(&file, notes) } else { self.put(&file, notes) }
    }

    fn sidecar(&mut self) -> io::Result<()> {
        let (_, dir, _) = self.skill();
        let file = format!("{dir}/agents/openai.yaml");
        match self.dice.below(4) {
            0 => fs::remove_file(self.path(&file)),
            1 => self.write(&file, "policy:\n  products: [chatgpt]\n"),
            2 => self.write(&file, "policy: [broken\n"),
            _ => self.write(&file, format!("interface:\n  display_name: No. {}\n", self.version)),
        }
    }

    fn manifest(&mut self) -> io::Result<()> {
        let (_, group) = self.group();
        let file = format!("{group}/.codex-plugin/plugin.json");
        match self.dice.below(4) {
            0 => fs::remove_file(self.path(&file)),
            1 => self.write(&file, "{"),
            n => self.write(&file, format!(r#"{{"name": "p{n}"}}"#)),
        }
    }

    fn touch(&mut self) -> io::Result<()> {
        let (_, dir, _) = self.skill();
        let mode = fs::Permissions::from_mode(*self.dice.pick(&[0o644, 0o664]));
        fs::set_permissions(self.path(&format!("{dir}/SKILL.md")), mode)?;
        self.write(&format!("{dir}/.swp"), self.version.to_string())
    }

    fn move_group(&mut self) -> io::Result<()> {
        let (root, group) = (self.root(), self.dice.below(GROUPS));
        let moved = self.path(&format!("{root}/moved"));
        fs::create_dir_all(&moved)?;
        let (here, there) = (self.path(&format!("{root}/g{group:02}")), format!("g{group:02}"));
        let there = moved.join(there);
        if there.exists() { fs::rename(there, here) } else { fs::rename(here, there) }
    }

    fn rewrite_group(&mut self) -> io::Result<()> {
        let (root, group) = self.group();
        for n in 0..SKILLS {
            let name = format!("s{n:02}");
            let text = texts::skill(root, &name, self.version);
            self.write(&format!("{group}/{name}/SKILL.md"), text)?;
        }
        Ok(())
    }

    /// A group is moved out, and another one in its place, whole.
    fn exchange_group(&mut self) -> io::Result<()> {
        let (root, group) = self.group();
        self.tree.plant_group("out/next", root, self.version);
        let exchanged = fs::rename(self.path(&group), self.path("out/last"))
            .and_then(|()| fs::rename(self.path("out/next"), self.path(&group)));
        drop(fs::remove_dir_all(self.path("out/last")));
        drop(fs::remove_dir_all(self.path("out/next")));
        exchanged
    }

    fn remove_group(&mut self) -> io::Result<()> {
        let (_, group) = self.group();
        fs::remove_dir_all(self.path(&group))
    }

    fn blink(&mut self) -> io::Result<()> {
        let root = self.root();
        let root = self.path(root);
        let away = self.path("out/away");
        fs::rename(&root, &away)?;
        thread::sleep(Duration::from_millis(self.dice.below(600)));
        fs::rename(away, root)
    }
}
