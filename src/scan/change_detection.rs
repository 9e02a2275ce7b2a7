//! Detection of changes after a file was read. Watches report nearly all changes. Fingerprints find
//! the others: a write through another name of a file causes no event in the directory that was
//! listed. Source: inotify(7).

use crate::fs::dirs_snapshot::AllowedDirsSnapshot;
use crate::fs::open_file::{self, OpenFile};
use crate::model::sidecar::sidecar_path;
use crate::model::{FileVersion, RelPath, ResolvedPath, skill_file_name};
use std::fmt;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::num::NonZero;
use std::os::fd::{AsFd as _, BorrowedFd};

/// Watch that ends when the guard is dropped.
pub struct WatchGuard(#[allow(dead_code)] Box<dyn Send + Sync>);

/// Watches of one directory. There are thousands of directories, and nearly all have one watch.
#[derive(Debug)]
pub enum DirWatches {
    One(#[allow(dead_code)] WatchGuard),
    Many(#[allow(dead_code)] Vec<WatchGuard>),
}

/// Watcher of directories and files.
pub trait DirWatcher: Sync + fmt::Debug {
    /// Watches the directory behind a descriptor under a token. If `only` is set, watches only this
    /// entry of the directory. Returns `None` if the directory cannot be watched.
    fn watch_dir(&self, dir: BorrowedFd<'_>, token: u64, only: Option<&[u8]>)
    -> Option<WatchGuard>;

    /// Watches a hard-linked file under the token of its directory. Returns `None` if the file
    /// cannot be watched.
    fn watch_file(&self, file: BorrowedFd<'_>, token: u64) -> Option<WatchGuard>;
}

/// Watcher that watches nothing, for a single scan.
#[derive(Debug)]
pub struct NoDirWatcher;

impl DirWatcher for NoDirWatcher {
    fn watch_dir(&self, _: BorrowedFd<'_>, _: u64, _: Option<&[u8]>) -> Option<WatchGuard> {
        None
    }

    fn watch_file(&self, _: BorrowedFd<'_>, _: u64) -> Option<WatchGuard> {
        None
    }
}

/// Watches that are set under one token while a directory or plugin is read.
#[derive(Debug)]
pub struct WatchRecorder<'a> {
    watcher: &'a dyn DirWatcher,
    token: u64,
    guards: Vec<WatchGuard>,
    /// Whether a tracked file has hard links.
    pub has_hard_links: bool,
}

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

impl<'a> WatchRecorder<'a> {
    pub fn new(watcher: &'a dyn DirWatcher, token: u64) -> Self {
        // Nearly all directories have one watch.
        Self { watcher, token, guards: Vec::with_capacity(1), has_hard_links: false }
    }

    /// Watches a directory. Call this before the directory is read.
    pub fn watch_dir(&mut self, dir: BorrowedFd<'_>) {
        self.guards.extend(self.watcher.watch_dir(dir, self.token, None));
    }

    /// Watches one entry of a directory. Call this before the entry is looked up.
    pub fn watch_entry(&mut self, dir: BorrowedFd<'_>, name: &[u8]) {
        self.guards.extend(self.watcher.watch_dir(dir, self.token, Some(name)));
    }

    /// Watches a file if the file has hard links, and returns its fingerprint. Call this before the
    /// file is read.
    pub fn track_file(&mut self, opened: &OpenFile) -> FileFingerprint {
        if opened.has_hard_links {
            self.has_hard_links = true;
            self.guards.extend(self.watcher.watch_file(opened.file.as_fd(), self.token));
        }
        FileFingerprint::from_version(&opened.version)
    }

    pub fn into_guards(self) -> Vec<WatchGuard> {
        self.guards
    }
}

impl WatchGuard {
    /// Creates a guard that drops `watch` with itself.
    pub fn new(watch: impl Send + Sync + 'static) -> Self {
        Self(Box::new(watch))
    }
}

impl From<Vec<WatchGuard>> for DirWatches {
    fn from(mut all: Vec<WatchGuard>) -> Self {
        match all.pop() {
            Some(one) if all.is_empty() => Self::One(one),
            last => {
                all.extend(last);
                Self::Many(all)
            }
        }
    }
}

impl fmt::Debug for WatchGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Guard")
    }
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
