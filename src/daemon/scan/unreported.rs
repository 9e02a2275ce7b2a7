//! Changes below a root that inotify did not report, and may never report: a link target moved, a
//! read failed that may succeed now, a filesystem was mounted or unmounted, or a file changed through
//! another name. A write through another name of a file causes no event in the directory that was
//! listed, so fingerprints of the files are compared. Source: inotify(7).

use super::file_problem::{is_transient, is_vanished};
use super::scan_progress::ScanProgress;
use super::scanned_dir::{ListingEntry, ListingEntryKind, ScannedDir};
use super::scanned_root::ScannedRoot;
use super::watches::{DIR_FLAGS, RootWatches};
use crate::daemon::fs::dirs_snapshot::{AllowedDirsSnapshot, identity};
use crate::daemon::fs::open_file;
use crate::daemon::model::ResolvedPath;
use rustix::fs::fstat;
use std::collections::HashSet;

/// Returns the tokens of directories that need a rescan although inotify reported nothing, with the
/// directories at `mounts`, if there are any.
pub fn unreported_changes(
    root: &ScannedRoot,
    mounts: Option<&HashSet<Box<[u8]>>>,
    progress: &ScanProgress,
) -> HashSet<u64> {
    let changed = changed_dirs(root, progress).map(|(_, dir)| dir);

    // Every rescan retries failed manifests, so the token of the root is enough.
    let root_dir = root.dirs.get(&root.path);
    let root_dir = root_dir.filter(|_| root.plugins.has_failed_manifest());

    // A mount on a file changes the listing of the parent directory.
    let mounted = mounts
        .into_iter()
        .flatten()
        .filter_map(|mount| root.snapshot.locate_absolute(mount))
        .flat_map(|path| [path.parent(), Some(path)])
        .filter_map(|path| root.dirs.get(&path?));

    let dirs = changed.chain(root_dir).chain(mounted);
    dirs.map(|dir| dir.token)
        .chain(root.plugins.failed_tokens())
        .collect()
}

/// Returns the tokens of directories in which a file changed since it was read.
pub fn outdated_tokens(
    root: &ScannedRoot,
    watches: &RootWatches,
    progress: &ScanProgress,
) -> HashSet<u64> {
    let snapshot = &root.snapshot;
    let dirs = root.dirs.iter().filter(|(path, dir)| {
        progress.tick();
        dir.fingerprints.is_outdated(snapshot, path)
    });

    let manifests = root.plugins.manifests.iter();
    let manifests = manifests.filter(|(dir, read)| read.is_outdated(snapshot, dir));
    let manifests = manifests.filter_map(|(dir, _)| {
        let listed = root.dirs.get(dir).map(|dir| dir.token);
        listed.or_else(|| Some(watches.manifest_places.get(dir)?.0))
    });

    let plugins = root.plugins.dirs.iter();
    let plugins = plugins.filter(|(path, plugin)| plugin.is_outdated(snapshot, path));

    dirs.map(|(_, dir)| dir.token)
        .chain(manifests)
        .chain(plugins.map(|(_, plugin)| plugin.token))
        .collect()
}

/// Returns the tokens of directories at whose path another directory is now, such as the directory
/// below a mount that existed while the directory was listed.
pub fn replaced_dirs(root: &ScannedRoot, progress: &ScanProgress) -> HashSet<u64> {
    let replaced = root.dirs.iter().filter(|(path, dir)| {
        progress.tick();
        dir.listing.as_ref().is_ok_and(|listing| {
            let now = root.snapshot.open(path, DIR_FLAGS).and_then(fstat);
            !now.is_ok_and(|stat| identity(&stat) == listing.identity)
        })
    });
    replaced.map(|(_, dir)| dir.token).collect()
}

/// Returns the tokens of directories and plugins of which a read failed that may succeed now.
pub fn transient_failures(root: &ScannedRoot) -> HashSet<u64> {
    let dirs = root.dirs.iter().filter(|(path, dir)| {
        dir.entries().iter().any(has_transient_error) || may_list_now(dir, path, &root.snapshot)
    });
    dirs.map(|(_, dir)| dir.token)
        .chain(root.plugins.failed_tokens())
        .collect()
}

/// Whether a directory that could not be listed may be listed now. A directory that vanished may be
/// back, for example after an unmount.
fn may_list_now(dir: &ScannedDir, path: &ResolvedPath, snapshot: &AllowedDirsSnapshot) -> bool {
    dir.listing.as_ref().is_err_and(|problem| {
        is_transient(problem) || is_vanished(problem) && snapshot.open(path, DIR_FLAGS).is_ok()
    })
}

/// Returns the directories that need a new listing although inotify reported nothing.
pub fn changed_dirs<'r>(
    root: &'r ScannedRoot,
    progress: &'r ScanProgress,
) -> impl Iterator<Item = (&'r ResolvedPath, &'r ScannedDir)> {
    let dirs = root.dirs.iter();
    dirs.filter(|(path, dir)| has_unreported_change(dir, path, &root.snapshot, progress))
}

/// Whether a new listing of a directory may differ although inotify reported nothing: a link target
/// moved, or a read failed that may succeed now.
fn has_unreported_change(
    dir: &ScannedDir,
    path: &ResolvedPath,
    snapshot: &AllowedDirsSnapshot,
    progress: &ScanProgress,
) -> bool {
    let has_changed = |entry: &ListingEntry| {
        let target = || {
            let target = open_file::follow_link_now(snapshot, path, &entry.name);
            progress.tick();
            target
        };
        match &entry.kind {
            _ if has_transient_error(entry) => true,
            // Another directory may be at the same path, and not every directory reports events.
            ListingEntryKind::LinkedDirectory(to, id) => {
                target().is_none_or(|now| now.real_path != *to || identity(&now.stat) != *id)
            }
            ListingEntryKind::LinkedFile(to, _) => target().is_none_or(|now| now.real_path != *to),
            ListingEntryKind::BrokenLink(_) => target().is_some(),
            ListingEntryKind::Directory
            | ListingEntryKind::File(_)
            | ListingEntryKind::SpecialFile => false,
        }
    };

    dir.entries().iter().any(has_changed) || may_list_now(dir, path, snapshot)
}

/// Whether the entry is a SKILL.md that could not be read, or whose sidecar could not be read, and a new
/// attempt may succeed.
fn has_transient_error(entry: &ListingEntry) -> bool {
    match entry.read_skill_file() {
        None => false,
        Some(Err(problem)) => is_transient(problem),
        Some(Ok(file)) => {
            let sidecar = file.sidecar.as_ref();
            sidecar.is_some_and(|read| read.problems.iter().any(is_transient))
        }
    }
}
