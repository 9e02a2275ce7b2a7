//! State of one root between scans: a change rescans only the directories that it affects. All
//! functions block. Directories are listed on threads of the scan, so that a root whose filesystem
//! hangs delays no other root.

use super::catalog_builder::CatalogBuilder;
use super::dir_lister::{DirLister, ListBuffers};
use super::file_problem::is_vanished;
use super::package_verifier::{DuePackages, PackageVerifier};
use super::plugin_reader::PluginReader;
use super::scan_progress::ScanProgress;
use super::scanned_dir::{DirChange, ListingEntryKind, ScannedDir};
use super::scanned_root::{ScanContext, ScanTarget, ScannedRoot};
use super::unreported::{
    changed_dirs, outdated_tokens, replaced_dirs, transient_failures, unreported_changes,
};
use super::watches::{DirWatcher, DirtyPlaces, NoDirWatcher, PathChange, RootWatches};
use crate::daemon::fs::allowed_dirs::AllowedDirs;
use crate::daemon::model::skill::Skill;
use crate::daemon::model::{Catalog, ResolvedPath, RootReason};
use caproot_core::wire::RelPath;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

/// Reported changes of a root since its last scan.
#[derive(Debug, Default)]
pub struct DirtyDirs {
    /// Tokens of directories that changed.
    pub tokens: HashSet<u64>,
    /// Tokens among them of directories that were moved, or on whose path a directory was moved.
    /// Even if such a directory is back and looks unchanged, files that were read by their path in
    /// the meantime may have been other files.
    pub moved: HashSet<u64>,
    /// Packages of which a read found bytes that are not approved.
    pub refused: HashSet<RelPath>,
    /// Whether to compare every file that was read with the disk. Only this finds a change that was
    /// made by another name of a file before the file was known to have other names.
    pub compare_files: bool,
}

/// Result of scanning a root.
#[derive(Debug, Default)]
pub struct ScanOutcome {
    /// New catalog or error; `None` if nothing changed.
    pub catalog: Option<Result<Arc<Catalog>, RootReason>>,
    /// Tokens of directories to rescan after the debounce time.
    pub unstable: Vec<u64>,
    /// Directories with a SKILL.md that is not published yet.
    pub held: Vec<HeldSkill>,
}

/// Directory with a SKILL.md that only a repair can read, while the catalog has its last version.
#[derive(Debug, Clone, Copy)]
pub struct HeldSkill {
    /// Token of the directory.
    pub token: u64,
    /// Time at which a rescan publishes the file if it is unchanged.
    pub until: Instant,
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
    /// Whether there was a scan after the last recheck.
    is_scanned_since_recheck: bool,
    verifier: PackageVerifier,
}

/// Result of listing dirty directories again.
#[derive(Default)]
struct RelistOutcome {
    /// Skills of which only the content changed.
    skills: Vec<Arc<Skill>>,
    /// Whether other changes need a scan.
    scan_again: bool,
    /// Directories that were replaced by other directories with the same path.
    replaced: Vec<ResolvedPath>,
    /// Tokens of directories to rescan after the debounce time.
    unstable: Vec<u64>,
    held: Vec<HeldSkill>,
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

impl DirtyDirs {
    /// Whether there is nothing to rescan.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty() && self.refused.is_empty() && !self.compare_files
    }
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
            is_scanned_since_recheck: false,
            verifier: PackageVerifier::default(),
        }
    }

    /// Replaces the target by another target with the same path. The next full scan uses it.
    pub fn set_target(&mut self, target: ScanTarget) {
        self.target = target;
        if let Some(root) = &mut self.scanned_root {
            // The skills were built by the rules of the last target.
            root.catalog_builder = CatalogBuilder::default();
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
        let mut outcome = self.scan_all(allowed, watcher, progress);
        let due = DuePackages {
            all: true,
            tokens: &HashSet::new(),
            refused: &HashSet::new(),
            unreported: true,
        };
        self.verify_packages(&mut outcome, due, watcher, progress);
        outcome
    }

    fn scan_all(
        &mut self,
        allowed: &AllowedDirs,
        watcher: &dyn DirWatcher,
        progress: &ScanProgress,
    ) -> ScanOutcome {
        self.is_scanned_since_recheck = true;
        let context = ScanContext {
            target: &self.target,
            next_token: &self.next_token,
            watcher,
            progress,
        };

        // The snapshot must be newer than the watches of the path.
        let old_watches = std::mem::take(&mut self.watches);
        let before = allowed.recent_snapshot();
        self.watches.watch_root_path(&before, &context);
        let snapshot = allowed.snapshot_for_path(&self.target.path);
        if !Arc::ptr_eq(&before, &snapshot) {
            // The path may lead through other directories now.
            self.watches = RootWatches::default();
            self.watches.watch_root_path(&snapshot, &context);
        }

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
                if let Some(last) = self.scanned_root.take() {
                    root.take_over(last);
                }

                self.watches
                    .watch_ancestors(&root.snapshot, &root.path, &context);
                let catalog = root.scan(false, &mut self.watches, &context);
                self.scanned_root = Some(root);
                Ok(catalog)
            }
        };

        // The new watches exist, so that no change was missed in between.
        drop(old_watches);
        let unstable = self.take_outdated_tokens(progress).into_iter().collect();

        ScanOutcome {
            catalog: Some(catalog),
            unstable,
            held: self.scanned_root.iter().flat_map(held_skills).collect(),
        }
    }

    /// Rescans the directories of the dirty tokens. If `settled` is false, a file that no longer
    /// parses keeps its last good version. A SKILL.md that only a repair can read keeps its last
    /// version for [`REPAIR_DELAY`].
    ///
    /// [`REPAIR_DELAY`]: super::scanned_dir::REPAIR_DELAY
    pub fn rescan_dirty(
        &mut self,
        allowed: &AllowedDirs,
        dirty: &DirtyDirs,
        settled: bool,
        watcher: &dyn DirWatcher,
        progress: &ScanProgress,
    ) -> ScanOutcome {
        let mut outcome = self.scan_dirty(allowed, dirty, settled, watcher, progress);
        let due = DuePackages {
            // Below a moved directory, files may be other files with the versions of the old ones.
            all: !dirty.moved.is_empty(),
            tokens: &dirty.tokens,
            refused: &dirty.refused,
            unreported: dirty.compare_files,
        };
        self.verify_packages(&mut outcome, due, watcher, progress);
        outcome
    }

    /// Compares the packages that are due with the lock. If a lock applies to the root, replaces the
    /// catalog of the outcome by the catalog that callers see.
    fn verify_packages(
        &mut self,
        outcome: &mut ScanOutcome,
        due: DuePackages<'_>,
        watcher: &dyn DirWatcher,
        progress: &ScanProgress,
    ) {
        let Some(root) = &self.scanned_root else {
            self.verifier = PackageVerifier::default();
            return;
        };
        let context = ScanContext {
            target: &self.target,
            next_token: &self.next_token,
            watcher,
            progress,
        };
        let verified = self.verifier.verify_catalog(root, due, &context);
        if root.rules.trust.is_some() {
            let is_new = outcome.catalog.is_some();
            let unchanged = self.verifier.last_catalog().filter(|_| is_new).cloned();
            outcome.catalog = verified.or(unchanged).map(Ok);
        }
    }

    fn scan_dirty(
        &mut self,
        allowed: &AllowedDirs,
        dirty: &DirtyDirs,
        settled: bool,
        watcher: &dyn DirWatcher,
        progress: &ScanProgress,
    ) -> ScanOutcome {
        self.is_scanned_since_recheck = true;
        let places = self.find_dirty_places(dirty, progress);

        let Some(root) = &mut self.scanned_root else {
            return self.scan_all(allowed, watcher, progress);
        };
        let context = ScanContext {
            target: &self.target,
            next_token: &self.next_token,
            watcher,
            progress,
        };

        let mut scan_again = forget_outdated(root, &places, &mut self.watches, &context);
        if is_replaced(root, &places, allowed, &self.target.path) {
            return self.scan_all(allowed, watcher, progress);
        }

        let dirs = dirs_to_relist(root, &places);
        // A listing watches the manifests of its directory, so the manifests are read after it.
        let mut relisted = relist(root, dirs, settled, &context);
        let root_dir = root.dirs.get(&root.path);
        if root_dir.is_some_and(|dir| dir.listing.as_ref().is_err_and(is_vanished)) {
            // The path may still lead to the directory, below a mount.
            return self.scan_all(allowed, watcher, progress);
        }

        scan_again |= reread_plugins(root, &places, settled, &mut relisted.unstable, &context);
        root.mark_stale(&relisted.replaced);

        let mut held = relisted.held;
        let catalog = if scan_again || relisted.scan_again {
            let catalog = root.scan(true, &mut self.watches, &context);
            held = held_skills(root).collect();
            Some(catalog)
        } else if relisted.skills.is_empty() {
            None
        } else {
            let last = root.catalog.as_ref();
            root.catalog = last.map(|last| Arc::new(last.with_replaced_skills(&relisted.skills)));
            root.catalog.clone()
        };

        let mut unstable = relisted.unstable;
        unstable.extend(self.take_outdated_tokens(progress));
        ScanOutcome {
            catalog: catalog.map(Ok),
            unstable,
            held,
        }
    }

    /// Returns the tokens of directories that need a rescan although inotify reported nothing. In
    /// such a directory a link target moved, a read failed, or a filesystem was mounted or
    /// unmounted at one of `mounts`, which is `None` if the mount table did not change. Returns `None`
    /// if the root itself moved, or may exist now.
    pub fn unreported_changes(
        &mut self,
        allowed: &AllowedDirs,
        mounts: Option<&HashSet<Box<[u8]>>>,
        progress: &ScanProgress,
    ) -> Option<HashSet<u64>> {
        let path = &self.target.path;
        let snapshot = match mounts {
            None => allowed.recent_snapshot(),
            Some(_) => allowed.snapshot_for_path(path),
        };
        let was_scanned = std::mem::take(&mut self.is_scanned_since_recheck);

        let Some(root) = &self.scanned_root else {
            let reason = ScannedRoot::resolve(&self.target, snapshot).err();
            let is_same = reason == self.unusable_reason && reason.is_some();
            return is_same.then(HashSet::new);
        };

        if root.has_moved(&snapshot, path) {
            return None;
        }
        let mut tokens = unreported_changes(root, mounts, progress);
        tokens.extend(self.verifier.unreported_tokens());
        // A scan may have read through a mount that existed only for a moment.
        if mounts.is_some() && was_scanned {
            tokens.extend(self.outdated_tokens(progress));
            tokens.extend(replaced_dirs(root, progress));
            tokens.extend(root.plugins.dirs.values().map(|dir| dir.token));
        }
        Some(tokens)
    }

    /// Returns the places of the reported changes, and of files that changed without a report if the files
    /// are compared.
    fn find_dirty_places(&self, dirty: &DirtyDirs, progress: &ScanProgress) -> DirtyPlaces {
        let mut tokens = dirty.tokens.clone();
        if dirty.compare_files {
            tokens.extend(self.outdated_tokens(progress));
            tokens.extend(self.scanned_root.iter().flat_map(transient_failures));
        }
        self.watches.dirty_places(&tokens, &dirty.moved)
    }

    /// Returns the tokens of directories in which a file changed since it was read.
    fn outdated_tokens(&self, progress: &ScanProgress) -> HashSet<u64> {
        let root = self.scanned_root.iter();
        root.flat_map(|root| outdated_tokens(root, &self.watches, progress))
            .collect()
    }

    /// Returns the tokens of outdated directories if a file may have changed without an event since
    /// the last call: another name of a hard-linked file may be in a directory that was listed before,
    /// or a manifest was read before it was watched.
    fn take_outdated_tokens(&mut self, progress: &ScanProgress) -> HashSet<u64> {
        let root = self.scanned_root.as_mut();
        if root.is_some_and(|root| std::mem::take(&mut root.needs_comparison)) {
            self.outdated_tokens(progress)
        } else {
            HashSet::new()
        }
    }

    /// Returns the last catalog, or the reason why there is none.
    #[must_use]
    pub fn last_result(&self) -> Option<Result<Arc<Catalog>, RootReason>> {
        match &self.scanned_root {
            Some(root) if root.rules.trust.is_some() => {
                self.verifier.last_catalog().cloned().map(Ok)
            }
            Some(root) => root.catalog.clone().map(Ok),
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
        self.scanned_root.as_ref()?.filesystems.no_inotify_support()
    }

    /// Whether an overlay filesystem is below the root. Some of its changes cause no event.
    #[must_use]
    pub fn has_overlay(&self) -> bool {
        let root = self.scanned_root.as_ref();
        root.is_some_and(|root| root.filesystems.has_overlay())
    }
}

/// Removes the manifests and marks the directories that the dirty places make outdated. Returns
/// whether there were any.
fn forget_outdated(
    root: &mut ScannedRoot,
    places: &DirtyPlaces,
    watches: &mut RootWatches,
    context: &ScanContext<'_>,
) -> bool {
    if places.has_manifest_place {
        for dir in watches.rewatch_manifest_places(&root.snapshot, context) {
            root.plugins.manifests.remove(&dir);
        }
    }
    root.mark_moved_stale(&places.moved);

    // A manifest that could not be read for a transient reason is read again.
    let has_failed = root.plugins.has_failed_manifest();
    let manifests = &mut root.plugins.manifests;
    manifests.retain(|_, manifest| !manifest.has_transient_error());
    places.has_manifest_place || !places.moved.is_empty() || has_failed
}

/// Whether a change of the root's path leads to another directory, or to another snapshot.
fn is_replaced(
    root: &ScannedRoot,
    places: &DirtyPlaces,
    allowed: &AllowedDirs,
    path: &[u8],
) -> bool {
    match places.root_path {
        PathChange::None => false,
        PathChange::Possible => root.has_moved(&allowed.snapshot_for_path(path), path),
        PathChange::Moved => true,
    }
}

/// Returns the directories to list again after a change in listed directories.
fn dirs_to_relist(root: &ScannedRoot, places: &DirtyPlaces) -> HashSet<ResolvedPath> {
    let mut dirs = HashSet::new();
    for (_, dir) in &places.listed {
        dirs.extend(unlisted_dirs(root, dir));
        dirs.insert(dir.clone());
    }
    dirs
}

fn held_skills(root: &ScannedRoot) -> impl Iterator<Item = HeldSkill> {
    root.dirs.values().filter_map(ScannedDir::held_skill)
}

/// Reads the manifests of dirty directories and the files of dirty plugins again. Returns whether one
/// changed. If `settled` is false and a file no longer parses, the token of its directory or plugin is added
/// to `unstable`.
fn reread_plugins(
    root: &mut ScannedRoot,
    places: &DirtyPlaces,
    settled: bool,
    unstable: &mut Vec<u64>,
    context: &ScanContext<'_>,
) -> bool {
    let reader = PluginReader {
        snapshot: &root.snapshot,
        rules: &root.rules,
        root: &root.path,
        context,
    };
    let plugins = &mut root.plugins;
    let mut has_changed = false;

    for (token, dir) in &places.listed {
        has_changed |= plugins.reread_manifest(dir, *token, settled, unstable, &reader);
    }

    for dir in &places.plugins {
        let plugin = plugins.dirs.get_mut(dir);
        has_changed |= plugin.is_some_and(|plugin| plugin.reread(&reader, dir, settled, unstable));
        context.progress.tick();
    }
    has_changed
}

/// Returns the directories in a directory that could not be listed. They are not watched: they are retried
/// with their parent.
fn unlisted_dirs(root: &ScannedRoot, dir: &ResolvedPath) -> impl Iterator<Item = ResolvedPath> {
    let below = root.entries(dir).iter();
    let below = below.filter_map(|entry| match &entry.kind {
        ListingEntryKind::LinkedDirectory(to, _) => Some(to.clone()),
        ListingEntryKind::Directory => dir.join(&entry.name),
        _ => None,
    });
    below.filter(|path| {
        let dir = root.dirs.get(path);
        dir.is_some_and(|dir| dir.listing.is_err())
    })
}

/// Lists directories again, and returns their changes. If `settled` is false, a SKILL.md
/// that no longer parses keeps its last version, and its directory is unstable.
fn relist(
    root: &mut ScannedRoot,
    dirs: HashSet<ResolvedPath>,
    settled: bool,
    context: &ScanContext<'_>,
) -> RelistOutcome {
    let mut outcome = RelistOutcome::default();
    let progress = context.progress;
    let truncated = root.catalog.as_ref().is_some_and(|c| c.header.truncated);
    let lister = DirLister {
        snapshot: &root.snapshot.clone(),
        limits: &root.rules.limits.clone(),
        context,
    };

    let mut buffers = ListBuffers::default();
    let mut queue: Vec<_> = dirs.into_iter().collect();
    let mut links_checked = false;
    while let Some(path) = queue.pop() {
        let Some(dir) = root.dirs.get_mut(&path) else {
            continue;
        };
        let result = lister.list_dir(&dir.to_scan(&path), dir.token, &mut buffers);
        progress.tick();

        let was_listed = dir.listing.is_ok();
        let now = progress.started_at();
        let (change, is_stable) = dir.replace_listing(&path, result, settled, truncated, now);
        if !is_stable {
            outcome.unstable.push(dir.token);
        }
        outcome.held.extend(dir.held_skill());
        root.needs_comparison |= dir.fingerprints.has_hard_links;
        let is_lost = was_listed && dir.listing.is_err();

        match change {
            DirChange::None => {}
            DirChange::SkillFileOnly(old, new) => {
                let builder = &mut root.catalog_builder;
                match builder.replace_skill(&dir.walked_path, &old, &new) {
                    Some(skill) => outcome.skills.push(skill),
                    None => outcome.scan_again = true,
                }
            }
            DirChange::Structure(replaced) => {
                root.plugins.manifests.remove(&path);
                outcome.scan_again = true;
                outcome.replaced.extend(replaced);
            }
        }

        if is_lost && !links_checked {
            // A link to this directory may have a new target without an event. The new target
            // must be in the same revision.
            links_checked = true;
            queue.extend(changed_dirs(root, progress).map(|(path, _)| path.clone()));
        }
    }
    outcome
}
