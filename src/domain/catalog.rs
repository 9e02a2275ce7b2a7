//! Everything one search of one root found, sorted and immutable, so that it can be shared.

use super::diagnostic::{Diagnostic, Severity};
use super::limits::MAX_DIAGNOSTICS;
use super::skill::Skill;
use super::{Manifest, RelPath, Scope};
use std::sync::Arc;

/// What a root turned out to be; the first that fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // the proto's `RootKind` says what each means
pub enum Kind {
    Plugin,
    Skill,
    SkillSet,
}

/// What a search met, in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)] // the proto's `RootCounts` says what each means
pub struct Counts {
    pub left_out: u32,
    pub directories: u32,
    pub entries: u32,
    pub passed_over: u32,
}

/// What is said of a root as a whole.
#[derive(Debug, Clone, PartialEq)]
pub struct Header {
    /// Who the root is for, where it is published.
    pub scope: Option<Scope>,
    /// Whether links below it are followed.
    pub follow_links: bool,
    /// What the root is.
    pub kind: Kind,
    /// The root's own manifest.
    pub plugin: Option<Manifest>,
    /// What was met.
    pub counts: Counts,
    /// Whether a limit cut the search short.
    pub truncated: bool,
}

/// The catalog of one root. Handles are made from it for each id under which it was selected.
#[derive(Debug, Clone, PartialEq)]
pub struct Catalog {
    /// Of the root as a whole.
    pub header: Header,
    /// By qualified name, then package.
    skills: Box<[Arc<Skill>]>,
    /// Indices into `skills`, by package.
    by_package: Box<[u32]>,
    /// The worst, ordered by severity, resource and line.
    pub diagnostics: Diagnostics,
}

impl Catalog {
    /// Sorts skills and diagnostics. Everything else is as in `rest`.
    #[must_use]
    pub fn new(skills: Vec<Arc<Skill>>, diagnostics: Diagnostics, rest: Header) -> Self {
        let (mut skills, mut diagnostics) = (skills, diagnostics);
        skills.sort_by(|a, b| (&a.name, &a.package).cmp(&(&b.name, &b.package)));
        let mut by_package: Vec<u32> = (0u32..).take(skills.len()).collect();
        by_package.sort_by(|a, b| skills[*a as usize].package.cmp(&skills[*b as usize].package));
        diagnostics.settle();
        Self { header: rest, skills: skills.into(), by_package: by_package.into(), diagnostics }
    }

    /// The skills, by qualified name, then package.
    #[must_use]
    pub fn skills(&self) -> &[Arc<Skill>] {
        &self.skills
    }

    /// The skill of a package.
    #[must_use]
    pub fn skill(&self, package: &RelPath) -> Option<&Arc<Skill>> {
        self.by_package
            .binary_search_by(|i| self.skills[*i as usize].package.cmp(package))
            .ok()
            .map(|at| &self.skills[self.by_package[at] as usize])
    }

    /// The same catalog with each skill that is as it was in `old` shared with it, so that two
    /// revisions cost little more than one.
    #[must_use]
    pub fn sharing(mut self, old: &Self) -> Self {
        for skill in &mut self.skills {
            if let Some(same) = old.skill(&skill.package).filter(|o| *o == skill) {
                *skill = same.clone();
            }
        }
        self
    }
}

/// Diagnostics under collection: counts all, keeps the worst in bounded memory. Which ones are kept
/// does not depend on the order of arrival.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Diagnostics {
    total: u32,
    kept: Vec<Diagnostic>,
}

impl Diagnostics {
    /// Takes one more.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        self.total = self.total.saturating_add(1);
        self.kept.push(diagnostic);
        if self.kept.len() >= 4 * MAX_DIAGNOSTICS {
            self.settle();
        }
    }

    /// How many there are in all.
    #[must_use]
    pub fn total(&self) -> u32 {
        self.total
    }

    /// Those kept; sorted once they are in a catalog.
    #[must_use]
    pub fn kept(&self) -> &[Diagnostic] {
        &self.kept
    }

    fn settle(&mut self) {
        fn key(d: &Diagnostic) -> (Severity, &Option<RelPath>, u32, u32, super::Code, &str) {
            let p = &d.problem;
            (p.severity, &d.resource, p.line, p.column, p.code, &p.message)
        }
        self.kept.sort_by(|a, b| key(a).cmp(&key(b)));
        self.kept.truncate(MAX_DIAGNOSTICS);
        self.kept.shrink_to_fit();
    }
}
