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

/// Filter that hides the files of disabled skills from one enabled package.
#[derive(Debug)]
pub struct DisabledFileFilter<'a> {
    packages: &'a DisabledPackages,
    rule_paths: ResolvedGlobs<'a>,
    root: &'a ResolvedPath,
    package: &'a RelPath,
    /// Resolved path of the package.
    real_path: ResolvedPath,
    real_below_root: Option<RelPath>,
}

impl<'a> DisabledSkills<'a> {
    /// Resolves the rules in this snapshot, for a package with this walked path and resolved path.
    pub(super) fn file_filter(
        &self,
        snapshot: &AllowedDirsSnapshot,
        root: &'a ResolvedPath,
        package: &'a RelPath,
        real_path: &ResolvedPath,
    ) -> DisabledFileFilter<'a> {
        let rule_paths = resolve_rules(snapshot, self.published, self.rules);
        DisabledFileFilter {
            packages: self.packages,
            rule_paths,
            root,
            package,
            real_below_root: real_path.strip_prefix(root),
            real_path: real_path.clone(),
        }
    }
}

impl DisabledFileFilter<'_> {
    /// Whether a file of the package belongs to a disabled skill by its walked path or its resolved
    /// path.
    pub fn excludes(&self, resource: &RelPath, real: &ResolvedPath) -> bool {
        let walked_path = self.package.join_path(resource);
        let below = real.strip_prefix(self.root);
        self.packages.covers_path(&walked_path, self.package)
            || below.is_some_and(|file| {
                self.packages
                    .covers_resolved_path(&file, self.real_below_root.as_ref())
            })
            || self.rule_paths.covers_file(real, &self.real_path)
    }
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
        let is_path_disabled = || {
            let walked_path = ResolvedPath {
                dir_index: self.root.dir_index,
                rel_path: self.root.rel_path.join_path(package),
            };
            self.rule_paths.matches_package(&walked_path)
                || real_path.is_some_and(|real_path| self.rule_paths.matches_package(real_path))
        };

        let is_disabled = !self.rule_paths.is_empty() && is_path_disabled()
            || name.is_some_and(|name| self.rules.matches_name(name));

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
fn resolve_rules<'a>(
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
