//! Manifests, plugins and marketplaces below one root, kept between scans, so that a change reads
//! only the plugin again in which it is.

use super::namespaces::{ManifestLookup, ManifestReader, ManifestsByDir};
use super::parallel_list::process_in_order;
use super::plugin_dir::PluginDir;
use super::plugin_reader::PluginReader;
use super::scan_progress::ScanProgress;
use super::scanned_dir::DirToScan;
use crate::daemon::fs::dirs_snapshot::AllowedDirsSnapshot;
use crate::daemon::model::catalog::BoundedDiagnostics;
use crate::daemon::model::plugin::{
    MAX_ROOT_PLUGIN_BYTES, MAX_ROOT_PLUGINS, Plugin, PluginMarketplace,
};
use crate::daemon::model::{
    Diagnostic, DiagnosticCode, FileProblem, HarmlessVersions, ManifestFiles, PluginManifest,
    ResolvedPath,
};
use caproot_core::sync::Mutex;
use caproot_core::wire::{ContentDigest, RelPath};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum number of plugins that are read without additional threads.
const MAX_INLINE_PLUGINS: usize = 1;

/// Manifests and plugins by directory.
#[derive(Debug, Default)]
pub struct PluginIndex {
    pub manifests: ManifestsByDir,
    dirs: HashMap<ResolvedPath, PluginDir>,
    harmless_versions: HarmlessVersions,
}

/// Directory whose plugin has to be read, with the last version of the plugin.
struct UnreadPlugin<'a> {
    dir: &'a ResolvedPath,
    manifest: Option<(PluginManifest, RelPath)>,
    last: Mutex<Option<PluginDir>>,
}

/// Change of a manifest that was read again.
pub enum ManifestChange {
    None,
    Replaced,
    /// The manifest no longer parses, and its last version is kept.
    Unstable,
}

/// Plugins and marketplaces of a catalog.
#[derive(Debug, Default)]
pub struct PluginSet {
    pub plugins: Vec<Arc<Plugin>>,
    pub marketplaces: Vec<PluginMarketplace>,
    pub manifest_files: ManifestFiles,
}

impl PluginIndex {
    /// Takes the plugins of the last scan over, but not its manifests.
    pub fn take_plugins(&mut self, last: Self) {
        self.dirs = last.dirs;
        self.harmless_versions = last.harmless_versions;
    }

    pub fn remove_if(&mut self, is_removed: impl Fn(&ResolvedPath) -> bool) {
        self.manifests.retain(|dir, _| !is_removed(dir));
        self.dirs.retain(|dir, _| !is_removed(dir));
    }

    pub fn forget_manifest(&mut self, dir: &ResolvedPath) {
        self.manifests.remove(dir);
    }

    /// Forgets the manifests that could not be read for a transient reason.
    pub fn forget_failed_manifests(&mut self) {
        self.manifests
            .retain(|_, manifest| !manifest.has_transient_error());
    }

    /// Whether a manifest could not be read for a transient reason.
    pub fn has_failed_manifest(&self) -> bool {
        self.manifests
            .values()
            .any(ManifestLookup::has_transient_error)
    }

    /// Reads the manifest of a directory again, if there was a lookup. If `settled` is false, a good
    /// manifest that no longer parses is kept.
    pub fn reread_manifest(
        &mut self,
        dir: &ResolvedPath,
        reader: ManifestReader<'_>,
        settled: bool,
    ) -> ManifestChange {
        let Some(last) = self.manifests.get_mut(dir) else {
            return ManifestChange::None;
        };
        let new = reader.read_manifest(dir);
        if new == *last {
            return ManifestChange::None;
        }
        if !settled && last.manifest.is_some() && new.is_broken() {
            return ManifestChange::Unstable;
        }
        *last = new;
        ManifestChange::Replaced
    }

    /// Returns the directories whose manifest changed since it was read.
    pub fn outdated_manifests(
        &self,
        snapshot: &AllowedDirsSnapshot,
    ) -> impl Iterator<Item = &ResolvedPath> {
        let outdated = self
            .manifests
            .iter()
            .filter(|(dir, read)| read.is_outdated(snapshot, dir));
        outdated.map(|(dir, _)| dir)
    }

    /// Returns the digest of the manifest and of each component file of a plugin as parsed; `None` if a file
    /// was not read as a whole.
    pub fn parsed_digests(
        &self,
        dir: &ResolvedPath,
    ) -> impl Iterator<Item = (&RelPath, Option<ContentDigest>)> {
        let manifest = self.manifests.get(dir);
        let manifest = manifest.and_then(|lookup| Some((lookup.file.as_ref()?, lookup.digest)));
        let files = self.dirs.get(dir).into_iter();
        manifest
            .into_iter()
            .chain(files.flat_map(PluginDir::parsed_digests))
    }

    /// Returns the token of each plugin directory.
    pub fn tokens(&self) -> impl Iterator<Item = (u64, &ResolvedPath)> {
        self.dirs.iter().map(|(path, dir)| (dir.token(), path))
    }

    /// Returns the tokens of plugins with files that could not be read for a transient reason.
    pub fn failed_tokens(&self) -> impl Iterator<Item = u64> {
        self.dirs
            .values()
            .filter(|dir| dir.has_transient_error())
            .map(PluginDir::token)
    }

    /// Returns the tokens of plugins with files that changed since they were read.
    pub fn outdated_tokens(&self, snapshot: &AllowedDirsSnapshot) -> impl Iterator<Item = u64> {
        let outdated = self
            .dirs
            .iter()
            .filter(|(path, dir)| dir.is_outdated(snapshot, path));
        outdated.map(|(_, dir)| dir.token())
    }

    /// Reads a plugin again. Returns whether the plugin changed. If `settled` is false, a plugin
    /// with files that no longer parse stays unchanged, and its token is added to `unstable`.
    pub fn reread(
        &mut self,
        dir: &ResolvedPath,
        is_root: bool,
        settled: bool,
        unstable: &mut Vec<u64>,
        reader: &PluginReader<'_>,
    ) -> bool {
        let Some(plugin_dir) = self.dirs.get_mut(dir) else {
            return false;
        };
        let (differs, is_stable) = plugin_dir.reread(reader, dir, is_root, settled);
        if !is_stable {
            unstable.push(plugin_dir.token());
        }
        differs
    }

    /// Reads the manifests of directories that are not known yet.
    pub fn read_manifests<'a>(
        &mut self,
        dirs: impl Iterator<Item = &'a ResolvedPath>,
        reader: ManifestReader<'_>,
    ) {
        let new: Vec<_> = dirs
            .filter(|dir| !self.manifests.contains_key(*dir))
            .collect();
        process_in_order(
            &new,
            MAX_INLINE_PLUGINS,
            reader.progress,
            |dir, (): &mut ()| reader.read_manifest(dir),
            |dir, lookup| {
                self.manifests.insert((*dir).clone(), lookup);
            },
        );
    }

    /// Reads the plugins of `candidates`. If `trusted` is set, plugins that were read before are not
    /// read again.
    pub fn read_plugins(
        &mut self,
        candidates: &[DirToScan],
        root: &ResolvedPath,
        trusted: bool,
        reader: &PluginReader<'_>,
        next_token: &AtomicU64,
        progress: &ScanProgress,
    ) {
        let mut old = std::mem::take(&mut self.dirs);
        let mut unread = Vec::new();

        for DirToScan { resolved: dir, .. } in candidates {
            let manifest = self
                .manifests
                .get(dir)
                .and_then(ManifestLookup::usable_manifest);
            // The root may have marketplaces without being a plugin.
            if manifest.is_none() && dir != root {
                continue;
            }

            match old.remove(dir) {
                Some(last) if trusted && last.has_manifest(manifest.as_ref()) => {
                    self.dirs.insert(dir.clone(), last);
                }
                last => unread.push(UnreadPlugin {
                    dir,
                    manifest,
                    last: Mutex::new(last),
                }),
            }
        }

        process_in_order(
            &unread,
            MAX_INLINE_PLUGINS,
            progress,
            |unread, (): &mut ()| {
                let UnreadPlugin {
                    dir,
                    manifest,
                    last,
                } = unread;
                let token = next_token.fetch_add(1, Ordering::Relaxed);
                let new = PluginDir::read(reader, dir, *dir == root, token, manifest.as_ref());
                new.with_last(last.lock().take())
            },
            |unread, plugin_dir| {
                self.dirs.insert(unread.dir.clone(), plugin_dir);
            },
        );
    }

    /// Returns all plugins and marketplaces of `candidates`, which were read before.
    pub fn collect(
        &mut self,
        candidates: &[DirToScan],
        root: &ResolvedPath,
        diagnostics: &mut BoundedDiagnostics,
    ) -> PluginSet {
        let mut set = PluginSet {
            manifest_files: ManifestFiles::new(self.harmless_versions.clone()),
            ..PluginSet::default()
        };
        let mut versions = HashMap::new();
        let mut remaining_bytes = MAX_ROOT_PLUGIN_BYTES;
        let mut omitted = 0;
        for dir in candidates {
            let lookup = self.manifests.get(&dir.resolved);
            let manifest = lookup.and_then(ManifestLookup::usable_manifest);

            // A directory without a usable manifest may still hold declarations with secrets.
            let real = dir.resolved.strip_prefix(root);
            set.manifest_files
                .add_standard_files(&dir.path, real.as_ref());

            let Some(plugin_dir) = self.dirs.get_mut(&dir.resolved) else {
                continue;
            };
            plugin_dir.report_problems(&dir.path, diagnostics);

            if let (Some((_, file)), Some(lookup)) = (manifest, lookup) {
                if set.plugins.len() == MAX_ROOT_PLUGINS {
                    omitted += 1;
                } else {
                    let (plugin, problem) = plugin_dir.build_plugin(
                        &dir.path,
                        &lookup.other_files,
                        &mut remaining_bytes,
                    );
                    if let Some(problem) = problem {
                        let resource = Some(dir.path.join_path(&file));
                        diagnostics.push(Diagnostic { resource, problem });
                    }
                    set.plugins.extend(plugin);
                }
            }

            let manifests = lookup
                .into_iter()
                .flat_map(ManifestLookup::harmless_manifests);
            for declaration in plugin_dir.declaration_files().chain(manifests) {
                let path = dir.path.join_path(declaration.file);
                let real = match declaration.real_path {
                    Some(path) => path.strip_prefix(root),
                    None => real.as_ref().map(|dir| dir.join_path(declaration.file)),
                };
                if let Some(version) = declaration.harmless {
                    versions.insert(path.clone(), version);
                    versions.extend(real.clone().map(|real| (real, version)));
                }
                set.manifest_files.add_file(path, real);
            }
            set.marketplaces.extend(plugin_dir.marketplaces().cloned());
        }

        if omitted > 0 {
            let message =
                format!("a root may have {MAX_ROOT_PLUGINS} plugins; {omitted} are omitted");
            let problem = FileProblem::warning(DiagnosticCode::LimitReached, message);
            diagnostics.push(Diagnostic {
                resource: None,
                problem,
            });
        }

        set.manifest_files.sort_and_dedup();

        // Earlier catalogs share the versions, which may change without a new catalog.
        self.harmless_versions.replace(versions);
        set
    }
}
