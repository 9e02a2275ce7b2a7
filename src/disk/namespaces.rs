//! Plugin to which a directory belongs: the nearest valid manifest in the directory or above it, up
//! to its allowed directory. Each manifest is read once per scan, and only if a skill needs it.

use super::content;
use super::dir_lister::{READ_FAILED, is_transient, open_problem};
use super::dirs_snapshot::{AllowedDirsSnapshot, ResolveError};
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

/// Manifests by directory.
pub(super) type ManifestsByDir = HashMap<ResolvedPath, ManifestLookup>;

/// Manifest files of one directory.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct ManifestLookup {
    pub(super) manifest: Option<PluginManifest>,
    /// First manifest file that exists.
    pub(super) file: Option<RelPath>,
    /// Other manifest files, which are ignored.
    pub(super) other_files: Vec<RelPath>,
    /// The fingerprint of the file, if the file could be opened.
    fingerprint: Option<FileFingerprint>,
    /// Problems of files below the directory.
    problems: Vec<(RelPath, FileProblem)>,
}

impl ManifestLookup {
    /// Returns the manifest and its path below the directory.
    pub(super) fn usable_manifest(&self) -> Option<(PluginManifest, RelPath)> {
        Some((self.manifest.clone()?, self.file.clone()?))
    }

    /// Whether the manifest file cannot be used.
    pub(super) fn is_broken(&self) -> bool {
        self.manifest.is_none() && self.file.is_some()
    }

    /// Whether the manifest changed since it was read.
    pub(super) fn is_outdated(&self, snapshot: &AllowedDirsSnapshot, dir: &ResolvedPath) -> bool {
        let Some((read, file)) = self.fingerprint.zip(self.file.as_ref()) else { return false };
        if snapshot.is_in_access_scope(dir) {
            return read.is_outdated(snapshot, dir, file);
        }
        read.is_outdated(&snapshot.without_access_scope(), dir, file)
    }

    /// Whether the manifest could not be read, and a new attempt may succeed.
    pub(super) fn has_transient_error(&self) -> bool {
        self.problems.iter().any(|(_, problem)| is_transient(problem))
    }
}

/// Resolver of the namespaces of one scan.
pub(super) struct NamespaceResolver<'a> {
    pub(super) snapshot: &'a AllowedDirsSnapshot,
    pub(super) root: &'a ResolvedPath,
    /// Scanned directories, and whether they may hold a manifest.
    pub(super) entered_dirs: &'a HashMap<ResolvedPath, bool>,
    pub(super) manifests: &'a mut ManifestsByDir,
    pub(super) namespace_cache: HashMap<ResolvedPath, Option<Arc<PluginNamespace>>>,
}

impl NamespaceResolver<'_> {
    /// Returns the namespace of a directory.
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
            // The directory of a skill itself is rarely looked up again.
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

    /// Returns the manifest of the root, after a call of [`Self::find_namespace`] for the root.
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

/// Reads the manifest of a directory. Above the caller's access scope, the manifest only provides
/// the plugin's name: a skill has one name for every caller, and disable rules match this name. Its
/// problems are not reported there.
pub(super) fn read_manifest(snapshot: &AllowedDirsSnapshot, dir: &ResolvedPath) -> ManifestLookup {
    if snapshot.is_in_access_scope(dir) {
        return read_first_manifest(snapshot, dir);
    }
    ManifestLookup {
        problems: Vec::new(),
        ..read_first_manifest(&snapshot.without_access_scope(), dir)
    }
}

/// Reads the first manifest of a directory.
fn read_first_manifest(snapshot: &AllowedDirsSnapshot, dir: &ResolvedPath) -> ManifestLookup {
    let paths = manifest::MANIFEST_PATHS.into_iter();
    let mut there = paths.filter_map(|path| {
        let path = RelPath::new(path.as_bytes())?;
        match open_file::open_file(snapshot, dir, &path) {
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
        Ok(Ok(bytes)) => manifest::read(&bytes, snapshot.dir_name(dir)),
        Ok(Err(_)) => {
            (None, vec![FileProblem::error(DiagnosticCode::ManifestInvalid, READ_FAILED)])
        }
        Err(problem) => (None, vec![problem]),
    };
    let problems = problems.into_iter().map(|p| (path.clone(), p)).collect();
    ManifestLookup { manifest, file: Some(path), other_files: others, fingerprint, problems }
}
