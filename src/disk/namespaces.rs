//! Finds the plugin that a directory belongs to: the nearest valid manifest at or above it, never
//! above its allowed root. Each manifest is read once a scan, and only where a skill asks for it.

use super::allowed_dirs::{AllowedDirsSnapshot, ResolveError};
use super::content;
use super::dir_lister::{READ_FAILED, is_transient, open_problem};
use super::fingerprint::FileFingerprint;
use super::open_file::{self, OpenError};
use crate::domain::catalog::BoundedDiagnostics;
use crate::domain::skill::PluginNamespace;
use crate::domain::{
    Diagnostic, DiagnosticCode, FileProblem, PluginManifest, RelPath, ResolvedPath, Severity,
    manifest,
};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

/// What was read of the manifests of each directory that was asked for one.
pub(super) type ManifestsByDir = HashMap<ResolvedPath, ManifestLookup>;

/// What the places for a manifest in one directory hold.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct ManifestLookup {
    pub(super) manifest: Option<PluginManifest>,
    /// The first of the places at which something is.
    pub(super) file: Option<RelPath>,
    /// The others.
    pub(super) other_files: Vec<RelPath>,
    /// The fingerprint of the file, if the file could be opened.
    fingerprint: Option<FileFingerprint>,
    /// About the file at a place below the directory.
    problems: Vec<(RelPath, FileProblem)>,
}

impl ManifestLookup {
    /// The manifest, and where it is below the directory.
    pub(super) fn usable_manifest(&self) -> Option<(PluginManifest, RelPath)> {
        Some((self.manifest.clone()?, self.file.clone()?))
    }

    /// Whether there is a manifest that cannot be used.
    pub(super) fn is_broken(&self) -> bool {
        self.manifest.is_none() && self.file.is_some()
    }

    /// Whether the manifest changed since it was read.
    pub(super) fn is_outdated(&self, ground: &AllowedDirsSnapshot, dir: &ResolvedPath) -> bool {
        let Some((read, file)) = self.fingerprint.zip(self.file.as_ref()) else { return false };
        if ground.is_in_access_scope(dir) {
            return read.is_outdated(ground, dir, file);
        }
        read.is_outdated(&ground.without_access_scope(), dir, file)
    }

    /// Whether a manifest could not be read, and may be by now.
    pub(super) fn has_transient_error(&self) -> bool {
        self.problems.iter().any(|(_, problem)| is_transient(problem))
    }
}

/// The plugins of the directories of one search.
pub(super) struct NamespaceResolver<'a> {
    pub(super) snapshot: &'a AllowedDirsSnapshot,
    pub(super) root: &'a ResolvedPath,
    /// Directories that were searched, and whether they may hold a manifest.
    pub(super) entered_dirs: &'a HashMap<ResolvedPath, bool>,
    pub(super) manifests: &'a mut ManifestsByDir,
    pub(super) namespace_cache: HashMap<ResolvedPath, Option<Arc<PluginNamespace>>>,
}

impl NamespaceResolver<'_> {
    /// The plugin of a directory.
    pub(super) fn find_namespace(
        &mut self,
        dir: &ResolvedPath,
        diagnostics: &mut BoundedDiagnostics,
    ) -> Option<Arc<PluginNamespace>> {
        let mut climbed = Vec::new();
        let mut here = Some(dir.clone());
        let mut answer = None;
        while let Some(spot) = here {
            if let Some(known) = self.namespace_cache.get(&spot) {
                answer.clone_from(known);
                break;
            }
            answer = self.namespace_at(&spot, diagnostics);
            here = spot.parent();
            // A skill's own directory is hardly ever asked for again.
            if spot != *dir || self.entered_dirs.get(dir) != Some(&false) {
                climbed.push(spot);
            }
            if answer.is_some() {
                break;
            }
        }
        for spot in climbed {
            self.namespace_cache.insert(spot, answer.clone());
        }
        answer
    }

    /// The manifest of the root itself, once [`Self::nearest`] was asked for the root.
    pub(super) fn root_manifest(&self) -> Option<PluginManifest> {
        self.manifests.get(self.root)?.manifest.clone()
    }

    fn namespace_at(
        &mut self,
        dir: &ResolvedPath,
        diagnostics: &mut BoundedDiagnostics,
    ) -> Option<Arc<PluginNamespace>> {
        if self.entered_dirs.get(dir) == Some(&false) {
            if !self.manifests.is_empty() {
                self.manifests.remove(dir);
            }
            return None;
        }
        let read = match self.manifests.entry(dir.clone()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(read_manifest(self.snapshot, dir)),
        };
        let below = (dir.dir_index == self.root.dir_index)
            .then(|| dir.rel_path.strip_prefix(&self.root.rel_path))
            .flatten();
        for (path, problem) in &read.problems {
            let resource = below.as_ref().map(|dir| dir.join_path(path));
            diagnostics.push(Diagnostic { resource, problem: problem.clone() });
        }
        let name = (&*read.manifest.as_ref()?.name).into();
        Some(Arc::new(PluginNamespace { name, plugin_dir: below }))
    }
}

/// Reads a directory's manifest. Above what a bound caller may be served it gives its plugin's name,
/// as a skill has one name for every caller, and by it is switched off; and nothing is said of it.
pub(super) fn read_manifest(ground: &AllowedDirsSnapshot, dir: &ResolvedPath) -> ManifestLookup {
    if ground.is_in_access_scope(dir) {
        return read_first_manifest(ground, dir);
    }
    ManifestLookup {
        problems: Vec::new(),
        ..read_first_manifest(&ground.without_access_scope(), dir)
    }
}

/// Reads the first manifest that exists in a directory.
fn read_first_manifest(ground: &AllowedDirsSnapshot, dir: &ResolvedPath) -> ManifestLookup {
    let paths = manifest::MANIFEST_PATHS.into_iter();
    let mut there = paths.filter_map(|path| {
        let path = RelPath::new(path.as_bytes())?;
        match open_file::open_file(ground, dir, &path) {
            Err(OpenError::Resolve(ResolveError::Missing | ResolveError::NotADirectory)) => None,
            Err(e) => Some((path, Err(open_problem(e, Severity::Error)))),
            Ok(opened) => Some((path, Ok(opened))),
        }
    });
    let Some((path, opened)) = there.next() else { return ManifestLookup::default() };
    let fingerprint =
        opened.as_ref().ok().map(|opened| FileFingerprint::from_version(&opened.version));
    let read = opened.map(|opened| content::read_small_file(&opened.file));
    let others = there.map(|(path, _)| path).collect();
    let (manifest, problems) = match read {
        Ok(Ok(bytes)) => manifest::read(&bytes, ground.dir_name(dir)),
        Ok(Err(_)) => {
            (None, vec![FileProblem::error(DiagnosticCode::ManifestInvalid, READ_FAILED)])
        }
        Err(problem) => (None, vec![problem]),
    };
    let problems = problems.into_iter().map(|p| (path.clone(), p)).collect();
    ManifestLookup { manifest, file: Some(path), other_files: others, fingerprint, problems }
}
