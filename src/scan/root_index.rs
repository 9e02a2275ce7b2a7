//! State of one root between scans: a change rescans only the directories that it affects. All
//! functions block. Directories are listed on threads of the scan, so that a root whose filesystem
//! hangs delays no other root.

use super::dir_watcher::{DirWatcher, NoDirWatcher};
use super::root_watches::{RootWatches, WatchRole};
use super::scan_progress::ScanProgress;
use super::scanned_dir::ScannedDirs;
use super::scanned_root::{ScanContext, ScannedRoot};
use super::search::SearchRules;
use crate::fs::allowed_dirs::AllowedDirs;
use crate::model::{Catalog, PublishedRoot, RootReason};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Root to scan, and the rules for the scan.
#[derive(Debug, Clone)]
pub struct ScanTarget {
    /// Absolute path of the root, as selected.
    pub path: Box<[u8]>,
    /// Rules of the scan. `follow_links` and `nested_roots` are adapted to `published`.
    pub rules: SearchRules,
    /// All published roots. The target may be one of them, by any path.
    pub published: Arc<[PublishedRoot]>,
}

/// Reported changes of a root since its last scan.
#[derive(Debug, Default)]
pub struct DirtyDirs {
    /// Tokens of directories that changed.
    pub tokens: HashSet<u64>,
    /// Tokens among them of directories that were moved, or on whose path a directory was moved.
    /// Even if such a directory is back and looks unchanged, files that were read by their path in
    /// the meantime may have been other files.
    pub moved: HashSet<u64>,
    /// Whether to compare every file that was read with the disk. Only this finds a change that was
    /// made by another name of a file before the file was known to have other names.
    pub compare_files: bool,
}

/// Result of scanning a root.
#[derive(Debug)]
pub struct ScanOutcome {
    /// New catalog or error; `None` if nothing changed.
    pub catalog: Option<Result<Arc<Catalog>, RootReason>>,
    /// Tokens of directories to rescan after the debounce time.
    pub unstable: Vec<u64>,
}

/// Index of one root.
#[derive(Debug)]
pub struct RootIndex {
    target: ScanTarget,
    next_token: AtomicU64,
    watches: RootWatches,
    /// Reason why the last scan could not use the root.
    unusable_reason: Option<RootReason>,
    scanned_root: Option<ScannedRoot>,
}

/// Scans a root once, and keeps only its catalog.
pub fn scan_root(
    allowed: &AllowedDirs,
    target: &ScanTarget,
    progress: &ScanProgress,
) -> Result<Arc<Catalog>, RootReason> {
    let mut index = RootIndex::new(target.clone());
    let outcome = index.rescan_all(allowed, &NoDirWatcher, progress);
    outcome.catalog.unwrap_or(Err(RootReason::IoError))
}

impl RootIndex {
    /// Creates an empty index.
    #[must_use]
    pub fn new(target: ScanTarget) -> Self {
        Self {
            target,
            next_token: AtomicU64::new(0),
            watches: RootWatches::default(),
            unusable_reason: None,
            scanned_root: None,
        }
    }

    /// Replaces the target by another target with the same path. The next full scan uses it.
    pub fn set_target(&mut self, target: ScanTarget) {
        self.target = target;
        if let Some(root) = &mut self.scanned_root {
            root.forget_built_skills();
        }
    }

    /// Scans the whole root, starting with its path. From the last scan, only the last good version
    /// of files that no longer parse is used.
    pub fn rescan_all(
        &mut self,
        allowed: &AllowedDirs,
        watcher: &dyn DirWatcher,
        progress: &ScanProgress,
    ) -> ScanOutcome {
        let old_watches = std::mem::take(&mut self.watches);
        self.watches.watch_root_path(&self.target.path, &self.next_token, watcher);
        let snapshot = allowed.snapshot_for_path(&self.target.path);
        let catalog = match ScannedRoot::resolve(&self.target, snapshot) {
            Err(reason) => {
                if reason == RootReason::SandboxDenied && self.unusable_reason != Some(reason) {
                    tracing::warn!(
                        "the sandbox denies access to a root that was re-created after the start \
                         of the daemon; restart the daemon"
                    );
                }
                self.unusable_reason = Some(reason);
                self.scanned_root = None;
                Err(reason)
            }
            Ok(mut root) => {
                let last = self.scanned_root.take();
                let dirs = last.map_or_else(ScannedDirs::new, |last| root.take_over(last));
                self.watches.watch_ancestors(&root, &self.next_token, watcher);
                let (target, next_token) = (&self.target, &self.next_token);
                let context = ScanContext { target, next_token, watcher, progress };
                let catalog = root.scan(dirs, false, &mut self.watches, &context);
                self.scanned_root = Some(root);
                Ok(catalog)
            }
        };
        // The new watches exist, so that no change was missed in between.
        drop(old_watches);
        let unstable = self.outdated_by_hard_links(progress).into_iter().collect();
        ScanOutcome { catalog: Some(catalog), unstable }
    }

    /// Rescans the directories of the dirty tokens. If `settled` is false, a file that no longer
    /// parses keeps its last good version.
    pub fn rescan_dirty(
        &mut self,
        allowed: &AllowedDirs,
        dirty: &DirtyDirs,
        settled: bool,
        watcher: &dyn DirWatcher,
        progress: &ScanProgress,
    ) -> ScanOutcome {
        let mut tokens = dirty.tokens.clone();
        if dirty.compare_files {
            tokens.extend(self.outdated_tokens(progress));
        }
        let mut outcome =
            self.rescan_tokens(allowed, &tokens, &dirty.moved, settled, watcher, progress);
        outcome.unstable.extend(self.outdated_by_hard_links(progress));
        outcome
    }

    fn rescan_tokens(
        &mut self,
        allowed: &AllowedDirs,
        tokens: &HashSet<u64>,
        moved: &HashSet<u64>,
        settled: bool,
        watcher: &dyn DirWatcher,
        progress: &ScanProgress,
    ) -> ScanOutcome {
        let path = &self.target.path;
        let Some(root) = &mut self.scanned_root else {
            return self.rescan_all(allowed, watcher, progress);
        };
        let mut scan_again =
            self.watches.rewatch_ancestors(tokens, root, &self.next_token, watcher);
        scan_again |= root.invalidate_moved(moved, &self.watches);
        scan_again |= root.forget_failed_manifests();
        let (mut listed, mut plugins) = (HashSet::new(), HashSet::new());
        let mut unstable = Vec::new();
        for token in tokens {
            match self.watches.role(*token) {
                // Ancestors were watched and invalidated above.
                None | Some(WatchRole::Ancestor(_)) => {}
                Some(WatchRole::RootPath) => {
                    if moved.contains(token)
                        || root.has_moved(&allowed.snapshot_for_path(path), path)
                    {
                        return self.rescan_all(allowed, watcher, progress);
                    }
                }
                Some(WatchRole::Plugin(dir)) => drop(plugins.insert(dir.clone())),
                Some(WatchRole::Listed(dir)) => {
                    match root.reread_manifest_in(dir, settled) {
                        Some(true) => scan_again = true,
                        Some(false) => unstable.push(*token),
                        None => {}
                    }
                    listed.extend(root.dirs_to_relist(dir));
                }
            }
        }
        let (target, next_token) = (&self.target, &self.next_token);
        let context = ScanContext { target, next_token, watcher, progress };
        let relisted = root.relist(listed, settled, &mut unstable, &context);
        scan_again |= relisted.scan_again;
        scan_again |= root.reread_plugins(&plugins, settled, &mut unstable, &context);
        root.mark_stale(&relisted.replaced);
        let catalog = if scan_again {
            let dirs = root.take_dirs();
            Some(root.scan(dirs, true, &mut self.watches, &context))
        } else {
            root.replace_skills(&relisted.skills)
        };
        ScanOutcome { catalog: catalog.map(Ok), unstable }
    }

    /// Returns the tokens of directories that need a rescan although inotify reported nothing. In
    /// such a directory a link target moved, a read failed, or a filesystem was mounted or
    /// unmounted at one of `mounts`. Returns `None` if the root itself moved, or may exist now.
    pub fn unreported_changes(
        &self,
        allowed: &AllowedDirs,
        mounts: &HashSet<Box<[u8]>>,
        progress: &ScanProgress,
    ) -> Option<HashSet<u64>> {
        let path = &self.target.path;
        let snapshot = if mounts.is_empty() {
            allowed.recent_snapshot()
        } else {
            allowed.snapshot_for_path(path)
        };
        let Some(root) = &self.scanned_root else {
            let reason = ScannedRoot::resolve(&self.target, snapshot).err();
            let is_same = reason == self.unusable_reason && reason.is_some();
            return is_same.then(HashSet::new);
        };
        if root.has_moved(&snapshot, path) {
            return None;
        }
        Some(root.unreported_changes(mounts, progress))
    }

    /// Returns the tokens of directories in which a file changed since it was read.
    fn outdated_tokens(&self, progress: &ScanProgress) -> HashSet<u64> {
        let root = self.scanned_root.as_ref();
        root.map_or_else(HashSet::new, |root| root.outdated_tokens(&self.watches, progress))
    }

    /// Returns the tokens of outdated directories if a hard-linked file was listed since the last
    /// call. Another name of the file may be in a directory that was listed before, for which
    /// inotify reported nothing.
    fn outdated_by_hard_links(&mut self, progress: &ScanProgress) -> HashSet<u64> {
        let root = self.scanned_root.as_mut();
        if root.is_some_and(ScannedRoot::take_new_hard_links) {
            self.outdated_tokens(progress)
        } else {
            HashSet::new()
        }
    }

    /// Returns the last catalog, or the reason why there is none.
    #[must_use]
    pub fn last_result(&self) -> Option<Result<Arc<Catalog>, RootReason>> {
        match &self.scanned_root {
            Some(root) => root.catalog().cloned().map(Ok),
            None => self.unusable_reason.map(Err),
        }
    }

    /// Whether the last scan could use the root.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.scanned_root.is_some()
    }

    /// Returns the name of a filesystem below the root on which other machines change files without
    /// an inotify event, if there is one.
    #[must_use]
    pub fn no_inotify_support(&self) -> Option<&'static str> {
        self.scanned_root.as_ref()?.filesystems().no_inotify_support()
    }

    /// Whether an overlay filesystem is below the root. Some of its changes cause no event.
    #[must_use]
    pub fn has_overlay(&self) -> bool {
        self.scanned_root.as_ref().is_some_and(|root| root.filesystems().has_overlay())
    }
}
