//! Stamps that distinguish versions of a file, and the directories to watch for a file.

use std::collections::BTreeSet;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Identity, size and times of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileStamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileStamp {
    /// Returns the stamp of the file at a path; `None` if the file does not exist. Follows links.
    /// Blocks on the disk.
    #[must_use]
    pub fn of_path(path: &Path) -> Option<Self> {
        std::fs::metadata(path).ok().as_ref().map(Self::new)
    }

    pub(super) fn new(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// Returns the directories in which a change can make these paths refer to other files: the parent
/// directories of the paths and of their link targets. Blocks on the disk.
#[must_use]
pub fn parent_dirs<'a>(files: impl IntoIterator<Item = &'a Path>) -> BTreeSet<PathBuf> {
    let mut dirs = BTreeSet::new();
    for file in files {
        dirs.extend(file.parent().and_then(|dir| dir.canonicalize().ok()));
        let target = file.canonicalize().ok();
        dirs.extend(target.as_deref().and_then(Path::parent).map(Path::to_owned));
    }
    dirs
}
