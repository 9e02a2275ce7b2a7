//! Catalog of a mirror: skills in list order, plugins, the state of each root, and diagnostics.

use super::root_contents::RootContents;
use super::root_readiness::RootReadiness;
use caproot_core::proto::caproot::v1::{
    Diagnostic, Marketplace, Plugin, RootStatus, Skill, SkillReadiness,
};
use std::sync::Arc;

/// Complete state of one executor's catalog: the content of `ListSkills` and `ResolveRoots` at one
/// revision. Has each skill as an `S`. Mirrors of a fleet share the memory of roots with equal
/// catalogs.
#[derive(Debug, Clone, PartialEq)]
pub struct MirrorCatalog<S = Skill> {
    /// State of each selected root, in the order of the selection.
    roots: Vec<RootStatus>,
    /// Id and contents of each selected root, in the order of the selection.
    contents: Vec<(Arc<str>, Arc<RootContents<S>>)>,
    /// Id of each selected root, and the readiness of its skills.
    readiness: Vec<(Arc<str>, Arc<RootReadiness>)>,
}

impl<S> Default for MirrorCatalog<S> {
    fn default() -> Self {
        Self {
            roots: Vec::new(),
            contents: Vec::new(),
            readiness: Vec::new(),
        }
    }
}

impl<S> MirrorCatalog<S> {
    /// Creates the catalog of these roots.
    pub(super) fn new(
        roots: Vec<RootStatus>,
        contents: Vec<(Arc<str>, Arc<RootContents<S>>)>,
    ) -> Self {
        Self {
            roots,
            contents,
            readiness: Vec::new(),
        }
    }

    /// Adds the readiness of the skills of each root.
    pub(super) fn with_readiness(self, readiness: Vec<(Arc<str>, Arc<RootReadiness>)>) -> Self {
        Self { readiness, ..self }
    }

    /// Returns the readiness of a skill of a root on the executor of the mirror. `None` if the skill
    /// declares no requirement.
    #[must_use]
    pub fn readiness(&self, root_id: &str, package: &str) -> Option<&SkillReadiness> {
        let mut roots = self.readiness.iter();
        let (_, root) = roots.find(|(id, _)| **id == *root_id)?;
        root.get(package)
    }

    /// Skills in the order of `ListSkills`: by root as selected, then by name, then by package.
    #[must_use]
    pub fn skills(&self) -> impl DoubleEndedIterator<Item = &Arc<S>> + Clone {
        self.contents.iter().flat_map(|(_, root)| root.skills())
    }

    /// Returns the number of skills.
    #[must_use]
    pub fn skill_count(&self) -> usize {
        self.contents
            .iter()
            .map(|(_, root)| root.skill_count())
            .sum()
    }

    /// Returns the skill with this handle.
    #[must_use]
    pub fn skill(&self, package: &str) -> Option<&Arc<S>> {
        self.contents
            .iter()
            .find_map(|(_, root)| root.skill(package))
    }

    /// Plugins by root as selected, then by package.
    #[must_use]
    pub fn plugins(&self) -> impl DoubleEndedIterator<Item = &Arc<Plugin>> + Clone {
        self.contents.iter().flat_map(|(_, root)| root.plugins())
    }

    /// Marketplaces by root as selected.
    #[must_use]
    pub fn marketplaces(&self) -> impl DoubleEndedIterator<Item = &Marketplace> + Clone {
        self.contents
            .iter()
            .flat_map(|(_, root)| root.marketplaces())
    }

    /// State of each selected root, in the order of the selection.
    #[must_use]
    pub fn roots(&self) -> &[RootStatus] {
        &self.roots
    }

    /// Diagnostics by root as selected, most severe first.
    #[must_use]
    pub fn diagnostics(&self) -> impl DoubleEndedIterator<Item = &Diagnostic> + Clone {
        self.contents
            .iter()
            .flat_map(|(_, root)| root.diagnostics())
    }

    /// Returns the contents of a selected root.
    pub(super) fn contents(&self, root_id: &str) -> Option<&Arc<RootContents<S>>> {
        let mut contents = self.contents.iter();
        contents
            .find(|(id, _)| **id == *root_id)
            .map(|(_, contents)| contents)
    }
}
