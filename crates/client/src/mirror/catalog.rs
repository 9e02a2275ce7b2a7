//! Catalog of a mirror: skills in list order, plugins, the state of each root, and diagnostics.

use super::root_contents::RootContents;
use super::root_readiness::RootReadiness;
use caproot_core::proto::caproot::v1::{
    Diagnostic, Marketplace, Plugin, RootStatus, Skill, SkillReadiness,
};
use std::sync::Arc;

/// Complete state of one executor's catalog: the content of `ListSkills` and `ResolveRoots` at one
/// revision. Mirrors of a fleet share the memory of roots with equal catalogs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MirrorCatalog {
    /// State of each selected root, in the order of the selection.
    pub(super) statuses: Vec<RootStatus>,
    /// Catalog of each selected root, in the order of the selection.
    pub(super) roots: Vec<CatalogRoot>,
}

/// Selected root with its catalog.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct CatalogRoot {
    pub id: Arc<str>,
    pub contents: Arc<RootContents>,
    /// Readiness of the skills.
    pub readiness: Arc<RootReadiness>,
}

impl MirrorCatalog {
    /// Returns the readiness of a skill of a root on the executor of the mirror. `None` if the skill
    /// declares no requirement.
    #[must_use]
    pub fn readiness(&self, root_id: &str, package: &str) -> Option<&SkillReadiness> {
        self.root(root_id)?.readiness.get(package)
    }

    /// Skills in the order of `ListSkills`: by root as selected, then by name, then by package.
    #[must_use]
    pub fn skills(&self) -> impl DoubleEndedIterator<Item = &Arc<Skill>> + Clone {
        self.roots.iter().flat_map(|root| root.contents.skills())
    }

    /// Returns the number of skills.
    #[must_use]
    pub fn skill_count(&self) -> usize {
        self.roots
            .iter()
            .map(|root| root.contents.skill_count())
            .sum()
    }

    /// Returns the skill with this handle.
    #[must_use]
    pub fn skill(&self, package: &str) -> Option<&Arc<Skill>> {
        self.roots
            .iter()
            .find_map(|root| root.contents.skill(package))
    }

    /// Plugins by root as selected, then by package.
    #[must_use]
    pub fn plugins(&self) -> impl DoubleEndedIterator<Item = &Arc<Plugin>> + Clone {
        self.roots.iter().flat_map(|root| root.contents.plugins())
    }

    /// Marketplaces by root as selected.
    #[must_use]
    pub fn marketplaces(&self) -> impl DoubleEndedIterator<Item = &Marketplace> + Clone {
        self.roots
            .iter()
            .flat_map(|root| root.contents.marketplaces())
    }

    /// State of each selected root, in the order of the selection.
    #[must_use]
    pub fn roots(&self) -> &[RootStatus] {
        &self.statuses
    }

    /// Diagnostics by root as selected, most severe first.
    #[must_use]
    pub fn diagnostics(&self) -> impl DoubleEndedIterator<Item = &Diagnostic> + Clone {
        self.roots
            .iter()
            .flat_map(|root| root.contents.diagnostics())
    }

    /// Returns a selected root.
    pub(super) fn root(&self, id: &str) -> Option<&CatalogRoot> {
        self.roots.iter().find(|root| *root.id == *id)
    }
}
