//! State of a usable root after a scan, and the scan itself.

use super::catalog_builder::CatalogBuilder;
use super::dir_lister::{DirLister, ListBuffers, is_manifest_directory};
use super::dir_watcher::DirWatcher;
use super::listing::{DirToScan, ListingEntryKind};
use super::namespaces::NamespaceResolver;
use super::parallel_list::list_dirs;
use super::plugin_reader::PluginReader;
use super::plugin_set::PluginIndex;
use super::root_index::ScanTarget;
use super::root_watches::{RootWatches, WatchRole};
use super::scan_progress::ScanProgress;
use super::scanned_dir::{DirChange, DirReuse, ScannedDir, ScannedDirs};
use super::search::{SearchRules, SkillSearch};
use crate::fs::dirs_snapshot::{AllowedDirsSnapshot, identity};
use crate::fs::disabled_skills::SkillFilter;
use crate::fs::filesystem_types::FilesystemTypes;
use crate::fs::open_file::resolve_error;
use crate::model::skill::Skill;
use crate::model::{Catalog, ResolvedPath, RootReason, RootScope};
use rustix::fs::{Access, AtFlags, OFlags, accessat, fstat};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Result of the last scan of a usable root.
#[derive(Debug)]
pub struct ScannedRoot {
    snapshot: Arc<AllowedDirsSnapshot>,
    path: ResolvedPath,
    identity: (u64, u64),
    rules: SearchRules,
    scope: Option<RootScope>,
    dirs: ScannedDirs,
    plugins: PluginIndex,
    catalog_builder: CatalogBuilder,
    filesystems: FilesystemTypes,
    catalog: Option<Arc<Catalog>>,
    /// Whether a directory with a hard-linked file was listed since the last call of
    /// [`Self::take_new_hard_links`].
    has_new_hard_links: bool,
}

/// Parameters of one scan.
pub struct ScanContext<'a> {
    pub target: &'a ScanTarget,
    pub next_token: &'a AtomicU64,
    pub watcher: &'a dyn DirWatcher,
    pub progress: &'a ScanProgress,
}

/// Result of listing dirty directories again.
#[derive(Default)]
pub struct RelistOutcome {
    /// Skills of which only the content changed.
    pub skills: Vec<Arc<Skill>>,
    /// Whether other changes need a scan.
    pub scan_again: bool,
    /// Directories that were replaced by other directories with the same path.
    pub replaced: Vec<ResolvedPath>,
}

impl ScannedRoot {
    /// Resolves and opens a root that has not been scanned yet.
    pub fn resolve(
        target: &ScanTarget,
        snapshot: Arc<AllowedDirsSnapshot>,
    ) -> Result<Self, RootReason> {
        let path = snapshot.resolve(&target.path)?;
        let fd = snapshot.open(&path, OFlags::RDONLY | OFlags::DIRECTORY);
        let fd = fd.map_err(|error| root_open_reason(&snapshot, &path, error))?;
        let identity = identity(&fstat(&fd).map_err(resolve_error)?);
        let mut rules = target.rules.clone();
        let mut scope = None;
        let published_paths = snapshot.published_paths_of(&target.published);
        for (published, published_path) in target.published.iter().zip(&published_paths.by_root) {
            if published_path.as_ref() == Some(&path) {
                scope = scope.or(Some(published.scope));
                rules.follow_links &= published.follow_links;
            }
        }
        rules.nested_roots = published_paths.all.clone();
        Ok(Self {
            snapshot,
            path,
            identity,
            rules,
            scope,
            dirs: ScannedDirs::new(),
            plugins: PluginIndex::default(),
            catalog_builder: CatalogBuilder::default(),
            filesystems: FilesystemTypes::default(),
            catalog: None,
            has_new_hard_links: false,
        })
    }

    /// Takes the results of the last scan over. Returns its directories with their paths in the new
    /// snapshot; directories outside the new snapshot are dropped.
    pub fn take_over(&mut self, mut last: Self) -> ScannedDirs {
        let dirs = last.take_dirs();
        (self.catalog_builder, self.catalog) = (last.catalog_builder, last.catalog);
        self.plugins.take_plugins(last.plugins);
        if Arc::ptr_eq(&self.snapshot, &last.snapshot) {
            return dirs;
        }
        let moved = |path: ResolvedPath| {
            self.snapshot.locate_absolute(&last.snapshot.absolute_bytes(&path))
        };
        dirs.into_iter().filter_map(|(path, dir)| Some((moved(path)?, dir))).collect()
    }

    pub fn take_dirs(&mut self) -> ScannedDirs {
        std::mem::take(&mut self.dirs)
    }

    pub fn snapshot(&self) -> &AllowedDirsSnapshot {
        &self.snapshot
    }

    pub fn path(&self) -> &ResolvedPath {
        &self.path
    }

    pub fn catalog(&self) -> Option<&Arc<Catalog>> {
        self.catalog.as_ref()
    }

    pub fn filesystems(&self) -> &FilesystemTypes {
        &self.filesystems
    }

    /// Whether a hard-linked file was listed since the last call.
    pub fn take_new_hard_links(&mut self) -> bool {
        std::mem::take(&mut self.has_new_hard_links)
    }

    /// Forgets the skills that were built by the rules of the last target.
    pub fn forget_built_skills(&mut self) {
        self.catalog_builder = CatalogBuilder::default();
    }

    /// Scans the root. Lists the directories that are not in `old`. If `trusted` is set, a
    /// directory in `old` that is not stale is not listed again.
    pub fn scan(
        &mut self,
        old: ScannedDirs,
        trusted: bool,
        watches: &mut RootWatches,
        context: &ScanContext<'_>,
    ) -> Arc<Catalog> {
        let ScanContext { target, next_token, watcher, progress } = *context;
        let mut search = SkillSearch::new(self.path.clone(), self.rules.clone());
        let mut dirs = DirReuse { current: ScannedDirs::with_capacity(old.len()), previous: old };
        loop {
            let round = search.next_round();
            if round.is_empty() {
                break;
            }
            let new: Vec<_> =
                round.iter().filter(|dir| !trusted || !dirs.can_reuse(dir)).cloned().collect();
            let lister = DirLister::new(&self.snapshot, &self.rules.limits, &target.path, watcher);
            dirs.current.reserve(new.len());
            watches.reserve(new.len());
            let mut round = round.into_iter().peekable();
            list_dirs(&lister, &new, next_token, progress, |listed_dir, token, listed| {
                while let Some(kept) = round.next_if(|next| next.path != listed_dir.path) {
                    dirs.keep_dir(kept, &mut search);
                }
                let Some(dir) = round.next() else { return };
                let path = dir.resolved.clone();
                let last = dirs.previous.swap_remove(&path);
                if let Some(last) = &last {
                    watches.remove(last.token());
                }
                let scanned = ScannedDir::new(dir, token, listed, last);
                if let Ok(listing) = scanned.listing() {
                    let device = listing.identity.0;
                    self.filesystems.record_filesystem(&self.snapshot, &path, device);
                }
                watches.insert_listed(token, path.clone());
                self.has_new_hard_links |= scanned.fingerprints().has_hard_links;
                let listing = scanned.listing().clone();
                dirs.current.insert(path, scanned);
                search.add_listing(listed_dir.clone(), listing);
            });
            round.for_each(|kept| dirs.keep_dir(kept, &mut search));
        }
        for gone in dirs.previous.into_values() {
            watches.remove(gone.token());
        }
        self.dirs = dirs.current;
        let mut outcome = search.finish();
        let diagnostics = &mut outcome.findings.diagnostics;
        let candidates = self.plugin_dir_candidates();
        let mut namespaces = NamespaceResolver::new(
            &self.snapshot,
            &self.path,
            &outcome.entered_dirs,
            &mut self.plugins.manifests,
            HashMap::new(),
        );
        // Reads the manifests that are not known yet, and reports their problems.
        for dir in &candidates {
            namespaces.find_namespace(&dir.resolved, diagnostics);
        }
        let namespace_cache = namespaces.into_cache();
        let reader = PluginReader::new(&self.snapshot, &self.rules, watcher);
        let plugins = self.plugins.collect(
            &candidates,
            &self.path,
            trusted,
            &reader,
            next_token,
            diagnostics,
        );
        let tokens = self.plugins.tokens();
        watches.replace_plugins(tokens.map(|(token, dir)| (token, dir.clone())));
        let namespaces = NamespaceResolver::new(
            &self.snapshot,
            &self.path,
            &outcome.entered_dirs,
            &mut self.plugins.manifests,
            namespace_cache,
        );
        let rules = &self.rules;
        let filter =
            SkillFilter::new(&self.snapshot, &self.path, &target.published, &rules.disable_rules);
        let new = self.catalog_builder.build_catalog(
            namespaces,
            filter,
            outcome.findings,
            plugins,
            self.scope,
            rules.follow_links,
        );
        // An equivalent catalog keeps its `Arc`, so that users need not compare it.
        let last = self.catalog.take().filter(|last| last.is_equivalent(&new));
        self.catalog.insert(last.unwrap_or_else(|| Arc::new(new))).clone()
    }

    /// Returns the directories to list again after a change in a listed directory.
    pub fn dirs_to_relist(&self, dir: &ResolvedPath) -> Vec<ResolvedPath> {
        // Directories that could not be listed are not watched: retry them with their parent.
        let mut dirs = self.unlisted_dirs_in(dir);
        dirs.push(dir.clone());
        if let Some(parent) = dir.parent() {
            let has_sidecar = dir.rel_path.file_name() == Some(&b"agents"[..]);
            if has_sidecar && self.dirs.contains_key(&parent) {
                dirs.push(parent);
            }
        }
        dirs
    }

    /// Lists directories again. If `settled` is false, a SKILL.md that no longer parses keeps its
    /// last version, and the token of its directory is added to `unstable`.
    pub fn relist(
        &mut self,
        dirs: HashSet<ResolvedPath>,
        settled: bool,
        unstable: &mut Vec<u64>,
        context: &ScanContext<'_>,
    ) -> RelistOutcome {
        let ScanContext { target, watcher, progress, .. } = *context;
        let truncated = self.catalog.as_ref().is_some_and(|c| c.header.truncated);
        let lister = DirLister::new(&self.snapshot, &self.rules.limits, &target.path, watcher);
        let mut buffers = ListBuffers::default();
        let mut outcome = RelistOutcome::default();
        let mut queue: Vec<_> = dirs.into_iter().collect();
        let mut links_checked = false;
        while let Some(path) = queue.pop() {
            let Some(dir) = self.dirs.get_mut(&path) else { continue };
            let result = lister.list_dir(&dir.to_scan(&path), dir.token(), &mut buffers);
            progress.tick();
            let was_listed = dir.listing().is_ok();
            let (change, is_stable) = dir.replace_listing(&path, result, settled, truncated);
            if !is_stable {
                unstable.push(dir.token());
            }
            match change {
                DirChange::None => {}
                DirChange::SkillFileOnly(old, new) => {
                    match self.catalog_builder.replace_skill(dir.walked_path(), &old, &new) {
                        Some(skill) => outcome.skills.push(skill),
                        None => outcome.scan_again = true,
                    }
                }
                DirChange::Structure(replaced) => {
                    self.plugins.forget_manifest(&path);
                    outcome.scan_again = true;
                    outcome.replaced.extend(replaced);
                }
            }
            self.has_new_hard_links |= dir.fingerprints().has_hard_links;
            if was_listed && dir.listing().is_err() && !links_checked {
                // A link to this directory may have a new target without an event. The new target
                // must be in the same revision.
                links_checked = true;
                let changed = self.dirs.iter().filter(|(path, dir)| {
                    dir.has_unreported_change(path, &self.snapshot, progress)
                });
                queue.extend(changed.map(|(path, _)| path.clone()));
            }
        }
        outcome
    }

    /// Replaces skills in the catalog. Returns the new catalog; `None` if `skills` is empty.
    pub fn replace_skills(&mut self, skills: &[Arc<Skill>]) -> Option<Arc<Catalog>> {
        let catalog = self.catalog.as_ref().filter(|_| !skills.is_empty())?;
        let catalog = Arc::new(catalog.with_replaced_skills(skills));
        self.catalog = Some(catalog.clone());
        Some(catalog)
    }

    /// Marks everything stale that was read in the directories of these tokens, below them, or
    /// below the targets of their links. Returns whether there is such a directory.
    pub fn invalidate_moved(&mut self, moved: &HashSet<u64>, watches: &RootWatches) -> bool {
        let listed = moved.iter().filter_map(|token| match watches.role(*token) {
            Some(WatchRole::Listed(dir)) => Some(dir),
            _ => None,
        });
        let moved: Vec<_> = listed.flat_map(|dir| self.dirs_reached_from(dir)).collect();
        self.mark_stale(&moved);
        !moved.is_empty()
    }

    /// Marks these directories and everything below them stale.
    pub fn mark_stale(&mut self, replaced: &[ResolvedPath]) {
        let is_in =
            |path: &ResolvedPath| replaced.iter().any(|top| path.strip_prefix(top).is_some());
        if replaced.is_empty() {
            return;
        }
        for (path, dir) in &mut self.dirs {
            if is_in(path) {
                dir.mark_stale();
            }
        }
        self.plugins.remove_if(is_in);
    }

    /// Returns a directory and the directories to which its links lead.
    fn dirs_reached_from(&self, dir: &ResolvedPath) -> Vec<ResolvedPath> {
        let listing = self.dirs.get(dir).and_then(|dir| dir.listing().as_deref().ok());
        let entries = listing.map_or(&[][..], |listing| &listing.entries);
        let linked = entries.iter().filter_map(|entry| match &entry.kind {
            ListingEntryKind::LinkedDirectory(to, _) => Some(to.clone()),
            _ => None,
        });
        linked.chain([dir.clone()]).collect()
    }

    /// Returns the directories in or linked from a directory that could not be listed.
    fn unlisted_dirs_in(&self, dir: &ResolvedPath) -> Vec<ResolvedPath> {
        let listing = self.dirs.get(dir).and_then(|dir| dir.listing().as_deref().ok());
        let entries = listing.map_or(&[][..], |listing| &listing.entries);
        let paths = entries.iter().filter_map(|entry| match &entry.kind {
            ListingEntryKind::LinkedDirectory(to, _) => Some(to.clone()),
            ListingEntryKind::Directory => dir.join(&entry.name),
            _ => None,
        });
        let is_unlisted =
            |path: &ResolvedPath| self.dirs.get(path).is_some_and(|dir| dir.listing().is_err());
        paths.filter(is_unlisted).collect()
    }

    /// Returns the tokens of directories that need a rescan although inotify reported nothing, with
    /// the directories at `mounts`.
    pub fn unreported_changes(
        &self,
        mounts: &HashSet<Box<[u8]>>,
        progress: &ScanProgress,
    ) -> HashSet<u64> {
        let has_changed = |(path, dir): &(&ResolvedPath, &ScannedDir)| {
            dir.has_unreported_change(path, &self.snapshot, progress)
        };
        let changed = self.dirs.iter().filter(has_changed).map(|(_, dir)| dir);
        // Every rescan retries failed manifests, so the token of the root is enough.
        let root = self.dirs.get(&self.path).filter(|_| self.plugins.has_failed_manifest());
        // A mount on a file changes the listing of the parent directory.
        let mounts = mounts.iter().filter_map(|mount| self.snapshot.locate_absolute(mount));
        let mounts = mounts.flat_map(|path| [path.parent(), Some(path)]).flatten();
        let mounted = mounts.filter_map(|path| self.dirs.get(&path));
        let dirs = changed.chain(root).chain(mounted).map(ScannedDir::token);
        dirs.chain(self.plugins.failed_tokens()).collect()
    }

    /// Returns the tokens of directories in which a file changed since it was read.
    pub fn outdated_tokens(&self, watches: &RootWatches, progress: &ScanProgress) -> HashSet<u64> {
        let snapshot = &self.snapshot;
        let is_outdated = |(path, dir): &(&ResolvedPath, &ScannedDir)| {
            progress.tick();
            dir.fingerprints().is_outdated(snapshot, path)
        };
        let dirs = self.dirs.iter().filter(is_outdated).map(|(_, dir)| dir.token());
        // An event of the listed manifest directory, or of the ancestor, has the manifest read
        // again.
        let manifests = self.plugins.outdated_manifests(snapshot).filter_map(|(dir, holder)| {
            let listed = self.dirs.get(&holder).map(ScannedDir::token);
            listed.or_else(|| watches.ancestor_token(dir))
        });
        dirs.chain(manifests).chain(self.plugins.outdated_tokens(snapshot)).collect()
    }

    /// Whether the root's path leads to another directory than before, or the snapshot is another.
    pub fn has_moved(&self, snapshot: &Arc<AllowedDirsSnapshot>, path: &[u8]) -> bool {
        let Ok(path) = snapshot.resolve(path) else { return true };
        let Ok(fd) = snapshot.open(&path, OFlags::PATH | OFlags::DIRECTORY) else { return true };
        let is_same = fstat(&fd).is_ok_and(|stat| identity(&stat) == self.identity);
        !is_same || !Arc::ptr_eq(snapshot, &self.snapshot) || path != self.path
    }

    pub fn forget_manifest(&mut self, dir: &ResolvedPath) {
        self.plugins.forget_manifest(dir);
    }

    pub fn forget_failed_manifests(&mut self) -> bool {
        self.plugins.forget_failed_manifests()
    }

    /// If a directory is a manifest directory, forgets its manifest. If `settled` is false, a good
    /// manifest that no longer parses is kept. Returns whether the manifest was forgotten; `None`
    /// for other directories.
    pub fn reread_manifest_in(&mut self, dir: &ResolvedPath, settled: bool) -> Option<bool> {
        let parent = dir.parent().filter(|_| is_manifest_directory(dir))?;
        Some(self.plugins.reread_manifest(&parent, &self.snapshot, settled))
    }

    /// Reads plugins again. Returns whether anything changed. If `settled` is false, a plugin with
    /// files that no longer parse stays unchanged, and its token is added to `unstable`.
    pub fn reread_plugins(
        &mut self,
        dirs: &HashSet<ResolvedPath>,
        settled: bool,
        unstable: &mut Vec<u64>,
        context: &ScanContext<'_>,
    ) -> bool {
        let reader = PluginReader::new(&self.snapshot, &self.rules, context.watcher);
        let mut has_changed = false;
        for dir in dirs {
            let is_root = *dir == self.path;
            has_changed |= self.plugins.reread(dir, is_root, settled, unstable, &reader);
            context.progress.tick();
        }
        has_changed
    }

    /// Returns the root and the directories that may hold a manifest, sorted by walked path.
    fn plugin_dir_candidates(&self) -> Vec<DirToScan> {
        let may_hold = |(path, dir): &(&ResolvedPath, &ScannedDir)| {
            dir.listing().as_ref().is_ok_and(|l| l.may_hold_manifest) || **path == self.path
        };
        let dirs = self.dirs.iter().filter(may_hold).map(|(path, dir)| dir.to_scan(path));
        let mut dirs: Vec<_> = dirs.collect();
        dirs.sort_by(|a, b| a.path.cmp(&b.path));
        dirs
    }
}

/// Returns the reason why a root cannot be opened. access(2) checks file permissions only: if it
/// succeeds although the root cannot be opened, the sandbox denied the access.
fn root_open_reason(
    snapshot: &AllowedDirsSnapshot,
    root: &ResolvedPath,
    error: Errno,
) -> RootReason {
    let is_permitted = || {
        let dir = snapshot.open(root, OFlags::PATH | OFlags::DIRECTORY)?;
        accessat(&dir, c".", Access::READ_OK | Access::EXEC_OK, AtFlags::EACCESS)
    };
    match RootReason::from(resolve_error(error)) {
        RootReason::PermissionDenied if is_permitted().is_ok() => RootReason::SandboxDenied,
        reason => reason,
    }
}
