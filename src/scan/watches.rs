//! Watches of one root, and the meaning of the tokens under which its directories are watched.

use super::namespaces::{MANIFEST_DIRECTORIES, manifest_file};
use crate::fs::dirs_snapshot::AllowedDirsSnapshot;
use crate::fs::open_file::{self, FileFingerprint, OpenFile};
use crate::fs::path_resolution::NameLookup;
use crate::model::ResolvedPath;
use rustix::fs::{CWD, Mode, OFlags, openat};
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fmt;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

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
    /// Watches the directory behind a descriptor under a token. If `only` is not empty, watches only
    /// these entries of the directory. Returns `None` if the directory cannot be watched.
    fn watch_dir(&self, dir: BorrowedFd<'_>, token: u64, only: &[&[u8]]) -> Option<WatchGuard>;

    /// Watches a hard-linked file under the token of its directory. Returns `None` if the file
    /// cannot be watched.
    fn watch_file(&self, file: BorrowedFd<'_>, token: u64) -> Option<WatchGuard>;
}

/// Watcher that watches nothing, for a single scan.
#[derive(Debug)]
pub struct NoDirWatcher;

impl DirWatcher for NoDirWatcher {
    fn watch_dir(&self, _: BorrowedFd<'_>, _: u64, _: &[&[u8]]) -> Option<WatchGuard> {
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

/// Watches of the path to a root and of the directories above the root. The watches of the scanned
/// directories belong to these.
#[derive(Debug, Default)]
pub struct RootWatches {
    roles: HashMap<u64, WatchRole>,
    /// Watches of the directories on the path to the root.
    path_guards: Vec<WatchGuard>,
    /// Watches of the places for manifests above the root.
    ancestor_guards: Vec<WatchGuard>,
}

/// Relation of a watched directory to the root.
#[derive(Debug)]
enum WatchRole {
    /// The directory was listed.
    Listed(ResolvedPath),
    /// The directory has a plugin, or is the root with a marketplace.
    Plugin(ResolvedPath),
    /// The directory is on the path to the root.
    RootPath,
    /// The directory is above the root, and holds a manifest or may hold one.
    Ancestor(ResolvedPath),
}

/// Dirty places of a root, by their role.
#[derive(Debug, Default)]
pub struct DirtyPlaces {
    pub root_path: PathChange,
    /// Whether a place for manifests above the root is dirty.
    pub has_ancestor: bool,
    pub plugins: Vec<ResolvedPath>,
    /// Listed directories with their tokens.
    pub listed: Vec<(u64, ResolvedPath)>,
    /// Those of the listed directories that were moved.
    pub moved: Vec<ResolvedPath>,
}

/// Change of the path to a root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PathChange {
    #[default]
    None,
    /// A directory on the path changed, so the path may lead elsewhere.
    Possible,
    /// A directory on the path was moved.
    Moved,
}

impl<'a> WatchRecorder<'a> {
    pub fn new(watcher: &'a dyn DirWatcher, token: u64) -> Self {
        // Nearly all directories have one watch.
        Self {
            watcher,
            token,
            guards: Vec::with_capacity(1),
            has_hard_links: false,
        }
    }

    /// Watches a directory. Call this before the directory is read.
    pub fn watch_dir(&mut self, dir: BorrowedFd<'_>) {
        self.guards
            .extend(self.watcher.watch_dir(dir, self.token, &[]));
    }

    /// Watches one entry of a directory. Call this before the entry is looked up.
    pub fn watch_entry(&mut self, dir: BorrowedFd<'_>, name: &[u8]) {
        self.watch_entries(dir, &[name]);
    }

    /// Watches some entries of a directory. Call this before the entries are looked up.
    pub fn watch_entries(&mut self, dir: BorrowedFd<'_>, names: &[&[u8]]) {
        self.guards
            .extend(self.watcher.watch_dir(dir, self.token, names));
    }

    /// Watches a file if the file has hard links, and returns its fingerprint. Call this before the
    /// file is read.
    pub fn track_file(&mut self, opened: &OpenFile) -> FileFingerprint {
        if opened.has_hard_links {
            self.has_hard_links = true;
            self.guards
                .extend(self.watcher.watch_file(opened.file.as_fd(), self.token));
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

impl RootWatches {
    /// Returns the places of dirty tokens. Tokens of directories that are no longer part of the
    /// root have no place. `moved` are the tokens of directories that were moved.
    pub fn dirty_places(&self, tokens: &HashSet<u64>, moved: &HashSet<u64>) -> DirtyPlaces {
        let mut places = DirtyPlaces::default();
        for token in tokens {
            let is_moved = moved.contains(token);
            match self.roles.get(token) {
                None => {}
                Some(WatchRole::RootPath) if is_moved => places.root_path = PathChange::Moved,
                Some(WatchRole::RootPath) => places.root_path = PathChange::Possible,
                Some(WatchRole::Ancestor(_)) => places.has_ancestor = true,
                Some(WatchRole::Plugin(dir)) => places.plugins.push(dir.clone()),
                Some(WatchRole::Listed(dir)) => {
                    places.moved.extend(is_moved.then(|| dir.clone()));
                    places.listed.push((*token, dir.clone()));
                }
            }
        }
        places
    }

    pub fn reserve(&mut self, additional: usize) {
        self.roles.reserve(additional);
    }

    pub fn insert_listed(&mut self, token: u64, dir: ResolvedPath) {
        self.roles.insert(token, WatchRole::Listed(dir));
    }

    pub fn remove(&mut self, token: u64) {
        self.roles.remove(&token);
    }

    /// Replaces the tokens of all plugins.
    pub fn replace_plugins(&mut self, plugins: impl Iterator<Item = (u64, ResolvedPath)>) {
        self.roles
            .retain(|_, role| !matches!(role, WatchRole::Plugin(_)));
        self.roles
            .extend(plugins.map(|(token, dir)| (token, WatchRole::Plugin(dir))));
    }

    /// Returns the token of a directory above the root.
    pub fn ancestor_token(&self, dir: &ResolvedPath) -> Option<u64> {
        self.roles
            .iter()
            .find(|(_, role)| matches!(role, WatchRole::Ancestor(above) if above == dir))
            .map(|(token, _)| *token)
    }

    fn register(&mut self, role: WatchRole, next_token: &AtomicU64) -> u64 {
        let token = next_token.fetch_add(1, Ordering::Relaxed);
        self.roles.insert(token, role);
        token
    }

    /// Watches each directory on the path to the root, for the entry of the next component.
    pub fn watch_root_path(
        &mut self,
        snapshot: &AllowedDirsSnapshot,
        path: &[u8],
        next_token: &AtomicU64,
        watcher: &dyn DirWatcher,
    ) {
        let token = self.register(WatchRole::RootPath, next_token);
        let mut recorder = WatchRecorder::new(watcher, token);
        for NameLookup { dir, name } in snapshot.root_lookups(path) {
            let dir = if dir.is_empty() { b"/" } else { &*dir };
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let path = Path::new(OsStr::from_bytes(dir));
            let Ok(fd) = openat(CWD, path, flags, Mode::empty()) else {
                continue;
            };

            recorder.watch_entry(fd.as_fd(), &name);
        }

        self.path_guards.extend(recorder.into_guards());
    }

    /// Watches the places for manifests above the root.
    pub fn watch_ancestors(
        &mut self,
        snapshot: &AllowedDirsSnapshot,
        root: &ResolvedPath,
        next_token: &AtomicU64,
        watcher: &dyn DirWatcher,
    ) {
        // The manifests give skills their names, which are the same for every caller.
        let snapshot = snapshot.without_access_scope();
        let mut above = root.parent();

        while let Some(dir) = above {
            let token = self.register(WatchRole::Ancestor(dir.clone()), next_token);
            let mut recorder = WatchRecorder::new(watcher, token);
            let open = |path: &ResolvedPath| snapshot.open(path, OFlags::PATH | OFlags::DIRECTORY);
            for name in MANIFEST_DIRECTORIES.map(str::as_bytes) {
                if let Ok(fd) = open(&dir) {
                    recorder.watch_entry(fd.as_fd(), name);
                }

                let Some(manifest_dir) = dir.join(name) else {
                    continue;
                };

                if let Ok(fd) = open(&manifest_dir) {
                    recorder.watch_dir(fd.as_fd());
                }
                if let Ok(opened) = open_file::open_file(&snapshot, &manifest_dir, &manifest_file())
                {
                    recorder.track_file(&opened);
                }
            }

            self.ancestor_guards.extend(recorder.into_guards());
            above = dir.parent();
        }
    }

    /// Watches the places above the root again, because a manifest directory may have been created.
    /// Returns the directories above the root, whose manifests must be read again.
    pub fn rewatch_ancestors(
        &mut self,
        snapshot: &AllowedDirsSnapshot,
        root: &ResolvedPath,
        next_token: &AtomicU64,
        watcher: &dyn DirWatcher,
    ) -> Vec<ResolvedPath> {
        // The old watches are dropped once the new ones exist.
        let _old = std::mem::take(&mut self.ancestor_guards);

        // All manifests above the root are read again, so events with an old token have no meaning.
        let mut ancestors = Vec::new();
        self.roles.retain(|_, role| match role {
            WatchRole::Ancestor(dir) => {
                ancestors.push(dir.clone());
                false
            }
            WatchRole::Listed(_) | WatchRole::Plugin(_) | WatchRole::RootPath => true,
        });

        self.watch_ancestors(snapshot, root, next_token, watcher);
        ancestors
    }
}
