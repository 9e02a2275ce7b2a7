//! Everything one search of one root found, sorted and immutable, so that it can be shared.

use super::chunks::Chunks;
use super::diagnostic::{Code, Diagnostic};
use super::limits::MAX_HANDLE_BYTES;
use super::skill::Skill;
use super::{
    Declaring, Manifest, Marketplace, OffPackages, Plugin, RelPath, RootId, Scope, handle,
};
use std::cmp::Ordering;
use std::collections::HashSet;
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
    pub disabled: u32,
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
    /// By qualified name, then package, in the byte order of its handle.
    skills: Chunks,
    /// Indices into `skills`, by package.
    by_package: Arc<[u32]>,
    /// Packages that would be listed if the operator had not switched them off.
    off: OffPackages,
    /// By package, in the byte order of its handle.
    plugins: Arc<[Arc<Plugin>]>,
    /// The lists of plugins that the root has.
    marketplaces: Arc<[Marketplace]>,
    /// Files whose content is never handed out.
    declaring: Arc<Declaring>,
    /// The worst, ordered by severity, resource and line.
    pub diagnostics: Arc<Diagnostics>,
    /// At least what the longest handle of a skill or plugin takes behind the root's own.
    longest_handle: usize,
    /// Whether any skill may be for certain products only.
    may_be_for_products: bool,
}

impl Catalog {
    /// Sorts skills and diagnostics.
    #[must_use]
    pub fn new(skills: Vec<Arc<Skill>>, diagnostics: Diagnostics, header: Header) -> Self {
        let (mut skills, mut diagnostics) = (skills, diagnostics);
        skills.sort_by(|a, b| {
            a.name().cmp(b.name()).then_with(|| handle::order(&a.package, &b.package))
        });
        let mut by_package: Vec<u32> = (0u32..).take(skills.len()).collect();
        by_package.sort_by(|a, b| skills[*a as usize].package.cmp(&skills[*b as usize].package));
        diagnostics.settle();
        let longest_handle = skills.iter().map(|s| s.handle_len).max().unwrap_or(0);
        let may_be_for_products = skills.iter().any(|s| s.is_for_products());
        Self {
            header,
            skills: Chunks::new(&skills),
            by_package: by_package.into(),
            diagnostics: Arc::new(diagnostics),
            longest_handle,
            may_be_for_products,
            off: OffPackages::default(),
            plugins: Arc::default(),
            marketplaces: Arc::default(),
            declaring: Arc::default(),
        }
    }

    /// The same catalog with what plugins are there, sorted.
    #[must_use]
    pub fn with_plugins(
        mut self,
        mut plugins: Vec<Arc<Plugin>>,
        marketplaces: Vec<Marketplace>,
        declaring: Declaring,
    ) -> Self {
        plugins.sort_by(|a, b| handle::order(&a.package, &b.package));
        let longest = plugins.iter().map(|plugin| plugin.handle_len()).max().unwrap_or(0);
        self.longest_handle = self.longest_handle.max(longest);
        self.plugins = plugins.into();
        self.marketplaces = marketplaces.into();
        self.declaring = Arc::new(declaring);
        self
    }

    /// The plugins, by package.
    #[must_use]
    pub fn plugins(&self) -> &[Arc<Plugin>] {
        &self.plugins
    }

    /// The plugin of a package.
    #[must_use]
    pub fn plugin(&self, package: &RelPath) -> Option<&Arc<Plugin>> {
        let at = self.plugins.binary_search_by(|p| handle::order(&p.package, package));
        Some(&self.plugins[at.ok()?])
    }

    /// The lists of plugins that the root has.
    #[must_use]
    pub fn marketplaces(&self) -> &[Marketplace] {
        &self.marketplaces
    }

    /// The files whose content is never handed out.
    #[must_use]
    pub fn declaring(&self) -> &Declaring {
        &self.declaring
    }

    /// The same catalog with the packages that the operator switched off.
    #[must_use]
    pub fn without(self, off: OffPackages) -> Self {
        Self { off, ..self }
    }

    /// The packages that the operator switched off.
    #[must_use]
    pub fn off(&self) -> &OffPackages {
        &self.off
    }

    /// The same catalog with some skills in the place of those of the same package and name. Costs
    /// in proportion to these, and shares the rest.
    #[must_use]
    pub fn with(&self, changed: &[Arc<Skill>]) -> Self {
        let mut new = self.clone();
        for skill in changed {
            if let Some(at) = self.position(&skill.package) {
                new.longest_handle = new.longest_handle.max(skill.handle_len);
                new.may_be_for_products |= skill.is_for_products();
                new.skills.replace(at, skill.clone());
            }
        }
        new
    }

    /// Whether every skill and plugin is listed under this id for this product, as far as can be said without
    /// looking at each.
    #[must_use]
    pub fn lists_all(&self, root: &RootId, product: &str) -> bool {
        (product.is_empty() || !self.may_be_for_products)
            && handle::printed_len(root, self.longest_handle) <= MAX_HANDLE_BYTES
    }

    /// How many skills there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_package.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_package.is_empty()
    }

    /// The skills from an index on, by qualified name, then package.
    pub fn skills(&self, from: usize) -> impl Iterator<Item = &Arc<Skill>> {
        self.skills.iter(from)
    }

    /// The skill of a package.
    #[must_use]
    pub fn skill(&self, package: &RelPath) -> Option<&Arc<Skill>> {
        Some(self.skills.get(self.position(package)?))
    }

    fn position(&self, package: &RelPath) -> Option<usize> {
        let found =
            self.by_package.binary_search_by(|i| self.skills.get(*i as usize).package.cmp(package));
        Some(self.by_package[found.ok()?] as usize)
    }

    /// The skills that are not the same in both, each with its counterpart in `old`, if they are at
    /// the same places in both: what [`Catalog::with`] made of one another. Looks only at what is
    /// not shared.
    pub(super) fn replaced<'a>(
        &'a self,
        old: &'a Self,
    ) -> Option<impl Iterator<Item = (&'a Arc<Skill>, &'a Arc<Skill>)>> {
        Arc::ptr_eq(&self.by_package, &old.by_package).then(|| self.skills.replaced(&old.skills))
    }

    /// Whether nothing that an author or a caller would call a change lies between the two: how many
    /// unrelated files there are does not count.
    #[must_use]
    pub fn means_the_same(&self, other: &Self) -> bool {
        let counted = |header: &Header| {
            let counts = Counts { directories: 0, entries: 0, ..header.counts };
            Header { counts, ..header.clone() }
        };
        counted(&self.header) == counted(&other.header)
            && (Arc::ptr_eq(&self.diagnostics, &other.diagnostics)
                || self.diagnostics == other.diagnostics)
            && self.off == other.off
            && self.plugins == other.plugins
            && self.marketplaces == other.marketplaces
            && self.declaring == other.declaring
            && self.skills == other.skills
    }
}

/// Diagnostics under collection: counts all, keeps the worst in bounded memory. Which ones are kept
/// does not depend on the order of arrival.
#[derive(Debug, Clone, PartialEq)]
pub struct Diagnostics {
    most: usize,
    total: u32,
    kept: Vec<Diagnostic>,
}

impl Diagnostics {
    /// Keeps at most so many.
    #[must_use]
    pub fn keeping(most: usize) -> Self {
        Self { most, total: 0, kept: Vec::new() }
    }

    /// Takes one more.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        self.total = self.total.saturating_add(1);
        self.kept.push(diagnostic);
        if self.kept.len() >= self.most.saturating_mul(4).max(1) {
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
        fn places(a: Option<&RelPath>, b: Option<&RelPath>) -> Ordering {
            match (a, b) {
                (Some(a), Some(b)) => handle::order(a, b),
                (a, b) => a.is_some().cmp(&b.is_some()),
            }
        }
        self.kept.sort_by(|a, b| {
            let (x, y) = (&a.problem, &b.problem);
            (x.severity.cmp(&y.severity))
                .then_with(|| places(a.resource.as_ref(), b.resource.as_ref()))
                .then_with(|| (x.line, x.column, x.code).cmp(&(y.line, y.column, y.code)))
                .then_with(|| x.message.cmp(&y.message))
        });
        // A link is met by the search and again by whoever needs the file behind it: said once, as
        // its worst.
        let mut said = HashSet::new();
        let before = self.kept.len();
        self.kept.retain(|d| {
            let code = d.problem.code;
            let once = matches!(code, Code::OutsideRoot | Code::DanglingLink | Code::Unreadable);
            !once || said.insert((code, d.resource.clone()))
        });
        let again = u32::try_from(before - self.kept.len()).unwrap_or_default();
        self.total -= again;
        self.kept.truncate(self.most);
        self.kept.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::{Code, Diagnostic, Diagnostics};
    use crate::domain::{Problem, Severity};

    #[test]
    fn keeps_the_worst_in_any_order() {
        for turn in 0..4_u32 {
            let mut diagnostics = Diagnostics::keeping(2);
            for n in 0..20_u32 {
                let is_worst = n % 10 == turn;
                let severity = if is_worst { Severity::Error } else { Severity::Note };
                let problem = Problem::new(Code::NotUtf8, severity, "").at(n + 1, 1);
                diagnostics.push(Diagnostic { resource: None, problem });
            }
            diagnostics.settle();
            assert_eq!((diagnostics.total(), diagnostics.kept().len()), (20, 2));
            assert!(diagnostics.kept().iter().all(|d| d.problem.severity == Severity::Error));
        }
    }
}
