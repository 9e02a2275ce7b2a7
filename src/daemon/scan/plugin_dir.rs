//! Files of one plugin directory, and the plugin that is built from them.

use super::file_problem::{READ_FAILED, is_harmless};
use super::plugin_contents::PluginContents;
use super::plugin_reader::{DeclaredTarget, PluginReader};
use super::watches::{WatchGuard, WatchRecorder};
use crate::daemon::fs::dirs_snapshot::AllowedDirsSnapshot;
use crate::daemon::fs::open_file::{self, FileFingerprint};
use crate::daemon::model::plugin::{
    MARKETPLACE_PATHS, MarketplaceEntry, Plugin, PluginComponents, PluginMarketplace,
};
use crate::daemon::model::{
    BoundedDiagnostics, DiagnosticCode, FileProblem, PluginManifest, ResolvedPath, skill_file_name,
};
use crate::daemon::parse::plugin::marketplace;
use caproot_core::text::quote_word;
use caproot_core::wire::RelPath;
use std::num::NonZero;
use std::sync::Arc;

/// Maximum number of paths of a marketplace that are looked up.
const MAX_CHECKED_PATHS: usize = 1_000;

/// Files of one directory that has a manifest, or of the root, which may have marketplaces.
#[derive(Debug)]
pub struct PluginDir {
    pub token: u64,
    #[allow(dead_code)] // Held for its `Drop`.
    guards: Vec<WatchGuard>,
    /// Manifest that named the files, and its path below the directory.
    pub manifest: Option<(PluginManifest, RelPath)>,
    pub contents: PluginContents,
    pub marketplace_files: Vec<MarketplaceFile>,
    /// Plugin that was built last, and the bytes that it took of the root's budget.
    pub built_plugin: Option<(Arc<Plugin>, usize)>,
    /// Whether the contents are still those of `built_plugin`.
    is_unchanged: bool,
}

/// JSON file with declarations, below its plugin.
pub struct DeclarationFile<'a> {
    pub file: &'a RelPath,
    pub real_path: Option<&'a ResolvedPath>,
    /// Fingerprint of the file if nothing in it is redacted.
    pub harmless: Option<NonZero<u64>>,
}

/// Marketplace file and its contents.
#[derive(Debug, PartialEq)]
pub struct MarketplaceFile {
    file: RelPath,
    fingerprint: Option<FileFingerprint>,
    pub marketplace: Option<PluginMarketplace>,
    problems: Vec<FileProblem>,
}

impl PluginDir {
    /// Watches and reads the files that a manifest names, and the marketplaces of a root.
    pub fn read(
        reader: &PluginReader<'_>,
        dir: &ResolvedPath,
        token: u64,
        manifest: Option<&(PluginManifest, RelPath)>,
    ) -> Self {
        let mut watches = WatchRecorder::new(reader.context.watcher, token);
        let manifest = manifest.filter(|_| !reader.context.progress.is_cancelled());
        let contents = manifest.map(|(manifest, file)| {
            PluginContents::read(reader, dir, manifest, file, &mut watches)
        });

        let mut marketplace_files = Vec::new();
        if dir == reader.root {
            let files = MARKETPLACE_PATHS.map(str::as_bytes).map(RelPath::new);
            reader.watch_first_components(dir, files.iter().flatten(), &mut watches);
            let files = files.into_iter().flatten();
            let read =
                files.filter_map(|file| read_marketplace_file(reader, dir, file, &mut watches));
            marketplace_files.extend(read);
        }

        Self {
            token,
            guards: watches.guards,
            manifest: manifest.cloned(),
            contents: contents.unwrap_or_default(),
            marketplace_files,
            built_plugin: None,
            is_unchanged: false,
        }
    }

    /// Reads the files again. Returns whether they changed. If `settled` is false and a file no longer
    /// parses, only the watches are replaced, and the token is added to `unstable`.
    pub fn reread(
        &mut self,
        reader: &PluginReader<'_>,
        dir: &ResolvedPath,
        settled: bool,
        unstable: &mut Vec<u64>,
    ) -> bool {
        let mut new = Self::read(reader, dir, self.token, self.manifest.as_ref());
        if new.keep_last_good(self) && !settled {
            self.guards = new.guards;
            unstable.push(self.token);
            return false;
        }

        let differs =
            new.contents != self.contents || new.marketplace_files != self.marketplace_files;
        new.is_unchanged = self.is_unchanged && !differs;
        new.built_plugin = self.built_plugin.take();

        *self = new;
        differs
    }

    /// Returns the JSON files.
    pub fn declaration_files(&self) -> impl Iterator<Item = DeclarationFile<'_>> {
        let files = self.contents.files.iter();
        let files = files.filter(|file| file.kind.is_json()).map(|read| {
            let is_used = !read.stale && read.components.is_some();
            DeclarationFile {
                file: &read.file,
                real_path: Some(&read.real_path),
                harmless: (is_used && is_harmless(&read.problems))
                    .then(|| read.fingerprint.number()),
            }
        });
        let marketplaces = self.marketplace_files.iter().map(|read| DeclarationFile {
            file: &read.file,
            real_path: None,
            harmless: read
                .fingerprint
                .map(FileFingerprint::number)
                .filter(|_| read.marketplace.is_some() && is_harmless(&read.problems)),
        });
        files.chain(marketplaces)
    }

    /// Whether a file of the plugin changed since it was read.
    pub fn is_outdated(&self, snapshot: &AllowedDirsSnapshot, dir: &ResolvedPath) -> bool {
        let components = self.contents.files.iter();
        let marketplaces = self.marketplace_files.iter();
        components
            .map(|read| (read.fingerprint, &read.file))
            .chain(marketplaces.filter_map(|read| Some((read.fingerprint?, &read.file))))
            .any(|(fingerprint, file)| fingerprint.is_outdated(snapshot, dir, file))
    }

    pub fn keep_last_good(&mut self, last: &Self) -> bool {
        let mut kept = self.contents.keep_last_good(&last.contents);
        for list in &mut self.marketplace_files {
            if list.marketplace.is_none() {
                let mut old = last.marketplace_files.iter();
                let old = old.find(|old| old.file == list.file);
                list.marketplace = old.and_then(|old| old.marketplace.clone());
                kept |= list.marketplace.is_some();
            }
        }
        kept
    }

    /// Reports the problems of the files.
    pub fn report_problems(&self, walked_path: &RelPath, diagnostics: &mut BoundedDiagnostics) {
        let files = self.contents.files.iter();
        let files = files.map(|file| (&file.file, &*file.problems));
        let lists = self.marketplace_files.iter();
        let lists = lists.map(|list| (&list.file, &*list.problems));
        let places = self.contents.problems.iter();
        let places = places.map(|(path, problem)| (path, std::slice::from_ref(problem)));

        for (path, problems) in files.chain(lists).chain(places) {
            for problem in problems {
                diagnostics.report(Some(walked_path.join_path(path)), problem.clone());
            }
        }
    }

    /// Builds the plugin within the remaining budget of the root. An unchanged plugin keeps its
    /// `Arc`. The problem reports components that exceed the budget.
    pub fn build_plugin(
        &mut self,
        walked_path: &RelPath,
        other_files: &[RelPath],
        remaining_bytes: &mut usize,
    ) -> (Option<Arc<Plugin>>, Option<FileProblem>) {
        if let Some((same, taken)) = self.built_plugin.as_ref().filter(|_| self.is_unchanged)
            && (&same.package, &*same.other_manifests) == (walked_path, other_files)
            && !same.truncated
            && let Some(left) = remaining_bytes.checked_sub(*taken)
        {
            *remaining_bytes = left;
            return (Some(same.clone()), None);
        }
        let Some((manifest, file)) = self.manifest.clone() else {
            return (None, None);
        };
        let mut components = PluginComponents::default();
        for file in &self.contents.files {
            components.extend(file.components.clone().unwrap_or_default());
        }
        let inline = manifest.declarations.inline_components.clone();
        components.extend(inline.with_file(&file));
        components.keep_last_servers();
        // The inline components are of all kinds.
        components.others.sort_by_key(|component| component.kind);

        let plugin = Plugin {
            package: walked_path.clone(),
            manifest,
            manifest_file: file,
            other_manifests: other_files.into(),
            images: self.contents.images.clone(),
            screenshots: self.contents.screenshots.clone().into(),
            components,
            stale: self.contents.files.iter().any(|file| file.stale),
            truncated: false,
            trust: None,
        };
        let before = *remaining_bytes;
        let (plugin, problem) = plugin.truncate_to_budget(remaining_bytes);
        let last = self.built_plugin.take().map(|(last, _)| last);
        let same = last.filter(|last| **last == plugin);
        let plugin = same.unwrap_or_else(|| Arc::new(plugin));
        self.built_plugin = Some((plugin.clone(), before - *remaining_bytes));
        self.is_unchanged = true;
        (Some(plugin), problem)
    }
}

/// Reads a marketplace file; `None` if there is no such file.
fn read_marketplace_file(
    reader: &PluginReader<'_>,
    dir: &ResolvedPath,
    file: RelPath,
    watches: &mut WatchRecorder<'_>,
) -> Option<MarketplaceFile> {
    // A missing file is watched, too, so that its creation is reported.
    watches.watch_file_path(reader.snapshot, dir, &file);
    let target = open_file::find_target(reader.snapshot, dir, &file);
    if target.is_err_and(open_file::OpenError::is_absent) {
        return None;
    }

    let mut fingerprint = None;
    let read = reader.open(dir, &file).and_then(|opened| {
        fingerprint = Some(watches.track_file(&opened));
        let failed = |_| FileProblem::error(DiagnosticCode::PluginFileInvalid, READ_FAILED);
        opened.read_small().map_err(failed)
    });
    let (list, mut problems) = match read {
        Ok(bytes) => marketplace::read(&bytes, &file),
        Err(problem) => (None, vec![problem]),
    };

    let mut room = MAX_CHECKED_PATHS;
    for entry in list.iter().flat_map(|list| &list.entries) {
        check_entry(reader, dir, entry, &mut room, watches, &mut problems);
    }
    Some(MarketplaceFile {
        file,
        fingerprint,
        marketplace: list,
        problems,
    })
}

/// Checks that the paths of a plugin in a marketplace lead to a directory and to directories of skills.
/// Subtracts the checked paths from `room`.
fn check_entry(
    reader: &PluginReader<'_>,
    dir: &ResolvedPath,
    entry: &MarketplaceEntry,
    room: &mut usize,
    watches: &mut WatchRecorder<'_>,
    problems: &mut Vec<FileProblem>,
) {
    let name = quote_word(&entry.name);
    let sources = entry.package.iter().map(|path| ("source", path));
    for (key, path) in sources.chain(entry.skills.iter().map(|path| ("skills", path))) {
        let Some(rest) = room.checked_sub(1) else {
            return;
        };
        *room = rest;

        let skill_file = path.join_path(&skill_file_name());
        reader.watch_first_components(dir, [&skill_file], watches);
        watches.watch_file_path(reader.snapshot, dir, &skill_file);
        let what = match reader.watch_and_find(dir, path, watches) {
            DeclaredTarget::Directory(_) if key == "source" => continue,
            DeclaredTarget::Directory(found) if reader.has_skill(&found) => continue,
            DeclaredTarget::Directory(_) => "has no SKILL.md",
            DeclaredTarget::File(_) => "is a file; name its directory",
            DeclaredTarget::Nothing => "does not exist",
            DeclaredTarget::Problem(problem) => {
                problems.push(problem);
                continue;
            }
        };
        let path = quote_word(&format!("./{path}"));
        let why = format!("`{key}` of the plugin {name} leads to {path}, which {what}");
        problems.push(FileProblem::warning(DiagnosticCode::PathMissing, why));
        // The paths of the skills are below the source.
        if key == "source" {
            return;
        }
    }
}
