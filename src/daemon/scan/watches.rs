//! Watches of one root, and the meaning of the tokens under which its directories are watched.

use super::namespaces::{MANIFEST_DIRECTORIES, manifest_paths};
use super::plugin_set::PluginIndex;
use super::scanned_root::ScanContext;
use crate::daemon::fs::dirs_snapshot::AllowedDirsSnapshot;
use crate::daemon::fs::open_file::{self, FileFingerprint, OpenFile};
use crate::daemon::fs::path_resolution::NameLookup;
use crate::daemon::model::ResolvedPath;
use caproot_core::wire::RelPath;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, openat, statat};
use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::atomic::Ordering;

/// Flags to open a directory that is watched and not listed.
pub const DIR_FLAGS: OFlags = OFlags::PATH.union(OFlags::DIRECTORY);

/// Watch that ends when the guard is dropped.
#[derive(Debug)]
pub struct WatchGuard(#[allow(dead_code)] Box<dyn Any + Send + Sync>);

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
    pub guards: Vec<WatchGuard>,
    /// Whether a tracked file has hard links.
    pub has_hard_links: bool,
}

/// Watches of the path to a root and of the directories above the root. The watches of the scanned
/// directories belong to these.
#[derive(Debug, Default)]
pub struct RootWatches {
    pub roles: HashMap<u64, WatchRole>,
    /// Watches of the directories on the path to the root.
    path_guards: Vec<WatchGuard>,
    /// Token and watches of each directory that is not listed, and holds a manifest or may hold one: a
    /// directory above the root, or above the target of a link.
    pub manifest_places: HashMap<ResolvedPath, (u64, Vec<WatchGuard>)>,
}

/// Relation of a watched directory to the root.
#[derive(Debug)]
pub enum WatchRole {
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
#[derive(Default)]
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
#[derive(Default)]
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

    /// Watches entries with these names, which are on the way to a directory or file. Call this before the
    /// entries are looked up.
    pub fn watch_on_path(&mut self, dir: BorrowedFd<'_>, role: PathRole, names: &[&[u8]]) {
        self.watch_entries(dir, WatchedEntries::OnPath(role, names));
    }

    fn watch_entries(&mut self, dir: BorrowedFd<'_>, entries: WatchedEntries<'_>) {
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
                self.watch_on_path(fd.as_fd(), PathRole::File, &[name]);
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
                self.watch_on_path(fd.as_fd(), role, &[name]);
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
}

impl WatchGuard {
    /// Creates a guard that drops `watch` with itself.
    pub fn new(watch: impl Send + Sync + 'static) -> Self {
        Self(Box::new(watch))
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

    /// Replaces the tokens of all plugins.
    pub fn replace_plugins(&mut self, plugins: &PluginIndex) {
        self.roles
            .retain(|_, role| !matches!(role, WatchRole::Plugin(_)));
        let dirs = plugins.dirs.iter();
        let roles = dirs.map(|(path, dir)| (dir.token, WatchRole::Plugin(path.clone())));
        self.roles.extend(roles);
    }

    /// Returns a recorder with a new token for this role.
    fn register<'a>(&mut self, role: WatchRole, context: &ScanContext<'a>) -> WatchRecorder<'a> {
        let token = context.next_token.fetch_add(1, Ordering::Relaxed);
        self.roles.insert(token, role);
        WatchRecorder::new(context.watcher, token)
    }

    /// Watches each directory on the path to the root, for the entry of the next component.
    pub fn watch_root_path(&mut self, snapshot: &AllowedDirsSnapshot, context: &ScanContext<'_>) {
        let mut recorder = self.register(WatchRole::RootPath, context);
        for NameLookup { dir, name } in snapshot.root_lookups(&context.target.path) {
            let dir = if dir.is_empty() { b"/" } else { &*dir };
            let flags = DIR_FLAGS | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let Ok(fd) = openat(CWD, dir, flags, Mode::empty()) else {
                continue;
            };

            recorder.watch_on_path(fd.as_fd(), PathRole::Directory, &[&name]);
        }

        self.path_guards.extend(recorder.guards);
    }

    /// Watches the places for manifests above the root.
    pub fn watch_ancestors(
        &mut self,
        snapshot: &AllowedDirsSnapshot,
        root: &ResolvedPath,
        context: &ScanContext<'_>,
    ) {
        for dir in std::iter::successors(root.parent(), ResolvedPath::parent) {
            self.watch_manifest_place(snapshot, &dir, context);
        }
    }

    /// Watches the places for the manifests of a directory that is not listed. Returns whether the
    /// place is new.
    pub fn watch_manifest_place(
        &mut self,
        snapshot: &AllowedDirsSnapshot,
        dir: &ResolvedPath,
        context: &ScanContext<'_>,
    ) -> bool {
        if self.manifest_places.contains_key(dir) {
            return false;
        }

        // The manifests give skills their names, which are the same for every caller.
        let snapshot = snapshot.without_access_scope();
        let mut recorder = self.register(WatchRole::ManifestPlace, context);
        if let Ok(fd) = snapshot.open(dir, DIR_FLAGS) {
            let names = MANIFEST_DIRECTORIES.map(str::as_bytes);
            recorder.watch_on_path(fd.as_fd(), PathRole::File, &names);
        }
        for path in manifest_paths() {
            recorder.watch_file_path(&snapshot, dir, &path);
            if let Ok(opened) = open_file::open_file(&snapshot, dir, &path) {
                recorder.track_file(&opened);
            }
        }

        let place = (recorder.token, recorder.guards);
        self.manifest_places.insert(dir.clone(), place);
        true
    }

    /// Watches the places for manifests that are not listed again, because a manifest directory may
    /// have been created. Returns these directories, whose manifests must be read again.
    pub fn rewatch_manifest_places(
        &mut self,
        snapshot: &AllowedDirsSnapshot,
        context: &ScanContext<'_>,
    ) -> Vec<ResolvedPath> {
        // The old watches are dropped once the new ones exist.
        let old = std::mem::take(&mut self.manifest_places);

        // All manifests of these places are read again, so events with an old token have no meaning.
        for (token, _) in old.values() {
            self.roles.remove(token);
        }
        for dir in old.keys() {
            self.watch_manifest_place(snapshot, dir, context);
        }
        old.into_keys().collect()
    }
}
