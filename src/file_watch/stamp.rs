//! Stamps that tell two states of a file apart, and the directories to watch for a file.

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
    /// The stamp of the file that a path leads to; `None` if there is no such file. Blocks on the disk.
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

/// The directories in which a change can make these paths lead to other files: the directory of each path,
/// and the directory of the file behind its links. Blocks on the disk.
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
