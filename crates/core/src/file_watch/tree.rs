//! Watches directory trees, and summarizes the state of all entries.

use super::{FileStamp, WatchedDirs};
use std::collections::BTreeSet;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Limits of one walk.
#[derive(Debug, Clone, Default)]
pub struct TreeLimits {
    /// Maximum number of watched directories.
    pub directories: usize,
    /// Maximum number of compared entries.
    pub entries: usize,
    /// Names of directories that the walk skips.
    pub excluded_dir_names: Vec<Box<[u8]>>,
}

/// Hash of the names and stamps of all entries. Equal states mean an equal tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeState(u64);

/// Watches the trees below these directories and no others. Each directory is watched before it is
/// listed, so that no entry is missed. Links are compared, not followed. Blocks on the disk.
#[must_use]
pub fn watch_tree(watched: &WatchedDirs, tops: &[PathBuf], limits: &TreeLimits) -> TreeState {
    let mut hasher = DefaultHasher::new();
    let mut dirs = BTreeSet::new();
    let mut entries = 0;
    let mut pending = Vec::new();
    let mut parents = Vec::new();

    for top in tops {
        if !top.exists()
            && let Some(parent) = parent_of(top)
        {
            // The directory may be created later.
            watched.watch(&parent);
            parents.push(parent);
        }
        pending.extend(top.canonicalize().ok());
    }
    pending.hash(&mut hasher);

    while let Some(dir) = pending.pop() {
        if dirs.len() == limits.directories || !dirs.insert(dir.clone()) {
            continue;
        }

        watched.watch(&dir);
        let listed = std::fs::read_dir(&dir).into_iter().flatten().flatten();
        let mut listed: Vec<_> = listed
            .take(limits.entries.saturating_sub(entries))
            .collect();
        entries += listed.len();
        // readdir(3) returns entries in any order, and equal trees must have equal hashes.
        listed.sort_by_key(std::fs::DirEntry::file_name);

        for entry in listed {
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            let name = entry.file_name();
            let is_dir = metadata.is_dir();
            let mut excluded = limits.excluded_dir_names.iter();
            if is_dir && excluded.any(|excluded| **excluded == *name.as_bytes()) {
                continue;
            }

            (&dir, &name).hash(&mut hasher);
            if is_dir {
                // A change of the permissions can make the directory readable.
                metadata.mode().hash(&mut hasher);
                pending.push(entry.path());
            } else {
                FileStamp::new(&metadata).hash(&mut hasher);
            }
        }
    }

    // The parents come last: a parent that is also a top would not be walked.
    dirs.extend(parents);
    watched.unwatch_others(&dirs);
    TreeState(hasher.finish())
}

fn parent_of(top: &Path) -> Option<PathBuf> {
    std::path::absolute(top).ok()?.parent()?.canonicalize().ok()
}
