//! Catalog of a mirror: skills in list order, plugins, the state of each root, and diagnostics.

use crate::proto::caproot::v1::{Diagnostic, Marketplace, Plugin, RootStatus, Skill};
use std::collections::HashMap;
use std::sync::Arc;

/// Complete state of one executor's catalog: the content of `ListSkills` and `ResolveRoots` at one
/// revision. Has each skill as an `S`.
#[derive(Debug, Clone, PartialEq)]
pub struct MirrorCatalog<S = Skill> {
    skills: Vec<Arc<S>>,
    by_package: HashMap<Box<str>, usize>,
    plugins: Vec<Arc<Plugin>>,
    marketplaces: Vec<Marketplace>,
    roots: Vec<RootStatus>,
    diagnostics: Vec<Diagnostic>,
}

impl<S> Default for MirrorCatalog<S> {
    fn default() -> Self {
        Self::new([], (vec![], vec![]), vec![], vec![])
    }
}

impl<S> MirrorCatalog<S> {
    /// Creates the catalog. The skills, each with its package, must be in list order.
    pub(super) fn new<'a>(
        skills: impl IntoIterator<Item = (&'a str, Arc<S>)>,
        (plugins, marketplaces): (Vec<Arc<Plugin>>, Vec<Marketplace>),
        roots: Vec<RootStatus>,
        diagnostics: Vec<Diagnostic>,
    ) -> Self {
        let skills = skills.into_iter().enumerate();
        let (by_package, skills) =
            skills.map(|(at, (package, skill))| ((package.into(), at), skill)).unzip();
        Self { skills, by_package, plugins, marketplaces, roots, diagnostics }
    }

    /// Skills in the order of `ListSkills`: by root as selected, then by name, then by package.
    #[must_use]
    pub fn skills(&self) -> &[Arc<S>] {
        &self.skills
    }

    /// Returns the skill with this handle.
    #[must_use]
    pub fn skill(&self, package: &str) -> Option<&Arc<S>> {
        self.by_package.get(package).map(|at| &self.skills[*at])
    }

    /// Plugins by root as selected, then by package.
    #[must_use]
    pub fn plugins(&self) -> &[Arc<Plugin>] {
        &self.plugins
    }

    /// Marketplaces by root as selected.
    #[must_use]
    pub fn marketplaces(&self) -> &[Marketplace] {
        &self.marketplaces
    }

    /// State of each selected root, in the order of the selection.
    #[must_use]
    pub fn roots(&self) -> &[RootStatus] {
        &self.roots
    }

    /// Diagnostics by root as selected, most severe first.
    #[must_use]
    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.diagnostics
    }
}
