//! Watches of one root, and the meaning of the tokens under which its directories are watched.

use super::dir_lister::{MANIFEST_DIRECTORIES, manifest_file};
use super::dir_watcher::{DirWatcher, WatchGuard, watch_hard_links};
use super::scanned_root::ScannedRoot;
use crate::fs::open_file;
use crate::fs::path_resolution::path_lookups;
use crate::model::ResolvedPath;
use rustix::fs::{CWD, Mode, OFlags, openat};
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

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
#[derive(Debug, Clone)]
pub enum WatchRole {
    /// The directory was listed.
    Listed(ResolvedPath),
    /// The directory has a plugin, or is the root with a marketplace.
    Plugin(ResolvedPath),
    /// The directory is on the path to the root.
    RootPath,
    /// The directory is above the root, and holds a manifest or may hold one.
    Ancestor(ResolvedPath),
}

impl RootWatches {
    /// Returns the role of a token; `None` if the directory is no longer part of the root.
    pub fn role(&self, token: u64) -> Option<&WatchRole> {
        self.roles.get(&token)
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
        self.roles.retain(|_, role| !matches!(role, WatchRole::Plugin(_)));
        self.roles.extend(plugins.map(|(token, dir)| (token, WatchRole::Plugin(dir))));
    }

    /// Returns the token of a directory above the root.
    pub fn ancestor_token(&self, dir: &ResolvedPath) -> Option<u64> {
        let is_same = |role: &WatchRole| matches!(role, WatchRole::Ancestor(above) if above == dir);
        self.roles.iter().find(|(_, role)| is_same(role)).map(|(token, _)| *token)
    }

    fn register(&mut self, role: WatchRole, next_token: &AtomicU64) -> u64 {
        let token = next_token.fetch_add(1, Ordering::Relaxed);
        self.roles.insert(token, role);
        token
    }

    /// Watches each directory on the path to the root, for the entry of the next component.
    pub fn watch_root_path(
        &mut self,
        path: &[u8],
        next_token: &AtomicU64,
        watcher: &dyn DirWatcher,
    ) {
        let token = self.register(WatchRole::RootPath, next_token);
        for (dir, name) in path_lookups(path) {
            let dir = if dir.is_empty() { b"/" } else { &*dir };
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let path = Path::new(OsStr::from_bytes(dir));
            let Ok(fd) = openat(CWD, path, flags, Mode::empty()) else { continue };
            self.path_guards.extend(watcher.watch_dir(fd.as_fd(), token, Some(&name)));
        }
    }

    /// Watches the places for manifests above the root.
    pub fn watch_ancestors(
        &mut self,
        root: &ScannedRoot,
        next_token: &AtomicU64,
        watcher: &dyn DirWatcher,
    ) {
        // The manifests give skills their names, which are the same for every caller.
        let snapshot = root.snapshot().without_access_scope();
        let mut above = root.path().parent();
        while let Some(dir) = above {
            let token = self.register(WatchRole::Ancestor(dir.clone()), next_token);
            for name in MANIFEST_DIRECTORIES.map(str::as_bytes) {
                let manifest_dir = dir.join(name);
                for (path, only) in [(Some(&dir), Some(name)), (manifest_dir.as_ref(), None)] {
                    let flags = OFlags::PATH | OFlags::DIRECTORY;
                    let opened = path.map(|path| snapshot.open(path, flags));
                    let Some(Ok(fd)) = opened else { continue };
                    self.ancestor_guards.extend(watcher.watch_dir(fd.as_fd(), token, only));
                }
                let manifest =
                    manifest_dir.map(|dir| open_file::open_file(&snapshot, &dir, &manifest_file()));
                if let Some(Ok(opened)) = manifest {
                    watch_hard_links(watcher, &opened, token, &mut self.ancestor_guards);
                }
            }
            above = dir.parent();
        }
    }

    /// Watches the places above the root again if one of them is dirty, because a manifest
    /// directory may have been created. Forgets the manifests above the root. Returns whether a
    /// place was dirty.
    pub fn rewatch_ancestors(
        &mut self,
        dirty: &HashSet<u64>,
        root: &mut ScannedRoot,
        next_token: &AtomicU64,
        watcher: &dyn DirWatcher,
    ) -> bool {
        let is_above = |token: &u64| matches!(self.role(*token), Some(WatchRole::Ancestor(_)));
        if !dirty.iter().any(is_above) {
            return false;
        }
        // The old watches are dropped once the new ones exist.
        let _old = std::mem::take(&mut self.ancestor_guards);
        // All manifests above the root are read again, so events with an old token have no meaning.
        self.roles.retain(|_, role| match role {
            WatchRole::Ancestor(dir) => {
                root.forget_manifest(dir);
                false
            }
            WatchRole::Listed(_) | WatchRole::Plugin(_) | WatchRole::RootPath => true,
        });
        self.watch_ancestors(root, next_token, watcher);
        true
    }
}
