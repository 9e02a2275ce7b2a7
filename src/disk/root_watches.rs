//! How the root of a survey is found, and what is watched on the way to it and above it.

use super::allowed_dirs::{AllowedDirsSnapshot, identity};
use super::catalog_builder::CatalogBuilder;
use super::dir_lister::{MANIFEST_DIRECTORIES, manifest_file};
use super::dir_watcher::{DirWatcher, watch_hard_links};
use super::filesystem_types::FilesystemTypes;
use super::namespaces::ManifestsByDir;
use super::open_file::{self, resolve_error};
use super::path_resolution::path_lookups;
use super::plugin_set::PluginDirs;
use super::root_index::{RootIndex, WatchRole};
use super::scanned_root::{ScannedDirs, ScannedRoot};
use crate::domain::{ResolvedPath, RootReason};
use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags, accessat, fstat, openat};
use rustix::io::Errno;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl RootIndex {
    /// Finds the root on this ground, and says why where it cannot be used.
    pub(super) fn resolve_root(
        &self,
        ground: Arc<AllowedDirsSnapshot>,
    ) -> Result<ScannedRoot, RootReason> {
        let root = ground.resolve(&self.target.path)?;
        let fd = ground.open(&root, OFlags::RDONLY | OFlags::DIRECTORY);
        let fd = fd.map_err(|error| root_open_reason(&ground, &root, error))?;
        let root_identity = identity(&fstat(&fd).map_err(resolve_error)?);
        let mut rules = self.target.rules.clone();
        let mut scope = None;
        let places = ground.published_paths_of(&self.target.published);
        for (published, place) in self.target.published.iter().zip(&places.by_root) {
            if place.as_ref() == Some(&root) {
                scope = scope.or(Some(published.scope));
                rules.follow_links &= published.follow_links;
            }
        }
        rules.nested_roots = places.all.clone();
        Ok(ScannedRoot {
            snapshot: ground,
            path: root,
            identity: root_identity,
            rules,
            scope,
            dirs: ScannedDirs::new(),
            manifests: ManifestsByDir::new(),
            plugin_dirs: PluginDirs::new(),
            catalog_builder: CatalogBuilder::default(),
            filesystems: FilesystemTypes::default(),
            catalog: None,
            has_new_hard_links: false,
        })
    }

    pub(super) fn register_watch_role(&mut self, token: WatchRole) -> u64 {
        let number = self.next_token.fetch_add(1, Ordering::Relaxed);
        self.watch_roles.insert(number, token);
        number
    }

    /// Watches each directory on the way to the root, for the entry that leads on.
    pub(super) fn watch_root_path(&mut self, watching: &dyn DirWatcher) {
        let token = self.register_watch_role(WatchRole::RootPath);
        for (dir, name) in path_lookups(&self.target.path) {
            let dir = if dir.is_empty() { b"/" } else { &*dir };
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let path = Path::new(OsStr::from_bytes(dir));
            let Ok(fd) = openat(CWD, path, flags, Mode::empty()) else { continue };
            self.path_watches.extend(watching.watch_dir(fd.as_fd(), token, Some(&name)));
        }
    }

    /// Watches the places for manifests above the root.
    pub(super) fn watch_ancestors(&mut self, found: &ScannedRoot, watching: &dyn DirWatcher) {
        // They give the names of skills, which are the same for every caller.
        let ground = found.snapshot.without_access_scope();
        let mut above = found.path.parent();
        while let Some(dir) = above {
            let token = self.register_watch_role(WatchRole::Ancestor(dir.clone()));
            for name in MANIFEST_DIRECTORIES.map(str::as_bytes) {
                let own = dir.join(name);
                for (spot, only) in [(Some(&dir), Some(name)), (own.as_ref(), None)] {
                    let flags = OFlags::PATH | OFlags::DIRECTORY;
                    let opened = spot.map(|spot| ground.open(spot, flags));
                    let Some(Ok(fd)) = opened else { continue };
                    self.ancestor_watches.extend(watching.watch_dir(fd.as_fd(), token, only));
                }
                let manifest = own.map(|own| open_file::open_file(&ground, &own, &manifest_file()));
                if let Some(Ok(opened)) = manifest {
                    watch_hard_links(watching, &opened, token, &mut self.ancestor_watches);
                }
            }
            above = dir.parent();
        }
    }

    /// Watches the places above the root anew where one of them is dirty: a directory for a manifest
    /// may have come. Says whether one was.
    pub(super) fn rewatch_ancestors(
        &mut self,
        dirty: &HashSet<u64>,
        watching: &dyn DirWatcher,
    ) -> bool {
        let is_above =
            |token: &u64| matches!(self.watch_roles.get(token), Some(WatchRole::Ancestor(_)));
        if !dirty.iter().any(is_above) {
            return false;
        }
        let Some(mut found) = self.scanned_root.take() else { return false };
        let old = std::mem::take(&mut self.ancestor_watches);
        // All of them are read again: a note with an old token means nothing from here on.
        self.watch_roles.retain(|_, token| match token {
            WatchRole::Ancestor(dir) => {
                found.manifests.remove(dir);
                false
            }
            WatchRole::Listed(_) | WatchRole::Plugin(_) | WatchRole::RootPath => true,
        });
        self.watch_ancestors(&found, watching);
        drop(old);
        self.scanned_root = Some(found);
        true
    }
}

/// Why a root cannot be opened. access(2) knows permissions only, so where it says yes it was the
/// sandbox that said no.
fn root_open_reason(ground: &AllowedDirsSnapshot, root: &ResolvedPath, error: Errno) -> RootReason {
    let is_permitted = || {
        let dir = ground.open(root, OFlags::PATH | OFlags::DIRECTORY)?;
        accessat(&dir, c".", Access::READ_OK | Access::EXEC_OK, AtFlags::EACCESS)
    };
    match RootReason::from(resolve_error(error)) {
        RootReason::PermissionDenied if is_permitted().is_ok() => RootReason::SandboxDenied,
        reason => reason,
    }
}
