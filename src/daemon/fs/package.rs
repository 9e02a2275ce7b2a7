//! Rules that decide which files of a package may be read. Reads and lists of files share them.

use super::allowed_dirs::ResolvedRootDir;
use super::dirs_snapshot::AllowedDirsSnapshot;
use super::disabled_skills::{DisabledSkills, resolve_rules};
use super::file_page::FileReadError;
use super::open_file::{self, FileFingerprint, OpenFile};
use crate::daemon::model::disabled_skills::ResolvedGlobs;
use crate::daemon::model::{
    FileVersion, ManifestFiles, ResolvedPath, resource_filter, skill_file_name,
};
use caproot_core::lock::ApprovedFiles;
use caproot_core::wire::RelPath;

/// Rules for reading files of a package.
#[derive(Debug, Clone, Copy)]
pub struct ReadRules<'a> {
    /// Names of directories that are never read.
    pub skipped_dirs: &'a [Box<[u8]>],
    /// Whether links are followed.
    pub follow_links: bool,
    /// Disabled skills.
    pub disabled_skills: DisabledSkills<'a>,
    /// Manifest files, of which only versions without secrets are served.
    pub manifest_files: &'a ManifestFiles,
    /// Whether the package is a plugin and no skill, so that no link leads out of it.
    pub is_plugin: bool,
    /// Approved files, if others must not be read; `None` if approval does not matter.
    pub approved_files: Option<&'a ApprovedFiles>,
}

/// Package in a snapshot.
pub struct ResolvedPackage<'a> {
    pub snapshot: &'a AllowedDirsSnapshot,
    root: &'a ResolvedPath,
    /// Path as walked from the root, links included.
    walked_path: &'a RelPath,
    /// Resolved path.
    pub real_path: ResolvedPath,
    pub rules: ReadRules<'a>,
    /// Disable rules by path, resolved in the snapshot.
    disabled_paths: ResolvedGlobs<'a>,
}

/// Maximum size of a file that is examined for a private key.
const MAX_KEY_BYTES: u64 = 64 << 10;

impl<'a> ResolvedPackage<'a> {
    pub fn resolve(
        root: &'a ResolvedRootDir,
        walked_path: &'a RelPath,
        rules: ReadRules<'a>,
    ) -> Result<Self, FileReadError> {
        let real_path = open_file::find_target(&root.snapshot, &root.path, walked_path)?.real_path;
        Ok(Self::with_real_path(root, walked_path, real_path, rules))
    }

    /// Returns the path of a file under the assumption that no component is a link. Returns `None`
    /// if the file may not be read. Does not access the filesystem.
    pub fn unlinked_file_path(
        root: &'a ResolvedRootDir,
        walked_path: &'a RelPath,
        rules: ReadRules<'a>,
        resource: &RelPath,
    ) -> Option<ResolvedPath> {
        let package_path = root.path.join_path(walked_path);
        let real_path = package_path.join_path(resource);

        let package = Self::with_real_path(root, walked_path, package_path, rules);
        package.check_walked_path(resource).ok()?;
        package.check_real_path(resource, &real_path).ok()?;
        package.check_version(resource, &real_path, None).ok()?;
        Some(real_path)
    }

    fn with_real_path(
        root: &'a ResolvedRootDir,
        walked_path: &'a RelPath,
        real_path: ResolvedPath,
        rules: ReadRules<'a>,
    ) -> Self {
        let disabled = rules.disabled_skills;
        Self {
            snapshot: &root.snapshot,
            root: &root.path,
            walked_path,
            real_path,
            rules,
            disabled_paths: resolve_rules(&root.snapshot, disabled.published, disabled.rules),
        }
    }

    /// Opens a file by its path as walked from the package, if the file may be read.
    pub fn open(&self, resource: &RelPath) -> Result<OpenFile, FileReadError> {
        let opened = self.open_to_digest(resource)?;
        self.check_version(resource, &opened.real_path, Some(&opened.version))?;
        Ok(opened)
    }

    /// Opens a file like [`Self::open`], or a file that declares components of a plugin with a value that is
    /// redacted. The content of the latter must not be sent, only its digest.
    pub fn open_to_digest(&self, resource: &RelPath) -> Result<OpenFile, FileReadError> {
        self.check_walked_path(resource)?;
        if self.rules.is_plugin {
            // A link to a directory out of the plugin is no file, and is still reported as a link.
            let target = open_file::find_target(self.snapshot, &self.real_path, resource)?;
            self.check_real_path(resource, &target.real_path)?;
        }
        let opened = open_file::open_file(self.snapshot, &self.real_path, resource)?;
        self.check_real_path(resource, &opened.real_path)?;
        // A key is a small file, so that other files cost no read.
        if opened.version.size <= MAX_KEY_BYTES && opened.begins_with_private_key() {
            return Err(FileReadError::Secret);
        }
        Ok(opened)
    }

    /// Checks whether a file may be read by its walked path.
    fn check_walked_path(&self, resource: &RelPath) -> Result<(), FileReadError> {
        let approved_files = self.rules.approved_files;
        let is_hidden = !resource_filter::may_serve_path(resource, self.rules.skipped_dirs)
            || approved_files.is_some_and(|files| files.get(resource).is_none());
        // A list of approved files does not have the file at all.
        let has_secret_name = resource
            .file_name()
            .is_some_and(resource_filter::is_secret_name);
        if !is_hidden {
            Ok(())
        } else if has_secret_name && approved_files.is_none() {
            Err(FileReadError::Secret)
        } else {
            Err(FileReadError::NotFound)
        }
    }

    /// Checks whether a file may be read by its resolved path.
    fn check_real_path(
        &self,
        resource: &RelPath,
        real: &ResolvedPath,
    ) -> Result<(), FileReadError> {
        let rules = self.rules;

        // Links out of a plugin are not followed.
        if rules.is_plugin && real.strip_prefix(&self.real_path).is_none() {
            return Err(FileReadError::Outside);
        }

        let walked_path = self.root.join_path(self.walked_path).join_path(resource);
        if *real != walked_path && !rules.follow_links {
            return Err(FileReadError::Outside);
        }

        let is_skill_file = *resource == skill_file_name();
        if !is_skill_file
            && !resource_filter::may_serve_path(&self.path_to_check(real), rules.skipped_dirs)
        {
            return Err(FileReadError::NotFound);
        }

        if self.is_disabled(resource, real) {
            return Err(FileReadError::NotFound);
        }

        Ok(())
    }

    /// Whether a file belongs to a disabled skill by its walked path or its resolved path.
    fn is_disabled(&self, resource: &RelPath, real: &ResolvedPath) -> bool {
        let packages = self.rules.disabled_skills.packages;
        packages.covers_path(&self.walked_path.join_path(resource), self.walked_path)
            || real.strip_prefix(self.root).is_some_and(|file| {
                let package = self.real_path.strip_prefix(self.root);
                packages.covers_resolved_path(&file, package.as_ref())
            })
            || self.disabled_paths.covers_file(real, &self.real_path)
    }

    /// Checks that nothing is redacted in this version of a manifest file.
    fn check_version(
        &self,
        resource: &RelPath,
        real: &ResolvedPath,
        version: Option<&FileVersion>,
    ) -> Result<(), FileReadError> {
        let files = self.rules.manifest_files;
        let version = version.map(|version| FileFingerprint::from_version(version).number());
        let real = real.strip_prefix(self.root);
        let may_serve = files.may_serve(&self.walked_path.join_path(resource), version)
            && real.is_none_or(|real| files.may_serve(&real, version));
        if may_serve {
            Ok(())
        } else {
            Err(FileReadError::Secret)
        }
    }

    /// Whether a list of the package names a file that was opened with this result as withheld. Nothing
    /// of a plugin is omitted in silence, because a plugin without one of its files may do something else.
    pub fn is_withheld<T>(&self, opened: &Result<T, FileReadError>) -> bool {
        match opened {
            Err(FileReadError::Secret) => true,
            Err(FileReadError::Outside | FileReadError::Denied) => self.rules.is_plugin,
            _ => false,
        }
    }

    /// Whether a list may follow a link to a directory. The name of a directory above the root is
    /// not checked, because files below the root may be listed.
    pub fn may_enter(&self, dir: &ResolvedPath) -> bool {
        let holds_root = dir.dir_index == self.root.dir_index
            && self.root.rel_path.strip_prefix(&dir.rel_path).is_some();
        holds_root
            || resource_filter::may_serve_path(&self.path_to_check(dir), self.rules.skipped_dirs)
    }

    /// Returns the part of a resolved path that is checked against the names that are not read.
    /// Components behind a link are included.
    fn path_to_check(&self, real_path: &ResolvedPath) -> RelPath {
        real_path
            .strip_prefix(&self.real_path)
            .or_else(|| real_path.strip_prefix(self.root))
            .unwrap_or_else(|| real_path.rel_path.clone())
    }
}
