//! Plugin to which a directory belongs: the nearest valid manifest in the directory or above it, up
//! to its allowed directory. Each manifest is read once per scan, and only if a skill needs it.

use super::file_problem::{READ_FAILED, is_harmless, is_transient, open_problem};
use super::plugin_reader::PluginReader;
use super::plugin_set::PluginIndex;
use super::scan_progress::ScanProgress;
use crate::daemon::fs::dirs_snapshot::{AllowedDirsSnapshot, ResolveError};
use crate::daemon::fs::open_file::{self, FileFingerprint, OpenError};
use crate::daemon::model::plugin::{MANIFEST_PATHS, ManifestProduct, PluginSkillList};
use crate::daemon::model::skill::PluginNamespace;
use crate::daemon::model::{
    BoundedDiagnostics, DiagnosticCode, FileProblem, PluginManifest, ResolvedPath,
};
use crate::daemon::parse::manifest;
use caproot_core::wire::{ContentDigest, RelPath};
use std::collections::HashMap;
use std::num::NonZero;
use std::sync::Arc;

/// Names of the manifest directories of plugins, one for each of [`MANIFEST_PATHS`].
pub const MANIFEST_DIRECTORIES: [&str; 3] = [".codex-plugin", ".claude-plugin", ".cursor-plugin"];
const _: () = assert!(MANIFEST_DIRECTORIES.len() == MANIFEST_PATHS.len());

/// Manifest files of one directory.
#[derive(Debug, PartialEq, Default)]
pub struct ManifestLookup {
    pub manifest: Option<PluginManifest>,
    /// First manifest file that exists.
    pub file: Option<RelPath>,
    /// Digest of the content that was parsed.
    pub digest: Option<ContentDigest>,
    /// Other manifest files, which are ignored.
    pub other_files: Vec<RelPath>,
    /// Manifest files in which nothing is redacted, also those that are ignored, with their fingerprints.
    pub harmless: Vec<(RelPath, NonZero<u64>)>,
    /// Fingerprint of each of the manifest files; `None` if a file could not be opened.
    fingerprints: [Option<FileFingerprint>; 3],
    /// Problems of files below the directory.
    problems: Vec<(RelPath, FileProblem)>,
}

impl ManifestLookup {
    /// Whether a manifest file was created, changed or removed since it was looked for.
    pub fn is_outdated(&self, snapshot: &AllowedDirsSnapshot, dir: &ResolvedPath) -> bool {
        let mut files = self.fingerprints.iter().zip(manifest_paths());
        without_scope_above(snapshot, dir, |snapshot| {
            files
                .any(|(read, path)| read.is_some_and(|read| read.is_outdated(snapshot, dir, &path)))
        })
    }

    /// Whether the manifest could not be read, and a new attempt may succeed.
    pub fn has_transient_error(&self) -> bool {
        let mut problems = self.problems.iter();
        problems.any(|(_, problem)| is_transient(problem))
    }
}

/// Resolver of the namespaces of one scan.
pub struct NamespaceResolver<'a> {
    pub reader: &'a PluginReader<'a>,
    /// Scanned directories, and whether they may hold a manifest.
    pub entered_dirs: &'a HashMap<ResolvedPath, bool>,
    pub plugins: &'a mut PluginIndex,
    /// Namespaces by directory.
    pub found: HashMap<ResolvedPath, Option<Arc<PluginNamespace>>>,
}

impl NamespaceResolver<'_> {
    /// Returns the namespace of a directory.
    pub fn find_namespace(
        &mut self,
        dir: &ResolvedPath,
        diagnostics: &mut BoundedDiagnostics,
    ) -> Option<Arc<PluginNamespace>> {
        let mut visited = Vec::new();
        let mut next = Some(dir.clone());
        let mut namespace = None;

        while let Some(path) = next {
            if let Some(cached) = self.found.get(&path) {
                namespace.clone_from(cached);
                break;
            }
            namespace = self.namespace_at(&path, diagnostics);
            next = path.parent();

            // The directory of a skill itself is rarely looked up again.
            if path != *dir || self.entered_dirs.get(dir) != Some(&false) {
                visited.push(path);
            }
            if namespace.is_some() {
                break;
            }
        }

        let visited = visited.into_iter().map(|path| (path, namespace.clone()));
        self.found.extend(visited);
        namespace
    }

    fn namespace_at(
        &mut self,
        dir: &ResolvedPath,
        diagnostics: &mut BoundedDiagnostics,
    ) -> Option<Arc<PluginNamespace>> {
        if self.entered_dirs.get(dir) == Some(&false) {
            self.plugins.manifests.remove(dir);
            return None;
        }

        let lookup = self.plugins.manifests.entry(dir.clone());
        let lookup = lookup.or_insert_with(|| self.reader.read_manifest(dir));

        let below = dir.strip_prefix(self.reader.root);
        for (path, problem) in &lookup.problems {
            let resource = below.as_ref().map(|dir| dir.join_path(path));
            diagnostics.report(resource, problem.clone());
        }

        let manifest = lookup.manifest.as_ref()?;
        let product = ManifestProduct::of_manifest(lookup.file.as_ref()?);
        Some(Arc::new(PluginNamespace {
            name: (&*manifest.name).into(),
            plugin_dir: below,
            is_switched_off: manifest.declarations.is_switched_off,
            host_capabilities: if self.reader.snapshot.is_in_access_scope(dir) {
                manifest.declarations.info.host_capabilities.clone()
            } else {
                // A manifest above the caller's access scope discloses only its name.
                Arc::default()
            },
            skill_list: PluginSkillList::new(dir, &manifest.declarations, product),
        }))
    }
}

/// Paths of the manifests of a plugin, below its directory.
pub fn manifest_paths() -> [RelPath; 3] {
    MANIFEST_PATHS.map(|path| RelPath::new(path.as_bytes()).expect("two segments"))
}

/// Reads manifests of a directory with a snapshot that has no access scope if the directory is above the
/// scope: a skill has one name for every caller, and disable rules match this name.
fn without_scope_above<T>(
    snapshot: &AllowedDirsSnapshot,
    dir: &ResolvedPath,
    read: impl FnOnce(&AllowedDirsSnapshot) -> T,
) -> T {
    if snapshot.is_in_access_scope(dir) {
        read(snapshot)
    } else {
        read(&snapshot.without_access_scope())
    }
}

impl PluginReader<'_> {
    /// Reads the manifest of a directory. Above the caller's access scope, the manifest only
    /// provides the plugin's name, and its problems are not reported.
    pub fn read_manifest(&self, dir: &ResolvedPath) -> ManifestLookup {
        let mut lookup = without_scope_above(self.snapshot, dir, |snapshot| {
            read_first_manifest(snapshot, self.context.progress, dir)
        });
        if !self.snapshot.is_in_access_scope(dir) {
            lookup.problems.clear();
        }
        lookup
    }
}

/// Reads the first manifest of a directory.
fn read_first_manifest(
    snapshot: &AllowedDirsSnapshot,
    progress: &ScanProgress,
    dir: &ResolvedPath,
) -> ManifestLookup {
    let name = snapshot.dir_name(dir);
    let mut lookup = ManifestLookup::default();
    for (at, path) in manifest_paths().into_iter().enumerate() {
        let (manifest, digest, problems) = match open_file::open_file(snapshot, dir, &path) {
            Err(e) if e.is_absent() => {
                lookup.fingerprints[at] = Some(FileFingerprint::ABSENT);
                continue;
            }
            // Above a skill that a link of the search found, nothing is read.
            Err(OpenError::Resolve(ResolveError::Outside)) if snapshot.is_in_link_dir(dir) => {
                continue;
            }
            Err(e) => (None, None, vec![open_problem(e)]),
            Ok(opened) => {
                let fingerprint = FileFingerprint::from_version(&opened.version);
                lookup.fingerprints[at] = Some(fingerprint);
                if let Ok(bytes) = opened.read_small() {
                    let read = || manifest::read(&bytes, name);
                    let (manifest, problems) = progress.parse_file(&opened.real_path, read);
                    if manifest.is_some() && is_harmless(&problems) {
                        lookup.harmless.push((path.clone(), fingerprint.number()));
                    }
                    (manifest, Some(ContentDigest::of(&bytes)), problems)
                } else {
                    let problem = FileProblem::error(DiagnosticCode::ManifestInvalid, READ_FAILED);
                    (None, None, vec![problem])
                }
            }
        };

        // Only the first manifest counts. The others are files of the plugin.
        if lookup.file.is_some() {
            lookup.other_files.push(path);
        } else {
            let by_path = problems.into_iter().map(|found| (path.clone(), found));
            lookup.problems = by_path.collect();
            lookup.manifest = manifest;
            lookup.digest = digest;
            lookup.file = Some(path);
        }
    }
    lookup
}
