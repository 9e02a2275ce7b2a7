//! Directories that are not allowed, and in which links below some roots may find skills.

use super::configured_dirs::AllowedDir;
use crate::daemon::model::PublishedRoot;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::Arc;

/// Link directories of all roots, with their state in a snapshot.
#[derive(Debug, Default)]
pub struct LinkDirs {
    pub dirs: Vec<Arc<AllowedDir>>,
    pub rules: Arc<[LinkRule]>,
}

/// Link directories of one root.
#[derive(Debug)]
pub struct LinkRule {
    /// Index of the root among the allowed directories.
    pub root: usize,
    /// Indexes among the link directories.
    pub dirs: Vec<usize>,
}

/// Returns the paths of the link directories of the roots, each once, and the rule of each root.
/// `allowed` are the allowed directories.
pub fn collect_link_dirs(
    roots: &[PublishedRoot],
    allowed: &[PathBuf],
) -> (Vec<PathBuf>, Arc<[LinkRule]>) {
    let mut paths: Vec<PathBuf> = Vec::new();
    let mut rules = Vec::new();
    for root in roots.iter().filter(|root| !root.link_dirs.is_empty()) {
        let root_path = native_path(&root.path);
        let Some(index) = allowed.iter().position(|dir| *dir == root_path) else {
            continue;
        };

        let mut dirs = Vec::new();
        for path in root.link_dirs.iter().map(|dir| native_path(dir)) {
            let known = paths.iter().position(|known| *known == path);
            dirs.push(known.unwrap_or_else(|| {
                paths.push(path);
                paths.len() - 1
            }));
        }
        rules.push(LinkRule { root: index, dirs });
    }
    (paths, rules.into())
}

fn native_path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}
