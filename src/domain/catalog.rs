//! Everything one search of one root found, sorted and immutable, so that it can be shared.

use super::diagnostic::{Diagnostic, DiagnosticCode};
use super::limits::MAX_HANDLE_BYTES;
use super::skill::Skill;
use super::skill_chunks::SkillChunks;
use super::{
    DisabledPackages, ManifestFiles, Plugin, PluginManifest, PluginMarketplace, RelPath, RootId,
    RootScope, handle,
};
use std::cmp::Ordering;
use std::collections::HashSet;
use std::sync::Arc;

/// What a root turned out to be; the first that fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // the proto's `RootKind` says what each means
pub enum RootKind {
    Plugin,
    Skill,
    SkillSet,
}

/// What a search met, in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)] // the proto's `RootCounts` says what each means
pub struct RootCounts {
    pub omitted: u32,
    pub disabled: u32,
    pub directories: u32,
    pub entries: u32,
    pub skipped: u32,
}

/// What is said of a root as a whole.
#[derive(Debug, Clone, PartialEq)]
pub struct CatalogHeader {
    /// Who the root is for, where it is published.
    pub scope: Option<RootScope>,
    /// Whether links below it are followed.
    pub follow_links: bool,
    /// What the root is.
    pub kind: RootKind,
    /// The root's own manifest.
    pub plugin: Option<PluginManifest>,
    /// What was met.
    pub counts: RootCounts,
    /// Whether a limit cut the search short.
    pub truncated: bool,
}

/// The catalog of one root. Handles are made from it for each id under which it was selected.
#[derive(Debug, Clone, PartialEq)]
pub struct Catalog {
    /// Of the root as a whole.
    pub header: CatalogHeader,
    /// By qualified name, then package, in the byte order of its handle.
    skills: SkillChunks,
    /// Indices into `skills`, by package.
    by_package: Arc<[u32]>,
    /// Packages that would be listed if the operator had not switched them off.
    disabled_packages: DisabledPackages,
    /// By package, in the byte order of its handle.
    plugins: Arc<[Arc<Plugin>]>,
    /// The lists of plugins that the root has.
    marketplaces: Arc<[PluginMarketplace]>,
    /// Files whose content is never handed out.
    manifest_files: Arc<ManifestFiles>,
    /// The worst, ordered by severity, resource and line.
    pub diagnostics: Arc<BoundedDiagnostics>,
    /// At least what the longest handle of a skill or plugin takes behind the root's own.
    longest_handle_len: usize,
    /// Whether any skill may be for certain products only.
    may_have_product_filters: bool,
}

impl Catalog {
    /// Sorts skills and diagnostics.
    #[must_use]
    pub fn new(
        skills: Vec<Arc<Skill>>,
        diagnostics: BoundedDiagnostics,
        header: CatalogHeader,
    ) -> Self {
        let (mut skills, mut diagnostics) = (skills, diagnostics);
        skills.sort_by(|a, b| {
            a.name().cmp(b.name()).then_with(|| handle::compare_encoded(&a.package, &b.package))
        });
        let mut by_package: Vec<u32> = (0u32..).take(skills.len()).collect();
        by_package.sort_by(|a, b| skills[*a as usize].package.cmp(&skills[*b as usize].package));
        diagnostics.sort_and_truncate();
        let longest_handle = skills.iter().map(|s| s.handle_len).max().unwrap_or(0);
        let may_be_for_products = skills.iter().any(|s| s.has_product_filter());
        Self {
            header,
            skills: SkillChunks::new(&skills),
            by_package: by_package.into(),
            diagnostics: Arc::new(diagnostics),
            longest_handle_len: longest_handle,
            may_have_product_filters: may_be_for_products,
            disabled_packages: DisabledPackages::default(),
            plugins: Arc::default(),
            marketplaces: Arc::default(),
            manifest_files: Arc::default(),
        }
    }

    /// The same catalog with what plugins are there, sorted.
    #[must_use]
    pub fn with_plugins(
        mut self,
        mut plugins: Vec<Arc<Plugin>>,
        marketplaces: Vec<PluginMarketplace>,
        declaring: ManifestFiles,
    ) -> Self {
        plugins.sort_by(|a, b| handle::compare_encoded(&a.package, &b.package));
        let longest = plugins.iter().map(|plugin| plugin.handle_len()).max().unwrap_or(0);
        self.longest_handle_len = self.longest_handle_len.max(longest);
        self.plugins = plugins.into();
        self.marketplaces = marketplaces.into();
        self.manifest_files = Arc::new(declaring);
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
        let at = self.plugins.binary_search_by(|p| handle::compare_encoded(&p.package, package));
        Some(&self.plugins[at.ok()?])
    }

    /// The lists of plugins that the root has.
    #[must_use]
    pub fn marketplaces(&self) -> &[PluginMarketplace] {
        &self.marketplaces
    }

    /// The files whose content is never handed out.
    #[must_use]
    pub fn manifest_files(&self) -> &ManifestFiles {
        &self.manifest_files
    }

    /// The same catalog with the packages that the operator switched off.
    #[must_use]
    pub fn with_disabled_packages(self, off: DisabledPackages) -> Self {
        Self { disabled_packages: off, ..self }
    }

    /// The packages that the operator switched off.
    #[must_use]
    pub fn disabled_packages(&self) -> &DisabledPackages {
        &self.disabled_packages
    }

    /// The same catalog with some skills in the place of those of the same package and name. Costs
    /// in proportion to these, and shares the rest.
    #[must_use]
    pub fn with_replaced_skills(&self, changed: &[Arc<Skill>]) -> Self {
        let mut new = self.clone();
        for skill in changed {
            if let Some(at) = self.skill_position(&skill.package) {
                new.longest_handle_len = new.longest_handle_len.max(skill.handle_len);
                new.may_have_product_filters |= skill.has_product_filter();
                new.skills.replace_skill(at, skill.clone());
            }
        }
        new
    }

    /// Whether every skill and plugin is listed under this id for this product, as far as can be said without
    /// looking at each.
    #[must_use]
    pub fn lists_all(&self, root: &RootId, product: &str) -> bool {
        (product.is_empty() || !self.may_have_product_filters)
            && handle::formatted_len(root, self.longest_handle_len) <= MAX_HANDLE_BYTES
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
        Some(self.skills.get(self.skill_position(package)?))
    }

    fn skill_position(&self, package: &RelPath) -> Option<usize> {
        let found =
            self.by_package.binary_search_by(|i| self.skills.get(*i as usize).package.cmp(package));
        Some(self.by_package[found.ok()?] as usize)
    }

    /// The skills that are not the same in both, each with its counterpart in `old`, if they are at
    /// the same places in both: what [`Catalog::with`] made of one another. Looks only at what is
    /// not shared.
    pub(super) fn replaced_skills<'a>(
        &'a self,
        old: &'a Self,
    ) -> Option<impl Iterator<Item = (&'a Arc<Skill>, &'a Arc<Skill>)>> {
        Arc::ptr_eq(&self.by_package, &old.by_package)
            .then(|| self.skills.replaced_pairs(&old.skills))
    }

    /// Whether nothing that an author or a caller would call a change lies between the two: how many
    /// unrelated files there are does not count.
    #[must_use]
    pub fn is_equivalent(&self, other: &Self) -> bool {
        let counted = |header: &CatalogHeader| {
            let counts = RootCounts { directories: 0, entries: 0, ..header.counts };
            CatalogHeader { counts, ..header.clone() }
        };
        counted(&self.header) == counted(&other.header)
            && (Arc::ptr_eq(&self.diagnostics, &other.diagnostics)
                || self.diagnostics == other.diagnostics)
            && self.disabled_packages == other.disabled_packages
            && self.plugins == other.plugins
            && self.marketplaces == other.marketplaces
            && self.manifest_files == other.manifest_files
            && self.skills == other.skills
    }
}

/// Diagnostics under collection: counts all, keeps the worst in bounded memory. Which ones are kept
/// does not depend on the order of arrival.
#[derive(Debug, Clone, PartialEq)]
pub struct BoundedDiagnostics {
    limit: usize,
    total: u32,
    kept: Vec<Diagnostic>,
}

impl BoundedDiagnostics {
    /// Keeps at most so many.
    #[must_use]
    pub fn with_limit(most: usize) -> Self {
        Self { limit: most, total: 0, kept: Vec::new() }
    }

    /// Takes one more.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        self.total = self.total.saturating_add(1);
        self.kept.push(diagnostic);
        if self.kept.len() >= self.limit.saturating_mul(4).max(1) {
            self.sort_and_truncate();
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

    fn sort_and_truncate(&mut self) {
        fn places(a: Option<&RelPath>, b: Option<&RelPath>) -> Ordering {
            match (a, b) {
                (Some(a), Some(b)) => handle::compare_encoded(a, b),
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
            let once = matches!(
                code,
                DiagnosticCode::OutsideRoot
                    | DiagnosticCode::DanglingLink
                    | DiagnosticCode::Unreadable
            );
            !once || said.insert((code, d.resource.clone()))
        });
        let again = u32::try_from(before - self.kept.len()).unwrap_or_default();
        self.total -= again;
        self.kept.truncate(self.limit);
        self.kept.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::{BoundedDiagnostics, Diagnostic, DiagnosticCode};
    use crate::domain::{FileProblem, Severity};

    #[test]
    fn keeps_the_worst_in_any_order() {
        for turn in 0..4_u32 {
            let mut diagnostics = BoundedDiagnostics::with_limit(2);
            for n in 0..20_u32 {
                let is_worst = n % 10 == turn;
                let severity = if is_worst { Severity::Error } else { Severity::Note };
                let problem =
                    FileProblem::new(DiagnosticCode::NotUtf8, severity, "").with_position(n + 1, 1);
                diagnostics.push(Diagnostic { resource: None, problem });
            }
            diagnostics.sort_and_truncate();
            assert_eq!((diagnostics.total(), diagnostics.kept().len()), (20, 2));
            assert!(diagnostics.kept().iter().all(|d| d.problem.severity == Severity::Error));
        }
    }
}
