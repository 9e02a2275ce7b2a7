//! Resolved paths: paths below an allowed directory in which all links are resolved.

use caproot_core::wire::RelPath;

/// Device and inode number. Two paths with equal numbers are the same directory.
pub type DirIdentity = (u64, u64);

/// Path below an allowed directory without a link in it. Two resolved paths from the same snapshot
/// of the allowed directories are equal exactly if they are the same place. Paths from different
/// snapshots must not be compared.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ResolvedPath {
    /// Index of the allowed directory.
    pub dir_index: usize,
    /// Path below the allowed directory.
    pub rel_path: RelPath,
}

impl ResolvedPath {
    /// Returns the path of an entry of this directory, or `None` if `name` is not a valid segment.
    #[must_use]
    pub fn join(&self, name: &[u8]) -> Option<Self> {
        Some(Self {
            dir_index: self.dir_index,
            rel_path: self.rel_path.join(name)?,
        })
    }

    /// Returns a path below this directory.
    #[must_use]
    pub fn join_path(&self, below: &RelPath) -> Self {
        Self {
            dir_index: self.dir_index,
            rel_path: self.rel_path.join_path(below),
        }
    }

    /// Returns the parent directory, or `None` for the allowed directory itself.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        Some(Self {
            dir_index: self.dir_index,
            rel_path: self.rel_path.parent()?,
        })
    }

    /// Returns the path below `dir`, or `None` if the path is neither `dir` nor below `dir`.
    #[must_use]
    pub fn strip_prefix(&self, dir: &Self) -> Option<RelPath> {
        let below = self.rel_path.strip_prefix(&dir.rel_path);
        below.filter(|_| self.dir_index == dir.dir_index)
    }
}
