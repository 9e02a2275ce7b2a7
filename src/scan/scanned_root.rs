//! Scan of a root, and its result. The search decides which directories are listed; directories of
//! the last scan are reused if they are trusted.

use super::catalog_builder::CatalogBuilder;
use super::dir_lister::DirLister;
use super::file_problem::vanished_problem;
use super::namespaces::{ManifestReader, NamespaceResolver};
use super::parallel_list::list_dirs;
use super::plugin_reader::PluginReader;
use super::plugin_set::PluginIndex;
use super::scan_progress::ScanProgress;
use super::scanned_dir::{DirToScan, ListingEntryKind, ScannedDir, ScannedDirs};
use super::search::{SearchOutcome, SearchRules, SkillSearch};
use super::watches::DirWatcher;
use super::watches::RootWatches;
use crate::fs::dirs_snapshot::{AllowedDirsSnapshot, identity};
use crate::fs::disabled_skills::SkillFilter;
use crate::fs::filesystem_types::FilesystemTypes;
use crate::fs::open_file::resolve_error;
use crate::model::{Catalog, DirIdentity, PublishedRoot, ResolvedPath, RootReason, RootScope};
use rustix::fs::{Access, AtFlags, OFlags, accessat, fstat};
use rustix::io::Errno;
use std::collections::HashMap;
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

/// Result of the last scan of a usable root.
#[derive(Debug)]
pub struct ScannedRoot {
    pub snapshot: Arc<AllowedDirsSnapshot>,
    pub path: ResolvedPath,
    identity: DirIdentity,
    pub rules: SearchRules,
    scope: Option<RootScope>,
    pub dirs: ScannedDirs,
    pub plugins: PluginIndex,
    pub catalog_builder: CatalogBuilder,
    pub filesystems: FilesystemTypes,
    /// `None` before the first scan.
    pub catalog: Option<Arc<Catalog>>,
    /// Whether a directory with a hard-linked file was listed since the flag was last taken.
    pub has_new_hard_links: bool,
}

/// Parameters of one scan.
pub struct ScanContext<'a> {
    pub target: &'a ScanTarget,
    pub next_token: &'a AtomicU64,
    pub watcher: &'a dyn DirWatcher,
    pub progress: &'a ScanProgress,
}

/// Directories of the last scan and of the scan in progress.
struct DirReuse {
    /// Directories of the last scan that were not reached yet.
    previous: ScannedDirs,
    current: ScannedDirs,
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

    /// Takes the results of the last scan over, with the paths of its directories in the new
    /// snapshot. Directories outside the new snapshot are dropped.
    pub fn take_over(&mut self, last: Self) {
        (self.catalog_builder, self.catalog) = (last.catalog_builder, last.catalog);
        self.plugins.take_plugins(last.plugins);
        if Arc::ptr_eq(&self.snapshot, &last.snapshot) {
            self.dirs = last.dirs;
            return;
        }
        let moved = |path: ResolvedPath| {
            self.snapshot
                .locate_absolute(&last.snapshot.absolute_bytes(&path))
        };
        let dirs = last.dirs.into_iter();
        self.dirs = dirs
            .filter_map(|(path, dir)| Some((moved(path)?, dir)))
            .collect();
    }

    /// Scans the root. If `trusted` is set, a directory of the last scan that is not stale is not
    /// listed again.
    pub fn scan(
        &mut self,
        trusted: bool,
        watches: &mut RootWatches,
        context: &ScanContext<'_>,
    ) -> Arc<Catalog> {
        let outcome = self.search_dirs(trusted, watches, context);
        let new = self.build_catalog(outcome, trusted, watches, context);
        // An equivalent catalog keeps its `Arc`, so that users need not compare it.
        let last = self.catalog.take().filter(|last| last.is_equivalent(&new));
        self.catalog
            .insert(last.unwrap_or_else(|| Arc::new(new)))
            .clone()
    }

    /// Searches the root for skills, and replaces the directories of the last scan.
    fn search_dirs(
        &mut self,
        trusted: bool,
        watches: &mut RootWatches,
        context: &ScanContext<'_>,
    ) -> SearchOutcome {
        let ScanContext {
            target,
            next_token,
            watcher,
            progress,
        } = *context;
        let old = std::mem::take(&mut self.dirs);
        let mut search = SkillSearch::new(self.path.clone(), self.rules.clone());
        let mut dirs = DirReuse {
            current: ScannedDirs::with_capacity(old.len()),
            previous: old,
        };
        loop {
            let round = search.next_round();
            if round.is_empty() {
                break;
            }
            let new: Vec<_> = round
                .iter()
                .filter(|dir| !trusted || !dirs.can_reuse(dir))
                .cloned()
                .collect();
            let lister = DirLister::new(
                &self.snapshot,
                &self.rules.limits,
                &target.path,
                watcher,
                progress,
            );
            dirs.current.reserve(new.len());
            watches.reserve(new.len());
            let mut round = round.into_iter().peekable();
            list_dirs(
                &lister,
                &new,
                next_token,
                progress,
                |listed_dir, token, listed| {
                    while let Some(kept) = round.next_if(|next| next.path != listed_dir.path) {
                        dirs.keep_dir(kept, &mut search);
                    }
                    let Some(dir) = round.next() else { return };
                    let path = dir.resolved.clone();
                    let last = dirs.previous.swap_remove(&path);
                    if let Some(last) = &last {
                        watches.remove(last.token());
                    }
                    let scanned = ScannedDir::new(dir, token, listed, last, progress.started_at());
                    if let Ok(listing) = scanned.listing() {
                        let device = listing.identity.0;
                        self.filesystems
                            .record_filesystem(&self.snapshot, &path, device);
                    }
                    watches.insert_listed(token, path.clone());
                    self.has_new_hard_links |= scanned.fingerprints().has_hard_links;
                    let listing = scanned.listing().clone();
                    dirs.current.insert(path, scanned);
                    search.add_listing(listed_dir.clone(), listing);
                },
            );
            round.for_each(|kept| dirs.keep_dir(kept, &mut search));
        }
        for gone in dirs.previous.into_values() {
            watches.remove(gone.token());
        }
        self.dirs = dirs.current;
        search.finish()
    }

    /// Reads the plugins, and builds the catalog of the skills and plugins.
    fn build_catalog(
        &mut self,
        mut outcome: SearchOutcome,
        trusted: bool,
        watches: &mut RootWatches,
        context: &ScanContext<'_>,
    ) -> Catalog {
        let ScanContext {
            target,
            next_token,
            watcher,
            progress,
        } = *context;
        let diagnostics = &mut outcome.findings.diagnostics;
        let candidates = self.plugin_dir_candidates();
        let may_hold_manifest =
            |dir: &&ResolvedPath| outcome.entered_dirs.get(*dir) != Some(&false);
        let dirs = candidates
            .iter()
            .map(|dir| &dir.resolved)
            .filter(may_hold_manifest);
        let manifest_reader = ManifestReader {
            snapshot: &self.snapshot,
            progress,
        };
        self.plugins.read_manifests(dirs, manifest_reader);
        let mut namespaces = NamespaceResolver::new(
            manifest_reader,
            &self.path,
            &outcome.entered_dirs,
            &mut self.plugins.manifests,
            HashMap::new(),
        );
        // Reads the manifests above the root, and reports the problems of all manifests.
        for dir in &candidates {
            namespaces.find_namespace(&dir.resolved, diagnostics);
        }
        let namespace_cache = namespaces.into_cache();
        let reader = PluginReader::new(&self.snapshot, &self.rules, watcher, progress);
        let root = &self.path;
        self.plugins
            .read_plugins(&candidates, root, trusted, &reader, next_token, progress);
        let plugins = self.plugins.collect(&candidates, root, diagnostics);
        let tokens = self.plugins.tokens();
        watches.replace_plugins(tokens.map(|(token, dir)| (token, dir.clone())));
        let namespaces = NamespaceResolver::new(
            manifest_reader,
            &self.path,
            &outcome.entered_dirs,
            &mut self.plugins.manifests,
            namespace_cache,
        );
        let rules = &self.rules;
        let filter = SkillFilter::new(
            &self.snapshot,
            &self.path,
            &target.published,
            &rules.disable_rules,
        );
        self.catalog_builder.build_catalog(
            namespaces,
            filter,
            outcome.findings,
            plugins,
            self.scope,
            rules.follow_links,
        )
    }

    /// Whether the root's path leads to another directory than before, or the snapshot is another.
    pub fn has_moved(&self, snapshot: &Arc<AllowedDirsSnapshot>, path: &[u8]) -> bool {
        let Ok(path) = snapshot.resolve(path) else {
            return true;
        };
        let Ok(fd) = snapshot.open(&path, OFlags::PATH | OFlags::DIRECTORY) else {
            return true;
        };
        let is_same = fstat(&fd).is_ok_and(|stat| identity(&stat) == self.identity);
        !is_same || !Arc::ptr_eq(snapshot, &self.snapshot) || path != self.path
    }

    /// Marks everything stale that was read in these directories, below them, or below the targets
    /// of their links.
    pub fn mark_moved_stale(&mut self, moved: &[ResolvedPath]) {
        let reached: Vec<_> = moved
            .iter()
            .flat_map(|dir| self.dirs_reached_from(dir))
            .collect();
        self.mark_stale(&reached);
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
        let listing = self
            .dirs
            .get(dir)
            .and_then(|dir| dir.listing().as_deref().ok());
        let entries = listing.map_or(&[][..], |listing| &listing.entries);
        let linked = entries.iter().filter_map(|entry| match &entry.kind {
            ListingEntryKind::LinkedDirectory(to, _) => Some(to.clone()),
            _ => None,
        });
        linked.chain([dir.clone()]).collect()
    }

    /// Returns the root and the directories that may hold a manifest, sorted by walked path.
    fn plugin_dir_candidates(&self) -> Vec<DirToScan> {
        let may_hold = |(path, dir): &(&ResolvedPath, &ScannedDir)| {
            dir.listing().as_ref().is_ok_and(|l| l.may_hold_manifest) || **path == self.path
        };
        let dirs = self
            .dirs
            .iter()
            .filter(may_hold)
            .map(|(path, dir)| dir.to_scan(path));
        let mut dirs: Vec<_> = dirs.collect();
        dirs.sort_by(|a, b| a.path.cmp(&b.path));
        dirs
    }
}

impl DirReuse {
    /// Whether the last scan listed the directory, and its listing is still good.
    fn can_reuse(&self, dir: &DirToScan) -> bool {
        let previous = self.previous.get(&dir.resolved);
        previous.is_some_and(|last| last.is_reusable_for(dir))
    }

    /// Passes the last listing of a directory to the search.
    fn keep_dir(&mut self, dir: DirToScan, search: &mut SkillSearch) {
        if let Some(last) = self.previous.swap_remove(&dir.resolved) {
            self.current.insert(dir.resolved.clone(), last);
        }
        let listing = self
            .current
            .get(&dir.resolved)
            .map(|dir| dir.listing().clone());
        search.add_listing(dir, listing.unwrap_or_else(|| Err(vanished_problem())));
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
        accessat(
            &dir,
            c".",
            Access::READ_OK | Access::EXEC_OK,
            AtFlags::EACCESS,
        )
    };
    match RootReason::from(resolve_error(error)) {
        RootReason::PermissionDenied if is_permitted().is_ok() => RootReason::SandboxDenied,
        reason => reason,
    }
}
