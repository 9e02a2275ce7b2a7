//! Generates trees of skills for measurements: any number of skills of one size, divided among
//! roots. The same seed gives the same bytes on every machine. A skill is identical in all trees of
//! one seed and size.

use fastrand::Rng;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Parameters of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Plan {
    /// Total number of skills.
    pub(crate) skills: usize,
    /// Size of each SKILL.md in bytes.
    pub(crate) bytes: usize,
    /// Number of directories that the skills are divided among, in equal parts.
    pub(crate) roots: usize,
    /// Seed of the random words.
    pub(crate) seed: u64,
}

/// Number of skills in one directory.
const GROUP: usize = 100;

const WORDS: [&str; 32] = [
    "read", "write", "review", "file", "table", "commit", "report", "chart", "query", "log",
    "before", "after", "when", "with", "every", "first", "small", "whole", "open", "check",
    "draft", "merge", "data", "page", "build", "test", "release", "format", "clean", "compare",
    "find", "explain",
];

/// Creates the tree in a directory.
pub(crate) fn create_tree(tree: &Path, plan: &Plan) -> io::Result<()> {
    for n in 0..plan.skills {
        let dir = plan.skill_dir(tree, n);
        fs::create_dir_all(&dir)?;
        fs::write(dir.join("SKILL.md"), plan.skill_md(n, None))?;
    }
    Ok(())
}

impl Plan {
    /// Directories of the roots of a tree.
    pub(crate) fn root_dirs(&self, tree: &Path) -> Vec<PathBuf> {
        (0..self.roots)
            .map(|root| tree.join(format!("root-{root:03}")))
            .collect()
    }

    /// Directory of a skill.
    pub(crate) fn skill_dir(&self, tree: &Path, n: usize) -> PathBuf {
        let root = n * self.roots / self.skills.max(1);
        tree.join(format!(
            "root-{root:03}/group-{:03}/skill-{n:05}",
            n / GROUP
        ))
    }

    /// Content of a SKILL.md. The description of a changed skill contains the number of changes,
    /// and the file keeps its size.
    pub(crate) fn skill_md(&self, n: usize, changed: Option<usize>) -> String {
        let mut rng = Rng::with_seed(self.seed ^ (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut words = |count: usize| {
            let words = (0..count).map(|_| WORDS[rng.usize(..WORDS.len())]);
            words.collect::<Vec<_>>().join(" ")
        };
        let mut text = format!("---\nname: skill-{n:05}\ndescription: Skill {n} can ");
        text.push_str(&words(12 + n % 24));
        if let Some(changed) = changed {
            let _ = write!(text, "; changed {changed:08} times");
        }
        let _ = write!(
            text,
            ".\nlicense: Apache-2.0\nmetadata:\n  version: \"1.{n}\"\n  topic: {}\n---\n\n# Skill {n}\n",
            words(1)
        );
        while text.len() < self.bytes {
            let _ = write!(text, "\n{}.", words(10));
        }
        // The content is ASCII. The frontmatter is never cut.
        let head = text.find("\n---\n\n").map_or(0, |at| at + 5);
        text.truncate(self.bytes.max(head));
        text
    }
}
