//! Plugin to which a directory belongs: the nearest valid manifest in the directory or above it, up
//! to its allowed directory. Each manifest is read once per scan, and only if a skill needs it.

use super::file_problem::{READ_FAILED, is_harmless, is_transient, open_problem};
use super::plugin_dir::DeclarationFile;
use super::scan_progress::ScanProgress;
use crate::daemon::fs::dirs_snapshot::{AllowedDirsSnapshot, ResolveError};
use crate::daemon::fs::open_file::{self, FileFingerprint, OpenError, OpenFile};
use crate::daemon::model::catalog::BoundedDiagnostics;
use crate::daemon::model::plugin::{MANIFEST_PATHS, ManifestProduct, PluginSkillList};
use crate::daemon::model::skill::PluginNamespace;
use crate::daemon::model::{
    Diagnostic, DiagnosticCode, FileProblem, PluginManifest, ResolvedPath, Severity,
};
use crate::daemon::parse::manifest;
use caproot_core::wire::{ContentDigest, RelPath};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::num::NonZero;
use std::sync::Arc;

/// Names of the manifest directories of plugins, one for each of [`MANIFEST_PATHS`].
pub const MANIFEST_DIRECTORIES: [&str; 3] = [".codex-plugin", ".claude-plugin", ".cursor-plugin"];
const _: () = assert!(MANIFEST_DIRECTORIES.len() == MANIFEST_PATHS.len());

/// Manifests by directory.
pub type ManifestsByDir = HashMap<ResolvedPath, ManifestLookup>;

/// Namespaces by directory.
pub type NamespaceCache = HashMap<ResolvedPath, Option<Arc<PluginNamespace>>>;

/// Manifest files of one directory.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ManifestLookup {
    pub manifest: Option<PluginManifest>,
    /// First manifest file that exists.
    pub file: Option<RelPath>,
    /// Digest of the content that was parsed.
    pub digest: Option<ContentDigest>,
    /// Other manifest files, which are ignored.
    pub other_files: Vec<RelPath>,
    /// Manifest files in which nothing is redacted, with their fingerprints.
    harmless: Vec<(RelPath, NonZero<u64>)>,
    /// Fingerprint of each of the manifest files; `None` if a file could not be opened.
    fingerprints: [Option<FileFingerprint>; 3],
    /// Problems of files below the directory.
    problems: Vec<(RelPath, FileProblem)>,
}

impl ManifestLookup {
    /// Returns the manifest and its path below the directory.
    pub fn usable_manifest(&self) -> Option<(PluginManifest, RelPath)> {
        Some((self.manifest.clone()?, self.file.clone()?))
    }

    /// Returns the manifests in which nothing is redacted, also those that are ignored.
    pub fn harmless_manifests(&self) -> impl Iterator<Item = DeclarationFile<'_>> {
        self.harmless.iter().map(|(file, version)| DeclarationFile {
            file,
            real_path: None,
            harmless: Some(*version),
        })
    }

    /// Whether the manifest file cannot be used.
    pub fn is_broken(&self) -> bool {
        self.manifest.is_none() && self.file.is_some()
    }

    /// Whether a manifest file was created, changed or removed since it was looked for.
    pub fn is_outdated(&self, snapshot: &AllowedDirsSnapshot, dir: &ResolvedPath) -> bool {
        let is_changed = |snapshot: &AllowedDirsSnapshot| {
            let mut files = self.fingerprints.iter().zip(manifest_paths());
            files
                .any(|(read, path)| read.is_some_and(|read| read.is_outdated(snapshot, dir, &path)))
        };
        if snapshot.is_in_access_scope(dir) {
            return is_changed(snapshot);
        }
        is_changed(&snapshot.without_access_scope())
    }

    /// Whether the manifest could not be read, and a new attempt may succeed.
    pub fn has_transient_error(&self) -> bool {
        self.problems
            .iter()
            .any(|(_, problem)| is_transient(problem))
    }
}

/// Parameters for reading manifests.
#[derive(Clone, Copy)]
pub struct ManifestReader<'a> {
    pub snapshot: &'a AllowedDirsSnapshot,
    pub progress: &'a ScanProgress,
}

/// Resolver of the namespaces of one scan.
pub struct NamespaceResolver<'a> {
    reader: ManifestReader<'a>,
    root: &'a ResolvedPath,
    /// Scanned directories, and whether they may hold a manifest.
    entered_dirs: &'a HashMap<ResolvedPath, bool>,
    manifests: &'a mut ManifestsByDir,
    namespace_cache: NamespaceCache,
}

impl<'a> NamespaceResolver<'a> {
    /// Creates a resolver. `namespace_cache` has the namespaces of an earlier resolver of the scan.
    pub fn new(
        reader: ManifestReader<'a>,
        root: &'a ResolvedPath,
        entered_dirs: &'a HashMap<ResolvedPath, bool>,
        manifests: &'a mut ManifestsByDir,
        namespace_cache: NamespaceCache,
    ) -> Self {
        Self {
            reader,
            root,
            entered_dirs,
            manifests,
            namespace_cache,
        }
    }

    pub fn into_cache(self) -> NamespaceCache {
        self.namespace_cache
    }

    pub fn root(&self) -> &'a ResolvedPath {
        self.root
    }

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
            if let Some(cached) = self.namespace_cache.get(&path) {
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

        for path in visited {
            self.namespace_cache.insert(path, namespace.clone());
        }
        namespace
    }

    /// Returns the manifest of the root, after a call of [`Self::find_namespace`] for the root.
    pub fn root_manifest(&self) -> Option<PluginManifest> {
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

        let lookup = match self.manifests.entry(dir.clone()) {
            Entry::Occupied(cached) => cached.into_mut(),
            Entry::Vacant(new) => new.insert(self.reader.read_manifest(dir)),
        };

        let below = (dir.dir_index == self.root.dir_index)
            .then(|| dir.rel_path.strip_prefix(&self.root.rel_path))
            .flatten();
        for (path, problem) in &lookup.problems {
            let resource = below.as_ref().map(|dir| dir.join_path(path));
            diagnostics.push(Diagnostic {
                resource,
                problem: problem.clone(),
            });
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

impl ManifestReader<'_> {
    /// Reads the manifest of a directory. Above the caller's access scope, the manifest only
    /// provides the plugin's name: a skill has one name for every caller, and disable rules match
    /// this name. Its problems are not reported there.
    pub fn read_manifest(self, dir: &ResolvedPath) -> ManifestLookup {
        if self.snapshot.is_in_access_scope(dir) {
            return read_first_manifest(self, dir);
        }
        let snapshot = self.snapshot.without_access_scope();
        let reader = ManifestReader {
            snapshot: &snapshot,
            progress: self.progress,
        };
        ManifestLookup {
            problems: Vec::new(),
            ..read_first_manifest(reader, dir)
        }
    }
}

/// Reads the first manifest of a directory.
fn read_first_manifest(reader: ManifestReader<'_>, dir: &ResolvedPath) -> ManifestLookup {
    let ManifestReader { snapshot, progress } = reader;
    let mut fingerprints = [None; 3];
    let mut existing = Vec::new();
    for (path, fingerprint) in manifest_paths().into_iter().zip(&mut fingerprints) {
        match open_file::open_file(snapshot, dir, &path) {
            Err(e) if e.is_absent() => *fingerprint = Some(FileFingerprint::ABSENT),
            // Above a skill that a link of the search found, nothing is read.
            Err(OpenError::Resolve(ResolveError::Outside)) if snapshot.is_in_link_dir(dir) => {}
            Err(e) => existing.push((path, Err(open_problem(e, Severity::Error)))),
            Ok(opened) => {
                *fingerprint = Some(FileFingerprint::from_version(&opened.version));
                existing.push((path, Ok(opened)));
            }
        }
    }

    let name = snapshot.dir_name(dir);
    let mut lookup = ManifestLookup {
        fingerprints,
        ..ManifestLookup::default()
    };
    for (path, opened) in existing {
        let version = opened.as_ref().ok().map(|opened| opened.version);
        let (manifest, digest, problems) = match opened {
            Ok(opened) => parse_manifest(progress, &opened, name),
            Err(problem) => (None, None, vec![problem]),
        };
        if let (Some(version), Some(_), true) = (version, &manifest, is_harmless(&problems)) {
            let version = FileFingerprint::from_version(&version).number();
            lookup.harmless.push((path.clone(), version));
        }

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

fn parse_manifest(
    progress: &ScanProgress,
    opened: &OpenFile,
    name: Option<&[u8]>,
) -> (
    Option<PluginManifest>,
    Option<ContentDigest>,
    Vec<FileProblem>,
) {
    let Ok(bytes) = opened.read_small() else {
        let problem = FileProblem::error(DiagnosticCode::ManifestInvalid, READ_FAILED);
        return (None, None, vec![problem]);
    };
    let parsed = progress.parse_file(&opened.real_path, || manifest::read(&bytes, name));
    let (manifest, problems) = parsed.unwrap_or_else(|problem| (None, vec![problem]));
    (manifest, Some(ContentDigest::of(&bytes)), problems)
}
