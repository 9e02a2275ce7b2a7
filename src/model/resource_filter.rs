//! Files that the daemon does not serve, by path: files in skipped directories, `.env…` files, and
//! the manifest files of plugins in which something is redacted.

use super::plugin::{ComponentKind, MANIFEST_PATHS, MARKETPLACE_PATHS};
use caproot_core::sync::Mutex;
use caproot_core::wire::RelPath;
use std::collections::HashMap;
use std::num::NonZero;
use std::sync::Arc;

/// Whether a file may be listed and read: the path has no segment in `skipped_dirs` and no segment
/// that begins with `.env`, where secrets are kept.
#[must_use]
pub fn may_serve_path(path: &RelPath, skipped_dirs: &[Box<[u8]>]) -> bool {
    path.segments().all(|segment| {
        !segment.starts_with(b".env") && !skipped_dirs.iter().any(|name| **name == *segment)
    })
}

/// Files below a root in which plugins declare servers, hooks and apps for a host to start. Such
/// files may hold secrets. The daemon serves the content of a version in which nothing is redacted, and
/// of no other version.
#[derive(Debug, Clone, Default)]
pub struct ManifestFiles {
    paths: Vec<RelPath>,
    versions: HarmlessVersions,
}

/// Fingerprints of the versions of manifest files in which nothing is redacted. The catalogs of a root
/// share them, because a file may have a new version without a change of the catalog.
#[derive(Debug, Clone, Default)]
pub struct HarmlessVersions(Arc<Mutex<HashMap<RelPath, NonZero<u64>>>>);

impl HarmlessVersions {
    /// Replaces all versions by those of a new scan.
    pub fn replace(&self, versions: HashMap<RelPath, NonZero<u64>>) {
        *self.0.lock() = versions;
    }
}

impl PartialEq for ManifestFiles {
    /// Whether both have the same paths.
    fn eq(&self, other: &Self) -> bool {
        self.paths == other.paths
    }
}

impl ManifestFiles {
    /// Creates an empty list with these versions.
    #[must_use]
    pub fn new(versions: HarmlessVersions) -> Self {
        Self {
            paths: Vec::new(),
            versions,
        }
    }

    /// Adds the default paths of manifest files in a directory that may be a plugin. `resolved` is
    /// the directory's resolved path, if that is below the root.
    pub fn add_standard_files(&mut self, dir: &RelPath, resolved: Option<&RelPath>) {
        let json = ComponentKind::ALL.into_iter().filter(|kind| kind.is_json());
        let json = json.flat_map(|kind| kind.default_paths().iter().copied());
        for path in MANIFEST_PATHS
            .into_iter()
            .chain(MARKETPLACE_PATHS)
            .chain(json)
        {
            if let Some(path) = RelPath::new(path.as_bytes()) {
                self.add_file(
                    dir.join_path(&path),
                    resolved.map(|dir| dir.join_path(&path)),
                );
            }
        }
    }

    /// Adds one file by its path and, if that is below the root, its resolved path.
    pub fn add_file(&mut self, path: RelPath, resolved: Option<RelPath>) {
        self.paths
            .extend(resolved.filter(|resolved| *resolved != path));
        self.paths.push(path);
    }

    /// Sorts the files. Must be called between the last addition and [`contains`](Self::contains).
    pub fn sort_and_dedup(&mut self) {
        self.paths.sort();
        self.paths.dedup();
        self.paths.shrink_to_fit();
    }

    /// Whether the path below the root is a manifest file.
    #[must_use]
    pub fn contains(&self, path: &RelPath) -> bool {
        self.paths.binary_search(path).is_ok()
    }

    /// Whether the version with this fingerprint may be served: the path is no manifest file, or nothing
    /// in this version is redacted. `None` is an unknown version.
    #[must_use]
    pub fn may_serve(&self, path: &RelPath, version: Option<NonZero<u64>>) -> bool {
        !self.contains(path)
            || (version.is_some() && self.versions.0.lock().get(path).copied() == version)
    }
}
