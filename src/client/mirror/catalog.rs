//! Catalog of a mirror: skills in list order, plugins, the state of each root, and diagnostics.

use crate::proto::caproot::v1::{Diagnostic, Marketplace, Plugin, RootStatus, Skill};
use std::collections::HashMap;
use std::sync::Arc;

/// Complete state of one executor's catalog: the content of `ListSkills` and `ResolveRoots` at one
/// revision.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MirrorCatalog {
    skills: Vec<Arc<Skill>>,
    by_package: HashMap<Box<str>, usize>,
    plugins: Vec<Arc<Plugin>>,
    marketplaces: Vec<Marketplace>,
    roots: Vec<RootStatus>,
    diagnostics: Vec<Diagnostic>,
}

impl MirrorCatalog {
    /// Creates the catalog. The skills must be in list order.
    pub(super) fn new(
        skills: Vec<Arc<Skill>>,
        (plugins, marketplaces): (Vec<Arc<Plugin>>, Vec<Marketplace>),
        roots: Vec<RootStatus>,
        diagnostics: Vec<Diagnostic>,
    ) -> Self {
        let entry = |(at, skill): (usize, &Arc<Skill>)| (skill.package.as_str().into(), at);
        let by_package = skills.iter().enumerate().map(entry).collect();
        Self { skills, by_package, plugins, marketplaces, roots, diagnostics }
    }

    /// Skills in the order of `ListSkills`: by root as selected, then by name, then by package.
    #[must_use]
    pub fn skills(&self) -> &[Arc<Skill>] {
        &self.skills
    }

    /// Returns the skill with this handle.
    #[must_use]
    pub fn skill(&self, package: &str) -> Option<&Arc<Skill>> {
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
