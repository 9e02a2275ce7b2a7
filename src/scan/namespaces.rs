//! Plugin to which a directory belongs: the nearest valid manifest in the directory or above it, up
//! to its allowed directory. Each manifest is read once per scan, and only if a skill needs it.

use super::file_problem::{READ_FAILED, is_harmless, is_transient, open_problem};
use super::plugin_dir::DeclarationFile;
use super::scan_progress::ScanProgress;
use crate::fs::dirs_snapshot::{AllowedDirsSnapshot, ResolveError};
use crate::fs::open_file::{self, FileFingerprint, OpenError};
use crate::model::catalog::BoundedDiagnostics;
use crate::model::plugin::{MANIFEST_PATHS, ManifestProduct, PluginSkillList};
use crate::model::skill::PluginNamespace;
use crate::model::{
    Diagnostic, DiagnosticCode, FileProblem, PluginManifest, ResolvedPath, Severity,
};
use crate::parse::manifest;
use caproot_core::wire::RelPath;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
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
    /// Other manifest files, which are ignored.
    pub other_files: Vec<RelPath>,
    /// Fingerprint of the file; `None` if the file could not be opened.
    fingerprint: Option<FileFingerprint>,
    /// Problems of files below the directory.
    problems: Vec<(RelPath, FileProblem)>,
}

impl ManifestLookup {
    /// Returns the manifest and its path below the directory.
    pub fn usable_manifest(&self) -> Option<(PluginManifest, RelPath)> {
        Some((self.manifest.clone()?, self.file.clone()?))
    }

    /// Returns the manifest as a file, if nothing in it is redacted.
    pub fn harmless_manifest(&self) -> Option<DeclarationFile<'_>> {
        let is_harmless = is_harmless(self.problems.iter().map(|(_, problem)| problem));
        let file = self
            .file
            .as_ref()
            .filter(|_| self.manifest.is_some() && is_harmless)?;
        Some(DeclarationFile {
            file,
            real_path: None,
            harmless: Some(self.fingerprint?.number()),
        })
    }

    /// Whether the manifest file cannot be used.
    pub fn is_broken(&self) -> bool {
        self.manifest.is_none() && self.file.is_some()
    }

    /// Whether the manifest changed since it was read.
    pub fn is_outdated(&self, snapshot: &AllowedDirsSnapshot, dir: &ResolvedPath) -> bool {
        let Some((fingerprint, file)) = self.fingerprint.zip(self.file.as_ref()) else {
            return false;
        };
        if snapshot.is_in_access_scope(dir) {
            return fingerprint.is_outdated(snapshot, dir, file);
        }
        fingerprint.is_outdated(&snapshot.without_access_scope(), dir, file)
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
            skill_list: PluginSkillList::new(dir, &manifest.declarations, product),
        }))
    }
}

/// Whether a directory is a manifest directory of a plugin.
pub fn is_manifest_directory(dir: &ResolvedPath) -> bool {
    let name = dir.rel_path.file_name().unwrap_or_default();
    MANIFEST_DIRECTORIES
        .iter()
        .any(|manifest| manifest.as_bytes() == name)
}

/// Path of a manifest below its manifest directory.
pub fn manifest_file() -> RelPath {
    RelPath::new(b"plugin.json").expect("one segment")
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
    let paths = MANIFEST_PATHS.into_iter();
    let mut existing = paths.filter_map(|path| {
        let path = RelPath::new(path.as_bytes())?;
        match open_file::open_file(snapshot, dir, &path) {
            Err(OpenError::Resolve(ResolveError::Missing | ResolveError::NotADirectory)) => None,
            // Above a skill that a link of the search found, nothing is read.
            Err(OpenError::Resolve(ResolveError::Outside)) if snapshot.is_in_link_dir(dir) => None,
            Err(e) => Some((path, Err(open_problem(e, Severity::Error)))),
            Ok(opened) => Some((path, Ok(opened))),
        }
    });

    let Some((path, opened)) = existing.next() else {
        return ManifestLookup::default();
    };

    let fingerprint = opened
        .as_ref()
        .ok()
        .map(|opened| FileFingerprint::from_version(&opened.version));
    let bytes = opened.map(|opened| (opened.read_small(), opened.real_path));
    let other_files = existing.map(|(path, _)| path).collect();

    let (manifest, problems) = match bytes {
        Ok((Ok(bytes), real_path)) => {
            let name = snapshot.dir_name(dir);
            let parsed = progress.parse_file(&real_path, || manifest::read(&bytes, name));
            parsed.unwrap_or_else(|problem| (None, vec![problem]))
        }
        Ok((Err(_), _)) => (
            None,
            vec![FileProblem::error(
                DiagnosticCode::ManifestInvalid,
                READ_FAILED,
            )],
        ),
        Err(problem) => (None, vec![problem]),
    };

    let problems_by_path = problems.into_iter().map(|p| (path.clone(), p)).collect();

    ManifestLookup {
        manifest,
        file: Some(path),
        other_files,
        fingerprint,
        problems: problems_by_path,
    }
}
