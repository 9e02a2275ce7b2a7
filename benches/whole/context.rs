//! Settings of a pass, and generated trees. Each tree is generated once.

use crate::options::Options;
use crate::trees::{Plan, create_tree};
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

/// Size of a generated SKILL.md in bytes.
pub(crate) const SKILL_BYTES: usize = 6 << 10;

/// One pass over the measurements.
pub(crate) struct Context<'a> {
    pub(crate) options: &'a Options,
    /// Number of rounds of each measurement.
    pub(crate) rounds: usize,
    scratch: TempDir,
    generated: Mutex<HashSet<Plan>>,
    changes: AtomicUsize,
}

/// Generated tree.
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
        let (generated, changes) = (Mutex::default(), AtomicUsize::new(0));
        Ok(Self {
            options,
            rounds,
            scratch: tempfile::tempdir()?,
            generated,
            changes,
        })
    }

    /// Returns the count for a full pass or for a quick pass.
    pub(crate) fn count(&self, full: usize, quick: usize) -> usize {
        if self.options.quick { quick } else { full }
    }

    /// Returns a tree with a number of skills in a number of roots.
    pub(crate) fn tree(&self, skills: usize, roots: usize) -> io::Result<Tree<'_>> {
        self.tree_of(Plan {
            skills,
            bytes: SKILL_BYTES,
            roots,
            seed: 1,
        })
    }

    pub(crate) fn tree_of(&self, plan: Plan) -> io::Result<Tree<'_>> {
        let dir = self.dir(&format!(
            "tree-{}-{}-{}",
            plan.skills, plan.roots, plan.bytes
        ))?;
        let mut generated = self
            .generated
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if generated.insert(plan) {
            print_progress(format_args!("making {} skills", plan.skills));
            create_tree(&dir, &plan)?;
        }
        let (scratch, changes) = (self.scratch.path(), &self.changes);
        Ok(Tree {
            plan,
            roots: plan.root_dirs(&dir),
            dir,
            scratch,
            changes,
        })
    }

    /// Creates a directory that is removed after the pass.
    pub(crate) fn dir(&self, name: &str) -> io::Result<PathBuf> {
        let dir = self.scratch.path().join(name);
        fs::create_dir_all(&dir)?;
        Ok(dir)
    }
}

impl Tree<'_> {
    /// Directory of a skill.
    pub(crate) fn skill_dir(&self, n: usize) -> PathBuf {
        self.plan.skill_dir(&self.dir, n)
    }

    /// Renames a new version over the SKILL.md of a skill. Returns the time directly before the
    /// rename.
    pub(crate) fn change_skill(&self, skill: usize) -> io::Result<Instant> {
        let times = self.changes.fetch_add(1, Ordering::Relaxed);
        let next = self.scratch.join("next");
        fs::write(&next, self.plan.skill_md(skill, Some(times)))?;
        let now = Instant::now();
        fs::rename(next, self.skill_dir(skill).join("SKILL.md"))?;
        Ok(now)
    }
}

/// Prints the progress of the bench.
pub(crate) fn print_progress(message: Arguments<'_>) {
    // A closed stderr is no error.
    let _ = writeln!(io::stderr(), "… {message}");
}

/// Path of the bench itself, which also runs as the baseline server.
pub(crate) fn this_program() -> io::Result<PathBuf> {
    env::current_exe()
}
