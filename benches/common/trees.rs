//! Trees of skills for measurements: any number of skills of one size, divided among roots, the same
//! bytes for the same seed on every machine. A skill is the same in every tree of its seed and size.

use fastrand::Rng;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// What a tree is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Plan {
    /// Skills in all.
    pub(crate) skills: usize,
    /// Bytes of each SKILL.md.
    pub(crate) bytes: usize,
    /// Directories that the skills are divided among, in equal parts.
    pub(crate) roots: usize,
    /// What the words are drawn by.
    pub(crate) seed: u64,
}

/// Skills in one directory.
const GROUP: usize = 100;

const WORDS: [&str; 32] = [
    "read", "write", "review", "file", "table", "commit", "report", "chart", "query", "log",
    "before", "after", "when", "with", "every", "first", "small", "whole", "open", "check",
    "draft", "merge", "data", "page", "build", "test", "release", "format", "clean", "compare",
    "find", "explain",
];

/// Makes the tree in a directory.
pub(crate) fn make(tree: &Path, plan: &Plan) -> io::Result<()> {
    for n in 0..plan.skills {
        let dir = plan.skill(tree, n);
        fs::create_dir_all(&dir)?;
        fs::write(dir.join("SKILL.md"), plan.text(n, None))?;
    }
    Ok(())
}

impl Plan {
    /// The roots of a tree.
    pub(crate) fn roots(&self, tree: &Path) -> Vec<PathBuf> {
        (0..self.roots).map(|root| tree.join(format!("root-{root:03}"))).collect()
    }

    /// The directory of a skill.
    pub(crate) fn skill(&self, tree: &Path, n: usize) -> PathBuf {
        let root = n * self.roots / self.skills.max(1);
        tree.join(format!("root-{root:03}/group-{:03}/skill-{n:05}", n / GROUP))
    }

    /// A SKILL.md; with how often it was changed, if it was, in its description, in as many bytes.
    pub(crate) fn text(&self, n: usize, changed: Option<usize>) -> String {
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
        // All is ASCII. A skill is never cut within its head.
        let head = text.find("\n---\n\n").map_or(0, |at| at + 5);
        text.truncate(self.bytes.max(head));
        text
    }
}
