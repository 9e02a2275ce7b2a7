//! What is held of the plugins and marketplaces below one root between searches, so that a change
//! re-reads the plugin that it is in and no other; and the way from there to a catalog's plugins.

use super::dir_watcher::DirWatcher;
use super::namespaces::{self, NamespaceResolver};
use super::plugin_dir::{PluginDir, read_marketplace_file};
use super::plugin_reader::{PluginContents, PluginReader};
use super::scan_progress::ScanProgress;
use super::scanned_root::{ScannedDir, ScannedRoot};
use crate::domain::catalog::BoundedDiagnostics;
use crate::domain::listing::DirToScan;
use crate::domain::plugin::{
    MAX_ROOT_PLUGIN_BYTES, MAX_ROOT_PLUGINS, Plugin, PluginMarketplace, marketplace,
};
use crate::domain::skill::PluginNamespace;
use crate::domain::{
    Diagnostic, DiagnosticCode, FileProblem, ManifestFiles, PluginManifest, RelPath, ResolvedPath,
};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// By directory.
pub(super) type PluginDirs = HashMap<ResolvedPath, PluginDir>;

/// What plugins add to a catalog.
#[derive(Debug, Default)]
pub(super) struct PluginSet {
    pub(super) plugins: Vec<Arc<Plugin>>,
    pub(super) marketplaces: Vec<PluginMarketplace>,
    pub(super) manifest_files: ManifestFiles,
}

impl ScannedRoot {
    fn plugin_reader<'a>(&'a self, watching: &'a dyn DirWatcher) -> PluginReader<'a> {
        PluginReader {
            snapshot: &self.snapshot,
            limits: &self.rules.limits,
            skipped_dirs: &self.rules.skipped_dirs,
            follow_links: self.rules.follow_links,
            watcher: watching,
        }
    }

    /// Reads a directory's manifest again; one that can no longer be used stays as it is until all is
    /// quiet, as if nothing had happened to it. Says whether it is settled.
    pub(super) fn reread_manifest(&mut self, dir: &ResolvedPath, quiet: bool) -> bool {
        let was_good = self.manifests.get(dir).is_some_and(|read| read.manifest.is_some());
        if !quiet && was_good && namespaces::read_manifest(&self.snapshot, dir).is_broken() {
            return false;
        }
        self.manifests.remove(dir);
        true
    }

    /// Reads plugins again; gives whether there is something new, and adds the tokens of those that are
    /// to be looked at again once they are quiet.
    pub(super) fn reread_plugins(
        &mut self,
        dirs: &HashSet<ResolvedPath>,
        quiet: bool,
        unsettled: &mut Vec<u64>,
        watching: &dyn DirWatcher,
        progress: &ScanProgress,
    ) -> bool {
        let mut any = false;
        for dir in dirs {
            let (differs, is_settled) = self.reread_plugin(dir, quiet, watching);
            progress.tick();
            any |= differs;
            let token = self.plugin_dirs.get(dir).map(PluginDir::token);
            unsettled.extend(token.filter(|_| !is_settled));
        }
        any
    }

    /// Reads a plugin again. Says whether there is something new, and whether that is settled: what
    /// can no longer be used stays as it is until all is quiet.
    fn reread_plugin(
        &mut self,
        dir: &ResolvedPath,
        quiet: bool,
        watching: &dyn DirWatcher,
    ) -> (bool, bool) {
        let Some(old) = self.plugin_dirs.get(dir) else { return (false, true) };
        let mut new = self.read_plugin_dir(dir, old.token, old.manifest.as_ref(), watching);
        let kept = new.keep_last_good(old);
        if kept && !quiet {
            // Only the watches are new.
            let guards = new.guards;
            self.plugin_dirs.entry(dir.clone()).and_modify(|held| held.guards = guards);
            return (false, false);
        }
        let differs =
            new.contents != old.contents || new.marketplace_files != old.marketplace_files;
        new.is_unchanged = old.is_unchanged && !differs;
        new.built_plugin.clone_from(&old.built_plugin);
        self.plugin_dirs.insert(dir.clone(), new);
        (differs, true)
    }

    fn read_plugin_dir(
        &self,
        dir: &ResolvedPath,
        token: u64,
        manifest: Option<&(PluginManifest, RelPath)>,
        watching: &dyn DirWatcher,
    ) -> PluginDir {
        let reader = self.plugin_reader(watching);
        let (mut plugin, mut guards) = (PluginContents::default(), Vec::new());
        if let Some((manifest, file)) = manifest {
            (plugin, guards) = reader.read(dir, manifest, file, token);
        }
        let lists = if *dir == self.path {
            let paths = marketplace::MARKETPLACE_PATHS.iter();
            let paths = paths.filter_map(|path| RelPath::new(path.as_bytes()));
            paths
                .filter_map(|file| read_marketplace_file(&reader, dir, file, token, &mut guards))
                .collect()
        } else {
            Vec::new()
        };
        PluginDir {
            token,
            guards,
            manifest: manifest.cloned(),
            contents: plugin,
            marketplace_files: lists,
            built_plugin: None,
            is_unchanged: false,
        }
    }

    /// The directories that may be plugins, and the root, by how they were walked to.
    fn plugin_dir_candidates(&self) -> Vec<DirToScan> {
        let may_hold = |(spot, node): &(&ResolvedPath, &ScannedDir)| {
            node.listing.as_ref().is_ok_and(|l| l.may_hold_manifest) || **spot == self.path
        };
        let dirs = self.dirs.iter().filter(may_hold).map(|(spot, node)| node.to_scan(spot));
        let mut dirs: Vec<_> = dirs.collect();
        dirs.sort_by(|a, b| a.path.cmp(&b.path));
        dirs
    }

    /// Reads the manifests that are not held, and says what is wrong with any; gives the plugins of
    /// the directories that were asked on the way.
    pub(super) fn read_missing_manifests(
        &mut self,
        entered: &HashMap<ResolvedPath, bool>,
        diagnostics: &mut BoundedDiagnostics,
    ) -> HashMap<ResolvedPath, Option<Arc<PluginNamespace>>> {
        let dirs = self.plugin_dir_candidates();
        let Self { snapshot: ground, path: root, manifests, .. } = self;
        let mut namespaces = NamespaceResolver {
            snapshot: ground,
            root,
            entered_dirs: entered,
            manifests,
            namespace_cache: HashMap::new(),
        };
        for visit in dirs {
            namespaces.find_namespace(&visit.resolved, diagnostics);
        }
        namespaces.namespace_cache
    }

    /// Every plugin and marketplace below the root, read where they are not held. `trusted`: what is
    /// held is as it is on the disk. Gives new directories tokens.
    pub(super) fn collect_plugins(
        &mut self,
        diagnostics: &mut BoundedDiagnostics,
        trusted: bool,
        next_token: &AtomicU64,
        watching: &dyn DirWatcher,
    ) -> PluginSet {
        let dirs = self.plugin_dir_candidates();
        let mut gathered = PluginSet::default();
        let mut old = std::mem::take(&mut self.plugin_dirs);
        let (mut room, mut left_out) = (MAX_ROOT_PLUGIN_BYTES, 0);
        for visit in dirs {
            let read = self.manifests.get(&visit.resolved).cloned();
            let manifest = read.as_ref().and_then(namespaces::ManifestLookup::usable_manifest);
            gathered
                .manifest_files
                .add_standard_files(&visit.path, visit.resolved.strip_prefix(&self.path).as_ref());
            if manifest.is_none() && visit.resolved != self.path {
                continue;
            }
            let last = old.remove(&visit.resolved);
            let mut held = match last {
                Some(last) if trusted && last.manifest == manifest => last,
                last => {
                    let token = next_token.fetch_add(1, Ordering::Relaxed);
                    let mut new =
                        self.read_plugin_dir(&visit.resolved, token, manifest.as_ref(), watching);
                    if let Some(last) = last {
                        new.keep_last_good(&last);
                        new.built_plugin = last.built_plugin;
                    }
                    new
                }
            };
            held.report_problems(&visit.path, diagnostics);
            if let (Some((_, file)), Some(read)) = (manifest, &read) {
                if gathered.plugins.len() == MAX_ROOT_PLUGINS {
                    left_out += 1;
                } else {
                    let (plugin, problem) =
                        held.build_plugin(&visit.path, &read.other_files, &mut room);
                    if let Some(problem) = problem {
                        let resource = Some(visit.path.join_path(&file));
                        diagnostics.push(Diagnostic { resource, problem });
                    }
                    gathered.plugins.extend(plugin);
                }
            }
            for file in held.contents.files.iter().filter(|file| file.kind.is_json()) {
                let place = file.real_path.as_ref().and_then(|real| real.strip_prefix(&self.path));
                gathered.manifest_files.add_file(visit.path.join_path(&file.file), place);
            }
            gathered
                .marketplaces
                .extend(held.marketplace_files.iter().filter_map(|list| list.marketplace.clone()));
            self.plugin_dirs.insert(visit.resolved.clone(), held);
        }
        if left_out > 0 {
            let why =
                format!("a root may have {MAX_ROOT_PLUGINS} plugins; {left_out} are left out");
            let problem = FileProblem::warning(DiagnosticCode::LimitReached, why);
            diagnostics.push(Diagnostic { resource: None, problem });
        }
        gathered.manifest_files.sort_and_dedup();
        gathered
    }
}
