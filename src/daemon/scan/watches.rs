//! Watches of one root, and the meaning of the tokens under which its directories are watched.

use super::namespaces::{MANIFEST_DIRECTORIES, manifest_paths};
use crate::daemon::fs::dirs_snapshot::AllowedDirsSnapshot;
use crate::daemon::fs::open_file::{self, FileFingerprint, OpenFile};
use crate::daemon::fs::path_resolution::NameLookup;
use crate::daemon::model::ResolvedPath;
use caproot_core::wire::RelPath;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, openat, statat};
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fmt;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Flags to open a directory that is watched and not listed.
const DIR_FLAGS: OFlags = OFlags::PATH.union(OFlags::DIRECTORY);

/// Watch that ends when the guard is dropped.
pub struct WatchGuard(#[allow(dead_code)] Box<dyn Send + Sync>);

/// Watches of one directory. There are thousands of directories, and nearly all have one watch.
#[derive(Debug)]
pub enum DirWatches {
    One(#[allow(dead_code)] WatchGuard),
    Many(#[allow(dead_code)] Vec<WatchGuard>),
}

/// Entries of a directory that a watch reports.
#[derive(Debug, Clone, Copy)]
pub enum WatchedEntries<'a> {
    /// All entries.
    All,
    /// Entries with these names, which are on the way to a directory or file.
    OnPath(PathRole, &'a [&'a [u8]]),
}

/// Target of a watched path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathRole {
    /// Directory. If an entry on the way is replaced, the directory counts as moved.
    Directory,
    /// File, which is read again after each change.
    File,
}

/// Watcher of directories and files.
pub trait DirWatcher: Sync + fmt::Debug {
    /// Watches entries of the directory behind a descriptor under a token. Returns `None` if the
    /// directory cannot be watched.
    fn watch_dir(
        &self,
        dir: BorrowedFd<'_>,
        token: u64,
        entries: WatchedEntries<'_>,
    ) -> Option<WatchGuard>;

    /// Watches a hard-linked file under the token of its directory. Returns `None` if the file
    /// cannot be watched.
    fn watch_file(&self, file: BorrowedFd<'_>, token: u64) -> Option<WatchGuard>;
}

/// Watcher that watches nothing, for a single scan.
#[derive(Debug)]
pub struct NoDirWatcher;

impl DirWatcher for NoDirWatcher {
    fn watch_dir(&self, _: BorrowedFd<'_>, _: u64, _: WatchedEntries<'_>) -> Option<WatchGuard> {
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
    /// Directories that are not listed, and hold a manifest or may hold one.
    manifest_places: HashMap<ResolvedPath, ManifestPlace>,
}

/// Watches of the manifests of a directory that is not listed: a directory above the root, or above
/// the target of a link.
#[derive(Debug)]
struct ManifestPlace {
    token: u64,
    #[allow(dead_code)] // Held for its `Drop`.
    guards: Vec<WatchGuard>,
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
    /// The directory is not listed, and holds a manifest or may hold one.
    ManifestPlace,
}

/// Dirty places of a root, by their role.
#[derive(Debug, Default)]
pub struct DirtyPlaces {
    pub root_path: PathChange,
    /// Whether a place for manifests that is not listed is dirty.
    pub has_manifest_place: bool,
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
        self.watch_entries(dir, WatchedEntries::All);
    }

    /// Watches some entries of a directory. Call this before the entries are looked up.
    pub fn watch_entries(&mut self, dir: BorrowedFd<'_>, entries: WatchedEntries<'_>) {
        self.guards
            .extend(self.watcher.watch_dir(dir, self.token, entries));
    }

    /// Watches the way to a file below `dir`, links included, so that each later change of the file is
    /// reported, also if the file does not exist yet. The caller watches the first component of `path`
    /// in `dir`. Call this before the file is looked up.
    pub fn watch_file_path(
        &mut self,
        snapshot: &AllowedDirsSnapshot,
        dir: &ResolvedPath,
        path: &RelPath,
    ) {
        // Without a link, one watch is enough, and the way need not be resolved.
        if path.depth() <= 2
            && let (Some(parent), Some(name)) = (path.parent(), path.file_name())
            && let Ok(fd) = snapshot.open(&dir.join_path(&parent), DIR_FLAGS)
        {
            if !parent.is_root() {
                self.watch_entries(fd.as_fd(), WatchedEntries::OnPath(PathRole::File, &[name]));
            }
            let stat = statat(&fd, name, AtFlags::SYMLINK_NOFOLLOW);
            let is_link = stat.is_ok_and(|s| FileType::from_raw_mode(s.st_mode).is_symlink());
            if !is_link {
                return;
            }
        }

        self.watch_lookups(snapshot, dir, path, PathRole::File);
    }

    /// Watches the directories through which a link leads, each for the name of the next component.
    /// Changes outside the allowed directories are found by the periodic check. The caller watches
    /// the link itself.
    pub fn watch_link(&mut self, snapshot: &AllowedDirsSnapshot, dir: &ResolvedPath, name: &[u8]) {
        if let Some(link) = RelPath::root().join(name) {
            self.watch_lookups(snapshot, dir, &link, PathRole::Directory);
        }
    }

    /// Watches each name that is looked up on the way to `path`, before the lookup. So a change between
    /// a lookup and the next one is reported.
    fn watch_lookups(
        &mut self,
        snapshot: &AllowedDirsSnapshot,
        dir: &ResolvedPath,
        path: &RelPath,
        role: PathRole,
    ) {
        let first = path.segments().next().unwrap_or_default();
        snapshot.visit_lookups(dir, path, |step, name| {
            if step == dir && name == first {
                return;
            }
            if let Ok(fd) = snapshot.open(step, DIR_FLAGS) {
                self.watch_entries(fd.as_fd(), WatchedEntries::OnPath(role, &[name]));
            }
        });
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
                Some(WatchRole::ManifestPlace) => places.has_manifest_place = true,
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

    /// Returns the token of a directory that is not listed, and may hold a manifest.
    pub fn manifest_place_token(&self, dir: &ResolvedPath) -> Option<u64> {
        self.manifest_places.get(dir).map(|place| place.token)
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

            recorder.watch_entries(
                fd.as_fd(),
                WatchedEntries::OnPath(PathRole::Directory, &[&name]),
            );
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
        let mut above = root.parent();
        while let Some(dir) = above {
            above = dir.parent();
            self.watch_manifest_place(snapshot, &dir, next_token, watcher);
        }
    }

    /// Watches the places for the manifests of a directory that is not listed. Returns whether the
    /// place is new.
    pub fn watch_manifest_place(
        &mut self,
        snapshot: &AllowedDirsSnapshot,
        dir: &ResolvedPath,
        next_token: &AtomicU64,
        watcher: &dyn DirWatcher,
    ) -> bool {
        if self.manifest_places.contains_key(dir) {
            return false;
        }

        // The manifests give skills their names, which are the same for every caller.
        let snapshot = snapshot.without_access_scope();
        let token = self.register(WatchRole::ManifestPlace, next_token);
        let mut recorder = WatchRecorder::new(watcher, token);
        if let Ok(fd) = snapshot.open(dir, DIR_FLAGS) {
            let names = MANIFEST_DIRECTORIES.map(str::as_bytes);
            recorder.watch_entries(fd.as_fd(), WatchedEntries::OnPath(PathRole::File, &names));
        }
        for path in manifest_paths() {
            recorder.watch_file_path(&snapshot, dir, &path);
            if let Ok(opened) = open_file::open_file(&snapshot, dir, &path) {
                recorder.track_file(&opened);
            }
        }

        let guards = recorder.into_guards();
        let place = ManifestPlace { token, guards };
        self.manifest_places.insert(dir.clone(), place);
        true
    }

    /// Watches the places for manifests that are not listed again, because a manifest directory may
    /// have been created. Returns these directories, whose manifests must be read again.
    pub fn rewatch_manifest_places(
        &mut self,
        snapshot: &AllowedDirsSnapshot,
        next_token: &AtomicU64,
        watcher: &dyn DirWatcher,
    ) -> Vec<ResolvedPath> {
        // The old watches are dropped once the new ones exist.
        let old = std::mem::take(&mut self.manifest_places);

        // All manifests of these places are read again, so events with an old token have no meaning.
        for place in old.values() {
            self.roles.remove(&place.token);
        }
        for dir in old.keys() {
            self.watch_manifest_place(snapshot, dir, next_token, watcher);
        }
        old.into_keys().collect()
    }
}
