//! What is held of one directory that declares something, and what it comes to in a catalog. Leaves
//! reading a plugin to `plugin`, and which directories there are to `plugins`.

use super::allowed_dirs::{AllowedDirsSnapshot, ResolveError};
use super::content;
use super::dir_watcher::{WatchGuard, watch_hard_links};
use super::fingerprint::FileFingerprint;
use super::open_file::{self, OpenError};
use super::plugin_reader::{PluginContents, PluginReader};
use crate::domain::catalog::BoundedDiagnostics;
use crate::domain::plugin::{Plugin, PluginMarketplace, marketplace};
use crate::domain::{
    Diagnostic, DiagnosticCode, FileProblem, PluginManifest, RelPath, ResolvedPath,
};
use std::sync::Arc;

/// What is held of one directory: a plugin, or the root, which may be a marketplace.
#[derive(Debug)]
pub(super) struct PluginDir {
    pub(super) token: u64,
    /// Watch over it while it is held.
    #[allow(dead_code)] // held, and never looked at
    pub(super) guards: Vec<WatchGuard>,
    /// The manifest as of which it was read, and its place.
    pub(super) manifest: Option<(PluginManifest, RelPath)>,
    pub(super) contents: PluginContents,
    pub(super) marketplace_files: Vec<MarketplaceFile>,
    /// What was assembled of it last, and how much of a root's room that took.
    pub(super) built_plugin: Option<(Arc<Plugin>, usize)>,
    /// Whether what was read since is the same.
    pub(super) is_unchanged: bool,
}

/// What was read of a marketplace's list.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct MarketplaceFile {
    pub(super) file: RelPath,
    fingerprint: Option<FileFingerprint>,
    pub(super) marketplace: Option<PluginMarketplace>,
    pub(super) problems: Vec<FileProblem>,
}

impl PluginDir {
    /// Whether something could not be read, and may be by now.
    pub(super) fn has_transient_error(&self) -> bool {
        self.contents.has_transient_error()
    }

    /// Whether a file that declares something changed since it was read.
    pub(super) fn is_outdated(&self, ground: &AllowedDirsSnapshot, dir: &ResolvedPath) -> bool {
        let is_other = |read: FileFingerprint, file| read.is_outdated(ground, dir, file);
        self.contents.files.iter().any(|read| is_other(read.fingerprint, &read.file))
            || self.marketplace_files.iter().any(|read| {
                read.fingerprint.is_some_and(|fingerprint| is_other(fingerprint, &read.file))
            })
    }

    pub(super) fn token(&self) -> u64 {
        self.token
    }

    pub(super) fn keep_last_good(&mut self, last: &Self) -> bool {
        let mut kept = self.contents.keep_last_good(&last.contents);
        for list in self.marketplace_files.iter_mut().filter(|list| list.marketplace.is_none()) {
            let old = last.marketplace_files.iter().find(|old| old.file == list.file);
            list.marketplace = old.and_then(|old| old.marketplace.clone());
            kept |= list.marketplace.is_some();
        }
        kept
    }

    /// Says what is wrong with the files.
    pub(super) fn report_problems(&self, walked: &RelPath, diagnostics: &mut BoundedDiagnostics) {
        let files = self.contents.files.iter().map(|file| (&file.file, &file.problems));
        let lists = self.marketplace_files.iter().map(|list| (&list.file, &list.problems));
        let of_files = files.chain(lists);
        let of_files =
            of_files.flat_map(|(file, all)| all.iter().map(move |problem| (file, problem)));
        let of_places = self.contents.problems.iter().map(|(place, problem)| (place, problem));
        for (place, problem) in of_files.chain(of_places) {
            let resource = Some(walked.join_path(place));
            diagnostics.push(Diagnostic { resource, problem: problem.clone() });
        }
    }

    /// The plugin; the very same as before where it is as it was. The problem says what bounds left
    /// out.
    pub(super) fn build_plugin(
        &mut self,
        walked: &RelPath,
        others: &[RelPath],
        room: &mut usize,
    ) -> (Option<Arc<Plugin>>, Option<FileProblem>) {
        if let Some((same, taken)) = self.built_plugin.as_ref().filter(|_| self.is_unchanged)
            && (&same.package, &*same.other_manifests) == (walked, others)
            && !same.truncated
            && let Some(left) = room.checked_sub(*taken)
        {
            *room = left;
            return (Some(same.clone()), None);
        }
        let Some((manifest, file)) = self.manifest.clone() else { return (None, None) };
        let mut components =
            manifest.declarations.inline_components.clone().with_declared_by(&file);
        for file in &self.contents.files {
            components.extend(file.components.clone().unwrap_or_default());
        }
        let plugin = Plugin {
            package: walked.clone(),
            manifest,
            manifest_file: file,
            other_manifests: others.into(),
            images: self.contents.images.clone(),
            screenshots: self.contents.screenshots.clone().into(),
            components,
            stale: self.contents.files.iter().any(|file| file.stale),
            truncated: false,
        };
        let before = *room;
        let (plugin, problem) = plugin.truncate_to_budget(room);
        let same = self.built_plugin.take().map(|(old, _)| old).filter(|old| **old == plugin);
        let plugin = same.unwrap_or_else(|| Arc::new(plugin));
        self.built_plugin = Some((plugin.clone(), before - *room));
        self.is_unchanged = true;
        (Some(plugin), problem)
    }
}

/// Reads a marketplace's list, if there is one at this place.
pub(super) fn read_marketplace_file(
    reader: &PluginReader<'_>,
    dir: &ResolvedPath,
    file: RelPath,
    token: u64,
    guards: &mut Vec<WatchGuard>,
) -> Option<MarketplaceFile> {
    reader.watch_path(dir, &file, token, guards);
    let target = open_file::find_target(reader.snapshot, dir, &file);
    if let Err(OpenError::Resolve(ResolveError::Missing | ResolveError::NotADirectory)) = target {
        return None;
    }
    let opened = reader.open(dir, &file);
    let fingerprint = opened.as_ref().ok().map(|opened| {
        watch_hard_links(reader.watcher, opened, token, guards);
        FileFingerprint::from_version(&opened.version)
    });
    let read = opened.map(|opened| content::read_small_file(&opened.file));
    let (list, problems) = match read {
        Ok(Ok(bytes)) => marketplace::read(&bytes, &file),
        Ok(Err(_)) => (
            None,
            vec![FileProblem::error(
                DiagnosticCode::PluginFileInvalid,
                super::dir_lister::READ_FAILED,
            )],
        ),
        Err(problem) => (None, vec![problem]),
    };
    Some(MarketplaceFile { file, fingerprint, marketplace: list, problems })
}
