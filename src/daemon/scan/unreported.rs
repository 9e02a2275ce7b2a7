//! Changes below a root that inotify did not report, and may never report: a link target moved, a
//! read failed that may succeed now, a filesystem was mounted or unmounted, or a file changed through
//! another name. A write through another name of a file causes no event in the directory that was
//! listed, so fingerprints of the files are compared. Source: inotify(7).

use super::file_problem::{is_transient, is_vanished};
use super::scan_progress::ScanProgress;
use super::scanned_dir::{ListingEntryKind, ScannedDir};
use super::scanned_root::ScannedRoot;
use super::watches::RootWatches;
use crate::daemon::fs::dirs_snapshot::{AllowedDirsSnapshot, identity};
use crate::daemon::fs::open_file;
use crate::daemon::model::skill::SkillFile;
use crate::daemon::model::{FileProblem, ResolvedPath};
use rustix::fs::{OFlags, fstat};
use std::collections::HashSet;
use std::sync::Arc;

/// Returns the tokens of directories that need a rescan although inotify reported nothing, with the
/// directories at `mounts`, if there are any.
pub fn unreported_changes(
    root: &ScannedRoot,
    mounts: Option<&HashSet<Box<[u8]>>>,
    progress: &ScanProgress,
) -> HashSet<u64> {
    let changed = root
        .dirs
        .iter()
        .filter(|(path, dir)| has_unreported_change(dir, path, &root.snapshot, progress))
        .map(|(_, dir)| dir);

    // Every rescan retries failed manifests, so the token of the root is enough.
    let root_dir = root
        .dirs
        .get(&root.path)
        .filter(|_| root.plugins.has_failed_manifest());

    // A mount on a file changes the listing of the parent directory.
    let mounted = mounts
        .into_iter()
        .flatten()
        .filter_map(|mount| root.snapshot.locate_absolute(mount))
        .flat_map(|path| [path.parent(), Some(path)])
        .flatten()
        .filter_map(|path| root.dirs.get(&path));

    let dirs = changed
        .chain(root_dir)
        .chain(mounted)
        .map(ScannedDir::token);
    dirs.chain(root.plugins.failed_tokens()).collect()
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
        dir.fingerprints().is_outdated(snapshot, path)
    });

    let manifests = root.plugins.outdated_manifests(snapshot);
    let manifests = manifests.filter_map(|dir| {
        let listed = root.dirs.get(dir).map(ScannedDir::token);
        listed.or_else(|| watches.manifest_place_token(dir))
    });

    dirs.map(|(_, dir)| dir.token())
        .chain(manifests)
        .chain(root.plugins.outdated_tokens(snapshot))
        .collect()
}

/// Returns the tokens of directories at whose path another directory is now, such as the directory
/// below a mount that existed while the directory was listed.
pub fn replaced_dirs(root: &ScannedRoot, progress: &ScanProgress) -> HashSet<u64> {
    let replaced = root.dirs.iter().filter(|(path, dir)| {
        progress.tick();
        let Ok(listing) = dir.listing() else {
            return false;
        };
        let now = root.snapshot.open(path, OFlags::PATH | OFlags::DIRECTORY);
        let now = now.and_then(fstat);
        !now.is_ok_and(|stat| identity(&stat) == listing.identity)
    });
    replaced.map(|(_, dir)| dir.token()).collect()
}

/// Returns the tokens of directories and plugins of which a read failed that may succeed now.
pub fn transient_failures(root: &ScannedRoot) -> HashSet<u64> {
    let dirs = root.dirs.iter().filter(|(path, dir)| match dir.listing() {
        Ok(listing) => listing.entries.iter().any(|entry| match &entry.kind {
            ListingEntryKind::File(Some(file)) | ListingEntryKind::LinkedFile(_, Some(file)) => {
                has_transient_error(file)
            }
            _ => false,
        }),
        Err(problem) => may_list_now(problem, path, &root.snapshot),
    });
    dirs.map(|(_, dir)| dir.token())
        .chain(root.plugins.failed_tokens())
        .collect()
}

/// Whether a directory that could not be listed may be listed now. A directory that vanished may be
/// back, for example after an unmount.
fn may_list_now(
    problem: &FileProblem,
    path: &ResolvedPath,
    snapshot: &AllowedDirsSnapshot,
) -> bool {
    let exists = || {
        snapshot
            .open(path, OFlags::PATH | OFlags::DIRECTORY)
            .is_ok()
    };
    is_transient(problem) || is_vanished(problem) && exists()
}

/// Whether a new listing of a directory may differ although inotify reported nothing: a link target
/// moved, or a read failed that may succeed now.
pub fn has_unreported_change(
    dir: &ScannedDir,
    path: &ResolvedPath,
    snapshot: &AllowedDirsSnapshot,
    progress: &ScanProgress,
) -> bool {
    let listing = match dir.listing() {
        Ok(listing) => listing,
        Err(problem) => return may_list_now(problem, path, snapshot),
    };

    listing.entries.iter().any(|entry| {
        let target = || {
            let target = open_file::follow_link_now(snapshot, path, &entry.name);
            progress.tick();
            target
        };
        match &entry.kind {
            ListingEntryKind::File(Some(file)) | ListingEntryKind::LinkedFile(_, Some(file))
                if has_transient_error(file) =>
            {
                true
            }
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
    })
}

/// Whether a SKILL.md or its sidecar could not be read, and a new attempt may succeed.
fn has_transient_error(file: &Result<Arc<SkillFile>, FileProblem>) -> bool {
    match file {
        Err(problem) => is_transient(problem),
        Ok(file) => file
            .sidecar
            .as_ref()
            .is_some_and(|read| read.problems.iter().any(is_transient)),
    }
}
