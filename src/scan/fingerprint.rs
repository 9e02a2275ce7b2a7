//! Fingerprints of files, to find changes without an event: a write through another name of a file
//! causes no event in the directory that was listed. Source: inotify(7).

use super::dir_lister::sidecar_path;
use crate::fs::dirs_snapshot::AllowedDirsSnapshot;
use crate::fs::open_file;
use crate::model::{FileVersion, RelPath, ResolvedPath, skill_file_name};
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::num::NonZero;

/// Hash of a file's version, in a seventh of the version's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileFingerprint(NonZero<u64>);

/// Fingerprints of the SKILL.md and the sidecar of one directory at the time of reading.
#[derive(Debug, Clone, Copy, Default)]
pub struct SkillFileFingerprints {
    pub skill_file: Option<FileFingerprint>,
    pub sidecar: Option<FileFingerprint>,
    /// Whether a file in the directory has hard links.
    pub has_hard_links: bool,
}

impl FileFingerprint {
    pub fn from_version(version: &FileVersion) -> Self {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(version);
        Self(NonZero::new(hash).unwrap_or(NonZero::<u64>::MIN))
    }

    /// Whether `walked` below `dir` leads to another version now.
    pub fn is_outdated(
        self,
        snapshot: &AllowedDirsSnapshot,
        dir: &ResolvedPath,
        path: &RelPath,
    ) -> bool {
        let now = open_file::find_target(snapshot, dir, path)
            .map(|t| Self::from_version(&open_file::version_from_stat(&t.stat)));
        now.ok() != Some(self)
    }
}

impl SkillFileFingerprints {
    pub fn is_outdated(&self, snapshot: &AllowedDirsSnapshot, dir: &ResolvedPath) -> bool {
        let is_other = |read: Option<FileFingerprint>, path: &RelPath| {
            read.is_some_and(|read| read.is_outdated(snapshot, dir, path))
        };
        is_other(self.skill_file, &skill_file_name()) || is_other(self.sidecar, &sidecar_path())
    }
}
