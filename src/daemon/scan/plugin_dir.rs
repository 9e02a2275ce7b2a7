//! Files of one plugin directory, and the plugin that is built from them.

use super::file_problem::{READ_FAILED, is_harmless};
use super::plugin_contents::PluginContents;
use super::plugin_reader::{DeclaredTarget, PluginReader};
use super::watches::{WatchGuard, WatchRecorder};
use crate::daemon::fs::dirs_snapshot::AllowedDirsSnapshot;
use crate::daemon::fs::open_file::{self, FileFingerprint};
use crate::daemon::model::catalog::BoundedDiagnostics;
use crate::daemon::model::plugin::{
    MARKETPLACE_PATHS, MarketplaceEntry, Plugin, PluginComponents, PluginMarketplace,
};
use crate::daemon::model::{
    Diagnostic, DiagnosticCode, FileProblem, PluginManifest, ResolvedPath, skill_file_name,
};
use crate::daemon::parse::plugin::marketplace;
use caproot_core::text::quote_word;
use caproot_core::wire::{ContentDigest, RelPath};
use std::num::NonZero;
use std::sync::Arc;

/// Maximum number of paths of a marketplace that are looked up.
const MAX_CHECKED_PATHS: usize = 1_000;

/// Files of one directory that has a manifest, or of the root, which may have marketplaces.
#[derive(Debug)]
pub struct PluginDir {
    token: u64,
    #[allow(dead_code)] // Held for its `Drop`.
    guards: Vec<WatchGuard>,
    /// Manifest that named the files, and its path below the directory.
    manifest: Option<(PluginManifest, RelPath)>,
    contents: PluginContents,
    marketplace_files: Vec<MarketplaceFile>,
    /// Plugin that was built last, and the bytes that it took of the root's budget.
    built_plugin: Option<(Arc<Plugin>, usize)>,
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
#[derive(Debug, Clone, PartialEq)]
struct MarketplaceFile {
    file: RelPath,
    fingerprint: Option<FileFingerprint>,
    marketplace: Option<PluginMarketplace>,
    problems: Vec<FileProblem>,
}

impl PluginDir {
    /// Watches and reads the files that a manifest names, and the marketplaces of a root.
    pub fn read(
        reader: &PluginReader<'_>,
        dir: &ResolvedPath,
        is_root: bool,
        token: u64,
        manifest: Option<&(PluginManifest, RelPath)>,
    ) -> Self {
        let mut watches = WatchRecorder::new(reader.watcher, token);
        let manifest = manifest.filter(|_| !reader.progress.is_cancelled());
        let contents = manifest.map(|(manifest, file)| {
            PluginContents::read(reader, dir, manifest, file, &mut watches)
        });

        let marketplace_files = if is_root {
            let files = MARKETPLACE_PATHS.iter();
            let files = files.filter_map(|path| RelPath::new(path.as_bytes()));
            let files: Vec<_> = files.collect();
            reader.watch_first_components(dir, files.iter(), &mut watches);
            files
                .into_iter()
                .filter_map(|file| read_marketplace_file(reader, dir, file, &mut watches))
                .collect()
        } else {
            Vec::new()
        };

        Self {
            token,
            guards: watches.into_guards(),
            manifest: manifest.cloned(),
            contents: contents.unwrap_or_default(),
            marketplace_files,
            built_plugin: None,
            is_unchanged: false,
        }
    }

    /// Adds the last good version of files that no longer parse, and the last plugin.
    pub fn with_last(mut self, last: Option<Self>) -> Self {
        if let Some(last) = last {
            self.keep_last_good(&last);
            self.built_plugin = last.built_plugin;
        }
        self
    }

    /// Reads the files again. Returns whether they changed, and whether they were used as they are.
    /// If `settled` is false and a file no longer parses, only the watches are replaced.
    pub fn reread(
        &mut self,
        reader: &PluginReader<'_>,
        dir: &ResolvedPath,
        is_root: bool,
        settled: bool,
    ) -> (bool, bool) {
        let mut new = Self::read(reader, dir, is_root, self.token, self.manifest.as_ref());
        let was_kept = new.keep_last_good(self);

        if was_kept && !settled {
            self.guards = new.guards;
            return (false, false);
        }

        let differs =
            new.contents != self.contents || new.marketplace_files != self.marketplace_files;
        new.is_unchanged = self.is_unchanged && !differs;
        new.built_plugin = self.built_plugin.take();

        *self = new;
        (differs, true)
    }

    /// Whether the files were read for this manifest.
    pub fn has_manifest(&self, manifest: Option<&(PluginManifest, RelPath)>) -> bool {
        self.manifest.as_ref() == manifest
    }

    /// Returns the JSON files.
    pub fn declaration_files(&self) -> impl Iterator<Item = DeclarationFile<'_>> {
        let files = self
            .contents
            .files
            .iter()
            .filter(|file| file.kind.is_json());
        let files = files.map(|read| DeclarationFile {
            file: &read.file,
            real_path: read.real_path.as_ref(),
            harmless: Some(read.fingerprint.number()).filter(|_| {
                !read.stale && read.components.is_some() && is_harmless(&read.problems)
            }),
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

    /// Returns the digest of each component file as parsed; `None` if a file was not read as a whole.
    pub fn parsed_digests(&self) -> impl Iterator<Item = (&RelPath, Option<ContentDigest>)> {
        let files = self.contents.files.iter();
        files.map(|read| (&read.file, read.digest))
    }

    pub fn marketplaces(&self) -> impl Iterator<Item = &PluginMarketplace> {
        self.marketplace_files
            .iter()
            .filter_map(|file| file.marketplace.as_ref())
    }

    /// Whether a file could not be read, and a new attempt may succeed.
    pub fn has_transient_error(&self) -> bool {
        self.contents.has_transient_error()
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

    pub fn token(&self) -> u64 {
        self.token
    }

    fn keep_last_good(&mut self, last: &Self) -> bool {
        let mut kept = self.contents.keep_last_good(&last.contents);
        for list in self
            .marketplace_files
            .iter_mut()
            .filter(|list| list.marketplace.is_none())
        {
            let old = last
                .marketplace_files
                .iter()
                .find(|old| old.file == list.file);
            list.marketplace = old.and_then(|old| old.marketplace.clone());
            kept |= list.marketplace.is_some();
        }
        kept
    }

    /// Reports the problems of the files.
    pub fn report_problems(&self, walked_path: &RelPath, diagnostics: &mut BoundedDiagnostics) {
        let files = self
            .contents
            .files
            .iter()
            .map(|file| (&file.file, &file.problems));
        let lists = self
            .marketplace_files
            .iter()
            .map(|list| (&list.file, &list.problems));

        let of_files = files.chain(lists);
        let of_files =
            of_files.flat_map(|(file, all)| all.iter().map(move |problem| (file, problem)));

        let of_places = self
            .contents
            .problems
            .iter()
            .map(|(path, problem)| (path, problem));

        for (path, problem) in of_files.chain(of_places) {
            let resource = Some(walked_path.join_path(path));
            diagnostics.push(Diagnostic {
                resource,
                problem: problem.clone(),
            });
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
        let same = self
            .built_plugin
            .take()
            .map(|(old, _)| old)
            .filter(|old| **old == plugin);
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

    let opened = reader.open(dir, &file);
    let fingerprint = opened
        .as_ref()
        .ok()
        .map(|opened| watches.track_file(opened));

    let read = opened.map(|opened| opened.read_small());

    let (list, mut problems) = match read {
        Ok(Ok(bytes)) => marketplace::read(&bytes, &file),
        Ok(Err(_)) => (
            None,
            vec![FileProblem::error(
                DiagnosticCode::PluginFileInvalid,
                READ_FAILED,
            )],
        ),
        Err(problem) => (None, vec![problem]),
    };

    let mut room = MAX_CHECKED_PATHS;
    for entry in list
        .iter()
        .flat_map(|list: &PluginMarketplace| &list.entries)
    {
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
        reader.watch_first_components(dir, std::iter::once(&skill_file), watches);
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
