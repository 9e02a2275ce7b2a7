//! Runs a search over what is held of a root, lists what is not, and has a catalog made of what was
//! found. Leaves when to search, and what a change means, to `survey`.

use super::dir_lister::{self, DirLister};
use super::dir_watcher::DirWatcher;
use super::disabled_skills::SkillFilter;
use super::namespaces::NamespaceResolver;
use super::parallel_list::list_dirs;
use super::plugin_dir::PluginDir;
use super::root_index::{RootIndex, WatchRole, root_name};
use super::scan_progress::ScanProgress;
use super::scanned_root::{ScannedDir, ScannedDirs, ScannedRoot, reuse_unchanged};
use crate::domain::listing::DirToScan;
use crate::domain::search::SkillSearch;
use crate::domain::{Catalog, ResolvedPath};
use std::sync::Arc;

/// Directories of the last search that this one did not come to yet, and those that it did.
struct DirReuse {
    previous: ScannedDirs,
    current: ScannedDirs,
}

impl DirReuse {
    /// Takes a directory over as it is held, and has the search absorb it.
    fn keep_dir(&mut self, visit: DirToScan, search: &mut SkillSearch) {
        if let Some(node) = self.previous.swap_remove(&visit.resolved) {
            self.current.insert(visit.resolved.clone(), node);
        }
        let node = self.current.get(&visit.resolved).map(|node| node.listing.clone());
        search.add_listing(visit, node.unwrap_or_else(|| Err(dir_lister::vanished_problem())));
    }
}

impl RootIndex {
    /// Runs a search over what is held in `old`, and lists what is not. With `trusted`, what is held
    /// is as it is on the disk.
    pub(super) fn run_search(
        &mut self,
        found: &mut ScannedRoot,
        old: ScannedDirs,
        trusted: bool,
        watching: &dyn DirWatcher,
        progress: &ScanProgress,
    ) -> Arc<Catalog> {
        let mut search = SkillSearch::new(found.path.clone(), found.rules.clone());
        let mut nodes = DirReuse { current: ScannedDirs::with_capacity(old.len()), previous: old };
        loop {
            let round = search.next_round();
            if round.is_empty() {
                break;
            }
            let held = |node: Option<&ScannedDir>, visit: &DirToScan| {
                trusted && node.is_some_and(|n| !n.is_stale && n.walked_path == visit.path)
            };
            let new: Vec<_> = round
                .iter()
                .filter(|v| !held(nodes.previous.get(&v.resolved), v))
                .cloned()
                .collect();
            let lister = DirLister {
                snapshot: &found.snapshot,
                limits: &found.rules.limits,
                root_name: root_name(&self.target.path),
                watcher: watching,
            };
            nodes.current.reserve(new.len());
            self.watch_roles.reserve(new.len());
            let mut round = round.into_iter().peekable();
            list_dirs(&lister, &new, &self.next_token, progress, |visit, token, listed| {
                while let Some(held) = round.next_if(|next| next.path != visit.path) {
                    nodes.keep_dir(held, &mut search);
                }
                let Some(DirToScan { path: walked, resolved: spot, via_link: linked }) =
                    round.next()
                else {
                    return;
                };
                let last = nodes.previous.swap_remove(&spot);
                if let Some(last) = &last {
                    self.watch_roles.remove(&last.token);
                }
                let last = last.and_then(|node| node.listing.ok());
                let listing = listed.listing.map(|new| {
                    found.filesystems.record_filesystem(&found.snapshot, &spot, new.identity.0);
                    reuse_unchanged(new, last)
                });
                self.watch_roles.insert(token, WatchRole::Listed(spot.clone()));
                let (guards, files, held) = (listed.guards, listed.fingerprints, listing.clone());
                found.has_new_hard_links |= files.has_hard_links;
                let node = ScannedDir {
                    walked_path: walked,
                    via_link: linked,
                    token,
                    listing,
                    is_stale: false,
                    guards,
                    fingerprints: files,
                };
                nodes.current.insert(spot, node);
                search.add_listing(visit.clone(), held);
            });
            round.for_each(|held| nodes.keep_dir(held, &mut search));
        }
        for gone in nodes.previous.into_values() {
            self.watch_roles.remove(&gone.token);
        }
        found.dirs = nodes.current;
        let mut ended = search.finish();
        let known =
            found.read_missing_manifests(&ended.entered_dirs, &mut ended.findings.diagnostics);
        let gathered = found.collect_plugins(
            &mut ended.findings.diagnostics,
            trusted,
            &self.next_token,
            watching,
        );
        self.watch_roles.retain(|_, token| !matches!(token, WatchRole::Plugin(_)));
        let declares = |(dir, held): (&ResolvedPath, &PluginDir)| {
            (held.token(), WatchRole::Plugin(dir.clone()))
        };
        self.watch_roles.extend(found.plugin_dirs.iter().map(declares));
        let ScannedRoot {
            snapshot: ground,
            path: root,
            rules,
            scope,
            manifests,
            catalog_builder: assembly,
            ..
        } = found;
        let namespaces = NamespaceResolver {
            snapshot: ground,
            root,
            entered_dirs: &ended.entered_dirs,
            manifests,
            namespace_cache: known,
        };
        let sieve = SkillFilter::new(ground, root, &self.target.published, &rules.disable_rules);
        let follow_links = rules.follow_links;
        let new = assembly.build_catalog(
            namespaces,
            sieve,
            ended.findings,
            gathered,
            *scope,
            follow_links,
        );
        // One that means the same stays the very same, which costs nobody a look.
        let last = found.catalog.take().filter(|last| last.is_equivalent(&new));
        found.catalog.insert(last.unwrap_or_else(|| Arc::new(new))).clone()
    }
}
