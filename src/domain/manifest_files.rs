//! The files in which plugins declare what a host starts, and which may hold secrets: they are known,
//! and their content is never handed out.

use super::plugin::{ComponentKind, marketplace};
use super::{RelPath, manifest};

/// Places below a root.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ManifestFiles(Vec<RelPath>);

impl ManifestFiles {
    /// Adds the usual places in a directory that may be a plugin: as it was walked to, and where it
    /// really is, if that is below the root.
    pub fn add_standard_files(&mut self, walked: &RelPath, real: Option<&RelPath>) {
        let json = ComponentKind::ALL.into_iter().filter(|kind| kind.is_json());
        let json = json.flat_map(|kind| kind.default_paths().iter().copied());
        for path in
            manifest::MANIFEST_PATHS.into_iter().chain(marketplace::MARKETPLACE_PATHS).chain(json)
        {
            if let Some(path) = RelPath::new(path.as_bytes()) {
                self.add_file(walked.join_path(&path), real.map(|real| real.join_path(&path)));
            }
        }
    }

    /// Adds one file.
    pub fn add_file(&mut self, walked: RelPath, real: Option<RelPath>) {
        self.0.extend(real.filter(|real| *real != walked));
        self.0.push(walked);
    }

    /// Must be called when all are added.
    pub fn sort_and_dedup(&mut self) {
        self.0.sort();
        self.0.dedup();
        self.0.shrink_to_fit();
    }

    /// Whether a place below the root is one of them.
    #[must_use]
    pub fn contains(&self, place: &RelPath) -> bool {
        self.0.binary_search(place).is_ok()
    }
}
