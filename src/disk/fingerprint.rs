//! Recognizes that a file changed after it was read. A write through another name of the file makes no
//! event in the directory that was listed. Source: inotify(7).

use super::allowed_dirs::AllowedDirsSnapshot;
use super::dir_lister::sidecar_path;
use super::namespaces;
use super::open_file;
use super::root_index::{RootIndex, WatchRole};
use super::scan_progress::ScanProgress;
use super::scanned_root::{ScannedDir, ScannedRoot};
use crate::domain::{FileVersion, RelPath, ResolvedPath, skill_file_name};
use std::collections::HashSet;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::num::NonZero;

/// A hash of a file's version, which takes a seventh of the version's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileFingerprint(NonZero<u64>);

/// The fingerprints of the SKILL.md and the sidecar of one directory, as they were read.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SkillFileFingerprints {
    pub(super) skill_file: Option<FileFingerprint>,
    pub(super) sidecar: Option<FileFingerprint>,
    /// Whether a file in the directory has other names.
    pub(super) has_hard_links: bool,
}

impl FileFingerprint {
    pub(super) fn from_version(version: &FileVersion) -> Self {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(version);
        Self(NonZero::new(hash).unwrap_or(NonZero::<u64>::MIN))
    }

    /// Whether `walked` below `dir` leads to another version now.
    pub(super) fn is_outdated(
        self,
        ground: &AllowedDirsSnapshot,
        dir: &ResolvedPath,
        walked: &RelPath,
    ) -> bool {
        let now = open_file::find_target(ground, dir, walked)
            .map(|t| Self::from_version(&open_file::version_from_stat(&t.stat)));
        now.ok() != Some(self)
    }
}

impl SkillFileFingerprints {
    fn is_outdated(&self, ground: &AllowedDirsSnapshot, dir: &ResolvedPath) -> bool {
        let is_other = |read: Option<FileFingerprint>, place: &RelPath| {
            read.is_some_and(|read| read.is_outdated(ground, dir, place))
        };
        is_other(self.skill_file, &skill_file_name()) || is_other(self.sidecar, &sidecar_path())
    }
}

impl RootIndex {
    /// Returns the tokens of directories in which a file changed since it was read.
    pub(super) fn outdated_tokens(&self, progress: &ScanProgress) -> HashSet<u64> {
        let Some(found) = &self.scanned_root else { return HashSet::new() };
        let ground = &found.snapshot;
        let is_listing_outdated = |(dir, node): &(&ResolvedPath, &ScannedDir)| {
            progress.tick();
            node.fingerprints.is_outdated(ground, dir)
        };
        let nodes = found.dirs.iter().filter(is_listing_outdated).map(|(_, node)| node.token);
        let manifests = found.manifests.iter();
        let manifests = manifests.filter(|(dir, read)| read.is_outdated(ground, dir));
        let manifests = manifests.filter_map(|(dir, read)| self.manifest_token(found, dir, read));
        let plugins = found.plugin_dirs.iter().filter(|(dir, held)| held.is_outdated(ground, dir));
        nodes.chain(manifests).chain(plugins.map(|(_, held)| held.token())).collect()
    }

    /// Returns the same if a file with other names was listed since the last call. One of the other names
    /// may be in a directory that was listed before, and no event told that directory.
    pub(super) fn outdated_by_hard_links(&mut self, progress: &ScanProgress) -> HashSet<u64> {
        let Some(found) = &mut self.scanned_root else { return HashSet::new() };
        if std::mem::take(&mut found.has_new_hard_links) {
            self.outdated_tokens(progress)
        } else {
            HashSet::new()
        }
    }

    /// Returns the token for which the manifest of a directory is read again.
    fn manifest_token(
        &self,
        found: &ScannedRoot,
        dir: &ResolvedPath,
        read: &namespaces::ManifestLookup,
    ) -> Option<u64> {
        let place = ResolvedPath {
            dir_index: dir.dir_index,
            rel_path: dir.rel_path.join_path(read.file.as_ref()?),
        };
        let listed = found.dirs.get(&place.parent()?).map(|node| node.token);
        let is_above =
            |token: &WatchRole| matches!(token, WatchRole::Ancestor(above) if above == dir);
        let above =
            || self.watch_roles.iter().find(|(_, token)| is_above(token)).map(|(token, _)| *token);
        listed.or_else(above)
    }
}
