//! What every measurement is given: how often, and trees, each of which is made once.

use crate::options::Options;
use crate::trees::{Plan, make};
use std::collections::HashSet;
use std::fmt::Arguments;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;
use std::{env, fs};
use tempfile::TempDir;

pub(crate) type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Bytes of a generated SKILL.md.
pub(crate) const SKILL_BYTES: usize = 6 << 10;

/// One pass over the measurements.
pub(crate) struct Context<'a> {
    pub(crate) options: &'a Options,
    /// How often each side is measured.
    pub(crate) rounds: usize,
    scratch: TempDir,
    made: Mutex<HashSet<Plan>>,
    changes: AtomicUsize,
}

/// A generated tree.
pub(crate) struct Tree<'a> {
    pub(crate) plan: Plan,
    pub(crate) roots: Vec<PathBuf>,
    dir: PathBuf,
    scratch: &'a Path,
    changes: &'a AtomicUsize,
}

impl<'a> Context<'a> {
    pub(crate) fn new(options: &'a Options) -> io::Result<Self> {
        let rounds = if options.quick { 3 } else { 7 };
        let (made, changes) = (Mutex::default(), AtomicUsize::new(0));
        Ok(Self { options, rounds, scratch: tempfile::tempdir()?, made, changes })
    }

    /// The one number or the other: of the whole pass, or of the quick one.
    pub(crate) fn count(&self, whole: usize, quick: usize) -> usize {
        if self.options.quick { quick } else { whole }
    }

    /// So many skills in so many roots.
    pub(crate) fn tree(&self, skills: usize, roots: usize) -> io::Result<Tree<'_>> {
        self.tree_of(Plan { skills, bytes: SKILL_BYTES, roots, seed: 1 })
    }

    pub(crate) fn tree_of(&self, plan: Plan) -> io::Result<Tree<'_>> {
        let dir = self.dir(&format!("tree-{}-{}-{}", plan.skills, plan.roots, plan.bytes))?;
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if made.insert(plan) {
            say(format_args!("making {} skills", plan.skills));
            make(&dir, &plan)?;
        }
        let (scratch, changes) = (self.scratch.path(), &self.changes);
        Ok(Tree { plan, roots: plan.roots(&dir), dir, scratch, changes })
    }

    /// A directory that goes with the pass.
    pub(crate) fn dir(&self, name: &str) -> io::Result<PathBuf> {
        let dir = self.scratch.path().join(name);
        fs::create_dir_all(&dir)?;
        Ok(dir)
    }
}

impl Tree<'_> {
    /// The directory of a skill.
    pub(crate) fn skill(&self, n: usize) -> PathBuf {
        self.plan.skill(&self.dir, n)
    }

    /// Renames a changed SKILL.md over a skill's, one that it never had; gives the time just before.
    pub(crate) fn change(&self, skill: usize) -> io::Result<Instant> {
        let times = self.changes.fetch_add(1, Ordering::Relaxed);
        let next = self.scratch.join("next");
        fs::write(&next, self.plan.text(skill, Some(times)))?;
        let now = Instant::now();
        fs::rename(next, self.skill(skill).join("SKILL.md"))?;
        Ok(now)
    }
}

/// What happens now, for whoever waits.
pub(crate) fn say(what: Arguments<'_>) {
    // Whoever does not listen misses nothing.
    let _ = writeln!(io::stderr(), "… {what}");
}

/// The bench itself, to be run again as the other side.
pub(crate) fn this_program() -> io::Result<PathBuf> {
    env::current_exe()
}
