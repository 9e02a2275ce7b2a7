//! What a mirror holds: skills in the order of a list, plugins, the state of each root, and what is
//! wrong.

use crate::proto::caproot::v1::{Diagnostic, Marketplace, Plugin, RootStatus, Skill};
use std::collections::HashMap;
use std::sync::Arc;

/// A whole state of one executor's catalog: what `ListSkills` and `ResolveRoots` give at its revision.
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
    /// Skills must come in the order of a list.
    pub(super) fn new(
        skills: Vec<Arc<Skill>>,
        (plugins, marketplaces): (Vec<Arc<Plugin>>, Vec<Marketplace>),
        roots: Vec<RootStatus>,
        diagnostics: Vec<Diagnostic>,
    ) -> Self {
        let place = |(at, skill): (usize, &Arc<Skill>)| (skill.package.as_str().into(), at);
        let by_package = skills.iter().enumerate().map(place).collect();
        Self { skills, by_package, plugins, marketplaces, roots, diagnostics }
    }

    /// In the order of `ListSkills`: by root as selected, then by name, then by package.
    #[must_use]
    pub fn skills(&self) -> &[Arc<Skill>] {
        &self.skills
    }

    /// The skill with this handle.
    #[must_use]
    pub fn skill(&self, package: &str) -> Option<&Arc<Skill>> {
        self.by_package.get(package).map(|at| &self.skills[*at])
    }

    /// By root as selected, then by package.
    #[must_use]
    pub fn plugins(&self) -> &[Arc<Plugin>] {
        &self.plugins
    }

    /// Lists of plugins, by root as selected.
    #[must_use]
    pub fn marketplaces(&self) -> &[Marketplace] {
        &self.marketplaces
    }

    /// One for each selected root, as selected.
    #[must_use]
    pub fn roots(&self) -> &[RootStatus] {
        &self.roots
    }

    /// What is wrong below the roots, by root as selected, most severe first.
    #[must_use]
    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.diagnostics
    }
}
