//! Disable rules of the operator, resolved to directories: skills to remove from catalogs, and
//! files of disabled skills to hide from the skills around them.

use super::dirs_snapshot::AllowedDirsSnapshot;
use crate::daemon::model::disabled_skills::ResolvedGlobs;
use crate::daemon::model::{DisableRules, DisabledPackages, PublishedRoot, ResolvedPath};
use caproot_core::wire::RelPath;

/// Skills whose files are not served, not even as resources of an enclosing skill.
#[derive(Debug, Clone, Copy)]
pub struct DisabledSkills<'a> {
    /// Disabled packages that the scan of the root found.
    pub packages: &'a DisabledPackages,
    /// Rules, for files that links lead to outside the root.
    pub rules: &'a DisableRules,
    /// Published roots, to which the rules refer.
    pub published: &'a [PublishedRoot],
}

/// Filter that removes the disabled skills of one root.
#[derive(Debug)]
pub struct SkillFilter<'a> {
    rules: &'a DisableRules,
    rule_paths: ResolvedGlobs<'a>,
    root: &'a ResolvedPath,
    disabled_packages: Vec<(RelPath, Option<RelPath>)>,
}

impl<'a> SkillFilter<'a> {
    /// Resolves the rules in this snapshot.
    pub fn new(
        snapshot: &AllowedDirsSnapshot,
        root: &'a ResolvedPath,
        published: &[PublishedRoot],
        rules: &'a DisableRules,
    ) -> Self {
        Self {
            rules,
            rule_paths: resolve_rules(snapshot, published, rules),
            root,
            disabled_packages: Vec::new(),
        }
    }

    /// Whether a skill is disabled by its walked path, its resolved path or its name. Records
    /// disabled skills.
    pub fn take_if_disabled(
        &mut self,
        package: &RelPath,
        real_path: Option<&ResolvedPath>,
        name: Option<&str>,
    ) -> bool {
        let rules = &self.rule_paths;
        let is_path_disabled = !rules.is_empty()
            && (rules.matches_package(&self.root.join_path(package))
                || real_path.is_some_and(|real_path| rules.matches_package(real_path)));
        let is_disabled =
            is_path_disabled || name.is_some_and(|name| self.rules.matches_name(name));

        if is_disabled {
            self.disabled_packages.push((
                package.clone(),
                real_path.and_then(|real_path| real_path.strip_prefix(self.root)),
            ));
        }

        is_disabled
    }

    /// Returns the disabled packages.
    pub fn disabled_packages(self) -> DisabledPackages {
        DisabledPackages::new(self.disabled_packages)
    }
}

/// Resolves the rules by path, below the published roots that exist.
pub fn resolve_rules<'a>(
    snapshot: &AllowedDirsSnapshot,
    published: &[PublishedRoot],
    rules: &'a DisableRules,
) -> ResolvedGlobs<'a> {
    // A rule holds for every caller, including callers with an access scope.
    let snapshot = snapshot.without_access_scope();
    rules.resolve_globs(|id| {
        let root = published.iter().find(|root| root.id == *id)?;
        snapshot.resolve_published(&root.path).ok()
    })
}
