//! Files that the daemon never serves, by path: files in skipped directories, `.env…` files, and
//! the manifest files of plugins.

use super::plugin::{ComponentKind, MANIFEST_PATHS, MARKETPLACE_PATHS};
use caproot_core::wire::RelPath;

/// Whether a file may be listed and read: the path has no segment in `skipped_dirs` and no segment
/// that begins with `.env`, where secrets are kept.
#[must_use]
pub fn may_serve_path(path: &RelPath, skipped_dirs: &[Box<[u8]>]) -> bool {
    path.segments().all(|segment| {
        !segment.starts_with(b".env") && !skipped_dirs.iter().any(|name| **name == *segment)
    })
}

/// Files below a root in which plugins declare servers, hooks and apps for a host to start. Such
/// files may hold secrets. The daemon parses them and never serves their content.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ManifestFiles(Vec<RelPath>);

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
                );
            }
        }
    }

    /// Adds one file by its path and, if that is below the root, its resolved path.
    pub fn add_file(&mut self, path: RelPath, resolved: Option<RelPath>) {
        self.0.extend(resolved.filter(|resolved| *resolved != path));
        self.0.push(path);
    }

    /// Sorts the files. Must be called between the last addition and [`contains`](Self::contains).
    pub fn sort_and_dedup(&mut self) {
        self.0.sort();
        self.0.dedup();
        self.0.shrink_to_fit();
    }

    /// Whether the path below the root is a manifest file.
    #[must_use]
    pub fn contains(&self, path: &RelPath) -> bool {
        self.0.binary_search(path).is_ok()
    }
}
