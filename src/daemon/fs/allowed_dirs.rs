//! The configured allowed directories, and a cache of their last snapshot.

use super::configured_dirs::{ConfiguredDirs, OpenDirFn};
use super::dirs_snapshot::{AllowedDirsSnapshot, ResolveError};
use super::link_dirs::{LinkDirs, LinkRule, collect_link_dirs};
use super::open_beneath::OpenMethod;
use crate::daemon::model::{PublishedRoot, ResolvedPath};
use caproot_core::sync::Mutex;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

/// Maximum age of a snapshot for periodic checks.
const MAX_SNAPSHOT_AGE: Duration = Duration::from_millis(500);
/// Maximum number of cached root paths. If the cache is full, it is cleared.
const MAX_CACHED_PATHS: usize = 1_024;

/// Directories that the operator allowed, by their configured paths. The paths are looked up
/// again for each snapshot, so that a directory may be re-created and a link may be retargeted.
#[derive(Debug)]
pub struct AllowedDirs {
    configured: ConfiguredDirs,
    /// Configured paths of the directories outside which nothing is opened.
    access_scope: Option<Vec<PathBuf>>,
    /// Number of configured directories that are allowed. The others are link directories.
    allowed_count: usize,
    link_rules: Arc<[LinkRule]>,
    opener: OpenMethod,
    cache: Mutex<SnapshotCache>,
    /// Held during a refresh, so that concurrent calls share one refresh: each refresh looks up all
    /// allowed directories, and hundreds of roots may be scanned at once.
    refresh_lock: Mutex<()>,
}

/// Result of the last refresh.
#[derive(Debug)]
struct SnapshotCache {
    /// Start of the refresh.
    started_at: Option<Instant>,
    snapshot: Arc<AllowedDirsSnapshot>,
    /// Indexes of the configured directories that did not respond.
    unresponsive: Arc<[usize]>,
    /// Root paths that were resolved with this snapshot.
    resolved_paths: HashMap<Box<[u8]>, ResolvedPath>,
}

/// Directory of a root, with the snapshot in which it was resolved.
#[derive(Debug, Clone)]
pub struct ResolvedRootDir {
    /// Snapshot in which the path is valid.
    pub snapshot: Arc<AllowedDirsSnapshot>,
    /// Path of the directory.
    pub path: ResolvedPath,
}

impl AllowedDirs {
    /// Takes absolute paths, and probes for the method to open files below them.
    #[must_use]
    pub fn new(dirs: Vec<PathBuf>) -> Self {
        Self::with_opener(OpenMethod::probe(), dirs)
    }

    /// Creates allowed directories in which only files below the directories of `scope` are opened.
    #[must_use]
    pub fn with_access_scope(opener: OpenMethod, dirs: Vec<PathBuf>, scope: Vec<PathBuf>) -> Self {
        Self {
            access_scope: Some(scope),
            ..Self::with_opener(opener, dirs)
        }
    }

    /// Takes absolute paths, and the method to open files below them.
    #[must_use]
    pub fn with_opener(opener: OpenMethod, dirs: Vec<PathBuf>) -> Self {
        Self::with_links(opener, dirs, &[])
    }

    /// Takes absolute paths, and the roots whose links may find skills in their link directories.
    #[must_use]
    pub fn with_links(opener: OpenMethod, dirs: Vec<PathBuf>, roots: &[PublishedRoot]) -> Self {
        let (link_dirs, link_rules) = collect_link_dirs(roots, &dirs);
        let allowed_count = dirs.len();
        let configured = ConfiguredDirs::new(dirs, link_dirs);
        let index_by_path = configured.index_by_path.clone();
        let empty =
            AllowedDirsSnapshot::new(opener, Vec::new(), index_by_path, LinkDirs::default());
        let cache = SnapshotCache {
            started_at: None,
            snapshot: Arc::new(empty),
            unresponsive: Arc::default(),
            resolved_paths: HashMap::new(),
        };
        Self {
            configured,
            access_scope: None,
            allowed_count,
            link_rules,
            opener,
            cache: Mutex::new(cache),
            refresh_lock: Mutex::default(),
        }
    }

    /// Method to open files below the allowed directories.
    #[must_use]
    pub fn opener(&self) -> OpenMethod {
        self.opener
    }

    /// Looks up the allowed directories. If a directory does not respond, its last known state is
    /// used. The directory that `path` leads into is waited for without a timeout.
    pub(crate) fn snapshot_for_path(&self, path: &[u8]) -> Arc<AllowedDirsSnapshot> {
        let called_at = Instant::now();
        let cache = self.refresh_unless(|started_at| started_at >= called_at);
        let snapshot = cache.snapshot.clone();
        let unresponsive = cache.unresponsive.clone();
        drop(cache);
        if unresponsive.is_empty() {
            return snapshot;
        }

        let located = snapshot.locate_root(path);
        for index in &*unresponsive {
            // A path that seems to lead outside may lead into any directory that did not respond.
            let is_home = located
                .as_ref()
                .is_none_or(|path| snapshot.is_dir_of(*index, path));
            if is_home || self.configured.is_prefix_of(*index, path) {
                self.configured.refresh_blocking(*index, self.open_dir_fn());
            }
        }
        let cache = self.store_snapshot(called_at, unresponsive);
        cache.snapshot.clone()
    }

    /// Returns a snapshot that is at most [`MAX_SNAPSHOT_AGE`] old, and waits for no directory that
    /// does not respond.
    pub(crate) fn recent_snapshot(&self) -> Arc<AllowedDirsSnapshot> {
        let cache = self.refresh_unless(|started_at| started_at.elapsed() < MAX_SNAPSHOT_AGE);
        cache.snapshot.clone()
    }

    /// Returns the last refresh if `is_recent` accepts its start; otherwise refreshes.
    fn refresh_unless(&self, is_recent: impl Fn(Instant) -> bool) -> MutexGuard<'_, SnapshotCache> {
        let _lock = self.refresh_lock.lock();
        let cache = self.cache.lock();
        if cache.started_at.is_some_and(is_recent) {
            return cache;
        }
        drop(cache);
        let started_at = Instant::now();
        let unresponsive = self.configured.refresh_all(self.open_dir_fn());
        self.store_snapshot(started_at, unresponsive.into())
    }

    fn open_dir_fn(&self) -> impl OpenDirFn {
        let opener = self.opener;
        move |path: &[u8]| opener.open_absolute_dir(path)
    }

    /// Stores the last known state of the directories. If nothing changed, keeps the same `Arc`, so
    /// that all users share its descriptors.
    fn store_snapshot(
        &self,
        started_at: Instant,
        unresponsive: Arc<[usize]>,
    ) -> MutexGuard<'_, SnapshotCache> {
        let mut allowed = self.configured.last_known();
        let mut cache = self.cache.lock();
        let is_same = cache.snapshot.has_dirs(&allowed);
        if !is_same || self.access_scope.is_some() {
            let link_dirs = LinkDirs {
                dirs: allowed.split_off(self.allowed_count),
                rules: self.link_rules.clone(),
            };
            let index_by_path = self.configured.index_by_path.clone();
            let new = AllowedDirsSnapshot::new(self.opener, allowed, index_by_path, link_dirs)
                .with_access_scope(self.access_scope.as_deref());
            if !is_same || cache.snapshot.access_scope != new.access_scope {
                cache.snapshot = Arc::new(new);
                cache.resolved_paths.clear();
            }
        }

        cache.started_at = Some(started_at);
        cache.unresponsive = unresponsive;
        cache
    }

    /// Resolves the path of a root. Uses the cached snapshot if the root's allowed directory is
    /// still at its path.
    pub fn resolve(&self, path: &[u8]) -> Result<ResolvedRootDir, ResolveError> {
        let cache = self.cache.lock();
        let last = cache.started_at.map(|_| cache.snapshot.clone());
        drop(cache);

        let current = last.and_then(|snapshot| {
            let path = snapshot.resolve(path).ok()?;
            let is_current = snapshot.is_current(&path);
            is_current.then_some(ResolvedRootDir { snapshot, path })
        });
        let resolved = if let Some(resolved) = current {
            resolved
        } else {
            let snapshot = self.snapshot_for_path(path);
            let path = snapshot.resolve(path)?;
            ResolvedRootDir { snapshot, path }
        };
        self.cache.lock().cache_path(path, &resolved);
        Ok(resolved)
    }

    /// Returns the last resolution of a root's path without checking it. Does not block: returns
    /// `None` if the cache is locked.
    pub(super) fn cached_root(&self, path: &[u8]) -> Option<ResolvedRootDir> {
        let cache = self.cache.try_lock()?;
        let path = cache.resolved_paths.get(path)?.clone();
        Some(ResolvedRootDir {
            snapshot: cache.snapshot.clone(),
            path,
        })
    }
}

impl SnapshotCache {
    /// Caches a resolution, unless the snapshot was replaced meanwhile.
    fn cache_path(&mut self, path: &[u8], resolved: &ResolvedRootDir) {
        let is_current = Arc::ptr_eq(&self.snapshot, &resolved.snapshot);
        if !is_current || self.resolved_paths.get(path) == Some(&resolved.path) {
            return;
        }
        if self.resolved_paths.len() == MAX_CACHED_PATHS {
            self.resolved_paths.clear();
        }
        self.resolved_paths
            .insert(path.into(), resolved.path.clone());
    }
}

#[cfg(test)]
mod tests;
