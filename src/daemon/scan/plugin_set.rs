//! Manifests, plugins and marketplaces below one root, kept between scans, so that a change reads
//! only the plugin again in which it is.

use super::namespaces::ManifestLookup;
use super::parallel_list::process_in_order;
use super::plugin_dir::{DeclarationFile, PluginDir};
use super::plugin_reader::PluginReader;
use super::scanned_dir::DirToScan;
use crate::daemon::model::plugin::{
    MAX_ROOT_PLUGIN_BYTES, MAX_ROOT_PLUGINS, Plugin, PluginMarketplace,
};
use crate::daemon::model::{
    BoundedDiagnostics, DiagnosticCode, FileProblem, HarmlessVersions, ManifestFiles, ResolvedPath,
};
use caproot_core::sync::Mutex;
use caproot_core::wire::{ContentDigest, RelPath};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Maximum number of plugins that are read without additional threads.
const MAX_INLINE_PLUGINS: usize = 1;

/// Manifests and plugins by directory.
#[derive(Debug, Default)]
pub struct PluginIndex {
    pub manifests: HashMap<ResolvedPath, ManifestLookup>,
    pub dirs: HashMap<ResolvedPath, PluginDir>,
    harmless_versions: HarmlessVersions,
}

/// Plugins and marketplaces of a catalog.
#[derive(Default)]
pub struct PluginSet {
    pub plugins: Vec<Arc<Plugin>>,
    pub marketplaces: Vec<PluginMarketplace>,
    pub manifest_files: ManifestFiles,
}

impl PluginIndex {
    /// Whether a manifest could not be read for a transient reason.
    pub fn has_failed_manifest(&self) -> bool {
        let mut manifests = self.manifests.values();
        manifests.any(ManifestLookup::has_transient_error)
    }

    /// Reads the manifest of a directory again, if there was a lookup. Returns whether the manifest
    /// changed. If `settled` is false, a good manifest that no longer parses is kept, and the token of its
    /// directory is added to `unstable`.
    pub fn reread_manifest(
        &mut self,
        dir: &ResolvedPath,
        token: u64,
        settled: bool,
        unstable: &mut Vec<u64>,
        reader: &PluginReader<'_>,
    ) -> bool {
        let Some(last) = self.manifests.get_mut(dir) else {
            return false;
        };
        let new = reader.read_manifest(dir);
        let is_broken = new.manifest.is_none() && new.file.is_some();
        let is_unstable = !settled && last.manifest.is_some() && is_broken;
        if is_unstable {
            unstable.push(token);
        }

        let is_changed = !is_unstable && new != *last;
        if is_changed {
            *last = new;
        }
        is_changed
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
        let files = files.flat_map(|dir| &dir.contents.files);
        manifest
            .into_iter()
            .chain(files.map(|read| (&read.file, read.digest)))
    }

    /// Returns the tokens of plugins with files that could not be read for a transient reason.
    pub fn failed_tokens(&self) -> impl Iterator<Item = u64> {
        let dirs = self.dirs.values();
        dirs.filter(|dir| dir.contents.has_transient_error())
            .map(|dir| dir.token)
    }

    /// Reads the manifests of directories that are not known yet.
    pub fn read_manifests<'a>(
        &mut self,
        dirs: impl Iterator<Item = &'a ResolvedPath>,
        reader: &PluginReader<'_>,
    ) {
        let new = dirs.filter(|dir| !self.manifests.contains_key(*dir));
        let new: Vec<_> = new.collect();
        process_in_order(
            &new,
            MAX_INLINE_PLUGINS,
            reader.context.progress,
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
        trusted: bool,
        reader: &PluginReader<'_>,
    ) {
        let mut old = std::mem::take(&mut self.dirs);
        let mut unread = Vec::new();

        for DirToScan { resolved: dir, .. } in candidates {
            let lookup = self.manifests.get(dir);
            let manifest =
                lookup.and_then(|lookup| Some((lookup.manifest.clone()?, lookup.file.clone()?)));
            // The root may have marketplaces without being a plugin.
            if manifest.is_none() && dir != reader.root {
                continue;
            }

            match old.remove(dir) {
                Some(last) if trusted && last.manifest == manifest => {
                    self.dirs.insert(dir.clone(), last);
                }
                // With the last version of the plugin.
                last => unread.push((dir, manifest, Mutex::new(last))),
            }
        }

        process_in_order(
            &unread,
            MAX_INLINE_PLUGINS,
            reader.context.progress,
            |(dir, manifest, last), (): &mut ()| {
                let token = reader.context.next_token.fetch_add(1, Ordering::Relaxed);
                let mut new = PluginDir::read(reader, dir, token, manifest.as_ref());
                if let Some(last) = last.lock().take() {
                    new.keep_last_good(&last);
                    new.built_plugin = last.built_plugin;
                }
                new
            },
            |(dir, ..), plugin_dir| {
                self.dirs.insert((*dir).clone(), plugin_dir);
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

            // A directory without a usable manifest may still hold declarations with secrets.
            let real = dir.resolved.strip_prefix(root);
            set.manifest_files
                .add_standard_files(&dir.path, real.as_ref());

            let Some(plugin_dir) = self.dirs.get_mut(&dir.resolved) else {
                continue;
            };
            plugin_dir.report_problems(&dir.path, diagnostics);

            if let Some(lookup) = lookup
                && let (Some(_), Some(file)) = (&lookup.manifest, &lookup.file)
            {
                if set.plugins.len() == MAX_ROOT_PLUGINS {
                    omitted += 1;
                } else {
                    let (plugin, problem) = plugin_dir.build_plugin(
                        &dir.path,
                        &lookup.other_files,
                        &mut remaining_bytes,
                    );
                    if let Some(problem) = problem {
                        diagnostics.report(Some(dir.path.join_path(file)), problem);
                    }
                    set.plugins.extend(plugin);
                }
            }

            let manifests = lookup.into_iter().flat_map(|lookup| &lookup.harmless);
            let manifests = manifests.map(|(file, version)| DeclarationFile {
                file,
                real_path: None,
                harmless: Some(*version),
            });
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
            let files = plugin_dir.marketplace_files.iter();
            set.marketplaces
                .extend(files.filter_map(|file| file.marketplace.clone()));
        }

        if omitted > 0 {
            let message =
                format!("a root may have {MAX_ROOT_PLUGINS} plugins; {omitted} are omitted");
            let problem = FileProblem::warning(DiagnosticCode::LimitReached, message);
            diagnostics.report(None, problem);
        }

        set.manifest_files.sort_and_dedup();

        // Earlier catalogs share the versions, which may change without a new catalog.
        self.harmless_versions.replace(versions);
        set
    }
}
