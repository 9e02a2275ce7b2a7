//! Files that the daemon does not serve, by path: files in skipped directories, `.env…` files, and
//! the manifest files of plugins in which something is redacted.

use super::plugin::{ComponentKind, MANIFEST_PATHS, MARKETPLACE_PATHS};
use caproot_core::wire::RelPath;
use std::num::NonZero;

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
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ManifestFiles(Vec<(RelPath, Option<NonZero<u64>>)>);

impl ManifestFiles {
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
                    None,
                );
            }
        }
    }

    /// Adds one file by its path and, if that is below the root, its resolved path. `harmless` is the
    /// fingerprint of the version in which nothing is redacted.
    pub fn add_file(
        &mut self,
        path: RelPath,
        resolved: Option<RelPath>,
        harmless: Option<NonZero<u64>>,
    ) {
        let resolved = resolved.filter(|resolved| *resolved != path);
        self.0.extend(resolved.map(|resolved| (resolved, harmless)));
        self.0.push((path, harmless));
    }

    /// Sorts the files. Must be called between the last addition and [`contains`](Self::contains).
    pub fn sort_and_dedup(&mut self) {
        // A version sorts before no version, and the first entry of a path stays.
        self.0
            .sort_by(|(a, x), (b, y)| a.cmp(b).then_with(|| y.is_some().cmp(&x.is_some())));
        self.0.dedup_by(|(later, _), (first, _)| later == first);
        self.0.shrink_to_fit();
    }

    /// Whether the path below the root is a manifest file.
    #[must_use]
    pub fn contains(&self, path: &RelPath) -> bool {
        self.find(path).is_some()
    }

    /// Whether the version with this fingerprint may be served: the path is no manifest file, or nothing
    /// in this version is redacted. `None` is an unknown version.
    #[must_use]
    pub fn may_serve(&self, path: &RelPath, version: Option<NonZero<u64>>) -> bool {
        self.find(path)
            .is_none_or(|harmless| version.is_some() && harmless == version)
    }

    fn find(&self, path: &RelPath) -> Option<Option<NonZero<u64>>> {
        let at = self.0.binary_search_by(|(known, _)| known.cmp(path)).ok()?;
        Some(self.0[at].1)
    }
}
