//! Scan of a root, and its result. The search decides which directories are listed; directories of
//! the last scan are reused if they are trusted.

use super::catalog_builder::{CatalogBuilder, CatalogSettings};
use super::dir_lister::{DirLister, ListBuffers};
use super::file_problem::vanished_problem;
use super::namespaces::NamespaceResolver;
use super::parallel_list::process_in_order;
use super::plugin_reader::PluginReader;
use super::plugin_set::PluginIndex;
use super::scan_progress::ScanProgress;
use super::scanned_dir::{
    DirToScan, ListedDir, ListingEntry, ListingEntryKind, ScannedDir, ScannedDirs,
};
use super::search::{SearchOutcome, SearchRules, SkillSearch};
use super::watches::{DIR_FLAGS, DirWatcher, RootWatches, WatchRole};
use crate::daemon::fs::dirs_snapshot::{AllowedDirsSnapshot, ResolveError, identity};
use crate::daemon::fs::disabled_skills::SkillFilter;
use crate::daemon::fs::filesystem_types::FilesystemTypes;
use crate::daemon::fs::open_file::{LinkText, read_names};
use crate::daemon::model::{
    Catalog, DiagnosticCode, DirIdentity, PublishedRoot, ResolvedPath, RootReason, RootScope,
};
use caproot_core::text::EscapedBytes;
use caproot_core::wire::RelPath;
use rustix::fs::{Access, AtFlags, OFlags, Stat, accessat, fstat};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum number of directories that are listed without additional threads.
const MAX_INLINE_DIRS: usize = 8;
/// Maximum number of links that are logged for one scan.
const MAX_LOGGED_LINKS: usize = 3;

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
    /// Whether files that were read must be compared with the disk, because a change of one may have
    /// caused no event.
    pub needs_comparison: bool,
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
        let fd = snapshot
            .open(&path, OFlags::RDONLY | OFlags::DIRECTORY)
            .map_err(|error| root_open_reason(&snapshot, &path, error))?;
        let stat = fstat(&fd).map_err(ResolveError::from)?;
        if is_removed_mount(&fd, &stat) {
            return Err(RootReason::MountRemoved);
        }

        let mut rules = target.rules.clone();
        let mut scope = None;
        let published_paths = snapshot.published_paths_of(&target.published);
        // A lock with roots applies if one of them is the root, or lies below or above the root.
        rules.trust = rules.trust.filter(|trust| {
            let Some(locked) = &trust.roots else {
                return true;
            };
            let mut published = target.published.iter().zip(&published_paths.by_root);
            published.any(|(published, other)| {
                let is_related = |other: &ResolvedPath| {
                    path.strip_prefix(other).is_some() || other.strip_prefix(&path).is_some()
                };
                locked.contains(&published.id) && other.as_ref().is_some_and(is_related)
            })
        });

        // If several published roots lead here, the first gives the scope, the strictest the links.
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
            identity: identity(&stat),
            rules,
            scope,
            dirs: ScannedDirs::new(),
            plugins: PluginIndex::default(),
            catalog_builder: CatalogBuilder::default(),
            filesystems: FilesystemTypes::default(),
            catalog: None,
            needs_comparison: false,
        })
    }

    /// Takes the results of the last scan over, with the paths of its directories in the new
    /// snapshot. Directories outside the new snapshot are dropped.
    pub fn take_over(&mut self, last: Self) {
        self.catalog_builder = last.catalog_builder;
        self.catalog = last.catalog;
        self.plugins = last.plugins;
        self.plugins.manifests.clear();
        if Arc::ptr_eq(&self.snapshot, &last.snapshot) {
            self.dirs = last.dirs;
            return;
        }

        let dirs = last.dirs.into_iter();
        let moved = dirs.filter_map(|(path, dir)| {
            let path = last.snapshot.absolute_bytes(&path);
            Some((self.snapshot.locate_absolute(&path)?, dir))
        });
        self.dirs = moved.collect();
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
        self.log_outside_links(&new);

        // An equivalent catalog keeps its `Arc`, so that users need not compare it.
        let last = self.catalog.take().filter(|last| last.is_equivalent(&new));
        self.catalog
            .insert(last.unwrap_or_else(|| Arc::new(new)))
            .clone()
    }

    /// Logs the targets of links that lead outside, if the last catalog does not have the links. The list of a
    /// caller does not show the targets.
    fn log_outside_links(&self, new: &Catalog) {
        let known: HashSet<_> = self
            .catalog
            .iter()
            .flat_map(|last| outside_links(last))
            .collect();
        let new = outside_links(new).filter(|link| !known.contains(link));

        let root = self.snapshot.absolute_bytes(&self.path);
        let root = EscapedBytes(&root);
        for link in new.take(MAX_LOGGED_LINKS) {
            // The link may have been replaced since the scan.
            let Some(text) = LinkText::read(&self.snapshot, &self.path, link) else {
                continue;
            };
            let target = EscapedBytes(&text.target);
            if text.is_dangling {
                tracing::info!(%root, %link, %target, "a link leads to nothing");
            } else {
                tracing::info!(
                    %root, %link, %target,
                    "a link leads outside the allowed directories; start the daemon with --allow for the \
                     directory of its target"
                );
            }
        }
    }

    /// Searches the root for skills, and replaces the directories of the last scan.
    fn search_dirs(
        &mut self,
        trusted: bool,
        watches: &mut RootWatches,
        context: &ScanContext<'_>,
    ) -> SearchOutcome {
        let previous = std::mem::take(&mut self.dirs);
        let mut search = SkillSearch::new(self.path.clone(), self.rules.clone());
        let mut dirs = DirReuse {
            current: ScannedDirs::with_capacity(previous.len()),
            previous,
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
            dirs.current.reserve(new.len());

            let mut round = round.into_iter().peekable();
            self.list_new_dirs(&new, context, |root, listed_dir, token, listed| {
                // The search takes the listings in the order of the round, kept and new ones mixed.
                while let Some(kept) = round.next_if(|next| next.path != listed_dir.path) {
                    dirs.keep_dir(kept, &mut search);
                }
                let Some(dir) = round.next() else { return };

                let path = dir.resolved.clone();
                let last = dirs.previous.swap_remove(&path);
                if let Some(last) = &last {
                    watches.roles.remove(&last.token);
                }
                let now = context.progress.started_at();
                let scanned = ScannedDir::new(dir, token, listed, last, now);
                root.record_dir(&path, &scanned);
                watches.roles.insert(token, WatchRole::Listed(path.clone()));

                let listing = scanned.listing.clone();
                dirs.current.insert(path, scanned);
                search.add_listing(listed_dir.clone(), listing);
            });
            round.for_each(|kept| dirs.keep_dir(kept, &mut search));
        }

        for gone in dirs.previous.into_values() {
            watches.roles.remove(&gone.token);
        }
        self.dirs = dirs.current;
        search.finish()
    }

    /// Lists directories, and passes each listing with its token to `take` in their order.
    fn list_new_dirs(
        &mut self,
        new: &[DirToScan],
        context: &ScanContext<'_>,
        mut take: impl FnMut(&mut Self, &DirToScan, u64, ListedDir),
    ) {
        let snapshot = self.snapshot.clone();
        let limits = self.rules.limits.clone();
        let lister = DirLister {
            snapshot: &snapshot,
            limits: &limits,
            context,
        };

        let list = |dir: &DirToScan, buffers: &mut ListBuffers| {
            let token = context.next_token.fetch_add(1, Ordering::Relaxed);
            (token, lister.list_dir(dir, token, buffers))
        };
        process_in_order(
            new,
            MAX_INLINE_DIRS,
            context.progress,
            list,
            |dir, (token, listed)| take(self, dir, token, listed),
        );
    }

    /// Records the filesystem and the hard links of a scanned directory.
    fn record_dir(&mut self, path: &ResolvedPath, scanned: &ScannedDir) {
        if let Ok(listing) = &scanned.listing {
            let device = listing.identity.0;
            self.filesystems
                .record_filesystem(&self.snapshot, path, device);
        }
        self.needs_comparison |= scanned.fingerprints.has_hard_links;
    }

    /// Reads the plugins, and builds the catalog of the skills and plugins.
    fn build_catalog(
        &mut self,
        mut outcome: SearchOutcome,
        trusted: bool,
        watches: &mut RootWatches,
        context: &ScanContext<'_>,
    ) -> Catalog {
        let candidates = self.plugin_dir_candidates();
        let reader = PluginReader {
            snapshot: &self.snapshot,
            rules: &self.rules,
            root: &self.path,
            context,
        };
        let may_hold_manifest = candidates
            .iter()
            .map(|dir| &dir.resolved)
            .filter(|dir| outcome.entered_dirs.get(*dir) != Some(&false));
        self.plugins.read_manifests(may_hold_manifest, &reader);

        // Reads the manifests above the root, and reports the problems of all manifests.
        let diagnostics = &mut outcome.findings.diagnostics;
        let mut namespaces = NamespaceResolver {
            reader: &reader,
            entered_dirs: &outcome.entered_dirs,
            plugins: &mut self.plugins,
            found: HashMap::new(),
        };
        for dir in &candidates {
            namespaces.find_namespace(&dir.resolved, diagnostics);
        }

        let index = &mut *namespaces.plugins;
        index.read_plugins(&candidates, trusted, &reader);
        let plugins = index.collect(&candidates, &self.path, diagnostics);
        watches.replace_plugins(index);

        let filter = SkillFilter::new(
            &self.snapshot,
            &self.path,
            &context.target.published,
            &self.rules.disable_rules,
        );
        let settings = CatalogSettings {
            scope: self.scope,
            follow_links: self.rules.follow_links,
            trust: self.rules.trust.as_ref(),
        };
        let catalog = self.catalog_builder.build_catalog(
            namespaces,
            filter,
            outcome.findings,
            plugins,
            &settings,
        );

        // The manifests of directories that are not listed, such as the directories above the target of a
        // link, are watched only now. New ones were read before they were watched, so they are compared.
        let dirs = self.plugins.manifests.keys();
        for dir in dirs.filter(|dir| !self.dirs.contains_key(*dir)) {
            self.needs_comparison |= watches.watch_manifest_place(&self.snapshot, dir, context);
        }
        catalog
    }

    /// Whether the root's path leads to another directory than before, or the snapshot is another.
    pub fn has_moved(&self, snapshot: &Arc<AllowedDirsSnapshot>, path: &[u8]) -> bool {
        let Ok(path) = snapshot.resolve(path) else {
            return true;
        };
        let stat = snapshot.open(&path, DIR_FLAGS).and_then(fstat);
        let is_same = stat.is_ok_and(|stat| identity(&stat) == self.identity);
        !is_same || !Arc::ptr_eq(snapshot, &self.snapshot) || path != self.path
    }

    /// Marks everything stale that was read in these directories, below them, or below the targets
    /// of their links.
    pub fn mark_moved_stale(&mut self, moved: &[ResolvedPath]) {
        let mut reached = moved.to_vec();
        for entry in moved.iter().flat_map(|dir| self.entries(dir)) {
            if let ListingEntryKind::LinkedDirectory(to, _) = &entry.kind {
                reached.push(to.clone());
            }
        }
        self.mark_stale(&reached);
    }

    /// Marks these directories and everything below them stale.
    pub fn mark_stale(&mut self, replaced: &[ResolvedPath]) {
        if replaced.is_empty() {
            return;
        }
        for (path, dir) in &mut self.dirs {
            if is_below_any(path, replaced) {
                dir.is_stale = true;
            }
        }
        let plugins = &mut self.plugins;
        plugins
            .manifests
            .retain(|path, _| !is_below_any(path, replaced));
        plugins.dirs.retain(|path, _| !is_below_any(path, replaced));
    }

    /// Returns the relevant entries of a directory; none if the directory was not listed.
    pub fn entries(&self, dir: &ResolvedPath) -> &[ListingEntry] {
        self.dirs.get(dir).map_or(&[], ScannedDir::entries)
    }

    /// Returns the root and the directories that may hold a manifest, sorted by walked path.
    fn plugin_dir_candidates(&self) -> Vec<DirToScan> {
        let may_hold = self.dirs.iter().filter(|(path, dir)| {
            dir.listing.as_ref().is_ok_and(|l| l.may_hold_manifest) || **path == self.path
        });
        let mut dirs: Vec<_> = may_hold.map(|(path, dir)| dir.to_scan(path)).collect();
        dirs.sort_by(|a, b| a.path.cmp(&b.path));
        dirs
    }
}

impl DirReuse {
    /// Whether the last scan listed the directory, and its listing is not stale.
    fn can_reuse(&self, dir: &DirToScan) -> bool {
        let last = self.previous.get(&dir.resolved);
        last.is_some_and(|last| !last.is_stale && last.walked_path == dir.path)
    }

    /// Passes the last listing of a directory to the search.
    fn keep_dir(&mut self, dir: DirToScan, search: &mut SkillSearch) {
        if let Some(last) = self.previous.swap_remove(&dir.resolved) {
            self.current.insert(dir.resolved.clone(), last);
        }
        let kept = self.current.get(&dir.resolved);
        let listing = kept.map_or_else(|| Err(vanished_problem()), |kept| kept.listing.clone());
        search.add_listing(dir, listing);
    }
}

/// Returns the links of a catalog that lead outside the allowed directories.
fn outside_links(catalog: &Catalog) -> impl Iterator<Item = &RelPath> {
    let diagnostics = catalog.diagnostics.kept().iter();
    let outside = diagnostics.filter(|d| d.problem.code == DiagnosticCode::OutsideRoot);
    outside.filter_map(|d| d.resource.as_ref())
}

/// Returns the reason why a root cannot be opened. access(2) checks file permissions only: if it
/// succeeds although the root cannot be opened, the sandbox denied the access.
fn root_open_reason(
    snapshot: &AllowedDirsSnapshot,
    root: &ResolvedPath,
    error: Errno,
) -> RootReason {
    let reason = RootReason::from(ResolveError::from(error));
    if reason != RootReason::PermissionDenied {
        return reason;
    }

    let dir = snapshot.open(root, DIR_FLAGS);
    let access = Access::READ_OK | Access::EXEC_OK;
    match dir.and_then(|dir| accessat(&dir, c".", access, AtFlags::EACCESS)) {
        Ok(()) => RootReason::SandboxDenied,
        Err(_) => reason,
    }
}

/// Whether an open directory was removed although its path still leads to it, as at a mount whose source
/// was removed. The number of links is checked first, because it costs nothing. Some
/// filesystems always report 0, so a listing must fail, too.
fn is_removed_mount(dir: &OwnedFd, stat: &Stat) -> bool {
    stat.st_nlink == 0 && matches!(read_names(dir, 0, &mut Vec::new()), Err(Errno::NOENT))
}

/// Whether a path is one of the directories, or below one of them.
fn is_below_any(path: &ResolvedPath, dirs: &[ResolvedPath]) -> bool {
    dirs.iter().any(|dir| path.strip_prefix(dir).is_some())
}
