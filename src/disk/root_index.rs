//! Everything that is held of one root between searches, so that a change re-reads what changed and
//! nothing else. Blocking; reads on a few threads of its own, so that a root that hangs holds up
//! nobody else.

use super::allowed_dirs::AllowedDirs;
use super::catalog_builder::CatalogBuilder;
use super::dir_lister::{DirLister, ListBuffers, ListedDir, is_manifest_directory};
use super::dir_watcher::{DirWatcher, NoDirWatcher, WatchGuard};
use super::scan_progress::ScanProgress;
use super::scanned_root::{DirChange, ScannedDirs, ScannedRoot, keep_last_good_skill};
use crate::domain::search::SearchRules;
use crate::domain::{Catalog, PublishedRoot, ResolvedPath, RootReason};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// What to search, and how.
#[derive(Debug, Clone)]
pub struct ScanTarget {
    /// The root's path, absolute, as selected.
    pub path: Box<[u8]>,
    /// What the search may do. Whether links are followed, and the fences, come from `published`.
    pub rules: SearchRules,
    /// All published roots; the target may be one of them, by any path.
    pub published: Arc<[PublishedRoot]>,
}

/// What was told of a root since it was looked at.
#[derive(Debug, Default)]
pub struct DirtyDirs {
    /// Tokens of directories that changed.
    pub tokens: HashSet<u64>,
    /// Those of them that were moved, or on whose way something was. It may be back by now, and look
    /// as it did; what was read by a path while it was away was read of something else, or not at all.
    pub moved: HashSet<u64>,
    /// Whether to compare every file that was read with the disk. A change through another name of a
    /// file, made before the file was known to have one, is found only in this way.
    pub compare_files: bool,
}

/// What a look at a root gave.
#[derive(Debug)]
pub struct ScanOutcome {
    /// What the root holds; `None` where it is as it was.
    pub catalog: Option<Result<Arc<Catalog>, RootReason>>,
    /// Tokens of directories to look at again once they are quiet.
    pub unstable: Vec<u64>,
}

/// What is held of one root.
#[derive(Debug)]
pub struct RootIndex {
    pub(super) target: ScanTarget,
    pub(super) next_token: AtomicU64,
    pub(super) watch_roles: HashMap<u64, WatchRole>,
    /// Watches on the way to the root.
    pub(super) path_watches: Vec<WatchGuard>,
    /// Watches on the places for manifests above the root.
    pub(super) ancestor_watches: Vec<WatchGuard>,
    /// Why the root could not be used, when it was looked at last.
    pub(super) unusable_reason: Option<RootReason>,
    pub(super) scanned_root: Option<ScannedRoot>,
}

/// What a watched directory is to the root.
#[derive(Debug, Clone)]
pub(super) enum WatchRole {
    /// It was listed.
    Listed(ResolvedPath),
    /// A plugin declares something in it, or the root lists plugins in it.
    Plugin(ResolvedPath),
    /// It is on the way to the root.
    RootPath,
    /// It is above the root, and may hold or is the directory of a manifest.
    Ancestor(ResolvedPath),
}

/// Searches a root once, and forgets all but the catalog.
pub fn scan_root(
    allowed: &AllowedDirs,
    target: &ScanTarget,
    progress: &ScanProgress,
) -> Result<Arc<Catalog>, RootReason> {
    let mut survey = RootIndex::new(target.clone());
    let surveyed = survey.rescan_all(allowed, &NoDirWatcher, progress);
    surveyed.catalog.unwrap_or(Err(RootReason::IoError))
}

impl RootIndex {
    /// Nothing is known yet.
    #[must_use]
    pub fn new(target: ScanTarget) -> Self {
        Self {
            target,
            next_token: AtomicU64::new(0),
            watch_roles: HashMap::new(),
            path_watches: Vec::new(),
            ancestor_watches: Vec::new(),
            unusable_reason: None,
            scanned_root: None,
        }
    }

    /// Searches by another target, of the same path, from the next look at everything on.
    pub fn set_target(&mut self, target: ScanTarget) {
        self.target = target;
        if let Some(found) = &mut self.scanned_root {
            // Put together by the rules that were.
            found.catalog_builder = CatalogBuilder::default();
        }
    }

    /// Searches the root from its path on. Only what a file last said when it still parsed is taken
    /// over from before.
    pub fn rescan_all(
        &mut self,
        allowed: &AllowedDirs,
        watching: &dyn DirWatcher,
        progress: &ScanProgress,
    ) -> ScanOutcome {
        self.watch_roles.clear();
        let old =
            (std::mem::take(&mut self.path_watches), std::mem::take(&mut self.ancestor_watches));
        self.watch_root_path(watching);
        let catalog = match self.resolve_root(allowed.snapshot_for_path(&self.target.path)) {
            Err(reason) => {
                if reason == RootReason::SandboxDenied && self.unusable_reason != Some(reason) {
                    tracing::warn!(
                        "a root was made anew after the daemon restricted itself, and is closed to it; \
                         restart the daemon"
                    );
                }
                self.unusable_reason = Some(reason);
                self.scanned_root = None;
                Err(reason)
            }
            Ok(mut found) => {
                let mut old = ScannedDirs::new();
                if let Some(mut last) = self.scanned_root.take() {
                    old = last.take_dirs_for(&found.snapshot);
                    (found.catalog_builder, found.catalog) = (last.catalog_builder, last.catalog);
                    found.plugin_dirs = last.plugin_dirs;
                }
                self.watch_ancestors(&found, watching);
                let catalog = self.run_search(&mut found, old, false, watching, progress);
                self.scanned_root = Some(found);
                Ok(catalog)
            }
        };
        drop(old);
        let unsettled = self.outdated_by_hard_links(progress).into_iter().collect();
        ScanOutcome { catalog: Some(catalog), unstable: unsettled }
    }

    /// Looks again at the directories of the tokens. Where a file does not parse and its directory
    /// is not `quiet` yet, it stays as it was for now.
    pub fn rescan_dirty(
        &mut self,
        allowed: &AllowedDirs,
        dirty: &DirtyDirs,
        quiet: bool,
        watching: &dyn DirWatcher,
        progress: &ScanProgress,
    ) -> ScanOutcome {
        let mut tokens = dirty.tokens.clone();
        if dirty.compare_files {
            tokens.extend(self.outdated_tokens(progress));
        }
        let mut surveyed =
            self.relist_dirs(allowed, &tokens, &dirty.moved, quiet, watching, progress);
        surveyed.unstable.extend(self.outdated_by_hard_links(progress));
        surveyed
    }

    fn relist_dirs(
        &mut self,
        allowed: &AllowedDirs,
        tokens: &HashSet<u64>,
        moved: &HashSet<u64>,
        quiet: bool,
        watching: &dyn DirWatcher,
        progress: &ScanProgress,
    ) -> ScanOutcome {
        let mut search_again =
            self.rewatch_ancestors(tokens, watching) | self.invalidate_moved(moved);
        let Some(found) = &mut self.scanned_root else {
            return self.rescan_all(allowed, watching, progress);
        };
        search_again |= found.forget_failed_manifests();
        let mut relist: HashSet<ResolvedPath> = HashSet::new();
        let mut declaring: HashSet<ResolvedPath> = HashSet::new();
        let mut unsettled = Vec::new();
        let truncated = found.catalog.as_ref().is_some_and(|c| c.header.truncated);
        for token in tokens {
            match self.watch_roles.get(token) {
                // Of a directory that is no longer part of the root, or was looked at above.
                None | Some(WatchRole::Ancestor(_)) => {}
                Some(WatchRole::RootPath) => {
                    if moved.contains(token)
                        || found.has_moved(
                            &allowed.snapshot_for_path(&self.target.path),
                            &self.target.path,
                        )
                    {
                        return self.rescan_all(allowed, watching, progress);
                    }
                }
                Some(WatchRole::Plugin(dir)) => drop(declaring.insert(dir.clone())),
                Some(WatchRole::Listed(dir)) => {
                    let name = dir.rel_path.file_name().unwrap_or_default();
                    if let Some(parent) = dir.parent() {
                        if is_manifest_directory(dir) {
                            if found.reread_manifest(&parent, quiet) {
                                search_again = true;
                            } else {
                                unsettled.push(*token);
                            }
                        } else if name == b"agents" && found.dirs.contains_key(&parent) {
                            relist.insert(parent);
                        }
                    }
                    relist.insert(dir.clone());
                    // Nothing is told of one that could not be listed, but here.
                    relist.extend(found.unlisted_dirs_in(dir));
                }
            }
        }
        let (mut skills, mut elsewhere) = (Vec::new(), Vec::new());
        let lister = DirLister {
            snapshot: &found.snapshot,
            limits: &found.rules.limits,
            root_name: root_name(&self.target.path),
            watcher: watching,
        };
        let mut scratch = ListBuffers::default();
        let mut queue: Vec<_> = relist.into_iter().collect();
        let mut links_looked_at = false;
        while let Some(dir) = queue.pop() {
            let Some(node) = found.dirs.get_mut(&dir) else { continue };
            let visit = node.to_scan(&dir);
            let ListedDir { listing, guards, fingerprints: files } =
                lister.list_dir(&visit, node.token, &mut scratch);
            progress.tick();
            let listing = listing.map(|new| {
                let (new, is_settled) =
                    keep_last_good_skill(new, node.listing.as_deref().ok(), quiet);
                if !is_settled {
                    unsettled.push(node.token);
                }
                new
            });
            match DirChange::between(&dir, &listing, &node.listing, truncated) {
                DirChange::None => {}
                DirChange::SkillFileOnly(old, new) => {
                    match found.catalog_builder.replace_skill(&node.walked_path, &old, &new) {
                        Some(skill) => skills.push(skill),
                        None => search_again = true,
                    }
                }
                DirChange::Structure(moved) => {
                    found.manifests.remove(&dir);
                    search_again = true;
                    elsewhere.extend(moved);
                }
            }
            let went = listing.is_err() && node.listing.is_ok();
            node.listing = listing.map(Arc::new);
            (node.guards, node.fingerprints) = (guards, files);
            found.has_new_hard_links |= files.has_hard_links;
            if went && !links_looked_at {
                // A link that led here may lead elsewhere by now, though no event told: what it
                // leads to must come in the revision in which this goes.
                links_looked_at = true;
                let strayed = found
                    .dirs
                    .iter()
                    .filter(|(s, n)| n.has_unreported_change(s, &found.snapshot, progress));
                queue.extend(strayed.map(|(spot, _)| spot.clone()));
            }
        }
        search_again |= found.reread_plugins(&declaring, quiet, &mut unsettled, watching, progress);
        found.mark_stale(&elsewhere);
        if !search_again {
            let catalog = found.catalog.as_ref().filter(|_| !skills.is_empty());
            let catalog = catalog.map(|last| Arc::new(last.with_replaced_skills(&skills)));
            if let Some(new) = &catalog {
                found.catalog = Some(new.clone());
            }
            return ScanOutcome { catalog: catalog.map(Ok), unstable: unsettled };
        }
        let Some(mut found) = self.scanned_root.take() else {
            return ScanOutcome { catalog: None, unstable: unsettled };
        };
        let nodes = std::mem::take(&mut found.dirs);
        let catalog = self.run_search(&mut found, nodes, true, watching, progress);
        self.scanned_root = Some(found);
        ScanOutcome { catalog: Some(Ok(catalog)), unstable: unsettled }
    }

    /// Trusts nothing any more that is below these directories, or below what they link to; says
    /// whether there is such a directory.
    fn invalidate_moved(&mut self, moved: &HashSet<u64>) -> bool {
        let Some(found) = &mut self.scanned_root else { return false };
        let listed = moved.iter().filter_map(|token| match self.watch_roles.get(token) {
            Some(WatchRole::Listed(dir)) => Some(dir),
            _ => None,
        });
        let moved: Vec<_> = listed.flat_map(|dir| found.dirs_reached_from(dir)).collect();
        found.mark_stale(&moved);
        !moved.is_empty()
    }

    /// What was found last, or why nothing was.
    #[must_use]
    pub fn last_result(&self) -> Option<Result<Arc<Catalog>, RootReason>> {
        match &self.scanned_root {
            Some(found) => found.catalog.clone().map(Ok),
            None => self.unusable_reason.map(Err),
        }
    }

    /// Whether the root could be used when it was looked at last.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.scanned_root.is_some()
    }

    /// The name of a filesystem below the root that tells no events of what others change, if there
    /// is one.
    #[must_use]
    pub fn no_inotify_support(&self) -> Option<&'static str> {
        self.scanned_root.as_ref()?.filesystems.no_inotify_support()
    }

    /// Whether an overlay filesystem is below the root, which misses some events.
    #[must_use]
    pub fn has_overlay(&self) -> bool {
        self.scanned_root.as_ref().is_some_and(|found| found.filesystems.has_overlay())
    }
}

/// The name of a root that is itself a skill and has none.
pub(super) fn root_name(path: &[u8]) -> Option<&[u8]> {
    path.split(|b| *b == b'/').rfind(|s| !s.is_empty())
}
