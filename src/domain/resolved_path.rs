//! Where something really is, with every link resolved, as opposed to how it was walked to.

use super::RelPath;

/// A place below one of the allowed roots, no link in it. Two spots of one resolution are the same
/// place exactly when they are equal; spots of different resolutions do not compare.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ResolvedPath {
    /// The index of the allowed root.
    pub dir_index: usize,
    /// The path below it.
    pub rel_path: RelPath,
}

impl ResolvedPath {
    /// The place of an entry of this directory; `None` where `name` is no segment.
    #[must_use]
    pub fn join(&self, name: &[u8]) -> Option<Self> {
        Some(Self { dir_index: self.dir_index, rel_path: self.rel_path.join(name)? })
    }

    /// The directory that holds this place; `None` for the allowed root itself.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        Some(Self { dir_index: self.dir_index, rel_path: self.rel_path.parent()? })
    }

    /// What is left of this place below `dir`; `None` where it is not `dir` or below it.
    #[must_use]
    pub fn strip_prefix(&self, dir: &Self) -> Option<RelPath> {
        if self.dir_index == dir.dir_index {
            self.rel_path.strip_prefix(&dir.rel_path)
        } else {
            None
        }
    }
}
