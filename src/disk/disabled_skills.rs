//! Where the operator's rules for switched-off skills hold: below published roots, wherever these are
//! now; and which files that keeps from the skills around them.

use super::allowed_dirs::AllowedDirsSnapshot;
use crate::domain::disabled_skills::ResolvedGlobs;
use crate::domain::{DisableRules, DisabledPackages, PublishedRoot, RelPath, ResolvedPath};

/// Skills whose files are nobody's, not even those of a skill around them.
#[derive(Debug, Clone, Copy)]
pub struct DisabledSkills<'a> {
    /// Those that the root's search found.
    pub packages: &'a DisabledPackages,
    /// The operator's rules, for what links lead to elsewhere.
    pub rules: &'a DisableRules,
    /// The published roots, which the rules name.
    pub published: &'a [PublishedRoot],
}

/// The same, seen from one package that is on.
#[derive(Debug)]
pub(super) struct DisabledFileFilter<'a> {
    packages: &'a DisabledPackages,
    rule_paths: ResolvedGlobs<'a>,
    root: &'a ResolvedPath,
    package: &'a RelPath,
    /// Where the package really is, and that below the root.
    real_path: ResolvedPath,
    real_below_root: Option<RelPath>,
}

impl<'a> DisabledSkills<'a> {
    /// Looks up what the rules mean on this ground. The package is named as walked, and as it is.
    pub(super) fn file_filter(
        &self,
        ground: &AllowedDirsSnapshot,
        root: &'a ResolvedPath,
        package: &'a RelPath,
        home: &ResolvedPath,
    ) -> DisabledFileFilter<'a> {
        let places = resolve_rules(ground, self.published, self.rules);
        let (home_below, home) = (home.strip_prefix(root), home.clone());
        DisabledFileFilter {
            packages: self.packages,
            rule_paths: places,
            root,
            package,
            real_path: home,
            real_below_root: home_below,
        }
    }
}

impl DisabledFileFilter<'_> {
    /// Whether a file of the package lies in a skill that is off: as walked, or as `real`, where it
    /// really is.
    pub(super) fn excludes(&self, resource: &RelPath, real: &ResolvedPath) -> bool {
        let walked = self.package.join_path(resource);
        let below = real.strip_prefix(self.root);
        self.packages.covers_path(&walked, self.package)
            || below.is_some_and(|file| {
                self.packages.covers_resolved_path(&file, self.real_below_root.as_ref())
            })
            || self.rule_paths.covers_file(real, &self.real_path)
    }
}

/// Holds back the skills of one root that are off.
#[derive(Debug)]
pub(super) struct SkillFilter<'a> {
    rules: &'a DisableRules,
    rule_paths: ResolvedGlobs<'a>,
    root: &'a ResolvedPath,
    disabled_packages: Vec<(RelPath, Option<RelPath>)>,
}

impl<'a> SkillFilter<'a> {
    /// Looks up what the rules mean on this ground.
    pub(super) fn new(
        ground: &AllowedDirsSnapshot,
        root: &'a ResolvedPath,
        published: &[PublishedRoot],
        rules: &'a DisableRules,
    ) -> Self {
        Self {
            rules,
            rule_paths: resolve_rules(ground, published, rules),
            root,
            disabled_packages: Vec::new(),
        }
    }

    /// Whether a skill is off: by where it was walked to, by where it is, or by its name.
    pub(super) fn take_if_disabled(
        &mut self,
        package: &RelPath,
        home: Option<&ResolvedPath>,
        name: Option<&str>,
    ) -> bool {
        let by_place = || {
            let walked = ResolvedPath {
                dir_index: self.root.dir_index,
                rel_path: self.root.rel_path.join_path(package),
            };
            self.rule_paths.matches_package(&walked)
                || home.is_some_and(|home| self.rule_paths.matches_package(home))
        };
        let off = !self.rule_paths.is_empty() && by_place()
            || name.is_some_and(|name| self.rules.matches_name(name));
        if off {
            self.disabled_packages
                .push((package.clone(), home.and_then(|home| home.strip_prefix(self.root))));
        }
        off
    }

    /// The packages that were held back.
    pub(super) fn disabled_packages(self) -> DisabledPackages {
        DisabledPackages::new(self.disabled_packages)
    }
}

/// The rules by place, below those of the published roots that are there.
fn resolve_rules<'a>(
    ground: &AllowedDirsSnapshot,
    published: &[PublishedRoot],
    rules: &'a DisableRules,
) -> ResolvedGlobs<'a> {
    // A rule holds for every caller, also for one who is bound to a part of the root.
    let ground = ground.without_access_scope();
    rules.resolve_globs(|id| {
        let root = published.iter().find(|root| root.id == *id)?;
        ground.resolve_published(&root.path).ok()
    })
}
