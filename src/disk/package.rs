//! The one rule by which a package's files are read, whether they are asked for or listed.

use super::allowed_dirs::{AllowedDirsSnapshot, ResolvedRootDir};
use super::disabled_skills::{DisabledFileFilter, DisabledSkills};
use super::file_page::FileReadError;
use super::open_file::{self, OpenFile};
use crate::domain::{
    ManifestFiles, Plugin, RelPath, ResolvedPath, resource_filter, skill_file_name,
};

/// What reading a package's files needs to know.
#[derive(Debug, Clone, Copy)]
pub struct ReadRules<'a> {
    /// Directories that are never read in.
    pub skipped_dirs: &'a [Box<[u8]>],
    /// Whether links are followed.
    pub follow_links: bool,
    /// Skills that are switched off.
    pub disabled_skills: DisabledSkills<'a>,
    /// Files whose content is never handed out.
    pub manifest_files: &'a ManifestFiles,
    /// The plugin that is the package; `None` where that is a skill.
    pub plugin: Option<&'a Plugin>,
}

/// A package that was found.
pub(super) struct ResolvedPackage<'a> {
    pub(super) snapshot: &'a AllowedDirsSnapshot,
    root: &'a ResolvedPath,
    /// As walked below the root.
    walked_path: &'a RelPath,
    /// Where it really is.
    pub(super) real_path: ResolvedPath,
    pub(super) rules: ReadRules<'a>,
    disabled_files: DisabledFileFilter<'a>,
}

impl<'a> ResolvedPackage<'a> {
    pub(super) fn resolve(
        root: &'a ResolvedRootDir,
        walked: &'a RelPath,
        rule: ReadRules<'a>,
    ) -> Result<Self, FileReadError> {
        let spot = open_file::find_target(&root.snapshot, &root.path, walked)?.real_path;
        Ok(Self::with_real_path(root, walked, spot, rule))
    }

    /// The package if it is where it was walked to, without a link on the way.
    pub(super) fn at_walked_path(
        root: &'a ResolvedRootDir,
        walked: &'a RelPath,
        rule: ReadRules<'a>,
    ) -> Self {
        let spot = ResolvedPath {
            dir_index: root.path.dir_index,
            rel_path: root.path.rel_path.join_path(walked),
        };
        Self::with_real_path(root, walked, spot, rule)
    }

    fn with_real_path(
        root: &'a ResolvedRootDir,
        walked: &'a RelPath,
        spot: ResolvedPath,
        rule: ReadRules<'a>,
    ) -> Self {
        let ResolvedRootDir { snapshot: ground, path: root } = root;
        let off = rule.disabled_skills.file_filter(ground, root, walked, &spot);
        Self {
            snapshot: ground,
            root,
            walked_path: walked,
            real_path: spot,
            rules: rule,
            disabled_files: off,
        }
    }

    /// Where a file is that is walked to without a link.
    pub(super) fn unlinked_path(&self, resource: &RelPath) -> ResolvedPath {
        ResolvedPath {
            dir_index: self.real_path.dir_index,
            rel_path: self.real_path.rel_path.join_path(resource),
        }
    }

    /// Opens a file, as walked below the package, if it may be read.
    pub(super) fn open(&self, resource: &RelPath) -> Result<OpenFile, FileReadError> {
        self.check_walked_path(resource)?;
        let opened = open_file::open_file(self.snapshot, &self.real_path, resource)?;
        self.check_real_path(resource, &opened.real_path)?;
        Ok(opened)
    }

    /// Whether a file may be read by how it is walked to.
    pub(super) fn check_walked_path(&self, resource: &RelPath) -> Result<(), FileReadError> {
        let ReadRules { skipped_dirs: passed_over, manifest_files: declaring, plugin, .. } =
            self.rules;
        let is_hidden = !resource_filter::may_serve_path(resource, passed_over)
            || plugin.is_some_and(|plugin| !plugin.may_read(resource))
            || declaring.contains(&self.walked_path.join_path(resource));
        if is_hidden { Err(FileReadError::NotFound) } else { Ok(()) }
    }

    /// Whether it may be read by where it really is.
    pub(super) fn check_real_path(
        &self,
        resource: &RelPath,
        real: &ResolvedPath,
    ) -> Result<(), FileReadError> {
        let ReadRules {
            skipped_dirs: passed_over,
            follow_links,
            manifest_files: declaring,
            plugin,
            ..
        } = self.rules;
        if real.strip_prefix(self.root).is_some_and(|real| declaring.contains(&real)) {
            return Err(FileReadError::NotFound);
        }
        // Nothing outside a plugin is followed to.
        if plugin.is_some() && real.strip_prefix(&self.real_path).is_none() {
            return Err(FileReadError::Outside);
        }
        let walked = self.root.rel_path.join_path(self.walked_path).join_path(resource);
        let linked = *real != ResolvedPath { dir_index: self.root.dir_index, rel_path: walked };
        if linked && !follow_links {
            return Err(FileReadError::Outside);
        }
        let is_main = *resource == skill_file_name();
        if !is_main && !resource_filter::may_serve_path(&self.path_to_check(real), passed_over) {
            return Err(FileReadError::NotFound);
        }
        if self.disabled_files.excludes(resource, real) {
            return Err(FileReadError::NotFound);
        }
        Ok(())
    }

    /// Whether a link may lead a list into a directory. One that holds the root may have something
    /// to list below it, whatever it is called itself.
    pub(super) fn may_enter(&self, dir: &ResolvedPath) -> bool {
        let holds_root = dir.dir_index == self.root.dir_index
            && self.root.rel_path.strip_prefix(&dir.rel_path).is_some();
        holds_root
            || resource_filter::may_serve_path(&self.path_to_check(dir), self.rules.skipped_dirs)
    }

    /// The part of a resolved place that decides whether it may be read: what a link adds counts
    /// too.
    fn path_to_check(&self, spot: &ResolvedPath) -> RelPath {
        let below = |dir: &ResolvedPath| {
            (dir.dir_index == spot.dir_index)
                .then(|| spot.rel_path.strip_prefix(&dir.rel_path))
                .flatten()
        };
        below(&self.real_path).or_else(|| below(self.root)).unwrap_or_else(|| spot.rel_path.clone())
    }
}
